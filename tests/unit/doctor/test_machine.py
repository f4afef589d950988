"""The state directory, file watches and open files."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.children import ending
from tests.support.disks import small_disk
from tests.support.eventually import eventually_sync

from handoffd.doctor.machine import (
    FileFacts,
    Holder,
    Limit,
    Limits,
    StateFacts,
    WatchFacts,
    check_descriptors,
    check_state,
    check_watches,
    is_memory,
    is_network,
    kind_in,
    kind_of,
    most_files,
    mount_number,
    silent_state,
    state_facts,
    unseen_state,
    watch_holders,
    watch_limits,
)
from handoffd.doctor.service import Service
from handoffd.errors import StoreError
from handoffd.journal.journal import Journal
from handoffd.journal.schema import VERSION
from handoffd.settings.model import WatchSettings
from handoffd.watch.backend import LIMIT_REACHED, demand
from handoffd.watch.folders import place_of
from handoffd.watch.watchfiles_backend import open_watch

# --- the state directory ----------------------------------------------------------------------------
MIB = 1024 * 1024


def state(**changes: Any) -> StateFacts:
    """Return facts about a sound directory, with `changes`."""
    values: dict[str, Any] = {
        "folder": "/var/state", "exists": True, "is_folder": True, "owned": True, "mode": 0o700,
        "writable": True, "free_bytes": 5000 * MIB, "free_inodes": 100_000, "kind": "ext4", "schema": 3,
    }  # fmt: skip
    return StateFacts(**values | changes)


def verdict(**changes: Any) -> tuple[str, str, str | None]:
    """Return severity, what and action of the one finding for facts with `changes`."""
    (found,) = check_state(state(**changes), 512)
    return found.severity, found.what, found.action


def test_a_sound_state_directory() -> None:
    """In one line; also before the first start."""
    assert ("ok", "/var/state, journal of schema 3, 5000 MiB free", None) == verdict()
    assert ("ok", "/var/state, no journal yet, 5000 MiB free", None) == verdict(schema=None)
    new = "/var/state will be made at the first start; 5000 MiB free"
    # The folder above it may be open to all accounts, as /var/tmp is.
    assert ("ok", new, None) == verdict(exists=False, owned=False, mode=0o1777)


@pytest.mark.parametrize(
    ("changes", "severity", "what", "action"),
    [
        ({"is_folder": False}, "fault", "/var/state is not a folder", "ls -ld /var/state"),
        (
            {"owned": False},
            "fault",
            "/var/state belongs to another account",
            'sudo -u "$(stat -c %U /var/state)" handoffd doctor',
        ),
        ({"writable": False}, "fault", "/var/state cannot be written", "namei -l /var/state"),
        (
            {"writable": False, "exists": False},
            "fault",
            "/var/state cannot be made",
            "sudo install -d -m 700 -o $(id -un) /var/state",
        ),
        (
            {"free_bytes": 511 * MIB},
            "fault",
            "511 MiB are free at /var/state: no executor is started",
            "df -h /var/state",
        ),
        ({"free_inodes": 0}, "fault", "0 inodes are free at /var/state", "df -i /var/state"),
        (
            {"kind": "nfs4"},
            "fault",
            "/var/state is on a network file system (nfs4)",
            "handoffd config show  # then set state_dir to a folder on a local disk",
        ),
        (
            {"error": StoreError("it is damaged", hint="handoffd journal verify")},
            "fault",
            "the journal cannot be used",
            "handoffd journal verify",
        ),
        ({"error": StoreError("unreadable")}, "fault", "the journal cannot be used", "ls -l /var/state"),
        ({"mode": 0o750}, "warning", "/var/state is open to others", "chmod 700 /var/state"),
        ({"free_bytes": 1023 * MIB}, "warning", "only 1023 MiB are free at /var/state", "df -h /var/state"),
        ({"free_inodes": 999}, "warning", "999 inodes are free at /var/state", "df -i /var/state"),
        (
            {"kind": "tmpfs"},
            "warning",
            "/var/state is kept in memory only (tmpfs)",
            "handoffd config show  # then set state_dir to a folder on a disk",
        ),
    ],
)
def test_problems_of_the_state_directory(
    changes: dict[str, Any], severity: str, what: str, action: str
) -> None:
    """A fault keeps handoffd from working; with a warning it works for now."""
    assert (severity, what, action) == verdict(**changes)


def test_exactly_enough_room_is_enough() -> None:
    """A limit of 0 allows everything; some disks do not count inodes."""
    for severity, changes in (
        ("warning", {"free_bytes": 512 * MIB}),
        ("ok", {"free_bytes": 1024 * MIB}),
        ("ok", {"free_inodes": 1000}),
        ("ok", {"free_inodes": None}),
        ("ok", {"kind": None}),
    ):
        assert severity == verdict(**changes)[0]
    assert ["ok"] == [found.severity for found in check_state(state(free_bytes=0), 0)]


def test_several_findings_are_all_reported() -> None:
    """But not of another account's journal."""
    error = StoreError("permission denied")
    found = check_state(state(owned=False, error=error, kind="nfs", free_bytes=0), 512)

    assert [
        "/var/state belongs to another account",
        "/var/state is on a network file system (nfs)",
        "0 MiB are free at /var/state: no executor is started",
    ] == [one.what for one in found]


def test_a_folder_that_cannot_be_seen() -> None:
    """Because it does not answer, or refuses."""
    assert ("fault", "stat '/mnt/a b'") == (
        silent_state("/mnt/a b").severity,
        silent_state("/mnt/a b").action,
    )
    found = unseen_state("/root/x", PermissionError(13, "Permission denied"))
    assert ("fault", "Permission denied", "namei -l /root/x") == (found.severity, found.why, found.action)


async def test_facts_of_a_real_state_directory(tmp_path: Path) -> None:
    """Mode, room, file system and journal; before it exists, of the folder above it."""
    folder = tmp_path / "a" / "state"
    before = state_facts(folder, folder / "journal.db")
    assert (False, True, None) == (before.exists, before.writable, before.schema)

    journal = await Journal.open(folder / "journal.db")
    await journal.close()
    found = state_facts(folder, folder / "journal.db")

    assert (True, True, True, True) == (found.exists, found.is_folder, found.owned, found.writable)
    assert (0o700, VERSION, None) == (found.mode, found.schema, found.error)
    assert found.kind
    assert 0 < found.free_bytes


def test_a_file_that_is_not_a_journal_is_recognised(tmp_path: Path) -> None:
    """And a state directory that is not a folder."""
    (tmp_path / "journal.db").write_text("a letter, and not a journal at all " * 10)
    found = state_facts(tmp_path, tmp_path / "journal.db")
    assert found.error is not None
    assert "NOT_A_JOURNAL" == found.error.code
    assert not state_facts(tmp_path / "journal.db", tmp_path / "none").is_folder


def test_a_full_disk_is_recognised(tmp_path: Path) -> None:
    """By the room and the inodes that are left."""
    with small_disk(tmp_path, 1):
        (tmp_path / "big").write_bytes(b"x" * MIB)
        found = state_facts(tmp_path, tmp_path / "journal.db")
        assert (0, "tmpfs") == (found.free_bytes // MIB, found.kind)
        assert found.free_inodes is not None


# --- its file system --------------------------------------------------------------------------------
TABLE = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
36 21 0:30 / /home rw,noatime - nfs4 server:/home rw,vers=4.2
37 36 0:31 / /home rw master:1 shared:2 - tmpfs tmpfs rw
broken
"""


def test_a_mount_is_known_by_its_number() -> None:
    """Not by its path: one mount may hide another."""
    assert "nfs4" == kind_in(TABLE, "36")
    assert "tmpfs" == kind_in(TABLE, "37")
    assert None is kind_in(TABLE, "99")
    assert None is kind_in(TABLE, None)


def test_the_number_of_an_open_folder() -> None:
    """As fdinfo has it."""
    assert "36" == mount_number("pos:\t0\nflags:\t012100000\nmnt_id:\t36\nino:\t2\n")
    assert None is mount_number("pos:\t0\n")


@pytest.mark.parametrize(
    ("kinds", "network", "memory"),
    [
        ("nfs nfs4 cifs 9p ceph fuse.sshfs lustre", True, False),
        ("ext4 btrfs xfs overlay zfs fuse.gocryptfs fuseblk", False, False),
        ("tmpfs", False, True),
    ],
)
def test_file_systems_are_local_or_not(kinds: str, network: bool, memory: bool) -> None:
    """Some are in memory only, some are by FUSE."""
    for kind in kinds.split():
        assert (network, memory) == (is_network(kind), is_memory(kind)), kind


def test_the_kind_of_a_real_folder(tmp_path: Path) -> None:
    """It has a name; after a mount over the folder, that file system's."""
    assert kind_of(tmp_path)
    with pytest.raises(FileNotFoundError):
        kind_of(tmp_path / "none")
    with small_disk(tmp_path, 1):
        assert "tmpfs" == kind_of(tmp_path)


# --- limits of watches ------------------------------------------------------------------------------
def kernel(proc: Path, **values: int) -> None:
    """Write limits as the kernel shows them; `user_…` are of a user namespace."""
    for name, value in values.items():
        space, _, key = name.partition("_")
        file = proc / "sys" / ("user" if space == "user" else "fs/inotify") / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")


def process(proc: Path, pid: int, *watches: int) -> None:
    """Make a process with an instance for each number of watches, and a file besides."""
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "fdinfo").mkdir()
    (proc / str(pid) / "comm").write_text(f"editor{pid}\n")
    (proc / str(pid) / "fd" / "0").symlink_to("/dev/null")
    for number, count in enumerate(watches, start=1):
        (proc / str(pid) / "fd" / str(number)).symlink_to("anon_inode:inotify")
        lines = ["pos:\t0", "flags:\t02004000", *[f"inotify wd:{wd:x} ino:1 sdev:1" for wd in range(count)]]
        (proc / str(pid) / "fdinfo" / str(number)).write_text("\n".join(lines))


def test_the_limits_as_the_kernel_shows_them(tmp_path: Path) -> None:
    """By the names that sysctl knows."""
    kernel(tmp_path, fs_max_user_watches=8192, fs_max_user_instances=128, fs_max_queued_events=16384)

    found = watch_limits(tmp_path)

    assert Limit(key="fs.inotify.max_user_watches", value=8192) == found.watches
    assert Limit(key="fs.inotify.max_user_instances", value=128) == found.instances
    assert Limit(key="fs.inotify.max_queued_events", value=16384) == found.events


def test_the_lower_limit_counts(tmp_path: Path) -> None:
    """A user namespace has its own limits; if they are not lower, the finding has the usual name."""
    kernel(tmp_path, fs_max_user_watches=8192, user_max_inotify_watches=10)
    kernel(tmp_path, fs_max_user_instances=128, user_max_inotify_instances=128)

    found = watch_limits(tmp_path)

    assert Limit(key="user.max_inotify_watches", value=10) == found.watches
    assert Limit(key="fs.inotify.max_user_instances", value=128) == found.instances


def test_a_kernel_that_shows_no_limits(tmp_path: Path) -> None:
    """Or not as numbers."""
    kernel(tmp_path, fs_max_user_watches=1)
    (tmp_path / "sys/fs/inotify/max_user_watches").write_text("many")

    found = watch_limits(tmp_path)

    assert (None, None, None) == (found.watches, found.instances, found.events)


def test_holders_of_watches_of_this_account_most_first(tmp_path: Path) -> None:
    """Without processes that watch nothing, or have just ended."""
    process(tmp_path, 10, 3)
    process(tmp_path, 11, 5, 2)
    process(tmp_path, 12)
    (tmp_path / "13").mkdir()
    (tmp_path / "self").mkdir()

    assert (
        Holder(pid=11, command="editor11", watches=7, instances=2),
        Holder(pid=10, command="editor10", watches=3, instances=1),
    ) == watch_holders(os.geteuid(), tmp_path)
    assert () == watch_holders(os.geteuid() + 1, tmp_path)


def test_a_real_watch_is_one_instance_and_a_watch_for_each_project(tmp_path: Path) -> None:
    """As `watch.demand` calculates, and the kernel counts."""

    def held() -> tuple[int, int]:
        mine = [one for one in watch_holders(os.geteuid()) if one.pid == os.getpid()]
        return sum(one.watches for one in mine), sum(one.instances for one in mine)

    for name in "abc":
        (tmp_path / name / ".ai").mkdir(parents=True)
    watches, instances = held()
    watch, refused = open_watch([place_of(str(tmp_path / name)) for name in "abc"], WatchSettings())
    assert watch is not None
    try:
        assert {} == refused
        assert (watches + 3, instances + 1) == held()
    finally:
        watch.close()


# --- watches ----------------------------------------------------------------------------------------
EDITOR = Holder(pid=4711, command="code", watches=7000, instances=8)
SMALL = Holder(pid=12, command="tail", watches=1, instances=1)


def limited(watches: int | None = 65_536, instances: int | None = 128, events: int | None = 16_384) -> Limits:
    """Return limits with their usual names."""
    return Limits(
        watches=None if watches is None else Limit(key="fs.inotify.max_user_watches", value=watches),
        instances=None if instances is None else Limit(key="fs.inotify.max_user_instances", value=instances),
        events=None if events is None else Limit(key="fs.inotify.max_queued_events", value=events),
    )


def watching(projects: int = 3, **changes: Any) -> WatchFacts:
    """Return facts in which all is well, with `changes`."""
    asked = demand(projects, WatchSettings(backend="watchfiles"))
    values: dict[str, Any] = {
        "projects": projects, "demand": asked, "limits": limited(),
        "others": (EDITOR, SMALL), "swept": {}, "sweep_s": 30.0,
    }  # fmt: skip
    return WatchFacts(**values | changes)


def test_enough_watches() -> None:
    """In one line, with the figures."""
    (found,) = check_watches(watching())
    assert ("ok", "3 projects need 6 of 65536 watches, 2 of 128 instances") == (found.severity, found.what)
    (one,) = check_watches(watching(1))
    assert one.what.startswith("1 project needs 2 of")


def test_projects_that_are_swept_are_named_with_the_command() -> None:
    """It raises the limit now and permanently; the reason names the process with the most watches."""
    (found,) = check_watches(
        watching(limits=limited(watches=7004), swept={"/srv/b": LIMIT_REACHED, "/srv/a": LIMIT_REACHED})
    )

    assert "warning" == found.severity
    assert "2 of 3 projects are only looked at every 30 s: /srv/a, /srv/b" == found.what
    assert found.why is not None
    assert found.why.startswith(LIMIT_REACHED)
    assert "hold 7001 watches and 9 instances, the most of them code (process 4711) with 7000" in found.why
    raised = "fs.inotify.max_user_watches=1048576"
    lasting = f"printf '%s\\n' {raised} | sudo tee /etc/sysctl.d/60-handoffd.conf"
    assert f"sudo sysctl {raised} && {lasting}" == found.action


def test_where_neither_limit_looks_short_both_are_raised() -> None:
    """The daemon may have a namespace of its own. A limit that is high already is doubled."""
    swept = {"/srv/a": LIMIT_REACHED}
    (found,) = check_watches(watching(limits=limited(watches=2_000_000), others=None, swept=swept))

    assert "1 of 3 projects is only looked at every 30 s: /srv/a" == found.what
    assert found.action is not None
    raised = "fs.inotify.max_user_watches=4000000 fs.inotify.max_user_instances=1024"
    assert found.action.startswith(f"sudo sysctl {raised} && ")
    (blind,) = check_watches(watching(limits=limited(None, None, None), swept=swept))
    assert "sysctl fs.inotify" == blind.action


def test_of_many_projects_five_are_named() -> None:
    """The others are counted."""
    (found,) = check_watches(watching(9, swept={f"/srv/{number}": LIMIT_REACHED for number in range(7)}))
    assert found.what.endswith(": /srv/0, /srv/1, /srv/2, /srv/3, /srv/4 and 2 more")


@pytest.mark.parametrize(
    ("given", "needs", "raised"),
    [
        ({"watches": 7001 + 1250 - 1}, "1250 watches of at most 8250", "fs.inotify.max_user_watches=1048576"),
        ({"instances": 9 + 5 - 1}, "5 instances of at most 13", "fs.inotify.max_user_instances=1024"),
        (
            {"watches": 10, "instances": 1},
            "1250 watches of at most 10 and 5 instances of at most 1",
            "fs.inotify.max_user_watches=1048576 fs.inotify.max_user_instances=1024",
        ),
    ],
)
def test_a_limit_that_is_too_low_is_reported_before(given: dict[str, int], needs: str, raised: str) -> None:
    """Also without a daemon; one watch less than needed is too few, counting other processes' watches."""
    (found,) = check_watches(watching(1000, limits=limited(**given)))

    assert ("warning", "the limit of file watches is too low for 1000 projects") == (
        found.severity,
        found.what,
    )
    assert needs in (found.why or "")
    assert f"sudo sysctl {raised} && printf" in (found.action or "")


def test_exactly_enough_watches_are_enough() -> None:
    """Counting the watches of other processes."""
    (found,) = check_watches(watching(1000, limits=limited(watches=7001 + 1250, instances=9 + 5)))
    assert "ok" == found.severity


def test_a_raised_limit_leaves_room_to_grow() -> None:
    """Twice what is needed at least."""
    huge = Holder(pid=1, command="code", watches=900_000, instances=1)
    (found,) = check_watches(watching(limits=limited(watches=900_000), others=(huge,)))
    assert "fs.inotify.max_user_watches=2097152 " in (found.action or "")


def test_other_reasons_are_reported_once_each() -> None:
    """Beside the limit; the command shows the first project."""
    odd = ".ai is not a folder"
    found = check_watches(watching(swept={"/srv/a b": odd, "/srv/c": odd, "/srv/d": LIMIT_REACHED}))

    assert [LIMIT_REACHED, odd] == [(one.why or "").split(";")[0] for one in found]
    assert "2 of 3 projects are only looked at every 30 s: /srv/a b, /srv/c" == found[1].what
    assert "ls -la '/srv/a b'" == found[1].action


def test_a_short_queue_is_reported() -> None:
    """A sweep finds lost changes."""
    (found,) = check_watches(watching(1000, limits=limited(events=3999)))

    assert ("warning", "a burst of changes may be more than the kernel keeps") == (found.severity, found.what)
    assert "sudo sysctl fs.inotify.max_queued_events=65536 && printf" in (found.action or "")
    assert ["ok"] == [one.severity for one in check_watches(watching(1000, limits=limited(events=4000)))]


def test_a_kernel_without_limits() -> None:
    """The finding claims nothing."""
    (found,) = check_watches(watching(limits=limited(None, None, None)))
    assert ("ok", "the kernel names no limit") == (found.severity, found.what)


def test_the_inotify_backend_needs_one_instance_and_no_long_queue() -> None:
    """It notices an overflow, which costs a second."""
    asked = demand(1000, WatchSettings(backend="inotify"))
    (found,) = check_watches(watching(1000, demand=asked, limits=limited(events=100)))

    assert ("ok", "1000 projects need 1000 of 65536 watches, 1 of 128 instances") == (
        found.severity,
        found.what,
    )


# --- open files -------------------------------------------------------------------------------------
TERMINAL = Service(unit=None)
NEEDED = 1000 + 32 + 32 + 4 * 10 + 64


def files(most: int | None, service: Service = TERMINAL) -> FileFacts:
    """Return facts about a thousand projects."""
    return FileFacts(projects=1000, slots=4, most=most, service=service, pid=12)


def test_each_project_needs_an_open_file_and_each_run_some() -> None:
    """Exactly as many are enough."""
    (enough,), (none,) = check_descriptors(files(NEEDED)), check_descriptors(files(None))
    assert ("ok", f"{NEEDED} open files are enough, {NEEDED} are allowed") == (enough.severity, enough.what)
    assert ("ok", f"{NEEDED} open files are enough, no limit") == (none.severity, none.what)


def test_too_few_open_files_are_a_fault() -> None:
    """With the command for the way in which the daemon is run."""
    (found,) = check_descriptors(files(NEEDED - 1))
    assert ("fault", f"the daemon may have only {NEEDED - 1} files open") == (found.severity, found.what)
    assert "1000 projects with 4 slots" in (found.why or "")
    assert "sudo prlimit --nofile=65536:65536 --pid 12" == found.action
    (unit,) = check_descriptors(files(1, Service(unit="handoffd")))
    assert "LimitNOFILE=65536" in (unit.action or "")


def test_the_hard_limit_of_a_process() -> None:
    """The daemon's; that of this process where there is none."""
    own = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    expected = None if own == resource.RLIM_INFINITY else own
    assert expected == most_files(None) == most_files(os.getpid()) == most_files(2**22 + 1)
    with ending(subprocess.Popen(["sh", "-c", "ulimit -n 77; exec sleep 600"])) as process:
        try:
            eventually_sync(lambda: most_files(process.pid) == 77)
        finally:
            process.kill()
