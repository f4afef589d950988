"""What the sandbox costs a start: from the order to the program's first instruction, with and without it.

The two take turns under one launcher, so that a busy machine slows both alike. The plan is the one that a
daemon makes for an agent of an ordinary project.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import anyio
from tests.benchmarks.executor import build, stamps
from tests.benchmarks.measures import Summary, summary
from tests.benchmarks.rows import Row
from tests.support.runs import end_processes, run_spec

from handoffd.execute.process import Launcher
from handoffd.execute.run import Run
from handoffd.execute.sandbox.plan import Plan
from handoffd.execute.sandbox.planning import Subject, machine_of, plan, programs
from handoffd.settings.model import SandboxSettings

MORE_MS = 5.0
"""What a start may take longer, p50."""


def rows(base: Path, starts: int) -> list[Row]:
    """Return the figures of `starts` starts of each kind."""
    try:
        off, on = anyio.run(_measured, base, starts)
    finally:
        end_processes(base)
    return [
        Row(what="order → main(), sandbox off, p50", value=off.p50, unit="ms"),
        Row(what="order → main(), sandbox off, p99", value=off.p99, unit="ms"),
        Row(what="order → main(), in the sandbox, p50", value=on.p50, unit="ms"),
        Row(what="order → main(), in the sandbox, p99", value=on.p99, unit="ms"),
        Row(what="more, p50", value=round(on.p50 - off.p50, 3), unit="ms", at_most=MORE_MS),
    ]


async def _measured(base: Path, starts: int) -> tuple[Summary, Summary]:
    project, stub = base / "project", build(base)
    (project / ".ai").mkdir(parents=True)
    launcher = Launcher(base / "run" / "launcher.sock")
    laid = _plan(base, project, stub.argv)
    ordered: dict[str, float] = {}
    for number in range(starts + 1):  # the first of each is for warming up
        for kind, sandbox in (("off", None), ("on", laid)):
            run_id = f"{kind}-{number}"
            spec = run_spec(
                project,
                run_id,
                *stub.argv,
                env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "HANDOFFD_RUN": run_id},
                sandbox=sandbox,
            )
            ordered[run_id] = time.monotonic()
            run = await launcher.start(base / "runs" / run_id, spec)
            assert isinstance(run, Run)
            await run.wait()
    await launcher.retire()
    took = {stamp.run: stamp.started - ordered[stamp.run] for stamp in stamps(stub.log)}
    assert len(took) == len(ordered), "not every program began"
    kinds = ("off", "on")
    off, on = ([took[f"{kind}-{number}"] for number in range(1, starts + 1)] for kind in kinds)
    return summary(off), summary(on)


def _plan(base: Path, project: Path, argv: tuple[str, ...]) -> Plan:
    environment = {"PATH": os.environ["PATH"], "HOME": str(Path.home())}
    machine = machine_of(environment)
    subject = Subject(
        workspace=str(project),
        project=str(project),
        environment=environment,
        own=(str(base / "state"),),
        programs=programs(argv, environment, machine.homes),
    )
    settings = SandboxSettings(writable=(str(base),))
    made = plan(settings, subject, machine)
    assert made is not None
    return made
