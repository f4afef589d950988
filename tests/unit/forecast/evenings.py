"""Evenings for the tests of the plan: projects with stories, everything unimportant filled in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.supervision import project_view, track_view

from handoffd.engine.track import Ledger, Queued, Track
from handoffd.engine.views import ProjectView
from handoffd.forecast.plan import PlannedStory, Tonight
from handoffd.forecast.planning import plan
from handoffd.forecast.snapshot import Estimate, FleetNow, ProjectNow, Snapshot
from handoffd.inspection.own_files import shipped_layers
from handoffd.protocol.rule_merge import Layer
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.rules import RuleBook
from handoffd.protocol.state import State, Status
from handoffd.settings.model import CapSettings, ProjectSettings, SchedulingSettings

NOW = datetime(2026, 1, 31, 22, 0, tzinfo=UTC)
MORNING = NOW + timedelta(hours=10)
MINUTE = timedelta(minutes=1)

SHIPPED = build_rulebook(shipped_layers(None))
OPEN = build_rulebook([*shipped_layers(None), Layer("rules", "steps: {contract: {next_on_pass: scaffold}}")])
"""The shipped table without its review."""
STEPS = tuple(step for step in OPEN.path("story") if step != "bootstrap")
TENTH = Estimate(seconds=600, tokens=1_000, cost_usd=0.5, basis="past")
"""Ten minutes, and half a dollar."""
PAST: Mapping[str, Estimate] = dict.fromkeys(SHIPPED.steps, TENTH)


def project(
    *waiting: str | Queued,
    root: str = "/srv/shop",
    state: State | None = None,
    rules: RuleBook = OPEN,
    settings: Mapping[str, Any] | None = None,
    continues: bool = True,
    view: Mapping[str, Any] | None = None,
    beside: Mapping[str, Track] | None = None,
    **ledger: Any,
) -> ProjectNow:
    """Return a project whose backlog has these stories; `state` is the one in flight."""
    backlog = tuple(Queued(story=one) if isinstance(one, str) else one for one in waiting)
    values: dict[str, Any] = {"automatic": True, "backlog": backlog} | ledger
    track = Track(
        state=state or State(project="shop", step="done", status=Status.PASS),
        ledger=Ledger(**values),
    )
    tracks = {"main": track, **(beside or {})}
    return ProjectNow(
        view=seen(root, tracks, **(view or {})), tracks=tracks, rules=rules, continues=continues,
        settings=ProjectSettings.model_validate(settings or {}),
    )  # fmt: skip


def seen(root: str, tracks: Mapping[str, Track], **more: Any) -> ProjectView:
    """Return the view of a project, as far as a plan looks at it."""
    shown = [
        track_view(
            track=name, story=one.state.story, step=one.state.step, status=one.state.status.value, gate=False,
            waits_for=None, next_command=None,
            dispatched_at=one.state.dispatched_at,
        )
        for name, one in tracks.items() if one.state is not None
    ]  # fmt: skip
    return project_view(root, *shown, called=root.rsplit("/", 1)[-1], **more)


def at(step: str, story: str = "US-1", status: Status = Status.PENDING, **more: Any) -> State:
    """Return a STATE in flight."""
    return State(project="shop", story=story, step=step, status=status, **more)


def evening(*projects: ProjectNow, **parts: Any) -> Snapshot:
    """Return what is known at ten, until eight in the morning."""
    fleet: dict[str, Any] = {
        "projects": projects, "slots": 4, "scheduling": SchedulingSettings(), "caps": CapSettings(),
        "executor": ("claude",), "accounts": {"claude": "claude", "codex": "codex"}, "agents": ("claude",),
    }  # fmt: skip
    fleet |= {name: parts.pop(name) for name in tuple(parts) if name in fleet or name == "quiet"}
    took = parts.pop("took", PAST)
    values: dict[str, Any] = {
        "at": NOW, "until": MORNING, "took": {one.view.project: took for one in projects}, "zone": UTC,
    }  # fmt: skip
    return Snapshot(**values | parts, fleet=FleetNow(**fleet))


def planned(*projects: ProjectNow, **parts: Any) -> Tonight:
    """Return the plan of that evening."""
    return plan(evening(*projects, **parts))


def by_story(night: Tonight) -> dict[str, PlannedStory]:
    """Return the stories of one project by their ids."""
    return {one.story: one for one in night.stories}
