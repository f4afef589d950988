"""OpenAI Responses."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

from tests.real.provider import sse
from tests.real.provider.turns import Asked, Call, Json, Turn


class Responses:
    """`POST /v1/responses`, streamed or whole."""

    name = "responses"
    ping = sse.COMMENT

    def asked(self, path: str, body: Json) -> Asked:
        """Return what the request asks."""
        prompt, done = "", 0
        for item in reversed(_items(body["input"])):
            if item.get("type", "message").endswith("_output"):
                done += 1
            elif item.get("role") == "user":
                prompt = _text(item["content"])
                break
        tools = tuple(str(tool.get("name") or tool["type"]) for tool in body.get("tools", []))
        return Asked(self.name, body["model"], prompt, done, tools, bool(body.get("stream")))

    def answer(self, asked: Asked, turn: Turn) -> tuple[str, bytes]:
        """Return content type and body."""
        items = [_message(turn.text)] if turn.text else []
        items += [_call(call) for call in turn.calls]
        response: Json = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "status": "completed",
            "model": asked.model,
            "output": items,
            "usage": {
                "input_tokens": turn.tokens.input + turn.tokens.cached,
                "input_tokens_details": {"cached_tokens": turn.tokens.cached},
                "output_tokens": turn.tokens.output,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": turn.tokens.input + turn.tokens.cached + turn.tokens.output,
            },
        }
        if asked.stream:
            return sse.STREAM, sse.named(_events(response, turn))
        return sse.PLAIN, json.dumps(response).encode()


def _events(response: Json, turn: Turn) -> Iterator[Json]:
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    for index, item in enumerate(response["output"]):
        yield {"type": "response.output_item.added", "output_index": index, "item": item}
        if item["type"] == "message":
            text = item["content"][0]["text"]
            at = {"item_id": item["id"], "output_index": index, "content_index": 0}
            for piece in turn.pieces:
                yield {"type": "response.output_text.delta", **at, "delta": piece}
            yield {"type": "response.output_text.done", **at, "text": text}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": response}


def _message(text: str) -> Json:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "type": "message",
        "id": f"msg_{uuid.uuid4().hex}",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


def _call(call: Call) -> Json:
    number = uuid.uuid4().hex
    if call.freeform:
        return {
            "type": "custom_tool_call",
            "id": f"ctc_{number}",
            "call_id": f"call_{number}",
            "name": call.tool,
            "input": call.arguments["input"],
            "status": "completed",
        }
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": call.tool,
        "arguments": json.dumps(dict(call.arguments)),
        "status": "completed",
    }


def _items(given: str | list[Json]) -> list[Json]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def _text(content: str | list[Json]) -> str:
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
