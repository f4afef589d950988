"""`handoffd log`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import anyio
import pytest
from tests.support.children import ending
from tests.support.commands import Commands
from tests.support.controlled import Controlled
from tests.support.eventually import eventually_sync
from tests.support.runs import run_spec
from tests.unit.journal.making import NOW, dispatch, opened, record, track

from handoffd.api.client import Client
from handoffd.cli.log import last_lines
from handoffd.engine.events import Advanced
from handoffd.entrance.place import Place
from handoffd.errors import NotFound
from handoffd.execute.runner import capture
from handoffd.protocol.state import Status


class Writing:
    """A run that writes, as its shim would."""

    begun: ClassVar[list[Writing]] = []

    def __init__(self, runs_dir: Path, root: Path, run: str = "d1") -> None:
        self.run_dir = runs_dir / run
        self.run_dir.mkdir(parents=True)
        spec = run_spec(root, run, "true")
        (self.run_dir / "spec.json").write_text(spec.to_json(), encoding="utf-8")
        position = os.open(self.run_dir / "output.pos", os.O_WRONLY | os.O_CREAT, 0o600)
        self.ring = capture.Ring(
            capture.open_output(spec.output, str(root)), position, 1000, 1000, remember=10
        )
        self.begun.append(self)

    def write(self, text: bytes) -> None:
        """Write some output."""
        self.ring.write(memoryview(text))

    def end(self) -> None:
        """End the run."""
        self.ring.close()
        (self.run_dir / "exit.json").write_text("{}", encoding="utf-8")


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    """Close the files of runs that have not ended, as the end of their shim would."""
    yield
    while Writing.begun:
        Writing.begun.pop().ring.close()


STREAM = b"""\
warning: \x1b[31mold\x1b[0m version
{"type":"assistant","message":{"content":[{"type":"text","text":"All\\ndone."}]}}
{"type":"assist
{"type":"result","is_error":false,"result":"Bye.","num_turns":2}
"""
WORDS = """\
warning: \\x1b[31mold\\x1b[0m version
All done.
{"type":"assist
[result] Bye.
"""


def begin(control: Controlled, executor: str = "claude") -> None:
    """Have the project `shop` be working on its first run."""
    begun = track(status=Status.RUNNING, dispatch=replace(dispatch(), executor=executor))
    control.commit(record(Advanced(dispatch="d1", executor=executor), after=begun))


def test_the_latest_run_or_one_named(control: Controlled, handoffd: Commands, tmp_path: Path) -> None:
    """With control sequences shown instead of obeyed, also by whoever reads them through a pipe."""
    begin(control)
    Writing(control.runs_dir, tmp_path).write(b"hello\x1b[0m\n")
    Writing(control.runs_dir, tmp_path, "d1.tests").write(b"3 passed\n")

    assert "hello\\x1b[0m\n" == handoffd("log", "shop").out
    assert "3 passed\n" == handoffd("log", "--run", "d1.tests").out
    assert 4 == handoffd("log", "--run", "d2").code
    assert 4 == handoffd("log", "empty").code


@pytest.mark.parametrize("words", [["log", "shop"], ["log", "--run", "d1"], ["log", "shop", "--run", "d1"]])
def test_an_agents_stream_is_put_into_words(
    control: Controlled, handoffd: Commands, tmp_path: Path, words: list[str]
) -> None:
    """Its executor's description says that it is one; a line that is none is no fault."""
    begin(control)
    Writing(control.runs_dir, tmp_path).write(STREAM)

    assert WORDS == handoffd(*words).out


def test_raw_is_what_was_written(control: Controlled, handoffd: Commands, tmp_path: Path) -> None:
    """Byte for byte."""
    begin(control)
    Writing(control.runs_dir, tmp_path).write(STREAM + b"\x00\r\n")

    assert STREAM.decode() + "\x00\r\n" == handoffd("log", "shop", "--raw").out


def test_json_is_an_object_for_each_line(control: Controlled, handoffd: Commands, tmp_path: Path) -> None:
    """What is shown of it, and what it is."""
    begin(control)
    Writing(control.runs_dir, tmp_path).write(STREAM)

    found = [json.loads(line) for line in handoffd("log", "shop", "--json").lines]
    assert WORDS.splitlines() == [entry["line"] for entry in found]
    assert ["text", "said", "text", "result"] == [entry["kind"] for entry in found]
    assert 2 == handoffd("log", "shop", "--json", "--raw").code
    assert "NOT_FOUND" == handoffd("log", "empty", "--json").json["code"]


@pytest.mark.parametrize("executor", ["rehearsal", "gone"])
def test_what_is_no_known_stream_is_left_alone(
    control: Controlled, handoffd: Commands, tmp_path: Path, executor: str
) -> None:
    """A program that prints text, and one that the settings do not name any more."""
    begin(control, executor)
    Writing(control.runs_dir, tmp_path).write(STREAM)
    Writing(control.runs_dir, tmp_path, "d1.tests").write(STREAM)

    shown = STREAM.decode().replace("\x1b", "\\x1b")
    assert shown == handoffd("log", "shop").out
    assert shown == handoffd("log", "--run", "d1.tests").out


def test_following_puts_lines_into_words_as_they_come(control: Controlled, tmp_path: Path) -> None:
    """Also one that comes in two pieces."""
    begin(control)
    writing = Writing(control.runs_dir, tmp_path)
    line = STREAM.splitlines()[1]
    writing.write(b"first\n" + line[:30])
    command = [sys.executable, "-m", "handoffd", "log", "shop", "-f"]
    with ending(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as reader:
        assert reader.stdout is not None
        assert "first\n" == reader.stdout.readline()
        writing.write(line[30:] + b"\n")
        assert "All done.\n" == reader.stdout.readline()
        writing.write(b"no line break")
        writing.end()
        assert "no line break" == reader.stdout.read()
    assert 0 == reader.returncode


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
    reader.join(60)

    assert b"first\nlast\n" == b"".join(seen)


@pytest.mark.parametrize("words", [["log", "--run", "d1"], ["log", "--run", "d1", "-f"]])
def test_without_a_daemon_it_is_read_from_the_disk(alone: Path, handoffd: Commands, words: list[str]) -> None:
    """Agents go on writing without one; following ends with the run."""
    anyio.run(_make_journal, alone / "state" / "journal.db")
    writing = Writing(alone / "state" / "runs", alone)
    writing.write(b"all of it\n")
    writing.end()

    assert "all of it\n" == handoffd(*words).out


def test_without_a_daemon_a_stream_is_put_into_words_too(alone: Path, handoffd: Commands) -> None:
    """The journal knows who wrote it."""

    async def make() -> None:
        async with opened(alone / "state" / "journal.db") as journal:
            await journal.add_project("/srv/shop", "shop", NOW)
            begun = track(status=Status.RUNNING, dispatch=dispatch())
            await journal.commit(record(Advanced(dispatch="d1", executor="claude"), after=begun))

    anyio.run(make)
    Writing(alone / "state" / "runs", alone).write(STREAM)

    assert WORDS == handoffd("log", "--run", "d1").out
    assert WORDS == handoffd("log", "shop").out


async def _make_journal(path: Path) -> None:
    async with opened(path):
        pass


def test_the_last_lines_are_told_in_words(control: Controlled, tmp_path: Path) -> None:
    """For who pays by the word: no blank lines, of a long one its beginning, and whether there is more."""
    begin(control)
    Writing(control.runs_dir, tmp_path).write(STREAM + b"\n\n" + b"x" * 500 + b"\n")
    place = Place(config=None, environ=os.environ)

    answer = last_lines(place, "shop", None, 3)

    assert answer.daemon
    assert {"run": "d1", "lines": [*WORDS.splitlines()[-2:], "x" * 500], "more": True} == answer.json
    assert not last_lines(place, None, "d1", 5).json["more"]
    with pytest.raises(NotFound):
        last_lines(place, "empty", None, 3)


def test_without_a_daemon_the_last_lines_are_read_from_the_disk(alone: Path) -> None:
    """Agents go on writing without one."""
    anyio.run(_make_journal, alone / "state" / "journal.db")
    Writing(alone / "state" / "runs", alone).write(b"one\ntwo\n")

    answer = last_lines(Place(config=None, environ=os.environ), None, "d1", 1)

    assert not answer.daemon
    assert {"run": "d1", "lines": ["two"], "more": True} == answer.json
