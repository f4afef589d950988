"""Executors as live processes: started, followed to their end, stopped; each end told as a fact."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs
from tests.support.eventually import eventually
from tests.support.house import HAND_OVER, House, at, dispatch_of, house, make_project, track_of
from tests.support.runs import processes
from tests.unit.capacity.test_descriptors import room_for

from handoffd.engine.decision import Spawn
from handoffd.engine.events import Event, ExecutorExited, ExecutorStarted, HandoffSettled, SpawnRefused
from handoffd.engine.run import End
from handoffd.engine.track import StopReason, TrackKey
from handoffd.execute.base import EXIT, ExitRecord, RunSpec
from handoffd.execute.executor import LadderRung
from handoffd.execute.run import Run
from handoffd.execute.runner import proc
from handoffd.project.project import Project
from handoffd.protocol.handoff import Absent, Found
from handoffd.protocol.state import Status
from handoffd.track.attempts import Attempts, PassingShortageError, ended_at

ORDER = Spawn(dispatch="d1", executor="agent", story="US-001", step="bdd", attempt=2, timeout_min=1)


class Play:
    """The attempts of one project, and the facts they handed in."""

    def __init__(self, here: House, root: str) -> None:
        self.facts: list[Event] = []
        home = Project(root, here.services, ())
        self.attempts = Attempts(TrackKey(root), home, here.services, self.facts.append)
        self._run_dir = here.services.run_dir("d1")

    async def run(
        self,
        order: Spawn = ORDER,
        meanwhile: Callable[[], None] = lambda: None,
        stop: StopReason | None = None,
    ) -> list[Event]:
        """Start an executor, follow it to its end, and return the facts; `stop` is why it was to end."""
        self._run_dir.mkdir(exist_ok=True)
        (self._run_dir / "prompt.md").write_text("Do it.")
        run = await self.attempts.execute(order)
        if isinstance(run, SpawnRefused):
            return [run]
        meanwhile()
        with anyio.fail_after(60):
            await self.attempts.follow(
                "d1", run, lambda: track_of(Status.RUNNING, dispatch=dispatch_of(attempt=2, stop=stop))
            )
        return self.facts


async def test_an_attempt_is_told_from_its_start_to_what_it_left(tmp_path: Path) -> None:
    """The hand-off is read after the last process, and a copy is kept."""
    async with house(tmp_path, f"echo $$ > pid\n{HAND_OVER}") as here:
        root = make_project(tmp_path)
        started, ended = await Play(here, root).run()

        assert isinstance(started, ExecutorStarted)
        assert at(root, "pid").read_text() == f"{started.pid}\n"  # the agent's own, not its shim's
        assert isinstance(ended, ExecutorExited)
        assert (0, "itself") == (ended.exit.code, ended.exit.by)
        assert isinstance(ended.reading, Found)
        assert ended.mark.handoff is not None
        assert (here.services.run_dir("d1") / "HANDOFF.md").exists()


async def test_people_are_told_of_what_outlives_a_run(tmp_path: Path) -> None:
    """Nobody of this account can end it, and it may still change files."""
    async with house(tmp_path) as here, anyio.create_task_group() as tasks:
        play = Play(here, make_project(tmp_path))
        tasks.start_soon(here.services.notifier.run, lambda _: None)

        await play.attempts.report(
            "d1", ExitRecord(run_id="d1", code=0, survived=2), lambda: track_of(Status.PENDING)
        )

        (told,) = await eventually(lambda: here.told.notices)
        assert ("warning", True) == (told.kind, "2 of d1 could not be ended" in (told.why or ""))
        tasks.cancel_scope.cancel()


async def test_an_executor_is_told_what_it_works_on_and_nothing_of_ours(tmp_path: Path) -> None:
    """The environment is rebuilt from the allow-list."""
    async with house(tmp_path, "env > seen; pwd >> seen") as here:
        root = make_project(tmp_path)
        await Play(here, root).run()

        seen = at(root, "seen").read_text()
        told = [line for line in sorted(seen.splitlines()) if line.startswith("HANDOFFD_")]
        assert ["HANDOFFD_ATTEMPT=2", "HANDOFFD_RUN=d1", "HANDOFFD_STEP=bdd", "HANDOFFD_STORY=US-001"] == told
        assert "s3cret" not in seen
        assert root in seen.splitlines()


async def test_an_executor_has_the_limits_of_the_settings(tmp_path: Path) -> None:
    """As they are when it begins; what looks after it sets them."""
    async with house(tmp_path, memory_max="512M", tasks_max=99) as here:
        await Play(here, make_project(tmp_path)).run()

        spec = RunSpec.from_json((here.services.run_dir("d1") / "spec.json").read_text())
        assert (512 << 20, 99) == (spec.memory_max, spec.tasks_max)


async def test_an_end_without_a_handoff_carries_the_last_lines(tmp_path: Path) -> None:
    """They become last_error."""
    async with house(tmp_path, "echo no quota >&2; exit 3") as here:
        ended = (await Play(here, make_project(tmp_path)).run())[-1]

        assert isinstance(ended, ExecutorExited)
        assert (3, "no quota\n", Absent()) == (ended.exit.code, ended.exit.tail, ended.reading)
        assert "no quota" == ended.exit.line


async def test_a_run_is_dated_by_its_records_and_not_by_who_reads_them(tmp_path: Path) -> None:
    """A daemon that was away for an hour tells when it began and ended, not when it came back."""
    before = time.time_ns()
    async with house(tmp_path, "exit 3") as here:
        began, ended = await Play(here, make_project(tmp_path)).run()
        record = ExitRecord.from_json((here.services.run_dir("d1") / EXIT).read_text())
        now = here.clock.now()
    assert isinstance(began, ExecutorStarted)
    assert isinstance(ended, ExecutorExited)
    assert record.ended_ns is not None
    assert before < record.ended_ns < time.time_ns()
    assert ended_at(record) == ended.exit.at
    assert began.at is not None
    assert began.at < now


@pytest.mark.parametrize(
    ("flag", "words"), [("true", "it reported: no credit"), ("false", "it said: no credit")]
)
async def test_the_end_of_a_stream_is_told_in_words(tmp_path: Path, flag: str, words: str) -> None:
    """A line of JSON is for programs: what people are to read is taken out of it."""
    said = f'echo \'{{"type":"result","is_error":{flag},"result":"no credit","usage":{{}}}}\''
    async with house(tmp_path, said) as here:
        executors = here.services.executors.executors
        stream = {"output": "stream-json", "stream": executors["claude"].stream}
        executors["agent"] = executors["agent"].model_copy(update=stream)  # type: ignore[index]

        ended = (await Play(here, make_project(tmp_path)).run())[-1]

        assert isinstance(ended, ExecutorExited)
        assert (words, flag == "true") == (ended.exit.tail, ended.exit.stream_error)


async def test_what_a_plain_agent_printed_is_quoted_harmless(tmp_path: Path) -> None:
    """It goes into STATE.json, notices and the next prompt; nothing there may drive a terminal."""
    async with house(tmp_path, "printf '\\033[31mno\\033[0m quota\\n' >&2; exit 3") as here:
        ended = (await Play(here, make_project(tmp_path)).run())[-1]

        assert isinstance(ended, ExecutorExited)
        assert "\N{REPLACEMENT CHARACTER}[31mno\N{REPLACEMENT CHARACTER}[0m quota\n" == ended.exit.tail


async def test_an_order_given_twice_starts_one_process(tmp_path: Path) -> None:
    """After a crash the same order finds the same run, over or not."""
    async with house(tmp_path, f"echo x >> starts\n{HAND_OVER}") as here:
        root = make_project(tmp_path)
        await Play(here, root).run()
        again = await Play(here, root).run()

        assert "x\n" == at(root, "starts").read_text()
        assert isinstance(again[-1], ExecutorExited)
        assert 0 == again[-1].exit.code


@pytest.mark.parametrize("program", ["/nowhere/agent", "unknown"])
async def test_what_cannot_be_started_is_refused(tmp_path: Path, program: str) -> None:
    """A missing program, an unknown executor: both are faults of the environment."""
    async with house(tmp_path) as here:
        executors = here.services.executors.executors
        missing = executors["agent"].model_copy(update={"argv": (program,)})
        executors["missing"] = missing  # type: ignore[index]
        name = "missing" if program.startswith("/") else program
        order = Spawn(dispatch="d1", executor=name, story=None, step="bdd", attempt=1, timeout_min=1)

        (refused,) = await Play(here, make_project(tmp_path)).run(order)

        assert isinstance(refused, SpawnRefused)
        assert program in refused.error
        assert program.startswith("/") or "; next: handoffd " in refused.error


async def test_a_start_without_descriptors_is_no_refusal(tmp_path: Path) -> None:
    """A refusal would be repeated three times, and then be a person's business."""
    async with house(tmp_path) as here:
        play = Play(here, make_project(tmp_path))
        with room_for(0), pytest.raises(PassingShortageError):
            await play.attempts.execute(ORDER)

        assert isinstance((await play.run())[-1], ExecutorExited)


async def test_a_stop_reaches_a_running_executor(tmp_path: Path) -> None:
    """By its records, so that an adopted one is reached as well; its end says that it was us."""
    async with house(tmp_path, "sleep 600") as here:
        root = make_project(tmp_path)
        other = Play(here, root)

        def end() -> None:
            other.attempts.stop("d1")

        ended = (await Play(here, root).run(meanwhile=end, stop=StopReason.TIMEOUT))[-1]

        assert isinstance(ended, ExecutorExited)
        assert "stop" == ended.exit.by


async def test_rest_after_a_handoff_is_told_while_the_process_stays(tmp_path: Path) -> None:
    """The engine then orders its end."""
    async with house(tmp_path, f"{HAND_OVER}\nsleep 600") as here, anyio.create_task_group() as tasks:
        play = Play(here, make_project(tmp_path))
        here.services.run_dir("d1").mkdir()
        (here.services.run_dir("d1") / "prompt.md").touch()
        run = await play.attempts.execute(ORDER)
        assert isinstance(run, Run)

        tasks.start_soon(play.attempts.settle, dispatch_of(attempt=2), run)
        settled = HandoffSettled(dispatch="d1", quiet_s=0.2)
        await eventually(lambda: play.facts == [settled])
        run.stop()


async def test_the_end_of_a_dispatch_that_was_judged_is_no_news(tmp_path: Path) -> None:
    """A restarted daemon finds records of attempts that are long over."""
    async with house(tmp_path) as here:
        play = Play(here, make_project(tmp_path))

        await play.attempts.report("d1", ExitRecord(run_id="d1", code=0), track_of)

        assert [] == play.facts


def is_stopped(pid: int) -> bool:
    """Tell whether a process stands still as somebody told it to."""
    seen = proc.stat(pid)
    return seen is not None and seen.state == "T"


async def test_a_shim_that_does_not_react_is_killed_in_the_end(tmp_path: Path) -> None:
    """After all it may rightly take by a clock that does not jump; what it looked after is ended, too."""
    async with house(tmp_path, "trap '' TERM; touch deaf; sleep 600") as here:
        root = make_project(tmp_path)
        play = Play(here, root)
        executors = here.services.executors.executors
        patient = {"ladder": (LadderRung(signal="TERM", grace_s=60), LadderRung(signal="KILL", grace_s=1))}
        executors["agent"] = executors["agent"].model_copy(update=patient)  # type: ignore[index]

        async def hang() -> None:
            await eventually(lambda: play.facts and at(root, "deaf").exists())
            shim = play.attempts.live["d1"].shim_pid
            play.attempts.stop("d1")
            os.kill(shim, signal.SIGSTOP)
            await eventually(lambda: is_stopped(shim))
            here.clock.jumped_s = 86_400
            play.attempts.end_overdue()
            assert is_stopped(shim)  # a process that is killed is woken for it
            here.clock.ahead_s += 200
            play.attempts.end_overdue()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hang)
            ended = (await play.run())[-1]

        assert isinstance(ended, ExecutorExited)
        assert "lost" == ended.exit.by
        await eventually(lambda: not processes(f"{tmp_path}/agent.sh"))  # killed, and gone a moment later


async def test_a_stop_wakes_a_shim_that_somebody_stopped(tmp_path: Path) -> None:
    """It hears nothing before it is continued."""
    async with house(tmp_path, "sleep 600") as here:
        play = Play(here, make_project(tmp_path))

        def stop() -> None:
            os.kill(play.attempts.live["d1"].shim_pid, signal.SIGSTOP)
            play.attempts.stop("d1")

        ended = (await play.run(meanwhile=stop, stop=StopReason.TIMEOUT))[-1]

        assert isinstance(ended, ExecutorExited)
        assert "stop" == ended.exit.by


async def test_the_end_of_an_executor_waits_for_a_project_that_was_moved_away(tmp_path: Path) -> None:
    """What it handed over lies in there, and is told nowhere else."""
    waiting = "touch works; until test -e go; do sleep 0.05; done"
    async with house(tmp_path, f"{waiting}\n{HAND_OVER}") as here:
        root, away = make_project(tmp_path), tmp_path / "away"
        play = Play(here, root)

        async def move() -> None:
            await eventually(at(root, "works").exists)
            shutil.move(root, away)
            (away / "go").touch()
            await eventually((here.services.run_dir("d1") / "exit.json").exists)
            with pytest.raises(AssertionError):  # that it is told while nobody can read what it left
                await eventually(lambda: len(play.facts) > 1, within_s=0.3)
            shutil.move(away, root)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(move)
            ended = (await play.run())[-1]

        assert isinstance(ended, ExecutorExited)
        assert isinstance(ended.reading, Found)


async def test_copies_that_cannot_be_kept_lose_no_result(tmp_path: Path) -> None:
    """They are for people."""
    async with house(tmp_path) as here:
        play = Play(here, make_project(tmp_path))
        (here.services.run_dir("d1") / "HANDOFF.md").mkdir(parents=True)

        with capture_logs() as logs:
            assert isinstance((await play.run())[-1], ExecutorExited)

        (kept,) = [entry for entry in logs if entry["event"] == "hand-off not kept"]
        assert ("warning", "no regular file") == (kept["log_level"], kept["error"][-15:])


@pytest.mark.parametrize("in_its_place", ["a file", "nothing"])
async def test_an_end_is_told_whatever_became_of_the_runs_own_folder(
    tmp_path: Path, in_its_place: str
) -> None:
    """The hand-off lies in the project, and the end is known; the rest is for people."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        play = Play(here, root)
        at(root, ".ai/HANDOFF.md").write_text("---\nstatus: pass\n---\n")
        if in_its_place == "a file":
            here.services.run_dir("d1").touch()

        with capture_logs() as logs:
            await play.attempts.report(
                "d1", ExitRecord(run_id="d1", code=0), lambda: track_of(dispatch=dispatch_of())
            )

        (ended,) = play.facts
        assert isinstance(ended, ExecutorExited)
        assert isinstance(ended.reading, Found)
        assert ["hand-off not kept"] == [entry["event"] for entry in logs]


async def test_a_program_that_is_not_there_is_told_apart(tmp_path: Path) -> None:
    """By the shim that could not start it; what else keeps a run from starting is not its fault."""
    async with house(tmp_path) as here:
        agent = here.services.executors.executors["agent"]
        gone = agent.model_copy(update={"argv": (str(tmp_path / "gone"),)})
        here.services.executors.executors["agent"] = gone  # type: ignore[index]

        (refused,) = await Play(here, make_project(tmp_path)).run()

        assert isinstance(refused, SpawnRefused)
        assert End.MISSING_BINARY is refused.end


async def test_an_executor_that_is_defined_no_more_is_told_apart(tmp_path: Path) -> None:
    """The settings have changed between the decision and the start."""
    async with house(tmp_path) as here:
        (refused,) = await Play(here, make_project(tmp_path)).run(replace(ORDER, executor="cluade"))

        assert isinstance(refused, SpawnRefused)
        assert End.MISSING_BINARY is refused.end


async def test_a_session_is_continued_where_the_argv_has_a_place_for_it(tmp_path: Path) -> None:
    """Without one the words around it are left out."""
    async with house(tmp_path, 'echo "$@" > words') as here:
        root = make_project(tmp_path)
        agent = here.services.executors.executors["agent"]
        resuming = agent.model_copy(update={"argv": (*agent.argv, ("--resume", "{session}"))})
        here.services.executors.executors["agent"] = resuming  # type: ignore[index]
        play = Play(here, root)

        await play.run(replace(ORDER, session="s1"))

        assert "--resume s1\n" == at(root, "words").read_text()
