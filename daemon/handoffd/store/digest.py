"""How texts are told apart: one digest for projections, hand-offs and results."""

from __future__ import annotations

import hashlib


def digest_of(content: str | bytes) -> str:
    """Return the SHA-256 of `content` (text as UTF-8), in 64 hexadecimal digits."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()
