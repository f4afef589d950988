"""OpenAI Chat Completions."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

from tests.real.provider import sse
from tests.real.provider.turns import Asked, Json, Turn


class Chat:
    """`POST /v1/chat/completions`, streamed or whole."""

    name = "chat"
    ping = sse.COMMENT

    def asked(self, path: str, body: Json) -> Asked:
        """Return what the request asks."""
        prompt, done = "", 0
        for message in reversed(body["messages"]):
            if message["role"] == "tool":
                done += 1
            elif message["role"] == "user":
                prompt = _text(message["content"])
                break
        tools = tuple(tool["function"]["name"] for tool in body.get("tools") or [])
        return Asked(self.name, body["model"], prompt, done, tools, bool(body.get("stream")))

    def answer(self, asked: Asked, turn: Turn) -> tuple[str, bytes]:
        """Return content type and body."""
        whole: Json = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": 0,
            "model": asked.model,
        }
        calls = [
            {
                "index": index,
                "id": f"call_{uuid.uuid4().hex}",
                "type": "function",
                "function": {"name": call.tool, "arguments": json.dumps(dict(call.arguments))},
            }
            for index, call in enumerate(turn.calls)
        ]
        said: Json = {"role": "assistant", "content": turn.text, **({"tool_calls": calls} if calls else {})}
        end = "tool_calls" if calls else "stop"
        if asked.stream:
            return sse.STREAM, sse.bare(_chunks(whole, said, end, turn), end=b"data: [DONE]\n\n")
        choice = {"index": 0, "message": said, "finish_reason": end}
        return sse.PLAIN, json.dumps({**whole, "choices": [choice], "usage": _usage(turn)}).encode()


def _chunks(whole: Json, said: Json, end: str, turn: Turn) -> Iterator[Json]:
    chunk = {**whole, "object": "chat.completion.chunk"}
    first, *others = turn.pieces
    for delta in ({**said, "content": first}, *({"content": piece} for piece in others)):
        yield {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": end}]}
    yield {**chunk, "choices": [], "usage": _usage(turn)}


def _usage(turn: Turn) -> Json:
    given = turn.tokens.input + turn.tokens.cached
    return {
        "prompt_tokens": given,
        "completion_tokens": turn.tokens.output,
        "total_tokens": given + turn.tokens.output,
        "prompt_tokens_details": {"cached_tokens": turn.tokens.cached},
    }


def _text(content: str | list[Json] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.get("text", "") for part in content)
