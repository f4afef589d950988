"""Carrying out orders: each is harmless when it is repeated."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest
from tests.support.eventually import eventually
from tests.support.house import House, at, dispatch_of, house, make_project, track_of, unwritable
from tests.support.playbook import shipped_rules
from tests.support.runs import processes, run_spec
from tests.unit.journal.making import record
from tests.unit.track.test_checks import Yard

from handoffd.engine.decision import (
    AppendHistory,
    Effect,
    MeasureBaseline,
    Notify,
    RunChecks,
    Spawn,
    StopTree,
    WriteChecklist,
)
from handoffd.engine.events import (
    BaselineMeasured,
    ChecksFinished,
    Event,
    ExecutorExited,
    ExecutorStarted,
    HandoffSettled,
    SpawnRefused,
)
from handoffd.engine.track import Dispatch, Phase, StopReason, Track, TrackKey
from handoffd.project.files import ProjectFiles
from handoffd.protocol.rules import RuleBook
from handoffd.protocol.state import Status
from handoffd.track.interpreter import Interpreter

SPAWN = Spawn(dispatch="d1", executor="agent", story="US-001", step="bdd", attempt=1, timeout_min=1)
STOPPING = dispatch_of(phase=Phase.STOPPING, stop=StopReason.ABORT)
TELL = Notify(notice="done", story="US-001", step="done", text="US-001 is done")
BASELINE = MeasureBaseline(dispatch="d1", story="US-001")
CHECKS = RunChecks(
    dispatch="d1", story="US-001", step="bdd", attempt=1, tests="green", check_timeout_min=1,
    post_check=None, post_check_timeout_s=1,
)  # fmt: skip


class Box:
    """An inbox that records its facts, with or without a task group."""

    def __init__(self, track: Track, tasks: anyio.abc.TaskGroup | None) -> None:
        self.track = track
        self.facts: list[Event] = []
        self.busy = 0
        self.takes = anyio.Event()
        """Set while facts that must not be lost are taken at once."""
        self.takes.set()
        self._tasks = tasks

    def post(self, event: Event) -> None:
        """Record a fact."""
        self.facts.append(event)

    async def settle(self, event: Event) -> None:
        """Record a fact, and return when it is taken."""
        self.facts.append(event)
        await self.takes.wait()

    def begin(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start lasting work, if there is a task group."""
        if self._tasks is not None:
            self.busy += 1
            self._tasks.start_soon(self._do, work, name=name)

    async def _do(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await work()
        self.busy -= 1

    @property
    def lasting(self) -> bool:
        """Whether there is a loop."""
        return self._tasks is not None

    @property
    def rules(self) -> RuleBook:
        """The step table that ships."""
        return shipped_rules()


class Play:
    """The interpreter of one track."""

    def __init__(self, here: House, box: Box) -> None:
        self.box, self._here = box, here
        self.root = str(here.base / "shop")
        self.key = TrackKey(self.root)
        self.files = ProjectFiles(self.root, here.journal, here.clock)
        self.interpreter = Interpreter(self.key, Yard(self.files), here.services, box)

    async def order(self, effect: Effect) -> None:
        """Commit an order and perform it."""
        committed = await self._here.journal.commit(record(key=self.key, effects=(effect,)))
        await self.interpreter.perform(committed.effects[0])

    async def undone(self) -> int:
        """Return how many orders the next daemon would repeat."""
        return len(await self._here.journal.pending_effects())

    async def until_done(self) -> None:
        """Wait until every order is marked done."""
        with anyio.fail_after(60):
            while await self.undone():  # noqa: ASYNC110 - the journal sends no signal
                await anyio.sleep(0.01)


@asynccontextmanager
async def play(here: House, track: Track | None = None, *, loop: bool = True) -> AsyncIterator[Play]:
    """Lend the interpreter of a new project."""
    make_project(here.base)
    async with anyio.create_task_group() as tasks:
        yield Play(
            here, Box(track or track_of(Status.RUNNING, dispatch=dispatch_of()), tasks if loop else None)
        )
        tasks.cancel_scope.cancel()


def staged(here: House) -> None:
    """Write a prompt for d1."""
    here.services.run_dir("d1").mkdir()
    (here.services.run_dir("d1") / "prompt.md").touch()


async def test_a_start_is_done_once_the_process_runs(tmp_path: Path) -> None:
    """Before its end, which is a fact: from then on the run is found by its records."""
    async with house(tmp_path, "sleep 600") as here, play(here) as stage:
        staged(here)
        await stage.order(SPAWN)
        await eventually(lambda: [type(fact) for fact in stage.box.facts] == [ExecutorStarted])
        await stage.until_done()

        await stage.order(StopTree(dispatch="d1", why=StopReason.ABORT))

        await eventually(lambda: isinstance(stage.box.facts[-1], ExecutorExited))
        await stage.until_done()


@pytest.mark.parametrize(
    ("dispatch", "facts"),
    [
        pytest.param(None, [], id="from before a rollback"),
        pytest.param(STOPPING, [SpawnRefused], id="stopped before there was a process"),
    ],
)
async def test_an_outdated_order_starts_nothing(
    here: House, dispatch: Dispatch | None, facts: list[type[Event]]
) -> None:
    """It counts as done."""
    track = track_of(Status.RUNNING, dispatch=dispatch) if dispatch else track_of()
    async with play(here, track) as stage:
        await stage.order(SPAWN)

        await eventually(lambda: not stage.box.busy)
        assert (facts, 0) == ([type(fact) for fact in stage.box.facts], await stage.undone())
        assert not here.services.run_dir("d1").exists()


async def test_without_a_loop_lasting_work_is_left_for_the_daemon(here: House) -> None:
    """A verb without a daemon starts no executor and sends no notice; the orders stay."""
    async with play(here, loop=False) as stage:
        for effect in (SPAWN, TELL, WriteChecklist(story="US-001", task_type="story")):
            await stage.order(effect)

        assert 2 == await stage.undone()
        assert at(stage.root, ".ai/CHECKLIST.md").exists()
        assert [] == stage.box.facts


async def test_an_unrecorded_notice_is_not_done(here: House) -> None:
    """Nothing waits for it, and a crash does not lose it; it is sent with the id of its order."""
    async with play(here) as stage, anyio.create_task_group() as tasks:
        tasks.start_soon(here.services.notifier.run)
        with unwritable(here, "notices"):
            await stage.order(TELL)
            await anyio.wait_all_tasks_blocked()
            (order,) = await here.journal.pending_effects()

        (notice,) = await eventually(lambda: here.told.notices)
        assert notice.id.endswith(f"-{order.id}")
        assert ("US-001 is done", stage.root) == (notice.text, notice.project)
        await stage.until_done()
        tasks.cancel_scope.cancel()


async def test_an_unwritable_file_for_people_stops_nothing(here: House, tmp_path: Path) -> None:
    """The order for a checklist or the history counts as done."""
    async with play(here) as stage:
        at(stage.root, ".ai/history.md").symlink_to(tmp_path / "agent.sh")

        await stage.order(AppendHistory(text="\n### Reopen\n"))

        assert 0 == await stage.undone()
        assert "Reopen" not in (tmp_path / "agent.sh").read_text()


async def test_a_running_executor_is_adopted(here: House, tmp_path: Path) -> None:
    """By its records; it is not started again, and its end becomes a fact."""
    async with play(here) as stage:
        run = await here.services.launcher.start(
            here.services.run_dir("d1"), run_spec(tmp_path, "d1", "sleep", "600")
        )

        await stage.interpreter.rejoin()

        await eventually(lambda: ExecutorStarted in map(type, stage.box.facts))
        assert {"d1": run.pid} == {name: live.pid for name, live in stage.interpreter.attempts.live.items()}
        run.stop()
        await eventually(lambda: isinstance(stage.box.facts[-1], ExecutorExited))
        assert [] == processes(f"{tmp_path}/state/runs/d1")


async def test_an_adopted_executor_that_has_handed_over_is_watched_for_rest(
    here: House, tmp_path: Path
) -> None:
    """Its files do not change any more, so that no hint comes of them."""
    async with play(here) as stage:
        at(stage.root, ".ai/HANDOFF.md").write_text("---\nstep: bdd\nstatus: pass\n---\n")
        run = await here.services.launcher.start(
            here.services.run_dir("d1"), run_spec(tmp_path, "d1", "sleep", "600")
        )

        await stage.interpreter.rejoin()

        await eventually(lambda: HandoffSettled in map(type, stage.box.facts))
        run.stop()
        await eventually(lambda: isinstance(stage.box.facts[-1], ExecutorExited))


@pytest.mark.parametrize(
    "phase",
    [
        pytest.param(Phase.EXECUTING, id="its end was missed"),
        # A daemon killed between two commits leaves such a dispatch.
        pytest.param(Phase.STARTING, id="its start was missed, too"),
    ],
)
async def test_an_ended_run_is_found_at_the_next_start(here: House, tmp_path: Path, phase: Phase) -> None:
    """Its records have the exit code."""
    track = track_of(Status.RUNNING, dispatch=dispatch_of(phase=phase))
    async with play(here, track) as stage:
        spec = run_spec(tmp_path, "d1", "sh", "-c", "exit 7")
        await (await here.services.launcher.start(here.services.run_dir("d1"), spec)).wait()

        await stage.interpreter.rejoin()

        (fact,) = await eventually(lambda: stage.box.facts)
        assert isinstance(fact, ExecutorExited)
        assert 7 == fact.exit.code


async def test_a_run_without_records_is_lost(here: House) -> None:
    """After a restored journal its end is unknown; not if its start is ordered, which will find it."""
    async with play(here) as stage:
        await stage.interpreter.rejoin({"d1"})
        assert [] == stage.box.facts

        await stage.interpreter.rejoin()
        (fact,) = stage.box.facts
        assert isinstance(fact, ExecutorExited)
        assert "lost" == fact.exit.by


async def test_an_interrupted_stop_is_repeated(here: House, tmp_path: Path) -> None:
    """The former daemon may not have finished it."""
    async with play(here, track_of(Status.RUNNING, dispatch=STOPPING)) as stage:
        spec = run_spec(tmp_path, "d1", "sleep", "600")
        await here.services.launcher.start(here.services.run_dir("d1"), spec)

        await stage.interpreter.rejoin()

        await eventually(lambda: ExecutorExited in map(type, stage.box.facts))


async def test_a_stop_during_a_start_is_not_lost(tmp_path: Path) -> None:
    """The process is ended as soon as it can be."""
    async with house(tmp_path, "sleep 600") as here, play(here) as stage:
        staged(here)
        await stage.order(SPAWN)
        stage.box.track = track_of(Status.RUNNING, dispatch=STOPPING)

        await eventually(lambda: not stage.box.busy)

        assert isinstance(stage.box.facts[-1], ExecutorExited | SpawnRefused)


@pytest.mark.parametrize(
    ("phase", "order", "fact"),
    [(Phase.BASELINE, BASELINE, BaselineMeasured), (Phase.CHECKING, CHECKS, ChecksFinished)],
)
async def test_a_measurement_is_recorded_before_its_order_is_done(
    here: House, phase: Phase, order: Effect, fact: type[Event]
) -> None:
    """Killed in between, a daemon would leave a track that waits for a fact which nothing measures again."""
    async with play(here, track_of(Status.RUNNING, dispatch=dispatch_of(phase=phase))) as stage:
        at(stage.root, ".ai/handoffd.yaml").write_text(json.dumps({"test": {"command": ["true"]}}))
        await stage.files.refresh()
        stage.box.takes = anyio.Event()
        await stage.order(order)
        await eventually(lambda: [type(one) for one in stage.box.facts] == [fact])
        assert 1 == await stage.undone()

        stage.box.takes.set()
        await stage.until_done()


@pytest.mark.parametrize("order", [BASELINE, CHECKS])
async def test_a_finished_measurement_is_not_repeated(here: House, order: Effect) -> None:
    """Its order was not marked done; an executor may already work in the project."""
    async with play(here) as stage:
        await stage.order(order)

        await eventually(lambda: not stage.box.busy)
        assert ([], 0) == (stage.box.facts, await stage.undone())


async def test_an_order_not_marked_done_stops_nothing(tmp_path: Path) -> None:
    """The next daemon repeats it, and finds it done."""
    async with house(tmp_path, "sleep 600") as here, play(here) as stage:
        staged(here)
        with unwritable(here, "effects", "UPDATE"):
            await stage.order(SPAWN)
            await eventually(lambda: stage.box.facts)
            await stage.order(StopTree(dispatch="d1", why=StopReason.ABORT))

            await eventually(lambda: ExecutorExited in map(type, stage.box.facts))
            await eventually(lambda: not stage.box.busy)
        assert 2 == await stage.undone()
