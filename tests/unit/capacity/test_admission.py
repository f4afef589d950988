"""Admission of starts: memory, its expected growth, load, and one start at a time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from handoffd.capacity.admission import GROWS_S, LOOK_S, Admission, Facts, facts, free_mb, load_per_core
from handoffd.engine.track import TrackKey
from handoffd.settings.model import SchedulingSettings

NOW = 1000.0


def admission(*starts: float, **scheduling: Any) -> Admission:
    """Return the rules for `scheduling`, after starts these seconds ago."""
    found = Admission(SchedulingSettings.model_validate({"min_free_memory_mb": 0} | scheduling))
    for ago in starts:
        found.started(TrackKey(f"/{ago}"), NOW - ago)
    return found


def why(found: Admission, facts: Facts, now: float = NOW) -> str | None:
    """Return why no start is admitted."""
    closed = found.closed(facts, now)
    return closed.why if closed is not None else None


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (1024, None),
        (1023, "memory: 1,023 MiB free, 1,024 wanted"),
        (0, "memory: 0 MiB free, 1,024 wanted"),
        (None, None),
    ],
)
def test_a_minimum_of_memory_must_be_free(free: int | None, expected: str | None) -> None:
    """An unknown amount is not a reason to wait."""
    assert expected == why(admission(min_free_memory_mb=1024), Facts(free_mb=free))


def test_a_recent_start_reserves_the_memory_it_will_take() -> None:
    """Less and less as it grows; so a burst of starts cannot take the same memory twice."""
    scheduling = {"min_free_memory_mb": 1000, "memory_per_agent_mb": 400}
    rules = admission(GROWS_S / 2, 0, **scheduling)
    assert 600 == rules.growing_mb(NOW)
    message = "memory: 1,500 MiB free, 600 of them for what was just started, 1,000 wanted"
    assert message == why(rules, Facts(free_mb=1500))
    assert None is why(rules, Facts(free_mb=1600))
    assert None is why(rules, Facts(free_mb=1500), NOW + GROWS_S)
    assert 0 == rules.growing_mb(NOW + GROWS_S)


def test_an_ended_run_reserves_nothing() -> None:
    """However many start and end; a repeated start counts once."""
    rules = admission(min_free_memory_mb=1, memory_per_agent_mb=100)
    for number in range(5000):
        rules.started(TrackKey(f"/{number}"), NOW)
        rules.ended(TrackKey(f"/{number}"))
    assert 0 == rules.growing_mb(NOW)
    for ahead_s in (0, 5):
        rules.started(TrackKey("/a"), NOW + ahead_s)
    assert 100 == rules.growing_mb(NOW + 5)


@pytest.mark.parametrize(
    ("load", "expected"), [(2.0, None), (2.04, "load: 2.0 per core, at most 2 wanted"), (None, None)]
)
def test_a_load_limit_is_optional(load: float | None, expected: str | None) -> None:
    """By default there is none."""
    assert expected == why(admission(max_load_per_core=2), Facts(load_per_core=load))
    assert None is why(admission(), Facts(load_per_core=99))


def test_starts_are_staggered() -> None:
    """The time of the next one is known."""
    rules = admission(1.5, stagger_s=4)
    closed = rules.closed(Facts(), NOW)
    assert closed is not None
    assert ("stagger", "next start in 2 s (stagger)", 2.5) == closed
    assert "next start in 1 s (stagger)" == why(rules, Facts(), NOW + 2.4)
    assert None is why(rules, Facts(), NOW + 2.5)
    assert None is why(admission(stagger_s=4), Facts())


def test_memory_comes_before_load_and_load_before_time() -> None:
    """The longest wait is the reason shown."""
    rules = admission(0, min_free_memory_mb=10, max_load_per_core=1, stagger_s=5)
    kinds = []
    for known in (Facts(1, 9), Facts(9999, 9), Facts(9999, 0)):
        closed = rules.closed(known, NOW)
        assert closed is not None
        kinds.append((closed.kind, closed.again_s))
    assert [("memory", LOOK_S), ("load", LOOK_S), ("stagger", 5)] == kinds


@pytest.mark.parametrize(
    ("scheduling", "expected"),
    [
        ({}, False),
        ({"min_free_memory_mb": 1}, True),
        ({"max_load_per_core": 1}, True),
        ({"stagger_s": 1}, False),
    ],
)
def test_the_machine_is_read_only_if_a_limit_needs_it(scheduling: dict[str, Any], expected: bool) -> None:
    """Reading it costs a few files."""
    assert expected == admission(**scheduling).looks


# --- free memory, in both versions of control groups ----------------------------------------------
MIB = 1024 * 1024


def machine(base: Path, groups: str = "0::/\n", available_mb: int | None = 4000) -> Path:
    """Return the root of a machine with this memory, and with this process in these control groups."""
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


def test_without_limits_the_memory_of_the_machine_counts(tmp_path: Path) -> None:
    """Also without any control group."""
    root = machine(tmp_path)
    assert 4000 == free_mb(root)
    group(root, "", "max", 10)
    assert 4000 == free_mb(root)


def test_a_container_has_less_than_its_machine(tmp_path: Path) -> None:
    """Its file cache can be reclaimed, so it counts as free."""
    root = machine(tmp_path)
    group(root, "", str(1000 * MIB), 900, cached_mb=200)
    assert 300 == free_mb(root)


def test_every_parent_group_counts(tmp_path: Path) -> None:
    """The smallest remainder; an exceeded limit leaves nothing."""
    root = machine(tmp_path, "0::/user.slice/session.scope\n")
    group(root, "user.slice/session.scope", "max", 100)
    group(root, "user.slice", str(800 * MIB), 300)
    assert 500 == free_mb(root)
    group(root, "user.slice", str(800 * MIB), 900)
    assert 0 == free_mb(root)


def test_the_limit_of_the_daemons_service_does_not_count(tmp_path: Path) -> None:
    """Executors run in the launcher's unit; the limits above both count."""
    root = machine(tmp_path, "0::/system.slice/handoffd.service\n")
    group(root, "system.slice/handoffd.service", str(100 * MIB), 99)
    group(root, "system.slice", str(2000 * MIB), 500)
    assert 1500 == free_mb(root)


def test_version_1_has_other_file_names(tmp_path: Path) -> None:
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
def test_unreadable_files_limit_nothing(tmp_path: Path, groups: str) -> None:
    """And lead nowhere."""
    assert 4000 == free_mb(machine(tmp_path, groups))
    assert None is free_mb(tmp_path / "nothing")
    (tmp_path / "proc/meminfo").write_text("MemAvailable: many\n")
    assert None is free_mb(tmp_path)


def test_an_old_kernel_reports_no_free_memory(tmp_path: Path) -> None:
    """Before 3.14 there is no such line."""
    assert None is free_mb(machine(tmp_path, available_mb=None))


def test_load_is_per_core(tmp_path: Path) -> None:
    """Of the cores that this process may use."""
    root = machine(tmp_path)
    assert None is load_per_core(root)
    (root / "proc/loadavg").write_text("3.00 2.00 1.00 1/94 27481\n")
    assert 3.0 / len(os.sched_getaffinity(0)) == load_per_core(root)
    (root / "proc/loadavg").write_text("\n")
    assert None is load_per_core(root)


def test_the_facts_of_this_machine_are_known() -> None:
    """From its real files."""
    found = facts()
    assert found.free_mb is not None
    assert found.load_per_core is not None
    assert (True, True) == (found.free_mb > 0, found.load_per_core >= 0)
