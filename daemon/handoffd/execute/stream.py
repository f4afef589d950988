"""What an agent's own JSON stream says about how the run went.

Neither the exit code nor a line's subtype can be trusted: some agents report a failed request as a
success with exit code 0. What counts is the error flag of the last result line. The stream is cut
in the middle when it is long, and tools may have written into it: whatever is no JSON object with the
right type is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from handoffd.execute.executor import Executor, ResultLine
from handoffd.execute.messages import Part, decoded, parts_of
from handoffd.execute.reports.report import printable

MAX_TEXT_CHARS = 500
MAX_TOOLS = 10
MAX_LINES = 2000
MAX_PLAIN_CHARS = 2000
MAX_COST = 1e9
_NO_TEXT = "an error without a text"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamVerdict:
    """`is_error` is None when the stream does not say (it was cut off, or is no such stream)."""

    is_error: bool | None = None
    error: str | None = None
    """One line, at most 500 characters; set only with `is_error`."""
    said: str | None = None
    """The agent's last message when it does not report an error; one line, as long."""
    denied: tuple[str, ...] = ()
    """The tools it wanted and was not permitted to use, each once."""
    session_id: str | None = None
    cost: float | None = None
    """US dollars, as the agent reckons them."""


def stream_verdict(executor: Executor, output: bytes) -> StreamVerdict:
    """Return what the last result line in `output` (the run's output, or its end) says."""
    keys = executor.result
    if executor.output != "stream-json" or keys is None:
        return StreamVerdict()
    for line in reversed(_lines(output)):
        data = decoded(line)
        if data is not None and (verdict := verdict_in(data, keys)) is not None:
            return verdict
    return StreamVerdict()


def verdict_in(data: Mapping[str, Any], keys: ResultLine) -> StreamVerdict | None:
    """Return what one line's object says about the run; None when it is no result line."""
    return _verdict(data, keys) if data.get("type") == keys.type else None


def last_words(verdict: StreamVerdict, output: bytes) -> str:
    """Return what people should read of a stream: a few lines, the most telling last; perhaps none.

    Without a result line (it was ended, or it crashed) that is what it said and did last, and what
    follows that without being of the stream, most likely standard error.
    """
    lines = []
    if verdict.error is not None:
        lines.append(f"it reported: {verdict.error}")
    if verdict.said is not None:
        lines.append(f"it said: {verdict.said}")
    if verdict.denied:
        lines.append(f"it was not permitted to use {', '.join(verdict.denied)}")
    return "\n".join(lines or _last_lines(output))


def plain_words(text: str) -> str:
    """Return what an agent without a stream has printed: its lines as they are, but harmless."""
    lines = [printable(line.replace("\t", " ")) for line in text.splitlines()]
    return "\n".join(lines) + ("\n" if text.endswith("\n") else "")


def _last_lines(output: bytes) -> list[str]:
    """Return what the agent said last, the tool it called after that, and what was printed since."""
    since: list[bytes] = []
    called: list[str] = []
    for line in reversed(_lines(output)):
        if not called:
            since.append(line.strip())
        for part in reversed(parts_of(decoded(line) or {})):
            if part.kind == "said" and (said := _one_line(part.text)):
                return [f"it said: {said}", *called, *_plain_lines(since[::-1])]
            if part.kind == "tool" and not called:
                called.append(_call(part))
    return [*called, *_plain_lines(since[::-1])]


def _call(part: Part) -> str:
    argument = _one_line(part.text)
    return f"it called {printable(part.tool)[:64]}" + (f": {argument}" if argument else "")


def _plain_lines(lines: list[bytes]) -> list[str]:
    # The first line may be the end of a longer one.
    plain = [line for line in lines if not line.startswith(b"{") and not line.endswith(b"}")]
    texts = (printable(line.decode("utf-8", "replace")) for line in plain if line)
    return "\n".join(texts)[-MAX_PLAIN_CHARS:].splitlines()


def _lines(output: bytes) -> list[bytes]:
    return output.split(b"\n")[-MAX_LINES:]


def _verdict(data: Mapping[str, Any], keys: ResultLine) -> StreamVerdict:
    flag = data.get(keys.is_error)
    is_error = flag if isinstance(flag, bool) else None
    text = _one_line(data.get(keys.text))
    errors = _strings(data.get(keys.errors)) if keys.errors else []
    session = data.get(keys.session) if keys.session else None
    cost = data.get(keys.cost) if keys.cost else None
    return StreamVerdict(
        is_error=is_error,
        error=(text or _one_line(" ".join(errors)) or _NO_TEXT) if is_error else None,
        said=text if is_error is False else None,
        denied=_denied(data.get(keys.denials)) if keys.denials else (),
        session_id=printable(session)[:128] if isinstance(session, str) else None,
        cost=_amount(cost),
    )


def _one_line(text: object) -> str | None:
    words = " ".join(text.split()) if isinstance(text, str) else ""
    return printable(words)[:MAX_TEXT_CHARS] or None


def _strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _denied(value: object) -> tuple[str, ...]:
    entries = [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
    names = (entry.get("tool_name") for entry in entries)
    return tuple(dict.fromkeys(printable(name)[:64] for name in names if isinstance(name, str)))[:MAX_TOOLS]


def _amount(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MAX_COST:
        return None
    return float(value)
