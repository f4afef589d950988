"""Running and waiting stories under the real daemon: turns, limits, priority, memory, staggered starts."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import Any

import pytest
from tests.support.agents import project_at, shell_agent
from tests.support.daemon import Daemon, Json, running
from tests.support.eventually import eventually_sync
from tests.support.house import HAND_OVER

STEPS = ("bdd", "sdd-delta", "contract")
"""The steps of the shipped table before the gate."""

AGENT = f"""\
cat > /dev/null
mark={{base}}/$(basename "$PWD")-$HANDOFFD_STEP
touch "$mark-began"
until test -e "$mark-go" || test -e {{base}}/all-go; do sleep 0.02; done
{HAND_OVER}"""
"""Says that it began, and hands over when the test lets it."""


def settings(base: Path, slots: int, **scheduling: Any) -> Json:
    """Return settings with two kinds of agents."""
    agent = shell_agent(base, AGENT.format(base=quote(str(base))))
    return {
        "executor": "first",
        "executors": {name: {**agent, "account": name} for name in ("first", "second")},
        "execute": {"slots": slots},
        "scheduling": scheduling,
    }


def start(daemon: Daemon, *projects: Path) -> None:
    """Start a story in each, one after the other; each has a slot then, or its place in line."""
    for project in projects:
        daemon.begin(project)
        daemon.wait_for(project, has_asked)


def has_asked(track: Json) -> bool:
    """Return whether a track runs, or why it does not."""
    return track["status"] in {"running", "needs_human"} or bool(track["waits_for"])


def began(base: Path) -> set[tuple[str, str]]:
    """Return which agents have begun, by project and step."""
    names = [path.name.removesuffix("-began") for path in base.glob("*-began")]
    return {(name.partition("-")[0], name.partition("-")[2]) for name in names}


def newly_begun(base: Path, before: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """Wait until an agent has begun that had not, and return which."""
    eventually_sync(lambda: len(began(base)) > len(before))
    return began(base) - set(before)


def let_end(base: Path, name: str, step: str) -> None:
    """Have an agent hand over."""
    (base / f"{name}-{step}-go").touch()


def waits(daemon: Daemon, project: Path) -> str:
    """Return what a project waits for, as status says it."""
    return str(daemon.track(project)["waits_for"])


def test_six_projects_take_turns_on_two_slots(tmp_path: Path) -> None:
    """Each of their steps is one turn; a waiting one knows its place, and what is in the way."""
    names = "abcdef"
    projects = {name: project_at(tmp_path / "projects" / name) for name in names}
    with running(tmp_path, settings(tmp_path, 2)) as daemon:
        start(daemon, *projects.values())
        assert [f"{place} for a slot (2 of 2 in use: a US-001 bdd, b US-001 bdd)" for place in (
            "1st", "2nd", "3rd", "4th"
        )] == [waits(daemon, projects[name]) for name in "cdef"]  # fmt: skip

        order: list[tuple[str, str]] = [("a", "bdd"), ("b", "bdd")]
        eventually_sync(lambda: set(order) == began(tmp_path))
        for ended in range(len(names) * len(STEPS)):
            name, step = order[ended]
            let_end(tmp_path, name, step)
            daemon.wait_for(projects[name], is_behind_or_through)
            if len(order) < len(names) * len(STEPS):
                order += newly_begun(tmp_path, order)
        assert [(name, step) for step in STEPS for name in names] == order
        for project in projects.values():
            daemon.wait_at(project, "review", "needs_human")
        eventually_sync(lambda: daemon.get("/v1/slots")["limits"][0]["in_use"] == 0)
        assert [] == daemon.get("/v1/slots")["waiting"]


def is_behind_or_through(track: Json) -> bool:
    """Return whether a track waits in line for its next step, has begun it, or has come to its gate.

    It has begun when no other track waits any more.
    """
    if track["step"] == "review" or "for a slot" in (track["waits_for"] or ""):
        return True
    return bool(track["status"] == "running" and track["step"] == STEPS[-1])


def test_a_full_executor_blocks_no_other(tmp_path: Path) -> None:
    """The others go past it, and status says what it waits for."""
    scheduling = {"per_executor": {"first": 1}}
    a, b, c = (project_at(tmp_path / "projects" / name) for name in "abc")
    d, e = (project_at(tmp_path / "projects" / name, settings="executor: second\n") for name in "de")
    with running(tmp_path, settings(tmp_path, 4, **scheduling)) as daemon:
        start(daemon, a, b, c, d, e)
        eventually_sync(lambda: {("a", "bdd"), ("d", "bdd"), ("e", "bdd")} == began(tmp_path))
        told = "for a first slot (1 of 1 in use: a US-001 bdd)"
        assert [f"1st {told}", f"2nd {told}"] == [waits(daemon, project) for project in (b, c)]
        line = daemon.get("/v1/slots")
        assert ["b", "c"] == [Path(one["project"]).name for one in line["waiting"]]
        assert {"all": 3, "first": 1, "second": 2} == {
            one["name"] or "all": one["in_use"]
            for one in line["limits"]
            if one["kind"] in {"all", "executor"}
        }

        let_end(tmp_path, "a", "bdd")
        eventually_sync(lambda: ("b", "bdd") in began(tmp_path))
        assert {("c", "bdd"), ("a", "sdd-delta")}.isdisjoint(began(tmp_path))


def test_the_important_go_first(tmp_path: Path) -> None:
    """By their group or by their own word, once that is trusted; a full group waits for itself."""
    groups = {"web": {"slots": 1, "priority": 5, "projects": [str(tmp_path / "projects/w*")]}}
    a, b = (project_at(tmp_path / "projects" / name) for name in "ab")
    urgent = project_at(tmp_path / "projects" / "u", settings="priority: 9\n")
    w1, w2 = (project_at(tmp_path / "projects" / name) for name in ("w1", "w2"))
    with running(tmp_path, settings(tmp_path, 1, groups=groups)) as daemon:
        start(daemon, a, b, w1, w2, urgent)
        assert ["u", "w1", "w2", "b"] == [
            Path(one["project"]).name for one in daemon.get("/v1/slots")["waiting"]
        ]
        assert waits(daemon, b).startswith("4th for a slot (1 of 1 in use: a")
        order = [("a", "bdd")]
        for _ in range(4):
            let_end(tmp_path, *order[-1])
            order += newly_begun(tmp_path, order)
        assert [("u", step) for step in STEPS] == order[1:4]
        assert ("w1", "bdd") == order[4]


def test_without_memory_nothing_starts_until_the_settings_ask_for_less(tmp_path: Path) -> None:
    """Status says how much there is; settings that are read again need no restart."""
    project = project_at(tmp_path / "projects" / "a")
    (tmp_path / "all-go").touch()
    with running(tmp_path, settings(tmp_path, 2, min_free_memory_mb=10**9)) as daemon:
        start(daemon, project)
        told = waits(daemon, project)
        assert told.startswith("memory: ")
        assert told.endswith(" MiB free, 1,000,000,000 wanted")
        assert told == daemon.get("/v1/slots")["closed"] or "memory: " in daemon.get("/v1/slots")["closed"]
        daemon.configure(settings(tmp_path, 2, min_free_memory_mb=1))
        assert [] == daemon.post("/v1/reload", {})["problems"]
        daemon.wait_at(project, "review", "needs_human")


def test_changed_limits_apply_to_waiting_projects_and_end_no_run(tmp_path: Path) -> None:
    """Raised, they let the next one in; lowered, they let none in until enough have ended."""
    a, b, c = (project_at(tmp_path / "projects" / name) for name in "abc")
    with running(tmp_path, settings(tmp_path, 1)) as daemon:
        start(daemon, a, b, c)
        daemon.configure(settings(tmp_path, 3, per_executor={"first": 2}))
        assert [] == daemon.post("/v1/reload", {})["problems"]
        eventually_sync(lambda: {("a", "bdd"), ("b", "bdd")} == began(tmp_path))
        daemon.wait_saying(c, "1st for a first slot (2 of 2")

        daemon.configure(settings(tmp_path, 1))
        assert [] == daemon.post("/v1/reload", {})["problems"]
        daemon.wait_saying(c, "1st for a slot (2 of 1")
        let_end(tmp_path, "a", "bdd")
        daemon.wait_saying(a, "2nd for a slot (1 of 1")
        assert {("a", "bdd"), ("b", "bdd")} == began(tmp_path)
        let_end(tmp_path, "b", "bdd")
        eventually_sync(lambda: ("c", "bdd") in began(tmp_path))


def test_starts_are_staggered(tmp_path: Path) -> None:
    """Status says how long the next one waits, and it goes on by itself."""
    a, b, c = (project_at(tmp_path / "projects" / name) for name in "abc")
    with running(tmp_path, settings(tmp_path, 9, stagger_s=1.5)) as daemon:
        for project in (a, b, c):
            daemon.begin(project)
        eventually_sync(lambda: 3 == len(began(tmp_path)))
        first, second, third = sorted(_decided(daemon, project) for project in (a, b, c))
        assert (second - first).total_seconds() >= 1.5
        assert (third - first).total_seconds() >= 3


def _decided(daemon: Daemon, project: Path) -> datetime:
    [run] = daemon.runs(project)
    return datetime.fromisoformat(run["decided_at"])


@pytest.mark.parametrize("gone", [False, True])
def test_what_runs_after_a_restart_counts(tmp_path: Path, gone: bool) -> None:
    """In the group that its own settings name, also while these cannot be read: nothing starts beside it."""
    groups = {"web": {"slots": 1}}
    a, b = (project_at(tmp_path / "projects" / name, settings="group: web\n") for name in "ab")
    with running(tmp_path, settings(tmp_path, 9, groups=groups)) as daemon:
        start(daemon, a, b)
        told = "1st in group web (1 of 1 in use: a US-001 bdd)"
        assert told == waits(daemon, b)
        daemon.kill()
        if gone:
            a.rename(tmp_path / "away")
        daemon.start()
        daemon.wait_for(b, lambda track: track["waits_for"] == told)
        if gone:
            eventually_sync(lambda: daemon.condition(a) == "missing")
            assert told == waits(daemon, b)
            (tmp_path / "away").rename(a)
        let_end(tmp_path, "a", "bdd")
        eventually_sync(lambda: ("b", "bdd") in began(tmp_path))
        assert ("a", "sdd-delta") not in began(tmp_path)
