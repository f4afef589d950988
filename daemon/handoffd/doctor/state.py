"""Whether the state directory can hold a journal: whose it is, where it lies, how much room there is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from handoffd.doctor.finding import Finding, fault, fine, warning
from handoffd.doctor.mounts import is_memory, is_network, kind_of
from handoffd.engine.usage import counted
from handoffd.errors import HandoffdError, StoreError
from handoffd.journal.database import Glance, glance

CHECK = "state"

_MIB = 1024 * 1024
_FEW_INODES = 1000
"""A run takes about ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFacts:
    """The state directory, or, before the first start (`exists` is false), the folder it will be made in.

    `free_inodes` is None where the file system has no fixed number of them. `error` says why the
    journal cannot be opened; `schema` is None without a journal.
    """

    folder: str
    exists: bool
    is_folder: bool
    owned: bool
    mode: int
    writable: bool
    free_bytes: int
    free_inodes: int | None
    kind: str | None
    schema: int | None = None
    roots: tuple[str, ...] = ()
    error: HandoffdError | None = None


def gather(folder: Path, journal: Path) -> StateFacts:
    """Return how the state directory is. Raises OSError when not even a folder above it can be seen."""
    place = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    seen, room = place.stat(), os.statvfs(place)
    seen_journal, error = _glance(journal)
    return StateFacts(
        folder=str(folder),
        exists=place == folder,
        is_folder=stat.S_ISDIR(seen.st_mode),
        owned=seen.st_uid == os.geteuid(),
        mode=stat.S_IMODE(seen.st_mode),
        writable=os.access(place, os.W_OK | os.X_OK),
        free_bytes=room.f_bavail * room.f_frsize,
        free_inodes=room.f_favail if room.f_files else None,
        kind=kind_of(place),
        schema=None if seen_journal is None else seen_journal.schema,
        roots=() if seen_journal is None else seen_journal.roots,
        error=error,
    )


def _glance(journal: Path) -> tuple[Glance | None, HandoffdError | None]:
    try:
        return glance(journal), None
    except StoreError as error:
        return None, error


def silent(folder: str) -> Finding:
    """Return the finding for a state directory that cannot be looked at, because nothing answers."""
    why = "it does not answer, as a network mount does that has lost its server"
    return fault(CHECK, f"{folder} cannot be looked at", why, f"stat {quote(folder)}")


def unseen(folder: str, error: OSError) -> Finding:
    """Return the finding for a state directory that cannot be seen."""
    action = f"namei -l {quote(folder)}"
    return fault(CHECK, f"{folder} cannot be looked at", error.strerror or str(error), action)


def check(facts: StateFacts, min_free_mb: int) -> tuple[Finding, ...]:
    """Return what is wrong with the state directory. `min_free_mb`: MiB, as in the settings."""
    found = (*_access(facts), *_place(facts), *_room(facts, min_free_mb), *_journal(facts))
    return found or (fine(CHECK, _good(facts)),)


def _access(facts: StateFacts) -> Iterator[Finding]:
    place = quote(facts.folder)
    if not facts.is_folder:
        yield fault(CHECK, f"{facts.folder} is no folder", None, f"ls -ld {place}")
    elif facts.exists and not facts.owned:
        why = "one account has one state directory, and only it is answered"
        action = f'sudo -u "$(stat -c %U {place})" handoffd doctor'
        yield fault(CHECK, f"{facts.folder} belongs to another account", why, action)
    elif not facts.writable:
        verb = "written" if facts.exists else "made"
        action = f"namei -l {place}" if facts.exists else f"sudo install -d -m 700 -o $(id -un) {place}"
        yield fault(CHECK, f"{facts.folder} cannot be {verb}", "its rights, or a read-only disk", action)
    elif facts.exists and facts.mode & 0o077:
        why = f"its mode is {facts.mode:o}: others may read prompts and what agents printed"
        yield warning(CHECK, f"{facts.folder} is open to others", why, f"chmod 700 {place}")


def _place(facts: StateFacts) -> Iterator[Finding]:
    if facts.kind is None:
        return
    if is_network(facts.kind):
        why = "the journal needs memory that is shared between processes, and locks that hold: WAL of SQLite"
        action = "handoffd config show  # then set state_dir to a folder on a local disk"
        yield fault(CHECK, f"{facts.folder} is on a network file system ({facts.kind})", why, action)
    elif is_memory(facts.kind):
        why = "the journal is gone after a restart of the machine, and with it what every project did"
        action = "handoffd config show  # then set state_dir to a folder on a disk"
        yield warning(CHECK, f"{facts.folder} is kept in memory only ({facts.kind})", why, action)


def _room(facts: StateFacts, min_free_mb: int) -> Iterator[Finding]:
    free_mb, look = facts.free_bytes // _MIB, f"df -h {quote(facts.folder)}"
    asks = f"execute.min_free_mb asks for {min_free_mb} MiB"
    if free_mb < min_free_mb:
        what = f"{free_mb} MiB are free at {facts.folder}: no executor is started"
        yield fault(CHECK, what, asks, look)
    elif free_mb < 2 * min_free_mb:
        what = f"only {free_mb} MiB are free at {facts.folder}"
        yield warning(CHECK, what, f"{asks}; below that no executor is started", look)
    if facts.free_inodes is not None and facts.free_inodes < _FEW_INODES:
        why = "every run makes about ten files there"
        tell = warning if facts.free_inodes else fault
        look = f"df -i {quote(facts.folder)}"
        yield tell(
            CHECK, f"{counted(facts.free_inodes, 'inode is', 'inodes are')} free at {facts.folder}", why, look
        )


def _journal(facts: StateFacts) -> Iterator[Finding]:
    if facts.error is not None and facts.owned:
        action = facts.error.hint or f"ls -l {quote(facts.folder)}"
        yield fault(CHECK, "the journal cannot be used", facts.error.message, action)


def _good(facts: StateFacts) -> str:
    room = f"{facts.free_bytes // _MIB} MiB free"
    if not facts.exists:
        return f"{facts.folder} will be made at the first start; {room}"
    journal = "no journal yet" if facts.schema is None else f"journal of schema {facts.schema}"
    return f"{facts.folder}, {journal}, {room}"
