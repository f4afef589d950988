"""The projects of the benchmark: many that rest, and one that is worked on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from tests.support.daemon import Daemon

from handoffd.protocol.state import State, Status, render_state

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


def add_all(daemon: Daemon, roots: Sequence[Path]) -> None:
    """Have a daemon look after projects."""
    tell_all(daemon, "add", roots)


def tell_all(daemon: Daemon, verb: str, roots: Sequence[Path], **arguments: str) -> None:
    """Give a verb for each of some projects, eight at a time."""
    with (
        httpx.Client(
            transport=httpx.HTTPTransport(uds=str(daemon.socket)), base_url="http://handoffd", timeout=60
        ) as client,
        ThreadPoolExecutor(max_workers=8) as threads,
    ):

        def tell(root: Path) -> None:
            client.post(f"/v1/verbs/{verb}", json={"project": str(root), **arguments}).raise_for_status()

        list(threads.map(tell, roots))


def active_project(root: Path, steps: int) -> Path:
    """Return a new project whose stories have `steps` steps, with no checks and no human step."""
    folder = root / ".ai"
    folder.mkdir(parents=True)
    (root / "PROJECT_CONTEXT.md").write_text("A project for timing hand-offs.\n")
    (folder / "handoffd.yaml").write_text(json.dumps({"executor": "stub"}))  # JSON is YAML
    (folder / "step-rules.yaml").write_text(json.dumps(table(steps)))
    return root


def table(steps: int) -> object:
    """Return a step table of `steps` steps in a row, with no checks and no human step."""
    names = [f"step-{number:03}" for number in range(1, steps + 1)]
    rules = {
        name: {
            "next_on_pass": following,
            "on_fail": {"default": name},
            "claude_reads": ["PROJECT_CONTEXT.md", ".ai/HANDOFF.md"],
            "step_instruction": {"en": "Hand over at once."},
        }
        for name, following in zip(names, [*names[1:], "done"], strict=True)
    }
    return {"steps": rules, "pipelines": {"story": {"first": names[0], "bootstrap": None}}}
