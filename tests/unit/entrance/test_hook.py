"""`handoffd hook` as Claude Code calls it, while no daemon runs."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.commands import environment, program
from tests.support.eventually import eventually_sync
from tests.support.hooking import ARGV, daemon_saying, event, hand_over, hook, standing, state_in

from handoffd import dispatch, start_story
from handoffd.entrance.hook import ENDING_S, LIMIT_S
from handoffd.execute.environment import MARK as OF_A_RUN
from handoffd.hooks.claude_settings import TIMEOUTS_S
from handoffd.hooks.event import EVENTS


@pytest.fixture
def env(alone: Path) -> dict[str, str]:
    """The environment of an agent on a machine where no daemon runs."""
    return environment(alone)


@pytest.fixture
def root(alone: Path) -> Path:
    """A project whose first step somebody has taken."""
    return _taken(alone / "shop")


@pytest.fixture
def checked(alone: Path) -> Path:
    """Such a project, in which a post_check looks for a file `good`."""
    folder = alone / "checked"
    (folder / ".ai").mkdir(parents=True)
    rules = "steps:\n  bdd:\n    post_check: test -e good || { echo it is bad; exit 1; }\n"
    (folder / ".ai/step-rules.yaml").write_text(rules, encoding="utf-8")
    return _taken(folder)


def _taken(root: Path) -> Path:
    """Take the first step's prompt in this process, where commands look for no daemon either."""
    root.mkdir(exist_ok=True)
    (root / "PROJECT_CONTEXT.md").write_text("a shop", encoding="utf-8")
    start_story(root, "US-001")
    assert "dispatched" == dispatch(root).type
    return root


def _failing_at_most(attempts: int, alone: Path) -> Path:
    """Return a project whose first step, which somebody has taken, has so many attempts and never passes."""
    (alone / "bad/.ai").mkdir(parents=True)
    rules = f"steps:\n  bdd:\n    max_attempts: {attempts}\n    post_check: echo it is bad; exit 1\n"
    (alone / "bad/.ai/step-rules.yaml").write_text(rules, encoding="utf-8")
    return _taken(alone / "bad")


def _kinds(root: Path, env: dict[str, str]) -> list[str]:
    said = program("events", str(root), "--json", env=env)
    return [json.loads(line)["kind"] for line in said.lines]


@pytest.mark.parametrize("name", [*EVENTS, "PreToolUse"])
def test_where_there_is_no_project_it_is_silent(alone: Path, env: dict[str, str], name: str) -> None:
    """And leaves no trace."""
    said = hook(event(alone, name), env)

    assert (0, "", "") == (said.code, said.out, said.err)
    assert not (alone / "state").exists()


def test_what_is_not_looked_after_is_left_alone(alone: Path, env: dict[str, str]) -> None:
    """Another tool's project, also with a hand-off; its state is as it was."""
    root = standing(alone / "foreign")
    hand_over(root)
    (root / ".ai/step-rules.yaml").write_text("steps: {bdd: {tests: green}}", encoding="utf-8")
    before = (root / ".ai/STATE.json").read_bytes()

    assert (0, "", "") == (
        hook(event(root), env).code,
        hook(event(root), env).out,
        hook(event(root), env).err,
    )
    assert before == (root / ".ai/STATE.json").read_bytes()


def test_a_handoff_is_applied_once_and_nobody_waits_for_it(root: Path, env: dict[str, str]) -> None:
    """However many hooks there are, from whichever folder below."""
    (root / "src").mkdir()
    hand_over(root)
    hooks = [
        subprocess.Popen(ARGV, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    said = [
        process.communicate(event(root / "src", name), timeout=60)
        for process, name in zip(hooks, EVENTS, strict=False)
    ]

    assert [0] * 4 == [process.returncode for process in hooks]
    assert [(b"", b"")] * 4 == said
    eventually_sync(lambda: state_in(root)["status"] == "pass")
    eventually_sync(lambda: _kinds(root, env).count("handoff_arrived") == 1)


def test_what_nobody_waited_for_is_told_by_the_next_hook(root: Path, env: dict[str, str]) -> None:
    """Once; and it is not tried again, for the same hand-off."""
    (root / ".ai/HANDOFF.md").write_text("---\nstatus: [\n", encoding="utf-8")
    first = hook(event(root, "SubagentStop"), env)
    eventually_sync(lambda: bool(list((root.parent / "state/hooks").glob("*.last"))))
    said = [hook(event(root), env) for _ in range(2)]

    assert (0, "", [2, 0]) == (first.code, first.err, [one.code for one in said])
    assert "the hand-off cannot be read" in said[0].err
    hand_over(root)
    assert 0 == hook(event(root), env).code
    eventually_sync(lambda: state_in(root)["status"] == "pass")


def test_a_failed_check_sends_the_agent_back(checked: Path, env: dict[str, str]) -> None:
    """It waits for the check, says what failed, and is silent the next time."""
    hand_over(checked)
    said, again = hook(event(checked), env), hook(event(checked), env)

    assert (2, "") == (said.code, said.out)
    assert "bdd attempt 1 of US-001 is failing: post_check failed: it is bad" in said.err
    assert ("failing", False) == (state_in(checked)["status"], state_in(checked)["lint_pass"])
    assert (0, "", "") == (again.code, again.out, again.err)


@pytest.mark.parametrize("last", ["applied", "taken", "stale"])
def test_a_daemon_is_asked_until_its_checks_have_ended(alone: Path, last: str) -> None:
    """It lets a caller go before long ones have; they may end between two questions, too."""
    root = standing(alone / "slow")
    hand_over(root)
    running = {"type": "applied", "message": "running", "checking": True, "state": state_in(root)}
    judged = state_in(root) | {"status": "failing", "last_error": "2 tests fail"}
    ended = {"type": last, "message": "failing", "checking": False, "state": judged}
    with daemon_saying(running, running, ended) as runtime:
        said = hook(event(root), environment(runtime, HANDOFFD_STATE_DIR=str(alone / "state")))

    assert (2, "") == (said.code, said.out)
    assert "bdd attempt 1 of US-001 is failing: 2 tests fail" in said.err


def test_a_session_s_end_has_no_time_to_ask_again(alone: Path) -> None:
    """Claude Code ends the hook after a minute; the person is told what still runs."""
    root = standing(alone / "slow")
    hand_over(root)
    running = {"type": "applied", "message": "running", "checking": True, "state": state_in(root)}
    assert ENDING_S < TIMEOUTS_S["SessionEnd"]
    assert LIMIT_S < min(TIMEOUTS_S[name] for name in EVENTS if name != "SessionEnd")
    with daemon_saying(running) as runtime:
        env = environment(runtime, HANDOFFD_STATE_DIR=str(alone / "state"))
        assert "still run" in _in_time(root, env)


def _in_time(root: Path, env: dict[str, str]) -> str:
    """Return the note of a hook that has less time left than the daemon holds a caller."""
    code = (
        "import os, sys; from handoffd.entrance import hook; hook.ENDING_S = 1\n"
        "print(hook.reply_to(sys.stdin.buffer.read(), None, os.environ).note)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], input=event(root, "SessionEnd"), env=env, capture_output=True,
        timeout=60, check=True,
    )  # fmt: skip
    return said.stdout.decode()


def test_five_mended_attempts_send_nobody_back_five_times(alone: Path, env: dict[str, str]) -> None:
    """Each is a new attempt with a new hand-off; a step that passed unseen begins anew."""
    root = _failing_at_most(9, alone)
    said = []
    for number in range(4):
        hand_over(root, summary=f"mended {number}")
        said.append(hook(event(root, "TeammateIdle"), env))

    assert [2, 2, 0, 0] == [one.code for one in said]
    assert "sent back twice already" in json.loads(said[-1].out)["systemMessage"]
    assert 4 == state_in(root)["attempt"]
    standing(root, status="pass")
    assert (0, "", "") == ((passed := hook(event(root, "Stop"), env)).code, passed.out, passed.err)
    (tally,) = (alone / "state/hooks").glob("*.json")
    assert {} == json.loads(tally.read_text(encoding="utf-8"))["sessions"]


def test_a_good_check_is_told_to_the_person(checked: Path, env: dict[str, str]) -> None:
    """In the form that Claude Code shows."""
    (checked / "good").touch()
    hand_over(checked)
    said = hook(event(checked), env)

    assert (0, "") == (said.code, said.err)
    assert "handoffd: bdd attempt 1 of US-001 is pass" in json.loads(said.out)["systemMessage"]


def test_an_agent_that_is_at_it_again_may_stop(checked: Path, env: dict[str, str]) -> None:
    """The hand-off is applied all the same."""
    hand_over(checked)
    said = hook(event(checked, stop_hook_active=True), env)

    assert (0, "") == (said.code, said.err)
    assert "post_check failed" in json.loads(said.out)["systemMessage"]
    assert "failing" == state_in(checked)["status"]


def test_a_step_without_a_handoff_is_asked_for_once(root: Path, env: dict[str, str]) -> None:
    """At the end of a turn; a subagent has other work."""
    said = [hook(event(root, name), env).code for name in ("SubagentStop", "TeammateIdle", "Stop", "Stop")]

    assert [0, 0, 2, 0] == said
    assert "running" == state_in(root)["status"]


def test_inside_a_run_of_ours_nothing_is_done(root: Path, env: dict[str, str]) -> None:
    """Its hand-off is heard when it ends."""
    hand_over(root)
    said = hook(event(root), {**env, OF_A_RUN: "d1"})

    assert (0, "", "") == (said.code, said.out, said.err)
    assert "running" == state_in(root)["status"]


@pytest.mark.parametrize("raw", [b"", b"{}", b"\x1b[2J", event("relative"), event("/\ud800")])
def test_what_is_no_event_stops_nobody(env: dict[str, str], raw: bytes) -> None:
    """One line, and an exit code that Claude Code goes on after."""
    said = hook(raw, env)

    assert (1, "", 1) == (said.code, said.out, len(said.err.splitlines()))
    assert "Error" not in said.err


def test_settings_that_cannot_be_read_stop_nobody(root: Path, env: dict[str, str]) -> None:
    """Whatever is wrong on our side."""
    wrong = root / "handoffd.yaml"
    wrong.write_text("state_dir: [\n", encoding="utf-8")
    bare = {name: value for name, value in env.items() if not name.startswith("HANDOFFD_")}
    said = hook(event(root), bare, "--config", str(wrong))

    assert (1, 1) == (said.code, len(said.err.splitlines()))
    assert "handoffd.yaml" in said.err


def test_at_a_terminal_it_says_who_it_is_for(env: dict[str, str]) -> None:
    """Instead of waiting for what nobody will type."""
    ours, theirs = pty.openpty()
    try:
        said = subprocess.run(
            ARGV, env=env, stdin=theirs, capture_output=True, text=True, timeout=60, check=False
        )
    finally:
        os.close(ours)
        os.close(theirs)

    assert 1 == said.returncode
    assert "handoffd hooks install" in said.stderr


def test_without_a_standard_input_it_says_so(env: dict[str, str]) -> None:
    """In one line."""
    words = ["/bin/sh", "-c", '"$@" <&-', "sh", *ARGV]
    said = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)

    assert (1, "", 1) == (said.returncode, said.stdout, len(said.stderr.splitlines()))
    assert "standard input is closed" in said.stderr
    assert "handoffd hooks install" in said.stderr


def test_a_handoff_written_when_no_attempt_is_left_is_told(alone: Path, env: dict[str, str]) -> None:
    """To the person, once; it stops nobody."""
    root = _failing_at_most(1, alone)
    hand_over(root)
    assert 2 == hook(event(root), env).code
    hand_over(root, summary="mended")
    said = [hook(event(root, name), env) for name in ("SubagentStop", "Stop")]

    assert [(0, "")] * 2 == [(one.code, one.err) for one in said]
    note = json.loads(said[0].out)["systemMessage"]
    assert f"A person is needed; next: handoffd retry {root}" in note
    assert "" == said[1].out


def test_a_module_of_the_project_is_not_taken_for_ours(root: Path, env: dict[str, str]) -> None:
    """An agent works there, and may have written anything."""
    for name in ("json", "handoffd", "socket"):
        (root / f"{name}.py").write_text("raise SystemExit(2)", encoding="utf-8")
    said = subprocess.run(
        ARGV,
        input=event(root, "SubagentStop"),
        env=env,
        cwd=root,
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert (0, b"") == (said.returncode, said.stderr)


def test_the_usual_ways_out_import_next_to_nothing(root: Path, env: dict[str, str]) -> None:
    """No project; nothing to hand over; a word to the agent."""
    code = (
        "import os, sys; from handoffd.entrance.hook import reply_to\n"
        "reply_to(sys.stdin.buffer.read(), None, os.environ); print(*sys.modules)"
    )
    heavy = {
        "pydantic",
        "anyio",
        "click",
        "dataclasses",
        "pathlib",
        "typing",
        "http",
        "http.client",
        "inspect",
    }
    for raw in (event("/"), event(root, "SubagentStop"), event(root)):
        said = subprocess.run(
            [sys.executable, "-c", code], input=raw, env=env, capture_output=True, timeout=60, check=True
        )
        assert not heavy & set(said.stdout.decode().split())
