"""What is wrong with a project: which error stands for what, and that people are told once."""

from __future__ import annotations

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
from handoffd.project.files import ProjectFiles
from handoffd.project.reconciler import LASTING_S, Health
from handoffd.settings.notify import NotifySettings


def lasting(here: House, health: Health, condition: Condition, *details: str) -> None:
    """Mark a project, and once more when that has lasted."""
    health.mark(condition, *details)
    here.clock.ahead_s += LASTING_S
    health.mark(condition, *details)


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (InvalidFile((Problem(file=".ai/STATE.json", line=3, message="odd"),)), "invalid_state"),
        (Locked("in use by process 7"), "locked"),
        (StoreError("the project is gone", code=PROJECT_GONE), "missing"),
        (StoreError("no space left"), "io_error"),
    ],
)
async def test_an_error_stands_for_a_condition(tmp_path: Path, error: HandoffdError, condition: str) -> None:
    """With its own words as the detail."""
    async with house(tmp_path) as here:
        health = Health(str(tmp_path), here.services)

        health.mark_error(error)

        assert (condition, error.message) == (health.condition, health.detail)


async def test_people_are_told_once_of_what_is_wrong(tmp_path: Path) -> None:
    """The same again is no news, and neither is that all is well."""
    async with house(tmp_path) as here, anyio.create_task_group() as tasks:
        health = Health(str(tmp_path), here.services)
        tasks.start_soon(here.services.notifier.run)

        for _ in range(3):
            lasting(here, health, "io_error", "no space left")
        health.mark("ok")

        assert await here.services.notifier.drain(60)
        assert [("blocked", "no space left")] == [(notice.kind, notice.why) for notice in here.told.notices]
        tasks.cancel_scope.cancel()


async def test_what_is_over_within_a_minute_is_told_to_nobody(tmp_path: Path) -> None:
    """However often; what lasts is told whatever it turns into. Invalid rules are told at once."""
    async with house(tmp_path) as here, anyio.create_task_group() as tasks:
        health = Health(str(tmp_path), here.services)
        tasks.start_soon(here.services.notifier.run)
        for _ in range(3):
            health.mark("missing", "gone")
            here.clock.ahead_s += 60
            health.mark("missing", "gone")
            health.mark("ok")
            here.clock.ahead_s += 60
        health.mark("invalid_rules", "auto is odd")
        assert await here.services.notifier.drain(60)
        assert [("warning", "auto is odd")] == [(one.kind, one.why) for one in here.told.notices]

        health.mark("missing", "gone")
        here.clock.ahead_s += LASTING_S - 1
        health.mark("io_error", "unreadable")
        assert await here.services.notifier.drain(60)
        assert 1 == len(here.told.notices)
        here.clock.ahead_s += 1
        health.mark("io_error", "unreadable")
        health.mark("io_error", "no space left")
        assert await here.services.notifier.drain(60)
        assert ["unreadable", "no space left"] == [one.why for one in here.told.notices[1:]]
        assert here.clock.now() == here.told.notices[-1].at
        tasks.cancel_scope.cancel()


async def test_people_are_told_again_until_it_is_mended(tmp_path: Path) -> None:
    """As of a story that is blocked; of one that is mended nobody is reminded."""
    async with house(tmp_path) as here, anyio.create_task_group() as tasks:
        await here.journal.add_project(str(tmp_path), "shop", NOW)
        health, notifier = Health(str(tmp_path), here.services), here.services.notifier
        tasks.start_soon(notifier.run)

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
        tasks.cancel_scope.cancel()


async def test_people_are_told_of_all_that_is_wrong(tmp_path: Path) -> None:
    """In one notice, and in another one when that changes; of very much, how much more there is."""
    async with house(tmp_path) as here, anyio.create_task_group() as tasks:
        health = Health(str(tmp_path), here.services)
        tasks.start_soon(here.services.notifier.run)

        health.mark("invalid_rules", "auto is odd", "priority is odd")
        assert "auto is odd" == health.detail
        health.mark("invalid_rules", "auto is odd", "group is odd")
        health.mark("invalid_rules", *(f"k{number}" for number in range(14)))

        assert await here.services.notifier.drain(60)
        first, second, many = [notice.why for notice in here.told.notices]
        assert ("auto is odd; priority is odd", "auto is odd; group is odd") == (first, second)
        assert many is not None
        assert many.endswith("k9; and 4 more")
        tasks.cancel_scope.cancel()


async def test_people_are_told_once_of_what_stands_by_however_many_daemons(tmp_path: Path) -> None:
    """And again when it was over meanwhile, whoever noticed that; it is shown as something that waits."""
    async with house(tmp_path) as here, anyio.create_task_group() as tasks:
        notifier = here.services.notifier
        tasks.start_soon(notifier.run)
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
        tasks.cancel_scope.cancel()


async def test_what_is_wrong_with_the_journal_is_not_told_by_each_project(tmp_path: Path) -> None:
    """The machine tells of it, once for all; what is wrong with the project itself is told all the same."""
    async with house(tmp_path) as here, anyio.create_task_group() as tasks:
        health = Health(str(tmp_path), here.services)
        await fail(here)

        lasting(here, health, "io_error", "cannot record executor_exited")
        health.mark("missing", "the folder is gone")
        tasks.start_soon(here.services.notifier.run)  # only now: what it writes would show that all is well

        assert await here.services.notifier.drain(60)
        assert ["the folder is gone"] == [notice.why for notice in here.told.notices]
        tasks.cancel_scope.cancel()


async def test_since_when_it_is_wrong_is_known(tmp_path: Path) -> None:
    """From the first moment of a condition on, however its words change; never while all is well."""
    async with house(tmp_path) as here:
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


async def test_since_when_it_is_wrong_outlives_the_daemon(tmp_path: Path) -> None:
    """A restart is not when the folder vanished; another trouble is another matter."""
    async with house(tmp_path) as here, anyio.create_task_group() as tasks:
        notifier = here.services.notifier
        tasks.start_soon(notifier.run)
        lasting(here, Health(str(tmp_path), here.services), "missing", "gone")
        told = here.clock.now()
        assert await notifier.drain(60)
        here.clock.ahead_s += 3600

        same, other = (Health(str(tmp_path), here.services) for _ in range(2))
        same.mark("missing", "gone")
        assert told == same.since
        other.mark("io_error", "unreadable")
        assert told + timedelta(hours=1) == other.since
        same.mark("ok")
        assert same.since is None
        tasks.cancel_scope.cancel()


async def test_since_when_is_not_that_of_another_trouble(tmp_path: Path) -> None:
    """What the machine tells of itself is not what people were told of the project last."""
    async with house(tmp_path) as here, anyio.create_task_group() as tasks:
        tasks.start_soon(here.services.notifier.run)
        health = Health(str(tmp_path), here.services)
        lasting(here, health, "missing", "gone")
        assert await here.services.notifier.drain(60)
        here.clock.ahead_s += 3600
        await fail(here)

        health.mark("io_error", "cannot record executor_exited")

        assert here.clock.now() == health.since
        tasks.cancel_scope.cancel()


async def test_an_edit_that_waits_for_trust_is_told_of_until_it_is_trusted_or_gone(tmp_path: Path) -> None:
    """Once for each edit, also by the next daemon; it counts as something that waits for a person."""
    root = tmp_path / "shop"
    (root / ".ai").mkdir(parents=True)
    settings = root / ".ai" / "handoffd.yaml"
    async with house(tmp_path) as here, anyio.create_task_group() as tasks:
        notifier = here.services.notifier
        tasks.start_soon(notifier.run)
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

        settings.write_text("auto: true")  # as it was once: news
        await files.refresh()
        Health(str(root), here.services).mark_held(files)
        assert await notifier.drain(60)
        assert 3 == len(here.told.notices)

        await files.trust()
        Health(str(root), here.services).mark_held(files)
        await eventually(lambda: {} == notifier.reminders())
        tasks.cancel_scope.cancel()
