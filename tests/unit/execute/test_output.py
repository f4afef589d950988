"""Output is read by position, the same while it is written and afterwards."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from handoffd.execute import output
from handoffd.execute.runner import capture

HEAD, TAIL = 100, 800


class Writing:
    """A run's output as its shim writes it."""

    def __init__(self, root: Path, head: int = HEAD, tail: int = TAIL) -> None:
        self.run_dir = root / "run"
        self.path = root / "output.log"
        self.run_dir.mkdir()
        position = os.open(self.run_dir / "output.pos", os.O_WRONLY | os.O_CREAT, 0o600)
        opened = capture.open_output(str(self.path), str(root))
        self.ring = capture.Ring(opened, position, head, tail, remember=10)

    def write(self, data: bytes) -> None:
        """Write `data` as the shim would."""
        self.ring.write(memoryview(data))

    def read(self, position: int, limit: int = 10_000) -> output.Chunk:
        """Read as the daemon would."""
        return output.read_from(self.run_dir, self.path, position, limit)


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Writing]:
    """A run that has written nothing yet."""
    writing = Writing(tmp_path)
    yield writing
    writing.ring.close()


def numbers(count: int) -> bytes:
    """Return `count` bytes in which every place differs from its neighbours."""
    return b"".join(b"%07d\n" % n for n in range(count // 8 + 1))[:count]


def test_following_by_position_gives_every_byte_once(writing: Writing) -> None:
    """A follower that keeps up sees the whole output, also round the ring and past the end."""
    data, seen, at = numbers(5000), b"", 0
    for start in range(0, len(data), 70):
        writing.write(data[start : start + 70])
        while (chunk := writing.read(at, limit=50)).data:
            assert 0 == chunk.left_out
            seen += chunk.data
            at = chunk.next
    writing.ring.close()

    assert data == seen
    assert output.Chunk(data=b"", next=5000) == writing.read(at)


def test_follower_that_fell_behind_learns_how_much_it_missed(writing: Writing) -> None:
    """The bytes that are no longer kept are counted, the next ones are the right ones."""
    data = numbers(5000)
    writing.write(data)

    chunk = writing.read(HEAD)

    first = len(data) - TAIL + capture.chunk_bytes(TAIL)
    assert first - HEAD == chunk.left_out
    assert data[first:] == chunk.data
    assert len(data) == chunk.next


@pytest.mark.parametrize("size", [0, 50, HEAD, 500, HEAD + TAIL, HEAD + TAIL + 1, 5000])
def test_finished_output_reads_like_its_file(writing: Writing, size: int) -> None:
    """Reading whole gives the file, with its one line for the middle, and `last` its end."""
    data = numbers(size)
    writing.write(data)
    writing.ring.close()

    assert writing.path.read_bytes() == output.read_output(writing.run_dir, writing.path)
    assert data[-200:] == output.read_output(writing.run_dir, writing.path, last=200)
    assert size == output.output_bytes(writing.run_dir)


def test_live_output_reads_in_order(writing: Writing) -> None:
    """While the ring goes round, a reader gets head, count and tail in reading order."""
    data = numbers(5000)
    writing.write(data)

    first = len(data) - TAIL + capture.chunk_bytes(TAIL)
    expected = data[:HEAD] + capture.left_out_line(first - HEAD) + data[first:]
    assert expected == output.read_output(writing.run_dir, writing.path)
    assert data[-300:] == output.read_output(writing.run_dir, writing.path, last=300)


def test_reader_never_gets_a_wrong_byte_from_a_busy_ring(writing: Writing) -> None:
    """Against a writer at full speed: each returned byte is the one at its position."""
    data = numbers(400_000)

    def write() -> None:
        for start in range(0, len(data), 90):
            writing.write(data[start : start + 90])
        writing.ring.close()

    thread = threading.Thread(target=write)
    thread.start()
    at = 0
    while thread.is_alive() or at < len(data):
        chunk = writing.read(at)
        start = chunk.next - len(chunk.data)
        assert data[start : chunk.next] == chunk.data
        at = chunk.next
    thread.join()


@pytest.mark.parametrize("kind", ["link", "pipe", "file", "folder"])
def test_a_file_put_in_its_place_is_not_shown(writing: Writing, kind: str) -> None:
    """Only the file that the shim made is the run's output; reading never waits or fails."""
    path, other = writing.path, writing.path.with_name("other")
    writing.write(b"what the agent said")
    path.unlink()
    other.write_text("not the agent's output")
    plants: dict[str, Callable[[], object]] = {
        "link": lambda: path.symlink_to(other),
        "pipe": lambda: os.mkfifo(path),
        "file": lambda: other.rename(path),
        "folder": path.mkdir,
    }
    plants[kind]()

    text = output.read_output(writing.run_dir, path)

    assert text in (output.REPLACED, capture.left_out_line(19))


def test_a_shortened_file_is_read_as_far_as_it_goes(writing: Writing) -> None:
    """An agent that truncates its own log harms its log."""
    writing.write(b"0123456789")
    os.truncate(writing.path, 4)

    assert b"0123" == output.read_output(writing.run_dir, writing.path)


def test_run_that_was_never_started_has_no_output(tmp_path: Path) -> None:
    """No position file: nothing was written."""
    assert b"" == output.read_output(tmp_path, tmp_path / "output.log")
    assert output.Chunk(data=b"", next=7) == output.read_from(tmp_path, tmp_path / "output.log", 7)


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        ("touch: cannot touch '/opt/x': Read-only file system", ("/opt/x",)),
        ("OSError: [Errno 30] Read-only file system: '/root/.cache/uv/a'", ("/root/.cache/uv/a",)),
        ("Error: EROFS: read-only file system, mkdir '/root/.npm/_cacache'", ("/root/.npm/_cacache",)),
        ('{"text":"EACCES: permission denied, open \\"/etc/shadow\\"\\n"}', ("/etc/shadow",)),
        ("open /root/go/pkg/mod/cache/lock: permission denied", ("/root/go/pkg/mod/cache/lock",)),
        ("rm: cannot remove '/srv/shop/.git/hooks/x': Read-only file system", ()),
        ("see https://example.org/a/b: permission denied; and docs/a.md", ()),
        ("/opt/x is fine", ()),
    ],
)
def test_paths_that_a_program_could_not_reach_are_found(
    writing: Writing, line: str, paths: tuple[str, ...]
) -> None:
    """In the forms that programs use; the workspace's own are not the sandbox's matter."""
    writing.write(line.encode())

    assert paths == output.refused_paths(writing.run_dir, writing.path, "/srv/shop")
