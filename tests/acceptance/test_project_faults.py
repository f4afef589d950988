"""What happens to one project's files and folders while it is worked on: it alone is concerned.

It is marked, a person gets a notice, and it recovers by itself when the cause is gone.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from tests.acceptance.test_journal import executing
from tests.support.agents import HELD, held_starts, lines, release, released, shim_of, shop
from tests.support.children import ending
from tests.support.daemon import Daemon, removed, running, sample
from tests.support.disks import read_only
from tests.support.eventually import eventually_sync
from tests.support.repositories import divided, git

from handoffd.execute.base import CLAIM, START, Claim, StartRecord
from handoffd.execute.runner import proc, records
from handoffd.protocol.state import Status, parse_state


@contextmanager
def directory_in_place(project: Path) -> Iterator[None]:
    """Put a directory where STATE.json belongs: it can be neither read nor replaced."""
    state = project / ".ai/STATE.json"
    state.rename(state.with_name("kept"))
    state.mkdir()
    try:
        yield
    finally:
        state.rmdir()


@pytest.mark.parametrize("broken", [read_only, directory_in_place])
def test_a_project_that_cannot_be_written_concerns_itself_alone(tmp_path: Path, broken: object) -> None:
    """It is marked, a notice names it, and it goes on by itself; no attempt is spent."""
    assert broken in (read_only, directory_in_place)
    spoil = read_only if broken is read_only else directory_in_place
    project, other = shop(tmp_path), shop(tmp_path / "b")
    with running(tmp_path, released(tmp_path)) as daemon:
        (tmp_path / "release").touch()
        daemon.verb("init", project)
        with spoil(project):
            daemon.verb("start", project, story="US-001")
            daemon.verb("start", other, story="US-002")

            daemon.wait_at(other, "review", "needs_human")
            eventually_sync(lambda: daemon.condition(project) == "io_error")
            assert "ok" == daemon.condition(other)
            # Reading and writing may fail one after the other, each in its own words.
            eventually_sync(lambda: {told["kind"] for told in daemon.told(project)} == {"blocked"})
            assert [] == lines(project, "starts.log")

        eventually_sync(lambda: daemon.condition(project) == "ok")
        daemon.verb("start", project, story="US-001")  # refused if it was taken before
        daemon.wait_at(project, "review", "needs_human")
        assert ["bdd 1"] == lines(project, "starts.log")
        assert "cannot be read or written" in daemon.told(project)[0]["text"]


@pytest.mark.parametrize("replaced", [False, True])
def test_an_ai_folder_that_goes_during_a_run_is_rebuilt(tmp_path: Path, replaced: bool) -> None:
    """From the journal; the executor runs on, its hand-off counts, and nothing runs twice."""
    project = shop(tmp_path)
    with running(tmp_path, released(tmp_path)) as daemon:
        daemon.started(project)
        before = (project / ".ai/STATE.json").read_text()
        table = (project / ".ai/step-rules.yaml").read_text()
        eventually_sync(lambda: removed(project / ".ai"))
        if replaced:
            (project / ".ai").mkdir()
            forged = before.replace('"running"', '"pass"')
            assert forged != before
            (project / ".ai/STATE.json").write_text(forged)

        eventually_sync((project / ".ai/STATE.json").exists)
        eventually_sync(
            lambda: parse_state((project / ".ai/STATE.json").read_text()).state.status is Status.RUNNING
        )
        (tmp_path / "release").touch()
        daemon.wait_for(project, lambda track: track["phase"] is None and track["step"] != "bdd")
        if not replaced:  # then all is gone that a person trusted, and that is in the journal, too
            assert table == (project / ".ai/step-rules.yaml").read_text()
        assert ["bdd 1"] == lines(project, "starts.log")
        assert [("bdd", 1, "pass")] == daemon.results(project)


def test_a_folder_that_is_moved_away_and_back_is_taken_up_by_itself(tmp_path: Path) -> None:
    """No verb is needed; one notice says that it is missing, when that has lasted."""
    project, away = shop(tmp_path), tmp_path / "away"
    with running(tmp_path, released(tmp_path, watch={"sweep_s": 0.5})) as daemon:
        daemon.started(project)
        project.rename(away)
        eventually_sync(lambda: daemon.condition(project) == "missing")
        (tmp_path / "release").touch()
        eventually_sync(lambda: any(daemon.state_dir.glob("runs/*/exit.json")))
        eventually_sync(lambda: daemon.told(project))
        away.rename(project)

        daemon.wait_at(project, "review", "needs_human")
        eventually_sync(lambda: daemon.condition(project) == "ok")
        assert ["the project's folder is gone; it goes on when it is back"] == [
            told["text"] for told in daemon.told(project) if told["kind"] == "blocked"
        ]
        assert ["bdd 1"] == lines(project, "starts.log")


def test_a_folder_that_is_made_in_its_place_is_not_the_project(tmp_path: Path) -> None:
    """An agent writes to absolute paths, its hand-off for one: nothing is judged or started there."""
    project, away = shop(tmp_path), tmp_path / "away"
    with running(tmp_path, released(tmp_path, watch={"sweep_s": 0.5})) as daemon:
        dispatch = daemon.started(project)["dispatch"]
        project.rename(away)
        (project / ".ai").mkdir(parents=True)
        handoff = f"---\nstep: bdd\ndispatch: {dispatch}\nstatus: pass\n---\n"
        (project / ".ai/HANDOFF.md").write_text(handoff)
        (tmp_path / "release").touch()

        eventually_sync(lambda: any(daemon.state_dir.glob("runs/*/exit.json")))
        told = eventually_sync(
            lambda: [told["why"] for told in daemon.told(project) if told["kind"] == "blocked"]
        )
        assert "another folder is at" in told[-1]
        assert ("missing", "running") == (daemon.condition(project), daemon.track(project)["status"])
        assert [".ai"] == [entry.name for entry in project.iterdir()]
        shutil.rmtree(project)
        away.rename(project)

        daemon.wait_at(project, "review", "needs_human")
        assert ["bdd 1"] == lines(project, "starts.log")


@contextmanager
def a_stranger() -> Iterator[subprocess.Popen[bytes]]:
    """Lend a process that has nothing to do with any run."""
    with ending(subprocess.Popen(["sleep", "600"])) as stranger:
        try:
            yield stranger
        finally:
            stranger.kill()


def test_a_stranger_with_a_runs_process_ids_is_left_alone(tmp_path: Path) -> None:
    """Neither adopted, nor stopped, nor swept up: the run is lost and repeated, at no cost."""
    project = shop(tmp_path)
    with running(tmp_path, released(tmp_path)) as daemon, a_stranger() as stranger:
        run_dir = daemon.state_dir / "runs" / daemon.started(project)["dispatch"]
        track = daemon.track(project)
        shim = shim_of(track["pid"])
        eventually_sync(lambda: ["bdd 1"] == lines(project, "starts.log"))  # else it may die before that
        daemon.kill()
        for process in [*(p for p in daemon.processes() if p.name() == "handoffd-launch"), shim]:
            process.kill()
        with suppress(psutil.NoSuchProcess):  # the launcher may have ended it just now
            psutil.Process(track["pid"]).kill()
        forge(run_dir, stranger.pid)

        daemon.start()
        eventually_sync(lambda: ["bdd 1", "bdd 1"] == lines(project, "starts.log"))
        forge(daemon.state_dir / "runs" / daemon.track(project)["dispatch"], stranger.pid, start_too=False)
        daemon.verb("abort", project)
        daemon.wait_at(project, "bdd", "needs_human")

        assert psutil.STATUS_SLEEPING == psutil.Process(stranger.pid).status()
        stranger.send_signal(signal.SIGUSR1)
        assert -signal.SIGUSR1 == stranger.wait(60)  # of anything else it would have died before


def forge(run_dir: Path, pid: int, *, start_too: bool = True) -> None:
    """Have the records of a run name a process that began at another time."""
    claim = Claim(pid=pid, started=proc.started(pid) - 1, boot_id=proc.boot_id())
    (run_dir / CLAIM).unlink()  # a link, whose target is the text
    records.claim(str(run_dir), CLAIM, claim.to_text())
    if start_too:
        record = StartRecord.from_json((run_dir / START).read_text())
        forged = StartRecord(
            **{name: getattr(record, name) for name in StartRecord.__dataclass_fields__}
            | {"pid": pid, "pid_started": proc.started(pid) - 1}
        )
        (run_dir / START).write_text(forged.to_json())


def test_at_the_limit_of_file_watches_changes_are_found_by_the_sweep(tmp_path: Path) -> None:
    """The status warns, and an edit is heard all the same."""
    project = shop(tmp_path)
    daemon = Daemon(tmp_path, released(tmp_path, watch={"sweep_s": 0.5}))
    try:
        daemon.start()
        daemon.verb("init", project)
        daemon.terminate()  # in a namespace of its own it cannot see who asks, and refuses every `add`
        daemon.prefix = in_a_house_of_its_own("echo 0 > /proc/sys/user/max_inotify_watches")
        daemon.start()
        warned = eventually_sync(lambda: daemon.view(project)["warnings"])
        assert "the limit of file watches is reached" in warned[0]
        assert "changes are seen by the sweep every 0.5 s" in warned[0]

        text = (project / ".ai/STATE.json").read_text()
        (project / ".ai/STATE.json").write_text(text.replace('"attempt": 1', '"attempt": 2'))
        daemon.wait_for(project, lambda track: track["attempt"] == 2)
        daemon.terminate()  # by a signal: it would refuse `stop`
    finally:
        daemon.close()


def in_a_house_of_its_own(command: str) -> tuple[str, ...]:
    """Return words that run what follows in a user namespace, after a command; skips where there is none."""
    prefix = ("unshare", "--user", "--map-root-user", "sh", "-c", f'{command} && exec "$@"', "sh")
    if subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("user namespaces are not allowed here; watch/test_watchfiles_backend.py has the limit")
    return prefix


def test_a_queue_that_overflows_is_followed_by_a_sweep(tmp_path: Path) -> None:
    """A real overflow: the daemon is stopped while more happens than the kernel keeps for it."""
    project, noisy = shop(tmp_path), shop(tmp_path / "b")
    queued = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if queued > 100_000:
        pytest.skip("the machine's queue is too long to be filled in a test")
    never = {"sweep_s": 600}
    with running(tmp_path, released(tmp_path, watch=never, schedule={"poll_s": 600})) as daemon:
        daemon.verb("init", project)
        daemon.verb("init", noisy)
        eventually_sync(lambda: daemon.condition(project) == "ok")
        text = (project / ".ai/STATE.json").read_text()
        os.kill(daemon.pid, signal.SIGSTOP)
        for number in range(queued // 2 + 100):  # two events each
            (noisy / f".ai/noise{number}").touch()
        # Written when the queue is full: the kernel reports it to no process.
        (project / ".ai/STATE.json").write_text(text.replace('"attempt": 1', '"attempt": 2'))
        os.kill(daemon.pid, signal.SIGCONT)

        eventually_sync(lambda: "many changes at once" in daemon.log())
        daemon.wait_for(project, lambda track: track["attempt"] == 2)


def test_nothing_is_dispatched_into_a_merge(tmp_path: Path) -> None:
    """Neither a person's nor one that an agent leaves behind; it goes on by itself when that is over."""
    project = divided(sample(tmp_path, executor="held"))
    with running(tmp_path, HELD) as daemon:
        git(project, "merge", "other")
        daemon.verb("start", project, story="US-001")
        eventually_sync(lambda: daemon.condition(project) == "unfinished_git")
        view = daemon.view(project)
        refused = daemon.verb("dispatch", project)
        assert "its repository is in the middle of a merge" == view["detail"]
        assert ("UNFINISHED_GIT", f"git -C {project} status") == (
            refused["code"], refused["hint"].partition("  #")[0]
        )  # fmt: skip
        eventually_sync(lambda: daemon.told_kinds(project) == ["blocked"])
        assert [] == held_starts(project)

        git(project, "merge", "--abort")
        first = executing(daemon, project, "bdd")
        git(project, "cherry-pick", "other")  # as an agent does that gives up before it has finished
        release(project, "bdd", "sdd-delta", "contract")
        eventually_sync(lambda: daemon.condition(project) == "unfinished_git")
        assert [first["dispatch"]] == held_starts(project)
        assert daemon.wait_at(project, "bdd", "pass")["dispatch"] is None

        git(project, "cherry-pick", "--abort")
        daemon.wait_at(project, "review", "needs_human")
        assert "ok" == daemon.condition(project)
        eventually_sync(
            lambda: ["needs_human"] == [one["kind"] for one in daemon.get("/v1/notices")["waiting"]]
        )
        assert len(set(held_starts(project))) == len(held_starts(project))
