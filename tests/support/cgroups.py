"""Control groups of a test's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.eventually import eventually_sync

from handoffd.execute.runner import cgroup

_MEMORY_LIMITS = (
    (Path("/sys/fs/cgroup"), "memory.max"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
)


@contextmanager
def delegated() -> Iterator[Path]:
    """Make a control group to be divided, where this account may; else the test is skipped."""
    ours = cgroup.own()
    if ours is None:
        pytest.skip("there is no cgroup v2 here that this account may divide")
    place = Path(ours) / f"handoffd-test-{os.getpid()}"
    try:
        place.mkdir()
    except OSError as error:
        pytest.skip(f"making a control group is not allowed here: {error}")
    try:
        yield place
    finally:
        (place / "cgroup.kill").write_text("1")  # with all groups below it
        eventually_sync(lambda: not members(place, *groups_in(place)))
        for folder in (*groups_in(place), place):
            folder.rmdir()


@contextmanager
def with_controllers() -> Iterator[tuple[Path, list[str]]]:
    """Make a control group to be divided that has controllers, and say which; else the test is skipped."""
    ours = cgroup.own()
    there = (Path(ours) / "cgroup.controllers").read_text().split() if ours is not None else []
    before = (Path(ours) / "cgroup.subtree_control").read_text().split() if ours is not None else []
    if ours is None or not there:
        pytest.skip("there is no controller in cgroup v2 here that this account may use")
    lacking = [name for name in there if name not in before]
    try:
        for name in lacking:
            (Path(ours) / "cgroup.subtree_control").write_text(f"+{name}")
    except OSError as error:
        pytest.skip(f"using controllers is not allowed here: {error}")
    try:
        with delegated() as place:
            yield place, there
    finally:
        for name in lacking:
            (Path(ours) / "cgroup.subtree_control").write_text(f"-{name}")


def groups_in(place: Path) -> list[Path]:
    """Return the control groups in `place`."""
    return [folder for folder in place.iterdir() if folder.is_dir()]


def members(*folders: Path) -> set[int]:
    """Return all processes in these control groups."""
    return {int(pid) for folder in folders for pid in (folder / "cgroup.procs").read_text().split()}


@contextmanager
def little_memory(mib: int) -> Iterator[Path]:
    """Make a control group with little memory, of either version; else the test is skipped.

    Yields the file to which a process writes 0 to get into the group.
    """
    place = next(filter(None, (_limited(*place, mib) for place in _MEMORY_LIMITS)), None)
    if place is None:
        pytest.skip("there is no control group here in which this account may limit memory")
    try:
        yield place / "cgroup.procs"
    finally:
        eventually_sync(lambda: not members(place))
        place.rmdir()


def _limited(parent: Path, limit: str, mib: int) -> Path | None:
    place = parent / f"handoffd-test-memory-{os.getpid()}"
    if not (parent / "cgroup.procs").exists():
        return None
    try:
        place.mkdir()
    except OSError:
        return None
    try:
        (place / limit).write_text(str(mib * 1024 * 1024))
    except OSError:
        place.rmdir()
        return None
    return place
