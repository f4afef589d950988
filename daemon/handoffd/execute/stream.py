"""What an agent's own JSON stream says about how the run went.

Neither the exit code nor a line's subtype can be trusted: some agents report a failed request as a
success with exit code 0. What counts is the error flag of the last result line. The stream is cut
in the middle when it is long, and tools may have written into it: whatever is no JSON object with the
right type is passed over.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from handoffd.execute.executor import Executor, ResultLine
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
    for line in reversed(output.split(b"\n")[-MAX_LINES:]):
        found = _result(line.strip(), keys)
        if found is not None:
            return _verdict(found, keys)
    return StreamVerdict()


def last_words(verdict: StreamVerdict, output: bytes) -> str:
    """Return what people should read of a stream: a few lines, the most telling last; perhaps none.

    Without a result line that is what stands between the stream's lines, most likely standard error.
    """
    lines = []
    if verdict.error is not None:
        lines.append(f"it reported: {verdict.error}")
    if verdict.said is not None:
        lines.append(f"it said: {verdict.said}")
    if verdict.denied:
        lines.append(f"it was not permitted to use {', '.join(verdict.denied)}")
    return "\n".join(lines) or _plain_lines(output)


def _plain_lines(output: bytes) -> str:
    lines = [line.strip() for line in output.split(b"\n")[-MAX_LINES:]]
    # The first line may be the end of a longer one.
    plain = [line for line in lines if not line.startswith(b"{") and not line.endswith(b"}")]
    texts = (printable(line.decode("utf-8", "replace")) for line in plain if line)
    return "\n".join(texts)[-MAX_PLAIN_CHARS:]


def _result(line: bytes, keys: ResultLine) -> dict[str, Any] | None:
    if not (line.startswith(b"{") and line.endswith(b"}")):
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) and data.get("type") == keys.type else None


def _verdict(data: dict[str, Any], keys: ResultLine) -> StreamVerdict:
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
