"""What tools answer, as the protocol carries it: the JSON of every other entrance, and the same as text.

Errors are answers of a tool, too, so that a model reads the code, the reason and the next command.
"""

from __future__ import annotations

import json
from typing import Final

import mcp_types as types

from handoffd.entrance.asking import Answer
from handoffd.errors import HandoffdError
from handoffd.mcp.offer import Json

MOST_CHARS: Final = 400_000
"""Of an answer; a larger one would crowd out everything else a model knows."""

RECORDED: Final = "What was asked for is recorded."


def result_of(answer: Answer, report: str | None = None, idle: str | None = None) -> types.CallToolResult:
    """Return an answer as the result of a tool; what the engine refused is an error.

    `report` is told first, and then `idle`: why nobody goes on with what a verb has recorded.
    """
    refused = "error" in {answer.json.get("type"), answer.json.get("action")}
    shown = _text(answer.json)
    if len(shown) > MOST_CHARS:
        return failure(_too_large(len(shown)))
    waits = f"{RECORDED} {idle}" if idle and not refused else None
    texts = [text for text in (report, waits, shown) if text]
    return _result(texts, {**answer.json, "daemon": answer.daemon}, is_error=refused)


def failure(error: HandoffdError) -> types.CallToolResult:
    """Return an error of ours as the result of a tool: code, message, and the next command."""
    told = {"type": "error", "code": error.code, "message": error.message, "hint": error.hint}
    return _result([_text({**told, **error.details})], {**told, **error.details}, is_error=True)


def _too_large(chars: int) -> HandoffdError:
    message = (
        f"the answer has {chars:,} characters, more than {MOST_CHARS:,}: ask for one project, or for less"
    )
    return HandoffdError(message, code="TOO_LARGE", hint="handoffd status PROJECT")


def _result(texts: list[str], structured: Json, *, is_error: bool) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text=text) for text in texts],
        structured_content=structured,
        is_error=is_error,
    )


def _text(answer: Json) -> str:
    return json.dumps(answer, indent=1, ensure_ascii=False)
