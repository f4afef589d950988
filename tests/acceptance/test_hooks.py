"""Claude Code's hooks in a project that a real daemon supervises, at level 1."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.agents import project_at
from tests.support.commands import environment, environment_of, program
from tests.support.daemon import Daemon, running, sample
from tests.support.eventually import eventually_sync
from tests.support.hooking import ARGV, event, hand_over, hook, state_in

from handoffd.hooks.event import EVENTS

SETTINGS = {"execute": {"settle_s": 600}}
"""The daemon does not take the hand-offs of others by itself while a test lasts: hooks do."""


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that is always before the hook."""
    with running(tmp_path_factory.mktemp("eager"), {"execute": {"settle_s": 0}}) as lent:
        yield lent


def shop(base: Path, post_check: str | None) -> Path:
    """Return a project whose first step has this check."""
    rule = {"bdd": {"post_check": post_check}} if post_check else {}
    return project_at(base / "shop", json.dumps({"steps": rule}))


def taken(daemon: Daemon, base: Path, post_check: str | None = None) -> Path:
    """Return a project whose first step an agent has taken."""
    root = shop(base, post_check)
    assert "error" != daemon.verb("start", root, story="US-001", manual=True)["type"]
    assert "dispatched" == daemon.verb("dispatch", root)["type"]
    return root


def kinds(daemon: Daemon, root: Path) -> list[str]:
    """Return what happened in a project."""
    return [one["kind"] for one in daemon.events(root)]


def at_once(env: dict[str, str], events: list[bytes]) -> list[tuple[int, str, str]]:
    """Return what as many hooks say that run at the same time."""
    hooks = [
        subprocess.Popen(ARGV, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in events
    ]
    for process, raw in zip(hooks, events, strict=True):
        assert process.stdin is not None
        process.stdin.write(raw)
        process.stdin.flush()
    said: list[Any] = [process.communicate(timeout=120) for process in hooks]
    return [
        (process.returncode, out.decode(), err.decode())
        for process, (out, err) in zip(hooks, said, strict=True)
    ]


def test_ten_hooks_at_once_apply_a_handoff_once(daemon: Daemon, tmp_path: Path) -> None:
    """Whatever their events are; all of them are content."""
    root = taken(daemon, tmp_path)
    hand_over(root)
    said = at_once(
        environment_of(daemon), [event(root, EVENTS[number % len(EVENTS)]) for number in range(10)]
    )

    assert [(0, "")] * 10 == [(code, err) for code, _, err in said]
    assert "pass" == state_in(root)["status"]
    assert 1 == kinds(daemon, root).count("handoff_arrived")


def test_ten_hooks_at_once_send_an_agent_back_once(daemon: Daemon, tmp_path: Path) -> None:
    """One of them says what failed; the check ran once."""
    root = taken(daemon, tmp_path, "echo x >> ran; echo it is bad; exit 1")
    hand_over(root)
    said = at_once(environment_of(daemon), [event(root, session_id=f"s{number}") for number in range(10)])

    assert [0] * 9 + [2] == sorted(code for code, _, _ in said)
    assert ["bdd attempt 1 of US-001 is failing: post_check failed: it is bad"] == [
        err.splitlines()[0].removeprefix("handoffd: ") for _, _, err in said if err
    ]
    assert ["handoff_arrived", "checks_finished"] == kinds(daemon, root)[-2:]
    assert "x\n" == (root / "ran").read_text(encoding="utf-8")


def test_what_is_put_right_counts(daemon: Daemon, tmp_path: Path) -> None:
    """The agent is sent back, repairs it and hands in again: that is the next attempt."""
    root, env = taken(daemon, tmp_path, "test -e good || { echo it is bad; exit 1; }"), environment_of(daemon)
    hand_over(root)
    first = hook(event(root), env)
    (root / "good").touch()
    hand_over(root, summary="repaired")
    second = hook(event(root, stop_hook_active=True), env)

    assert [2, 0] == [first.code, second.code]
    assert ("pass", 2, True) == tuple(state_in(root)[name] for name in ("status", "attempt", "lint_pass"))
    assert 2 == kinds(daemon, root).count("handoff_arrived")


def test_a_verdict_that_came_before_the_hook_is_told(eager: Daemon, tmp_path: Path) -> None:
    """The daemon has applied the hand-off by itself, and the agent does not know it yet."""
    root = taken(eager, tmp_path, "echo it is bad; exit 1")
    hand_over(root)
    eventually_sync(lambda: state_in(root)["status"] == "failing")
    said = [hook(event(root), environment_of(eager)) for _ in range(2)]

    assert [2, 0] == [one.code for one in said]
    assert "it is bad" in said[0].err


def test_twice_in_a_row_is_enough(daemon: Daemon, tmp_path: Path) -> None:
    """For one step and session: asked for the hand-off, then for one that can be read, then no more."""
    root, env = taken(daemon, tmp_path), environment_of(daemon)
    asked = hook(event(root), env)
    replies = []
    for number in range(3):
        (root / ".ai/HANDOFF.md").write_text(f"---\n[{'x' * number}\n", encoding="utf-8")
        replies.append(hook(event(root), env))

    assert [2, 2, 0, 0] == [one.code for one in (asked, *replies)]
    assert "sent back twice already" in json.loads(replies[1].out)["systemMessage"]
    assert "running" == state_in(root)["status"]


def test_an_agent_that_is_at_it_again_may_stop(daemon: Daemon, tmp_path: Path) -> None:
    """`stop_hook_active`: what it left is applied and checked, and it goes."""
    root = taken(daemon, tmp_path, "echo it is bad; exit 1")
    hand_over(root)
    said = hook(event(root, stop_hook_active=True), environment_of(daemon))

    assert (0, "failing") == (said.code, state_in(root)["status"])
    assert "it is bad" in json.loads(said.out)["systemMessage"]


def test_inside_a_run_of_ours_nothing_is_applied(daemon: Daemon, tmp_path: Path) -> None:
    """The daemon hears its executors when they end."""
    root = taken(daemon, tmp_path)
    hand_over(root)
    said = at_once({**environment_of(daemon), "HANDOFFD_RUN": "d1"}, [event(root, name) for name in EVENTS])

    assert [(0, "", "")] * len(EVENTS) == said
    assert "handoff_arrived" not in kinds(daemon, root)


def test_a_session_beside_an_attempt_of_the_daemon_hands_nothing_in(daemon: Daemon, tmp_path: Path) -> None:
    """A person who looks in with another session is asked for nothing, and hands nothing in."""
    root = sample(tmp_path, script={"bdd": ["hang"]})
    daemon.verb("start", root, story="US-001")
    daemon.wait_at(root, "bdd", "running")
    eventually_sync((root / ".ai/rehearsal-count.json").exists)
    asked = hook(event(root), environment_of(daemon))
    hand_over(root)
    handed = hook(event(root), environment_of(daemon))
    daemon.verb("abort", root)

    assert [(0, "", "")] * 2 == [(one.code, one.out, one.err) for one in (asked, handed)]
    assert "handoff_arrived" not in kinds(daemon, root)


def test_without_a_daemon_it_is_the_same(tmp_path: Path) -> None:
    """Ten hooks, one verdict: they take turns, and none waits for more than its check."""
    env = environment(tmp_path)
    root = shop(tmp_path, "echo x >> ran; echo it is bad; exit 1")
    for words in (("start", "--manual", str(root), "US-001"), ("dispatch", str(root))):
        assert 0 == program(*words, env=env).code
    hand_over(root)
    said = at_once(env, [event(root, session_id=f"s{number}") for number in range(10)])

    assert [0] * 9 + [2] == sorted(code for code, _, _ in said)
    assert "x\n" == (root / "ran").read_text(encoding="utf-8")
    told = [json.loads(line)["kind"] for line in program("events", str(root), "--json", env=env).lines]
    assert 1 == told.count("handoff_arrived")
