"""Outputs of runs: found, read whole, followed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest
from tests.support.runs import run_spec

from handoffd.api.reads import RunLog, Tail, find_log, has_log, pieces
from handoffd.errors import NotFound, StoreError
from handoffd.execute.runner import capture

RUN = "20260131T221509-0a1b2c3d"


class Written:
    """A run that writes as its shim would."""

    def __init__(self, root: Path, *, head: int = 1000, tail: int = 800) -> None:
        self.runs_dir = root / "state"
        self.run_dir = self.runs_dir / RUN
        self.run_dir.mkdir(parents=True)
        spec = run_spec(root, RUN, "true")
        (self.run_dir / "spec.json").write_text(spec.to_json(), encoding="utf-8")
        position = os.open(self.run_dir / "output.pos", os.O_WRONLY | os.O_CREAT, 0o600)
        self.ring = capture.Ring(
            capture.open_output(spec.output, str(root)), position, head, tail, remember=10
        )

    def write(self, text: bytes) -> None:
        """Write some output."""
        self.ring.write(memoryview(text))

    def end(self) -> None:
        """End the run."""
        self.ring.close()
        (self.run_dir / "exit.json").write_text("{}", encoding="utf-8")

    @property
    def log(self) -> RunLog:
        """The log of the run."""
        return find_log(self.runs_dir, RUN)


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    """A run without output so far."""
    written = Written(tmp_path)
    yield written
    written.ring.close()


async def _all(stream: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in stream])


async def test_without_following_the_output_ends_here(written: Written) -> None:
    """A run that goes on is shown as far as it has come."""
    written.write(b"so far\n")

    with anyio.fail_after(60):
        assert b"so far\n" == await _all(pieces(written.log, follow=False, closing=anyio.Event()))


async def test_following_ends_with_the_run_and_misses_nothing(written: Written) -> None:
    """Also the output just before the end."""
    written.write(b"first\n")
    seen = []

    with anyio.fail_after(60):
        async for piece in pieces(written.log, follow=True, closing=anyio.Event()):
            seen.append(piece)
            if len(seen) == 1:
                written.write(b"last\n")
                written.end()

    assert b"first\nlast\n" == b"".join(seen)


async def test_following_ends_with_the_server(written: Written) -> None:
    """A daemon that stops does not wait for runs that go on."""
    closing, seen = anyio.Event(), []
    written.write(b"so far\n")

    with anyio.fail_after(60):
        async for piece in pieces(written.log, follow=True, closing=closing):
            seen.append(piece)
            closing.set()

    assert [b"so far\n"] == seen


def test_a_line_replaces_output_that_was_not_kept(tmp_path: Path) -> None:
    """The middle of a flood."""
    written = Written(tmp_path, head=10, tail=80)
    written.write(b"0123456789" + b"x" * 500)
    written.end()
    tail = Tail(written.log)

    text = b"".join(iter(tail.read, b""))

    assert text.startswith(b"0123456789")
    assert b"[handoffd: 420 bytes left out here]" in text
    assert text.endswith(b"x" * 80)


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "a/b", ".", "x" * 200, "d1.tests.more"])
def test_only_ids_are_looked_up(tmp_path: Path, name: str) -> None:
    """No name leads out of the folder of runs."""
    with pytest.raises(NotFound):
        find_log(tmp_path, name)


def test_a_missing_run_is_not_found(tmp_path: Path, written: Written) -> None:
    """The hint lists the runs."""
    with pytest.raises(NotFound) as caught:
        find_log(tmp_path / "state", "20260131T000000-ffffffff")

    assert "handoffd runs" == caught.value.hint
    assert [True, False] == [has_log(written.runs_dir, RUN), has_log(written.runs_dir, "d2")]


def test_a_broken_record_is_an_error_of_the_store(written: Written) -> None:
    """A damaged state directory is not mistaken for a missing run."""
    (written.run_dir / "spec.json").write_text("{", encoding="utf-8")

    with pytest.raises(StoreError):
        find_log(written.runs_dir, RUN)
