"""Workspaces for a message of a chat: projects in a situation, and what is measured before and after.

What a chat must never do is seen from outside: how many dispatches the journal has, which projects are
supervised, which folders have files of the protocol, and where every story is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.daemon import Daemon
from tests.support.eventually import eventually_sync

Json = dict[str, Any]

_MEMORY: Final = """# Project memory

## NOW
- US-001 discounts

## NEXT
- US-006: refunds
- [x] receipts

## ISSUES
- [ ] no date

## DONE
- baskets
"""
_PAPERS: Final[Mapping[str, str]] = {
    "package.json": "{}",
    "README.md": "A shop.\n",
    "PROJECT_CONTEXT.md": "# Context\n\nA library that adds up baskets.\n",
    "PROJECT_MEMORY.md": _MEMORY,
    "docs/constitution.md": "# Constitution\n\n1. Money is whole cents.\n",
    "docs/bdd/US-001.md": "# US-001\n",
    ".ai/history.md": "## US-000\n\n- tills were counted\n",
    ".ai/HANDOFF.md": (
        "---\nstory: US-000\nstep: update-memory\nattempt: 1\nstatus: pass\n---\nThe rounding was mended.\n"
    ),
}
_STORY: Final[Json] = {"story": "US-001", "step": "bdd", "status": "pending"}
_FAILED: Final[Json] = {
    "step": "impl", "status": "failing", "attempt": 2, "max_attempts": 3, "lint_pass": False,
    "tests": {"pass": 10, "fail": 2, "skip": 1}, "failing_tests": ["test_total", "test_tax"],
    "last_error": "sums differ",
}  # fmt: skip
_GATE: Final[Json] = {"story": "US-002", "step": "review", "status": "needs_human"}
_DONE: Final[Json] = {"step": "done", "status": "pass"}

STATES: Final[Mapping[str, Json]] = {
    "ready": {},
    "taken": {},
    "running": {},
    "failing": _FAILED,
    "exhausted": {
        **_FAILED, "status": "needs_human", "attempt": 3, "blocked_by": ["max_attempts_exceeded"],
        "reason": "needs_clarification", "human_note": "ask Kim",
    },
    "asked": {"status": "needs_human", "reason": "needs_clarification", "last_error": "which limit?"},
    "gate": _GATE,
    "paused_gate": _GATE,
    "before_review": {"step": "contract", "status": "pass"},
    "at_scaffold": {"step": "scaffold"},
    "at_verify": {"step": "verify"},
    "team": {"agent_teams": True},
    "done": _DONE,
    "done_with_next": _DONE,
    "custom_done": {"story": "CUSTOM-1", "task_type": "custom", **_DONE},
}  # fmt: skip
"""Where a story is in each situation: what its STATE has beside the defaults.

`fresh` is a project without a story, `at_rest` the same at level 2, `bare` an unsupervised folder
of code, `empty` one without anything. The prompt of a `taken` one was handed out; in a `running` one an
executor works.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a workspace shows from outside."""

    dispatches: Mapping[str, int]
    """How many there were so far, by the journal."""
    begun: frozenset[str]
    """The projects that are supervised, by name."""
    touched: frozenset[str]
    """The folders that have files of the protocol."""
    tracks: Mapping[str, Json]


class Workspace:
    """A folder of projects, for one message."""

    def __init__(self, daemon: Daemon, folder: Path, situations: Mapping[str, str]) -> None:
        self._daemon = daemon
        self.folder = folder
        folder.mkdir()
        for name, situation in situations.items():
            self._build(folder / name, situation)

    def _build(self, project: Path, situation: str) -> None:
        files = {} if situation == "empty" else _PAPERS
        if situation == "bare":
            files = {"package.json": "{}", "README.md": "A shop.\n"}
        for file, text in files.items():
            (project / file).parent.mkdir(parents=True, exist_ok=True)
            (project / file).write_text(text)
        project.mkdir(exist_ok=True)
        if situation in {"bare", "empty"}:
            return
        (project / "docs/sdd.md").write_text("# Design\n")
        (project / ".ai/rehearsal.json").write_text('{"*": "hang"}')
        if situation in {"fresh", "at_rest"}:
            self._do("init", project)
            if situation == "at_rest":
                self._do("level", project, level=2)
            return
        state = {"project": project.name, **_STORY, **STATES[situation]}
        (project / ".ai/STATE.json").write_text(json.dumps(state))
        self._do("add", project)
        eventually_sync(lambda: self._place_of(project) == (state["story"], state["step"]))  # it is read
        self._bring(project, situation)

    def _bring(self, project: Path, situation: str) -> None:
        match situation:
            case "taken":
                self._do("dispatch", project)
            case "running":
                self._do("level", project, level=2)
                eventually_sync(lambda: self._daemon.track(project)["status"] == "running")
                eventually_sync(lambda: self._daemon.track(project)["pid"] is not None)
            case "paused_gate":
                self._do("level", project, level=2)
                self._do("pause", project)
            case "done_with_next":
                self._do("start", project, story="US-002", queue=True, manual=True)
            case _:
                pass

    def _place_of(self, project: Path) -> tuple[str | None, str] | None:
        [view] = self._daemon.get("/v1/status", project=str(project))["projects"]
        return (view["tracks"][0]["story"], view["tracks"][0]["step"]) if view["tracks"] else None

    def _do(self, verb: str, project: Path, **arguments: Any) -> Json:
        answer = self._daemon.verb(verb, project, **arguments)
        assert "error" != answer.get("type", answer.get("error")), answer
        return answer

    def facts(self) -> Facts:
        """Return what it shows now."""
        views = [view for view in self._daemon.get("/v1/status")["projects"] if self._mine(view["project"])]
        events = {Path(view["project"]).name: self._daemon.events(Path(view["project"])) for view in views}
        return Facts(
            dispatches={name: sum(map(_dispatches, found)) for name, found in events.items()},
            begun=frozenset(Path(view["project"]).name for view in views),
            touched=frozenset(path.name for path in self.folder.iterdir() if (path / ".ai").exists()),
            tracks={Path(view["project"]).name: _standing(view) for view in views},
        )

    def _mine(self, root: str) -> bool:
        return Path(root).parent == self.folder

    def close(self) -> None:
        """End what runs, and have nothing of it supervised any more."""
        for view in self._daemon.get("/v1/status")["projects"]:
            project = Path(view["project"])
            if self._mine(str(project)):
                if view["tracks"] and view["tracks"][0]["dispatch"] is not None:
                    self._daemon.verb("abort", project)
                    self._daemon.wait_for(project, lambda track: track["dispatch"] is None)
                self._do("remove", project)


def _dispatches(event: Json) -> bool:
    """Return whether it handed a step to an executor or to the caller."""
    return bool(event["result"].get("type") == "dispatched")


def _standing(view: Json) -> Json:
    """Return where a project is, without what time alone changes."""
    track = view["tracks"][0] if view["tracks"] else {}
    named = ("story", "step", "attempt", "status", "reason", "human_note", "gate", "backlog", "parked")
    return {"level": view["level"], "paused_by": view["paused_by"], **{key: track.get(key) for key in named}}


def ways(rows: list[Json]) -> list[tuple[str, Json, str]]:
    """Return every way of saying every row, with a name for it."""
    return [(f"{row['row']}: {say}", row, say) for row in rows for say in row["say"]]
