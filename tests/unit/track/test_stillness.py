"""Signs of life of an executor, and the background work of an idle program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.support.eventually import eventually
from tests.support.house import House, at, dispatch_of
from tests.support.runs import run_spec

from handoffd.engine.track import Dispatch
from handoffd.execute.base import Vitals
from handoffd.execute.executor import Executor, Idle
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.execute.runner.proc_probe import Received
from handoffd.execute.witness import ALONE
from handoffd.protocol.handoff import HandoffMark, Reading
from handoffd.track.ai_folder import HandoffFiles
from handoffd.track.attempts import content_bytes, is_at_rest, until_settled

BEFORE = Vitals(output_bytes=10, cpu_s=1.0, written_bytes=20_000, stored_bytes=8192)


@pytest.mark.parametrize(
    ("after", "rests"),
    [
        (BEFORE, True),
        (replace(BEFORE, cpu_s=1.1), True),  # 1 % of ten seconds
        (replace(BEFORE, written_bytes=24_000), True),  # threads that wake each other
        (replace(BEFORE, output_bytes=11), False),
        (replace(BEFORE, heard_ns=1), False),  # output that is not kept
        (replace(BEFORE, received=(Received(7, 500, 2),)), False),
        (replace(BEFORE, received=(Received(7, 120, 2),)), True),  # pings
        (replace(BEFORE, stored_bytes=12_288), False),
        (replace(BEFORE, written_bytes=40_000), False),
        (replace(BEFORE, cpu_s=1.5), False),
        (replace(BEFORE, cpu_s=0.2), False),  # a process that had used the time has ended
        (replace(BEFORE, written_bytes=0), False),
    ],
)
def test_each_sign_of_life_is_enough(after: Vitals, rests: bool) -> None:
    """Output, files, writing and computing; the background work of a runtime is none."""
    assert rests is is_at_rest(BEFORE, after, 10, Idle())


def test_a_short_burst_in_a_long_silence_is_silence() -> None:
    """A garbage collection or a renewed lease is not work: the share of the whole time counts."""
    burst = replace(BEFORE, cpu_s=2.0)
    assert not is_at_rest(BEFORE, burst, 30, Idle())
    assert is_at_rest(BEFORE, burst, 300, Idle())


def test_received_bytes_beyond_pings_are_content() -> None:
    """Per connection since the last look; a closed or reopened one subtracts nothing."""
    before = replace(BEFORE, received=(Received(1, 1000, 10), Received(2, 50_000, 40), Received(3, 9, 1)))
    after = replace(BEFORE, received=(Received(1, 1640, 20), Received(3, 4, 1), Received(4, 464, 1)))

    assert 400 == content_bytes(before, after, Idle(ping=64))


def test_a_database_written_once_a_minute_is_not_work() -> None:
    """However short the interval that contains the write."""
    tidied = replace(BEFORE, stored_bytes=8192 + 60_000)

    assert is_at_rest(BEFORE, tidied, 1, Idle(stored=1024))
    assert not is_at_rest(BEFORE, tidied, 1, Idle(stored=512))


BOOK = load_book(shipped_layer())
CLAUDE, CODEX, GEMINI, OPENCODE = (BOOK.get(name) for name in ("claude", "codex", "gemini", "opencode"))


@pytest.mark.parametrize(
    ("executor", "cpu", "written", "stored", "ping"),
    [
        (CLAUDE, 0.0053, 8, 0, 0),
        (CLAUDE, 0.0213, 40, 0, 36),
        (CODEX, 0.0007, 7, 24_576, 0),
        (CODEX, 0.0007, 7, 24_576, 14),
        (GEMINI, 0.0020, 8, 0, 14),
        (OPENCODE, 0.0187, 14, 65_536, 0),
        (OPENCODE, 0.0567, 30, 32_768, 14),
    ],
)
def test_measured_idle_clis_are_idle(
    executor: Executor, cpu: float, written: int, stored: int, ping: int
) -> None:
    """Rates per second, the largest write in a minute, and two encrypted pings a second."""
    for seconds in (30, 60, 600):
        pings = Received(7, 2 * seconds * (ping + TLS), 2 * seconds) if ping else Received(7, 0, 0)
        after = replace(
            BEFORE,
            cpu_s=1 + cpu * seconds,
            written_bytes=20_000 + written * seconds,
            stored_bytes=8192 + stored * max(1, seconds // 60),
            received=(pings,),
        )
        assert is_at_rest(BEFORE, after, seconds, executor.idle), seconds


TLS = 28
"""Bytes that encryption and framing add to a ping."""


@pytest.mark.parametrize(("executor", "token"), [(CODEX, 189), (OPENCODE, 210)])
@pytest.mark.parametrize("tls", [0, TLS])
def test_a_word_every_twenty_seconds_is_a_sign_of_life(executor: Executor, token: int, tls: int) -> None:
    """As measured between two looks, with a few pings. Other CLIs print each word."""
    received = Received(7, token + tls + 2 * (14 + tls), 3)

    assert not is_at_rest(BEFORE, replace(BEFORE, received=(received,)), 30, executor.idle)


# --- an executor that has handed over and is idle counts as finished, even if its process stays ---
PASS = "---\nstep: bdd\nstatus: pass\n---\n"


class Looks(HandoffFiles):
    """Counts the looks."""

    looks = 0

    def read(self, dispatch: Dispatch, keep_in: Path | None = None) -> tuple[Reading, HandoffMark]:
        """Count, and look."""
        self.looks += 1
        return super().read(dispatch, keep_in)

    async def two_more_looks(self) -> None:
        """Return after the current files were read and judged."""
        enough = self.looks + 2
        await eventually(lambda: self.looks >= enough)


async def test_an_idle_executor_settles_after_a_valid_handoff(here: House, root: str, tmp_path: Path) -> None:
    """Idleness alone is not enough: an agent may wait for its model."""
    async with anyio.create_task_group() as tasks:
        run = await here.services.launcher.start(tmp_path / "d1", run_spec(tmp_path, "d1", "sleep", "600"))
        handoffs, settled = Looks(root), anyio.Event()

        async def wait() -> None:
            await until_settled(run, dispatch_of(), handoffs, here.clock, 0.2, witness=ALONE, idle=Idle())
            settled.set()

        tasks.start_soon(wait)
        for text in ("---\nstep: bdd\nstat", "no front matter, which only an exit can judge"):
            at(root, ".ai/HANDOFF.md").write_text(text)
            here.clock.ahead_s += 100
            await handoffs.two_more_looks()
        assert not settled.is_set()

        at(root, ".ai/HANDOFF.md").write_text(PASS)
        await eventually(settled.is_set)
        run.stop()
