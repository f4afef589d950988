"""What the rehearsal was asked to do, found in the prompt as a real agent would find it.

Prompts come in several languages and may be overridden by a project; what they share is the
template of the front matter to hand over, filled with `story`, `step`, `attempt` and `dispatch`.
The last such block counts. What is missing there is looked up in the environment and STATE.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from handoffd.rehearsal.workspace import Workspace

_LINE = re.compile(r"\s*([a-z_]+)\s*:(?:\s+(.*?))?\s*$")
_COMMENT = re.compile(r"\s+#.*$")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NOTHING = {"", "null", "~", "None"}


class BadAssignment(Exception):
    """Neither the prompt nor the project says which step is to be done."""


class Assignment(NamedTuple):
    """One dispatch. `label` names the story in paths (`US-013`, also for story `013`)."""

    step: str
    story: str | None
    attempt: int
    dispatch: str | None
    prompt: str

    @property
    def label(self) -> str:
        """The story as file names spell it."""
        story = self.story or "000"
        return story if story.startswith(("US-", "CUSTOM-")) else f"US-{story}"

    @property
    def slug(self) -> str:
        """The story as identifiers spell it, such as `us_013`."""
        return re.sub(r"[^a-z0-9]+", "_", self.label.lower()).strip("_")


def understand(prompt: str, environ: Mapping[str, str], workspace: Workspace) -> Assignment:
    """Return the assignment in `prompt`; `BadAssignment` when no step can be found or a name is unusable."""
    said = _front_matter(prompt)
    state = _state(workspace) if {"step", "story", "attempt"} - said.keys() else {}
    step = said.get("step") or state.get("step")
    if not step:
        raise BadAssignment("neither the prompt's front matter template nor .ai/STATE.json names a step")
    attempt = said.get("attempt") or state.get("attempt") or "1"
    return Assignment(
        step=_name("step", step),
        story=_optional_name("story", said["story"] if "story" in said else state.get("story")),
        attempt=int(attempt) if attempt.isdecimal() else 1,
        dispatch=_optional_name("dispatch", said.get("dispatch") or environ.get("HANDOFFD_RUN")),
        prompt=prompt,
    )


def _front_matter(prompt: str) -> dict[str, str | None]:
    """Return the keys of the last `---` block that has a `dispatch` line; empty when there is none.

    Lines quoted by `>` belong to none: what people and files say must not pass for the assignment.
    """
    lines = [line.strip() for line in prompt.splitlines()]
    fences = [number for number, line in enumerate(lines) if line == "---"]
    for start, end in reversed(list(pairwise([*fences, len(lines)]))):
        found = _pairs(lines[start + 1 : end])
        if "dispatch" in found:
            return found
    return {}


def _pairs(lines: Iterable[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for line in lines:
        match = _LINE.match(line)
        if match and match[1] not in found:
            value = _COMMENT.sub("", " " + (match[2] or "")).strip().strip("\"'`")
            found[match[1]] = None if value in _NOTHING else value
    return found


def _state(workspace: Workspace) -> dict[str, str]:
    try:
        state = json.loads(workspace.read(".ai/STATE.json") or "{}")
    except ValueError:
        return {}
    if not isinstance(state, dict):
        return {}
    return {key: str(state[key]) for key in ("story", "step", "attempt") if state.get(key) is not None}


def _optional_name(what: str, value: str | None) -> str | None:
    return None if value is None else _name(what, value)


def _name(what: str, value: str) -> str:
    # These become parts of paths, and the prompt may have been written by a stranger.
    if not _NAME.fullmatch(value) or ".." in value:
        raise BadAssignment(f"{what} {value!r} is not a name (letters, digits, '.', '_', '-'; no '..')")
    return value
