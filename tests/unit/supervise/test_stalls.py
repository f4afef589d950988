"""Executors that stand still are found by the poller, however long a machine slept meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.eventually import eventually
from tests.unit.supervise.living import living, shown
from tests.unit.supervise.making import House, house, make_project

from handoffd.engine.requests import Initialised, Noted, Started
from handoffd.engine.track import Phase
from handoffd.execute.base import Vitals
from handoffd.supervise.project import Project
from handoffd.supervise.stalls import Stalls, Watch

UNHURRIED = "steps: {bdd: {timeout_min: 600, next_on_pass: review}, review: {next_on_pass: update-memory}}"
START = Vitals(output_bytes=10, cpu_s=1.0, written_bytes=20)


def test_silence_adds_up_and_a_sign_of_life_ends_it() -> None:
    """What was seen last is what the next looks are compared with."""
    watch = Watch(dispatch="d1", since=START, looked_at=100.0)
    quiet = watch.after(START, 130.0, 60).after(START, 160.0, 60)
    assert 60.0 == quiet.quiet_s

    busy = Vitals(output_bytes=11, cpu_s=1.0, written_bytes=20)
    assert Watch(dispatch="d1", since=busy, looked_at=190.0) == quiet.after(busy, 190.0, 60)


def test_a_gap_between_two_looks_is_no_long_silence() -> None:
    """The machine slept, or the daemon was stopped; a clock that goes back counts for nothing."""
    watch = Watch(dispatch="d1", since=START, looked_at=100.0)
    assert 60.0 == watch.after(START, 100_000.0, 60).quiet_s
    assert 0.0 == watch.after(START, 50.0, 60).quiet_s


@asynccontextmanager
async def at_work(
    tmp_path: Path, agent: str = "exec sleep 600", settings: str | None = None
) -> AsyncIterator[tuple[House, Project]]:
    """Lend a project whose executor is at work on bdd, and has begun with the commands `agent`."""
    root = make_project(tmp_path, rules=UNHURRIED, settings=settings)
    async with house(tmp_path, f"touch {tmp_path}/begun\n{agent}") as here, living(here, root) as project:
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001"))
        await eventually((tmp_path / "begun").exists)
        await eventually(lambda: _phase(project) is Phase.EXECUTING)
        yield here, project
        await project.end_executors("the test")


def _phase(project: Project) -> Phase | None:
    dispatch = project.main.track.ledger.dispatch
    return dispatch.phase if dispatch is not None else None


async def minutes_pass(here: House, project: Project, looks: int) -> list[str]:
    """Let the poller look so often, a minute apart; return what the journal tells of silence by then."""
    for _ in range(looks):
        here.clock.ahead_s += 60
        await project.poll()
    await project.main.give(Noted(text="Whatever was posted is decided before this is."))
    kinds = [event.kind for event in await here.journal.events(0, None, 1000)]
    return [kind for kind in kinds if kind in {"executor_quiet", "executor_stalled"}]


async def test_people_are_told_of_silence_once_and_then_it_is_ended(tmp_path: Path) -> None:
    """The warning comes at half the time, the end at the whole; the error names the signs."""
    async with at_work(tmp_path) as (here, project):
        assert [] == await minutes_pass(here, project, 5)  # the first look is the beginning of it
        assert ["executor_quiet"] == await minutes_pass(here, project, 5)
        await eventually(lambda: [one.kind for one in here.told.notices] == ["warning"])

        assert ["executor_quiet", "executor_stalled"] == await minutes_pass(here, project, 1)
        await eventually(lambda: "it stood still for 10.0 min" in str(shown(project)["last_error"]))
        assert "bytes written" in str(shown(project)["last_error"])


async def test_a_sign_of_life_starts_the_time_anew(tmp_path: Path) -> None:
    """The silence before it does not count any more, and the warning is not given again."""
    talks = f"until test -e {tmp_path}/go; do sleep 0.05; done\necho life\nexec sleep 600"
    async with at_work(tmp_path, talks) as (here, project):
        assert ["executor_quiet"] == await minutes_pass(here, project, 9)
        (run,) = project.main.attempts.live.values()
        (tmp_path / "go").touch()
        await eventually(lambda: run.vitals().output_bytes > 0)

        assert ["executor_quiet"] == await minutes_pass(here, project, 9)
        assert "running" == shown(project)["status"]


async def test_without_a_limit_silence_is_nothing(tmp_path: Path) -> None:
    """A project says 0 when its agents are known to be silent for long."""
    async with at_work(tmp_path, settings="stall_min: 0\n") as (here, project):
        assert [] == await minutes_pass(here, project, 60)
        assert "running" == shown(project)["status"]


async def test_a_project_may_allow_another_time(tmp_path: Path) -> None:
    """Its own setting goes before the daemon's."""
    async with at_work(tmp_path, settings="stall_min: 2\n") as (here, project):
        assert ["executor_quiet", "executor_stalled"] == await minutes_pass(here, project, 3)


async def test_a_new_daemon_waits_for_the_whole_time_again(tmp_path: Path) -> None:
    """What an earlier one had seen is not known, and an agent is not ended on a suspicion."""
    async with at_work(tmp_path) as (here, project):
        assert [] == await minutes_pass(here, project, 5)

        successor = Stalls(here.services)
        for _ in range(5):
            here.clock.ahead_s += 60
            await successor.check(project.main, None)
        assert [] == await minutes_pass(here, project, 0)
