"""A child that answers lines, and all the ways in which one does not."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.support.eventually import eventually

from handoffd.notify.apprise import MOST_BYTES, Worker, WorkerFailed

ECHO = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    answer = {"pid": os.getpid(), "given": asked.get("say"), "environment": sorted(os.environ)}
    print(json.dumps(answer), flush=True)
"""
HANG = """
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "1000"])
open(sys.argv[1], "w").write(f"{os.getpid()} {child.pid}")
time.sleep(1000)
"""


@asynccontextmanager
async def worker(code: str, *arguments: str) -> AsyncIterator[Worker]:
    """Lend a worker, and end what it has started."""
    one = Worker((sys.executable, "-I", "-S", "-c", code, *arguments), {"PATH": "/bin"})
    try:
        with anyio.fail_after(60):
            yield one
    finally:
        one.close()


def is_gone(pid: int) -> bool:
    """Return whether no such process is left, not even a dead one."""
    return not Path(f"/proc/{pid}").exists()


async def test_one_process_answers_one_request_after_the_other() -> None:
    """It is started with the first, with an environment that is given, and reaped when it is let go."""
    async with worker(ECHO) as one:
        assert not one.running
        answers = [await one.ask({"say": text * 9_000}, 60) for text in ("a", "擷")]

        assert ["a" * 9_000, "擷" * 9_000] == [answer["given"] for answer in answers]
        assert 1 == len({answer["pid"] for answer in answers})
        assert {"PATH"} >= set(answers[0]["environment"]) - {"LC_CTYPE"}
        assert one.running
        one.close()
        await eventually(lambda: is_gone(answers[0]["pid"]))
        assert answers[0]["pid"] != (await one.ask({}, 60))["pid"]


async def test_requests_wait_for_each_other() -> None:
    """Nobody gets the answer to what another one asked, nor ends the worker under it."""
    async with worker(ECHO) as one:
        told: list[int] = []

        async def ask(number: int) -> None:
            told.append((await one.ask({"say": number}, 60))["given"] - number)
            one.close()

        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(ask, number)

        assert [0] * 5 == told


async def test_one_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """At the limit; the next request has a new one."""
    note = tmp_path / "pids"
    async with worker(HANG, str(note)) as one:
        with pytest.raises(WorkerFailed, match=r"within 2 s"):
            await one.ask({}, 2)

        assert not one.running
        for pid in note.read_text().split():
            await eventually(lambda pid=pid: is_gone(int(pid)))  # type: ignore[misc]


async def test_one_that_is_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    """When the daemon stops."""
    note = tmp_path / "pids"
    async with worker(HANG, str(note)) as one:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.ask, {}, 60)
            await eventually(lambda: note.exists() and len(note.read_text().split()) == 2)
            tasks.cancel_scope.cancel()

        for pid in note.read_text().split():
            await eventually(lambda pid=pid: is_gone(int(pid)))  # type: ignore[misc]


async def test_one_that_is_killed_meanwhile_is_told_of(tmp_path: Path) -> None:
    """With the signal; what it had started is ended as well."""
    note = tmp_path / "pids"
    async with worker(HANG, str(note)) as one:
        failures: list[str] = []

        async def ask() -> None:
            with pytest.raises(WorkerFailed) as caught:
                await one.ask({}, 60)
            failures.append(str(caught.value))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await eventually(lambda: note.exists() and len(note.read_text().split()) == 2)
            leader, child = map(int, note.read_text().split())
            os.kill(leader, signal.SIGKILL)
            os.kill(child, 0)
            await eventually(lambda: failures or is_gone(child))
            if not failures:
                os.kill(child, 0)
        assert ["it ended without an answer (signal 9)"] == failures
        await eventually(lambda: is_gone(leader) and is_gone(child))


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise SystemExit(3)", "exit code 3"),
        ("print('nonsense', flush=True); input()", "nonsense"),
        ("print('[]', flush=True); input(); input()", "nonsense"),
        ("print('{', end='', flush=True)", "broke off"),
        (f"print('x' * {2 * MOST_BYTES}, flush=True); input(); input()", "too much"),
    ],
)
async def test_what_is_no_answer_is_told_of(code: str, why: str) -> None:
    """And the process is given up."""
    async with worker(code) as one:
        with pytest.raises(WorkerFailed, match=why):
            await one.ask({}, 60)
        assert not one.running


async def test_a_program_that_is_not_there_is_told_of() -> None:
    """By its name."""
    with pytest.raises(WorkerFailed, match="/no/such cannot be started"):
        await Worker(("/no/such",), {}).ask({}, 60)
