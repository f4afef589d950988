"""Views of all projects, up or at rest: correct, cached until a hint, and without waking a project."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

import anyio
import pytest
from msgspec.structs import replace
from tests.support.eventually import eventually
from tests.support.house import INITIALISED, House, NoWatch, at, begun, daemon, house, make_project

from handoffd.engine.events import Started
from handoffd.engine.views import ProjectView
from handoffd.errors import NotFound
from handoffd.fleet.gauges import gauges
from handoffd.fleet.register import Register, load
from handoffd.fleet.status import _READ_AT_ONCE, _TOLD_AT_ONCE, glimpse
from handoffd.metrics.recorder import Gauge
from handoffd.project.rest import Row
from handoffd.settings.model import SchedulingSettings


@asynccontextmanager
async def rested(tmp_path: Path, **settings: str) -> AsyncIterator[tuple[House, dict[str, ProjectView]]]:
    """Lend a house with initialised projects, by default one, and their views from while they were up."""
    async with house(tmp_path) as here:
        roots = [
            make_project(tmp_path / name, settings=text) for name, text in (settings or {"a": ""}).items()
        ]
        async with daemon(here) as roster:
            for root in roots:
                await begun(roster, root)
            views = {root: replace(await roster.view(root), called=None) for root in roots}
        yield here, views


async def loaded(here: House) -> Register:
    """Return the projects in the journal of a house, at rest."""
    register = Register()
    await load(register, here.services)
    return register


async def test_projects_up_and_at_rest_are_listed_together(here: House, tmp_path: Path) -> None:
    """By root, and without waking any; the error about an unknown one has the command that adds it."""
    async with daemon(here, rest_after_s=0.01) as roster:
        roots = [make_project(tmp_path / name) for name in "ab"]
        for root in roots:
            await roster.add(root)
        await eventually(lambda: roster.resting == 2)
        with roster._register.guest(roots[0]):
            await roster.give(roots[0], INITIALISED)

            views = await roster.views()

            assert roots == [view.project for view in views]
            assert ["ok", "not_initialized"] == [view.condition for view in views]
            assert [views[0]] == [await roster.view(roots[0])]
            assert 1 == roster.resting
        with pytest.raises(NotFound) as unknown:
            await roster.view("/srv/nowhere")
        assert "handoffd add /srv/nowhere" == unknown.value.hint


async def test_views_of_many_projects_are_complete(here: House) -> None:
    """They are built in batches."""
    roots = [f"/srv/{number:04}" for number in range(_TOLD_AT_ONCE + 1)]
    for root in roots:
        await here.journal.add_project(root, root[5:], here.clock.now())
    async with daemon(here, rest_after_s=0.01) as roster:
        assert roots == [view.project for view in await roster.views()]


async def test_cached_views_can_be_dropped(here: House, root: str) -> None:
    """They depend on the daemon's settings, which can change."""
    async with daemon(here, rest_after_s=0.01) as roster:
        await roster.add(root)
        await eventually(lambda: roster.resting == 1)
        before = await roster.view(root)
        cached = replace(before, called=None)  # another project with its name may arrive
        assert [cached] == [row.view for row in roster._register.resting.values()]

        roster.forget_views()

        assert [None] == [row.view for row in roster._register.resting.values()]
        assert before == await roster.view(root)


# --- projects at rest --------------------------------------------------------------------------------
async def test_a_resting_project_has_the_same_view_as_before(tmp_path: Path) -> None:
    """From the journal's track and the project's own files; the row caches it."""
    async with rested(tmp_path, a="language: en\n", b="language: zh-TW\n") as (here, before):
        register = await loaded(here)

        assert before == await glimpse(list(before), register, here.services)
        assert before == {root: row.view for root, row in register.resting.items()}
        assert (before, {}) == (await glimpse(list(before), register, here.services), register.awake)


async def test_a_held_edit_is_shown_and_does_not_apply(tmp_path: Path) -> None:
    """It waits for a person's trust. A missing folder is left for the next look to report."""
    async with rested(tmp_path) as (here, roots):
        (root,) = roots
        at(root, ".ai/handoffd.yaml").write_text("test: {command: [make]}\n")

        view = (await glimpse([root], await loaded(here), here.services))[root]
        assert (None, True) == (view.test_command, "edits wait for" in view.warnings[0])

        at(root, ".").rename(tmp_path / "moved")
        (view,) = (await glimpse([root], await loaded(here), here.services)).values()
        assert "bootstrap" == view.tracks[0].step


async def test_a_view_from_before_a_hint_is_not_cached(tmp_path: Path) -> None:
    """The hint came while the files were being read."""
    async with rested(tmp_path) as (here, roots):
        (root,) = roots
        register = await loaded(here)
        row = register.resting[root]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(glimpse, [root], register, here.services)
            await anyio.lowlevel.checkpoint()
            row.hints += 1
        assert row.view is None


async def test_only_resting_projects_are_read_from_the_journal(here: House) -> None:
    """Without unknown ones, and in batches."""
    register = Register()
    roots = [f"/srv/gone/{number}" for number in range(_READ_AT_ONCE + 1)]
    for root in roots:
        register.lay_down(root, Row(name="x", automatic=True, tracks=("main",), states=None))

    views = await glimpse([*roots, "/srv/unknown"], register, here.services)

    assert sorted(roots) == sorted(views)


# --- gauges -----------------------------------------------------------------------------------------
def values(found: tuple[Gauge, ...], name: str) -> dict[tuple[str, ...], float]:
    """Return the values of a series."""
    [one] = [gauge for gauge in found if gauge.name == name]
    return one.values


async def test_a_scrape_has_all_series(root: str, tmp_path: Path) -> None:
    """A story at its gate, a free slot, a writable journal, no trouble of the machine."""
    async with house(tmp_path) as lent, daemon(lent) as roster:
        await begun(roster, root)
        await roster.give(root, Started(story="US-001", automatic=True))

        await eventually(
            lambda: roster.running == 0 and lent.told.notices
        )  # at its gate, with a delivered notice
        lent.clock.ahead_s = 90_000
        limited = SchedulingSettings(per_executor={"claude": 2})
        lent.services.slots.configure(lent.services.slots.total, limited)
        found = await gauges(lent.services, roster, NoWatch(), None)

    assert {(): 1} == values(found, "waiting_for_people")
    assert 90_000 <= values(found, "waiting_longest_seconds")[()] < 90_300
    assert {(): 0} == values(found, "backlog_stories")
    assert {("ok",): 1} == values(found, "projects")
    assert {("review", "needs_human"): 1} == values(found, "tracks")
    assert {(): 4} == values(found, "slots")
    assert {(): 0} == values(found, "slots_in_use") == values(found, "slots_queue")
    assert {("executor", "claude"): 2} == values(found, "pool_slots")
    assert {("executor", "claude"): 0} == values(found, "pool_slots_in_use")
    assert values(found, "journal_events")[()] > 3
    assert {(): 1} == values(found, "journal_writable") == values(found, "starting")
    assert values(found, "state_free_bytes")[()] > 0


async def test_faults_are_numbers(tmp_path: Path) -> None:
    """A fault of the machine, and an unwatched folder."""

    class Deaf(NoWatch):
        degraded = MappingProxyType({"/srv/shop": "no watch is left"})

    async with house(tmp_path) as lent, daemon(lent) as roster:
        found = await gauges(lent.services, roster, Deaf(), "the journal cannot be written")

    assert ({(): 0}, {(): 1}) == (values(found, "starting"), values(found, "watch_degraded"))
    assert {(): 0} == values(found, "waiting_longest_seconds")
    assert {} == values(found, "tracks")
