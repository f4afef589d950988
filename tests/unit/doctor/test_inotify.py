"""The kernel's limits, and who watches how much."""

from __future__ import annotations

import os
from pathlib import Path

from handoffd.doctor.machine import Holder, Limit, watch_holders, watch_limits
from handoffd.settings.model import WatchSettings
from handoffd.watch.folders import place_of
from handoffd.watch.watchfiles_backend import open_watch


def kernel(proc: Path, **values: int) -> None:
    """Write limits as the kernel shows them; `user_…` are those of a user namespace."""
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
    """A user namespace has limits of its own; where they are no lower, the usual name is told."""
    kernel(tmp_path, fs_max_user_watches=8192, user_max_inotify_watches=10)
    kernel(tmp_path, fs_max_user_instances=128, user_max_inotify_instances=128)

    found = watch_limits(tmp_path)

    assert Limit(key="user.max_inotify_watches", value=10) == found.watches
    assert Limit(key="fs.inotify.max_user_instances", value=128) == found.instances


def test_a_kernel_that_tells_nothing(tmp_path: Path) -> None:
    """Or nothing that can be understood."""
    kernel(tmp_path, fs_max_user_watches=1)
    (tmp_path / "sys/fs/inotify/max_user_watches").write_text("many")

    found = watch_limits(tmp_path)

    assert (None, None, None) == (found.watches, found.instances, found.events)


def test_holders_of_this_account_most_first(tmp_path: Path) -> None:
    """Without those that watch nothing, and those that have just ended."""
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
    """What `watch.demand` reckons with, counted by the kernel."""

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
