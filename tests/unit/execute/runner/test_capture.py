"""Output goes from the pipe to the ring, which keeps the beginning and the end, also without a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.runs import run_spec

from handoffd.execute.output import heard_ns
from handoffd.execute.runner.capture import (
    Capture,
    Output,
    Position,
    Ring,
    Sieve,
    left_out_line,
    open_output,
)


@pytest.fixture
def capture() -> Iterator[Capture]:
    """An output whose descriptors are closed after the test, where a shim's end with it."""
    capture = Capture()
    yield capture
    capture.finish()
    for fd in (capture.pipe, capture.write_end):
        if fd >= 0:
            os.close(fd)


def opened(capture: Capture, root: Path, output: Path) -> None:
    """Give the output a place, as a shim does."""
    capture.open(str(root), run_spec(root, "r1", "true", output=str(output)))


def test_output_before_the_file_is_open_is_kept(capture: Capture, tmp_path: Path) -> None:
    """A program need not wait for its output file: the pipe holds a megabyte."""
    early = b"x" * 1_000_000
    os.set_blocking(capture.write_end, False)
    assert len(early) == os.write(capture.write_end, early)

    opened(capture, tmp_path, tmp_path / "output.log")
    capture.close_write_end()
    capture.finish()

    assert early == (tmp_path / "output.log").read_bytes()
    assert (1_000_000, None) == (capture.total, capture.error)


def test_an_empty_pipe_is_not_the_end(capture: Capture, tmp_path: Path) -> None:
    """The output is over when the last writer has closed it."""
    opened(capture, tmp_path, tmp_path / "output.log")

    assert 0 == capture.read()
    assert not capture.is_over
    capture.close_write_end()
    assert 0 == capture.read()
    assert capture.is_over


def test_finishing_does_not_wait_for_other_writers(capture: Capture, tmp_path: Path) -> None:
    """A process outside the run may hold the pipe for ever; its content is taken."""
    opened(capture, tmp_path, tmp_path / "output.log")
    os.write(capture.write_end, b"last words")

    capture.finish()

    assert b"last words" == (tmp_path / "output.log").read_bytes()


def test_end_is_known_without_a_file(capture: Capture, tmp_path: Path) -> None:
    """The reason for its absence is kept; a character cut in two at the start of the end is dropped."""
    (tmp_path / "file").touch()
    opened(capture, tmp_path, tmp_path / "file" / "output.log")
    os.write(capture.write_end, "請".encode() * 4000)

    capture.finish()

    assert 12_000 == capture.total
    assert "請" * 1365 == capture.tail
    assert capture.error is not None
    assert capture.error.startswith("ENOTDIR: output")


@pytest.mark.parametrize("data", [b"alone", b""])
def test_output_without_a_file_is_counted(capture: Capture, data: bytes) -> None:
    """A fault between the program's start and the opening of its file; and a run that never began."""
    os.write(capture.write_end, data)

    capture.finish()

    assert (len(data), data.decode(), None) == (capture.total, capture.tail, capture.error)


PARTIAL = b'{"type":"stream_event"'
LINES = (b'{"type":"system"}', b'{"type":"stream_event","event":1}', b"", b'{"type":"st', b"plain", PARTIAL)


@given(st.lists(st.sampled_from(LINES), max_size=12), st.data())
def test_lines_of_one_kind_are_taken_out_however_the_pieces_fall(
    lines: list[bytes], data: st.DataObject
) -> None:
    """All others are whole and in order; at most the beginning of a line is held back."""
    whole, sieve, kept, at = b"\n".join(lines), Sieve((PARTIAL,)), [], 0
    while at < len(whole):
        size = data.draw(st.integers(1, 40))
        kept.append(sieve.sift(whole[at : at + size]))
        at += size
    kept.append(sieve.rest())

    expected = b"".join(line for line in whole.splitlines(keepends=True) if not line.startswith(PARTIAL))
    assert expected == b"".join(kept)


def test_a_line_that_is_taken_out_is_a_sign_of_life(capture: Capture, tmp_path: Path) -> None:
    """The output does not grow by it, but the time of the last output does."""
    spec = run_spec(tmp_path, "r1", "true", output=str(tmp_path / "output.log"))
    capture.open(str(tmp_path), replace(spec, partial=(PARTIAL.decode(),)))
    os.utime(tmp_path / "output.pos", (1, 1))

    os.write(capture.write_end, PARTIAL + b',"event":1}\n')
    capture.read()
    assert 1 < heard_ns(tmp_path) // 10**9
    os.write(capture.write_end, b"kept\n")
    capture.close_write_end()
    capture.finish()

    assert (5, "kept\n") == (capture.total, (tmp_path / "output.log").read_text())


# --- the ring -----------------------------------------------------------------------------------------
def open_ring(root: Path, head: int = 8, tail: int = 16, name: str = "output.log") -> Ring:
    """Return a ring that writes `name` below `root`."""
    position = os.open(root / "output.pos", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    return Ring(open_output(str(root / name), str(root)), position, head, tail, remember=6)


def expected(data: bytes, head: int, tail: int) -> bytes:
    """Return what the file must hold in the end."""
    left_out = len(data) - head - tail
    if left_out <= 0:
        return data
    return data[:head] + left_out_line(left_out) + data[-tail:]


@given(
    pieces=st.lists(st.binary(min_size=1, max_size=60), max_size=12),
    head=st.integers(0, 40),
    tail=st.integers(1, 40),
)
def test_file_holds_head_and_tail_for_any_pieces(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], head: int, tail: int
) -> None:
    """The pieces' sizes, and where they meet the ring's edges, do not show."""
    root = tmp_path_factory.mktemp("ring")
    output = open_ring(root, head, tail)

    for piece in pieces:
        output.write(memoryview(piece))
    output.close()

    data = b"".join(pieces)
    assert expected(data, head, tail) == (root / "output.log").read_bytes()
    assert len(data) == output.total
    assert data[-6:] == output.end
    assert None is output.error
    assert ["output.log", "output.pos"] == sorted(os.listdir(root))


def test_one_line_says_how_much_is_missing(tmp_path: Path) -> None:
    """The count is exact; while a flood lasts, the file never grows beyond its bound."""
    output = open_ring(tmp_path, head=6, tail=7)
    output.write(memoryview(b"first\n" + b"m" * 1000 + b"\nlast\n"))
    assert 13 == (tmp_path / "output.log").stat().st_size
    output.close()

    lines = (tmp_path / "output.log").read_text().splitlines()

    assert ["first", "", "[handoffd: 999 bytes left out here]", "m", "last"] == lines


def test_position_tells_a_torn_reading() -> None:
    """Half of an old and half of a new record is recognised, whole ones read back."""
    old = Position(total=99, head=1, tail=2, ring=3, linear=4)
    new = old._replace(total=100)

    assert new == Position.decode(new.encode())
    assert None is Position.decode(new.encode()[:30] + old.encode()[30:])
    assert None is Position.decode(b"")
    assert None is Position.decode(b"1 2 3")


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_planted_link_is_replaced_and_not_followed(tmp_path: Path, link: Callable[..., None]) -> None:
    """Neither a symbolic nor a hard one leads our output into another file."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    link(victim, tmp_path / "output.log")

    output = open_ring(tmp_path)
    output.write(memoryview(b"hello"))
    output.close()

    assert ("precious", "hello") == (victim.read_text(), (tmp_path / "output.log").read_text())
    assert not (tmp_path / "output.log").is_symlink()


def test_a_planted_folder_link_is_refused(tmp_path: Path) -> None:
    """Below the project no link leads anywhere."""
    outside = tmp_path / "outside"
    outside.mkdir()
    project = tmp_path / "project"
    project.mkdir()
    (project / ".ai").symlink_to(outside)

    with pytest.raises(OSError, match=r"Not a directory|symbolic link"):
        open_output(str(project / ".ai" / "runs" / "output.log"), str(project))

    assert [] == os.listdir(outside)


def test_the_project_itself_may_be_reached_by_a_link(tmp_path: Path) -> None:
    """A person may name it so; missing folders are created."""
    (tmp_path / "project").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "project")

    output = open_output(str(tmp_path / "alias" / ".ai" / "o.log"), str(tmp_path / "alias"))
    os.close(output.fd)
    os.close(output.folder)

    assert (tmp_path / "project" / ".ai" / "o.log").is_file()


def test_outside_the_working_directory_no_link_is_followed_at_all(tmp_path: Path) -> None:
    """No part of a path outside the project may be trusted."""
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "real")

    with pytest.raises(OSError, match=r"Not a directory|symbolic link"):
        open_output(str(tmp_path / "alias" / "o.log"), str(tmp_path / "elsewhere"))


def test_a_file_that_cannot_be_written_costs_output_only(tmp_path: Path) -> None:
    """Everything is counted, the end is remembered, and the reason is kept."""
    (tmp_path / "o.log").write_text("")
    read_only = os.open(tmp_path / "o.log", os.O_RDONLY)
    folder = os.open(tmp_path, os.O_RDONLY)
    output = Ring(Output(read_only, folder, "o.log"), -1, 8, 16, remember=6)

    output.write(memoryview(b"0123456789"))
    output.close()

    assert 10 == output.total
    assert b"456789" == output.end
    assert "Bad file descriptor: output is incomplete" == output.error


def test_when_the_folder_is_in_the_way_the_ring_stays(tmp_path: Path) -> None:
    """If the linear copy cannot take the name, the folder stays, and no part of the copy."""
    output = open_ring(tmp_path, head=2, tail=4)
    output.write(memoryview(b"0123456789"))
    (tmp_path / "output.log").unlink()
    (tmp_path / "output.log").mkdir()
    output.close()

    assert ["output.log", "output.pos"] == sorted(os.listdir(tmp_path))
    position = Position.decode((tmp_path / "output.pos").read_bytes())
    assert position is not None
    assert 0 == position.linear
    assert output.error is not None
