"""Whether there is room for one more executor: decided from numbers, looked up on real disks, told once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from tests.support.eventually import eventually
from tests.support.house import House, at, daemon, house, make_project

from handoffd.capacity.machine import Room, Space, first_short, relieved
from handoffd.engine.events import Initialised, Noted, Started
from handoffd.track.reach import Reach

MIB = 1024 * 1024
ENDLESS_MB = 10**9
"""A petabyte: more than is free anywhere."""

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
def test_one_disk_with_too_little_room_is_enough_to_wait(free: tuple[int, int], short: str | None) -> None:
    """The first such one is named; exactly what is asked for is enough."""
    spaces = [Space("/a", 1, free[0] * MIB), Space("/b", 2, free[1] * MIB)]

    found = first_short(spaces, 10)

    assert short == (found and found.folder)


@pytest.mark.parametrize(("free_files", "lacks"), [(None, False), (1000, False), (999, True), (0, True)])
def test_a_disk_without_room_for_more_files_is_full(free_files: int | None, lacks: bool) -> None:
    """However many bytes there are; where their number is not limited there are always enough."""
    space = Space("/a", 1, 10 * MIB, free_files)

    assert lacks == ("more files (inodes) fit on the disk of /a" in (space.lacks(10) or ""))
    assert (space if lacks else None) == first_short([space], 10)


def test_a_disk_that_hovers_about_the_limit_is_told_of_once() -> None:
    """Only after twice the room that is asked for a shortage is news again."""
    spaces = [Space("/a", 1, 10 * MIB), Space("/b", 2, 20 * MIB - 1), Space("/c", 3, 20 * MIB)]

    assert frozenset({3}) == relieved(spaces, 10)


async def test_room_is_what_the_kernel_says_of_both_disks(tmp_path: Path) -> None:
    """None is missing while there is some; else it is told where, how much, and what to type."""
    async with house(tmp_path, min_free_mb=1) as here:
        assert None is await room_of(make_project(tmp_path), here).shortage()

    base = tmp_path / "it's short"
    base.mkdir()
    async with house(base, min_free_mb=ENDLESS_MB) as here:
        found = await room_of(make_project(base), here).shortage()

        assert found is not None
        assert f" MiB are free at {base}/state, execute.min_free_mb asks for {ENDLESS_MB}" in found.why
        assert f"df -h '{tmp_path}/it'\"'\"'s short/state'" == found.action


async def test_a_limit_of_nothing_looks_at_no_disk(tmp_path: Path) -> None:
    """Not even one that is not there."""
    async with house(tmp_path, min_free_mb=0) as here:
        assert None is await room_of(str(tmp_path / "nowhere"), here).shortage()


async def test_a_disk_that_does_not_answer_has_no_room(tmp_path: Path) -> None:
    """It may hang for hours; whoever waits is told what to look at."""
    async with house(tmp_path, min_free_mb=1) as here:
        root = make_project(tmp_path)

        silent = await Room(root, here.services, AtOnce(root, here.services.asking)).shortage()
        gone = await room_of(str(tmp_path / "nowhere"), here).shortage()

        assert silent is not None
        assert (f"stat {root}", True) == (silent.action, "does not answer" in silent.why)
        assert gone is not None
        assert "nowhere: No such file or directory" in gone.why


async def test_a_track_waits_for_room_and_people_are_told_once(tmp_path: Path) -> None:
    """However often it is reminded of its turn: nothing starts, no slot is held, one notice goes out."""
    async with house(tmp_path, "touch started", min_free_mb=ENDLESS_MB) as here, daemon(here) as roster:
        root = make_project(tmp_path)
        await roster.add(root)
        await roster.give(root, Initialised(project="shop"))
        await roster.give(root, Started(story="US-001"))
        for _ in range(3):
            await roster.poll()
        await roster.give(root, Noted(text="answered after all of these turns"))
        track = (await roster.view(root)).tracks[0]

        assert "pending" == track.status
        assert track.waits_for is not None
        assert track.waits_for.startswith("room on the disk: ")
        assert f"df -h {here.services.settings.state_dir}" == track.next_command
        assert 0 == here.services.slots.in_use
        told = await eventually(lambda: here.told.notices)
        assert [
            "a disk is almost full; nothing is dispatched onto it until there is room, executors go on"
        ] == [notice.text for notice in told]
        assert track.next_command == told[0].action
        assert 1 == len(here.services.told_of_disks)
        assert not at(root, "started").exists()
