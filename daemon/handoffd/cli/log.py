"""`handoffd log`: what an agent printed, whole or as it comes."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING

import click

from handoffd.api.client import Json, Stream
from handoffd.cli.asking import insisted, project_argument
from handoffd.entrance.place import Place
from handoffd.entrance.requests import Answer, either
from handoffd.errors import HandoffdError, NoDaemon

if TYPE_CHECKING:
    from handoffd.api.run_output import RunLog
    from handoffd.cli.transcript import Line
    from handoffd.execute.stream.format import StreamFormat

_RUN_HEADER = "X-Handoffd-Run"
_LATEST = 20
_MOST_RUNS = 1000
_LONG_LINE = 2_000


@click.command()
@project_argument
@click.option("--run", "run_id", metavar="RUN", help="The run to show; `handoffd runs` lists them.")
@click.option("--follow", "-f", is_flag=True, help="Go on while it runs.")
@click.option("--raw", is_flag=True, help="Print the bytes as they were written.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each line.")
@click.pass_obj
def log(
    place: Place, project: str | None, run_id: str | None, follow: bool, raw: bool, as_json: bool
) -> None:
    """Print the output of PROJECT's latest run, or of the run named.

    Lines of an agent's JSON stream are put into words, and control sequences are shown instead of
    obeyed. A check of a run is a run, too: RUN.tests, RUN.baseline, RUN.post.
    """
    if raw and as_json:
        raise click.UsageError("--raw and --json exclude each other")
    named = place.project(project) if run_id is None else None
    with ExitStack() as open_streams:
        run, pieces, _ = _opened(place, named, run_id, follow, open_streams)
        if raw:
            _print_raw(pieces)
        else:
            _print_lines(pieces, _stream_of(place, named, run), as_json=as_json)


def last_lines(place: Place, project: str | None, run: str | None, most: int) -> Answer:
    """Return `{"run", "lines", "more"}`: the last lines of an output in words, blank ones left out.

    Of a long line its beginning; `more`: others came before. Raises NotFound.
    """
    from handoffd.cli.transcript import Transcript
    from handoffd.cli.wording import shorten

    lines: deque[str] = deque(maxlen=most + 1)
    with ExitStack() as open_streams:
        name, pieces, daemon = _opened(place, None if run else project, run, False, open_streams)
        transcript = Transcript(_stream_of(place, project, name), whole_lines=True)
        for found in chain(chain.from_iterable(map(transcript.feed, pieces)), transcript.end()):
            if found.text.strip():
                lines.append(shorten(found.text, _LONG_LINE))
    told = {"run": name, "lines": list(lines)[-most:], "more": len(lines) > most}
    return Answer(told, daemon)


def _print_raw(pieces: Iterator[bytes]) -> None:
    for piece in pieces:
        sys.stdout.buffer.write(piece)
        sys.stdout.flush()


def _print_lines(pieces: Iterator[bytes], rules: StreamFormat | None, *, as_json: bool) -> None:
    from handoffd.cli.transcript import Transcript

    transcript = Transcript(rules, whole_lines=as_json)
    try:
        for piece in pieces:
            _print(transcript.feed(piece), as_json=as_json)
    finally:  # after Ctrl-C, too
        _print(transcript.end(), as_json=as_json)


def _print(lines: Iterator[Line], *, as_json: bool) -> None:
    for line in lines:
        if as_json:
            click.echo(json.dumps({"line": line.text, "kind": line.kind}, ensure_ascii=False))
        else:
            click.echo(line.text, nl=line.ended)
    sys.stdout.flush()


def _opened(
    place: Place, project: str | None, run: str | None, follow: bool, open_streams: ExitStack
) -> tuple[str, Iterator[bytes], bool]:
    """Return the id of a run, its output, which comes as it is asked for, and whether a daemon answered."""
    query = {"project": project, "run": run, "follow": int(follow)}

    def opened() -> Stream:
        return open_streams.enter_context(place.client().stream("/v1/log", **query))

    try:
        stream = insisted(opened) if follow else opened()
    except NoDaemon:
        found = _found(place, project, run)
        return found.run, _kept(found, follow=follow), False
    return stream.header(_RUN_HEADER) or "", stream.pieces(), True


def _found(place: Place, project: str | None, run: str | None) -> RunLog:
    """Return where an output lies on the disk: agents go on writing without a daemon."""
    from handoffd.entrance import offline

    return offline.look(place.settings(), lambda service: service.log_of(project, run))


def _kept(found: RunLog, *, follow: bool) -> Iterator[bytes]:
    from handoffd.api.run_output import LOOK_S, Tail

    tail = Tail(found)
    while True:
        over = not follow or found.is_over()
        piece = tail.read()
        if piece:
            yield piece
        elif over:
            return
        else:
            time.sleep(LOOK_S)  # until Ctrl-C, or until the run is over


def _stream_of(place: Place, project: str | None, run: str) -> StreamFormat | None:
    """Return how the stream of a run's executor is described; None for plain text.

    An executor that the settings do not know (any more) is taken to print plain text.
    """
    from handoffd.execute.registry import Layer, load_book, shipped_layer

    if "." in run:
        return None  # a check: what it prints is its own
    try:
        name = _executor_of(place, project, run)
        own = Layer(file="handoffd.yaml", definitions=place.settings().executors)
        executor = load_book(shipped_layer(), own).executors.get(name or "")
    except HandoffdError:
        return None  # the output is there all the same
    return executor.stream if executor is not None and executor.output == "stream-json" else None


def _executor_of(place: Place, project: str | None, run: str) -> str | None:
    limit = _MOST_RUNS if project is None else _LATEST  # of a project it is the latest that has an output

    def without() -> Json:
        from handoffd.entrance import offline

        return {"runs": offline.look(place.settings(), lambda service: service.runs(project, limit))}

    answer = either(place, lambda client: client.get("/v1/runs", project=project, limit=limit), without)
    return next((known["executor"] for known in answer.json["runs"] if known["run"] == run), None)
