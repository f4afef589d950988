"""`handoffd log` and `handoffd events`."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from tests.support.commands import Commands, environment, started
from tests.support.controlled import Controlled, controlled
from tests.support.eventually import eventually_sync
from tests.support.recorded import story
from tests.support.runs import run_spec
from tests.support.supervision import MemorySupervision
from tests.unit.journal.making import KEY, NOW, dispatch, opened, record, track

from handoffd.api.client import Client
from handoffd.api.http.limits import Limits
from handoffd.cli.log import explained, last_lines, line
from handoffd.cli.wording import moment
from handoffd.engine.events import Advanced
from handoffd.entrance.place import Place
from handoffd.errors import NotFound
from handoffd.execute.runner import capture
from handoffd.journal.records import Record
from handoffd.protocol.state import Status


# --- log --------------------------------------------------------------------------------------------
class Writing:
    """A run that writes, as its shim would."""

    def __init__(self, runs_dir: Path, run: str) -> None:
        self.run_dir = runs_dir / run
        self.run_dir.mkdir(parents=True)
        spec = run_spec(runs_dir.parent, run, "true")
        (self.run_dir / "spec.json").write_text(spec.to_json(), encoding="utf-8")
        position = os.open(self.run_dir / "output.pos", os.O_WRONLY | os.O_CREAT, 0o600)
        output = capture.open_output(spec.output, str(runs_dir.parent))
        self.ring = capture.Ring(output, position, 1000, 1000, remember=10)

    def write(self, text: bytes) -> None:
        """Write some output."""
        self.ring.write(memoryview(text))

    def end(self) -> None:
        """End the run."""
        self.ring.close()
        (self.run_dir / "exit.json").write_text("{}", encoding="utf-8")


Written = Callable[..., Writing]


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    """Begin runs that have written something, below `runs_dir`; the files of all are closed at the end."""
    with ExitStack() as stack:

        def begin(text: bytes, run: str = "d1", runs_dir: Path = tmp_path / "state/runs") -> Writing:
            run_of = Writing(runs_dir, run)
            stack.callback(run_of.ring.close)
            run_of.write(text)
            return run_of

        yield begin


@pytest.fixture
def output(control: Controlled, written: Written) -> Written:
    """The same for runs of a daemon, whose project `shop` is at work on the first of them."""
    control.commit(begun())
    return lambda text, run="d1": written(text, run, control.runs_dir)


def begun(executor: str = "claude") -> Record:
    """Return the record of the first run of `shop`."""
    after = track(status=Status.RUNNING, dispatch=replace(dispatch(), executor=executor))
    return record(Advanced(dispatch="d1", executor=executor), after=after)


@pytest.fixture
def journal(alone: Path) -> None:
    """A journal without a daemon that knows the same run."""

    async def make() -> None:
        async with opened(alone / "state" / "journal.db") as journal:
            await journal.add_project("/srv/shop", "shop", NOW)
            await journal.commit(begun())

    anyio.run(make)


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


def test_the_latest_run_or_a_named_one(output: Written, handoffd: Commands) -> None:
    """Control sequences are shown instead of obeyed, also in a pipe."""
    output(b"hello\x1b[0m\n")
    output(b"3 passed\n", "d1.tests")

    assert "hello\\x1b[0m\n" == handoffd("log", "shop").out
    assert "3 passed\n" == handoffd("log", "--run", "d1.tests").out
    assert 4 == handoffd("log", "--run", "d2").code
    assert 4 == handoffd("log", "empty").code


@pytest.mark.parametrize("words", [["shop"], ["--run", "d1"], ["shop", "--run", "d1"]])
def test_an_agents_stream_is_put_into_words(output: Written, handoffd: Commands, words: list[str]) -> None:
    """As its executor's description has it; a line of another kind stays as it is."""
    output(STREAM)

    assert WORDS == handoffd("log", *words).out


def test_raw_is_what_was_written(output: Written, handoffd: Commands) -> None:
    """Byte for byte."""
    output(STREAM + b"\x00\r\n")

    assert STREAM.decode() + "\x00\r\n" == handoffd("log", "shop", "--raw").out


def test_json_is_an_object_for_each_line(output: Written, handoffd: Commands) -> None:
    """What is shown of it, and what it is."""
    output(STREAM)

    found = [json.loads(line) for line in handoffd("log", "shop", "--json").lines]
    assert WORDS.splitlines() == [entry["line"] for entry in found]
    assert ["text", "said", "text", "result"] == [entry["kind"] for entry in found]
    assert 2 == handoffd("log", "shop", "--json", "--raw").code
    assert "NOT_FOUND" == handoffd("log", "empty", "--json").json["code"]


@pytest.mark.parametrize("executor", ["rehearsal", "gone"])
def test_an_unknown_stream_is_left_alone(
    control: Controlled, written: Written, handoffd: Commands, executor: str
) -> None:
    """Of a program that prints text, and of one that the settings do not name any more."""
    control.commit(begun(executor))
    for run in ("d1", "d1.tests"):
        written(STREAM, run, control.runs_dir)

    shown = STREAM.decode().replace("\x1b", "\\x1b")
    assert shown == handoffd("log", "shop").out
    assert shown == handoffd("log", "--run", "d1.tests").out


def test_following_puts_lines_into_words_as_they_come(control: Controlled, output: Written) -> None:
    """Also one that comes in two pieces; it ends with the run."""
    said = STREAM.splitlines()[1]
    run = output(b"first\n" + said[:30])
    with started("log", "shop", "-f", env=environment(control.runtime)) as reader:
        assert reader.stdout is not None
        assert b"first\n" == reader.stdout.readline()
        run.write(said[30:] + b"\n")
        assert b"All done.\n" == reader.stdout.readline()
        run.write(b"no line break")
        run.end()
        assert b"no line break" == reader.stdout.read()
    assert 0 == reader.returncode


def test_a_stream_ends_with_its_run(control: Controlled, output: Written) -> None:
    """What comes later is in it, too."""
    run = output(b"first\n")
    seen: list[bytes] = []

    def read(client: Client) -> None:
        with client.stream("/v1/log", run="d1", follow=1) as stream:
            for piece in stream.pieces():
                seen.append(piece)  # noqa: PERF402  (the test waits for the first)

    reader = threading.Thread(target=read, args=(control.client,))
    reader.start()
    eventually_sync(lambda: seen)
    run.write(b"last\n")
    run.end()
    reader.join(60)

    assert b"first\nlast\n" == b"".join(seen)


@pytest.mark.usefixtures("journal")
def test_without_a_daemon_the_log_is_read_from_the_disk(written: Written, handoffd: Commands) -> None:
    """Agents continue to write, and the journal knows who wrote it; following ends with the run."""
    written(STREAM).end()

    for words in (("shop",), ("--run", "d1"), ("--run", "d1", "-f")):
        assert WORDS == handoffd("log", *words).out, words


def test_the_last_lines_for_an_agent(output: Written) -> None:
    """Which pays by the word: no blank lines, of a long one its beginning, and whether there is more."""
    output(STREAM + b"\n\n" + b"x" * 500 + b"\n")
    place = Place(config=None, environ=os.environ)

    answer = last_lines(place, "shop", None, 3)

    assert answer.daemon
    assert {"run": "d1", "lines": [*WORDS.splitlines()[-2:], "x" * 500], "more": True} == answer.json
    assert not last_lines(place, None, "d1", 5).json["more"]
    with pytest.raises(NotFound):
        last_lines(place, "empty", None, 3)


@pytest.mark.usefixtures("journal")
def test_without_a_daemon_the_last_lines_are_read_from_the_disk(written: Written) -> None:
    """As the whole log is."""
    written(b"one\ntwo\n")

    answer = last_lines(Place(config=None, environ=os.environ), None, "d1", 1)

    assert not answer.daemon
    assert {"run": "d1", "lines": ["two"], "more": True} == answer.json


# --- events -----------------------------------------------------------------------------------------
def test_one_line_an_event(control: Controlled, handoffd: Commands) -> None:
    """When, number, where, what, why, and what changed."""
    control.commit(record(why="first"))
    control.commit(record(after=track(status=Status.RUNNING), why="second"))

    at = moment("2026-01-31T22:15:09.123Z")
    assert [
        f"{at}  1  shop  noted: first [– → bdd pending]",
        f"{at}  2  shop  noted: second [bdd pending → bdd running]",
    ] == handoffd("events", "--oneline").lines


def test_missing_events_are_a_line_where_they_were(control: Controlled, handoffd: Commands) -> None:
    """As for a follower; with --json as an object of its own."""
    for why in ("one", "two", "three"):
        control.commit(record(why=why))
    control.run(control.journal.pruning.cover, KEY, 3, track())
    control.run(control.journal.pruning.drop, KEY, 3, NOW)

    lines = handoffd("events", "--oneline").lines
    kinds = [json.loads(text)["type"] for text in handoffd("events", "--json", "--after", "0").lines]

    assert "-- events 1 to 2 are missing: older events are not kept; continuing at 3 --" == lines[0]
    assert (2, ["gap", "event"]) == (len(lines), kinds)


def test_each_decision_is_explained(control: Controlled, handoffd: Commands) -> None:
    """What had happened, the rule that decided, and what follows."""
    for one in story().records[:9]:
        control.commit(one)

    lines = handoffd("events", "--after", "8").lines

    assert "sdd-delta failed; sdd-delta attempt 2 of 3 [sdd-delta failing → sdd-delta running]" in lines[0]
    assert [
        "    what  the daemon chose executor rehearsal for the next step",
        "    rule  steps.sdd-delta.on_fail.default = sdd-delta, steps.sdd-delta.max_attempts = 2 of 3,"
        " steps.sdd-delta.timeout_min = 5",
        "    next  rehearsal is started for sdd-delta attempt 2, for 5 min at most",
    ] == lines[1:]


def test_the_same_is_in_the_json(control: Controlled, handoffd: Commands) -> None:
    """Under stable keys."""
    for one in story().records[:3]:
        control.commit(one)

    event = json.loads(handoffd("events", "--json", "--after", "2").out)

    assert "the daemon chose executor rehearsal for the next step" == event["what"]
    assert [{"rule": "steps.bdd.timeout_min", "value": "5"}] == event["rules"]
    assert "rehearsal is started for bdd attempt 1, for 5 min at most" == event["next"]
    assert ["spawn"] == [order["kind"] for order in event["orders"]]


def test_text_from_a_project_is_made_harmless_and_cut() -> None:
    """Notes may be pages long and full of control sequences."""
    (shown,) = explained({"type": "event", "what": "\x1b[2J" + "x" * 9000, "rules": [], "next": ""})

    assert "\\x1b" in shown
    assert len(shown) < 500


def test_json_is_one_object_a_line(control: Controlled, handoffd: Commands) -> None:
    """With limits and numbers."""
    for why in ("one", "two", "three"):
        control.commit(record(why=why))

    def whys(*words: str) -> list[str]:
        return [json.loads(text)["why"] for text in handoffd("events", "--json", *words).lines]

    assert ["two", "three"] == whys("--limit", "2")
    assert ["two"] == whys("--after", "1", "--limit", "1")
    assert [] == whys("--project", "empty") == whys("empty")
    assert ["three"] == whys("shop", "--limit", "1")


def test_following_needs_a_daemon(alone: Path, handoffd: Commands) -> None:
    """Nothing happens without one; past events can be read all the same."""
    said = handoffd("events", "-f")

    assert 3 == said.code
    assert "no new events without a daemon" in said.err
    assert (0, ["Nothing has happened yet."]) == (handoffd("events").code, handoffd("events").lines)
    assert ["Nothing of that has happened."] == handoffd("events", "--story", "US-404").lines
    assert [] == handoffd("events", "--json").lines


def test_a_follower_waits_for_a_free_stream(supervision: MemorySupervision) -> None:
    """It reports that, and the process that holds the last one."""
    with (
        controlled(supervision, limits=Limits(connections=4)) as control,  # and so one stream
        socket.socket(socket.AF_UNIX) as held,
    ):
        held.connect(str(control.socket))
        held.sendall(b"GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert held.recv(12).endswith(b"200")
        words = ("events", "--follow", "--after", "0", "--json")
        with started(*words, env=environment(control.runtime)) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert f"by process {os.getpid()} ".encode() in process.stderr.readline()
            held.close()
            control.commit(record(why="seen"))
            assert "seen" == json.loads(process.stdout.readline())["why"]
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


@pytest.mark.parametrize(
    ("after", "following", "why", "shown"),
    [
        (5, 10, "not kept", "-- events 6 to 9 are missing: not kept; continuing at 10 --"),
        (99, 1, "another journal", "-- there is no event 100: another journal; continuing at 1 --"),
    ],
)
def test_a_gap_is_a_line(after: int, following: int, why: str, shown: str) -> None:
    """For events that are gone, and numbers of another journal."""
    gap = {"type": "gap", "after": after, "next": following, "why": why}
    assert (shown, []) == (line(gap), explained(gap))
