"""One task reads the output of all running executors; it rests when there are none."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs
from tests.support.eventually import eventually
from tests.support.runs import end_processes, run_spec

from handoffd.capacity.meters import CpuClock, Meters, within_cpu
from handoffd.engine.run import Usage
from handoffd.execute.executor import Executor
from handoffd.execute.meter import Source, noted
from handoffd.execute.process import Launcher
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.execute.run import Run
from handoffd.execute.stream.reader import Seen

CLAUDE: Executor = load_book(shipped_layer()).get("claude")
LINE = json.dumps({
    "type": "assistant", "session_id": "s-1", "message": {
        "id": "m1", "content": [{"type": "text", "text": "Tea."}],
        "usage": {"input_tokens": 10, "output_tokens": 20},
    },
})  # fmt: skip


def source(tmp_path: Path, name: str = "d1", executor: Executor = CLAUDE) -> Source:
    """Return the place and format of a run's output."""
    output = run_spec(tmp_path, name, "true").output
    return Source(executor=executor, run_dir=tmp_path / name, output=output)


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Path]:
    """The folder of runs, which end with the test."""
    yield tmp_path
    end_processes(tmp_path)


async def talking(tmp_path: Path, name: str = "d1") -> Run:
    """Start a run that has printed a line and stays."""
    command = ("sh", "-c", f"echo '{LINE}'; exec sleep 600")
    launcher = Launcher(tmp_path / "launcher.sock")
    run = await launcher.start(tmp_path / name, run_spec(tmp_path, name, *command))
    await eventually(lambda: run.vitals().output_bytes > len(LINE))
    return run


@asynccontextmanager
async def running() -> AsyncIterator[Meters]:
    """Lend meters that look by themselves."""
    meters = Meters(every_s=0.01)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(meters.run)
        yield meters
        tasks.cancel_scope.cancel()


async def test_the_usage_of_runs_is_known_while_they_run(launched: Path) -> None:
    """At their end the rest is read, and they are forgotten; a stopping daemon saves it for the next one."""
    async with running() as meters:
        assert None is meters.live("d1")
        for name in ("d1", "d2", "d3"):
            await talking(launched, name)
            meters.begin(name, source(launched, name))

        used = Usage(input_tokens=10, output_tokens=20)
        await eventually(lambda: meters.usage() == {"d1": used, "d2": used, "d3": used})
        live = meters.live("d1")
        assert live is not None
        assert ("says Tea.", "s-1") == (live.seen.activity, live.seen.session)

        assert used == meters.finish("d1", source(launched)).usage
        meters.forget("d2")
        assert {"d3": used} == meters.usage()
    assert used == noted(launched / "d3").seen.usage


async def test_a_rebuilt_project_continues_its_meter(launched: Path) -> None:
    """Nothing is read twice."""
    await talking(launched)
    meters = Meters()
    for _ in range(2):
        meters.begin("d1", source(launched))
        await meters.look()
        assert 30 == meters.usage()["d1"].tokens


async def test_the_usage_of_a_missed_run_is_read_at_its_end(launched: Path) -> None:
    """It ended while no daemon ran."""
    run = await talking(launched)
    run.stop()
    await run.wait()

    assert 30 == Meters().finish("d1", source(launched)).usage.tokens


async def test_a_fault_in_reading_a_run_does_not_stop_the_others(launched: Path) -> None:
    """It is logged, and the end of the run is still judged."""
    await talking(launched)
    faulty, meters = source(launched, executor=CLAUDE.model_copy(update={"stream": "a fault"})), Meters()

    with capture_logs() as logs:
        meters.begin("d1", faulty)
        await meters.look()
        assert {} == meters.usage()
        assert Seen() == meters.finish("d1", faulty)
    assert ["error", "error"] == [entry["log_level"] for entry in logs]


# --- work with a limit of processor time ----------------------------------------------------------
async def test_results_and_errors_in_time_pass_through() -> None:
    """An error is not wrapped in a group."""
    assert 7 == await within_cpu(lambda _: 7, 60)
    with pytest.raises(ZeroDivisionError):
        await within_cpu(lambda _: 1 // 0, 60)


async def test_work_is_stopped_at_its_processor_time() -> None:
    """A slow machine only makes it later."""
    enough = threading.Event()

    def calculate(meter: CpuClock) -> None:
        meter.limit(0.05)
        while not enough.is_set():
            pass

    with pytest.raises(TimeoutError, match="processor time"):
        await within_cpu(calculate, 600)
    enough.set()


async def test_waiting_work_is_stopped_by_the_wall_clock() -> None:
    """It uses no processor time, and would block its caller forever."""
    enough = threading.Event()

    with pytest.raises(TimeoutError):
        await within_cpu(lambda _: enough.wait(60), 0.05)
    enough.set()


async def test_processor_time_before_the_limit_does_not_count() -> None:
    """Threads come from a pool, and work may begin with an unlimited part."""
    await within_cpu(lambda _: _burn(0.2), 60)

    assert 7 == await within_cpu(_rested, 60)


def _rested(meter: CpuClock) -> int:
    _burn(0.15)
    meter.limit(0.1)
    threading.Event().wait(0.15)
    return 7


def _burn(seconds: float) -> None:
    limit = time.thread_time() + seconds
    while time.thread_time() < limit:
        pass
