"""`handoffd log`."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import anyio
import pytest
from tests.support.commands import Commands
from tests.support.controlled import Controlled
from tests.support.eventually import eventually_sync
from tests.support.runs import run_spec
from tests.unit.store.making import dispatch, opened, record, track

from handoffd.control.client import Client
from handoffd.engine.events import Advanced
from handoffd.execute.runner import ring
from handoffd.protocol.state import Status


class Writing:
    """A run that writes, as its shim would."""

    def __init__(self, runs_dir: Path, root: Path, run: str = "d1") -> None:
        self.run_dir = runs_dir / run
        self.run_dir.mkdir(parents=True)
        spec = run_spec(root, run, "true")
        (self.run_dir / "spec.json").write_text(spec.to_json(), encoding="utf-8")
        position = os.open(self.run_dir / "output.pos", os.O_WRONLY | os.O_CREAT, 0o600)
        self.ring = ring.Ring(ring.open_output(spec.output, str(root)), position, 1000, 1000, remember=10)

    def write(self, text: bytes) -> None:
        """Write some output."""
        self.ring.write(memoryview(text))

    def end(self) -> None:
        """End the run."""
        self.ring.close()
        (self.run_dir / "exit.json").write_text("{}", encoding="utf-8")


def test_the_latest_run_or_one_named(control: Controlled, handoffd: Commands, tmp_path: Path) -> None:
    """Bytes as they were written, when nobody's terminal is in danger."""
    begun = track(status=Status.RUNNING, dispatch=dispatch())
    control.commit(record(Advanced(dispatch="d1", executor="claude"), after=begun))
    Writing(control.runs_dir, tmp_path).write(b"hello\x1b[0m\n")
    Writing(control.runs_dir, tmp_path, "d1.tests").write(b"3 passed\n")

    assert "hello\x1b[0m\n" == handoffd("log", "shop").out
    assert "3 passed\n" == handoffd("log", "--run", "d1.tests").out
    assert 4 == handoffd("log", "--run", "d2").code
    assert 4 == handoffd("log", "empty").code


def test_following_ends_with_the_run(control: Controlled, tmp_path: Path) -> None:
    """What comes later is shown, too."""
    writing = Writing(control.runs_dir, tmp_path)
    writing.write(b"first\n")
    seen: list[bytes] = []

    def read(client: Client) -> None:
        with client.stream("/v1/log", run="d1", follow=1) as stream:
            for piece in stream.pieces():
                seen.append(piece)  # noqa: PERF402  (the test waits for the first)

    reader = threading.Thread(target=read, args=(control.client,))
    reader.start()
    eventually_sync(lambda: seen)
    writing.write(b"last\n")
    writing.end()
    reader.join(10)

    assert b"first\nlast\n" == b"".join(seen)


@pytest.mark.parametrize("words", [["log", "--run", "d1"], ["log", "--run", "d1", "-f"]])
def test_without_a_daemon_it_is_read_from_the_disk(alone: Path, handoffd: Commands, words: list[str]) -> None:
    """Agents go on writing without one; following ends with the run."""
    anyio.run(_make_journal, alone / "state" / "journal.db")
    writing = Writing(alone / "state" / "runs", alone)
    writing.write(b"all of it\n")
    writing.end()

    assert "all of it\n" == handoffd(*words).out


async def _make_journal(path: Path) -> None:
    async with opened(path):
        pass
