"""The process that runs apprise: answers, failures, ends; test_apprise.py has the services."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.support.eventually import eventually
from tests.unit.notify.making import is_running

from handoffd.notify.apprise import ARGV, MOST_BYTES, Worker, WorkerFailed
from handoffd.notify.apprise_worker import REQUIREMENT, _harmless, _pieces

ECHO = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    answer = {"pid": os.getpid(), "given": asked.get("say"), "environment": sorted(os.environ)}
    print(json.dumps(answer), flush=True)
"""
PYTHON = (sys.executable, "-I", "-S", "-c")
HANG = 'sleep 1000 & echo "$$ $!" > "$1"; wait'


@asynccontextmanager
async def worker(*argv: str) -> AsyncIterator[Worker]:
    """Lend a worker, and end its processes."""
    one = Worker(argv, {"PATH": "/bin:/usr/bin"})
    try:
        with anyio.fail_after(60):
            yield one
    finally:
        one.close()


@asynccontextmanager
async def hanging(note: Path) -> AsyncIterator[Worker]:
    """Lend a worker that never answers and has a child; both must be gone after the block."""
    async with worker("/bin/sh", "-c", HANG, "sh", str(note)) as one:
        yield one
        leader, child = pids_in(note)
        await eventually(lambda: is_reaped(leader) and not is_running(child))


def pids_in(note: Path) -> list[int]:
    """Return the two process ids of `HANG`; none before it has written them."""
    found = note.read_text().split() if note.exists() else []
    return [int(pid) for pid in found] if len(found) == 2 else []


def is_reaped(pid: int) -> bool:
    """Return whether no such process exists, not even a dead one."""
    return not Path(f"/proc/{pid}").exists()


async def test_one_process_answers_one_request_after_the_other() -> None:
    """It starts with the first, in the given environment, and is reaped when it is closed."""
    async with worker(*PYTHON, ECHO) as one:
        assert not one.running
        answers = [await one.ask({"say": text * 9_000}, 60) for text in ("a", "擷")]

        assert ["a" * 9_000, "擷" * 9_000] == [answer["given"] for answer in answers]
        assert 1 == len({answer["pid"] for answer in answers})
        assert {"PATH"} >= set(answers[0]["environment"]) - {"LC_CTYPE"}
        assert one.running
        one.close()
        await eventually(lambda: is_reaped(answers[0]["pid"]))
        assert answers[0]["pid"] != (await one.ask({}, 60))["pid"]


async def test_requests_wait_for_each_other() -> None:
    """No caller gets another's answer, or ends the worker before it."""
    async with worker(*PYTHON, ECHO) as one:
        answers: list[int] = []

        async def ask(number: int) -> None:
            answers.append((await one.ask({"say": number}, 60))["given"] - number)
            one.close()

        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(ask, number)

        assert [0] * 5 == answers


async def test_a_worker_that_hangs_is_killed_with_its_children_at_the_limit(tmp_path: Path) -> None:
    """The next request starts a new one."""
    async with hanging(tmp_path / "pids") as one:
        with pytest.raises(WorkerFailed, match=r"within 3 s"):
            await one.ask({}, 3)

        assert not one.running


async def test_a_cancelled_request_leaves_no_process(tmp_path: Path) -> None:
    """The daemon stops."""
    note = tmp_path / "pids"
    async with hanging(note) as one, anyio.create_task_group() as tasks:
        tasks.start_soon(one.ask, {}, 60)
        await eventually(lambda: pids_in(note))
        tasks.cancel_scope.cancel()


async def test_a_worker_that_is_killed_is_reported_with_the_signal(tmp_path: Path) -> None:
    """Its children are killed, too."""
    note = tmp_path / "pids"
    async with hanging(note) as one:
        failures: list[str] = []

        async def ask() -> None:
            with pytest.raises(WorkerFailed) as caught:
                await one.ask({}, 60)
            failures.append(str(caught.value))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            leader, child = await eventually(lambda: pids_in(note))
            os.kill(leader, signal.SIGKILL)
            os.kill(child, 0)
            await eventually(lambda: failures or not is_running(child))
            if not failures:
                os.kill(child, 0)
        assert ["it ended without an answer (signal 9)"] == failures


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise SystemExit(3)", "exit code 3"),
        ("print('nonsense', flush=True); input()", "nonsense"),
        ("print('[]', flush=True); input(); input()", "nonsense"),
        ("input(); print('{', end='', flush=True)", "broke off"),
        (f"print('x' * {2 * MOST_BYTES}, flush=True); input(); input()", "too much"),
    ],
)
async def test_an_invalid_answer_is_a_failure(code: str, why: str) -> None:
    """The process is given up."""
    async with worker(*PYTHON, code) as one:
        with pytest.raises(WorkerFailed, match=why):
            await one.ask({}, 60)
        assert not one.running


async def test_a_missing_program_is_named() -> None:
    """It cannot be started."""
    with pytest.raises(WorkerFailed, match="/no/such cannot be started"):
        await Worker(("/no/such",), {}).ask({}, 60)


REPOSITORY = Path(__file__).parents[3]


def test_no_part_of_an_address_is_shown() -> None:
    """The log of apprise becomes one short line without them."""
    secrets = _pieces("tgram://123456:ABC-key/chat1?x=query&pass=p%40ss%2Fword")
    told = (
        "2026-01-31 22:15:09,123 - WARNING - Failed to send to 123456:ABC-key/chat1\n"
        "2026-01-31 22:15:10,123 - WARNING - query of p@ss/word, error=401.\n" + "x" * 999
    )

    shown = _harmless(told, secrets)
    assert shown.startswith("Failed to send to ")
    assert "error=401" in shown
    assert not [key for key in ("123456", "ABC-key", "chat1", "query", "p@ss", "word") if key in shown]
    assert len(shown) <= 300


def test_the_requirement_to_install_is_the_one_of_the_extra() -> None:
    """People copy the command of the error."""
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert [REQUIREMENT] == extras["apprise"]
    assert REQUIREMENT in extras["dev"]


def test_the_program_answers_nonsense_and_ends_with_its_input() -> None:
    """So it ends with its daemon; an address that apprise does not know is reported by its number."""
    program = subprocess.Popen(ARGV, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(b'nonsense\n{"urls": ["nosuch://key"], "check": true}\n')
    program.stdin.flush()

    assert {"error": "apprise failed (JSONDecodeError)"} == json.loads(program.stdout.readline())
    unusable = [{"number": 1, "why": "apprise does not know such an address"}]
    assert {"taken": [], "failed": [], "unusable": unusable} == json.loads(program.stdout.readline())
    program.stdin.close()
    assert 0 == program.wait(timeout=60)
    program.stdout.close()
