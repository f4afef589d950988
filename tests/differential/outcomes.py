"""What a run of either program came to, in a form in which two can be compared and one can be kept.

Sentences are not compared, only that there is one: each program has its own words. Nor are moments.
What remains is interface: exit codes, keys and their order, values, one-line confirmations, and every file
that was made or changed, word for word but for moments and hashes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = Any

TEXT, MOMENT, PROMPT, MINUTES, HASH = "<text>", "<moment>", "<prompt>", "<minutes>", "<hash>"
NEW, CHANGED, GONE = "<new>", "<changed>", "<gone>"

SENTENCES = frozenset({"message", "caller_instruction", "summary", "last_error", "memory"})
"""Keys whose text is each program's own."""

_MOMENTS = frozenset({"dispatched_at", "completed_at"})
_CUSTOM = re.compile(r"CUSTOM-\d{13}")
MOMENT_PATTERN = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?Z")
_HASH = re.compile(r"\b[0-9a-f]{40}\b")
_STATE = ".ai/STATE.json"
_PASSING = (".ai/runs/", ".ai/hook.log")
"""Files that are not compared: logs, and copies of prompts."""
_META = re.compile(r"(?P<prompt>.*)\n<task-meta>\n(?P<meta>.*)\n</task-meta>\n", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Spoken:
    """What a program said."""

    code: int
    out: str
    err: str


Files = Mapping[str, str]
"""The texts of files, by their paths from a root."""


def outcome(spoken: Spoken, root: Path, before: Files, *, prompt_only: bool) -> dict[str, Json]:
    """Return what a run came to: exit code, stdout, STATE.json, which files are new or others, their texts.

    `before` has the files that were there already; `prompt_only` tells that a text on stdout is a prompt.
    """
    after = files_of(root)
    changes = {name: _change(name, before, after) for name in sorted({*before, *after})}
    made = {name: change for name, change in changes.items() if change is not None}
    return {
        "exit": spoken.code,
        "stdout": _stdout(spoken.out.replace(str(root), "<root>"), prompt_only=prompt_only),
        "state": state_of(root),
        "made": made,
        "texts": {name: lasting(after[name], root) for name in made if name in after and name != _STATE},
    }


def _change(name: str, before: Files, after: Files) -> str | None:
    """Return the change of a file, or None. The content of STATE.json is compared by itself."""
    if name not in after:
        return GONE
    if name not in before:
        return NEW
    return CHANGED if before[name] != after[name] and name != _STATE else None


def lasting(text: str, root: Path) -> str:
    """Return a text without what is another at each run: moments, hashes, numbers of tasks, the root."""
    text = _HASH.sub(HASH, MOMENT_PATTERN.sub(MOMENT, text.replace(str(root), "<root>")))
    return _CUSTOM.sub("CUSTOM-<n>", text)


def state_of(root: Path) -> Json:
    """Return what STATE.json below a root says; None where there is none."""
    try:
        return _said(json.loads((root / ".ai" / "STATE.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, OSError):
        return "<unreadable>"


def files_of(root: Path) -> dict[str, str]:
    """Return the files below a root that are worth a look, as texts by their paths from there."""
    paths = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    return {name: _text(path) for name, path in paths.items() if not name.startswith(_PASSING)}


def _text(path: Path) -> str:
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()


_BY_NAME = frozenset({"made", "texts"})


def flat(value: Json, at: str = "") -> dict[str, Json]:
    """Return an outcome as values by path; objects also have their keys, in order, under `path{}`."""
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        value = {str(item.get("dir", number)): item for number, item in enumerate(value)}
    if isinstance(value, Mapping):
        inner = {f"{at}{{}}": " ".join(value)} if at and at not in _BY_NAME else {}
        for key, item in value.items():
            inner |= flat(item, f"{at}.{key}" if at else key)
        return inner
    return {at: value}


def _stdout(text: str, *, prompt_only: bool) -> Json:
    if (found := _META.fullmatch(text)) is not None:
        prompt = PROMPT if found["prompt"].strip() else ""
        return {"prompt": prompt, "task-meta": _said(json.loads(found["meta"]))}
    lines = text.removesuffix("\n").split("\n") if text else []
    begin = next((n for n, line in enumerate(lines) if line in {"{", "[", "[]", "{}"}), None)
    if begin is not None:
        document = _said(json.loads("\n".join(lines[begin:])))
        return {"json": document, **({"lines": [_masked(one) for one in lines[:begin]]} if begin else {})}
    if prompt_only and text.strip():
        return {"prompt": PROMPT}
    return {"lines": [_masked(line) for line in lines]}


def _said(value: Json, key: str = "") -> Json:
    """Return a value with sentences and moments replaced by what they are."""
    if isinstance(value, Mapping):
        return {name: _said(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [TEXT if key == "warnings" else _said(item) for item in value]
    if isinstance(value, str) and value:
        return _masked_by(key, value)
    return MINUTES if key == "elapsed_min" and value is not None else value


def _masked_by(key: str, value: str) -> str:
    if key in SENTENCES or (key == "reason" and " " in value):
        return TEXT
    if key in _MOMENTS:
        return MOMENT
    return PROMPT if key == "prompt" else _masked(value)


def _masked(text: str) -> str:
    if text.startswith("  ") and not text.startswith("  label: "):
        return f"  {TEXT}"  # one of the warnings of check-prereqs
    return _CUSTOM.sub("CUSTOM-<n>", text)
