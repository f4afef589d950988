"""Bounded output keeps the beginning and the end, in order, whatever the pieces it came in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoffd.execute.runner import capture


def open_ring(root: Path, head: int = 8, tail: int = 16, name: str = "output.log") -> capture.Ring:
    """Return a ring that writes `name` below `root`."""
    position = os.open(root / "output.pos", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    return capture.Ring(capture.open_output(str(root / name), str(root)), position, head, tail, remember=6)


def expected(data: bytes, head: int, tail: int) -> bytes:
    """Return what the file must hold in the end."""
    left_out = len(data) - head - tail
    if left_out <= 0:
        return data
    return data[:head] + capture.left_out_line(left_out) + data[-tail:]


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


def test_file_never_grows_beyond_its_bound(tmp_path: Path) -> None:
    """A flood costs a fixed amount of disk while it lasts."""
    output = open_ring(tmp_path, head=100, tail=200)

    output.write(memoryview(b"x" * 10_000))

    assert 300 == (tmp_path / "output.log").stat().st_size
    output.close()


def test_one_line_says_how_much_is_missing(tmp_path: Path) -> None:
    """The count is exact and the line stands alone."""
    output = open_ring(tmp_path, head=6, tail=7)
    output.write(memoryview(b"first\n" + b"m" * 1000 + b"\nlast\n"))
    output.close()

    lines = (tmp_path / "output.log").read_text().splitlines()

    assert ["first", "", "[handoffd: 999 bytes left out here]", "m", "last"] == lines


def test_position_tells_a_torn_reading() -> None:
    """Half of an old and half of a new record is recognised, whole ones read back."""
    old = capture.Position(total=99, head=1, tail=2, ring=3, linear=4)
    new = old._replace(total=100)

    assert new == capture.Position.decode(new.encode())
    assert None is capture.Position.decode(new.encode()[:30] + old.encode()[30:])
    assert None is capture.Position.decode(b"")
    assert None is capture.Position.decode(b"1 2 3")


def test_a_planted_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    """Whoever puts a link where the output goes gains nothing by it."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "output.log").symlink_to(victim)

    output = open_ring(tmp_path)
    output.write(memoryview(b"hello"))
    output.close()

    assert "precious" == victim.read_text()
    assert "hello" == (tmp_path / "output.log").read_text()
    assert not (tmp_path / "output.log").is_symlink()


def test_a_linked_file_keeps_its_other_name_unharmed(tmp_path: Path) -> None:
    """A hard link to somebody's file under the output's name loses the name only."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    os.link(victim, tmp_path / "output.log")

    output = open_ring(tmp_path)
    output.write(memoryview(b"hello"))
    output.close()

    assert "precious" == victim.read_text()


def test_a_planted_folder_link_is_refused(tmp_path: Path) -> None:
    """Below the project no link leads anywhere."""
    outside = tmp_path / "outside"
    outside.mkdir()
    project = tmp_path / "project"
    project.mkdir()
    (project / ".ai").symlink_to(outside)

    with pytest.raises(OSError, match=r"Not a directory|symbolic link"):
        capture.open_output(str(project / ".ai" / "runs" / "output.log"), str(project))

    assert [] == os.listdir(outside)


def test_the_project_itself_may_be_reached_by_a_link(tmp_path: Path) -> None:
    """How a person names their project is their own affair; missing folders are created."""
    (tmp_path / "project").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "project")

    output = capture.open_output(str(tmp_path / "alias" / ".ai" / "o.log"), str(tmp_path / "alias"))
    os.close(output.fd)
    os.close(output.folder)

    assert (tmp_path / "project" / ".ai" / "o.log").is_file()


def test_outside_the_working_directory_no_link_is_followed_at_all(tmp_path: Path) -> None:
    """A path that is not the project's has no part that may be trusted."""
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "real")

    with pytest.raises(OSError, match=r"Not a directory|symbolic link"):
        capture.open_output(str(tmp_path / "alias" / "o.log"), str(tmp_path / "elsewhere"))


def test_a_file_that_cannot_be_written_costs_output_only(tmp_path: Path) -> None:
    """Everything is counted, the end is remembered, and the reason is kept."""
    (tmp_path / "o.log").write_text("")
    read_only = os.open(tmp_path / "o.log", os.O_RDONLY)
    folder = os.open(tmp_path, os.O_RDONLY)
    output = capture.Ring(capture.Output(read_only, folder, "o.log"), -1, 8, 16, remember=6)

    output.write(memoryview(b"0123456789"))
    output.close()

    assert 10 == output.total
    assert b"456789" == output.end
    assert "Bad file descriptor: output is incomplete" == output.error


def test_without_a_file_output_is_counted(tmp_path: Path) -> None:
    """A run whose output has no place to go is still a run."""
    output = capture.Ring(None, -1, 8, 16, remember=6)

    output.write(memoryview(b"0123456789"))
    output.close()

    assert (10, b"456789") == (output.total, output.end)


def test_when_the_folder_is_in_the_way_the_ring_stays(tmp_path: Path) -> None:
    """If the linear copy cannot take the name, what is there remains, and no scrap of the copy."""
    output = open_ring(tmp_path, head=2, tail=4)
    output.write(memoryview(b"0123456789"))
    (tmp_path / "output.log").unlink()
    (tmp_path / "output.log").mkdir()
    output.close()

    assert ["output.log", "output.pos"] == sorted(os.listdir(tmp_path))
    position = capture.Position.decode((tmp_path / "output.pos").read_bytes())
    assert position is not None
    assert 0 == position.linear
    assert output.error is not None
