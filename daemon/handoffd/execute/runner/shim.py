"""The shim: looks after one run from its claim to its last descendant.

It is not a child of the daemon and needs no daemon: it starts the program, bounds its output, enforces the
deadline, goes down the stop ladder on SIGTERM, and exits only when no process of the run is left and the exit
record is written. Normally the launcher has one ready; as a program of its own
(`python -I -S -E shim.py RUN_DIRECTORY`) it does the same. It depends on being a child subreaper (see `tree`)
and on a run directory that only the daemon's account can write.

Order of writes: the daemon's journal has the order to start the run, durably, before a shim gets it. So after
a power cut the daemon knows that the run may have begun, and the shim can start the program before anything
of its own has reached the disk. The claim comes first, so that no run begins twice. Claim and start record
count only within the boot in which they were written, so they need no sync. The exit record does: it is the
result of the work.

Most of the cost of a start is the fork, and the memory that is copied when a new child first runs. So the
launcher keeps one shim waiting, and a start costs one message: the run directory and the caller's connection,
on which the shim itself answers. The shim closes the channel after its answer; then the launcher forks the
next one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress

if __name__ == "__main__":
    # Appended, never put in front: nothing installed beside this package may shadow the library.
    sys.path.append(os.path.realpath(__file__ + "/../../../.."))

from handoffd.execute import base
from handoffd.execute.runner import capture, cgroup, daemonize, proc, records, spawn, tree
from handoffd.execute.sandbox import entry, kernel
from handoffd.execute.sandbox.plan import strength

Reply = Callable[[bytes], object]
"""Answers the caller; only the first call has an effect."""

_START_BYTES = 1024
_EXIT_BYTES = 32 * 1024
"""Enough for an exit record whose tail is all control characters, which JSON escapes."""
_RECORD_TRIES = 3600
_DYING_S, _DYING_LOOK_S = 2.0, 0.01
"""How long a killed process of the run's group may take to disappear if another process started it."""
_DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)


class Shim:
    """One run, prepared before the shim knows which. Callers use one thread."""

    def __init__(self, notes: daemonize.Signals, place: str | None = None) -> None:
        """Prepare for a run; the control group is made in `place`, if that is given."""
        self._signals = notes
        self._run_dir = ""
        self._run_id = ""
        self._by: base.By = "itself"
        self._spawn_error: str | None = None
        self._no_program = False
        self._began: float | None = None
        self._kept: entry.Kept | None = None
        self._memory_kills = 0
        self._poll = select.poll()
        self._poll.register(notes.wake, select.POLLIN)
        tree.become_subreaper("handoffd-shim")
        self._capture = capture.Capture()
        me = os.getpid()
        self._claim = base.Claim(pid=me, started=proc.started(me), boot_id=proc.boot_id())
        group = cgroup.Group(place, me, self._claim.started) if place is not None else None
        self._group = group if group is not None and group.enter() else None
        self._family = tree.Family(self._group)

    def run(self, run_dir: str, reply: Reply) -> None:
        """Claim the run and look after it to its end; without the claim, do nothing at all."""
        self._run_dir, self._run_id = run_dir, os.path.basename(run_dir)
        if not records.claim(run_dir, base.CLAIM, self._claim.to_text()):
            reply(b"claimed")
            self.give_up()
            return
        identity = b"%d %d" % (self._claim.pid, self._claim.started)
        record = records.Reserved(run_dir, base.EXIT, _EXIT_BYTES)
        try:
            spec = self._start()
            reply(identity)
            self._leave_group()
            self._watch(spec)
        except spawn.Refusal as refusal:
            self._spawn_error, self._no_program = str(refusal), refusal.no_program
        except Exception as error:  # the exit record must be written whatever happens
            self._by = "lost"
            self._spawn_error = f"the shim failed: {error!r}"
        self._leave_group()
        self._family.end(self._turn)
        self._capture.finish()
        _write(record, self._exit_record())
        reply(identity)
        self._remove_group()

    def give_up(self) -> None:
        """Remove the control group, with or without a run."""
        self._leave_group()
        if self._group is not None:
            self._group.remove()

    def _remove_group(self) -> None:
        """Remove the control group once the processes that were killed in it are gone."""
        limit = time.monotonic() + _DYING_S
        while self._group is not None and not self._group.remove() and time.monotonic() < limit:
            time.sleep(_DYING_LOOK_S)

    def _leave_group(self) -> None:
        if self._group is not None:
            self._group.leave()  # if that fails, `kill` spares the group, and only the tree is ended

    # --- starting -----------------------------------------------------------------------------------
    def _start(self) -> base.RunSpec:
        spec = self._read_spec()
        self._run_id = spec.run_id
        if self._group is not None:
            self._group.limit(spec.memory_max, spec.tasks_max)
        mark = _Mark(spec.home)
        record = records.Reserved(self._run_dir, base.START, _START_BYTES)
        try:
            pid = self._spawn(spec, mark)
        except BaseException:
            record.give_up()
            raise
        started = proc.started(pid)
        if self._kept is not None:
            self._kept.seen()
            self._poll.register(self._kept.line, select.POLLIN)
        self._capture.close_write_end()
        self._poll.register(self._capture.pipe, select.POLLIN)
        # After the start, to delay it less: early output waits in the pipe.
        self._capture.open(self._run_dir, spec)
        mark.set()
        self._write_start_record(record, pid, started, spec)
        return spec

    def _spawn(self, spec: base.RunSpec, mark: _Mark) -> int:
        stdin = spawn.open_stdin(spec.stdin)
        mark.set()
        self._began = time.monotonic()
        self._memory_kills = oom_kills()
        program = spec.argv, spec.env, spec.cwd, stdin, self._capture.write_end
        if spec.sandbox is None:
            pid = spawn.spawn(*program)
            self._family.head(pid)
        else:
            self._kept = entry.start(spec.sandbox, *program)
            pid = self._kept.program
            self._family.head(self._kept.keeper, kept=pid, told=self._kept.ended)
        os.close(stdin)
        return pid

    def _read_spec(self) -> base.RunSpec:
        try:
            return base.RunSpec.from_json(records.read(self._run_dir, base.SPEC) or "")
        except (OSError, ValueError) as error:
            raise spawn.Refusal(spawn.explain(base.SPEC, error)) from error

    def _write_start_record(
        self, place: records.Reserved, pid: int, started: int, spec: base.RunSpec
    ) -> None:
        assert self._began is not None
        level = None if spec.sandbox is None else strength(spec.sandbox.level, kernel.landlock_version())
        record = base.StartRecord(
            run_id=self._run_id,
            shim_pid=self._claim.pid,
            shim_started=self._claim.started,
            pid=pid,
            pid_started=started,
            boot_id=self._claim.boot_id,
            monotonic=self._began,
            sandbox=level,
        )
        try:
            # With the claim's time: a file is newer than this one only if the program may have written it.
            began_ns = records.claimed_ns(self._run_dir, base.CLAIM)
            place.write(record.to_json(), durable=False, modified_ns=began_ns)
        except OSError as error:
            raise spawn.Refusal(spawn.explain(base.START, error)) from error

    # --- looking after it ---------------------------------------------------------------------------
    def _watch(self, spec: base.RunSpec) -> None:
        """Return when the main process has ended by itself or the ladder is used up."""
        assert self._began is not None
        deadline = None if spec.deadline_s is None else self._began + spec.deadline_s
        while self._family.ended is None:
            if self._signals.stop_asked:
                self._by = "stop"
            elif deadline is not None and time.monotonic() >= deadline:
                self._by = "deadline"
            if self._by != "itself":
                self._descend(spec.ladder)
                return
            self._turn(deadline)
        # Its remaining processes may be about to finish, and hold the pipe open.
        self._wait_until(
            self._family.ended + spec.drain_s, lambda: self._signals.stop_asked or self._all_over()
        )
        if self._signals.stop_asked:
            self._by = "stop"  # shim and program got TERM together, as at a shutdown of the machine

    def _descend(self, ladder: tuple[base.Rung, ...]) -> None:
        for rung in ladder:
            if rung.signal == "KILL" or self._family.is_empty:
                return  # `run` then kills what is left
            self._family.signal(rung.signal)
            self._wait_until(time.monotonic() + rung.grace_s, lambda: self._family.is_empty)

    def _wait_until(self, limit: float, over: Callable[[], bool]) -> None:
        while not over() and time.monotonic() < limit:
            self._turn(limit)

    def _all_over(self) -> bool:
        return self._family.is_empty and self._capture.is_over

    def _turn(self, limit: float | None) -> None:
        """Wait for events until `limit` (None: without a limit) and handle them."""
        wait_ms = None if limit is None else max(0.0, limit - time.monotonic()) * 1000
        for fd, _ in self._poll.poll(wait_ms):
            if fd == self._signals.wake:
                self._signals.settle()
            elif self._kept is not None and fd == self._kept.line.fileno():
                self._hear(self._kept)
            else:
                self._read_output(fd)
        self._family.reap()

    def _hear(self, kept: entry.Kept) -> None:
        """Take the end of a program in a sandbox from its keeper."""
        self._poll.unregister(kept.line)
        self._family.hear()

    def _read_output(self, pipe: int) -> None:
        self._capture.read()
        if self._capture.is_over:
            self._poll.unregister(pipe)

    # --- ending -------------------------------------------------------------------------------------
    def _exit_record(self) -> base.ExitRecord:
        result = self._family.result if self._spawn_error is None else None
        ended = self._family.ended or time.monotonic()
        taken = self._group.taken if self._group is not None else cgroup.Taken()
        starved = self._by == "itself" and explained_by_oom(result, self._ended_for_want_of_memory(taken))
        return base.ExitRecord(
            run_id=self._run_id,
            code=result if result is not None and result >= 0 else None,
            signal=-result if result is not None and result < 0 else None,
            by=self._by,
            seconds=round(ended - (self._began or ended), 3),
            tail=self._capture.tail,
            output_bytes=self._capture.total,
            killed=self._family.killed,
            spawn_error=self._spawn_error,
            no_program=self._no_program,
            survived=self._family.survived,
            output_error=self._capture.error,
            ended_ns=time.time_ns() - round((time.monotonic() - ended) * 1e9),
            out_of_memory=starved,
            at_own_limit=starved and taken.memory_met,
            memory_peak=taken.memory_peak,
            memory_max=taken.memory_max,
            memory_kills=(taken.memory_kills or 0) if taken.memory_met else 0,
            tasks_peak=taken.tasks_peak,
            tasks_max=taken.tasks_max,
            tasks_refused=taken.tasks_refused,
        )

    def _ended_for_want_of_memory(self, taken: cgroup.Taken) -> int:
        """Return how many processes the kernel killed: of the run if that is counted, else of the machine."""
        return oom_kills() - self._memory_kills if taken.memory_kills is None else taken.memory_kills


class _Mark:
    """Shows every daemon that locks the project, while this process lives, that a run works there.

    The daemon of this run may have died by then, and another one may lock the project. The mark is a record
    lock: the started program does not inherit it, and it does not conflict with the daemons' `flock`.
    """

    def __init__(self, folder: str) -> None:
        self._handle = -1
        with suppress(OSError, ValueError):  # a program can work in a folder that it may not read
            self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def set(self) -> None:
        """Set the lock; again after any other descriptor of the folder was closed, which releases it."""
        with suppress(OSError, ValueError):  # a file system without record locks, or no open folder
            fcntl.lockf(self._handle, fcntl.LOCK_SH)


def _write(place: records.Reserved, record: base.ExitRecord) -> None:
    """Write the exit record; while the disk is full or failing, retry for an hour."""
    text = record.to_json()
    for _ in range(_RECORD_TRIES):
        try:
            place.write(text)
        except OSError as error:
            if error.errno not in _DISK_FAULTS:
                return
            time.sleep(1)
        else:
            return


# --- a shim that waits for its run, as the launcher has it --------------------------------------------
_REQUEST_BYTES = 8192


class Waiting:
    """The launcher's side of a shim that waits for its run."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self.channel = channel

    def give(self, run_dir: bytes, connection: socket.socket) -> bool:
        """Give the shim its run, and the connection for its answer; False if the shim is gone."""
        try:
            socket.send_fds(self.channel, [run_dir], [connection.fileno()])
        except OSError:
            return False
        return True


def fork_waiting(notes: daemonize.Signals, let_go: Callable[[], None], place: str | None) -> Waiting:
    """Return a new shim, which calls `let_go` to close inherited descriptors. Raises OSError.

    It makes its control group in `place`, if that is given.
    """
    channel, its_channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        pid = os.fork()
    except OSError:
        channel.close()
        its_channel.close()
        raise
    if pid == 0:
        channel.close()
        _wait_and_run(its_channel, notes, let_go, place)
    its_channel.close()
    channel.setblocking(False)
    return Waiting(pid, channel)


def _wait_and_run(
    channel: socket.socket, notes: daemonize.Signals, let_go: Callable[[], None], place: str | None
) -> None:
    """Wait for a run as a shim, and look after it; never returns."""
    try:
        os.setsid()
        let_go()
        notes.renew()
        daemonize.leave_standard_streams()
        ready = Shim(notes, place)
        _rehearse()
        run_dir, descriptors, *_ = socket.recv_fds(channel, _REQUEST_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        if descriptors:  # without one, the launcher has closed the channel
            ready.run(os.fsdecode(run_dir), _reply_to(socket.socket(fileno=descriptors[0]), channel))
        else:
            ready.give_up()
    finally:
        os._exit(0)


def _rehearse() -> None:
    """Read a specification and write a start record for nothing, so that the real ones take a third as long.

    A forked process gets each page of memory when it first writes to it: some 90, while a start waits.
    """
    stop = base.Rung(signal="TERM", grace_s=5.0), base.Rung(signal="KILL", grace_s=5.0)
    spec = base.RunSpec(
        run_id="",
        argv=("true",),
        env={"PATH": ""},
        cwd="/",
        stdin=None,
        output="",
        deadline_s=60.0,
        ladder=stop,
    )
    base.RunSpec.from_json(spec.to_json())
    started = base.StartRecord(
        run_id="", shim_pid=1, shim_started=1, pid=1, pid_started=1, boot_id="", monotonic=1.0
    )
    started.to_json()
    oom_kills()


def _reply_to(connection: socket.socket, channel: socket.socket) -> Reply:
    def reply(text: bytes) -> None:
        if connection.fileno() >= 0:
            send(connection, text)
            connection.close()
            channel.close()

    return reply


def send(connection: socket.socket, text: bytes) -> None:
    """Answer a caller; if it has disconnected, its request was still carried out."""
    try:
        connection.send(text)
    except OSError:
        return


# --- whether the kernel has killed a process for lack of memory ---------------------------------------
# The kernel does not report this to the parent: the process died of SIGKILL like any other killed process. It
# only counts: for a run's control group if that has the controller (`cgroup`), else for the whole machine.
# With the machine's counter the answer is only likely: the kernel killed some process while the run lasted,
# and nothing else explains the SIGKILL of the run's main process.
_COUNTER = b"oom_kill "
_BY_A_SHELL = 128
"""Shells add this to the number of the signal that ended their child."""


def oom_kills(vmstat: str = "/proc/vmstat") -> int:
    """Return how many processes the kernel has killed for lack of memory; 0 if it does not count them."""
    for line in (proc.read(vmstat) or b"").splitlines():
        if line.startswith(_COUNTER):
            return int(line[len(_COUNTER) :])
    return 0


def explained_by_oom(result: int | None, kills: int) -> bool:
    """Return whether this number of `kills` explains `result`, an exit code or a negative signal number."""
    return kills > 0 and result in (-signal.SIGKILL, _BY_A_SHELL + signal.SIGKILL)


# --- as a program of its own --------------------------------------------------------------------------
def main(argv: list[str]) -> int:
    """Run one shim, detached; the caller reads one line and then the end of file on stdout."""
    if len(argv) != 2:
        sys.stderr.write("usage: shim.py RUN_DIRECTORY\n")
        return 2
    if os.fork() == 0:
        try:
            os.setsid()
            answer = os.dup(1)
            daemonize.leave_standard_streams()
            Shim(daemonize.Signals()).run(os.path.realpath(argv[1]), _reply_once(answer))
        finally:
            os._exit(0)
    return 0


def _reply_once(answer: int) -> Reply:
    open_ends = [answer]

    def reply(text: bytes) -> None:
        while open_ends:
            fd = open_ends.pop()
            try:
                os.write(fd, text + b"\n")
            except OSError:
                return  # the caller is gone; its request was still carried out
            finally:
                os.close(fd)

    return reply


if __name__ == "__main__":
    sys.exit(main(sys.argv))
