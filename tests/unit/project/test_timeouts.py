"""Attempts that last too long: silent ones, and ones past their deadline, by the right clock."""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from shlex import quote
from typing import Any

import pytest
from anyio import to_thread
from tests.support.eventually import eventually
from tests.support.house import HAND_OVER, NOW, House, house, make_project
from tests.unit.project.living import at_level_1, edit, living, shown

from handoffd.clock import rfc3339
from handoffd.engine.events import Initialised, Noted, Started
from handoffd.engine.track import Phase
from handoffd.execute.base import Vitals
from handoffd.execute.executor import Idle
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.execute.stream.format import StreamFormat
from handoffd.project.overdue import Deadlines, Stalls, Watch
from handoffd.project.project import Project

UNHURRIED = "steps: {bdd: {timeout_min: 600, next_on_pass: review}, review: {next_on_pass: update-memory}}"
START = Vitals(output_bytes=10, cpu_s=1.0, written_bytes=20)


def test_silence_adds_up_until_a_sign_of_life() -> None:
    """The later looks compare with that sign. A gap between two looks counts for one interval at most."""
    watch = Watch(dispatch="d1", since=START, looked_at=100.0)
    quiet = watch.after(START, 130.0, 60, Idle()).after(START, 160.0, 60, Idle())
    assert 60.0 == quiet.quiet_s

    busy = Vitals(output_bytes=11, cpu_s=1.0, written_bytes=20)
    assert Watch(dispatch="d1", since=busy, looked_at=190.0) == quiet.after(busy, 190.0, 60, Idle())
    # The machine slept, or the daemon was stopped; a clock set back counts for nothing.
    gaps = [watch.after(START, looked_at, 60, Idle()).quiet_s for looked_at in (100_000.0, 50.0)]
    assert [60.0, 0.0] == gaps


@asynccontextmanager
async def at_work(
    tmp_path: Path, agent: str = "exec sleep 600", settings: str | None = None, **more: Any
) -> AsyncIterator[tuple[House, Project]]:
    """Lend a project whose executor works on bdd and has begun the commands `agent`.

    `more` updates the executor's definition.
    """
    root = make_project(tmp_path, rules=UNHURRIED, settings=settings)
    async with house(tmp_path, f"touch {tmp_path}/begun\n{agent}") as here, living(here, root) as project:
        executors = here.services.executors.executors
        executors["agent"] = executors["agent"].model_copy(update=more)  # type: ignore[index]
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001"))
        await eventually((tmp_path / "begun").exists)
        await eventually(lambda: _phase(project) is Phase.EXECUTING)
        yield here, project
        await project.end_executors("the test")


def _phase(project: Project) -> Phase | None:
    dispatch = project.main.track.ledger.dispatch
    return dispatch.phase if dispatch is not None else None


async def minutes_pass(here: House, project: Project, looks: int) -> list[str]:
    """Let the poller look `looks` times, a minute apart; return the recorded events about silence."""
    for _ in range(looks):
        here.clock.ahead_s += 60
        await project.poll()
    await project.main.give(Noted(text="Posted facts are decided before this verb."))
    kinds = [event.kind for event in await here.journal.events(0, None, 1000)]
    return [kind for kind in kinds if kind in {"executor_quiet", "executor_stalled"}]


async def test_an_idle_executor_is_reported_once_and_then_ended(tmp_path: Path) -> None:
    """After half of the limit and after the whole; the error names the measurements."""
    async with at_work(tmp_path) as (here, project):
        assert [] == await minutes_pass(here, project, 5)  # the silence begins with the first look
        assert ["executor_quiet"] == await minutes_pass(here, project, 5)
        await eventually(lambda: [one.kind for one in here.told.notices] == ["warning"])

        assert ["executor_quiet", "executor_stalled"] == await minutes_pass(here, project, 1)
        await eventually(lambda: "no activity for 10.0 min" in str(shown(project)["last_error"]))
        assert "bytes written" in str(shown(project)["last_error"])


async def test_a_sign_of_life_resets_the_silence(tmp_path: Path) -> None:
    """Earlier silence does not count, and the warning is not repeated."""
    talks = f"until test -e {tmp_path}/go; do sleep 0.05; done\necho life\nexec sleep 600"
    async with at_work(tmp_path, talks) as (here, project):
        assert ["executor_quiet"] == await minutes_pass(here, project, 9)
        (run,) = project.main.attempts.live.values()
        (tmp_path / "go").touch()
        await eventually(lambda: run.vitals().output_bytes > 0)

        assert ["executor_quiet"] == await minutes_pass(here, project, 9)
        assert "running" == shown(project)["status"]


CLIENT = """
import os, socket, sys, time
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
database = os.open("database", os.O_WRONLY | os.O_CREAT)
while said := peer.recv(65536):
    verb, _, number = said.strip().partition(b" ")
    if verb == b"work":
        until = time.process_time() + float(number)
        while time.process_time() < until:
            pass
    elif verb == b"store":
        os.pwrite(database, b"x" * int(number), 0)
        os.fsync(database)
    elif verb == b"print":
        print('{"type":"stream_event","event":{"type":"content_block_delta"}}', flush=True)
    peer.sendall(b".")
"""
"""An agent that waits for its provider and works after each segment, like the real ones."""


class Provider:
    """The provider's end of an agent's connection."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._peer: socket.socket | None = None
        self.agent = f"exec {sys.executable} -I -S -c {quote(CLIENT)} {self._server.getsockname()[1]}"

    async def sends(self, text: str, *, size: int = 0, times: int = 1) -> None:
        """Send segments of at least `size` bytes, each after the answer to the one before."""
        await to_thread.run_sync(self._send, text.ljust(size).encode(), times)

    def _send(self, data: bytes, times: int) -> None:
        if self._peer is None:
            self._peer, _ = self._server.accept()
        for _ in range(times):
            self._peer.sendall(data)
            assert b"." == self._peer.recv(1)

    def close(self) -> None:
        """Close the connection."""
        self._server.close()
        if self._peer is not None:
            self._peer.close()


@pytest.fixture
def provider() -> Iterator[Provider]:
    """Lend a provider for an agent to call."""
    lent = Provider()
    yield lent
    lent.close()


def idle_of(name: str) -> Idle:
    """Return the idle rates of a shipped executor."""
    return load_book(shipped_layer()).get(name).idle


WORDS = StreamFormat(partial=('{"type":"stream_event"',))
STALL_2_MIN = "stall_min: 2\n"
PING, WORD = 42, 211
"""Measured sizes of a ping and of one word of an answer, encrypted, in bytes."""


async def test_a_slow_answer_without_output_is_a_sign_of_life(tmp_path: Path, provider: Provider) -> None:
    """A word every twenty seconds, with pings between: the received bytes show it."""
    async with at_work(tmp_path, provider.agent, STALL_2_MIN, idle=idle_of("codex")) as (here, project):
        for _ in range(6):
            await provider.sends("pass", size=WORD, times=3)
            await provider.sends("pass", size=PING, times=4)
            assert [] == await minutes_pass(here, project, 1)


async def test_a_slow_answer_printed_in_words_is_a_sign_of_life(tmp_path: Path, provider: Provider) -> None:
    """Even though the output of words is not kept, to limit its size."""
    async with at_work(tmp_path, provider.agent, STALL_2_MIN, stream=WORDS) as (here, project):
        (run,) = project.main.attempts.live.values()
        for _ in range(6):
            before = run.vitals().heard_ns
            await provider.sends("print", size=PING)
            await eventually(lambda before=before: run.vitals().heard_ns > before)  # type: ignore[misc]
            assert [] == await minutes_pass(here, project, 1)
        assert 0 == run.vitals().output_bytes


@pytest.mark.parametrize(
    ("executor", "work"),
    [
        # Two pings a second cost claude more than 1 % of a core, for ever.
        pytest.param("claude", ("work 0.006", PING, 120), id="work at each ping"),
        # codex tidies its database once a minute, even when it is idle.
        pytest.param("codex", ("store 24576", 0, 1), id="a database that is tidied"),
    ],
)
async def test_an_idle_agent_with_background_work_is_idle(
    tmp_path: Path, provider: Provider, executor: str, work: tuple[str, int, int]
) -> None:
    """Its shipped idle rates allow for pings and for that work."""
    text, size, times = work
    async with at_work(tmp_path, provider.agent, STALL_2_MIN, idle=idle_of(executor)) as (here, project):
        await provider.sends("pass")  # its start is work, too
        assert [] == await minutes_pass(here, project, 1)
        for expected in (["executor_quiet"], ["executor_quiet", "executor_stalled"]):
            await provider.sends(text, size=size, times=times)
            await provider.sends("pass", size=PING, times=120 - times)
            assert expected == await minutes_pass(here, project, 1)


@pytest.mark.parametrize(
    ("stall_min", "minutes", "events"),
    [
        pytest.param(0, 60, [], id="no limit"),
        pytest.param(2, 3, ["executor_quiet", "executor_stalled"], id="two minutes"),
    ],
)
async def test_a_project_may_have_its_own_limit(
    tmp_path: Path, stall_min: int, minutes: int, events: list[str]
) -> None:
    """It overrides the daemon's; 0 is for agents that are silent for long."""
    async with at_work(tmp_path, settings=f"stall_min: {stall_min}\n") as (here, project):
        assert events == await minutes_pass(here, project, minutes)
        assert events or "running" == shown(project)["status"]


async def test_a_new_daemon_waits_for_the_whole_limit_again(tmp_path: Path) -> None:
    """It does not know the silence before, and never ends an agent on suspicion."""
    async with at_work(tmp_path) as (here, project):
        assert [] == await minutes_pass(here, project, 5)

        successor = Stalls(here.services)
        for _ in range(5):
            here.clock.ahead_s += 60
            await successor.check(project.main, None)
        assert [] == await minutes_pass(here, project, 0)


# --- how long attempts have been running, by the right clock ----------------------------------------
async def test_the_age_of_an_external_attempt_is_in_state_json(here: House, root: str) -> None:
    """In minutes of the wall clock, and never negative; a pending one has none."""
    async with at_level_1(here, root) as project:
        deadlines = Deadlines(here.services)
        assert None is await deadlines.elapsed_min(project.main)
        edit(project, status="running", dispatched_at=rfc3339(NOW - timedelta(seconds=30)))
        await project.look()
        assert pytest.approx(0.5, abs=0.4) == await deadlines.elapsed_min(project.main)

        here.clock.ahead_s = -60
        assert 0.0 == await deadlines.elapsed_min(project.main)


async def test_an_external_attempt_can_be_exempt_from_its_deadline(here: House, root: str) -> None:
    """While its hand-off cannot be read."""
    async with at_level_1(here, root) as project:
        edit(project, status="running", dispatched_at=rfc3339(NOW))
        await project.look()
        here.clock.ahead_s = 61

        await Deadlines(here.services).check(project.main, external=False)
        # Posted facts are decided before this verb.
        await project.main.give(Started(story="US-002", queue=True))
        assert "running" == shown(project)["status"]

        await Deadlines(here.services).check(project.main)
        await eventually(lambda: shown(project)["status"] == "timeout")


DAY_S = 86_400.0


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
async def test_a_clock_jump_does_not_change_the_age_of_an_external_attempt(
    here: House, root: str, jump_s: float
) -> None:
    """Its start is a wall time, which was converted when it was first seen."""
    async with at_level_1(here, root) as project:
        edit(project, status="running", dispatched_at=rfc3339(NOW - timedelta(seconds=30)))
        await project.look()
        await project.poll()
        here.clock.jumped_s = jump_s

        elapsed = await project.deadlines.elapsed_min(project.main)
        assert elapsed is not None
        assert 0.5 <= elapsed < 1
        await project.poll()
        # Posted facts are decided before this verb.
        await project.main.give(Started(story="US-002", queue=True))
        assert ("running", 1) == (shown(project)["status"], shown(project)["attempt"])

        here.clock.ahead_s += 31  # its deadline still counts
        await project.poll()
        await eventually(lambda: shown(project)["status"] == "timeout")
        await eventually(lambda: [notice.kind for notice in here.told.notices] == ["timeout"])


@pytest.mark.parametrize("jump_s", [0, DAY_S, -DAY_S])
async def test_a_clock_jump_does_not_disturb_the_daemons_attempt(
    root: str, tmp_path: Path, jump_s: float
) -> None:
    """Its age is in its start record. It goes on to its end, counts once, and causes no false notice."""
    waiting = f"until test -e {tmp_path}/go; do sleep 0.05; done\n{HAND_OVER}"
    async with house(tmp_path, waiting) as here, living(here, root) as project:
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001"))
        await eventually(lambda: project.main.pid() is not None)
        here.clock.jumped_s, here.clock.ahead_s = jump_s, 30
        elapsed = await project.deadlines.elapsed_min(project.main)
        assert elapsed is not None
        assert 0.5 <= elapsed < 1
        for _ in range(3):
            await project.poll()
            await project.look()
        await project.main.give(Noted(text="Posted facts are decided before this verb."))
        assert ("running", 1) == (shown(project)["status"], shown(project)["attempt"])

        (tmp_path / "go").touch()
        await eventually(lambda: shown(project)["step"] == "review")
        assert [("pass", 1)] == [(run.result, run.attempt) for run in await here.journal.runs()]
        await eventually(lambda: [notice.kind for notice in here.told.notices] == ["needs_human"])
