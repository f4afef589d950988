"""What is wrong with the machine: told once, tried again, and over when it is over."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.support.eventually import eventually
from tests.support.house import House, bid, house, make_project, unwritable
from tests.unit.capacity.test_descriptors import room_for
from tests.unit.capacity.test_room import room_of

from handoffd.capacity.admission import Facts
from handoffd.capacity.machine import (
    CALM_S,
    OUT_OF_MEMORY,
    OVERLOADED,
    SHORT_S,
    Machine,
    descriptor_shortage,
    shortage_in,
)
from handoffd.capacity.slots import Slots
from handoffd.errors import HandoffdError, StoreError
from handoffd.files.errors import DISK_FULL, storage_error
from handoffd.settings.model import ExecuteSettings, SchedulingSettings
from handoffd.track.reach import Reach
from handoffd.track.services import Services


class Recoveries:
    """Counts how often everybody was told that a trouble is over."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> None:
        """Count one more."""
        self.count += 1


def machine_of(services: Services, recoveries: Recoveries) -> Machine:
    """Return the look after the machine, with a way of its own to the state directory."""
    probe = Reach(str(services.settings.state_dir), anyio.CapacityLimiter(1))
    return Machine(services, recoveries, probe)


async def fail(here: House) -> None:
    """Have a write fail."""
    with unwritable(here, "projects"), pytest.raises(StoreError):
        await here.journal.add_project("/srv/shop", "shop", here.clock.now())


async def test_a_journal_is_tried_again_until_it_takes_something(tmp_path: Path) -> None:
    """Not at every look, and whoever waits is told."""
    async with house(tmp_path) as here:
        recoveries = Recoveries()
        machine = machine_of(here.services, recoveries)
        await fail(here)

        await machine.look()
        assert machine.trouble is not None
        assert machine.trouble.startswith("the journal cannot be written (cannot add /srv/shop")

        here.clock.ahead_s += 5
        await machine.look()
        assert 1 == recoveries.count
        assert machine.trouble is None


@pytest.mark.parametrize("jump_s", [86_400.0, -86_400.0])
async def test_a_jump_of_the_wall_clock_does_not_move_the_next_try(tmp_path: Path, jump_s: float) -> None:
    """Neither is it due at once, nor not before tomorrow."""
    async with house(tmp_path) as here:
        machine = machine_of(here.services, Recoveries())
        await fail(here)
        here.clock.jumped_s = jump_s

        await machine.look()
        assert machine.trouble is not None

        here.clock.ahead_s += 5
        await machine.look()
        assert machine.trouble is None


async def test_what_comes_and_goes_is_told_once(tmp_path: Path) -> None:
    """Until it has been well for a while."""
    async with house(tmp_path) as here, anyio.create_task_group() as tasks:
        machine = machine_of(here.services, Recoveries())
        for wait_s in (5, 5, CALM_S + 5, 5):
            await fail(here)
            await machine.look()
            here.clock.ahead_s += wait_s
            await machine.look()
            assert machine.trouble is None
        tasks.start_soon(here.services.notifier.run)  # only now: what it writes would show that all is well

        await eventually(lambda: len(here.told.notices) == 2)
        assert {str(tmp_path / "state")} == {notice.project for notice in here.told.notices}
        tasks.cancel_scope.cancel()


async def test_descriptors_that_are_short_are_a_trouble_and_a_shortage(tmp_path: Path) -> None:
    """For as long as they are."""
    async with house(tmp_path) as here:
        machine = machine_of(here.services, Recoveries())
        with room_for(3):
            await machine.look()
            assert "the daemon has reached its limit of open files" == machine.trouble
            shortage = descriptor_shortage(here.services)
            assert shortage is not None
            assert machine.trouble == shortage.why
        await machine.look()
        assert descriptor_shortage(here.services) is None
        assert machine.trouble is None


async def test_memory_that_is_short_for_long_is_a_trouble(tmp_path: Path) -> None:
    """For a while it is usual; then people are told, as somebody else may have it."""
    wanted = {"min_free_memory_mb": 10**9}
    async with house(tmp_path, scheduling=wanted) as here, anyio.create_task_group() as tasks:
        machine, slots = machine_of(here.services, Recoveries()), here.services.slots
        slots.ask(bid(), lambda: None)
        for ahead_s, trouble in ((SHORT_S - 60, None), (60, OUT_OF_MEMORY)):
            here.clock.ahead_s += ahead_s
            await machine.look()
            assert trouble == machine.trouble
        tasks.start_soon(here.services.notifier.run)
        await eventually(lambda: len(here.told.notices) == 1)

        slots.configure(1, SchedulingSettings(min_free_memory_mb=0))
        await machine.look()
        assert machine.trouble is None
        tasks.cancel_scope.cancel()


async def test_a_load_that_is_high_for_long_is_a_trouble(tmp_path: Path) -> None:
    """A limit that keeps everybody waiting for that long is met by more than agents."""
    limited = SchedulingSettings(min_free_memory_mb=0, max_load_per_core=2)
    async with house(tmp_path) as here:
        slots = Slots(1, limited, here.clock, lambda: Facts(load_per_core=9))
        machine = machine_of(replace(here.services, slots=slots), Recoveries())
        slots.ask(bid(), lambda: None)
        for ahead_s, trouble in ((SHORT_S - 60, None), (60, OVERLOADED)):
            here.clock.ahead_s += ahead_s
            await machine.look()
            assert trouble == machine.trouble

        slots.configure(1, SchedulingSettings(min_free_memory_mb=0))
        await machine.look()
        assert machine.trouble is None


async def test_a_state_disk_without_room_is_a_trouble_told_once(tmp_path: Path) -> None:
    """By the machine or by the first project that waits for room, whoever meets it first."""
    async with house(tmp_path, min_free_mb=10**9) as here, anyio.create_task_group() as tasks:
        recoveries = Recoveries()
        machine = machine_of(here.services, recoveries)
        tasks.start_soon(here.services.notifier.run)

        await machine.look()
        assert machine.trouble is not None
        assert f"MiB are free at {here.services.settings.state_dir}" in machine.trouble
        assert await room_of(make_project(tmp_path), here).shortage() is not None
        await eventually(lambda: here.told.notices)

        here.services.settings = here.services.settings.model_copy(
            update={"execute": ExecuteSettings(min_free_mb=1)}
        )
        await machine.look()
        assert machine.trouble is None
        assert (1, 1) == (recoveries.count, len(here.told.notices))
        tasks.cancel_scope.cancel()


async def test_a_state_disk_that_does_not_answer_is_told_of_beside_projects_that_hang(tmp_path: Path) -> None:
    """Their turns are not its own; and no project tells of it."""
    async with house(tmp_path, min_free_mb=1) as here, anyio.create_task_group() as tasks:
        here.services.asking.total_tokens = 1
        await here.services.asking.acquire_on_behalf_of("a project whose folder hangs")
        machine = machine_of(here.services, Recoveries())
        tasks.start_soon(here.services.notifier.run)
        with anyio.fail_after(30):
            await machine.look()
        assert None is machine.trouble

        os.rename(here.services.settings.state_dir, tmp_path / "away")
        await machine.look()
        assert "see how much room there is" in str(machine.trouble)
        os.rename(tmp_path / "away", here.services.settings.state_dir)
        await eventually(lambda: len(here.told.notices) == 1)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(("number", "passes"), [(28, True), (24, True), (30, True), (13, False)])
def test_a_preparation_that_fails_for_want_of_room_asks_nobody(number: int, passes: bool) -> None:
    """Everything else is for a person."""
    error = storage_error("write", "/srv/state/prompt.md", OSError(number, "why"))
    error.__cause__ = OSError(number, "why")

    assert passes == (shortage_in(error) is not None)


def test_a_full_disk_says_what_to_type() -> None:
    """Its own hint, if there is one."""
    shortage = shortage_in(HandoffdError("full", code=DISK_FULL))
    assert shortage is not None
    assert ("full", "df -h") == (shortage.why, shortage.action)
