"""All running executors are read along by one task, which rests when none runs."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
from structlog.testing import capture_logs
from tests.support.eventually import eventually
from tests.support.runs import end_processes, run_spec

from handoffd.capacity.meters import Meters
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
    """Return where the output of a run is, and how it is read."""
    output = run_spec(tmp_path, name, "true").output
    return Source(executor=executor, run_dir=tmp_path / name, output=output)


async def talking(tmp_path: Path, name: str) -> Run:
    """Start a run that says something, and stays."""
    launcher = Launcher(tmp_path / "launcher.sock")
    return await launcher.start(
        tmp_path / name, run_spec(tmp_path, name, "sh", "-c", f"echo '{LINE}'; exec sleep 600")
    )


async def test_runs_are_read_along_and_what_they_used_is_known(tmp_path: Path) -> None:
    """Until they are over; then the rest is read, and they are forgotten."""
    meters = Meters(every_s=0.01)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(meters.run)
        assert None is meters.live("d1")
        for name in ("d1", "d2"):
            await talking(tmp_path, name)
            meters.begin(name, source(tmp_path, name))

        used = Usage(input_tokens=10, output_tokens=20)
        await eventually(lambda: meters.usage() == {"d1": used, "d2": used})
        live = meters.live("d1")
        assert live is not None
        assert ("says Tea.", "s-1") == (live.seen.activity, live.seen.session)

        seen = meters.finish("d1", source(tmp_path))
        assert (used, None) == (seen.usage, meters.live("d1"))
        meters.forget("d2")
        assert {} == meters.usage()
        tasks.cancel_scope.cancel()
    end_processes(tmp_path)


async def test_begun_again_it_goes_on(tmp_path: Path) -> None:
    """A project that crashed follows its run anew; nothing is read twice."""
    await talking(tmp_path, "d1")
    meters = Meters()
    for _ in range(2):
        meters.begin("d1", source(tmp_path))
        await eventually((tmp_path / "d1" / "start.json").exists)
        await meters.look()
    await _looked(meters)
    assert 30 == meters.usage()["d1"].tokens
    end_processes(tmp_path)


async def _looked(meters: Meters) -> None:
    """Look until something was seen."""
    with anyio.fail_after(60):
        while not meters.usage()["d1"].tokens:
            await meters.look()
            await anyio.sleep(0.01)


async def test_a_daemon_that_stops_leaves_a_note(tmp_path: Path) -> None:
    """The next one, or whoever only looks, knows what this one knew."""
    await talking(tmp_path, "d1")
    meters = Meters(every_s=0.01)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(meters.run)
        meters.begin("d1", source(tmp_path))
        await eventually(lambda: meters.usage()["d1"].tokens == 30)
        tasks.cancel_scope.cancel()

    assert 30 == noted(tmp_path / "d1").seen.usage.tokens
    end_processes(tmp_path)


async def test_an_end_is_known_without_having_read_along(tmp_path: Path) -> None:
    """The run ended while no daemon was there."""
    run = await talking(tmp_path, "d1")
    await eventually(lambda: run.vitals().output_bytes > len(LINE))
    run.stop()
    await run.wait()

    seen = Meters().finish("d1", source(tmp_path))
    assert 30 == seen.usage.tokens
    end_processes(tmp_path)


async def test_what_cannot_be_understood_blinds_nobody(tmp_path: Path) -> None:
    """A fault of ours in reading one run: logged, the others are read, and its end is judged all the same."""
    faulty = CLAUDE.model_copy(update={"stream": "a fault"})
    run, meters = await talking(tmp_path, "d1"), Meters()
    await eventually(lambda: run.vitals().output_bytes > len(LINE))

    with capture_logs() as logs:
        meters.begin("d1", source(tmp_path, executor=faulty))
        await meters.look()
        assert {} == meters.usage()
        assert Seen() == meters.finish("d1", source(tmp_path, executor=faulty))
    assert ["error", "error"] == [entry["log_level"] for entry in logs]
    end_processes(tmp_path)
