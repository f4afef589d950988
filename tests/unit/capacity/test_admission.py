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
    ("scheduling", "known", "expected"),
    [
        ({"min_free_memory_mb": 1024}, Facts(free_mb=1024), None),
        ({"min_free_memory_mb": 1024}, Facts(free_mb=1023), "memory: 1,023 MiB free, 1,024 wanted"),
        ({"min_free_memory_mb": 1024}, Facts(free_mb=0), "memory: 0 MiB free, 1,024 wanted"),
        ({"min_free_memory_mb": 1024}, Facts(free_mb=None), None),
        ({"max_load_per_core": 2}, Facts(load_per_core=2.0), None),
        ({"max_load_per_core": 2}, Facts(load_per_core=2.04), "load: 2.0 per core, at most 2 wanted"),
        ({"max_load_per_core": 2}, Facts(load_per_core=None), None),
        ({}, Facts(load_per_core=99), None),
    ],
)
def test_limits_of_memory_and_load(scheduling: dict[str, Any], known: Facts, expected: str | None) -> None:
    """An unknown amount is not a reason to wait; by default the load has no limit."""
    assert expected == why(admission(**scheduling), known)


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


def test_starts_are_staggered() -> None:
    """The time of the next one is known."""
    rules = admission(1.5, stagger_s=4)
    assert ("stagger", "next start in 2 s (stagger)", 2.5) == rules.closed(Facts(), NOW)
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


def test_the_machine_is_read_only_if_a_limit_needs_it() -> None:
    """Reading it costs a few files."""
    limits: list[dict[str, Any]] = [{"min_free_memory_mb": 1}, {"max_load_per_core": 1}, {"stagger_s": 1}, {}]
    assert [True, True, False, False] == [admission(**limit).looks for limit in limits]


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


SESSION, SERVICE = "user.slice/session.scope", "system.slice/handoffd.service"


@pytest.mark.parametrize(
    ("path", "groups", "expected"),
    [
        ("", [], 4000),
        ("", [("", "max", 10)], 4000),
        # The file cache of a container can be reclaimed, so it counts as free.
        ("", [("", str(1000 * MIB), 900, 200)], 300),
        # Every parent counts; an exceeded limit leaves nothing.
        (SESSION, [(SESSION, "max", 100), ("user.slice", str(800 * MIB), 300)], 500),
        (SESSION, [(SESSION, "max", 100), ("user.slice", str(800 * MIB), 900)], 0),
        # Executors run in the launcher's unit: only limits above the daemon's service count.
        (SERVICE, [(SERVICE, str(100 * MIB), 99), ("system.slice", str(2000 * MIB), 500)], 1500),
    ],
)
def test_the_smallest_remainder_of_machine_and_groups_counts(
    tmp_path: Path, path: str, groups: list[tuple[Any, ...]], expected: int
) -> None:
    """Of 4,000 MiB that the machine has."""
    root = machine(tmp_path, f"0::/{path}\n")
    for one in groups:
        group(root, *one)
    assert expected == free_mb(root)


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


def test_free_memory_may_be_unknown(tmp_path: Path) -> None:
    """A kernel before 3.14 does not report it."""
    assert None is free_mb(tmp_path)
    root = machine(tmp_path, available_mb=None)
    assert None is free_mb(root)
    (root / "proc/meminfo").write_text("MemAvailable: many\n")
    assert None is free_mb(root)


def test_load_is_per_core(tmp_path: Path) -> None:
    """Of the cores that this process may use."""
    cores = len(os.sched_getaffinity(0))
    (tmp_path / "proc").mkdir()
    for text, expected in ((None, None), ("3.00 2.00 1.00 1/94 27481\n", 3.0 / cores), ("\n", None)):
        if text is not None:
            (tmp_path / "proc/loadavg").write_text(text)
        assert expected == load_per_core(tmp_path)


def test_the_facts_of_this_machine_are_known() -> None:
    """From its real files."""
    found = facts()
    assert (found.free_mb or 0) > 0
    assert (-1 if found.load_per_core is None else found.load_per_core) >= 0
