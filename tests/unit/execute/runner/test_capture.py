"""Output goes from the pipe to the ring, and its end is known whatever becomes of the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.runs import run_spec

from handoffd.execute.output import heard_ns
from handoffd.execute.runner.capture import Capture, Sieve


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


def test_what_is_written_before_the_file_is_there_is_kept(capture: Capture, tmp_path: Path) -> None:
    """A program need not wait for its output file: the pipe holds a megabyte."""
    early = b"x" * 1_000_000
    os.set_blocking(capture.write_end, False)
    assert len(early) == os.write(capture.write_end, early)

    opened(capture, tmp_path, tmp_path / "output.log")
    capture.close_write_end()
    capture.finish()

    assert early == (tmp_path / "output.log").read_bytes()
    assert (1_000_000, None) == (capture.total, capture.error)


def test_nothing_to_read_is_no_end(capture: Capture, tmp_path: Path) -> None:
    """Only when the last writer has gone, the output is over."""
    opened(capture, tmp_path, tmp_path / "output.log")

    assert 0 == capture.read()
    assert not capture.is_over
    capture.close_write_end()
    assert 0 == capture.read()
    assert capture.is_over


def test_finishing_does_not_wait_for_other_writers(capture: Capture, tmp_path: Path) -> None:
    """Somebody outside the run may hold the pipe for ever; what is in it is taken."""
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


def test_output_that_was_given_no_place_is_counted(capture: Capture) -> None:
    """Whatever goes wrong between the program's start and the opening of its file: the run has an end."""
    os.write(capture.write_end, b"alone")

    capture.finish()

    assert (5, "alone", None) == (capture.total, capture.tail, capture.error)


def test_run_that_never_began_has_no_output(capture: Capture) -> None:
    """There is nothing to finish, and nothing to tell."""
    capture.finish()

    assert (0, "", None) == (capture.total, capture.tail, capture.error)


PARTIAL = b'{"type":"stream_event"'
LINES = (b'{"type":"system"}', b'{"type":"stream_event","event":1}', b"", b'{"type":"st', b"plain", PARTIAL)


@given(st.lists(st.sampled_from(LINES), max_size=12), st.data())
def test_lines_of_one_kind_are_taken_out_however_the_pieces_fall(
    lines: list[bytes], data: st.DataObject
) -> None:
    """And all others are whole, in their order; no more is held than the beginning of a line."""
    whole, sieve, kept, at = b"\n".join(lines), Sieve((PARTIAL,)), [], 0
    while at < len(whole):
        size = data.draw(st.integers(1, 40))
        kept.append(sieve.sift(whole[at : at + size]))
        at += size
    kept.append(sieve.rest())

    expected = b"".join(line for line in whole.splitlines(keepends=True) if not line.startswith(PARTIAL))
    assert expected == b"".join(kept)


def test_what_is_not_kept_is_a_sign_of_life(capture: Capture, tmp_path: Path) -> None:
    """The output does not grow by it, but it can be seen when the run was heard last."""
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
