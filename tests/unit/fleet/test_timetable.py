"""Starts by the clock, in real projects with a clock that is put forward by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.house import NOW, House, at, begun, daemon, house, make_project, unwritable

from handoffd.api.service import Service
from handoffd.engine.decision import Accepted, Refusal, Result
from handoffd.engine.events import Aborted, Paused, Started
from handoffd.errors import HandoffdError, Locked, NotFound, Refused, StoreError
from handoffd.fleet.roster import Roster
from handoffd.fleet.timetable import Timetable
from handoffd.settings.model import ScheduleSettings
from handoffd.settings.schedule import SharedStart
from handoffd.track.services import OwnSchedules, Services

SHOP = "/srv/shop"
MIDNIGHT = datetime(2026, 2, 1, tzinfo=UTC)
"""The house's clock begins at 22:15 the evening before."""
DAILY = SharedStart(name="nightly", cron="0 0 * * *", timezone="UTC", start="R-{date}", projects=("*",))
YES = Accepted(step="bdd", status="pending", message="taken", caller_instruction="wait")
NO = Refusal(code="STORY_IN_PROGRESS", message="US-1 is in flight", caller_instruction="wait")


@dataclass
class Projects:
    """Projects that answer a start as they are told to."""

    services: Services
    roots: list[str] = field(default_factory=lambda: [SHOP])
    answer: Result | HandoffdError = YES
    asked: list[tuple[str, Started]] = field(default_factory=list)
    called: dict[str, str] = field(default_factory=dict)

    def names(self) -> Mapping[str, str]:
        """Return what each is called."""
        return {root: self.called.get(root, Path(root).name) for root in self.roots}

    async def begin(self, root: str, event: Started) -> Result:
        """Keep what was asked; a start that is taken is dealt with, as its event's transaction does it."""
        self.asked.append((root, event))
        if isinstance(self.answer, HandoffdError):
            raise self.answer
        if isinstance(self.answer, Accepted):
            assert event.schedule is not None
            assert event.due is not None
            stored = await self.services.journal.schedules.of(root, event.schedule)
            assert stored is not None
            await self.services.journal.schedules.settle(
                _fire(root, event.schedule, event.due, self.services.clock.now())
            )
        return self.answer

    @property
    def stories(self) -> list[str]:
        """What was asked for."""
        return [event.story for _, event in self.asked]


def _fire(root: str, schedule: str, due: datetime, now: datetime) -> Any:
    from handoffd.journal.projects import Fire

    return Fire(project=root, schedule=schedule, due=due, at=now, outcome="started")


def with_starts(here: House, *starts: SharedStart) -> Services:
    """Return the house's services with these schedules in the settings."""
    settings = here.services.settings.model_copy(update={"schedule": ScheduleSettings(starts=starts)})
    return replace(here.services, settings=settings)


@asynccontextmanager
async def timetable(
    here: House, *starts: SharedStart, projects: Projects | None = None
) -> AsyncIterator[tuple[Timetable, Projects]]:
    """Lend a timetable that has looked once."""
    services = with_starts(here, *starts)
    projects = projects or Projects(services)
    table = Timetable(services, projects)
    table.begin = projects.begin
    await table.look()
    yield table, projects


def set_clock(here: House, now: datetime) -> None:
    """Have it be `now`."""
    here.clock.ahead_s = (now - NOW).total_seconds()


async def test_what_is_due_is_started_once(tmp_path: Path) -> None:
    """At its time, not before, and not again; the next night it is again."""
    async with house(tmp_path) as here, timetable(here, DAILY) as (table, projects):
        set_clock(here, MIDNIGHT - timedelta(seconds=1))
        await table.look()
        assert [] == projects.asked
        for _ in range(3):
            set_clock(here, MIDNIGHT + timedelta(seconds=5))
            await table.look()
        [(root, event)] = projects.asked
        assert (SHOP, "R-2026-02-01", "nightly", MIDNIGHT) == (root, event.story, event.schedule, event.due)
        set_clock(here, MIDNIGHT + timedelta(days=1, seconds=1))
        await table.look()
        assert ["R-2026-02-01", "R-2026-02-02"] == projects.stories


async def test_a_restart_neither_repeats_nor_forgets(tmp_path: Path) -> None:
    """Another life finds what was dealt with, and what was not."""
    async with house(tmp_path) as here:
        async with timetable(here, DAILY) as (table, projects):
            set_clock(here, MIDNIGHT + timedelta(seconds=5))
            await table.look()
            assert 1 == len(projects.asked)
        async with timetable(here, DAILY) as (table, projects):
            await table.look()
            assert [] == projects.asked
        set_clock(here, MIDNIGHT + timedelta(days=1, seconds=5))
        async with timetable(here, DAILY) as (table, projects):
            assert ["R-2026-02-02"] == projects.stories


async def test_what_was_missed_is_made_up_for_where_that_is_wished(tmp_path: Path) -> None:
    """One start for a week away; without the wish it is told as missed."""
    both = (DAILY, DAILY.model_copy(update={"name": "once", "catch_up": "one", "start": "O-{date}"}))
    async with house(tmp_path) as here:
        async with timetable(here, *both):
            pass
        set_clock(here, MIDNIGHT + timedelta(days=6, hours=3))
        async with timetable(here, *both) as (table, projects):
            assert ["O-2026-02-07"] == projects.stories
            missed, once = await table.views()
            assert ("missed", MIDNIGHT + timedelta(days=6)) == (missed.last_outcome, missed.last_due)
            assert "no daemon was running" in (missed.last_why or "")
            assert MIDNIGHT + timedelta(days=7) == missed.next_at == once.next_at
            await table.look()
            assert 1 == len(projects.asked)


async def test_a_clock_that_is_set_back_starts_nothing_again(tmp_path: Path) -> None:
    """Nor does it keep what comes from coming."""
    async with house(tmp_path) as here, timetable(here, DAILY) as (table, projects):
        set_clock(here, MIDNIGHT + timedelta(seconds=5))
        await table.look()
        for hours in (-5, -1, 0, 1):
            set_clock(here, MIDNIGHT + timedelta(hours=hours, seconds=1))
            await table.look()
        assert 1 == len(projects.asked)
        set_clock(here, MIDNIGHT + timedelta(days=1, seconds=1))
        await table.look()
        assert 2 == len(projects.asked)


async def test_a_clock_that_was_wrong_at_first_silences_nothing(tmp_path: Path) -> None:
    """A machine that begins with a clock years ahead: what it had not started yet is started in its time."""
    async with house(tmp_path) as here:
        set_clock(here, MIDNIGHT + timedelta(days=3650))
        async with timetable(here, DAILY) as (table, projects):
            set_clock(here, MIDNIGHT - timedelta(minutes=1))
            await table.look()
            assert [MIDNIGHT] == [one.next_at for one in await table.views()]
            set_clock(here, MIDNIGHT + timedelta(seconds=5))
            await table.look()
            assert ["R-2026-02-01"] == projects.stories


async def test_a_start_that_fails_takes_no_other_one_with_it(tmp_path: Path) -> None:
    """It is tried again, and says so."""

    class Broken(Projects):
        async def begin(self, root: str, event: Started) -> Result:
            if root == "/srv/a" and not self.asked:
                self.asked.append((root, event))
                raise RuntimeError("a fault of ours")
            return await super().begin(root, event)

    async with house(tmp_path) as here:
        projects = Broken(with_starts(here, DAILY), roots=["/srv/a", "/srv/b"])
        async with timetable(here, DAILY, projects=projects) as (table, _):
            set_clock(here, MIDNIGHT + timedelta(seconds=1))
            await table.look()
            assert {"/srv/a", "/srv/b"} == {root for root, _ in projects.asked}
            waiting = {one.project: one.waits_for for one in await table.views()}
            assert ("its start failed; the log of the daemon says more", None) == (
                waiting["/srv/a"], waiting["/srv/b"]
            )  # fmt: skip
            set_clock(here, MIDNIGHT + timedelta(seconds=20))
            await table.look()
            assert ["started", "started"] == [one.last_outcome for one in await table.views()]


async def test_a_start_that_is_refused_is_skipped_and_says_why(tmp_path: Path) -> None:
    """And is not asked for again."""
    async with house(tmp_path) as here, timetable(here, DAILY) as (table, projects):
        for answer, why in (
            (NO, "US-1 is in flight"),
            (Refused("no such executor", code="X"), "no such executor"),
        ):
            projects.answer = answer
            set_clock(here, here.clock.now().replace(hour=0, minute=0, second=0) + timedelta(days=1))
            await table.look()
            await table.look()
            [view] = await table.views()
            assert ("skipped", why) == (view.last_outcome, view.last_why)
        assert 2 == len(projects.asked)


async def test_a_project_that_cannot_be_asked_just_now_is_asked_again(tmp_path: Path) -> None:
    """As long as it would still be on time; until then it is told why it waits."""
    async with house(tmp_path) as here, timetable(here, DAILY) as (table, projects):
        set_clock(here, MIDNIGHT)
        projects.answer = Locked("another process has it")
        await table.look()
        [view] = await table.views()
        assert ("another process has it", MIDNIGHT) == (view.waits_for, view.next_at)

        set_clock(here, MIDNIGHT + timedelta(seconds=20))
        projects.answer = YES
        await table.look()
        [view] = await table.views()
        assert ("started", None) == (view.last_outcome, view.waits_for)

        for passing in (StoreError("gone"), NotFound("gone"), Refused("crashed", code="RESTARTING")):
            projects.answer = passing
            set_clock(here, here.clock.now().replace(hour=0, minute=0) + timedelta(days=1))
            await table.look()
            set_clock(here, here.clock.now() + timedelta(seconds=120))
            await table.look()
            [view] = await table.views()
            assert ("missed", passing.message, None) == (view.last_outcome, view.last_why, view.waits_for)


@pytest.mark.parametrize("error", [StoreError("STATE.json is gone"), Refused("odd", code="ODD")])
async def test_a_start_whose_answer_was_lost_is_not_repeated(tmp_path: Path, error: HandoffdError) -> None:
    """The journal knows that it was committed, and nothing is told instead of that."""
    async with house(tmp_path) as here, timetable(here, DAILY) as (table, projects):
        taken = projects.begin

        async def lost(root: str, event: Started) -> Result:
            await taken(root, event)
            raise error

        table.begin = lost
        for seconds in (1, 30, 60):
            set_clock(here, MIDNIGHT + timedelta(seconds=seconds))
            await table.look()
        assert 1 == len(projects.asked)
        [view] = await table.views()
        assert "started" == view.last_outcome


async def test_a_journal_that_takes_nothing_loses_nothing(tmp_path: Path) -> None:
    """What was skipped is written down when it can be."""
    async with house(tmp_path) as here, timetable(here, DAILY) as (table, projects):
        projects.answer = NO
        set_clock(here, MIDNIGHT)
        with unwritable(here, "schedules", "UPDATE"):
            await table.look()
            [view] = await table.views()
            assert view.last_outcome is None
        set_clock(here, MIDNIGHT + timedelta(seconds=20))
        await table.look()
        [view] = await table.views()
        assert "skipped" == view.last_outcome


async def test_projects_come_and_go(tmp_path: Path) -> None:
    """One that comes is begun with from then on, also one that comes back; what is gone is forgotten."""
    async with house(tmp_path) as here, timetable(here, DAILY) as (table, projects):
        await here.journal.add_project("/srv/blog", "blog", NOW)
        projects.roots.append("/srv/blog")
        set_clock(here, MIDNIGHT - timedelta(hours=1))
        await table.look()
        assert 2 == len(await table.views())
        projects.roots.remove(SHOP)
        set_clock(here, MIDNIGHT + timedelta(seconds=10))
        await table.look()
        assert ["/srv/blog"] == [root for root, _ in projects.asked]
        projects.roots.append(SHOP)
        set_clock(here, MIDNIGHT + timedelta(seconds=60))
        await table.look()
        await table.look()
        assert 1 == len(projects.asked)
        [view] = await table.views(SHOP)
        assert (None, MIDNIGHT + timedelta(days=1)) == (view.last_outcome, view.next_at)


async def test_a_project_that_is_away_for_a_moment_misses_nothing(tmp_path: Path) -> None:
    """While it is made anew it is not there, and the journal says that it is supervised."""
    async with house(tmp_path) as here, timetable(here, DAILY) as (table, projects):
        await here.journal.add_project(SHOP, "shop", NOW)
        projects.roots.clear()
        set_clock(here, MIDNIGHT - timedelta(seconds=5))
        await table.look()
        assert () == await table.views()
        projects.roots.append(SHOP)
        set_clock(here, MIDNIGHT + timedelta(seconds=5))
        await table.look()
        assert 1 == len(projects.asked)


async def test_a_project_that_is_called_otherwise_is_another_one(tmp_path: Path) -> None:
    """Patterns of names are looked at again now and then."""
    named = DAILY.model_copy(update={"projects": ("store",)})
    async with house(tmp_path) as here, timetable(here, named) as (table, projects):
        assert () == await table.views()
        projects.called[SHOP] = "store"
        set_clock(here, NOW + timedelta(seconds=61))
        await table.look()
        assert [SHOP] == [view.project for view in await table.views()]


async def test_an_edited_schedule_begins_anew(tmp_path: Path) -> None:
    """What its new time would have been earlier today is nobody's loss."""
    async with house(tmp_path) as here:
        caught = DAILY.model_copy(update={"catch_up": "one"})
        async with timetable(here, caught):
            pass
        edited = caught.model_copy(update={"cron": "0 22 * * *"})
        async with timetable(here, edited) as (table, projects):
            assert [] == projects.asked
            [view] = await table.views()
            assert datetime(2026, 2, 1, 22, tzinfo=UTC) == view.next_at


async def test_settings_that_change_are_followed(tmp_path: Path) -> None:
    """Without a restart: what comes is begun with, what goes is told no more."""
    async with house(tmp_path) as here, timetable(here) as (table, projects):
        assert () == await table.views()
        projects.services.settings = with_starts(here, DAILY).settings
        await table.look()
        set_clock(here, MIDNIGHT)
        await table.look()
        assert 1 == len(projects.asked)
        projects.services.settings = here.services.settings
        await table.look()
        assert () == await table.views()
        assert () == await here.journal.schedules.all()


async def test_one_project_that_hangs_keeps_no_other_one_waiting(tmp_path: Path) -> None:
    """Both are asked at the same time."""
    async with house(tmp_path) as here:
        services = with_starts(here, DAILY)
        projects = Projects(services, roots=[SHOP, "/srv/blog"])
        async with timetable(here, DAILY, projects=projects) as (table, _):
            both = anyio.Event()
            asked = []

            async def waits(root: str, event: Started) -> Result:
                asked.append(root)
                if len(asked) == 2:
                    both.set()
                await both.wait()
                return NO

            table.begin = waits
            set_clock(here, MIDNIGHT)
            with anyio.fail_after(60):
                await table.look()
            assert {SHOP, "/srv/blog"} == set(asked)


# --- with projects that are real -------------------------------------------------------------------
@asynccontextmanager
async def real(here: House, *starts: SharedStart) -> AsyncIterator[tuple[Roster, Timetable]]:
    """Lend a roster at work and its timetable."""
    lent = replace(here, services=with_starts(here, *starts))
    async with daemon(lent) as roster:
        table = Timetable(lent.services, roster)
        service = Service(
            roster, here.journal, here.clock, runs_dir=here.services.settings.runs_dir, schedules=table.told,
            stop=lambda _: None,
        )  # fmt: skip
        table.begin = service.start_due
        yield roster, table


async def test_a_project_is_started_and_initialised_by_its_own_settings(tmp_path: Path) -> None:
    """As a person's start would; the event says which schedule asked."""
    own = "schedule:\n  - {name: tidy, cron: '0 0 * * *', timezone: UTC, custom: Tidy up.}\n"
    async with house(tmp_path) as here, real(here) as (roster, table):
        root = make_project(tmp_path, settings=own)
        await roster.add(root)
        await roster.begun()
        await table.look()
        [view] = await table.views(root)
        assert (".ai/tidy", True, "tidy-2026-02-01-0000") == (view.schedule, view.own, view.story)

        set_clock(here, MIDNIGHT)
        await table.look()

        [track] = (await roster.view(root)).tracks
        assert ("tidy-2026-02-01-0000", "custom", "Tidy up.") == (
            track.story, track.task_type, track.human_note,
        )  # fmt: skip
        events = await here.journal.events()
        [start] = [event.event for event in events if event.kind == "started"]
        assert (".ai/tidy", "schedule .ai/tidy") == (start["schedule"], start["by"])
        [view] = await table.views(root)
        assert ("started", "tidy-2026-02-01-0000") == (view.last_outcome, view.last_story)


async def test_a_project_that_nobody_has_looked_at_yet_has_its_schedules(tmp_path: Path) -> None:
    """A daemon lets projects rest that have nothing to do; what was trusted of them is in the journal."""
    own = "schedule:\n  - {name: tidy, cron: '0 0 * * *', timezone: UTC, custom: Tidy up., catch_up: one}\n"
    async with house(tmp_path) as here:
        async with real(here) as (roster, table):
            root = make_project(tmp_path, settings=own)
            await roster.add(root)
            await roster.begun()
            await table.look()
        services = replace(here.services, own_schedules=OwnSchedules())
        projects = Projects(services, roots=[root])
        set_clock(here, MIDNIGHT + timedelta(hours=3))
        table = Timetable(services, projects)
        assert [".ai/tidy"] == [view.schedule for view in await table.views()]
        table.begin = projects.begin
        await table.look()
        assert ["tidy-2026-02-01-0000"] == projects.stories


async def test_what_an_agent_writes_into_the_settings_starts_nothing(tmp_path: Path) -> None:
    """It waits for a person's trust; then it is a schedule as any other."""
    async with house(tmp_path) as here, real(here) as (roster, table):
        root = make_project(tmp_path)
        await roster.add(root)
        own = "schedule:\n  - {name: tidy, cron: '0 0 * * *', timezone: UTC, custom: Tidy up.}\n"
        at(root, ".ai/handoffd.yaml").write_text(own, encoding="utf-8")
        await roster.reload()
        await table.look()
        assert () == await table.views()
        assert any("schedule waits for" in warning for warning in (await roster.view(root)).warnings)
        await roster.trust(root)
        await table.look()
        assert [".ai/tidy"] == [view.schedule for view in await table.views()]


async def test_a_schedule_waits_or_is_skipped_behind_a_story_in_flight(tmp_path: Path) -> None:
    """As it says; of each schedule one story is enough."""
    both = (DAILY, DAILY.model_copy(update={"name": "patient", "overlap": "queue", "start": "Q-{date}"}))
    async with house(tmp_path) as here, real(here, *both) as (roster, table):
        root = make_project(tmp_path)
        await begun(roster, root)
        await roster.give(root, Paused())
        await roster.give(root, Started(story="US-1"))
        await table.look()
        for night in range(2):
            set_clock(here, MIDNIGHT + timedelta(days=night))
            await table.look()
            skipped, patient = await table.views()
            assert ("skipped", "US-1 is in flight at bdd") == (skipped.last_outcome, skipped.last_why)
            expected = ("queued", "skipped")[night]
            assert expected == patient.last_outcome
        [_, patient] = await table.views()
        assert "Q-2026-02-01 of patient waits in the backlog still" == patient.last_why
        assert ["Q-2026-02-01"] == [one.story for one in (await roster.backlog(root)).stories]
        assert "patient" == (await roster.backlog(root)).stories[0].schedule


async def test_a_schedule_that_concerns_no_project_is_told(tmp_path: Path) -> None:
    """Until there is one: a slip in a name is not found out by a review that never came."""
    slip = DAILY.model_copy(update={"name": "slip", "projects": ("shpo", "/srv/none/*")})
    soon = DAILY.model_copy(update={"name": "soon", "projects": (f"{tmp_path}/late/*",)})
    async with house(tmp_path) as here, real(here, DAILY, slip, soon) as (roster, table):
        await roster.add(make_project(tmp_path / "early"))
        await table.look()
        views, idle = await table.told()
        assert ["nightly"] == [view.schedule for view in views]
        assert ["slip", "soon"] == [one.schedule for one in idle]
        assert ("shpo", "/srv/none/*") == idle[0].projects
        await roster.add(make_project(tmp_path / "late"))
        set_clock(here, NOW + timedelta(minutes=2))
        await table.look()
        assert ["slip"] == [one.schedule for one in (await table.told())[1]]


async def test_a_story_that_was_queued_does_not_stop_its_schedule(tmp_path: Path) -> None:
    """Where nobody continues, the next time that finds nothing in flight starts it, and that is told."""
    patient = DAILY.model_copy(update={"overlap": "queue", "start": "Q-{date}"})
    async with house(tmp_path) as here, real(here, patient) as (roster, table):
        root = make_project(tmp_path)
        await begun(roster, root)
        await roster.give(root, Paused())
        await roster.give(root, Started(story="US-1"))
        await table.look()
        set_clock(here, MIDNIGHT)
        await table.look()
        await roster.give(root, Aborted())
        set_clock(here, MIDNIGHT + timedelta(days=1))
        await table.look()
        [view] = await table.views()
        assert ("started", "Q-2026-02-01") == (view.last_outcome, view.last_story)
        assert () == (await roster.backlog(root)).stories
        set_clock(here, MIDNIGHT + timedelta(days=2))
        await table.look()
        [view] = await table.views()
        assert "skipped" == view.last_outcome
