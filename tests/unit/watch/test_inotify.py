"""The parts of the inotify backend: the kernel's calls, the pace of hints, the table of watches."""

from __future__ import annotations

import errno
import os
import struct
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.eventually import eventually

from handoffd.watch.inotify_backend import (
    BATCH_BYTES,
    IN_CREATE,
    IN_IGNORED,
    IN_ISDIR,
    IN_MOVED_TO,
    IN_Q_OVERFLOW,
    Event,
    Inotify,
    Pace,
    WatchTable,
    parse_events,
)

NAMES = st.binary(max_size=255).map(lambda name: name.replace(b"\0", b"").replace(b"/", b""))
EVENTS = st.builds(Event, st.integers(-1, 2**31 - 1), st.integers(0, 2**32 - 1), NAMES)
OVERFLOW = Event(-1, IN_Q_OVERFLOW, b"")


def packed(event: Event) -> bytes:
    """Return an event as the kernel writes it: the name padded with zeros."""
    length = 0 if not event.name else (len(event.name) // 16 + 1) * 16
    return struct.pack("=iIII", event.watch, event.mask, 0, length) + event.name.ljust(length, b"\0")


@given(events=st.lists(EVENTS))
def test_events_are_read_as_the_kernel_writes_them(events: list[Event]) -> None:
    """Any number of them in one read, with names of any bytes."""
    events = [*events, OVERFLOW]
    assert events == list(parse_events(b"".join(map(packed, events))))


@pytest.fixture
def kernel() -> Iterator[Inotify]:
    """One instance."""
    made = Inotify()
    yield made
    made.close()


def test_real_events(kernel: Inotify, tmp_path: Path) -> None:
    """With the number of their watch, and names that are not UTF-8."""
    watch = kernel.add(str(tmp_path), IN_CREATE | IN_MOVED_TO)
    assert b"" == kernel.read()

    strange = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(strange)
    os.rename(strange, tmp_path / "HANDOFF.md")

    assert [
        Event(watch, IN_CREATE | IN_ISDIR, b"\xff"),
        Event(watch, IN_MOVED_TO | IN_ISDIR, b"HANDOFF.md"),
    ] == list(parse_events(kernel.read()))


def test_one_folder_is_one_watch(kernel: Inotify, tmp_path: Path) -> None:
    """By whatever name it is reached."""
    assert kernel.add(str(tmp_path), IN_CREATE) == kernel.add(f"{tmp_path}/.", IN_CREATE)


def test_the_number_of_a_watch_that_was_given_back_is_not_used_again(kernel: Inotify, tmp_path: Path) -> None:
    """Events that were queued before still come, under the old number, and then the end."""
    first = kernel.add(str(tmp_path), IN_CREATE)
    (tmp_path / "a").touch()
    kernel.remove(first)
    second = kernel.add(str(tmp_path), IN_CREATE)

    assert first != second
    assert [Event(first, IN_CREATE, b"a"), Event(first, IN_IGNORED, b"")] == list(parse_events(kernel.read()))
    kernel.remove(first)  # harmless


def test_a_read_is_bounded(kernel: Inotify, tmp_path: Path) -> None:
    """However much there is, it comes in pieces."""
    watch = kernel.add(str(tmp_path), IN_CREATE)
    count = BATCH_BYTES // 32 + 1
    for number in range(count):
        (tmp_path / f"{number:05}").touch()

    pieces = list(iter(kernel.read, b""))

    assert len(pieces) == 2
    assert max(map(len, pieces)) <= BATCH_BYTES
    assert [Event(watch, IN_CREATE, b"%05d" % number) for number in range(count)] == list(
        parse_events(b"".join(pieces))
    )


def test_a_folder_that_cannot_be_watched_is_an_error(kernel: Inotify, tmp_path: Path) -> None:
    """With the kernel's number for it."""
    with pytest.raises(FileNotFoundError):
        kernel.add(str(tmp_path / "missing"), IN_CREATE)


def test_a_closed_instance_watches_nothing_more(tmp_path: Path) -> None:
    """Its descriptor may be another file's by then; closing it again is harmless."""
    kernel = Inotify()
    watch = kernel.add(str(tmp_path), IN_CREATE)
    kernel.close()
    kernel.close()
    others = os.pipe()
    try:
        with pytest.raises(OSError, match="descriptor") as caught:
            kernel.add(str(tmp_path), IN_CREATE)
        kernel.remove(watch)
    finally:
        for descriptor in others:
            os.close(descriptor)

    assert errno.EBADF == caught.value.errno


# --- the pace -----------------------------------------------------------------------------------------
HOURS = 3600.0
AT_ONCE = 0.001


@asynccontextmanager
async def paced(rest_s: float) -> AsyncIterator[tuple[Pace, Counter[str]]]:
    """Run a pace that counts what it delivers."""
    pace, got = Pace(rest_s), Counter[str]()

    def take(roots: Iterable[str]) -> None:
        got.update(roots)

    async with anyio.create_task_group() as group:
        group.start_soon(pace.run, take)
        await anyio.wait_all_tasks_blocked()
        yield pace, got
        group.cancel_scope.cancel()


async def test_the_first_hint_is_delivered_before_another_task_has_a_turn() -> None:
    """Also the first of another project, while one rests."""
    async with paced(HOURS) as (pace, got):
        pace.hint(["/a"])
        assert {"/a": 1} == got
        pace.hint(["/a", "/b"])
        assert {"/a": 1, "/b": 1} == got


async def test_further_hints_become_one() -> None:
    """It is not lost, and comes once."""
    async with paced(AT_ONCE) as (pace, got):
        for _ in range(100):
            pace.hint(["/a"])
        pace.hint(["/b"])
        assert {"/a": 1, "/b": 1} == got
        await eventually(lambda: 2 == got["/a"])
        await eventually(lambda: not pace._told)

    assert {"/a": 2, "/b": 1} == got


async def test_after_a_rest_the_next_hint_is_a_first_one_again() -> None:
    """Delivered at once."""
    async with paced(AT_ONCE) as (pace, got):
        pace.hint(["/a"])
        await eventually(lambda: not pace._told and not pace._wake.is_set())  # without hints no ticks
        pace.hint(["/a"])
        assert {"/a": 2} == got


async def test_what_can_wait_waits_for_a_whole_rest() -> None:
    """Also when a tick is just due; it keeps no other hint back."""
    async with paced(HOURS) as (pace, got):
        pace.hint_later(["/a"])
        pace.hint(["/b"])
        assert {"/b": 1} == got
        pace.hint(["/a"])
        assert {"/a": 1, "/b": 1} == got


async def test_what_can_wait_comes_once() -> None:
    """However often it was hinted."""
    async with paced(AT_ONCE) as (pace, got):
        for _ in range(10):
            pace.hint_later(["/a"])
        assert {} == got
        await eventually(lambda: got["/a"])
        await eventually(lambda: not pace._told and not pace._wake.is_set())

    assert {"/a": 1} == got


# --- the table ----------------------------------------------------------------------------------------
def test_a_watch_is_its_projects_until_it_is_released() -> None:
    """Or until another takes its place; the same one again changes nothing."""
    table = WatchTable()

    assert table.assign("/a", 1) is None
    assert table.assign("/a", 1) is None
    assert table.assign("/a", 2) == 1
    assert ((), ("/a",)) == (table.roots(1), table.roots(2))
    assert table.release("/a") == 2
    assert () == table.roots(2)
    assert table.release("/a") is None


def test_a_shared_watch_is_kept_for_the_other() -> None:
    """It is given back when the last project leaves, in any order."""
    for first, last in (("/a", "/b"), ("/b", "/a")):
        table = WatchTable()
        table.assign("/a", 1)
        table.assign("/b", 1)

        assert {"/a", "/b"} == set(table.roots(1))
        assert table.release(first) is None
        assert (last,) == table.roots(1)
        assert table.release(last) == 1


def test_a_watch_that_ended_by_itself_has_no_projects() -> None:
    """`drop` returns them all, and none has a watch to give back."""
    table = WatchTable()
    table.assign("/a", 1)
    table.assign("/b", 1)
    table.assign("/c", 2)

    assert {"/a", "/b"} == set(table.drop(1))
    assert (() == table.drop(1), None, ("/c",)) == (True, table.release("/a"), table.all_roots())
    table.clear()
    assert () == table.all_roots()


ROOTS, WATCHES = st.sampled_from("abc"), st.integers(1, 3)
CHANGES = st.lists(
    st.tuples(st.just("assign"), ROOTS, WATCHES)
    | st.tuples(st.sampled_from(("release", "drop")), ROOTS, WATCHES)
)


@given(changes=CHANGES)
def test_it_is_what_a_simple_mapping_would_be(changes: list[tuple[str, str, int]]) -> None:
    """After any sequence; a watch is called needless exactly when its last project leaves it."""
    table, model = WatchTable(), dict[str, int]()
    for change, root, watch in changes:
        before = model.get(root)
        needless: int | None = None
        if change == "assign":
            needless = table.assign(root, watch)
            model[root] = watch
        elif change == "release":
            needless = table.release(root)
            model.pop(root, None)
        else:
            assert {one for one in model if model[one] == watch} == set(table.drop(watch))
            model = {one: number for one, number in model.items() if number != watch}
            before = None
        left = before is not None and before != model.get(root) and before not in model.values()
        assert (before if left else None) == needless
        for number in (1, 2, 3):
            assert {one for one in model if model[one] == number} == set(table.roots(number))
        assert set(model) == set(table.all_roots())
