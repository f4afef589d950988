"""Executors as live processes: started, followed to their end, stopped; each end becomes a fact."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs
from tests.support.eventually import eventually
from tests.support.house import HAND_OVER, House, at, dispatch_of, house, make_project, track_of
from tests.support.runs import processes
from tests.unit.capacity.test_machine import room_for

from handoffd.engine.decision import Spawn
from handoffd.engine.events import Event, ExecutorExited, ExecutorStarted, HandoffSettled, SpawnRefused
from handoffd.engine.run import End, Exit, Usage
from handoffd.engine.track import AgentSession, StopReason, TrackKey, Workspace
from handoffd.execute.base import EXIT, POSITION, SPEC, ExitRecord, RunSpec
from handoffd.execute.executor import LadderRung
from handoffd.execute.meter import Source
from handoffd.execute.registry import Layer, load_book, shipped_layer
from handoffd.execute.run import Run
from handoffd.execute.runner import capture, proc
from handoffd.execute.stream.line import StreamVerdict
from handoffd.execute.stream.reader import Seen
from handoffd.project.project import Project
from handoffd.protocol.handoff import Absent, Found
from handoffd.protocol.state import Status
from handoffd.track.attempts import Attempts, PassingShortageError, ended, ended_at, exit_of, source_of

ORDER = Spawn(dispatch="d1", executor="agent", story="US-001", step="bdd", attempt=2, timeout_min=1)


async def unmeasured(_: Path) -> None:
    """Find out nothing about what a step has changed."""


class Play:
    """The attempts of one project, and their facts."""

    def __init__(self, here: House, root: str, workspace: str | None = None) -> None:
        self.facts: list[Event] = []
        self.home, where = Project(root, here.services, ()), Workspace(folder=workspace or root)
        key = TrackKey(root)
        self.attempts = Attempts(key, self.home, here.services, self.facts.append, lambda: where, unmeasured)
        self._run_dir = here.services.run_dir("d1")

    async def run(
        self,
        order: Spawn = ORDER,
        meanwhile: Callable[[], None] = lambda: None,
        stop: StopReason | None = None,
    ) -> list[Event]:
        """Start an executor, follow it to its end, and return the facts; `stop` is the reason of a stop."""
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

    async def end(self, **how: Any) -> ExecutorExited:
        """Run an executor, and return its end."""
        ended = (await self.run(**how))[-1]
        assert isinstance(ended, ExecutorExited)
        return ended


def redefine(here: House, **changes: Any) -> None:
    """Change the definition of the agent."""
    executors = here.services.executors.executors
    executors["agent"] = executors["agent"].model_copy(update=changes)  # type: ignore[index]


async def test_an_attempt_yields_its_start_and_its_end(root: str, tmp_path: Path) -> None:
    """The hand-off is read after the last process, and copied; times come from the run's own records."""
    before = time.time_ns()
    own_pids = {"level": "off"}  # in a sandbox a process has another number for itself
    async with house(tmp_path, f"echo $$ > pid\n{HAND_OVER}", sandbox=own_pids) as here:
        started, ended = await Play(here, root).run()

        assert isinstance(started, ExecutorStarted)
        assert at(root, "pid").read_text() == f"{started.pid}\n"  # the agent's own, not its shim's
        assert started.at is not None
        assert started.at < here.clock.now()
        assert isinstance(ended, ExecutorExited)
        assert (0, "itself") == (ended.exit.code, ended.exit.by)
        assert isinstance(ended.reading, Found)
        assert ended.mark.handoff is not None
        assert (here.services.run_dir("d1") / "HANDOFF.md").exists()
        record = ExitRecord.from_json((here.services.run_dir("d1") / EXIT).read_text())
        assert record.ended_ns is not None
        assert before < record.ended_ns < time.time_ns()
        assert ended_at(record) == ended.exit.at


async def test_a_claimed_change_that_was_not_made_is_noted(root: str, tmp_path: Path) -> None:
    """Of the files that the hand-off names, by the time of their last change."""
    agent = """\
echo new > made.py
printf -- '---\\nstep: bdd\\ndispatch: d1\\nstatus: pass\\n' > .ai/new
printf -- 'files_changed: [made.py, kept.py]\\n---\\n' >> .ai/new
mv .ai/new .ai/HANDOFF.md
"""
    at(root, "kept.py").write_text("old")
    before = at(root, "kept.py").stat().st_ctime_ns
    await eventually(lambda: time.time_ns() > before + 50_000_000)  # clocks of files tick slowly
    async with house(tmp_path, agent) as here:
        ended = await Play(here, root).end()

        assert isinstance(ended.reading, Found)
        assert ("made.py", "kept.py") == ended.reading.handoff.files_changed
        assert ("kept.py",) == ended.untouched


async def test_a_process_that_survives_its_run_is_reported(here: House, root: str) -> None:
    """The daemon cannot end it, and it may still change files."""
    async with anyio.create_task_group() as tasks:
        play = Play(here, root)
        tasks.start_soon(here.services.notifier.run, lambda _: None)

        await play.attempts.report(
            "d1", ExitRecord(run_id="d1", code=0, survived=2), lambda: track_of(Status.PENDING)
        )

        (notice,) = await eventually(lambda: here.told.notices)
        assert ("warning", True) == (notice.kind, "2 of d1 could not be ended" in (notice.why or ""))
        tasks.cancel_scope.cancel()


async def test_an_executor_sees_its_task_and_no_secrets(root: str, tmp_path: Path) -> None:
    """Its environment is built from the allow-list; its shim sets the limits of the settings at its start."""
    async with house(tmp_path, "env > seen; pwd >> seen", memory_max="512M", tasks_max=99) as here:
        await Play(here, root).run()

        seen = at(root, "seen").read_text()
        told = [line for line in sorted(seen.splitlines()) if line.startswith("HANDOFFD_")]
        ours = {"ATTEMPT": "2", "RUN": "d1", "STEP": "bdd", "STORY": "US-001", "WORKSPACE": "0"}
        assert [f"HANDOFFD_{name}={value}" for name, value in ours.items()] == told
        assert "s3cret" not in seen
        assert root in seen.splitlines()
        spec = RunSpec.from_json((here.services.run_dir("d1") / "spec.json").read_text())
        assert (512 << 20, 99) == (spec.memory_max, spec.tasks_max)


@pytest.mark.parametrize(
    ("command", "tail"),
    [
        pytest.param("echo no quota", "no quota\n", id="plain"),
        pytest.param(
            "printf '\\033[31mno\\033[0m quota\\n'",
            "\N{REPLACEMENT CHARACTER}[31mno\N{REPLACEMENT CHARACTER}[0m quota\n",
            id="control sequences, which must not reach a terminal",
        ),
    ],
)
async def test_an_end_without_a_handoff_has_the_last_lines(
    root: str, tmp_path: Path, command: str, tail: str
) -> None:
    """They go into `last_error`, notices and the next prompt."""
    async with house(tmp_path, f"{command} >&2; exit 3") as here:
        ended = await Play(here, root).end()

        assert (3, tail, Absent(), tail.strip()) == (
            ended.exit.code, ended.exit.tail, ended.reading, ended.exit.line
        )  # fmt: skip


@pytest.mark.parametrize(
    ("flag", "words"), [("true", "it reported: no credit"), ("false", "it said: no credit")]
)
async def test_the_end_of_a_stream_is_quoted_as_text(
    root: str, tmp_path: Path, flag: str, words: str
) -> None:
    """People read the text inside a line of JSON."""
    said = f'echo \'{{"type":"result","is_error":{flag},"result":"no credit","usage":{{}}}}\''
    async with house(tmp_path, said) as here:
        redefine(here, output="stream-json", stream=here.services.executors.executors["claude"].stream)

        ended = await Play(here, root).end()

        assert (words, flag == "true") == (ended.exit.tail, ended.exit.stream_error)


async def test_a_repeated_order_starts_one_process(root: str, tmp_path: Path) -> None:
    """After a crash the same order finds the same run, ended or not."""
    async with house(tmp_path, f"echo x >> starts\n{HAND_OVER}") as here:
        await Play(here, root).run()
        again = await Play(here, root).end()

        assert ("x\n", 0) == (at(root, "starts").read_text(), again.exit.code)


@pytest.mark.parametrize("executor", ["agent", "unknown"], ids=["missing program", "unknown executor"])
async def test_a_start_without_a_program_is_refused(here: House, root: str, executor: str) -> None:
    """The shim reports a missing program; the settings may have changed since the decision."""
    redefine(here, argv=("/nowhere/agent",))

    (refused,) = await Play(here, root).run(replace(ORDER, executor=executor))

    assert isinstance(refused, SpawnRefused)
    assert End.MISSING_BINARY is refused.end
    assert ("/nowhere/agent" if executor == "agent" else "unknown") in refused.error
    assert executor == "agent" or "; next: handoffd " in refused.error


async def test_a_start_without_descriptors_can_be_repeated(here: House, root: str) -> None:
    """A refusal would count as a fault of the executor."""
    play = Play(here, root)
    with room_for(0), pytest.raises(PassingShortageError):
        await play.attempts.execute(ORDER)

    assert isinstance((await play.run())[-1], ExecutorExited)


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "suspended"])
async def test_a_stop_reaches_an_executor(root: str, tmp_path: Path, stopped: bool) -> None:
    """Through its records, so that an adopted one is reached as well; a suspended shim is continued."""
    async with house(tmp_path, "sleep 600") as here:
        play, other = Play(here, root), Play(here, root)

        def stop() -> None:
            if stopped:
                os.kill(play.attempts.live["d1"].shim_pid, signal.SIGSTOP)
            other.attempts.stop("d1")

        ended = await play.end(meanwhile=stop, stop=StopReason.TIMEOUT)

        assert "stop" == ended.exit.by


async def test_an_idle_process_after_a_handoff_is_a_fact(root: str, tmp_path: Path) -> None:
    """The engine then orders its end."""
    async with house(tmp_path, f"{HAND_OVER}\nsleep 600") as here, anyio.create_task_group() as tasks:
        play = Play(here, root)
        here.services.run_dir("d1").mkdir()
        (here.services.run_dir("d1") / "prompt.md").touch()
        run = await play.attempts.execute(ORDER)
        assert isinstance(run, Run)

        tasks.start_soon(play.attempts.settle, dispatch_of(attempt=2), run)
        settled = HandoffSettled(dispatch="d1", quiet_s=0.2)
        await eventually(lambda: play.facts == [settled])
        run.stop()


async def test_the_end_of_a_judged_dispatch_is_ignored(here: House, root: str) -> None:
    """A restarted daemon finds records of old attempts."""
    play = Play(here, root)

    await play.attempts.report("d1", ExitRecord(run_id="d1", code=0), track_of)

    assert [] == play.facts


def is_stopped(pid: int) -> bool:
    """Return whether a process is suspended."""
    seen = proc.stat(pid)
    return seen is not None and seen.state == "T"


async def test_a_hanging_shim_is_killed_after_its_time(root: str, tmp_path: Path) -> None:
    """By a clock that does not jump; its processes are ended, too."""
    async with house(tmp_path, "trap '' TERM; touch deaf; sleep 600") as here:
        play = Play(here, root)
        redefine(here, ladder=(LadderRung(signal="TERM", grace_s=60), LadderRung(signal="KILL", grace_s=1)))

        async def hang() -> None:
            await eventually(lambda: play.facts and at(root, "deaf").exists())
            shim = play.attempts.live["d1"].shim_pid
            play.attempts.stop("d1")
            os.kill(shim, signal.SIGSTOP)
            await eventually(lambda: is_stopped(shim))
            here.clock.jumped_s = 86_400
            play.attempts.end_overdue()
            assert is_stopped(shim)  # a KILL would have continued it
            here.clock.ahead_s += 200
            play.attempts.end_overdue()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hang)
            ended = await play.end()

        assert "lost" == ended.exit.by
        await eventually(lambda: not processes(f"{tmp_path}/agent.sh"))  # killed, and gone a moment later


@pytest.mark.parametrize("outside", [False, True], ids=["the project", "a workspace outside it"])
async def test_the_end_of_an_executor_waits_for_its_moved_folder(tmp_path: Path, outside: bool) -> None:
    """The hand-off is only there."""
    waiting = "touch works; until test -e go; do sleep 0.05; done"
    async with house(tmp_path, f"{waiting}\n{HAND_OVER}") as here:
        root, away = make_project(tmp_path), tmp_path / "away"
        folder = tmp_path / "clone" if outside else Path(root)
        (folder / ".ai").mkdir(parents=True, exist_ok=True)
        play = Play(here, root, str(folder))

        async def move() -> None:
            await eventually((folder / "works").exists)
            shutil.move(folder, away)
            (away / "go").touch()
            await eventually((here.services.run_dir("d1") / "exit.json").exists)
            with pytest.raises(AssertionError):  # no end without a readable hand-off
                await eventually(lambda: len(play.facts) > 1, within_s=0.3)
            shutil.move(away, folder)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(move)
            ended = await play.end()

        assert isinstance(ended.reading, Found)


async def test_a_result_counts_without_its_copy(here: House, root: str) -> None:
    """The copy is only for people."""
    play = Play(here, root)
    (here.services.run_dir("d1") / "HANDOFF.md").mkdir(parents=True)

    with capture_logs() as logs:
        assert isinstance((await play.run())[-1], ExecutorExited)

    (kept,) = [entry for entry in logs if entry["event"] == "hand-off not kept"]
    assert ("warning", "not a regular file") == (kept["log_level"], kept["error"][-18:])


@pytest.mark.parametrize("in_its_place", ["a file", "nothing"])
async def test_an_end_counts_without_the_folder_of_its_run(here: House, root: str, in_its_place: str) -> None:
    """The hand-off is in the project, and the end is known."""
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


async def test_a_session_is_continued_where_the_argv_has_a_place_for_it(root: str, tmp_path: Path) -> None:
    """Otherwise its words are left out."""
    async with house(tmp_path, 'echo "$@" > words') as here:
        argv = here.services.executors.executors["agent"].argv
        redefine(here, argv=(*argv, ("--resume", "{session}")))

        await Play(here, root).run(replace(ORDER, session="s1"))

        assert "--resume s1\n" == at(root, "words").read_text()


# --- the facts from the output of a run -------------------------------------------------------------
def test_an_exit_has_everything_from_its_record_and_stream() -> None:
    """Signal, times, tail, session and usage; its date is the record's, however late it is read."""
    record = ExitRecord(
        run_id="d1", signal=9, by="deadline", seconds=2.5, tail="bye", ended_ns=1_769_897_709_500_000_000
    )
    seen = Seen(session="s-1", usage=Usage(output_tokens=7), result=StreamVerdict(is_error=True, error="no"))
    told = exit_of(record, tail="a\nit said: bye\n", seen=seen)

    assert (None, 9, "deadline", "a\nit said: bye\n", "it said: bye", 2.5, True) == (
        told.code, told.signal, told.by, told.tail, told.line, told.seconds, told.stream_error
    )  # fmt: skip
    assert ("s-1", Usage(output_tokens=7)) == (told.session, told.usage)
    assert datetime(2026, 1, 31, 22, 15, 9, 500_000, tzinfo=UTC) == told.at
    bare = exit_of(ExitRecord(run_id="d1", code=1), tail="")  # shims of earlier releases record no time
    assert (None, None, None) == (bare.at, bare.session, bare.usage)


async def test_an_executor_removed_from_the_settings_is_judged_by_its_record(
    here: House, tmp_path: Path
) -> None:
    """Its output format is unknown."""
    gone = dispatch_of(executor="gone")
    assert None is source_of(track_of(dispatch=gone), str(tmp_path), here.services)
    told = ended(gone, ExitRecord(run_id="d1", code=3, tail="no quota"), None, here.services)
    assert Exit(code=3, tail="no quota", line="no quota") == told


async def test_every_end_has_a_class_and_a_cause(here: House, root: str) -> None:
    """Even without output. A stop without an order came from outside: a shutdown stops the shims last."""
    source = source_of(track_of(dispatch=dispatch_of()), root, here.services)
    codes = [
        ended(dispatch_of(), ExitRecord(run_id="d1", code=code), source, here.services) for code in (0, 1)
    ]
    assert [End.CLEAN, End.FAILED] == [exit_.end for exit_ in codes]
    stopped = ExitRecord(run_id="d1", signal=15, by="stop")
    orders = [dispatch_of(stop=stop) for stop in (None, StopReason.TIMEOUT)]
    assert ["outside", "stop"] == [ended(order, stopped, None, here.services).by for order in orders]


async def test_the_earlier_usage_of_a_continued_session_is_known(here: House) -> None:
    """Some agents count it again; another session has none."""
    used = Usage(output_tokens=7)
    last = AgentSession(step="bdd", executor="agent", id="s-1", used=used)
    sources = [
        source_of(
            track_of(dispatch=dispatch_of(session=session)).with_ledger(session=last), "/p", here.services
        )
        for session in ("s-1", "s-2", None)
    ]
    assert [used, None, None] == [source.before for source in sources if source is not None]


async def test_a_relative_limit_counts_from_the_agents_message(root: str, here: House) -> None:
    """A daemon may read it an hour later."""
    project = root
    dispatch = dispatch_of(executor="codex")
    source = source_of(track_of(dispatch=dispatch), project, here.services)
    assert source is not None
    source.run_dir.mkdir(parents=True)
    said_at = round(here.services.clock.now().timestamp()) - 3600
    record = printed(source, said_at, b"Error: hit your usage limit, try again in 2 hours")

    told = ended(dispatch, record, source, here.services)

    assert (End.LIMIT, datetime.fromtimestamp(said_at + 7200, UTC)) == (told.end, told.retry_at)


def printed(source: Source, at: int, text: bytes) -> ExitRecord:
    """Print `text` at second `at` like an agent, and return the record of its end."""
    place, output = source.run_dir / POSITION, capture.open_output(source.output, str(source.run_dir))
    position = os.open(place, os.O_WRONLY | os.O_CREAT, 0o600)
    kept = capture.Ring(output, position, 1000, 8000, remember=10)
    kept.write(memoryview(text))
    kept.close()
    os.utime(place, (at, at))
    return ExitRecord(run_id="d1", code=1, tail=text.decode(), output_bytes=len(text))


@pytest.mark.parametrize(("written", "end"), [(False, End.REFUSED), (True, End.FAILED)])
async def test_a_plain_text_refusal_counts_only_if_no_file_changed(
    here: House, root: str, written: bool, end: End
) -> None:
    """The output does not list the work; files of handoffd in .ai prove nothing."""
    project = Path(root)
    here.services.executors = load_book(
        shipped_layer(), Layer(file="settings", definitions={"own": {"extends": "command", "argv": ["own"]}})
    )
    dispatch = dispatch_of(executor="own")
    source = source_of(track_of(dispatch=dispatch), str(project), here.services)
    assert source is not None
    source.run_dir.mkdir(parents=True)
    ended_ns = time.time_ns() + 60_000_000_000
    record = dataclasses.replace(
        printed(source, round(ended_ns / 1e9), b"API Error: 403 no zebras\n"), ended_ns=ended_ns, seconds=30
    )
    if written:
        (project / "src").mkdir()
        (project / "src/shop.py").write_text("1\n")
        record = dataclasses.replace(record, seconds=120)

    assert end is ended(dispatch, record, source, here.services).end


# --- the sandbox --------------------------------------------------------------------------------------
async def test_a_run_gets_the_sandbox_of_its_daemon_its_project_and_its_executor(tmp_path: Path) -> None:
    """What hides the daemon and the other projects, and what lets in what the executor writes."""
    root = make_project(tmp_path, settings="sandbox: {network: none}\n")
    async with house(tmp_path, HAND_OVER, sandbox={"writable": [], "let_in": ["proxy"]}) as here:
        here.services.claims.take("a", "/srv/blog")
        here.services.claims.take("b", root)
        here.services.environment["HTTPS_PROXY"] = "http://proxy"
        redefine(here, writes=(str(tmp_path / "agent"), "~/.agent.json*"))
        play = Play(here, root)
        await play.home.files.refresh()

        await play.run()

        spec = RunSpec.from_json((here.services.run_dir("d1") / SPEC).read_text())
        assert spec.sandbox is not None
        assert ("auto", "none", root) == (spec.sandbox.level, spec.sandbox.network, spec.sandbox.workspace)
        own = {str(here.services.settings.state_dir), str(here.services.settings.runtime_dir)}
        assert own | {"/srv/blog"} <= set(spec.sandbox.hidden)
        assert root not in spec.sandbox.hidden
        assert str(tmp_path / "agent") in spec.sandbox.writable
        assert (f"{tmp_path}/.agent.json*",) == spec.sandbox.copied
        assert "http://proxy" == spec.env["HTTPS_PROXY"]
