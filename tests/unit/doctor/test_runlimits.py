"""Limits that are set, and whether they hold."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from handoffd.doctor.service import Service
from handoffd.doctor.supervision import LimitFacts, check_limits, limit_facts
from handoffd.execute.runner import cgroup
from handoffd.settings.model import ExecuteSettings

TERMINAL, PERSON = Service(unit=None), Service(unit="handoffd")
MACHINE = Service(unit="handoffd@bo", account="bo")
BOTH = ("memory_max", "tasks_max")
ALL, NONE = frozenset({"cpu", "memory", "pids"}), frozenset[str]()


@pytest.mark.parametrize(
    ("limits", "service", "offered", "on", "what", "action"),
    [
        (BOTH, TERMINAL, NONE, NONE, "execute.memory_max and execute.tasks_max", "handoffd service install"),
        (("tasks_max",), PERSON, NONE, NONE, "execute.tasks_max", "cat /proc/cgroups"),
        (BOTH, PERSON, ALL, {"pids"}, "execute.memory_max", "handoffd service install"),
        (("memory_max",), MACHINE, ALL, NONE, "execute.memory_max", "sudo handoffd service install --system"),
    ],
)
def test_a_limit_that_cannot_be_enforced_is_told(
    limits: tuple[str, ...], service: Service, offered: frozenset[str], on: frozenset[str], what: str,
    action: str,
) -> None:  # fmt: skip
    """With the reason why, and the command that mends it or shows what is missing."""
    facts = LimitFacts(limits=limits, launcher=True, service=service, offered=offered, on=frozenset(on))

    (found,) = check_limits(facts)
    assert ("warning", f"{what} cannot be enforced: agents run without") == (found.severity, found.what)
    assert (found.action or "").startswith(action)
    assert found.why
    assert () == check_limits(replace(facts, launcher=False)), "who is not there is another check's finding"


def test_limits_that_hold_and_limits_that_nobody_wants_are_fine() -> None:
    """What is not set is not looked for."""
    facts = LimitFacts(limits=BOTH, launcher=True, service=PERSON, offered=ALL, on=ALL)
    assert ["ok"] == [one.severity for one in check_limits(facts)]
    assert () == check_limits(replace(facts, limits=(), on=NONE))


def test_the_groups_of_a_launcher_are_looked_at() -> None:
    """Where the kernel says that the process is; without a limit, or a process, there is nothing to see."""
    settings = ExecuteSettings.model_validate({"memory_max": "4G"})
    facts = limit_facts(settings, None, TERMINAL)
    assert (("memory_max",), False, NONE) == (facts.limits, facts.launcher, facts.on)

    facts = limit_facts(settings, os.getpid(), TERMINAL)
    ours = cgroup.of(os.getpid())
    there = Path(ours or "/nowhere", "cgroup.controllers")
    expected = there.read_text().split() if there.exists() else ()
    assert (True, frozenset(expected)) == (facts.launcher, facts.offered)
