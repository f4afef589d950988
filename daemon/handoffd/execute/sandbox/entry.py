"""Starts a program inside its sandbox, as the grandchild of a shim.

Between the two is the keeper, a fork of the shim in the new namespaces: it makes the view, gives up every
privilege, starts the program, and stays as process 1 of its PID namespace. When the shim dies, the kernel
kills the keeper, and with it everything in that namespace, whatever it has done to get away. The keeper
reports how the program ended, and goes when its last child has ended. The shim's signals reach every process
in there as before, and the keeper ignores them.

One socket connects the two: `started`, or why not; then a byte from the shim, which has looked at the program
by then, so that even one that ends at once was seen; then the program's wait status.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn

if __name__ == "__main__":
    sys.path.append(os.path.realpath(__file__ + "/../../../.."))

from handoffd.execute.runner import spawn, tree
from handoffd.execute.sandbox import kernel
from handoffd.execute.sandbox.plan import LANDLOCK, NAMESPACES, Plan, strength
from handoffd.execute.sandbox.view import View, restrict

_MESSAGE_BYTES = 4096
_STARTED, _REFUSED, _NO_PROGRAM = b"+", b"-", b"!"
_SEEN = b"."
_STATUS = struct.Struct("=i")
_IGNORED = (
    signal.SIGALRM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGQUIT, signal.SIGTERM,
    signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip

_LOOPBACK = b"lo"
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_IFF_UP = 1
_INTERFACE = struct.Struct("16sH22x")


class Kept(NamedTuple):
    """A program in its sandbox, as its shim sees it."""

    keeper: int
    program: int
    """Its pid outside."""
    line: socket.socket
    """Readable once when the program has ended, and when the keeper is gone."""

    def seen(self) -> None:
        """Let the keeper reap the program: its pid stays what it is until then."""
        try:
            self.line.send(_SEEN)
        except OSError:
            return  # it was killed; the shim notices by itself

    def ended(self) -> int | None:
        """Return the program's wait status, once; None if it runs, or its keeper was killed."""
        try:
            message = self.line.recv(_STATUS.size, socket.MSG_DONTWAIT)
        except OSError:
            return None
        status: int | None = _STATUS.unpack(message)[0] if len(message) == _STATUS.size else None
        return status


def start(plan: Plan, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdin: int, output: int) -> Kept:
    """Start a program as `spawn.spawn` does, inside `plan`. Raises spawn.Refusal if nothing was started."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        pid = _fork(plan)
    except OSError as error:
        ours.close()
        its.close()
        raise _refusal(error) from error
    if pid == 0:
        _keep(plan, its, (argv, env, cwd, stdin, output))
    its.close()
    message = ours.recv(_MESSAGE_BYTES)
    program = next(iter(tree.children(pid)), pid) if message == _STARTED else 0
    if program:
        return Kept(pid, program, ours)
    ours.close()
    os.waitpid(pid, 0)
    why = message[1:].decode("utf-8", "replace") or "no sandbox: its first process was killed"
    raise spawn.Refusal(why, no_program=message[:1] == _NO_PROGRAM)


def _refusal(error: OSError) -> spawn.Refusal:
    found = kernel.look()
    return spawn.Refusal(kernel.explain(error, found))


def _fork(plan: Plan) -> int:
    """Fork the keeper into its namespaces. Only root can do without a user namespace, and only some can."""
    if plan.level == LANDLOCK:
        return kernel.fork_into(0)
    wanted = kernel.NEW_MOUNTS | kernel.NEW_PIDS | kernel.NEW_IPC
    wanted |= kernel.NEW_NETWORK if plan.network != "on" else 0
    if os.geteuid() == 0:
        try:
            return kernel.fork_into(wanted)
        except OSError as error:
            if error.errno != errno.EPERM:
                raise
    user, group = os.geteuid(), os.getegid()
    pid = kernel.fork_into(wanted | kernel.NEW_USER)
    if pid == 0:
        _map(user, group)
    return pid


def _map(user: int, group: int) -> None:
    """Map the ids; without that, each of the next steps fails and reports it."""
    try:
        kernel.own_maps(user, group)
    except OSError:
        return


# --- the keeper ---------------------------------------------------------------------------------------
Program = tuple[Sequence[str], Mapping[str, str], str, int, int]
"""The arguments of `spawn.spawn`."""


def _keep(plan: Plan, line: socket.socket, program: Program) -> NoReturn:
    """Be the keeper; never returns."""
    try:
        gc.disable()  # a collection would touch, and so copy, all memory that is shared with the shim
        _enter(plan, line, program)
        argv, env, cwd, stdin, output = program
        pid = spawn.spawn(argv, env, cwd, stdin, output)
        os.close(stdin)
        os.close(output)
        line.send(_STARTED)
        line.recv(1)
        _stay(line, pid)
    except spawn.Refusal as refusal:
        _tell(line, _NO_PROGRAM if refusal.no_program else _REFUSED, str(refusal))
    except OSError as error:
        _tell(line, _REFUSED, str(_refusal(error)))
    except Exception as error:  # whatever it is, the program must not start
        _tell(line, _REFUSED, f"no sandbox: {error!r}")
    finally:
        os._exit(1)


def _tell(line: socket.socket, kind: bytes, text: str) -> None:
    line.send(kind + text.encode()[: _MESSAGE_BYTES - 1])


def _enter(plan: Plan, line: socket.socket, program: Program) -> None:
    """Enter the sandbox, with the descriptors of the program and of the line to the shim, and no others."""
    signal.set_wakeup_fd(-1)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    kernel.die_with_parent()
    _close_others(line.fileno(), *program[3:])
    for path in (*plan.writable, *plan.own.values()):
        with suppress(FileExistsError):
            os.makedirs(path, 0o700)
    if plan.level != LANDLOCK:
        if plan.network == "loopback":
            _raise_loopback()
        View(plan).make()
    kernel.give_up_privileges()
    if plan.level != NAMESPACES:
        restrict(plan, kernel.landlock_version())
    kernel.die_with_parent()  # a change of privileges may have cancelled the first
    if _is_alone(line):
        os._exit(1)


def _close_others(*kept: int) -> None:
    begin = 3
    for fd in sorted(fd for fd in kept if fd >= begin):
        os.closerange(begin, fd)
        begin = fd + 1
    os.closerange(begin, os.sysconf("SC_OPEN_MAX"))


def _is_alone(line: socket.socket) -> bool:
    """Return whether the shim died before the kernel was asked to report that."""
    poll = select.poll()
    poll.register(line, 0)
    return bool(poll.poll(0))


def _raise_loopback() -> None:
    """Switch on the loopback interface of a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as any_socket:
        found = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, _INTERFACE.pack(_LOOPBACK, 0))
        _, flags = _INTERFACE.unpack(found)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, _INTERFACE.pack(_LOOPBACK, flags | _IFF_UP))


def _stay(line: socket.socket, program: int) -> NoReturn:
    """Reap all children, and report the program's end; exit when none is left."""
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            os._exit(0)
        if pid == program:
            try:
                line.send(_STATUS.pack(status))
            except OSError:
                os._exit(1)


# --- as a program of its own: `python -I -S -E entry.py LEVEL NETWORK` --------------------------------
def main(argv: list[str]) -> int:
    """Start nothing in a sandbox, and print the level that holds it, or to stderr why there is none."""
    if len(argv) != 3:
        sys.stderr.write("usage: entry.py LEVEL NETWORK\n")
        return 2
    from tempfile import TemporaryDirectory  # noqa: PLC0415  (slow, and the launcher needs it not)

    with TemporaryDirectory() as workspace:
        plan = Plan.from_raw({"level": argv[1], "network": argv[2], "workspace": workspace})
        stdin, output = (os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC) for _ in range(2))
        try:
            kept = start(plan, ["/bin/sh", "-c", "exit 0"], {"PATH": "/bin"}, workspace, stdin, output)
        except spawn.Refusal as refusal:
            sys.stderr.write(f"{refusal}\n")
            return 1
        kept.seen()
        os.waitpid(kept.keeper, 0)
    if kept.ended() != 0:
        sys.stderr.write("no sandbox: a program in it did not run\n")
        return 1
    sys.stdout.write(f"{strength(plan.level, kernel.landlock_version())}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
