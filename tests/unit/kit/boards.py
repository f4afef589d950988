"""Boards and parameters for the programs of the kit, as a daemon prepares them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from handoffd.kit.given import Answer, Board, Given, read_board


def board(folder: Path, rows: Sequence[Mapping[str, Any]], files: Mapping[str, object]) -> Board:
    """Write a board and read it: its index, and its files, texts as they are and all else as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.json").write_text(json.dumps(list(rows)), encoding="utf-8")
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_text(text, encoding="utf-8")
    return read_board(folder)


def row(node: str, *files: str, **rest: Any) -> dict[str, Any]:
    """Return one row of an index, whose files are below the name of the node."""
    return {"node": node, "visit": 1, "files": [f"{node}/{file}" for file in files], **rest}


def given(root: Path, **rest: Any) -> Given:
    """Return what a program gets in a workspace."""
    root.mkdir(parents=True, exist_ok=True)
    return Given(root=root, **rest)


def answer(choice: str, text: str = "") -> Mapping[str, Answer]:
    """Return the answer to the question `choose`."""
    return {"choose": Answer(choice, text)}
