"""Anthropic Messages."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

from tests.real.provider import sse
from tests.real.provider.turns import Asked, Json, Turn


class Anthropic:
    """`POST /v1/messages`, streamed or whole."""

    name = "anthropic"
    ping = sse.named([{"type": "ping"}])

    def asked(self, path: str, body: Json) -> Asked:
        """Return what the request asks."""
        prompt, done = "", 0
        for message in reversed(body.get("messages", [])):
            blocks = _blocks(message["content"])
            results = [block for block in blocks if block["type"] == "tool_result"]
            done += len(results)
            if message["role"] == "user" and not results:
                prompt = "\n".join(block.get("text", "") for block in blocks)
                break
        tools = tuple(tool["name"] for tool in body.get("tools", []))
        return Asked(self.name, body["model"], prompt, done, tools, bool(body.get("stream")))

    def answer(self, asked: Asked, turn: Turn) -> tuple[str, bytes]:
        """Return content type and body."""
        blocks: list[Json] = [{"type": "text", "text": turn.text}] if turn.text else []
        blocks += [
            {"type": "tool_use", "id": f"toolu_{_id()}", "name": c.tool, "input": dict(c.arguments)}
            for c in turn.calls
        ]
        usage = {
            "input_tokens": turn.tokens.input,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": turn.tokens.cached,
            "output_tokens": turn.tokens.output,
        }
        message: Json = {
            "id": f"msg_{_id()}",
            "type": "message",
            "role": "assistant",
            "model": asked.model,
            "content": blocks,
            "stop_reason": "tool_use" if turn.calls else "end_turn",
            "stop_sequence": None,
            "usage": usage,
        }
        if asked.stream:
            return sse.STREAM, sse.named(_events(message, turn))
        return sse.PLAIN, json.dumps(message).encode()


def _events(message: Json, turn: Turn) -> Iterator[Json]:
    started = {
        **message,
        "content": [],
        "stop_reason": None,
        "usage": {**message["usage"], "output_tokens": 1},
    }
    yield {"type": "message_start", "message": started}
    for index, block in enumerate(message["content"]):
        empty = {**block, "text": ""} if block["type"] == "text" else {**block, "input": {}}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in _deltas(block, turn):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": message["usage"]}
    yield {"type": "message_stop"}


def _deltas(block: Json, turn: Turn) -> list[Json]:
    if block["type"] == "text":
        return [{"type": "text_delta", "text": piece} for piece in turn.pieces]
    return [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]


def _blocks(content: str | list[Json]) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _id() -> str:
    return uuid.uuid4().hex[:24]
