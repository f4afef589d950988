"""Gemini generateContent."""

from __future__ import annotations

import json

from tests.real.provider import sse
from tests.real.provider.turns import Asked, Json, Turn


class Gemini:
    """`POST /v1beta/models/NAME:streamGenerateContent?alt=sse` and `:generateContent`."""

    name = "gemini"
    ping = sse.COMMENT

    def asked(self, path: str, body: Json) -> Asked:
        """Return what the request asks."""
        prompt, done = "", 0
        for content in reversed(body["contents"]):
            parts = content.get("parts", [])
            results = [part for part in parts if "functionResponse" in part]
            done += len(results)
            if content.get("role", "user") == "user" and not results:
                prompt = "\n".join(part.get("text", "") for part in parts)
                break
        declared = [tool.get("functionDeclarations", []) for tool in body.get("tools", [])]
        names = tuple(function["name"] for functions in declared for function in functions)
        model, _, method = path.rpartition("/")[2].partition(":")
        return Asked(self.name, model, prompt, done, names, method.startswith("stream"))

    def answer(self, asked: Asked, turn: Turn) -> tuple[str, bytes]:
        """Return content type and body."""
        *early, last = turn.pieces
        parts: list[Json] = [{"text": last}] if last else []
        parts += [{"functionCall": {"name": c.tool, "args": dict(c.arguments)}} for c in turn.calls]
        given = turn.tokens.input + turn.tokens.cached
        whole: Json = {
            "candidates": [
                {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
            ],
            "usageMetadata": {
                "promptTokenCount": given,
                "cachedContentTokenCount": turn.tokens.cached,
                "candidatesTokenCount": turn.tokens.output,
                "totalTokenCount": given + turn.tokens.output,
            },
            "modelVersion": asked.model,
        }
        if not asked.stream:
            return sse.PLAIN, json.dumps(whole).encode()
        return sse.STREAM, sse.bare([*map(_said, early), whole])


def _said(piece: str) -> Json:
    return {"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": piece}]}}]}
