"""Faults of the machine: reported once, tried again, and over when their cause is gone."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import pytest
from msgspec.structs import replace
from tests.support.eventually import eventually
from tests.support.house import (
    INITIALISED,
    STARTED,
    House,
    at,
    bid,
    house,
    make_project,
    supervised,
    unwritable,
)

from handoffd.capacity.admission import Facts
from handoffd.capacity.machine import (
    CALM_S,
    HEADROOM,
    OUT_OF_MEMORY,
    OVERLOADED,
    SHORT_S,
    Descriptors,
    Machine,
    Room,
    Space,
    at_limit,
    descriptor_shortage,
    first_short,
    passes_by_itself,
    relieved,
    shortage_in,
)
from handoffd.capacity.slots import Slots
from handoffd.engine.events import Noted
from handoffd.errors import HandoffdError, StoreError
from handoffd.files.errors import DISK_FULL, storage_error
from handoffd.settings.model import ExecuteSettings, SchedulingSettings
from handoffd.track.reach import Reach
from handoffd.track.services import Services


def machine_of(services: Services, recoveries: list[str] | None = None) -> Machine:
    """Return the checks of the machine, with their own probe of the state directory."""

    async def recovered() -> None:
        if recoveries is not None:
            recoveries.append("recovered")

    probe = Reach(str(services.settings.state_dir), anyio.CapacityLimiter(1))
    return Machine(services, recovered, probe)


async def fail(here: House) -> None:
    """Make a write fail."""
    with unwritable(here, "projects"), pytest.raises(StoreError):
        await here.journal.add_project("/srv/shop", "shop", here.clock.now())


@asynccontextmanager
async def telling(here: House) -> AsyncIterator[None]:
    """Deliver notices meanwhile."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(here.services.notifier.run)
        yield
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("jump_s", [0, 86_400.0, -86_400.0])
async def test_an_unwritable_journal_is_tried_again(here: House, jump_s: float) -> None:
    """Not at every look, whatever the wall clock; waiting parts are woken after the recovery."""
    recoveries = list[str]()
    machine = machine_of(here.services, recoveries)
    await fail(here)
    here.clock.jumped_s = jump_s

    await machine.look()
    assert str(machine.trouble).startswith("the journal cannot be written (cannot add /srv/shop")

    here.clock.ahead_s += 5
    await machine.look()
    assert (["recovered"], None) == (recoveries, machine.trouble)


async def test_the_first_look_at_an_outage_reports_it(here: House) -> None:
    """Even if the journal takes the probe: it needs less room than what was refused."""
    machine = machine_of(here.services)
    here.clock.ahead_s += 60
    await machine.look()
    await fail(here)

    here.clock.ahead_s += 2
    await machine.look()

    assert "cannot be written" in str(machine.trouble)


async def test_a_recurring_fault_is_reported_once(here: House, tmp_path: Path) -> None:
    """Again only after a calm while."""
    machine = machine_of(here.services)
    for wait_s in (5, 5, CALM_S + 5, 5):
        await fail(here)
        await machine.look()
        here.clock.ahead_s += wait_s
        await machine.look()
        assert machine.trouble is None
    async with telling(here):  # only now: its writes would prove that the journal works
        assert await here.services.notifier.drain(60)
    assert [str(tmp_path / "state")] * 2 == [notice.project for notice in here.told.notices]


async def test_a_lack_of_descriptors_is_a_fault_and_a_shortage(here: House) -> None:
    """As long as it lasts."""
    machine = machine_of(here.services)
    with room_for(3):
        await machine.look()
        shortage = descriptor_shortage(here.services)
        assert shortage is not None
        assert "the daemon has reached its limit of open files" == machine.trouble == shortage.why
    await machine.look()
    assert descriptor_shortage(here.services) is None
    assert machine.trouble is None


@pytest.mark.parametrize(
    ("limit", "found", "expected"),
    [
        ({"min_free_memory_mb": 512}, Facts(free_mb=1), OUT_OF_MEMORY),
        ({"min_free_memory_mb": 0, "max_load_per_core": 2}, Facts(load_per_core=9), OVERLOADED),
    ],
)
async def test_a_lasting_lack_of_memory_or_high_load_is_a_fault(
    here: House, limit: dict[str, int], found: Facts, expected: str
) -> None:
    """A short one is usual; after that a notice reports it, because not only agents may be the cause."""
    slots = Slots(1, SchedulingSettings.model_validate(limit), here.clock, lambda: found)
    machine = machine_of(replace(here.services, slots=slots))
    slots.ask(bid(), lambda: None)
    for ahead_s, trouble in ((SHORT_S - 60, None), (60, expected)):
        here.clock.ahead_s += ahead_s
        await machine.look()
        assert trouble == machine.trouble
    async with telling(here):
        await eventually(lambda: len(here.told.notices) == 1)

    slots.configure(1, SchedulingSettings(min_free_memory_mb=0))
    await machine.look()
    assert machine.trouble is None


async def test_a_full_state_disk_is_reported_once(root: str, tmp_path: Path) -> None:
    """By the machine or by the first project that waits for room."""
    async with house(tmp_path, min_free_mb=10**9) as here, telling(here):
        recoveries = list[str]()
        machine = machine_of(here.services, recoveries)

        await machine.look()
        assert f"MiB are free at {here.services.settings.state_dir}" in str(machine.trouble)
        assert await room_of(root, here).shortage() is not None
        await eventually(lambda: here.told.notices)

        enough = {"execute": ExecuteSettings(min_free_mb=1)}
        here.services.settings = here.services.settings.model_copy(update=enough)
        await machine.look()
        assert (None, 1, 1) == (machine.trouble, len(recoveries), len(here.told.notices))


async def test_a_silent_state_disk_is_reported_beside_hanging_projects(tmp_path: Path) -> None:
    """The probe has its own thread; no project reports the disk."""
    async with house(tmp_path, min_free_mb=1) as here, telling(here):
        here.services.asking.total_tokens = 1
        await here.services.asking.acquire_on_behalf_of("a project whose folder hangs")
        machine = machine_of(here.services)
        with anyio.fail_after(30):
            await machine.look()
        assert None is machine.trouble

        os.rename(here.services.settings.state_dir, tmp_path / "away")
        await machine.look()
        assert "see how much room there is" in str(machine.trouble)
        os.rename(tmp_path / "away", here.services.settings.state_dir)
        await eventually(lambda: len(here.told.notices) == 1)


@pytest.mark.parametrize(("number", "passes"), [(28, True), (24, True), (30, True), (13, False)])
def test_a_preparation_that_fails_for_lack_of_room_needs_no_person(number: int, passes: bool) -> None:
    """Every other failure does."""
    error = storage_error("write", "/srv/state/prompt.md", OSError(number, "why"))
    error.__cause__ = OSError(number, "why")

    assert passes == (shortage_in(error) is not None)


def test_a_full_disk_has_a_next_command() -> None:
    """The error's own hint, if there is one."""
    shortage = shortage_in(HandoffdError("full", code=DISK_FULL))
    assert shortage is not None
    assert ("full", "df -h") == (shortage.why, shortage.action)


# --- spare descriptors ----------------------------------------------------------------------------
@contextmanager
def room_for(count: int) -> Iterator[None]:
    """Let this process open `count` more files, filling all lower numbers."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = os.open(os.devnull, os.O_RDONLY)
    os.close(last)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, before[1]))
    fill: list[int] = []
    try:
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        while not fill or fill[-1] <= highest:
            fill.append(os.open(os.devnull, os.O_RDONLY))
        resource.setrlimit(resource.RLIMIT_NOFILE, (fill[-1] + 1 + count, before[1]))
        yield
    finally:
        for descriptor in fill:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_at_the_limit_the_reserve_is_released_and_reopened() -> None:
    """The released descriptors alone do not count as enough."""
    descriptors = Descriptors(HEADROOM)
    assert (False, HEADROOM) == (descriptors.short(), descriptors.held)
    with room_for(HEADROOM - 1):
        assert (True, 0) == (descriptors.short(), descriptors.held)
        assert descriptors.short()
        os.close(os.open(os.devnull, os.O_RDONLY))  # the reserve leaves room for others
    assert (False, HEADROOM) == (descriptors.short(), descriptors.held)
    descriptors.close()


@pytest.mark.parametrize(
    ("numbers", "limit", "passing"),
    [
        ((errno.EMFILE, errno.ENFILE), True, True),
        ((errno.ENOSPC, errno.EDQUOT, errno.EROFS), False, True),
        ((errno.ENOENT,), False, False),
    ],
)
def test_an_error_is_known_by_its_cause(numbers: tuple[int, ...], limit: bool, passing: bool) -> None:
    """However it was worded."""
    for number in numbers:
        error = HandoffdError("no process could be started")
        error.__cause__ = OSError(number, "why")
        assert (limit, passing) == (at_limit(error), passes_by_itself(error))


# --- disk space for one more executor -------------------------------------------------------------
MIB = 1024 * 1024
ENDLESS_MB = 10**9
"""A petabyte: more than any disk has free."""

T = TypeVar("T")


class AtOnce(Reach):
    """Gives a folder no time to answer."""

    async def asked(self, look: Callable[[], T], limit_s: float = 0) -> T:
        """Return what `look` finds, if it takes no time."""
        return await super().asked(look, limit_s)


def room_of(root: str, here: House) -> Room:
    """Return the room for a project's attempts."""
    return Room(root, here.services, Reach(root, here.services.asking))


@pytest.mark.parametrize(
    ("free", "short"),
    [((10, 10), None), ((10, 9), "/b"), ((9, 10), "/a"), ((0, 0), "/a"), ((10**6, 0), "/b")],
)
def test_one_short_disk_is_enough_to_wait(free: tuple[int, int], short: str | None) -> None:
    """The first one is named; exactly the wanted room is enough."""
    spaces = [Space("/a", 1, free[0] * MIB), Space("/b", 2, free[1] * MIB)]

    found = first_short(spaces, 10)

    assert short == (found and found.folder)


@pytest.mark.parametrize(("free_files", "lacks"), [(None, False), (1000, False), (999, True), (0, True)])
def test_a_disk_without_room_for_more_files_is_full(free_files: int | None, lacks: bool) -> None:
    """Whatever its free bytes; an unlimited number of files is always enough."""
    space = Space("/a", 1, 10 * MIB, free_files)

    assert lacks == ("more files (inodes) fit on the disk of /a" in (space.lacks(10) or ""))
    assert (space if lacks else None) == first_short([space], 10)


def test_a_disk_near_the_limit_is_reported_once() -> None:
    """It recovers only at twice the wanted room."""
    free = (10 * MIB, 20 * MIB - 1, 20 * MIB)
    spaces = [Space(f"/{number}", number, room) for number, room in enumerate(free)]

    assert frozenset({2}) == relieved(spaces, 10)


async def test_room_is_read_from_both_disks(root: str, tmp_path: Path) -> None:
    """A shortage has the place, the amounts and the next command."""
    async with house(tmp_path, min_free_mb=1) as here:
        assert None is await room_of(root, here).shortage()

    base = tmp_path / "it's short"
    base.mkdir()
    async with house(base, min_free_mb=ENDLESS_MB) as here:
        found = await room_of(make_project(base), here).shortage()

        assert found is not None
        assert f" MiB are free at {base}/state, execute.min_free_mb asks for {ENDLESS_MB}" in found.why
        assert f"df -h '{tmp_path}/it'\"'\"'s short/state'" == found.action


async def test_a_limit_of_0_reads_no_disk(tmp_path: Path) -> None:
    """Not even a missing one."""
    async with house(tmp_path, min_free_mb=0) as here:
        assert None is await room_of(str(tmp_path / "nowhere"), here).shortage()


async def test_a_silent_disk_has_no_room(root: str, tmp_path: Path) -> None:
    """It may hang for hours; the shortage has a command to check it."""
    async with house(tmp_path, min_free_mb=1) as here:
        silent = await Room(root, here.services, AtOnce(root, here.services.asking)).shortage()
        gone = await room_of(str(tmp_path / "nowhere"), here).shortage()

        assert silent is not None
        assert (f"stat {root}", True) == (silent.action, "does not answer" in silent.why)
        assert gone is not None
        assert "nowhere: No such file or directory" in gone.why


async def test_a_track_waits_for_room_with_one_notice(tmp_path: Path) -> None:
    """However often its turn comes: nothing starts, and it holds no slot."""
    short = {"agent": "touch started", "min_free_mb": ENDLESS_MB}
    async with supervised(tmp_path, INITIALISED, STARTED, **short) as (here, roster, root):  # type: ignore[arg-type]
        for _ in range(3):
            await roster.poll()
        await roster.give(root, Noted(text="answered after all of these turns"))
        track = (await roster.view(root)).tracks[0]

        assert "pending" == track.status
        assert str(track.waits_for).startswith("room on the disk: ")
        assert f"df -h {here.services.settings.state_dir}" == track.next_command
        assert 0 == here.services.slots.in_use
        [notice] = await eventually(lambda: here.told.notices)
        told = "a disk is almost full; nothing is dispatched onto it until there is room, executors go on"
        assert (told, track.next_command) == (notice.text, notice.action)
        assert 1 == len(here.services.told_of_disks)
        assert not at(root, "started").exists()
