"""An agent's output as people read it: lines of its JSON stream in words, everything else as it is.

Pure: bytes go in as they come, lines come out. The output was written by an agent and its tools, may
have lost its middle and may end anywhere, so no line is believed to be what it should: what is not
understood stays as it is, and nothing that comes out drives a terminal. No more is held than a line,
and of a line no more than `MOST_CHARS`.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from handoffd.cli.wording import plain, shorten, terminal_text
from handoffd.engine.usage import Usage, counted
from handoffd.execute.stream import line as stream_line
from handoffd.execute.stream.format import StreamFormat
from handoffd.execute.stream.line import Part, StreamVerdict

Kind = stream_line.Kind | Literal["text", "result", "error", "other"]
"""What a line is: `text` is none of a stream, `other` is one that is not understood."""

MOST_CHARS = 1024 * 1024
"""A longer line comes in pieces, as plain text: as much as is kept of a whole output."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line, safe to be shown. `ended`: a line break follows; else more of it may."""

    text: str
    kind: Kind
    ended: bool = True


class Transcript:
    """Cuts an output into lines and says what each is.

    `rules` describe the executor's stream; None for one that prints plain text. Of plain text what
    has come of a line is not held back, unless `whole_lines` asks for it.
    """

    def __init__(self, rules: StreamFormat | None, *, whole_lines: bool = False) -> None:
        self._rules = rules
        self._whole_lines = whole_lines
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun: list[str] = []
        self._cut = False
        """Part of the line was given out before, so that the rest of it cannot be understood."""

    def feed(self, piece: bytes) -> Iterator[Line]:
        """Yield the lines that end in the next `piece` of the output."""
        *ended, rest = self._decoder.decode(piece).split("\n")
        for text in ended:
            self._begun.append(text)
            yield self._given(ended=True)
        self._begun.append(rest)
        if self._is_due():
            yield self._given(ended=False)

    def end(self) -> Iterator[Line]:
        """Yield what is left at the end of the output, if anything is."""
        self._begun.append(self._decoder.decode(b"", final=True))
        if any(self._begun):
            yield self._given(ended=False)

    def _is_due(self) -> bool:
        """Return whether a part of a line shall be given out before its end is there."""
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
    """Return what a line (without its break) says; `rules` None: that it is plain text is known."""
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
    said = f"error: {verdict.error}" if verdict.is_error else verdict.said or "without a word"
    denied = f"; it was not permitted to use {', '.join(verdict.denied)}" if verdict.denied else ""
    return said + denied


def _used(usage: Usage) -> str:
    """Return tokens and costs in brackets, as far as they are known."""
    read = usage.tokens - usage.output_tokens
    told = (
        f"{counted(read, 'token')} in" if read else "",
        f"{counted(usage.output_tokens, 'token')} out" if usage.output_tokens else "",
        f"${usage.cost_usd:.2f}" if usage.cost_usd is not None else "",
    )
    return f" ({', '.join(filter(None, told))})" if any(told) else ""
