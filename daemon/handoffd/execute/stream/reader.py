"""Reads one run's output as it arrives: session and model, current activity, usage, result.

Pure and bounded: bytes go in, in pieces of any size; the reader keeps the last few items of each kind and at
most one line. An agent and its tools wrote the output; it may have lost its middle and may end anywhere. The
reader counts lines that it does not understand; they remain in the run's output.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from handoffd.engine.run import Usage
from handoffd.execute.executor import Executor
from handoffd.execute.reports.report import printable
from handoffd.execute.stream.format import StreamFormat
from handoffd.execute.stream.line import (
    MAX_NAME_CHARS,
    LineReading,
    Part,
    Stated,
    StreamVerdict,
    one_line,
    read_line,
    text_at,
    word_at,
)

MAX_FILES: Final = 20
MAX_ERRORS: Final = 5
MAX_ACTIVITY_CHARS: Final = 200
_MAX_ID_CHARS = 128
_MAX_PATH_CHARS = 500
_GOES_ON: Final[Mapping[str, None]] = {"limit": None, "resets_at": None, "cause": None}
"""Applied at each sign of work: a limit or an error before it is over."""

_NOTED: Final = ("session", "model", "activity", "limit", "resets_at", "cause", "result")
"""The fields of which only the last value is kept; the rest is counted or listed."""


class Seen(Struct, frozen=True, kw_only=True):
    """The content of an output so far. Every text is one printable line."""

    session: str | None = None
    """The agent's own id of its session, which a later run may continue."""
    model: str | None = None
    usage: Usage = field(default_factory=Usage)
    activity: str | None = None
    """Its last action, at most 200 characters: `says ...`, `calls Bash: ...`; in plain text, a line."""
    tools: int = 0
    """How many tool calls it made."""
    files: tuple[str, ...] = ()
    """The last 20 files that it wrote with its own tools, the latest last."""
    errors: tuple[str, ...] = ()
    """The last 5 reported errors, which need not have ended the run."""
    lines: int = 0
    """Lines that are not empty."""
    malformed: int = 0
    """Lines of a JSON stream that are not JSON and fit no rule, and lines above 1 MiB in any output."""
    left_out: int = 0
    """Bytes that were lost before they could be read."""
    limit: str | None = None
    """The error that reports a usage limit or an overload, unless the agent continued after it."""
    resets_at: float | None = None
    """When that limit ends, in seconds since 1970, if the stream has it as a number."""
    cause: str | None = None
    """The provider's name or number of its last error (`rate_limit_error`, 403), unless it continued."""
    result: StreamVerdict | None = None
    """The last result line; None before there is one."""


class Checkpoint(Struct, frozen=True, kw_only=True):
    """The state of a reader at the end of a line, from which another reader can continue."""

    seen: Seen
    counted: Counted
    last_said: str | None = None


class StreamReader:
    """Reads one run's output.

    `before` is the usage of earlier runs of the continued session: some agents count it again.
    """

    def __init__(self, executor: Executor, before: Usage | None = None) -> None:
        self._rules = executor.stream or StreamFormat()
        self._is_plain = executor.output == "text"
        self._waits = (*executor.limits, *executor.overloads)
        self._causes = executor.waits
        self._lines = LineSplitter()
        self._torn = False
        self._tally = Tally(before)
        self._noted: dict[str, Any] = {}
        self._lines_seen = self._malformed = self._left_out = self._tools = 0
        self._files: dict[str, None] = {}
        self._errors: deque[str] = deque(maxlen=MAX_ERRORS)
        self._last_said: str | None = None

    @classmethod
    def resumed(cls, executor: Executor, standing: Checkpoint) -> StreamReader:
        """Return a reader that continues from another reader's state."""
        reader, seen = cls(executor), standing.seen
        noted = {name: getattr(seen, name) for name in _NOTED}
        reader._noted = {name: value for name, value in noted.items() if value is not None}
        reader._lines_seen, reader._malformed = seen.lines, seen.malformed
        reader._left_out, reader._tools = seen.left_out, seen.tools
        reader._last_said = standing.last_said
        reader._tally = Tally.resumed(standing.counted)
        reader._files = dict.fromkeys(seen.files)
        reader._errors.extend(seen.errors)
        return reader

    @property
    def standing(self) -> Checkpoint:
        """The state at the end of the last complete line."""
        return Checkpoint(seen=self.seen, counted=self._tally.counted, last_said=self._last_said)

    @property
    def held(self) -> int:
        """How many bytes of an incomplete line were fed."""
        return self._lines.held

    def feed(self, data: bytes, left_out: int = 0) -> tuple[Part, ...]:
        """Return the parts of the lines that `data` completes; `left_out` bytes before it are lost."""
        if left_out:
            self._left_out += left_out + self._lines.held
            self._lines.end()
            self._torn = True
        return tuple(part for line in self._lines.feed(data) for part in self._line(line))

    def end(self) -> tuple[Part, ...]:
        """Return the parts of a last line without a break."""
        return self._line(self._lines.end())

    @property
    def seen(self) -> Seen:
        """The content of the output so far."""
        return Seen(
            **self._noted,
            lines=self._lines_seen,
            malformed=self._malformed,
            left_out=self._left_out,
            tools=self._tools,
            usage=self._tally.usage,
            files=tuple(self._files),
            errors=tuple(self._errors),
        )

    def _line(self, line: bytes | None) -> tuple[Part, ...]:
        torn, self._torn = self._torn, False
        if line is not None and not line.strip():
            return ()
        reading = None if line is None else read_line(line, self._rules)
        if reading is None and torn:  # the end of a line whose beginning is lost
            self._left_out += len(line or b"")
            return ()
        self._lines_seen += 1
        if reading is not None:
            return self._take(reading)
        if line is None or not self._is_plain:
            self._malformed += 1
        else:
            self._note(activity=one_line(line.decode("utf-8", "replace"), MAX_ACTIVITY_CHARS))
        return ()

    def _take(self, reading: LineReading) -> tuple[Part, ...]:
        if "session" not in self._noted and (session := text_at(reading.data, self._rules.session)):
            self._note(session=printable(session)[:_MAX_ID_CHARS])
        if "model" not in self._noted and (model := text_at(reading.data, self._rules.model)):
            self._note(model=printable(model)[:_MAX_ID_CHARS])
        for part in reading.parts:
            self._take_part(part)
        for file in reading.files:
            self._take_file(file)
        if reading.usage is not None:
            self._tally.take(reading.usage)
        if reading.error is not None:
            self._take_error(reading.error)
        if cause := word_at(reading.data, self._rules.cause):
            self._take_cause(printable(cause)[:_MAX_ID_CHARS], reading.error)
        if reading.resets_at is not None:
            self._note(resets_at=reading.resets_at)
        if reading.verdict is not None:
            self._take_verdict(reading.verdict)
        return reading.parts

    def _take_part(self, part: Part) -> None:
        match part.kind:
            case "said":
                self._last_said = one_line(part.text)
                self._note(activity=one_line(f"says {part.text}", MAX_ACTIVITY_CHARS), **_GOES_ON)
            case "thought":
                self._note(activity="thinks")
            case "tool":
                name = one_line(part.tool, MAX_NAME_CHARS) or ""
                call = f"calls {name}: {part.text}" if part.text.strip() else f"calls {name}"
                self._note(activity=one_line(call, MAX_ACTIVITY_CHARS), **_GOES_ON)
                self._tools += 1

    def _take_file(self, file: str) -> None:
        name = printable(file)[:_MAX_PATH_CHARS]
        self._files.pop(name, None)
        self._files[name] = None
        if len(self._files) > MAX_FILES:
            del self._files[next(iter(self._files))]

    def _take_error(self, text: str) -> None:
        error = one_line(text)
        if error is None:
            return
        if not self._errors or self._errors[-1] != error:
            self._errors.append(error)
        self._note(activity=one_line(f"reports {error}", MAX_ACTIVITY_CHARS))
        if any(met.search(error) for met in self._waits):
            self._note(limit=error)

    def _take_cause(self, cause: str, error: str | None) -> None:
        self._note(cause=cause)
        if any(met.search(cause) for met in self._causes):
            self._note(limit=one_line(error or cause))

    def _take_verdict(self, verdict: StreamVerdict) -> None:
        if verdict.error is not None:
            self._take_error(verdict.error)
        elif verdict.is_error is False:
            self._note(**_GOES_ON)
            if verdict.said is None:
                verdict = replace(verdict, said=self._last_said)
        self._note(result=verdict)

    def _note(self, **values: object) -> None:
        self._noted.update(values)


# --- usage, in bounded memory ------------------------------------------------------------------------
class Counted(Struct, frozen=True, kw_only=True):
    """The state of a tally, from which another tally can continue."""

    before: Usage
    settled: Usage
    open: Mapping[str, Usage]


OPEN_KEYS = 64
"""How many keys may still get a later line, which replaces the earlier one: an agent and its subagents."""


class Tally:
    """The usage of one run so far; `before` is the usage of earlier runs of the same session."""

    def __init__(self, before: Usage | None = None) -> None:
        self._before = before or Usage()
        self._settled = Usage()
        self._open: dict[str, Usage] = {}

    def take(self, stated: Stated) -> None:
        """Count the usage in one line."""
        if stated.mode == "total":
            again = stated.counts == "session"
            self._settled = _without(stated.usage, self._before) if again else stated.usage
            self._open = {}
        elif stated.key is None:
            self._settled += stated.usage
        else:
            self._open.pop(stated.key, None)
            self._open[stated.key] = stated.usage
            if len(self._open) > OPEN_KEYS:
                self._settled += self._open.pop(next(iter(self._open)))

    @classmethod
    def resumed(cls, counted: Counted) -> Tally:
        """Return a tally that continues from another tally's state."""
        tally = cls(counted.before)
        tally._settled, tally._open = counted.settled, dict(counted.open)
        return tally

    @property
    def counted(self) -> Counted:
        """The state so far."""
        return Counted(before=self._before, settled=self._settled, open=dict(self._open))

    @property
    def usage(self) -> Usage:
        """The run's usage so far."""
        return sum(self._open.values(), self._settled)


def _without(usage: Usage, earlier: Usage) -> Usage:
    """Return `usage` minus `earlier`, at least zero."""
    cost = usage.cost_usd
    return Usage(
        input_tokens=max(0, usage.input_tokens - earlier.input_tokens),
        output_tokens=max(0, usage.output_tokens - earlier.output_tokens),
        cache_read_tokens=max(0, usage.cache_read_tokens - earlier.cache_read_tokens),
        cache_write_tokens=max(0, usage.cache_write_tokens - earlier.cache_write_tokens),
        cost_usd=None if cost is None else max(0.0, cost - (earlier.cost_usd or 0)),
        priced=usage.priced,
    )


# --- bytes into lines --------------------------------------------------------------------------------
MOST_LINE_BYTES: Final = 1024 * 1024


class LineSplitter:
    """Cuts an output into lines; its pieces may end anywhere."""

    def __init__(self, most: int = MOST_LINE_BYTES) -> None:
        self._most = most
        self._held: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[bytes | None]:
        """Yield the lines that end in `piece`, without line breaks; None for a line that is too long."""
        begun, *others = piece.split(b"\n")
        self._hold(begun)
        for other in others:
            yield self._taken()
            self._hold(other)

    def end(self) -> bytes | None:
        """Return the incomplete line and forget it; None if it is too long."""
        return self._taken()

    @property
    def held(self) -> int:
        """How many bytes of an incomplete line were fed."""
        return self._size

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._most:
            self._held.clear()
        elif piece:
            self._held.append(piece)

    def _taken(self) -> bytes | None:
        line = None if self._size > self._most else b"".join(self._held)
        self._held, self._size = [], 0
        return line


# --- the part of an output that people read after the run --------------------------------------------
MAX_LINES = 2000
MAX_PLAIN_CHARS = 2000


def last_words(rules: StreamFormat, verdict: StreamVerdict | None, output: bytes) -> str:
    """Return the lines of a stream that people should read, the most informative last; perhaps none.

    Without a result line (the agent was ended, or it crashed) these are its last message and tool call, and
    the lines after them that are not part of the stream, most likely standard error.
    """
    lines = []
    if verdict is not None and verdict.error is not None:
        lines.append(f"it reported: {verdict.error}")
    if verdict is not None and verdict.said is not None:
        lines.append(f"it said: {verdict.said}")
    if verdict is not None and verdict.denied:
        lines.append(f"it was not permitted to use {', '.join(verdict.denied)}")
    return "\n".join(lines or _last_lines(rules, output))


def plain_words(text: str) -> str:
    """Return the output of an agent without a stream: unchanged lines, but printable."""
    lines = [printable(line.replace("\t", " ")) for line in text.splitlines()]
    return "\n".join(lines) + ("\n" if text.endswith("\n") else "")


def _last_lines(rules: StreamFormat, output: bytes) -> list[str]:
    """Return the agent's last message, its tool call after that, and the plain lines since then."""
    since: list[bytes] = []
    called: list[str] = []
    for line in reversed(output.split(b"\n")[-MAX_LINES:]):
        if not called:
            since.append(line.strip())
        reading = read_line(line, rules)
        for part in reversed(reading.parts if reading else ()):
            if part.kind == "said" and (said := one_line(part.text)):
                return [f"it said: {said}", *called, *_plain_end(b"\n".join(since[::-1]))]
            if part.kind == "tool" and not called:
                called.append(_call(part))
    return [*called, *_plain_end(b"\n".join(since[::-1]))]


def _call(part: Part) -> str:
    argument = one_line(part.text)
    return f"it called {printable(part.tool)[:MAX_NAME_CHARS]}" + (f": {argument}" if argument else "")


def plain_lines(output: bytes) -> list[str]:
    """Return the lines at an output's end that are neither empty nor part of a stream, printable.

    The end of a stream line whose beginning is lost is left out, too.
    """
    lines = (line.strip() for line in output.split(b"\n")[-MAX_LINES:])
    plain = (line for line in lines if line and not line.startswith(b"{") and not line.endswith(b"}"))
    return [printable(line.decode("utf-8", "replace")) for line in plain]


def _plain_end(output: bytes) -> list[str]:
    return "\n".join(plain_lines(output))[-MAX_PLAIN_CHARS:].splitlines()
