"""Ends without a hand-off under the real daemon: asked again, paused with a remedy, in one session."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon import Daemon, running, sample
from tests.support.eventually import eventually_sync
from tests.support.wallclock import WallClock


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A running daemon with an executor whose program is not there yet."""
    base = tmp_path_factory.mktemp("daemon")
    agent = {"extends": "rehearsal", "argv": [str(base / "late-agent")]}
    with running(base, {"executors": {"late": agent}, "execute": {"handoff_grace_s": 1}}) as lent:
        yield lent


def attempts(daemon: Daemon, project: Path) -> list[tuple[int, str]]:
    """Return number and result of each run of bdd."""
    return [(run["attempt"], run["result"]) for run in daemon.runs(project) if run["step"] == "bdd"]


def spawns(daemon: Daemon, project: Path) -> list[dict[str, Any]]:
    """Return the orders to start an executor."""
    orders = [order for event in daemon.events(project) for order in event["orders"]]
    return [order for order in orders if order["kind"] == "spawn"]


def prompt(project: Path, dispatch: str) -> str:
    """Return what an executor was asked."""
    return (project / ".ai/runs" / dispatch / "prompt.md").read_text()


def test_who_ends_cleanly_without_a_hand_off_is_asked_for_just_that(daemon: Daemon, tmp_path: Path) -> None:
    """And the story goes on with its first attempt."""
    project = sample(tmp_path, script={"bdd": ["none", "pass"]})

    daemon.to_review(project)

    assert [(1, "no_handoff"), (1, "pass")] == attempts(daemon, project)
    first, second = [order["dispatch"] for order in spawns(daemon, project) if order["step"] == "bdd"]
    assert "Only the hand-off" not in prompt(project, first)
    assert "without a hand-off" in prompt(project, second).partition("Only the hand-off")[2]


def test_a_missing_program_pauses_the_project_until_it_is_there(daemon: Daemon, tmp_path: Path) -> None:
    """One notice names the remedy; `resume` goes on with the first attempt."""
    project = sample(tmp_path, executor="late")

    daemon.begin(project)
    track = daemon.wait_saying(project, "paused by handoffd")

    assert ("pending", 1) == (track["status"], track["attempt"])
    assert "paused by handoffd: late is not to be found" == track["waits_for"]
    assert track["next_command"].endswith(f" && handoffd resume {project}")
    assert "ENOENT" in track["last_error"]
    eventually_sync(lambda: ["blocked"] == daemon.told_kinds(project))

    program = daemon.base / "late-agent"
    program.touch(mode=0o755)
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -I -m handoffd.rehearsal\n")
    assert "accepted" == daemon.verb("resume", project)["type"]
    daemon.wait_at(project, "review", "needs_human")
    assert [(1, "not_started"), (1, "pass")] == attempts(daemon, project)


@pytest.mark.parametrize(
    ("first", "rules", "asked"),
    [
        ("fail", "steps: {bdd: {session: resume}}", "s-1"),
        ("fail", "steps: {bdd: {session: fresh}}", None),
        ("none", "steps: {bdd: {session: fresh}}", "s-1"),
    ],
)
def test_a_session_is_continued_by_a_retry_and_by_a_hand_off_that_is_asked_for(
    daemon: Daemon, tmp_path: Path, first: str, rules: str, asked: str | None
) -> None:
    """By a retry where the step's rule asks for it, by the question always; another step begins its own."""
    script = {"bdd": [first, "pass"], "stream": {"session": "s-1"}}
    project = sample(tmp_path, script=script, rules=rules, executor="rehearsal-stream")

    daemon.to_review(project)

    orders = [(order["step"], order["session"]) for order in spawns(daemon, project)]
    assert [("bdd", None), ("bdd", asked)] == orders[:2]
    assert {("sdd-delta", None), ("contract", None)} == set(orders[2:])


def test_a_session_that_is_gone_is_begun_anew_at_no_cost(daemon: Daemon, tmp_path: Path) -> None:
    """The second attempt is made again, in a session of its own."""
    script = {"bdd": ["fail", "gone", "pass"], "stream": {"session": "s-1"}}
    rules = "steps: {bdd: {session: resume, next_on_pass: review}}"
    project = sample(tmp_path, script=script, rules=rules, executor="rehearsal-stream")

    daemon.to_review(project)

    assert [None, "s-1", None] == [order["session"] for order in spawns(daemon, project)]
    assert [(1, "failing"), (2, "session_gone"), (2, "pass")] == attempts(daemon, project)


def test_a_key_that_is_valid_again_is_found_without_a_command(tmp_path: Path) -> None:
    """Nothing changes on this machine: it is tried ever more rarely, at no cost of an attempt, told once."""
    clock = WallClock(tmp_path)
    no = "error:Not logged in · Please run /login"
    script = {"bdd": [no, no, no, "pass"]}
    rules = "steps: {bdd: {next_on_pass: review, max_attempts: 1}}"
    project = sample(tmp_path, script=script, rules=rules, executor="rehearsal-stream")
    with running(tmp_path, None, **clock.environment) as daemon:
        daemon.begin(project)
        passed_s = 0
        for times, pause_s in enumerate((31, 121, 601), start=1):
            eventually_sync(lambda: times == len(daemon.runs(project)))  # noqa: B023
            track = daemon.wait_saying(project, "; tried again at ")
            assert ("pending", 1) == (track["status"], track["attempt"])
            eventually_sync(lambda: ["blocked"] == daemon.told_kinds(project))
            assert ["blocked"] == [one["kind"] for one in daemon.get("/v1/notices")["waiting"]]
            if times == 2:
                daemon.kill()
                daemon.start()
            passed_s += pause_s
            clock.set_off(passed_s)

        daemon.wait_at(project, "review", "needs_human")
        assert [1, 1, 1, 1] == [number for number, _ in attempts(daemon, project)]
        eventually_sync(
            lambda: ["needs_human"] == [one["kind"] for one in daemon.get("/v1/notices")["waiting"]]
        )


def test_an_account_that_works_in_another_project_is_tried_sooner(tmp_path: Path) -> None:
    """Ten minutes would be the next pause, which is longer than this test waits."""
    clock, no = WallClock(tmp_path), "error:Not logged in · Please run /login"
    rules = "steps: {bdd: {next_on_pass: review, max_attempts: 1}}"
    stuck = sample(
        tmp_path / "stuck", script={"bdd": [no, no, no, "pass"]}, rules=rules, executor="rehearsal-stream"
    )
    works = sample(tmp_path / "works", rules=rules, executor="rehearsal-stream")
    with running(tmp_path, None, **clock.environment) as daemon:
        daemon.begin(stuck)
        daemon.wait_saying(stuck, "; tried again at ")
        for times, passed_s in ((2, 31), (3, 31 + 121)):
            clock.set_off(passed_s)
            eventually_sync(lambda: times == len(daemon.runs(stuck)))  # noqa: B023
            daemon.wait_saying(stuck, "; tried again at ")

        daemon.to_review(works)
        clock.set_off(31 + 121 + 61)
        daemon.wait_at(stuck, "review", "needs_human")


def test_who_is_not_logged_in_pauses_the_project(daemon: Daemon, tmp_path: Path) -> None:
    """Once the login is there, `resume` goes on with the same attempt."""
    script = {"bdd": ["error:Not logged in · Please run /login", "pass"]}
    rules = "steps: {bdd: {next_on_pass: review}}"
    project = sample(tmp_path, script=script, rules=rules, executor="rehearsal-stream")

    daemon.begin(project)
    track = daemon.wait_saying(project, "paused by handoffd")

    assert "paused by handoffd: rehearsal-stream is not logged in; tried again at " in track["waits_for"]
    assert "Not logged in" in track["last_error"]
    assert "accepted" == daemon.verb("resume", project)["type"]
    daemon.wait_at(project, "review", "needs_human")
    assert [(1, "logged_out"), (1, "pass")] == attempts(daemon, project)
