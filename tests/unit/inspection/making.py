"""Projects as the tests of `inspection/` find them: files, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WHOLE = ("PROJECT_MEMORY.md", "PROJECT_CONTEXT.md", "docs/constitution.md", "docs/sdd.md")


def write(root: Path, name: str, text: str | bytes = "") -> None:
    """Write one file of a project, with its folders."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)


def write_state(root: Path, **changes: Any) -> None:
    """Write a STATE.json whose story is at impl, with `changes`."""
    values = {"project": "shop", "story": "US-005", "step": "impl", "status": "running", **changes}
    write(root, ".ai/STATE.json", json.dumps(values))


def hostile_states() -> list[bytes]:
    """Return invalid texts of STATE.json."""
    return [b"", b"{", b"[]", b"\xff\xfe", b'{"project": "x"}', b"[" * 100_000, b" " * (1024 * 1024 + 1)]
