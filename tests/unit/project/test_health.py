"""The condition of a project: the errors that lead to it, and one notice for each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from tests.support.eventually import eventually
from tests.support.house import NOW, House, house
from tests.unit.capacity.test_machine import fail

from handoffd.engine.views import Condition
from handoffd.errors import HandoffdError, InvalidFile, Locked, Problem, StoreError
from handoffd.files.errors import PROJECT_GONE
from handoffd.notify.notices import settle
from handoffd.notify.notifier import Notifier
from handoffd.project.files import ProjectFiles
from handoffd.project.reconciler import LASTING_S, Health
from handoffd.settings.notify import NotifySettings


def lasting(here: House, health: Health, condition: Condition, *details: str) -> None:
    """Mark a project, and again when that has lasted."""
    health.mark(condition, *details)
    here.clock.ahead_s += LASTING_S
    health.mark(condition, *details)


@asynccontextmanager
async def notifying(tmp_path: Path) -> AsyncIterator[tuple[House, Notifier]]:
    """Lend a house with a running notifier."""
    async with house(tmp_path) as here, anyio.create_task_group() as tasks:
        tasks.start_soon(here.services.notifier.run)
        yield here, here.services.notifier
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (InvalidFile((Problem(file=".ai/STATE.json", line=3, message="odd"),)), "invalid_state"),
        (Locked("in use by process 7"), "locked"),
        (StoreError("the project is gone", code=PROJECT_GONE), "missing"),
        (StoreError("no space left"), "io_error"),
    ],
)
async def test_each_kind_of_error_leads_to_a_condition(
    here: House, tmp_path: Path, error: HandoffdError, condition: str
) -> None:
    """Its message becomes the detail."""
    health = Health(str(tmp_path), here.services)

    health.mark_error(error)

    assert (condition, error.message) == (health.condition, health.detail)


async def test_a_lasting_condition_is_reported_once(tmp_path: Path) -> None:
    """Repeating it sends nothing, and neither does recovery."""
    async with notifying(tmp_path) as (here, notifier):
        health = Health(str(tmp_path), here.services)
        for _ in range(3):
            lasting(here, health, "io_error", "no space left")
        health.mark("ok")

        assert await notifier.drain(60)
        assert [("blocked", "no space left")] == [(notice.kind, notice.why) for notice in here.told.notices]


async def test_a_short_condition_is_not_reported(tmp_path: Path) -> None:
    """However often it happens. A lasting one is, and invalid rules are reported at once."""
    async with notifying(tmp_path) as (here, notifier):
        health = Health(str(tmp_path), here.services)
        for _ in range(3):
            health.mark("missing", "gone")
            here.clock.ahead_s += 60
            health.mark("missing", "gone")
            health.mark("ok")
            here.clock.ahead_s += 60
        health.mark("invalid_rules", "auto is odd")
        assert await notifier.drain(60)
        assert [("warning", "auto is odd")] == [(one.kind, one.why) for one in here.told.notices]

        health.mark("missing", "gone")
        here.clock.ahead_s += LASTING_S - 1
        health.mark("io_error", "unreadable")
        assert await notifier.drain(60)
        assert 1 == len(here.told.notices)
        here.clock.ahead_s += 1
        health.mark("io_error", "unreadable")
        health.mark("io_error", "no space left")
        assert await notifier.drain(60)
        assert ["unreadable", "no space left"] == [one.why for one in here.told.notices[1:]]
        assert here.clock.now() == here.told.notices[-1].at


async def test_a_condition_is_reported_again_until_it_is_repaired(tmp_path: Path) -> None:
    """Like a blocked story; after the repair reminders stop."""
    async with notifying(tmp_path) as (here, notifier):
        await here.journal.add_project(str(tmp_path), "shop", NOW)
        health = Health(str(tmp_path), here.services)
        lasting(here, health, "missing", "gone")
        assert await notifier.drain(60)
        here.clock.ahead_s += 3600
        notifier.configure(NotifySettings())
        await eventually(lambda: 2 == len(here.told.notices))
        first, again = here.told.notices
        assert ("blocked", "reminder", first.id) == (first.kind, again.kind, again.of)

        health.mark("ok")
        await eventually(lambda: {} == notifier.reminders())
        health.mark("invalid_rules", "auto is odd")
        assert await notifier.drain(60)
        assert [None] == list(notifier.reminders().values())


async def test_a_notice_lists_all_problems(tmp_path: Path) -> None:
    """A changed list makes another notice; a long list is cut."""
    async with notifying(tmp_path) as (here, notifier):
        health = Health(str(tmp_path), here.services)
        health.mark("invalid_rules", "auto is odd", "priority is odd")
        assert "auto is odd" == health.detail
        health.mark("invalid_rules", "auto is odd", "group is odd")
        health.mark("invalid_rules", *(f"k{number}" for number in range(14)))

        assert await notifier.drain(60)
        first, second, many = [notice.why for notice in here.told.notices]
        assert ("auto is odd; priority is odd", "auto is odd; group is odd") == (first, second)
        assert many is not None
        assert many.endswith("k9; and 4 more")


async def test_several_daemons_report_a_condition_once(tmp_path: Path) -> None:
    """After a recovery in between it is reported again; until then it is an open matter."""
    async with notifying(tmp_path) as (here, notifier):
        for _ in range(3):
            lasting(here, Health(str(tmp_path), here.services), "missing", "gone")
            assert await notifier.drain(60)
        assert ["gone"] == [notice.why for notice in here.told.notices]
        assert [here.told.notices[0].id] == list(notifier.reminders())

        lasting(here, Health(str(tmp_path), here.services), "missing", "another folder")
        Health(str(tmp_path), here.services).mark("ok")
        lasting(here, Health(str(tmp_path), here.services), "missing", "another folder")
        assert await notifier.drain(60)
        assert ["gone", "another folder", "another folder"] == [notice.why for notice in here.told.notices]
        assert 3 == len({notice.id for notice in here.told.notices})
        settle(notifier, str(tmp_path))
        assert await notifier.drain(60)
        assert {} == notifier.reminders()


async def test_a_fault_of_the_journal_is_not_reported_per_project(here: House, tmp_path: Path) -> None:
    """The machine reports it once; a project's own condition is still reported."""
    async with anyio.create_task_group() as tasks:
        health = Health(str(tmp_path), here.services)
        await fail(here)

        lasting(here, health, "io_error", "cannot record executor_exited")
        health.mark("missing", "the folder is gone")
        tasks.start_soon(
            here.services.notifier.run
        )  # only now: its writes would prove that the journal works

        assert await here.services.notifier.drain(60)
        assert ["the folder is gone"] == [notice.why for notice in here.told.notices]
        tasks.cancel_scope.cancel()


async def test_a_condition_has_its_start_time(here: House, tmp_path: Path) -> None:
    """However its message changes; there is none while all is well."""
    health = Health(str(tmp_path), here.services)
    assert health.since is None
    health.mark("missing", "gone")
    here.clock.ahead_s += 60
    health.mark("missing", "still gone")
    assert NOW == health.since

    health.mark("io_error", "unreadable")
    assert NOW + timedelta(seconds=60) == health.since
    health.mark("ok")
    assert health.since is None


async def test_the_start_time_of_a_condition_survives_a_restart(tmp_path: Path) -> None:
    """Another condition has its own start, and so has a fault of the machine."""
    async with notifying(tmp_path) as (here, notifier):
        lasting(here, Health(str(tmp_path), here.services), "missing", "gone")
        told = here.clock.now()
        assert await notifier.drain(60)
        here.clock.ahead_s += 3600

        same, other, third = (Health(str(tmp_path), here.services) for _ in range(3))
        same.mark("missing", "gone")
        assert told == same.since
        other.mark("io_error", "unreadable")
        assert here.clock.now() == other.since
        same.mark("ok")
        assert same.since is None

        await fail(here)
        here.clock.ahead_s += 1
        third.mark("io_error", "cannot record executor_exited")
        assert here.clock.now() == third.since


async def test_a_held_edit_is_reported_until_it_is_trusted_or_undone(tmp_path: Path) -> None:
    """Once per edit, across daemons; it is an open matter for a person."""
    root = tmp_path / "shop"
    (root / ".ai").mkdir(parents=True)
    settings = root / ".ai" / "handoffd.yaml"
    async with notifying(tmp_path) as (here, notifier):
        files = ProjectFiles(str(root), here.services.journal, here.clock)
        await files.refresh()
        await files.trust()
        for edit in ("auto: true", "auto: true\nexecutor: x"):
            settings.write_text(edit)
            await files.refresh()
            for health in (Health(str(root), here.services), Health(str(root), here.services)):
                health.mark_held(files)
                health.mark_held(files)
        assert await notifier.drain(60)
        assert ["auto", "auto, executor"] == [str(one.why).partition(": ")[2] for one in here.told.notices]
        assert f"handoffd trust {root}" == here.told.notices[0].action
        assert [here.told.notices[1].id] == list(notifier.reminders())

        settings.write_text("auto: true")  # an earlier text again is a new edit
        await files.refresh()
        Health(str(root), here.services).mark_held(files)
        assert await notifier.drain(60)
        assert 3 == len(here.told.notices)

        await files.trust()
        Health(str(root), here.services).mark_held(files)
        await eventually(lambda: {} == notifier.reminders())
