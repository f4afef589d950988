"""How much memory is left, as kernels of both kinds of control groups tell it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from handoffd.capacity.admission import facts, free_mb, load_per_core

MIB = 1024 * 1024


def machine(base: Path, groups: str = "0::/\n", available_mb: int | None = 4000) -> Path:
    """Return the root of a machine with so much memory, on which we are in these control groups."""
    (base / "proc/self").mkdir(parents=True)
    (base / "proc/self/cgroup").write_text(groups)
    known = f"MemAvailable:    {available_mb * 1024} kB\n" if available_mb is not None else ""
    (base / "proc/meminfo").write_text(f"MemTotal:       9999999 kB\n{known}SwapTotal: 0 kB\n")
    return base


def group(root: Path, path: str, limit: str, used_mb: int, cached_mb: int = 0) -> None:
    """Make a control group of version 2."""
    folder = root / "sys/fs/cgroup" / path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used_mb * MIB}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {cached_mb * MIB}\nactive_file 7\n")


def test_without_limits_it_is_what_the_machine_has(tmp_path: Path) -> None:
    """Also where nothing of control groups is to be seen."""
    root = machine(tmp_path)
    assert 4000 == free_mb(root)
    group(root, "", "max", 10)
    assert 4000 == free_mb(root)


def test_a_container_has_less_than_its_machine(tmp_path: Path) -> None:
    """What its files fill can be taken back, so it counts as free."""
    root = machine(tmp_path)
    group(root, "", str(1000 * MIB), 900, cached_mb=200)
    assert 300 == free_mb(root)


def test_every_group_above_ours_counts(tmp_path: Path) -> None:
    """The one that has least left; one that has taken too much has nothing."""
    root = machine(tmp_path, "0::/user.slice/session.scope\n")
    group(root, "user.slice/session.scope", "max", 100)
    group(root, "user.slice", str(800 * MIB), 300)
    assert 500 == free_mb(root)
    group(root, "user.slice", str(800 * MIB), 900)
    assert 0 == free_mb(root)


def test_the_limit_of_our_own_service_is_no_limit_for_executors(tmp_path: Path) -> None:
    """They run in the launcher's unit; what is above both counts."""
    root = machine(tmp_path, "0::/system.slice/handoffd.service\n")
    group(root, "system.slice/handoffd.service", str(100 * MIB), 99)
    group(root, "system.slice", str(2000 * MIB), 500)
    assert 1500 == free_mb(root)


def test_version_1_has_other_names_for_it(tmp_path: Path) -> None:
    """And no word for unlimited."""
    root = machine(tmp_path, "9:name=systemd:/\n4:cpu,memory:/box\n")
    for path, limit in (("", 1 << 62), ("box", 700 * MIB)):
        folder = root / "sys/fs/cgroup/memory" / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
        (folder / "memory.usage_in_bytes").write_text(f"{650 * MIB}\n")
        (folder / "memory.stat").write_text(f"inactive_file 5\ntotal_inactive_file {50 * MIB}\n")
    assert 100 == free_mb(root)


@pytest.mark.parametrize("groups", ["", "nonsense\n", "0::/../../etc\n", "0::/not/there\n"])
def test_what_cannot_be_read_limits_nothing(tmp_path: Path, groups: str) -> None:
    """And leads nowhere."""
    assert 4000 == free_mb(machine(tmp_path, groups))
    assert None is free_mb(tmp_path / "nothing")
    (tmp_path / "proc/meminfo").write_text("MemAvailable: many\n")
    assert None is free_mb(tmp_path)


def test_an_old_kernel_does_not_tell(tmp_path: Path) -> None:
    """Before 3.14 there is no such line."""
    assert None is free_mb(machine(tmp_path, available_mb=None))


def test_load_is_by_core(tmp_path: Path) -> None:
    """Of the cores that we may use."""
    root = machine(tmp_path)
    assert None is load_per_core(root)
    (root / "proc/loadavg").write_text("3.00 2.00 1.00 1/94 27481\n")
    assert 3.0 / len(os.sched_getaffinity(0)) == load_per_core(root)
    (root / "proc/loadavg").write_text("\n")
    assert None is load_per_core(root)


def test_of_this_machine_something_is_known() -> None:
    """With the files that it really has."""
    found = facts()
    assert found.free_mb is not None
    assert found.load_per_core is not None
    assert (True, True) == (found.free_mb > 0, found.load_per_core >= 0)
