"""The shim as a program of its own, without a launcher and without a daemon."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support.cgroups import little_memory
from tests.support.eventually import eventually_sync
from tests.support.runs import PYTHON, hydra_is_grown, printed, processes, run_spec, script

from handoffd.execute.base import Claim, ExitRecord, Rung, RunSpec, StartRecord
from handoffd.execute.output import output_bytes
from handoffd.execute.runner import proc, records, shim
from handoffd.files.locks import acquire_project, project_lock_path

MIB = 1024 * 1024
PROGRAM = (PYTHON, "-I", "-S", "-E", shim.__file__)


def specified(root: Path, spec: RunSpec) -> Path:
    """Return a new run directory with a specification in it."""
    run_dir = root / "state" / spec.run_id
    run_dir.mkdir(parents=True)
    records.write(str(run_dir), "spec.json", spec.to_json())
    return run_dir


def begin(root: Path, spec: RunSpec, *prefix: str) -> Path:
    """Start a shim for `spec` and return its run directory as soon as it has answered."""
    run_dir = specified(root, spec)
    subprocess.run([*prefix, *PROGRAM, str(run_dir)], check=True, stdout=subprocess.PIPE, timeout=60)
    return run_dir


def claim_of(run_dir: Path) -> Claim:
    """Return which process is the shim of the run."""
    return Claim.from_text(records.claimed(str(run_dir), "claim") or "")


def finish(run_dir: Path) -> ExitRecord:
    """Return the exit record, as soon as there is one and the shim is gone."""
    text = eventually_sync(lambda: records.read(str(run_dir), "exit.json"))
    claim = claim_of(run_dir)
    eventually_sync(lambda: not proc.is_running(claim.pid, claim.started, claim.boot_id))
    return ExitRecord.from_json(text or "")


def run(root: Path, *argv: str, **more: Any) -> ExitRecord:
    """Run `argv` to its end."""
    return finish(begin(root, run_spec(root, "r1", *argv, **more)))


@pytest.mark.parametrize("works_in", ["", "clone"], ids=["in the project", "in a clone"])
def test_a_run_is_seen_by_a_daemon_that_locks_its_project(root: Path, works_in: str) -> None:
    """As long as its shim lives, also once its output is open; its program holds nothing."""
    (folder := root / works_in).mkdir(exist_ok=True)
    path = project_lock_path(root / "locks", root)
    with acquire_project(path, root) as lock:
        assert lock.worker() is None
    waiting = ("sh", "-c", "until test -e go; do sleep 0.05; done")
    run_dir = begin(root, run_spec(root, "r1", *waiting, cwd=str(folder), project=str(root)))
    eventually_sync((root / "runs/r1/output.log").exists)

    with acquire_project(path, root) as lock:
        eventually_sync(lambda: lock.worker() == claim_of(run_dir).pid)
        (folder / "go").touch()
        finish(run_dir)
        assert lock.worker() is None


def test_exit_code_output_and_time_are_recorded(root: Path) -> None:
    """Both streams are kept in the order written, and the record says how it ended."""
    record = run(root, "sh", "-c", "echo out; echo err >&2; exit 3")

    assert (3, None, "itself", None) == (record.code, record.signal, record.by, record.spawn_error)
    assert "out\nerr\n" == record.tail == (root / "runs/r1/output.log").read_text()
    assert 8 == record.output_bytes
    assert 0 < record.seconds < 60
    assert None is record.output_error


@pytest.mark.parametrize("program", ["true", "no-such-program"])
def test_no_reserve_is_left_in_the_run_directory(root: Path, program: str) -> None:
    """Neither of a program that started nor of one that did not."""
    run_dir = begin(root, run_spec(root, "r1", program))
    finish(run_dir)

    assert [] == [name for name in os.listdir(run_dir) if name.endswith(".reserved")]


def test_death_by_signal_is_recorded_as_such(root: Path) -> None:
    """A signal is not an exit code, and a kill by the agent itself is not one for lack of memory."""
    record = run(root, "sh", "-c", "kill -KILL $$")

    assert (None, signal.SIGKILL, "itself") == (record.code, record.signal, record.by)
    assert not record.out_of_memory


def test_death_for_lack_of_memory_is_recognised(root: Path) -> None:
    """The signal is that of any kill; the kernel's counter makes the difference."""
    with little_memory(mib=32) as entrance:
        greedy = f"echo 0 > {entrance}; exec {PYTHON} -I -S -c 'bytearray(200 * 2**20)'"
        record = run(root, "sh", "-c", greedy)

    assert (signal.SIGKILL, True) == (record.signal, record.out_of_memory)


def test_stdin_comes_from_the_file_named(root: Path) -> None:
    """The prompt goes in as it is, also one that no command line would hold."""
    prompt = "請" * 100_000
    (root / "prompt.md").write_text(prompt)

    record = run(root, "wc", "-c", stdin=str(root / "prompt.md"))

    assert "300000" == record.tail.strip()


def test_environment_and_descriptors_are_exactly_the_given_ones(root: Path) -> None:
    """Nothing of ours leaks into the program."""
    listing = run(root, "sh", "-c", "cat /proc/self/environ; ls /proc/self/fd", env={"PATH": "/bin:/usr/bin"})

    environ, _, descriptors = listing.tail.rpartition("\0")
    assert "PATH=/bin:/usr/bin" in environ.split("\0")
    assert {"PATH", "PWD"} >= {entry.partition("=")[0] for entry in environ.split("\0")}
    assert ["0", "1", "2", "3"] == descriptors.split()  # 3 is the listing's own


@pytest.mark.parametrize(
    ("changes", "text", "no_program"),
    [
        ({"argv": "/no/such/program"}, "ENOENT: program '/no/such/program': No such file or directory", True),
        ({"argv": "{root}/locked"}, "EACCES: program '{root}/locked': Permission denied", True),
        ({"argv": "echo a\0b"}, "argument 1 of the program 'echo' holds a NUL character", False),
        ({"argv": "ec\0ho"}, r"the name of the program 'ec\x00ho' holds a NUL character", True),
        ({"cwd": "{root}/gone"}, "ENOENT: working directory '{root}/gone': No such file or directory", False),
        ({"stdin": "{root}/gone.md"}, "ENOENT: stdin '{root}/gone.md': No such file or directory", False),
    ],
)
def test_a_run_that_cannot_start_ends_with_the_reason(
    root: Path, changes: dict[str, str], text: str, no_program: bool
) -> None:
    """It has neither code nor signal, but a line with the reason."""
    (root / "locked").touch(mode=0o600)
    more = {name: value.format(root=root) for name, value in changes.items()}
    record = run(root, *more.pop("argv", "true").split(), **more)

    assert (None, None, text.format(root=root)) == (record.code, record.signal, record.spawn_error)
    assert no_program == record.no_program


def test_unreadable_specification_ends_with_the_reason(root: Path) -> None:
    """A claimed run always gets its exit record."""
    run_dir = root / "r1"
    run_dir.mkdir()
    (run_dir / "spec.json").write_text("{}")
    subprocess.run([*PROGRAM, str(run_dir)], check=True, stdout=subprocess.PIPE, timeout=60)

    record = finish(run_dir)

    assert ("r1", "spec.json: RunSpec: 'argv' is missing") == (record.run_id, record.spawn_error)


def test_run_that_is_claimed_is_left_alone(root: Path) -> None:
    """The loser has no effect at all: no second start, no record of the other touched."""
    run_dir = specified(root, run_spec(root, "r1", "touch", str(root / "started")))
    claim = Claim(pid=1, started=1, boot_id="another")
    records.claim(str(run_dir), "claim", claim.to_text())

    done = subprocess.run([*PROGRAM, str(run_dir)], check=True, stdout=subprocess.PIPE, timeout=60)

    assert b"claimed\n" == done.stdout
    eventually_sync(lambda: not processes(str(run_dir)))
    assert ["claim", "spec.json"] == sorted(os.listdir(run_dir))
    assert claim == claim_of(run_dir)
    assert not (root / "started").exists()


def test_a_caller_that_dies_before_the_answer_costs_the_run_nothing(root: Path) -> None:
    """A daemon is killed while it waits for the shim that it started: the run goes on to its end."""
    run_dir = specified(root, run_spec(root, "r1", "sh", "-c", "echo worked; exit 3"))
    reader, answer = os.pipe()
    os.close(reader)

    subprocess.run([*PROGRAM, str(run_dir)], check=True, stdout=answer, timeout=60)
    os.close(answer)

    record = finish(run_dir)
    assert (3, "itself", None, "worked\n") == (record.code, record.by, record.spawn_error, record.tail)


def test_a_shim_has_a_session_of_its_own(root: Path) -> None:
    """What ends all of its caller's session, as a terminal that is closed does, leaves the run alone."""
    run_dir = begin(root, run_spec(root, "r1", "sleep", "600"))

    claim = claim_of(run_dir)
    assert claim.pid == os.getsid(claim.pid)
    os.kill(claim.pid, signal.SIGTERM)
    assert "stop" == finish(run_dir).by


def test_start_is_on_disk_when_the_answer_comes(root: Path) -> None:
    """The caller knows the run by pid and start time, and so does its record."""
    run_dir = begin(root, run_spec(root, "r1", "sleep", "600"))

    claim = claim_of(run_dir)
    start = StartRecord.from_json((run_dir / "start.json").read_text())
    program = proc.stat(start.pid)

    assert program is not None
    assert (claim.pid, start.pid_started) == (program.parent, program.started)
    assert proc.is_running(claim.pid, claim.started, claim.boot_id)
    assert (claim.pid, claim.started) == (start.shim_pid, start.shim_started)
    os.kill(claim.pid, signal.SIGTERM)
    assert "stop" == finish(run_dir).by


def test_start_is_dated_before_anything_the_program_does(root: Path) -> None:
    """Files that a program changes at once are newer than the record of its start, not older."""
    spec = run_spec(root, "r1", "touch", str(root / "made"))
    run_dir = specified(root, spec)
    # So large that a tick of the clock that stamps files passes between the claim and the start.
    fields = spec.to_json().rstrip("}\n")
    records.write(str(run_dir), "spec.json", f'{fields}, "padding": [{"0, " * 500_000}0]}}')
    subprocess.run([*PROGRAM, str(run_dir)], check=True, stdout=subprocess.PIPE, timeout=60)
    finish(run_dir)

    claimed_ns = records.claimed_ns(str(run_dir), "claim")
    assert claimed_ns == (run_dir / "start.json").stat().st_mtime_ns
    assert claimed_ns < (root / "made").stat().st_mtime_ns


def test_deadline_ends_the_run(root: Path) -> None:
    """The shim itself watches the clock."""
    record = run(root, "sleep", "600", deadline_s=0.1)

    assert ("deadline", None, signal.SIGTERM) == (record.by, record.code, record.signal)
    assert 0.1 <= record.seconds < 60


def test_a_tree_that_hides_and_will_not_stop_is_ended(root: Path) -> None:
    """Sessions, double forks, cleared environments, orphans born of TERM: none outlives the run."""
    marker = str(root / "marker")
    # Long enough for the one that answers TERM with an orphan.
    ladder = (Rung(signal="TERM", grace_s=1),)
    spec = run_spec(root, "r1", *script("hydra", marker, "stay"), deadline_s=None, ladder=ladder)
    run_dir = begin(root, spec)
    eventually_sync(lambda: hydra_is_grown(marker))

    os.kill(claim_of(run_dir).pid, signal.SIGTERM)
    record = finish(run_dir)

    assert [] == processes(marker)
    assert ("stop", None, signal.SIGKILL) == (record.by, record.code, record.signal)
    assert 7 < record.killed < 20


@pytest.mark.parametrize(
    ("argv", "code", "number"),
    [
        (("sleep", "600"), None, signal.SIGTERM),
        (("sh", "-c", "trap 'exit 143' TERM; echo ready; while :; do sleep 0.1; done"), 143, None),
    ],
    ids=["killed", "leaves by itself"],
)
def test_a_signal_to_program_and_shim_is_a_stop(
    root: Path, argv: tuple[str, ...], code: int | None, number: int | None
) -> None:
    """At a shutdown of the machine the program may have ended before its shim has read a word."""
    run_dir = begin(root, run_spec(root, "r1", *argv))
    start = StartRecord.from_json(records.read(str(run_dir), "start.json") or "")
    if number is None:
        eventually_sync(lambda: (root / "runs/r1/output.log").read_text() == "ready\n")
    os.kill(start.shim_pid, signal.SIGSTOP)
    eventually_sync(lambda: getattr(proc.stat(start.shim_pid), "state", None) == "T")
    os.kill(start.pid, signal.SIGTERM)
    os.kill(start.shim_pid, signal.SIGTERM)
    eventually_sync(lambda: not proc.is_alive(start.pid))
    os.kill(start.shim_pid, signal.SIGCONT)

    record = finish(run_dir)

    assert ("stop", code, number) == (record.by, record.code, record.signal)


def test_processes_that_a_program_leaves_behind_are_ended(root: Path) -> None:
    """The exit code is the program's; its hidden heads are counted and gone."""
    marker = str(root / "marker")

    record = run(root, *script("hydra", marker, "leave"))

    assert [] == processes(marker)
    assert (7, "itself", 7) == (record.code, record.by, record.killed)


def test_a_grandchild_that_holds_the_pipe_delays_nothing(root: Path) -> None:
    """The end of the program is the end of the run, even if another process could still write."""
    record = run(root, "sh", "-c", "echo done; setsid sleep 600 & exit 0")

    assert (0, "done\n", 1) == (record.code, record.tail, record.killed)
    assert record.seconds < 60


def test_the_shim_stays_as_long_as_a_descendant_is_left(root: Path) -> None:
    """It supervises the rest for a while, and writes the exit record after it."""
    child = "while ! test -e go; do sleep 0.02; done"
    spec = run_spec(root, "r1", "sh", "-c", f"setsid sh -c '{child}' & exit 0", drain_s=600, deadline_s=None)
    run_dir = begin(root, spec)
    start = StartRecord.from_json((run_dir / "start.json").read_text())
    eventually_sync(lambda: not proc.is_running(start.pid, start.pid_started, start.boot_id))

    claim = claim_of(run_dir)
    assert proc.is_running(claim.pid, claim.started, claim.boot_id)
    assert not (run_dir / "exit.json").exists()
    (root / "go").touch()

    record = finish(run_dir)
    assert (0, "itself", 0) == (record.code, record.by, record.killed)


def test_a_stop_does_not_wait_for_other_writers_of_the_pipe(root: Path) -> None:
    """Neither for a deaf grandchild in a session of its own nor for a stranger outside of the tree."""
    deaf = "trap '' TERM; echo deaf; while :; do sleep 0.05; done"
    agent = f'setsid sh -c "{deaf}" & exec sleep 600'
    run_dir = begin(root, run_spec(root, "r1", "sh", "-c", agent, drain_s=600))
    eventually_sync(lambda: (root / "runs/r1/output.log").read_text() == "deaf\n")
    start = StartRecord.from_json((run_dir / "start.json").read_text())
    with open(f"/proc/{start.pid}/fd/1", "wb"):  # held until the run is over, and longer
        os.kill(start.shim_pid, signal.SIGTERM)
        record = finish(run_dir)

        assert ("stop", signal.SIGTERM, "deaf\n") == (record.by, record.signal, record.tail)
        assert 1 <= record.killed


def test_late_words_of_a_child_are_kept(root: Path) -> None:
    """Output within the drain time after the program's end counts, too."""
    record = run(root, "sh", "-c", "(sleep 0.2; echo late) & echo early", drain_s=60)

    assert ("early\nlate\n", 0) == (record.tail, record.killed)


def test_ladder_is_climbed_down_rung_by_rung(root: Path) -> None:
    """INT, then TERM, then KILL, each only after the grace of the one before."""
    ladder = (Rung(signal="INT", grace_s=1), Rung(signal="TERM", grace_s=1))
    run_dir = begin(root, run_spec(root, "r1", *script("listener"), ladder=ladder))
    eventually_sync(lambda: (root / "runs/r1/output.log").read_text() == "ready\n")

    os.kill(claim_of(run_dir).pid, signal.SIGTERM)
    record = finish(run_dir)

    assert "ready\nSIGINT\nSIGTERM\n" == record.tail
    assert ("stop", signal.SIGKILL) == (record.by, record.signal)


def test_a_polite_program_may_finish_on_the_first_rung(root: Path) -> None:
    """Grace is a limit and not a delay; the exit code is the program's own."""
    ladder = (Rung(signal="INT", grace_s=60), Rung(signal="TERM", grace_s=60))
    run_dir = begin(root, run_spec(root, "r1", *script("listener", "polite"), ladder=ladder, deadline_s=None))
    eventually_sync(lambda: (root / "runs/r1/output.log").read_text() == "ready\n")

    os.kill(claim_of(run_dir).pid, signal.SIGTERM)
    record = finish(run_dir)

    assert "ready\nSIGINT\ntidied up\n" == record.tail
    assert ("stop", 0, None) == (record.by, record.code, record.signal)


def test_flood_is_bounded_and_counted(root: Path) -> None:
    """Three megabytes come in, one is kept: the beginning, the end, and a count of the rest."""
    record = run(root, *script("flood", "100000"))

    text = (root / "runs/r1/output.log").read_text()
    line = "line {:08d} " + "." * 15 + "\n"
    size = len(line.format(0))
    assert 100_000 * size == record.output_bytes
    assert text.startswith(line.format(0) + line.format(1))
    assert text.endswith(line.format(99_998) + line.format(99_999))
    left_out = 100_000 * size - 1024 * 1024
    notice = f"\n[handoffd: {left_out} bytes left out here]\n"
    assert notice == text[512 * 1024 :][: len(notice)]
    assert 1024 * 1024 + len(notice) == len(text)
    assert record.tail == text[-4096:]


def test_a_flood_costs_the_shim_no_memory(root: Path) -> None:
    """After 64 MiB it has what it had after ten, and the file is as small as after one."""
    piece = "head -c {} /dev/zero; touch {}; while ! test -e {}; do sleep 0.02; done"
    agent = f"{piece.format('10M', 'ten', 'on')}; {piece.format('54M', 'all', 'over')}"
    run_dir = begin(root, run_spec(root, "r1", "sh", "-c", agent, deadline_s=None))
    shim_pid = claim_of(run_dir).pid

    def rss_after(mib: int) -> int:
        eventually_sync(lambda: output_bytes(run_dir) == mib * MIB)
        return int(psutil.Process(shim_pid).memory_info().rss)

    before = rss_after(10)
    (root / "on").touch()
    after = rss_after(64)
    (root / "over").touch()
    record = finish(run_dir)

    assert 0 < before
    assert after < before + 10 * MIB
    assert (64 * MIB, 0) == (record.output_bytes, record.code)
    assert (root / "runs/r1/output.log").stat().st_size < MIB + 100


def test_output_without_a_file_does_not_stop_the_run(root: Path) -> None:
    """The end of the output is in the record even if the file could not be created."""
    (root / "file").write_text("")

    record = run(root, "echo", "hello", output=str(root / "file" / "output.log"))

    assert (0, "hello\n", 6) == (record.code, record.tail, record.output_bytes)
    assert record.output_error is not None
    assert record.output_error.startswith("ENOTDIR: output")


def test_output_that_hits_a_limit_does_not_stop_the_run(root: Path) -> None:
    """A file that cannot grow costs what did not fit; program and record are whole."""
    limited = ("sh", "-c", 'ulimit -f 128; exec "$@"', "sh")  # in blocks of 512 bytes

    record = finish(begin(root, run_spec(root, "r1", *script("flood", "10000")), *limited))

    assert (0, 300_000) == (record.code, record.output_bytes)
    assert "File too large: output is incomplete" == record.output_error
    assert record.tail.endswith("line 00009999 ...............\n")


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare to mount a small disk")
def test_records_are_written_on_a_full_disk(root: Path) -> None:
    """Their places were taken before the program could fill the disk."""
    disk, run_dir = root / "disk", root / "disk" / "r1"
    disk.mkdir()
    agent = f"cat /dev/zero > {disk}/fill; exit 5"
    spec = run_spec(root, "r1", "sh", "-c", agent, output=f"{disk}/output.log", cwd=str(disk))
    (root / "spec.json").write_text(spec.to_json())
    steps = (
        f"mount -t tmpfs -o size=512k none {disk} || exit 77",
        f"mkdir {run_dir}; cp {root}/spec.json {run_dir}",
        f"{' '.join(PROGRAM)} {run_dir}",
        f"while ! test -e {run_dir}/exit.json; do sleep 0.02; done",
        f"cat {run_dir}/start.json {run_dir}/exit.json",
    )
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", "\n".join(steps)]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=60)
    if done.returncode in (1, 77):
        pytest.skip(f"this machine does not let us mount a small disk: {done.stderr.strip()}")

    _, start, end = done.stdout.splitlines()  # the first is the shim's answer
    assert StartRecord.from_json(start).pid > 0
    assert 5 == ExitRecord.from_json(end).code


# --- lack of memory -----------------------------------------------------------------------------------
def test_the_kernel_counts_kills_for_lack_of_memory(tmp_path: Path) -> None:
    """In one line of a file; a kernel without that counter has killed none."""
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("pgfault 12\noom_kill 3\nnuma_hit 4\n")

    assert 3 == shim.oom_kills(str(vmstat))
    assert 0 == shim.oom_kills(str(tmp_path / "missing"))
    assert shim.oom_kills() >= 0


@pytest.mark.parametrize(
    ("result", "kills", "explained"),
    [(-9, 1, True), (137, 1, True), (-9, 0, False), (-15, 1, False), (1, 1, False), (None, 1, False)],
)
def test_only_a_kill_can_be_for_lack_of_memory(result: int | None, kills: int, *, explained: bool) -> None:
    """And only when the kernel has killed a process since; a shell turns the signal into a code."""
    assert explained is shim.explained_by_oom(result, kills)


# --- a shim that waits for its run -------------------------------------------------------------------
# `let_go`, which makes the marker, runs in the shim, before anything else there.
WAITING = """
import socket
from handoffd.execute.runner import daemonize, proc, shim as shims

marker, run_dir = sys.argv[1:]
shim = shims.fork_waiting(daemonize.Signals(), lambda: open(marker, "x").close(), None)
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
"""
GIVE = """
print(shim.give(os.fsencode(run_dir), theirs))
theirs.close()
print(ours.recv(100) == b"%d %d" % (shim.pid, proc.started(shim.pid)), os.getsid(shim.pid) == shim.pid)
shim.channel.setblocking(True)
print(shim.channel.recv(100), ours.recv(100))
print(os.waitpid(shim.pid, 0)[1], os.path.exists(marker))
"""
LEAVE = """
ours.close()
print(shim.give(os.fsencode(run_dir), theirs))
theirs.close()
print(os.waitpid(shim.pid, 0)[1])
"""
DISMISS = """
shim.channel.close()
print(os.waitpid(shim.pid, 0)[1])
"""
KILL = """
os.kill(shim.pid, signal.SIGKILL)
os.waitpid(shim.pid, 0)
print(shim.give(os.fsencode(run_dir), theirs))
"""


@pytest.mark.parametrize(
    ("program", "lines", "code"),
    [
        # Identity and session, then the end of answer and channel.
        (GIVE, ["True", "True True", "b'' b''", "0 True"], 3),
        (LEAVE, ["True", "0"], 3),  # a caller that is gone costs the run nothing
        (DISMISS, ["0"], None),
        (KILL, ["False"], None),  # the launcher can ask another one
    ],
)
def test_a_waiting_shim_takes_its_run(root: Path, program: str, lines: list[str], code: int | None) -> None:
    """It answers itself; one that is dismissed or gone leaves the run directory alone."""
    run_dir = specified(root, run_spec(root, "r1", "sh", "-c", "exit 3"))

    assert lines == printed(WAITING + program, str(root / "marker"), str(run_dir)).splitlines()

    if code is None:
        assert ["spec.json"] == os.listdir(run_dir)
    else:
        assert code == ExitRecord.from_json(records.read(str(run_dir), "exit.json") or "").code
