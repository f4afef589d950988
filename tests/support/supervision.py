"""Supervised projects in memory, for what asks about them: the control layer and the command line."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from handoffd.capacity.accounts import AccountView, Lifted
from handoffd.capacity.slots import SlotsView
from handoffd.engine.decision import Accepted, Dispatched, Result
from handoffd.engine.events import Initialised, PromptTaken, Verb
from handoffd.engine.flow.events import Verb as FlowVerb
from handoffd.engine.flow.views import NewFlow
from handoffd.engine.run import Caps, PostCheck, Usage
from handoffd.engine.track import Ledger, Track
from handoffd.engine.views import (
    Applied,
    BacklogView,
    ChangedFile,
    Changes,
    GateAnswer,
    GateAttempt,
    GateRejection,
    GateTests,
    GateView,
    LandedView,
    LandingRequest,
    OpenPoint,
    Peek,
    ProjectView,
    QueuedView,
    SnapshotsView,
    SnapshotView,
    StoryView,
    TrackView,
    Tried,
    Whereabouts,
    WorkspaceTrial,
    WorkspaceView,
)
from handoffd.errors import HandoffdError, Json, NotFound, Refused
from handoffd.forecast.snapshot import FleetNow, ProjectNow
from handoffd.inspection.own_files import shipped_layers
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.rules import Gates
from handoffd.protocol.state import State, TestCounts
from handoffd.settings.loading import HeldEdit, Renewed, SettingsView
from handoffd.settings.model import CapSettings, ProjectSettings, SchedulingSettings

STEPS = ("bdd", "review", "impl", "update-memory")


def track_view(**changes: Any) -> TrackView:
    """Return a track that waits at its review, with `changes`."""
    values: dict[str, Any] = dict.fromkeys(TrackView.__struct_fields__)
    del values["needs_you"]
    values |= {
        "track": "main", "story": "US-001", "task_type": "story", "step": "review", "attempt": 1,
        "max_attempts": 1, "status": "needs_human", "timeout_min": 0.0, "failing_tests": (),
        "blocked_by": (), "backlog": (), "parked": (), "unlanded": (), "steps": STEPS,
        "waits_for": "a person's decision", "next_command": "handoffd approve /srv/shop", "gate": True,
        "next_by_itself": False, "review_suggested": False, "to_land": False, "aborted": False,
    }  # fmt: skip
    values |= changes
    rests = values["story"] is None or values["status"] == "running" or not values["next_command"]
    return TrackView(**{"needs_you": not rests and (values["step"] != "done" or values["to_land"]), **values})


def whereabouts(root: str, **changes: Any) -> Whereabouts:
    """Return where a story is that waits to be landed, with `changes`."""
    values: dict[str, Any] = {
        "branch": "handoffd/US-001", "onto": "main", "commits": 2, "would": "merge", "files": 3,
        "conflicts": (), "says": "2 commits; landing merges 3 files into main, which has moved on",
        "command": f"handoffd land {root} --story US-001",
    }  # fmt: skip
    return Whereabouts(**values | changes)


def gate_view(root: str, **changes: Any) -> GateView:
    """Return the screen of a review, with `changes`. Its texts are as hostile as an agent's."""
    story, run = "US-001", "20260102T030405-0a1b2c3d"
    approval = f"handoffd approve {root} --story {story}"
    values: dict[str, Any] = {
        "project": root, "command": f"handoffd gate {root}", "folder": root,
        "story": story, "step": "review", "title": "Dark mode",
        "text": "Dark mode\n\nPeople read the shop at night.",
        "asked": "approve review of US-001, and impl begins; or reject it with a reason",
        "why": "review is a human step: the step table lets only a person pass it",
        "done": ("bdd",), "ahead": ("impl", "update-memory"), "scenarios": ("docs/bdd/US-001.md",),
        "changes": Changes(
            since="bdd-0", until="bdd-2", base="c0" * 20, end="c2" * 20, count=3, added=60, removed=4,
            outside=1, files=(
                ChangedFile(
                    path="src/\x1b[2Jshop.py", status="changed", added=8, removed=4, outside=("bdd",)
                ),
                ChangedFile(path="docs/bdd/US-001.md", status="added", added=52, removed=0),
                ChangedFile(path="logo.png", status="removed", added=None, removed=None),
            ),
        ),
        "tests": GateTests(
            before=TestCounts(passed=11), claimed=TestCounts(passed=99), verified=True, run=run,
            measured=TestCounts(passed=11, failed=1), failing=("tests/test_shop.py::test_new",),
            new=("tests/test_shop.py::test_new", "tests/test_shop.py::test_dark"), new_collected=3,
            gone=("tests/test_shop.py::test_old",), gone_count=1, files=("tests/test_shop.py",),
        ),
        "attempts": (
            GateAttempt(
                run=run, step="bdd", attempt=1, executor="claude", result="failing", seconds=61.0,
                why="it left no hand-off", failed=True, sandbox="strict",
            ),
            GateAttempt(
                run=f"{run}2", step="bdd", attempt=2, executor="claude", result="pass", seconds=59.0,
                why=None, failed=False, sandbox="strict",
            ),
        ),
        "rejections": (
            GateRejection(
                step="review", reason="needs_clarification", note="Which\x1b[2J zone?", by="mei",
                at=datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC),
            ),
        ),
        "unclear": (
            OpenPoint(file="docs/bdd/US-001.md", line=7, text="[NEEDS CLARIFICATION] which time zone?"),
        ),
        "unticked": (
            OpenPoint(file=".ai/CHECKLIST.md", line=5, text="Each scenario has a tag", section="bdd"),
        ),
        "tokens": 12400, "cost_usd": 0.21, "seconds": 120.0, "sandbox": "strict",
        "claim": "All \x1b[31mscenarios are written.", "note": None, "answers": (
            GateAnswer(answer="approve", reason=None, leads_to="impl", command=approval),
            GateAnswer(
                answer="reject", reason="needs_clarification", leads_to="bdd",
                command=f"handoffd reject {root} needs_clarification --story {story}",
            ),
        ),
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    }  # fmt: skip
    return GateView(**values | changes)


def project_view(root: str, *tracks: TrackView, **changes: Any) -> ProjectView:
    """Return a project at Level 2, with `changes`; without tracks it is not initialised.

    A track at a gate has the command that shows it.
    """
    tracks = tuple(_with_look(root, track, alone=len(tracks) == 1) for track in tracks)
    values: dict[str, Any] = {
        "project": root, "name": Path(root).name, "level": 2 if tracks else 0,
        "condition": "ok" if tracks else "not_initialized", "detail": None, "paused_by": None,
        "test_command": ("pytest",), "warnings": (), "tracks": tracks,
    }  # fmt: skip
    return ProjectView(**values | changes)


def _with_look(root: str, track: TrackView, *, alone: bool) -> TrackView:
    waits = track.gate and track.status == "needs_human" and track.step != "done"
    if not waits or track.look_command is not None:
        return track
    own = "" if alone else f" --story {track.story}"
    return replace(track, look_command=f"handoffd gate {root}{own}")


def queued_view(story: str, place: int, **changes: Any) -> QueuedView:
    """Return a story of a backlog, with `changes`."""
    values: dict[str, Any] = {
        "story": story, "place": place, "priority": 0, "task_type": "story", "instruction": None,
        "complexity": None, "blocked_by": (), "executor": (), "agent_teams": False, "by": None, "at": None,
        "schedule": None, "startable": True, "waits_for": None,
    }  # fmt: skip
    return QueuedView(**values | changes)


class MemorySupervision:
    """Does what the protocol asks, and nothing else: verbs are kept, and answered with `answer`."""

    def __init__(self, *views: ProjectView) -> None:
        self.projects = {view.project: view for view in views}
        self.given: list[tuple[str, Verb]] = []
        self.answer: Result = Accepted(
            step="review", status="pass", message="taken", caller_instruction="taken; see {project}"
        )
        self.applied = Applied(type="pending", message="bdd runs", state=State(project="shop"))
        self.checked: tuple[PostCheck, ...] = (PostCheck(passed=True),)
        self.tried = Tried()
        self.trials = [WorkspaceTrial(why="it is in no git repository", command="git init")]
        self.wanted: list[str] = []
        self.held: tuple[str, ...] = ()
        self.gates: dict[str, Gates] = {}
        self.written: list[tuple[str, Mapping[str, str] | None]] = []
        self.handed_out: list[Result] = []
        """What `hand_out` answers, one after another; then it gives the first step away."""
        self.used: dict[str, Usage] = {}
        self.limited: tuple[AccountView, ...] = ()
        self.shared_caps: Caps = {}
        self.line = SlotsView(closed=None, limits=(), waiting=(), waiting_in_all=0)
        self.lifted: list[tuple[str, str]] = []
        self.unlifted: tuple[str, ...] = ()
        self.flow_verbs: list[tuple[str, str, FlowVerb]] = []
        """What flows were given, each with project and id."""
        self.wanted_flows: list[tuple[str, NewFlow]] = []
        self.where: Whereabouts | None = None
        self.without: tuple[str, ...] = ()
        self.put_away: dict[str, str] = {}
        self.unknown = frozenset[str]()
        self.at_gate: dict[str, Any] = {}
        """In what the screen of a review differs from the usual one."""

    def find(self, name: str) -> str:
        """Return the root of the project named or located at `name`."""
        for root, view in self.projects.items():
            if name in (root, view.name) or name.startswith(f"{root}/"):
                return root
        hint = f"handoffd add {name}" if name.startswith("/") else "handoffd projects"
        raise NotFound(f"no supervised project named or located at {name}", hint=hint)

    def names(self) -> Mapping[str, str]:
        """Return what each project is called."""
        return {root: view.name for root, view in self.projects.items()}

    def usage(self) -> Mapping[str, Usage]:
        """Return what each run has used so far."""
        return self.used

    async def views(self) -> tuple[ProjectView, ...]:
        """Return every project."""
        return tuple(self.projects.values())

    async def view(self, project: str) -> ProjectView:
        """Return one project."""
        return self.projects[project]

    async def add(self, root: str, *, take: bool = False) -> ProjectView:
        """Add a project; here no other daemon has any."""
        return self.projects.setdefault(root, project_view(root))

    async def add_many(
        self, roots: Sequence[str], *, take: bool = False
    ) -> Mapping[str, str | HandoffdError]:
        """Know more projects; of one below /gone there is no folder."""
        outcome: dict[str, str | HandoffdError] = {}
        for root in roots:
            if root.startswith("/gone"):
                outcome[root] = NotFound(f"{root} is not a folder", hint=f"ls {os.path.dirname(root)}")
            else:
                outcome[root] = (await self.add(root)).project
        return outcome

    async def remove(self, project: str) -> ProjectView:
        """Forget a project, unless it is busy."""
        if any(track.dispatch for track in self.projects[project].tracks):
            raise Refused(f"{project} has an executor running", hint=f"handoffd abort {project}")
        return self.projects.pop(project)

    def executors(self) -> tuple[str, ...]:
        """Return what may be chosen."""
        return ("auto", "claude", "codex")

    async def installed(self) -> tuple[str, ...]:
        """Return what is there."""
        return ("auto", "claude")

    def limits(self) -> tuple[AccountView, ...]:
        """Return what was put there."""
        return self.limited

    def caps(self) -> Caps:
        """Return the caps that all projects share."""
        return self.shared_caps

    async def now(self, projects: Sequence[str]) -> FleetNow:
        """Return the projects with a story in flight and nothing behind it, by the shipped step table."""
        rules = build_rulebook(shipped_layers(None))
        found = []
        for root in projects:
            view = self.projects[root]
            state = State(project=view.name, story=view.tracks[0].story, step=view.tracks[0].step)
            track = Track(state=state, ledger=Ledger(automatic=True))
            found.append(
                ProjectNow(
                    view=view, tracks={"main": track}, rules=rules, settings=ProjectSettings(),
                    continues=view.auto_continue,
                )
            )  # fmt: skip
        return FleetNow(
            projects=tuple(found), slots=4, scheduling=SchedulingSettings(), caps=CapSettings(),
            executor=("claude",), accounts={}, agents=(),
        )  # fmt: skip

    def slots(self) -> SlotsView:
        """Return what was put there."""
        return self.line

    async def lift_limit(self, account: str, by: str) -> Lifted:
        """Keep what was lifted."""
        if account not in {view.account for view in self.limited}:
            raise NotFound(f"{account!r} is not limited", hint="handoffd limits")
        self.lifted.append((account, by))
        return Lifted(projects=tuple(self.projects), problems=self.unlifted)

    async def start_flow(self, project: str, wanted: NewFlow, by: str, request: str | None) -> str:
        """Keep what was wanted."""
        self.wanted_flows.append((project, wanted))
        return f"{wanted.pipeline}-ab12"

    async def give_flow(self, project: str, flow: str, event: FlowVerb, request: str | None) -> None:
        """Keep the verb."""
        self.flow_verbs.append((project, flow, event))

    async def meant(self, project: str, verb: Verb, story: str | None) -> str | None:
        """Return that it is for the only track there is."""
        return None

    async def give(
        self, project: str, verb: Verb, request: str | None = None, story: str | None = None
    ) -> Result:
        """Keep the verb; a project that is initialised has a track from then on."""
        self.given.append((project, verb))
        if isinstance(verb, Initialised):
            fresh = track_view(
                story=None, step="bdd", status="pending", waits_for="a start",
                next_command=f"handoffd start {project} STORY",
            )  # fmt: skip
            view = self.projects[project]
            self.projects[project] = replace(
                view, name=verb.project, level=1, condition="ok", tracks=(fresh,)
            )
        return self.answer

    async def hand_out(
        self, project: str, by: str, story: str | None
    ) -> tuple[Result, str | None, str | None]:
        """Keep who asked; give the first step away."""
        self.given.append((project, PromptTaken(dispatch="d-1", by=by)))
        taken = Dispatched(
            project="shop", story="US-001", step="bdd", attempt=1, dispatch="d-1", caller_instruction="do it"
        )
        result = self.handed_out.pop(0) if self.handed_out else taken
        return result, "# Do bdd" if isinstance(result, Dispatched) else None, story

    async def apply(self, project: str, within_s: float | None, story: str | None) -> Applied:
        """Return what was put there."""
        return self.applied

    async def post_check(self, project: str, by: str, story: str | None) -> tuple[str, tuple[PostCheck, ...]]:
        """Return what was put there."""
        return "make lint", self.checked

    async def try_tests(self, project: str) -> Tried:
        """Return what was put there."""
        return self.tried

    async def try_workspace(
        self,
        project: str,
        wanted: str,
        within_s: float | None,
        *,
        again: bool = False,
        tell: Callable[[str], None] = lambda _: None,
    ) -> WorkspaceTrial:
        """Return what was put there, one after another; the last one again and again."""
        self.wanted.append(wanted)
        return self.trials.pop(0) if len(self.trials) > 1 else self.trials[0]

    async def peek(self, project: str, story: str | None, *, bootstrapped: bool) -> Peek:
        """Return a dispatch that would be made."""
        return Peek(
            project=project, result=self.answer, why="bdd attempt 1 of 3", step="bdd", attempt=1,
            executor="claude", prompt="# Do bdd\n\x1b[31mred", warnings=("docs/sdd.md is missing",),
        )  # fmt: skip

    async def story(self, project: str, story: str | None) -> StoryView:
        """Return a story that waits, with its text. Raises NotFound for one that is put there as unknown."""
        if story in self.unknown:
            raise NotFound(f"no story is called {story!r} here")
        return StoryView(
            project=project, story=story or "US-001", standing="queued", title="Dark mode",
            text="Dark mode\n\nA toggle.", source=None,
        )  # fmt: skip

    async def gate(self, project: str, *, story: str | None, since_last: bool) -> GateView:
        """Return the screen of a review."""
        asked = "approve review again?" if since_last else "approve review?"
        return gate_view(project, **{"asked": asked, "story": story or "US-001", **self.at_gate})

    async def whereabouts(self, project: str, story: str) -> Whereabouts | None:
        """Return what was put there."""
        return self.where

    async def uncommitted(self, project: str) -> tuple[str, ...]:
        """Return what was put there."""
        return self.without

    async def snapshots(self, project: str, story: str | None) -> SnapshotsView:
        """Return what there was before the story, and what its first step has left."""
        begun = SnapshotView(
            name="bdd-0", ref="refs/handoffd/US-001/bdd-0", commit="c0" * 20, step="bdd", result="begun",
            run=None, by=None, at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), files=None,
        )  # fmt: skip
        left = replace(
            begun, name="bdd-1", ref="refs/handoffd/US-001/bdd-1", commit="c1" * 20, result="pass",
            run="20260102T030405-0a1b2c3d", files=3,
        )  # fmt: skip
        return SnapshotsView(project=project, story="US-001", snapshots=(begun, left))

    async def land(self, project: str, request: LandingRequest, within_s: float | None) -> LandedView:
        """Return that it is landed."""
        story = request.story or "US-001"
        return LandedView(story=story, onto=request.onto or "main", commit="c2" * 20, files=3)

    async def begin_anew(
        self, project: str, stories: Collection[str], start: Callable[[], Awaitable[Json]]
    ) -> tuple[Json, Mapping[str, str]]:
        """Give the start, and return what was put there of its stories."""
        return await start(), {story: self.put_away[story] for story in stories if story in self.put_away}

    async def discard(self, project: str, story: str, by: str) -> str:
        """Return the ref that keeps it."""
        return f"refs/handoffd/{story}/discarded-20260102T030405Z"

    async def workspaces(self, project: str | None) -> tuple[WorkspaceView, ...]:
        """Return the clone of a story in flight, and one that nothing keeps."""
        one = WorkspaceView(
            project=project or "/srv/shop", story="US-001", folder="/state/workspaces/0a/US-001/shop",
            branch="handoffd/US-001", base="c0" * 20, made_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            bytes=3 << 20, ready=True, kept="its story is in flight",
        )  # fmt: skip
        return one, replace(one, story="US-000", folder="/state/workspaces/0a/US-000/shop", kept=None)

    async def backlog(self, project: str) -> BacklogView:
        """Return two stories, one of which waits for the other."""
        return BacklogView(
            project=project, story="US-001", auto_continue=False, chosen=None, paused_by=None,
            next_story="US-2", next_command=f"handoffd approve {project}",
            stories=(
                queued_view("US-2", 1, priority=5, by="mei"),
                queued_view(
                    "US-3", 2, blocked_by=("US-2",), startable=False,
                    waits_for="waits for US-2 (in the backlog)",
                ),
            ),
        )  # fmt: skip

    async def trust(self, project: str, written: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """Return what was held; nothing is from then on. Only remember what was `written`."""
        if written is not None:
            self.written.append((project, written))
            return ()
        held, self.held = self.held, ()
        return held

    async def choose_gates(self, project: str, gates: Gates) -> None:
        """Only remember them."""
        self.gates[project] = gates

    async def reload(self) -> tuple[str, ...]:
        """Return a problem for each project that has a detail."""
        return tuple(f"{view.project}: {view.detail}" for view in self.projects.values() if view.detail)


class MemoryRenewing:
    """Reads nothing again: what came of it is `view`, and what the projects in memory say."""

    def __init__(self, supervision: MemorySupervision) -> None:
        self._supervision = supervision
        self.view = SettingsView(file="/etc/handoffd/handoffd.yaml")

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the settings."""
        return self.view.warnings

    async def edit(self) -> HeldEdit:
        """Return the edits of `view`."""
        return HeldEdit(file=self.view.file, held=self.view.held, sign="s-1")

    async def trust(self, sign: str) -> HeldEdit:
        """Take them, by that sign only."""
        edit = await self.edit()
        if sign != edit.sign:
            raise Refused("edited", code="FILES_EDITED")
        self.view = replace(self.view, held=())
        return edit

    async def renew(self) -> Renewed:
        """Return what is there."""
        problems = await self._supervision.reload()
        return Renewed(settings=self.view, brought=0, let_go=0, problems=problems)
