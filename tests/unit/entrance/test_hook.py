"""`handoffd hook` as Claude Code calls it, while no daemon runs."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.commands import Commands, Said, environment
from tests.support.eventually import eventually_sync
from tests.support.hooking import ARGV, daemon_saying, event, hand_over, hook, standing, state_in

from handoffd import dispatch, start_story
from handoffd.entrance.hook import ENDING_S, LIMIT_S, reply_to
from handoffd.execute.environment import MARK as OF_A_RUN
from handoffd.hooks.claude_settings import TIMEOUTS_S
from handoffd.hooks.event import BLOCKED, EVENTS, PASSED, Reply


@pytest.fixture
def env(alone: Path) -> dict[str, str]:
    """The environment of an agent on a machine where no daemon runs."""
    return environment(alone)


@pytest.fixture
def root(alone: Path) -> Path:
    """A project whose first step a person has taken."""
    return _taken(alone / "shop")


def _taken(root: Path, rule: str = "") -> Path:
    """Take the first step's prompt in this process, where no daemon is found either."""
    (root / ".ai").mkdir(parents=True)
    (root / "PROJECT_CONTEXT.md").write_text("a shop", encoding="utf-8")
    if rule:
        (root / ".ai/step-rules.yaml").write_text(f"steps: {{bdd: {{{rule}}}}}", encoding="utf-8")
    start_story(root, "US-001")
    assert "dispatched" == dispatch(root).type
    return root


GOOD = "post_check: 'test -e good || { echo it is bad; exit 1; }'"
BAD = "post_check: 'echo it is bad; exit 1'"


def _here(raw: bytes, env: dict[str, str]) -> Reply:
    """Return the reply of a hook in this process, which has imported everything already."""
    return reply_to(raw, None, env)


@pytest.mark.parametrize("name", [*EVENTS, "PreToolUse"])
def test_without_a_project_it_is_silent(alone: Path, env: dict[str, str], name: str) -> None:
    """And leaves no trace."""
    assert Said(0, "", "") == hook(event(alone, name), env)
    assert not (alone / "state").exists()


def test_a_project_that_is_not_supervised_is_left_alone(alone: Path, env: dict[str, str]) -> None:
    """Another tool's project, also with a hand-off; its state does not change."""
    root = standing(alone / "foreign")
    hand_over(root)
    (root / ".ai/step-rules.yaml").write_text("steps: {bdd: {tests: green}}", encoding="utf-8")
    before = (root / ".ai/STATE.json").read_bytes()

    assert Said(0, "", "") == hook(event(root), env)
    assert before == (root / ".ai/STATE.json").read_bytes()


def test_a_handoff_is_applied_once_in_the_background(
    root: Path, env: dict[str, str], handoffd: Commands
) -> None:
    """However many hooks there are, from any folder of the project."""
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

    def kinds() -> list[str]:
        return [json.loads(line)["kind"] for line in handoffd("events", str(root), "--json").lines]

    assert [0] * 4 == [process.returncode for process in hooks]
    assert [(b"", b"")] * 4 == said
    eventually_sync(lambda: state_in(root)["status"] == "pass")
    eventually_sync(lambda: kinds().count("handoff_arrived") == 1)


def test_the_next_hook_reports_an_error_of_the_background(root: Path, env: dict[str, str]) -> None:
    """Once; and no hook tries the same hand-off again."""
    (root / ".ai/HANDOFF.md").write_text("---\nstatus: [\n", encoding="utf-8")
    first = hook(event(root, "SubagentStop"), env)
    eventually_sync(lambda: bool(list((root.parent / "state/hooks").glob("*.last"))))
    said = [hook(event(root), env) for _ in range(2)]

    assert (0, "", [2, 0]) == (first.code, first.err, [one.code for one in said])
    assert "the hand-off cannot be read" in said[0].err
    hand_over(root)
    assert 0 == hook(event(root), env).code
    eventually_sync(lambda: state_in(root)["status"] == "pass")


def test_a_failed_check_sends_the_agent_back(alone: Path, env: dict[str, str]) -> None:
    """The hook waits for the check and reports the failure; the next hook is silent."""
    root = _taken(alone / "checked", GOOD)
    hand_over(root)
    said = hook(event(root), env)

    assert (2, "") == (said.code, said.out)
    assert "bdd attempt 1 of US-001 is failing: post_check failed: it is bad" in said.err
    assert ("failing", False) == (state_in(root)["status"], state_in(root)["lint_pass"])
    assert Said(0, "", "") == hook(event(root), env)


def test_a_person_sees_that_a_check_passed(alone: Path, env: dict[str, str]) -> None:
    """In the form that Claude Code shows."""
    root = _taken(alone / "checked", GOOD)
    (root / "good").touch()
    hand_over(root)
    said = hook(event(root), env)

    assert (0, "") == (said.code, said.err)
    assert "handoffd: bdd attempt 1 of US-001 is pass" in json.loads(said.out)["systemMessage"]


@pytest.mark.parametrize("last", ["applied", "taken", "stale"])
def test_a_daemon_is_asked_until_its_checks_have_ended(alone: Path, last: str) -> None:
    """It answers before long checks have ended; they may end between two questions, too."""
    root = standing(alone / "slow")
    hand_over(root)
    running = {"type": "applied", "message": "running", "checking": True, "state": state_in(root)}
    judged = state_in(root) | {"status": "failing", "last_error": "2 tests fail"}
    ended = {"type": last, "message": "failing", "checking": False, "state": judged}
    with daemon_saying(running, running, ended) as runtime:
        said = hook(event(root), environment(runtime, HANDOFFD_STATE_DIR=str(alone / "state")))

    assert (2, "") == (said.code, said.out)
    assert "bdd attempt 1 of US-001 is failing: 2 tests fail" in said.err


def test_the_end_of_a_session_leaves_no_time_to_ask_again(alone: Path) -> None:
    """Claude Code ends the hook after a minute; the person sees that checks still run."""
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


def test_new_attempts_do_not_send_an_agent_back_again_and_again(alone: Path, env: dict[str, str]) -> None:
    """Each hand-off is of a new attempt; after a step that passed unseen the count begins again."""
    root = _taken(alone / "bad", f"max_attempts: 9, {BAD}")
    replies = []
    for number in range(4):
        hand_over(root, summary=f"repaired {number}")
        replies.append(_here(event(root, "TeammateIdle"), env))

    assert [BLOCKED, BLOCKED, PASSED, PASSED] == [one.code for one in replies]
    assert "sent back twice already" in replies[-1].note
    assert 4 == state_in(root)["attempt"]
    standing(root, status="pass")
    passed = _here(event(root), env)
    assert (PASSED, "", "") == (passed.code, passed.text, passed.note)
    (tally,) = (alone / "state/hooks").glob("*.json")
    assert {} == json.loads(tally.read_text(encoding="utf-8"))["sessions"]


def test_a_hook_asks_once_for_a_missing_handoff(root: Path, env: dict[str, str]) -> None:
    """At the end of a turn, but not inside a run of ours; a subagent has other work."""
    assert Said(0, "", "") == hook(event(root), {**env, OF_A_RUN: "d1"})
    said = [hook(event(root, name), env).code for name in ("SubagentStop", "TeammateIdle", "Stop", "Stop")]

    assert [0, 0, 2, 0] == said
    assert "running" == state_in(root)["status"]


@pytest.mark.parametrize("raw", [b"", b"{}", b"\x1b[2J", event("relative"), event("/\ud800")])
def test_wrong_input_stops_no_agent(env: dict[str, str], raw: bytes) -> None:
    """One line, and an exit code after which Claude Code goes on."""
    said = hook(raw, env)

    assert (1, "", 1) == (said.code, said.out, len(said.err.splitlines()))
    assert "Error" not in said.err


def test_settings_that_cannot_be_read_stop_no_agent(root: Path, env: dict[str, str]) -> None:
    """One line names the file."""
    wrong = root / "handoffd.yaml"
    wrong.write_text("state_dir: [\n", encoding="utf-8")
    bare = {name: value for name, value in env.items() if not name.startswith("HANDOFFD_")}
    said = hook(event(root), bare, "--config", str(wrong))

    assert (1, 1) == (said.code, len(said.err.splitlines()))
    assert "handoffd.yaml" in said.err


@pytest.mark.parametrize("terminal", [True, False])
def test_without_an_event_it_names_the_command_to_install_it(env: dict[str, str], terminal: bool) -> None:
    """At a terminal, instead of waiting for input, and where its standard input is closed."""
    ours, theirs = pty.openpty()
    words = ARGV if terminal else ("/bin/sh", "-c", '"$@" <&-', "sh", *ARGV)
    said = subprocess.run(
        words, env=env, stdin=theirs, capture_output=True, text=True, timeout=60, check=False
    )
    os.close(ours)
    os.close(theirs)

    assert (1, "", 1) == (said.returncode, said.stdout, len(said.stderr.splitlines()))
    assert terminal == ("standard input is closed" not in said.stderr)
    assert "handoffd hooks install" in said.stderr


def test_a_person_learns_that_a_handoff_came_after_the_last_attempt(alone: Path, env: dict[str, str]) -> None:
    """Once; it stops no agent."""
    root = _taken(alone / "bad", f"max_attempts: 1, {BAD}")
    hand_over(root)
    assert BLOCKED == _here(event(root), env).code
    hand_over(root, summary="repaired")
    first, second = (_here(event(root, name), env) for name in ("SubagentStop", "Stop"))

    assert [(PASSED, "")] * 2 == [(one.code, one.text) for one in (first, second)]
    assert f"A person is needed; next: handoffd retry {root}" in first.note
    assert "" == second.note


def test_a_module_of_the_project_is_not_imported(root: Path, env: dict[str, str]) -> None:
    """An agent works there, and may have written anything."""
    for name in ("json", "handoffd", "socket"):
        (root / f"{name}.py").write_text("raise SystemExit(2)", encoding="utf-8")
    raw = event(root, "SubagentStop")
    said = subprocess.run(ARGV, input=raw, env=env, cwd=root, capture_output=True, timeout=60, check=False)

    assert (0, b"") == (said.returncode, said.stderr)


def test_the_usual_ways_out_import_next_to_nothing(root: Path, env: dict[str, str]) -> None:
    """Without a project; with nothing to hand over; with a word to the agent."""
    code = (
        "import os, sys; from handoffd.entrance.hook import reply_to\n"
        "reply_to(sys.stdin.buffer.read(), None, os.environ); print(*sys.modules)"
    )
    heavy = {"pydantic", "anyio", "click", "dataclasses", "pathlib", "typing", "http", "inspect"}
    for raw in (event("/"), event(root, "SubagentStop"), event(root)):
        said = subprocess.run(
            [sys.executable, "-c", code], input=raw, env=env, capture_output=True, timeout=60, check=True
        )
        assert not heavy & set(said.stdout.decode().split())


# --- work in the background --------------------------------------------------------------------------
def test_the_caller_ends_before_the_work(tmp_path: Path) -> None:
    """Its streams end, and the work is done all the same."""
    gate, done = tmp_path / "gate", tmp_path / "done"
    os.mkfifo(gate)
    code = (
        "import sys; from handoffd.entrance.hook import later\n"
        "def work():\n"
        "    open(sys.argv[1]).read(); print('unheard'); open(sys.argv[2], 'w').write('x')\n"
        "later(work); print('gone on')"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(gate), str(done)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip

    assert ("gone on\n", "", False) == (said.stdout, said.stderr, done.exists())
    gate.write_text("now", encoding="utf-8")
    eventually_sync(done.exists)


def test_work_that_fails_in_the_background_fails_alone(tmp_path: Path) -> None:
    """Its process ends there and does not run the caller's code."""
    code = (
        "import sys; from handoffd.entrance.hook import later\n"
        "def work(): open(sys.argv[1], 'a').write('x'); raise RuntimeError\n"
        "later(work); open(sys.argv[1], 'a').write('y')"
    )
    log = tmp_path / "log"
    subprocess.run([sys.executable, "-c", code, str(log)], capture_output=True, timeout=60, check=True)

    eventually_sync(lambda: sorted(log.read_text(encoding="utf-8")) == ["x", "y"])
