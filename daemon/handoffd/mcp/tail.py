"""The end of a run's output: what an agent printed last, in lines a model can afford to read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handoffd.control.runlog import Tail
from handoffd.entrance.asking import Answer
from handoffd.entrance.place import Place
from handoffd.errors import NoDaemon, Refused
from handoffd.mcp.offer import Json, project_of

_LINES: Final = 40
_MOST_BYTES: Final = 256 * 1024
"""Of the end of an output; what is before it is not looked at."""
_MOST_CHARS: Final = 2_000
"""Of a line: a stream's lines may hold whole files."""
_RUN_HEADER: Final = "X-Handoffd-Run"


def tail_of(place: Place, given: Json) -> Answer:
    """Return `{"run", "lines", "more"}`: the last lines, oldest first, and whether there were others before.

    Raises Refused (BAD_ARGUMENT) when neither a run nor a project is named, NotFound like the read `log`.
    """
    project, run = project_of(given), given.get("run")
    if project is None and run is None:
        raise Refused("log_tail: name a project or a run", code="BAD_ARGUMENT", hint="handoffd runs")
    try:
        query = {"project": None if run else project, "run": run, "follow": 0}
        with place.client().stream("/v1/log", **query) as stream:
            name, end = stream.header(_RUN_HEADER) or "", _end_of(stream.pieces())
        daemon = True
    except NoDaemon:
        (name, end), daemon = _alone(place, None if run else project, run), False
    lines = _lines(end)
    most = given.get("lines", _LINES)
    more = len(lines) > most or len(end) >= _MOST_BYTES
    return Answer({"run": name, "lines": lines[-most:], "more": more}, daemon)


def _alone(place: Place, project: str | None, run: str | None) -> tuple[str, bytes]:
    from handoffd.entrance import offline

    found = offline.look(place.settings(), lambda service: service.log_of(project, run))
    tail = Tail(found)
    return found.run, _end_of(_pieces(tail))


def _pieces(tail: Tail) -> Iterator[bytes]:
    while piece := tail.read():
        yield piece


def _end_of(pieces: Iterator[bytes]) -> bytes:
    end = b""
    for piece in pieces:
        end = (end + piece)[-_MOST_BYTES:]
    return end


def _lines(end: bytes) -> list[str]:
    found = end.decode("utf-8", "replace").splitlines()
    return [line if len(line) <= _MOST_CHARS else f"{line[:_MOST_CHARS]}…" for line in found if line.strip()]
