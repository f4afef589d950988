"""`handoffd service uninstall --purge`: what the daemon has kept, taken away with it.

That is the only verb that removes a journal, so it looks twice, before the daemon is stopped and when no
other can begin: nothing is removed while an executor or a daemon is there, and no folder that holds
anything but what a daemon puts into it. Projects and what is in their .ai folders are never touched.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from handoffd.cli.service_scope import Scope
from handoffd.errors import Locked, Refused

_STATE = frozenset({
    "journal.db", "journal.db-wal", "journal.db-shm", "runs", "locks", "hooks", "run", "daemon.lock",
    "control.token",
})  # fmt: skip
_ALSO = re.compile(r"journal\.db\.before-.+|\..+\.[0-9a-f]{16}\.tmp.*", re.DOTALL)
"""What a restore has put aside, and files that a crash has left half-written."""
_CONFIGURATION = frozenset({"handoffd.yaml", "environment"})


def folders(scope: Scope) -> list[Path]:
    """Return what there is to remove, state first; Refused when one is a link or holds something else."""
    found = [path for path in (scope.state, *scope.settings) if exists(path)]
    for path in found:
        stranger = _stranger(path, scope)
        if stranger is not None:
            raise Refused(
                f"{path} is left alone: {stranger} was not put there by handoffd",
                hint=f"ls -la {shlex.quote(str(path))}",
            )
    return found


def exists(path: Path) -> bool:
    """Tell whether there is something at a path, a link that leads nowhere included."""
    return path.exists() or path.is_symlink()


def require_idle(scope: Scope, *, stopped: bool = False) -> None:
    """Refuse while an executor runs: what it does could not be judged any more.

    `stopped`: the units were stopped just now, and whoever is to end executors must be started first.
    """
    from handoffd.execute.run import living

    start = f"{shlex.join(scope.systemctl.argv('start', *scope.names))} && " if stopped else ""
    hint = start + scope.as_account("handoffd stop --executors")
    for run in living(scope.state / "runs"):
        raise Refused(f"the executor of {run.run_dir.name} is running", hint=hint)


@contextmanager
def alone(scope: Scope) -> Iterator[None]:
    """Keep daemons away from the state while it is removed; Refused when there is one, whoever started it."""
    from handoffd.files.locks import acquire, daemon_lock_path

    if not scope.state.is_dir():
        yield
        return
    try:
        lock = acquire(daemon_lock_path(scope.state), f"the state directory {scope.state}")
    except Locked as locked:
        raise Refused(locked.message, hint=scope.as_account("handoffd stop")) from locked
    with lock:
        yield


def remove(scope: Scope, paths: list[Path]) -> None:
    """Remove them; Refused where that is not allowed."""
    try:
        for path in paths:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if scope.account is not None:
            with suppress(OSError):  # that of another account is still in there
                scope.state.parent.rmdir()
    except OSError as error:
        hint = f"sudo {scope.command('uninstall')} --purge"
        raise Refused(f"{error.filename} cannot be removed: {error.strerror}", hint=hint) from error


def _stranger(path: Path, scope: Scope) -> str | None:
    """Return what is in the way of removing a path, by name."""
    if path.is_symlink():
        return "the link"
    if not path.is_dir():
        return None
    is_state = path == scope.state
    known = _STATE if is_state else _CONFIGURATION
    for entry in sorted(path.iterdir()):
        if entry.name not in known and not (is_state and _ALSO.fullmatch(entry.name)):
            return entry.name
    return None
