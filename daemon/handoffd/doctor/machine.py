"""What handoffd needs of this machine: room and a disk for its state, watches, open files, a sandbox."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote

from msgspec import Struct

from handoffd.capacity.machine import HEADROOM, RESERVE
from handoffd.doctor.finding import Finding, fault, fine, warning
from handoffd.doctor.service import Service
from handoffd.engine.wording import counted, first_few
from handoffd.errors import HandoffdError, StoreError
from handoffd.execute.sandbox import entry
from handoffd.execute.sandbox.kernel import SETTING
from handoffd.execute.sandbox.plan import LANDLOCK, OFF, SCOPES_SINCE, STRICT
from handoffd.execute.sandbox.planning import HOLDS
from handoffd.journal.database import Glance, glance
from handoffd.settings.model import SandboxSettings
from handoffd.watch.backend import LIMIT_REACHED, Demand

# --- the state directory: whose it is, where it is, how much room there is ----------------------------
STATE = "state"

_MIB = 1024 * 1024
_FEW_INODES = 1000
"""A run takes about ten."""


class StateFacts(Struct, frozen=True, kw_only=True):
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


def state_facts(folder: Path, journal: Path) -> StateFacts:
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


def silent_state(folder: str) -> Finding:
    """Return the finding for a state directory whose disk does not answer."""
    why = "its disk does not answer; a network mount may have lost its server"
    return fault(STATE, f"{folder} cannot be read", why, f"stat {quote(folder)}")


def unseen_state(folder: str, error: OSError) -> Finding:
    """Return the finding for a state directory that cannot be seen."""
    action = f"namei -l {quote(folder)}"
    return fault(STATE, f"{folder} cannot be read", error.strerror or str(error), action)


def check_state(facts: StateFacts, min_free_mb: int) -> tuple[Finding, ...]:
    """Return the problems of the state directory. `min_free_mb`: MiB, as in the settings."""
    found = (*_access(facts), *_place(facts), *_room(facts, min_free_mb), *_journal(facts))
    return found or (fine(STATE, _good(facts)),)


def _access(facts: StateFacts) -> Iterator[Finding]:
    place = quote(facts.folder)
    if not facts.is_folder:
        yield fault(STATE, f"{facts.folder} is not a folder", None, f"ls -ld {place}")
    elif facts.exists and not facts.owned:
        why = "one account has one state directory, and only it is answered"
        action = f'sudo -u "$(stat -c %U {place})" handoffd doctor'
        yield fault(STATE, f"{facts.folder} belongs to another account", why, action)
    elif not facts.writable:
        verb = "written" if facts.exists else "made"
        action = f"namei -l {place}" if facts.exists else f"sudo install -d -m 700 -o $(id -un) {place}"
        yield fault(STATE, f"{facts.folder} cannot be {verb}", "its rights, or a read-only disk", action)
    elif facts.exists and facts.mode & 0o077:
        why = f"its mode is {facts.mode:o}: others may read prompts and what agents printed"
        yield warning(STATE, f"{facts.folder} is open to others", why, f"chmod 700 {place}")


def _place(facts: StateFacts) -> Iterator[Finding]:
    if facts.kind is None:
        return
    if is_network(facts.kind):
        why = "the journal needs memory that is shared between processes, and locks that hold: WAL of SQLite"
        action = "handoffd config show  # then set state_dir to a folder on a local disk"
        yield fault(STATE, f"{facts.folder} is on a network file system ({facts.kind})", why, action)
    elif is_memory(facts.kind):
        why = "the journal is gone after a restart of the machine, and with it what every project did"
        action = "handoffd config show  # then set state_dir to a folder on a disk"
        yield warning(STATE, f"{facts.folder} is kept in memory only ({facts.kind})", why, action)


def _room(facts: StateFacts, min_free_mb: int) -> Iterator[Finding]:
    free_mb, look = facts.free_bytes // _MIB, f"df -h {quote(facts.folder)}"
    asks = f"execute.min_free_mb asks for {min_free_mb} MiB"
    if free_mb < min_free_mb:
        what = f"{free_mb} MiB are free at {facts.folder}: no executor is started"
        yield fault(STATE, what, asks, look)
    elif free_mb < 2 * min_free_mb:
        what = f"only {free_mb} MiB are free at {facts.folder}"
        yield warning(STATE, what, f"{asks}; below that no executor is started", look)
    if facts.free_inodes is not None and facts.free_inodes < _FEW_INODES:
        why = "every run makes about ten files there"
        tell = warning if facts.free_inodes else fault
        look = f"df -i {quote(facts.folder)}"
        yield tell(
            STATE, f"{counted(facts.free_inodes, 'inode is', 'inodes are')} free at {facts.folder}", why, look
        )


def _journal(facts: StateFacts) -> Iterator[Finding]:
    if facts.error is not None and facts.owned:
        action = facts.error.hint or f"ls -l {quote(facts.folder)}"
        yield fault(STATE, "the journal cannot be used", facts.error.message, action)


def _good(facts: StateFacts) -> str:
    room = f"{facts.free_bytes // _MIB} MiB free"
    if not facts.exists:
        return f"{facts.folder} will be made at the first start; {room}"
    journal = "no journal yet" if facts.schema is None else f"journal of schema {facts.schema}"
    return f"{facts.folder}, {journal}, {room}"


# --- file systems, by the kernel's own table of mounts ------------------------------------------------
_NETWORK = frozenset(
    {
        "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gpfs", "lustre",
        "ncpfs", "nfs", "nfs4", "orangefs", "smb3", "smbfs",
    }
)  # fmt: skip
_NETWORK_FUSE = frozenset(
    {
        "fuse.ceph", "fuse.ceph-fuse", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs", "fuse.goofys",
        "fuse.juicefs", "fuse.rclone", "fuse.s3fs", "fuse.seaweedfs", "fuse.sshfs",
    }
)  # fmt: skip
_IN_MEMORY = frozenset({"ramfs", "tmpfs"})


def is_network(kind: str) -> bool:
    """Return whether a type of file system is served by another machine (or, `9p`, by the host)."""
    return kind in _NETWORK or kind in _NETWORK_FUSE


def is_memory(kind: str) -> bool:
    """Return whether files on such a file system are lost when the machine restarts."""
    return kind in _IN_MEMORY


def kind_of(folder: Path) -> str | None:
    """Return the type of the file system of `folder`; None if the kernel does not report it.

    Raises OSError. By the mount's number, because one mount may hide another of the same path.
    """
    opened = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        info = Path(f"/proc/self/fdinfo/{opened}").read_text()
    finally:
        os.close(opened)
    table = Path("/proc/self/mountinfo").read_text(errors="replace")
    return kind_in(table, mount_number(info))


def mount_number(info: str) -> str | None:
    """Return the number of the mount in the text of an `fdinfo`."""
    numbers = [line.split()[1] for line in info.splitlines() if line.startswith("mnt_id:")]
    return numbers[0] if numbers else None


def kind_in(table: str, number: str | None) -> str | None:
    """Return the type of the mount `number` in the text of a `mountinfo`."""
    for line in table.splitlines():
        head, dash, tail = line.partition(" - ")
        if dash and head.split()[:1] == [number]:
            return tail.split()[0]
    return None


# --- the kernel's limits of file watches, and who of this account holds how many ----------------------
PROC = Path("/proc")

_INOTIFY = "anon_inode:inotify"
_WATCH = "inotify wd:"


class Limit(Struct, frozen=True, kw_only=True):
    """A limit of the kernel, by the name under which `sysctl` knows it."""

    key: str
    value: int


class Limits(Struct, frozen=True, kw_only=True):
    """What one account may have; `events` is for each instance. None where the kernel does not tell."""

    watches: Limit | None
    instances: Limit | None
    events: Limit | None


class Holder(Struct, frozen=True, kw_only=True):
    """A process that watches files."""

    pid: int
    command: str
    watches: int
    instances: int


def watch_limits(proc: Path = PROC) -> Limits:
    """Return the limits that apply here: in a user namespace its own, if they are lower."""
    kernel = proc / "sys/fs/inotify"
    return Limits(
        watches=_lower(
            _limit("fs.inotify.max_user_watches", kernel / "max_user_watches"),
            _limit("user.max_inotify_watches", proc / "sys/user/max_inotify_watches"),
        ),
        instances=_lower(
            _limit("fs.inotify.max_user_instances", kernel / "max_user_instances"),
            _limit("user.max_inotify_instances", proc / "sys/user/max_inotify_instances"),
        ),
        events=_limit("fs.inotify.max_queued_events", kernel / "max_queued_events"),
    )


def watch_holders(uid: int, proc: Path = PROC) -> tuple[Holder, ...]:
    """Return the processes of an account that watch files, as far as they can be seen; most first."""
    found = (_holder(process, uid) for process in proc.iterdir() if process.name.isdecimal())
    return tuple(sorted(filter(None, found), key=lambda holder: -holder.watches))


def _holder(process: Path, uid: int) -> Holder | None:
    try:
        if process.stat().st_uid != uid:
            return None
        counts = [_watches(process / "fdinfo" / name) for name in _instances(process / "fd")]
        command = (process / "comm").read_text(errors="replace").strip()
    except OSError:  # it has ended, or belongs to another account
        return None
    if not counts:
        return None
    return Holder(pid=int(process.name), command=command, watches=sum(counts), instances=len(counts))


def _instances(descriptors: Path) -> Iterator[str]:
    for name in os.listdir(descriptors):
        try:
            if os.readlink(descriptors / name) == _INOTIFY:
                yield name
        except OSError:
            continue


def _watches(info: Path) -> int:
    with info.open(errors="replace") as lines:
        return sum(line.startswith(_WATCH) for line in lines)


def _limit(key: str, file: Path) -> Limit | None:
    try:
        return Limit(key=key, value=int(file.read_text()))
    except (OSError, ValueError):
        return None


def _lower(usual: Limit | None, inner: Limit | None) -> Limit | None:
    if usual is None or inner is None:
        return usual or inner
    return inner if inner.value < usual.value else usual


# --- whether all projects can be watched, and which of them are only swept ----------------------------
WATCHES = "watches"
LASTING = "/etc/sysctl.d/60-handoffd.conf"

_PLENTY: Mapping[str, int] = {"watches": 1_048_576, "instances": 1024, "events": 65_536}


class WatchFacts(Struct, frozen=True, kw_only=True):
    """`others` is what else of this account watches files; None: it could not be found out.

    `swept` maps the roots that the running daemon only sweeps to the reasons.
    """

    projects: int
    demand: Demand
    limits: Limits
    others: Sequence[Holder] | None
    swept: Mapping[str, str]
    sweep_s: float


def check_watches(facts: WatchFacts) -> tuple[Finding, ...]:
    """Return which projects are only swept and why, and which limit is too low for the projects there are."""
    limited = sorted(root for root, why in facts.swept.items() if why == LIMIT_REACHED)
    found: list[Finding] = []
    if limited:
        why, raised = f"{LIMIT_REACHED}; {_held(facts)}", _short(facts) or list(_limits(facts))
        found.append(warning(WATCHES, _only_swept(limited, facts), why, _raise(raised, facts)))
    elif short := _short(facts):
        found.append(_too_low(facts, short))
    else:
        found += _queue(facts)
    found += _otherwise_swept(facts)
    return tuple(found) or (fine(WATCHES, _enough(facts)),)


def _only_swept(roots: Sequence[str], facts: WatchFacts) -> str:
    verb = "is" if len(roots) == 1 else "are"
    of, every = f"{len(roots)} of {counted(facts.projects, 'project')}", f"{facts.sweep_s:g} s"
    return f"{of} {verb} only looked at every {every}: {first_few(roots)}"


def _limits(facts: WatchFacts) -> Iterator[tuple[str, Limit]]:
    known = {"watches": facts.limits.watches, "instances": facts.limits.instances}
    yield from ((name, limit) for name, limit in known.items() if limit is not None)


def _short(facts: WatchFacts) -> list[tuple[str, Limit]]:
    """Return the limits that leave less than the projects need."""
    return [(name, limit) for name, limit in _limits(facts) if _needed(name, facts) > limit.value]


def _needed(name: str, facts: WatchFacts) -> int:
    """Return how many this account needs, together with the ones that its other processes hold."""
    others: int = sum(getattr(holder, name) for holder in facts.others or ())
    wanted: int = getattr(facts.demand, name)
    return wanted + others


def _too_low(facts: WatchFacts, short: Sequence[tuple[str, Limit]]) -> Finding:
    wanted = " and ".join(
        f"{getattr(facts.demand, name)} {name} of at most {limit.value}" for name, limit in short
    )
    what = f"the limit of file watches is too low for {counted(facts.projects, 'project')}"
    why = f"they need {wanted}; {_held(facts)}. handoffd checks the rest only every {facts.sweep_s:g} s"
    return warning(WATCHES, what, why, _raise(short, facts))


def _held(facts: WatchFacts) -> str:
    limits = ", ".join(f"{limit.key} = {limit.value}" for _, limit in _limits(facts))
    if not facts.others:
        return limits
    most = facts.others[0]
    watches, instances = (
        sum(getattr(one, name) for one in facts.others) for name in ("watches", "instances")
    )
    held = f"{counted(watches, 'watch', 'watches')} and {counted(instances, 'instance')}"
    return (
        f"{limits}; other programs of this account hold {held}, "
        f"the most of them {most.command} (process {most.pid}) with {most.watches}"
    )


def _raise(short: Sequence[tuple[str, Limit]], facts: WatchFacts) -> str:
    """Return the command that raises limits, now and after a reboot."""
    values = [f"{limit.key}={_raised(name, limit, facts)}" for name, limit in short]
    if not values:
        return "sysctl fs.inotify"
    words = " ".join(values)
    return f"sudo sysctl {words} && printf '%s\\n' {words} | sudo tee {LASTING}"


def _raised(name: str, limit: Limit, facts: WatchFacts) -> int:
    wanted = facts.demand.events if name == "events" else _needed(name, facts)
    value = max(_PLENTY[name], 2 * limit.value if limit.value >= _PLENTY[name] else 0)
    while value < 2 * wanted:
        value *= 2
    return value


def _otherwise_swept(facts: WatchFacts) -> Iterator[Finding]:
    reasons: dict[str, list[str]] = {}
    for root, why in sorted(facts.swept.items()):
        if why != LIMIT_REACHED:
            reasons.setdefault(why, []).append(root)
    for why, roots in reasons.items():
        yield warning(WATCHES, _only_swept(roots, facts), why, f"ls -la {quote(roots[0])}")


def _queue(facts: WatchFacts) -> Iterator[Finding]:
    queue = facts.limits.events
    if queue is not None and facts.demand.events > queue.value:
        why = (
            f"{queue.key} = {queue.value}, and {facts.demand.events} may come at once; what is lost "
            f"is found by a sweep, at the latest after {facts.sweep_s:g} s"
        )
        action = _raise([("events", queue)], facts)
        yield warning(WATCHES, "a burst of changes may be more than the kernel keeps", why, action)


def _enough(facts: WatchFacts) -> str:
    count = counted(facts.projects, "project needs", "projects need")
    limits = ", ".join(
        f"{getattr(facts.demand, name)} of {limit.value} {name}" for name, limit in _limits(facts)
    )
    return f"{count} {limits}" if limits else "the kernel names no limit"


# --- whether the daemon may have as many files open as its projects need ------------------------------
DESCRIPTORS = "descriptors"

_OWN = 64
"""What a daemon has open besides: sockets, the journal, watches, libraries."""
_PER_RUN = 10


class FileFacts(Struct, frozen=True, kw_only=True):
    """`most` is the hard limit of the daemon, or of the shell that would start it; None if unlimited."""

    projects: int
    slots: int
    most: int | None
    service: Service
    pid: int | None = None


def most_files(pid: int | None) -> int | None:
    """Return how many files a process may have open at most: the hard limit. None: as many as it likes.

    Without `pid`, or if that process cannot be read, the limit of this process.
    """
    try:
        hard = resource.prlimit(pid or 0, resource.RLIMIT_NOFILE)[1]
    except OSError:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def check_descriptors(facts: FileFacts) -> tuple[Finding, ...]:
    """Return whether each project's lock, and what runs besides, has a descriptor."""
    needed = facts.projects + RESERVE + HEADROOM + _PER_RUN * facts.slots + _OWN
    if facts.most is None or needed <= facts.most:
        most = "no limit" if facts.most is None else f"{facts.most} are allowed"
        return (fine(DESCRIPTORS, f"{needed} open files are enough, {most}"),)
    projects = counted(facts.projects, "project")
    why = f"{projects} with {counted(facts.slots, 'slot')} need {needed}; what is beyond the limit waits"
    action = facts.service.allow_files(facts.pid)
    return (fault(DESCRIPTORS, f"the daemon may have only {counted(facts.most, 'file')} open", why, action),)


# --- whether agents and checks can be held to their project, and what holds them ------------------------
# The sandbox is tried, not guessed: a program that does nothing is started in one, as the launcher would
# start an agent. So a rule of the kernel, of a container or of AppArmor is found that no setting shows.
SANDBOX = "sandbox"
TRY_S = 5.0
_ISOLATED = ("-I", "-S", "-E", "-X", "utf8")


class SandboxFacts(Struct, frozen=True, kw_only=True):
    """`holds` is the level that a run would have here; None: it would not start, and `why` has the reason."""

    settings: SandboxSettings
    holds: str | None = None
    why: str | None = None
    is_root: bool = False


def sandbox_facts(settings: SandboxSettings) -> SandboxFacts:
    """Try the sandbox of the settings."""
    is_root = os.geteuid() == 0
    if settings.level == OFF:
        return SandboxFacts(settings=settings, is_root=is_root)
    command = [os.path.realpath(sys.executable), *_ISOLATED, str(Path(entry.__file__)), settings.level]
    try:
        tried = subprocess.run(
            [*command, settings.network], capture_output=True, check=False, text=True, timeout=TRY_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return SandboxFacts(settings=settings, why=str(error), is_root=is_root)
    holds, why = tried.stdout.strip() or None, tried.stderr.strip() or None
    return SandboxFacts(settings=settings, holds=holds, why=why, is_root=is_root)


def check_sandbox(facts: SandboxFacts) -> tuple[Finding, ...]:
    """Return what holds agents, or why they are not started."""
    return tuple(_of_sandbox(facts))


def _of_sandbox(facts: SandboxFacts) -> Iterator[Finding]:
    level = facts.settings.level
    if level == OFF:
        why = "the settings say `sandbox: {level: off}`: agents may do all that their account may"
        yield warning(SANDBOX, "there is no sandbox around agents", why, "handoffd config show")
    elif facts.holds is None:
        what, _, action = (facts.why or "it could not be tried").partition("; next: ")
        yield fault(SANDBOX, "no agent can be started in its sandbox", what, action or f"write {SETTING}")
    elif facts.holds == LANDLOCK:
        why = "processes stay visible, and a project's .git/config can be changed"
        yield warning(SANDBOX, "agents are held by Landlock alone", why, "handoffd config show")
    else:
        yield fine(SANDBOX, f"{_sandbox_in_words(facts)}; network: {facts.settings.network}")


def _sandbox_in_words(facts: SandboxFacts) -> str:
    if facts.holds == STRICT:
        by = HOLDS[STRICT]
    else:
        by = f"namespaces; Landlock's scopes, which shut abstract sockets, need version {SCOPES_SINCE} of it"
    whom = "agents of root, which see folders of programs only," if facts.is_root else "agents"
    return f"{whom} are held to their project by {by}"
