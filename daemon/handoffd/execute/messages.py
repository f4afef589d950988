"""What an agent says and does, taken out of one line of its JSON stream.

A stream has a line for each message between the agent and its tools, whose parts are texts, thoughts,
tool calls and their results. Agents and tools write these lines, so each value may be anything:
what has not the expected form is passed over. Texts are returned as they are, neither bounded nor
printable: that is for whoever shows them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["session", "told", "said", "thought", "tool", "tool_result", "tool_error"]

_MAIN_ARGUMENTS = (
    "command", "file_path", "notebook_path", "path", "pattern", "query", "url", "description", "prompt",
    "skill", "name",
)  # fmt: skip
"""What a tool's arguments are called that tell most about a call, the most telling first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One thing that was said to the agent (`told`), or by it, or done. `tool` names the tool of a call.

    Agents keep some thoughts to themselves: their `text` is empty.
    """

    kind: Kind
    text: str
    tool: str = ""


def decoded(line: str | bytes) -> dict[str, Any] | None:
    """Return the JSON object in `line`, None when it holds anything else, or more besides."""
    line = line.strip()
    opening, closing = ("{", "}") if isinstance(line, str) else (b"{", b"}")
    if not (line[:1] == opening and line[-1:] == closing):
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def parts_of(data: Mapping[str, Any]) -> tuple[Part, ...]:
    """Return what a line's object tells, in its order; nothing for one that is not understood."""
    match data.get("type"):
        case "assistant":
            return tuple(_parts(data.get("message"), text="said"))
        case "user":
            return tuple(_parts(data.get("message"), text="told"))
        case "system" if data.get("subtype") == "init":
            return (Part(kind="session", text=_session(data)),)
    return ()


def _parts(message: object, text: Kind) -> Iterator[Part]:
    """Yield the parts of a message, whose texts are of the kind `text`."""
    content = message.get("content") if isinstance(message, Mapping) else None
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for block in blocks if isinstance(blocks, list) else ():
        part = _part(block, text) if isinstance(block, Mapping) else None
        if part is not None:
            yield part


def _part(block: Mapping[str, Any], text: Kind) -> Part | None:
    match block.get("type"):
        case "text" if isinstance(words := block.get("text"), str) and words.strip():
            return Part(kind=text, text=words)
        case "thinking" if isinstance(words := block.get("thinking"), str):
            return Part(kind="thought", text=words)
        case "redacted_thinking":
            return Part(kind="thought", text="")
        case "tool_use" | "server_tool_use" if isinstance(name := block.get("name"), str):
            return Part(kind="tool", text=_argument(block.get("input")), tool=name)
        case "tool_result":
            kind: Kind = "tool_error" if block.get("is_error") is True else "tool_result"
            return Part(kind=kind, text=_plain(block.get("content")))
    return None


def _argument(given: object) -> str:
    """Return the argument of a tool call that tells most about it; else all of them."""
    if not isinstance(given, Mapping):
        return ""
    known = (given.get(name) for name in _MAIN_ARGUMENTS)
    main = next((value for value in known if isinstance(value, str) and value.strip()), None)
    if main is not None or not given:
        return main or ""
    try:
        return json.dumps(given, ensure_ascii=False)
    except RecursionError:
        return ""


def _plain(content: object) -> str:
    """Return what a tool has answered: a text, or those of its parts that are texts."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    texts = (block.get("text") for block in blocks if isinstance(block, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))


def _session(data: Mapping[str, Any]) -> str:
    told = (data.get("model"), data.get("cwd"), data.get("session_id"))
    return ", ".join(value for value in told if isinstance(value, str) and value)
