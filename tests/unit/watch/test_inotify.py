"""The kernel's calls, and what is read from it."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoffd.watch.inotify_backend import (
    BATCH_BYTES,
    IN_CREATE,
    IN_IGNORED,
    IN_ISDIR,
    IN_MOVED_TO,
    IN_Q_OVERFLOW,
    Event,
    Inotify,
    parse_events,
)

NAMES = st.binary(max_size=255).map(lambda name: name.replace(b"\0", b"").replace(b"/", b""))
EVENTS = st.builds(Event, st.integers(-1, 2**31 - 1), st.integers(0, 2**32 - 1), NAMES)


def packed(event: Event) -> bytes:
    """Return an event as the kernel writes it: the name padded with zeros."""
    length = 0 if not event.name else (len(event.name) // 16 + 1) * 16
    return struct.pack("=iIII", event.watch, event.mask, 0, length) + event.name.ljust(length, b"\0")


@given(events=st.lists(EVENTS))
def test_events_are_read_as_the_kernel_writes_them(events: list[Event]) -> None:
    """Any number of them in one read, with names of any bytes."""
    assert events == list(parse_events(b"".join(map(packed, events))))


def test_the_queue_itself_has_no_watch() -> None:
    """An overflow is an event like any other."""
    assert [Event(-1, IN_Q_OVERFLOW, b"")] == list(parse_events(packed(Event(-1, IN_Q_OVERFLOW, b""))))


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


def test_a_watch_that_is_given_back_says_so_and_its_number_is_not_used_again(
    kernel: Inotify, tmp_path: Path
) -> None:
    """What was queued before still comes, under the old number."""
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


def test_what_cannot_be_watched_is_an_error(kernel: Inotify, tmp_path: Path) -> None:
    """With the kernel's number for it."""
    with pytest.raises(FileNotFoundError):
        kernel.add(str(tmp_path / "missing"), IN_CREATE)


def test_a_closed_instance_watches_nothing_more(tmp_path: Path) -> None:
    """Its descriptor may be somebody else's by then; closing it again is harmless."""
    kernel = Inotify()
    watch = kernel.add(str(tmp_path), IN_CREATE)
    kernel.close()
    kernel.close()
    somebody_elses = os.pipe()
    try:
        with pytest.raises(OSError, match="descriptor") as caught:
            kernel.add(str(tmp_path), IN_CREATE)
        kernel.remove(watch)
    finally:
        for descriptor in somebody_elses:
            os.close(descriptor)

    assert errno.EBADF == caught.value.errno
