"""`handoffd log`: an agent's output; `events`: each decision and its cause. Both can follow live."""

from __future__ import annotations

import codecs
import json
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal

import click
from msgspec import Struct
from msgspec.structs import replace

from handoffd.api.client import Stream
from handoffd.cli.asking import insisted, json_option, narrowing, project_argument
from handoffd.cli.wording import called, moment, plain, shorten, terminal_text
from handoffd.engine.flow.flow import FLOWS
from handoffd.engine.run import Usage
from handoffd.engine.wording import counted
from handoffd.entrance.place import Place
from handoffd.entrance.requests import Answer, ask
from handoffd.errors import HandoffdError, NoDaemon
from handoffd.execute.stream import line as stream_line
from handoffd.execute.stream.format import StreamFormat
from handoffd.execute.stream.line import Part, StreamVerdict

if TYPE_CHECKING:
    from handoffd.api.reads import RunLog
    from handoffd.execute.stream.format import StreamFormat


# --- an agent's stream as lines ------------------------------------------------------------------------
# Pure: takes bytes as they come, returns lines. An agent and its tools wrote the output: its middle may be
# missing and it may end anywhere. So lines that cannot be parsed are passed through, and control sequences
# are escaped. The memory used is one line, of at most `MOST_CHARS`.
Kind = stream_line.Kind | Literal["text", "result", "error", "other"]
"""Kind of a line: `text` is plain output, `other` is a stream's line that could not be parsed."""

MOST_CHARS = 1024 * 1024
"""A longer line is split and shown as plain text; as long as the whole output that is kept."""
_SHORT = 300

_MARKS: Mapping[stream_line.Kind, str] = {
    "session": "[session] ",
    "told": "[told] ",
    "said": "",
    "thought": "[thought] ",
    "tool": "[tool] ",
    "tool_result": "[tool result] ",
    "tool_error": "[tool failed] ",
}


class Line(Struct, frozen=True, kw_only=True):
    """One line, safe to print. `ended`: a line break follows; otherwise more of the line may come."""

    text: str
    kind: Kind
    ended: bool = True


class Transcript:
    """Splits an output into lines and classifies each.

    `rules` describe the executor's stream format; None means plain text. Unfinished lines of plain text are
    passed on at once, unless `whole_lines` is set.
    """

    def __init__(self, rules: StreamFormat | None, *, whole_lines: bool = False) -> None:
        self._rules = rules
        self._whole_lines = whole_lines
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun: list[str] = []
        self._cut = False
        """True after a part of the line was returned: the rest alone cannot be parsed."""

    def feed(self, piece: bytes) -> Iterator[Line]:
        """Yield the lines completed by the next `piece` of the output."""
        *ended, rest = self._decoder.decode(piece).split("\n")
        for text in ended:
            self._begun.append(text)
            yield self._given(ended=True)
        if rest:
            self._begun.append(rest)
        if self._is_due():
            yield self._given(ended=False)

    def end(self) -> Iterator[Line]:
        """Yield the unfinished line at the end of the output, if there is one."""
        self._begun.append(self._decoder.decode(b"", final=True))
        if any(self._begun):
            yield self._given(ended=False)

    def _is_due(self) -> bool:
        """Return whether to pass on an unfinished line now."""
        held = sum(map(len, self._begun))
        if held > MOST_CHARS:
            return True
        waits = self._whole_lines or (self._rules is not None and not self._cut)
        return held > 0 and not waits and not self._begun[-1].endswith("\r")  # a line break may follow it

    def _given(self, *, ended: bool) -> Line:
        text, self._begun = "".join(self._begun), []
        line = read_line(text, None if self._cut or len(text) > MOST_CHARS else self._rules)
        self._cut = not ended
        return replace(line, ended=ended)


def read_line(text: str, rules: StreamFormat | None) -> Line:
    """Parse one line without its line break; with `rules` None it is plain text."""
    reading = stream_line.read_line(text, rules) if rules is not None else None
    if reading is None:
        return Line(text=_as_it_is(text), kind="text")
    if reading.verdict is not None:
        used = _used(reading.usage.usage) if reading.usage else ""
        return Line(text=plain(f"[result] {_result(reading.verdict)}{used}"), kind="result")
    if reading.parts:
        return Line(text=" | ".join(map(_shown, reading.parts)), kind=reading.parts[0].kind)
    if reading.error is not None:
        return Line(text=plain(f"[error] {shorten(reading.error, _SHORT)}"), kind="error")
    return Line(text=_as_it_is(text), kind="other")


def _as_it_is(text: str) -> str:
    return terminal_text(text.removesuffix("\r").encode("utf-8", "replace"))


def _shown(part: Part) -> str:
    words = part.text if part.kind == "said" else shorten(part.text, _SHORT)
    if part.kind == "tool":
        words = f"{shorten(part.tool, 64)}: {words}" if words else shorten(part.tool, 64)
    return plain(f"{_MARKS[part.kind]}{words}")


def _result(verdict: StreamVerdict) -> str:
    said = f"error: {verdict.error}" if verdict.is_error else verdict.said or "no text"
    denied = f"; it lacked permission to use {', '.join(verdict.denied)}" if verdict.denied else ""
    return said + denied


def _used(usage: Usage) -> str:
    """Return tokens and costs in brackets, if the agent reported them."""
    read = usage.tokens - usage.output_tokens
    told = (
        f"{counted(read, 'token')} in" if read else "",
        f"{counted(usage.output_tokens, 'token')} out" if usage.output_tokens else "",
        f"${usage.cost_usd:.2f}" if usage.cost_usd is not None else "",
    )
    return f" ({', '.join(filter(None, told))})" if any(told) else ""


# --- log -----------------------------------------------------------------------------------------------
_RUN_HEADER = "X-Handoffd-Run"
_LATEST = 20
_MOST_RUNS = 1000
_LONG_LINE = 2_000


@click.command()
@project_argument
@click.option("--run", "run_id", metavar="RUN", help="The run to show; `handoffd runs` lists them.")
@click.option("--story", metavar="STORY", help="Of the project's runs, the latest one of this story.")
@click.option("--follow", "-f", is_flag=True, help="Keep printing while it runs.")
@click.option("--raw", is_flag=True, help="Print the bytes unchanged.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each line.")
@click.pass_obj
def log(
    place: Place,
    project: str | None,
    run_id: str | None,
    story: str | None,
    follow: bool,
    raw: bool,
    as_json: bool,
) -> None:
    """Print the output of PROJECT's latest run, of STORY's latest one, or of RUN.

    Lines of an agent's JSON stream become readable text, and control sequences are escaped. The checks of
    a run are runs of their own: RUN.tests, RUN.second, RUN.baseline, RUN.post (or RUN.post.NAME).
    """
    if raw and as_json:
        raise click.UsageError("--raw and --json exclude each other")
    if run_id is not None and story is not None:
        raise click.UsageError("--run and --story exclude each other")
    named = place.project(project) if run_id is None else None
    with ExitStack() as open_streams:
        run, pieces, _ = _opened(place, named, run_id, follow, open_streams, story)
        if raw:
            _print_raw(pieces)
        else:
            of_any_age = run_id is not None or story is not None
            rules = _stream_of(place, None if of_any_age else named, run)
            _print_lines(pieces, rules, as_json=as_json)


def last_lines(place: Place, project: str | None, run: str | None, most: int) -> Answer:
    """Return `{"run", "lines", "more"}`: the last lines of an output as text, without blank lines.

    Long lines are cut. `more`: the output has earlier lines. Raises NotFound.
    """
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

    transcript = Transcript(rules, whole_lines=as_json)
    try:
        for piece in pieces:
            _print(transcript.feed(piece), as_json=as_json)
    finally:  # also after Ctrl-C
        _print(transcript.end(), as_json=as_json)


def _print(lines: Iterator[Line], *, as_json: bool) -> None:
    for line in lines:
        if as_json:
            click.echo(json.dumps({"line": line.text, "kind": line.kind}, ensure_ascii=False))
        else:
            click.echo(line.text, nl=line.ended)
    sys.stdout.flush()


def _opened(
    place: Place,
    project: str | None,
    run: str | None,
    follow: bool,
    open_streams: ExitStack,
    story: str | None = None,
) -> tuple[str, Iterator[bytes], bool]:
    """Return a run's id, its output as a stream, and whether a daemon answered."""
    query = {"project": project, "run": run, "story": story, "follow": int(follow)}

    def opened() -> Stream:
        return open_streams.enter_context(place.client().stream("/v1/log", **query))

    try:
        stream = insisted(opened) if follow else opened()
    except NoDaemon:
        found = _found(place, project, run, story)
        return found.run, _kept(found, follow=follow), False
    return stream.header(_RUN_HEADER) or "", stream.pieces(), True


def _found(place: Place, project: str | None, run: str | None, story: str | None) -> RunLog:
    """Return the output's file on disk: agents keep writing while no daemon runs."""
    from handoffd.entrance import offline

    return offline.look(place.settings(), lambda service: service.log_of(project, run, story))


def _kept(found: RunLog, *, follow: bool) -> Iterator[bytes]:
    from handoffd.api.reads import LOOK_S, Tail

    tail = Tail(found)
    while True:
        over = not follow or found.is_over()
        piece = tail.read()
        if piece:
            yield piece
        elif over:
            return
        else:
            time.sleep(LOOK_S)  # until Ctrl-C or the end of the run


def _stream_of(place: Place, project: str | None, run: str) -> StreamFormat | None:
    """Return the stream format of a run's executor; None for plain text.

    An executor that the settings no longer name is assumed to print plain text.
    """
    from handoffd.execute.registry import Layer, load_book, shipped_layer

    if "." in run:
        return None  # a check prints plain text
    try:
        name = _executor_of(place, project, run)
        own = Layer(file="handoffd.yaml", definitions=place.settings().executors)
        executor = load_book(shipped_layer(), own).executors.get(name or "")
    except HandoffdError:
        return None  # the output can be shown without it
    return executor.stream if executor is not None and executor.output == "stream-json" else None


def _executor_of(place: Place, project: str | None, run: str) -> str | None:
    limit = _MOST_RUNS if project is None else _LATEST  # of a project, the latest run with an output
    found = ask(place, "runs", project=project, limit=limit).json["runs"]
    return next((known["executor"] for known in found if known["run"] == run), None)


# --- events --------------------------------------------------------------------------------------------
_WIDTH = 400
"""Most characters of a fact: notes and errors can be pages long."""


@click.command()
@project_argument
@click.option("--project", "-p", "named", metavar="PROJECT", help="Same as PROJECT.")
@click.option(
    "--after", type=click.IntRange(min=0), metavar="SEQ", help="Only events with a number above SEQ."
)
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Most events to print."
)
@click.option("--follow", "-f", is_flag=True, help="Keep printing new events until Ctrl-C.")
@click.option("--oneline", is_flag=True, help="One line per event, without details.")
@narrowing
@json_option
@click.pass_obj
def events(place: Place, /, **asked: Any) -> None:
    """Print each decision about PROJECT or all projects, oldest first, with its cause.

    Below a decision: the fact that led to it, the rule that decided (a row of the step table, a limit), and
    the consequences. Without --after: the latest events, of the part that is asked for. --json prints one
    object per line; an object of type `gap` marks missing events.
    """
    word = asked["project"] or asked["named"]
    named = None if word is None else place.project(word)
    part = {name: asked[name] for name in ("story", "step", "flow", "since", "until", "after")}
    if asked["follow"]:
        found: Iterable[dict[str, Any]] = _follow(place, {**part, "project": named})
    else:
        found = _recorded(place, {**part, "project": named, "limit": asked["limit"]})
    silent = not (asked["as_json"] or asked["follow"])
    for event in found:
        silent = False
        if asked["as_json"]:
            click.echo(json.dumps(event, ensure_ascii=False))
        else:
            click.echo("\n".join([line(event), *([] if asked["oneline"] else explained(event))]))
    if silent:
        click.echo("Nothing of that has happened." if any(part.values()) else "Nothing has happened yet.")


def explained(event: dict[str, Any]) -> list[str]:
    """Return the fact, the rules and the consequences of a decision; nothing for a gap."""
    if event["type"] == "gap":
        return []
    told = {
        "what": event.get("what"),
        "rule": ", ".join(f"{one['rule']} = {one['value']}" for one in event.get("rules", ())),
        "next": event.get("next"),
    }
    return [f"    {name}  {shorten(text, _WIDTH)}" for name, text in told.items() if text]


def line(event: dict[str, Any]) -> str:
    """Return one event as a line of text."""
    if event["type"] == "gap":
        first, last = event["after"] + 1, event["next"] - 1
        missing = f"events {first} to {last} are missing" if first <= last else f"there is no event {first}"
        return f"-- {missing}: {plain(event['why'])}; continuing at {event['next']} --"
    before, after = _standing(event["before"]), _standing(event["after"])
    moved = f" [{before} → {after}]" if before != after else f" [{after}]"
    if event["result"].get("type") == "flow":
        moved = f" [{plain(event['track'].removeprefix(FLOWS))}]"
    what = f"{plain(event['kind'])}: {plain(event['why'] or event.get('what') or '')}{moved}"
    return f"{moment(event['at'])}  {event['seq']}  {called(event)}  {what}"


def _recorded(place: Place, wanted: dict[str, Any]) -> list[dict[str, Any]]:
    answer = ask(place, "events", **wanted)
    recorded: list[dict[str, Any]] = answer.json["events"]
    gaps: list[dict[str, Any]] = answer.json.get("gaps", [])  # older daemons do not report gaps
    return sorted([*recorded, *gaps], key=_place)


def _place(one: dict[str, Any]) -> float:
    """Return the sort key of an event or gap: a gap precedes the event after it."""
    return float(one["next"]) - 0.5 if one["type"] == "gap" else float(one["seq"])


def _follow(place: Place, wanted: dict[str, Any]) -> Iterator[dict[str, Any]]:
    def begun() -> Iterator[dict[str, Any]]:
        lines = place.client().lines("/v1/events", **wanted, follow=1)
        return chain(list(islice(lines, 1)), lines)

    try:
        yield from insisted(begun)
    except NoDaemon as none:
        raise NoDaemon(f"no new events without a daemon: {none.message}", hint=none.hint) from none


def _standing(standing: dict[str, str] | None) -> str:
    return f"{plain(standing['step'])} {standing['status']}" if standing else "–"
