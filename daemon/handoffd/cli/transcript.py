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
from typing import Any, Literal

from handoffd.cli.wording import minutes, plain, shorten, terminal_text
from handoffd.execute import messages
from handoffd.execute.executor import ResultLine
from handoffd.execute.messages import Part, decoded, parts_of
from handoffd.execute.stream import StreamVerdict, verdict_in

Kind = messages.Kind | Literal["text", "result", "other"]
"""What a line is: `text` is none of a stream, `other` is one that is not understood."""

MOST_CHARS = 1024 * 1024
"""A longer line comes in pieces, as plain text: as much as is kept of a whole output."""
_SHORT = 300
_MOST = 10**15

_MARKS: Mapping[messages.Kind, str] = {
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

    `keys` describes the executor's stream; None for one that prints plain text. Of plain text what
    has come of a line is not held back, unless `whole_lines` asks for it.
    """

    def __init__(self, keys: ResultLine | None, *, whole_lines: bool = False) -> None:
        self._keys = keys
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
        waits = self._whole_lines or (self._keys is not None and not self._cut)
        return held > 0 and not waits and not self._begun[-1].endswith("\r")  # a line break may follow it

    def _given(self, *, ended: bool) -> Line:
        text, self._begun = "".join(self._begun), []
        line = read_line(text, None if self._cut or len(text) > MOST_CHARS else self._keys)
        self._cut = not ended
        return replace(line, ended=ended)


def read_line(text: str, keys: ResultLine | None) -> Line:
    """Return what a line (without its break) says; `keys` None: that it is plain text is known."""
    data = decoded(text) if keys is not None else None
    if data is None or keys is None:
        return Line(text=_as_it_is(text), kind="text")
    verdict = verdict_in(data, keys)
    if verdict is not None:
        return Line(text=plain(f"[result] {_result(verdict)}{_usage(data, verdict)}"), kind="result")
    parts = parts_of(data)
    if not parts:
        return Line(text=_as_it_is(text), kind="other")
    return Line(text=" | ".join(map(_shown, parts)), kind=parts[0].kind)


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


def _usage(data: Mapping[str, Any], verdict: StreamVerdict) -> str:
    """Return what the run took, as far as its result line says so, in brackets."""
    used = data.get("usage")
    used = used if isinstance(used, Mapping) else {}
    read = [_number(used.get(key)) for key in used if isinstance(key, str) and key.endswith("input_tokens")]
    turns, took_ms, wrote = map(
        _number, (data.get("num_turns"), data.get("duration_ms"), used.get("output_tokens"))
    )
    told = (
        f"{turns:.0f} turns" if turns is not None else "",
        f"{minutes(took_ms / 60_000)} min" if took_ms is not None else "",
        f"{sum(filter(None, read)):.0f} tokens in" if any(read) else "",
        f"{wrote:.0f} tokens out" if wrote is not None else "",
        f"${verdict.cost:.2f}" if verdict.cost is not None else "",
    )
    return f" ({', '.join(filter(None, told))})" if any(told) else ""


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MOST:
        return None
    return float(value)
