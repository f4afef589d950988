"""Executors that stand still are found by the poller, however long a machine slept meanwhile."""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from shlex import quote
from typing import Any

import pytest
from anyio import to_thread
from tests.support.eventually import eventually
from tests.support.house import House, house, make_project
from tests.unit.project.living import living, shown

from handoffd.engine.events import Initialised, Noted, Started
from handoffd.engine.track import Phase
from handoffd.execute.base import Vitals
from handoffd.execute.executor import Idle
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.execute.stream.format import StreamFormat
from handoffd.project.project import Project
from handoffd.project.timeouts import Stalls, Watch

UNHURRIED = "steps: {bdd: {timeout_min: 600, next_on_pass: review}, review: {next_on_pass: update-memory}}"
START = Vitals(output_bytes=10, cpu_s=1.0, written_bytes=20)


def test_silence_adds_up_and_a_sign_of_life_ends_it() -> None:
    """What was seen last is what the next looks are compared with."""
    watch = Watch(dispatch="d1", since=START, looked_at=100.0)
    quiet = watch.after(START, 130.0, 60, Idle()).after(START, 160.0, 60, Idle())
    assert 60.0 == quiet.quiet_s

    busy = Vitals(output_bytes=11, cpu_s=1.0, written_bytes=20)
    assert Watch(dispatch="d1", since=busy, looked_at=190.0) == quiet.after(busy, 190.0, 60, Idle())


def test_a_gap_between_two_looks_is_no_long_silence() -> None:
    """The machine slept, or the daemon was stopped; a clock that goes back counts for nothing."""
    watch = Watch(dispatch="d1", since=START, looked_at=100.0)
    assert 60.0 == watch.after(START, 100_000.0, 60, Idle()).quiet_s
    assert 0.0 == watch.after(START, 50.0, 60, Idle()).quiet_s


@asynccontextmanager
async def at_work(
    tmp_path: Path, agent: str = "exec sleep 600", settings: str | None = None, **more: Any
) -> AsyncIterator[tuple[House, Project]]:
    """Lend a project whose executor is at work on bdd, and has begun with the commands `agent`.

    `more` is added to the executor's definition.
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
    """Let the poller look so often, a minute apart; return what the journal tells of silence by then."""
    for _ in range(looks):
        here.clock.ahead_s += 60
        await project.poll()
    await project.main.give(Noted(text="Whatever was posted is decided before this is."))
    kinds = [event.kind for event in await here.journal.events(0, None, 1000)]
    return [kind for kind in kinds if kind in {"executor_quiet", "executor_stalled"}]


async def test_people_are_told_of_silence_once_and_then_it_is_ended(tmp_path: Path) -> None:
    """The warning comes at half the time, the end at the whole; the error names the signs."""
    async with at_work(tmp_path) as (here, project):
        assert [] == await minutes_pass(here, project, 5)  # the first look is the beginning of it
        assert ["executor_quiet"] == await minutes_pass(here, project, 5)
        await eventually(lambda: [one.kind for one in here.told.notices] == ["warning"])

        assert ["executor_quiet", "executor_stalled"] == await minutes_pass(here, project, 1)
        await eventually(lambda: "it stood still for 10.0 min" in str(shown(project)["last_error"]))
        assert "bytes written" in str(shown(project)["last_error"])


async def test_a_sign_of_life_starts_the_time_anew(tmp_path: Path) -> None:
    """The silence before it does not count any more, and the warning is not given again."""
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
"""An agent that waits for its provider, and does with each segment what that says, as the real ones do."""


class Provider:
    """Our end of an agent's connection."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._peer: socket.socket | None = None
        self.agent = f"exec {sys.executable} -I -S -c {quote(CLIENT)} {self._server.getsockname()[1]}"

    async def sends(self, text: str, *, size: int = 0, times: int = 1) -> None:
        """Send segments of at least `size` bytes, each when the one before was dealt with."""
        await to_thread.run_sync(self._send, text.ljust(size).encode(), times)

    def _send(self, data: bytes, times: int) -> None:
        if self._peer is None:
            self._peer, _ = self._server.accept()
        for _ in range(times):
            self._peer.sendall(data)
            assert b"." == self._peer.recv(1)

    def close(self) -> None:
        """Hang up."""
        self._server.close()
        if self._peer is not None:
            self._peer.close()


@pytest.fixture
def provider() -> Iterator[Provider]:
    """Lend a provider that an agent may call."""
    lent = Provider()
    yield lent
    lent.close()


def idle_of(name: str) -> Idle:
    """Return the rates of an executor that ships."""
    return load_book(shipped_layer()).get(name).idle


WORDS = StreamFormat(partial=('{"type":"stream_event"',))
STALL_2_MIN = "stall_min: 2\n"
PING, WORD = 42, 211
"""Bytes of a ping and of one word of an answer, both as they were measured, and encrypted."""


async def test_a_slow_answer_of_which_nothing_is_printed_is_life(tmp_path: Path, provider: Provider) -> None:
    """A word every twenty seconds, with the pings between: the connections tell."""
    async with at_work(tmp_path, provider.agent, STALL_2_MIN, idle=idle_of("codex")) as (here, project):
        for _ in range(6):
            await provider.sends("pass", size=WORD, times=3)
            await provider.sends("pass", size=PING, times=4)
            assert [] == await minutes_pass(here, project, 1)


async def test_a_slow_answer_that_is_printed_by_word_is_life(tmp_path: Path, provider: Provider) -> None:
    """Though its words are not kept, for there may be more of them than there is room."""
    async with at_work(tmp_path, provider.agent, STALL_2_MIN, stream=WORDS) as (here, project):
        (run,) = project.main.attempts.live.values()
        for _ in range(6):
            before = run.vitals().heard_ns
            await provider.sends("print", size=PING)
            await eventually(lambda before=before: run.vitals().heard_ns > before)  # type: ignore[misc]
            assert [] == await minutes_pass(here, project, 1)
        assert 0 == run.vitals().output_bytes


async def test_pings_are_no_life_though_the_agent_works_at_each(tmp_path: Path, provider: Provider) -> None:
    """Two a second cost claude more than 1 % of a core, for ever."""
    async with at_work(tmp_path, provider.agent, STALL_2_MIN, idle=idle_of("claude")) as (here, project):
        told: list[str] = []
        for _ in range(3):
            await provider.sends("work 0.01", size=PING, times=120)
            told = await minutes_pass(here, project, 1)
        assert ["executor_quiet", "executor_stalled"] == told


async def test_an_idle_agent_that_tidies_its_database_is_at_rest(tmp_path: Path, provider: Provider) -> None:
    """codex does once a minute, which is neither more nor less work than nothing."""
    async with at_work(tmp_path, provider.agent, STALL_2_MIN, idle=idle_of("codex")) as (here, project):
        told: list[str] = []
        for _ in range(3):
            await provider.sends("store 24576", times=1)
            await provider.sends("pass", size=PING, times=120)
            told = await minutes_pass(here, project, 1)
        assert ["executor_quiet", "executor_stalled"] == told


async def test_without_a_limit_silence_is_nothing(tmp_path: Path) -> None:
    """A project says 0 when its agents are known to be silent for long."""
    async with at_work(tmp_path, settings="stall_min: 0\n") as (here, project):
        assert [] == await minutes_pass(here, project, 60)
        assert "running" == shown(project)["status"]


async def test_a_project_may_allow_another_time(tmp_path: Path) -> None:
    """Its own setting goes before the daemon's."""
    async with at_work(tmp_path, settings="stall_min: 2\n") as (here, project):
        assert ["executor_quiet", "executor_stalled"] == await minutes_pass(here, project, 3)


async def test_a_new_daemon_waits_for_the_whole_time_again(tmp_path: Path) -> None:
    """What an earlier one had seen is not known, and an agent is not ended on a suspicion."""
    async with at_work(tmp_path) as (here, project):
        assert [] == await minutes_pass(here, project, 5)

        successor = Stalls(here.services)
        for _ in range(5):
            here.clock.ahead_s += 60
            await successor.check(project.main, None)
        assert [] == await minutes_pass(here, project, 0)
