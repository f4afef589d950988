"""The projects of the benchmark: many that rest, and one that is worked on."""

from __future__ import annotations

import json
from pathlib import Path

from handoffd.protocol.document import render_state
from handoffd.protocol.state import State, Status

STORY = "US-001"


def idle_projects(base: Path, count: int) -> list[Path]:
    """Return `count` new projects, each with a story that is done."""
    return [_idle(base / f"idle-{number:04}") for number in range(1, count + 1)]


def _idle(root: Path) -> Path:
    folder = root / ".ai"
    folder.mkdir(parents=True)
    state = State(project=root.name, story=STORY, step="done", status=Status.PASS)
    (folder / "STATE.json").write_text(render_state(state))
    (folder / "HANDOFF.md").write_text(
        f"---\nstory: {STORY}\nstep: update-memory\nstatus: pass\n---\nDone.\n"
    )
    return root


def active_project(root: Path, steps: int) -> Path:
    """Return a new project whose stories have so many steps, with no checks and no human step."""
    folder = root / ".ai"
    folder.mkdir(parents=True)
    (root / "PROJECT_CONTEXT.md").write_text("A project for timing hand-offs.\n")
    (folder / "handoffd.yaml").write_text(json.dumps({"executor": "stub"}))  # JSON is YAML
    (folder / "step-rules.yaml").write_text(json.dumps(table(steps)))
    return root


def table(steps: int) -> object:
    """Return a step table of so many steps, one after the other; nothing checks or stops them."""
    names = [f"step-{number:03}" for number in range(1, steps + 1)]
    table = {
        name: {
            "next_on_pass": following,
            "on_fail": {"default": name},
            "claude_reads": ["PROJECT_CONTEXT.md", ".ai/HANDOFF.md"],
            "step_instruction": {"en": "Hand over at once."},
        }
        for name, following in zip(names, [*names[1:], "done"], strict=True)
    }
    return {"steps": table, "pipelines": {"story": {"first": names[0], "bootstrap": None}}}
