"""What holds on every evening: slots, blockers, budgets, the table of steps."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.forecast.evenings import MORNING, NOW, OPEN, SHIPPED, at, planned, project

from handoffd.engine.track import Queued
from handoffd.forecast.plan import PlannedStep, Tonight
from handoffd.forecast.snapshot import Estimate, ProjectNow
from handoffd.settings.model import CapSettings, SchedulingSettings

TABLES = {"open": OPEN, "shipped": SHIPPED}
Made = tuple[list[ProjectNow], dict[str, Any], Tonight]
EARLIER = ("US-0", "US-0", "US-0", "US-99")
"""Of these the first is done, and the last was never started."""
NAMES = tuple(f"US-{n}" for n in range(1, 7))


def mostly(value: Any, *others: Any) -> st.SearchStrategy[Any]:
    """Return a value in most cases, and sometimes one of the others."""
    return st.sampled_from([*[value] * 5, *others])


@st.composite
def stories(draw: st.DrawFn) -> tuple[Queued, ...]:
    """Return a backlog in which stories wait for others: hardly ever for one that is not there."""
    names = draw(st.permutations(NAMES))[: draw(mostly(4, 0, 1, 6))]
    return tuple(
        Queued(
            story=name, priority=draw(st.integers(-2, 2)),
            blocked_by=tuple(draw(st.sets(st.sampled_from([*names[:place], *EARLIER]), max_size=2))),
        )
        for place, name in enumerate(names)
    )  # fmt: skip


@st.composite
def projects(draw: st.DrawFn) -> list[ProjectNow]:
    """Return some projects, in clones or not, most of which go on by themselves."""
    found = []
    for number in range(draw(mostly(3, 1, 2, 4))):
        own: dict[str, Any] = {"priority": draw(st.integers(-3, 3))}
        if draw(st.booleans()):
            stories_of = {"parallel": draw(st.integers(1, 3)), "land": draw(mostly("auto", "ask"))}
            own |= {"workspace": "clone", "stories": stories_of}
        if (cap := draw(mostly(None, 0.7, 2.0))) is not None:
            own["caps"] = {"story_usd": cap}
        backlog = sorted(draw(stories()), key=lambda one: -one.priority)
        found.append(
            project(
                *backlog, root=f"/srv/p{number}", settings=own, rules=TABLES[draw(mostly("open", "shipped"))],
                state=draw(st.sampled_from([None, at("impl", "US-50"), at("verify", "US-50")])),
                continues=draw(mostly(True, False)), automatic=draw(mostly(True, False)),
                stories_done=("US-0",),
            )
        )  # fmt: skip
    return found


@st.composite
def nights(draw: st.DrawFn) -> Made:
    """Return projects, what limits them, and the plan."""
    some = draw(projects())
    estimate = st.builds(
        Estimate, seconds=mostly(60.0, 1.0, 3_600.0), tokens=st.sampled_from([0, 1_000]),
        cost_usd=mostly(0.5, 0.0, 1.0), basis=st.just("past"),
    )  # fmt: skip
    took = {step: draw(estimate) for step in SHIPPED.steps}
    limits: dict[str, Any] = {
        "slots": draw(st.sampled_from([1, 2, 3])),
        "scheduling": SchedulingSettings(per_project=draw(mostly(None, 1, 2))),
        "caps": CapSettings(daemon_usd=draw(mostly(None, 1.0, 4.0))),
    }
    return some, limits, planned(*some, took=took, **limits)


def most_at_once(steps: list[PlannedStep]) -> int:
    """Return how many steps are worked on at the same time at most."""
    moments: Counter[datetime] = Counter()
    for step in steps:
        moments[step.starts_at] += 1
        moments[step.ends_at] -= 1
    running, most = 0, 0
    for moment in sorted(moments):
        running += moments[moment]
        most = max(most, running)
    return most


def steps_of(night: Tonight) -> list[PlannedStep]:
    """Return all steps of a night."""
    return [step for story in night.stories for step in story.steps]


def nothing_is_planned_beyond_the_slots(made: Made) -> None:
    """Of all together, and of each project; the plan names the most."""
    some, limits, night = made
    assert most_at_once(steps_of(night)) <= night.slots.most <= limits["slots"]
    for one in some:
        own = [step for story in night.stories if story.project == one.view.project for step in story.steps]
        most = limits["scheduling"].per_project or limits["slots"]
        assert most_at_once(own) <= min(most, one.settings.stories.parallel)


def no_story_begins_before_its_blockers_are_done(made: Made) -> None:
    """One that waits for a story that never ends does not begin."""
    _, _, night = made
    ends = {(one.project, one.story): one.ends_at for one in night.stories if one.outcome == "done"}
    for story in night.stories:
        for name in set(story.blocked_by) - {"US-0"} if story.steps else ():
            end = ends[story.project, name]
            assert end is not None
            assert end <= story.steps[0].starts_at


def no_budget_is_passed_unsaid(made: Made) -> None:
    """A cap that stops a story names it; beyond the cap is only what ran when it was reached."""
    _, limits, night = made
    steps = steps_of(night)
    spent = sum(step.cost_usd or 0.0 for step in steps if step.ends_at < MORNING)
    caps = [one for one in night.caps if one.scope == "daemon"]
    assert len(caps) == (limits["caps"].daemon_usd is not None)
    for cap in caps:
        assert abs(spent - cap.expected) < 1e-6
        most = max((step.cost_usd or 0.0 for step in steps), default=0.0)
        assert cap.expected < cap.cap + limits["slots"] * most + 1e-6
        assert cap.stops is None or cap.expected >= cap.cap
        assert (cap.stops is not None) == any(
            one.kind == "cap" and "daemon" in one.why for one in night.stops
        )


def each_story_takes_its_steps_in_order_and_has_one_outcome(made: Made) -> None:
    """By the table of its project, up to a human step; what stops is among what stops the night."""
    some, _, night = made
    known = {one.view.project: one for one in some}
    for story in night.stories:
        path = known[story.project].rules.path("story")
        taken = [step.step for step in story.steps]
        begin = path.index(taken[0]) if taken else 0
        assert list(path[begin : begin + len(taken)]) == taken
        assert all(step.starts_at >= NOW for step in story.steps)
        assert all(a.ends_at <= b.starts_at for a, b in zip(story.steps, story.steps[1:], strict=False))
        assert (story.outcome == "done") == (
            bool(taken) and story.ends_at is not None and taken[-1] == path[-1]
        )
        stopped = [one for one in night.stops if one.project == story.project and story.story in one.stories]
        assert stopped or story.outcome != "stops"
    assert len(night.stories) == sum(night.outcomes.values())


@settings(max_examples=30)
@given(nights())
def test_what_holds_on_every_evening(made: Made) -> None:
    """Slots, blockers, budgets and the table of steps, on the same evenings: one takes long to make."""
    nothing_is_planned_beyond_the_slots(made)
    no_story_begins_before_its_blockers_are_done(made)
    no_budget_is_passed_unsaid(made)
    each_story_takes_its_steps_in_order_and_has_one_outcome(made)


@settings(max_examples=20)
@given(projects())
def test_a_level_one_project_starts_nothing(some: list[ProjectNow]) -> None:
    """Neither does one whose backlog waits for a command, once no story is in flight."""
    by_hand = [one for one in some if not one.tracks["main"].ledger.automatic]
    assert [] == steps_of(planned(*by_hand))
