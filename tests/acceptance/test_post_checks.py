"""A step with several checks under the real daemon: what fails, what hangs, and what a kill of it repeats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.agents import lines, released, shop, state_of
from tests.support.daemon import Daemon, prompts, running
from tests.support.eventually import eventually_sync


def checked_shop(base: Path, checks: dict[str, str], **rule: Any) -> Path:
    """Return a project whose only step before the review has these checks; its agent hands over at once."""
    (base / "release").touch()
    step = {"next_on_pass": "review", "timeout_min": 5, "post_check": checks, **rule}
    return shop(base, json.dumps({"steps": {"bdd": step}}))


def test_of_three_checks_two_fail_and_one_hangs(tmp_path: Path) -> None:
    """All run, one floods; each is named with its exit code, to the agent, to people and in the journal."""
    checks = {
        "lint": r"printf '\377\000\033[2J\n'; echo E501; exit 3",
        "hangs": "yes | head -c 5000000; echo at 1 %; sleep 600",
        "types": "exit 1",
    }
    project = checked_shop(tmp_path, checks, post_check_timeout_s=3, max_attempts=2)
    said = (
        "post_check: lint failed with exit code 3 (E501), hangs did not end in time (at 1 %),"
        " types failed with exit code 1"
    )
    with running(tmp_path, released(tmp_path)) as daemon:
        daemon.begin(project)
        daemon.wait_at(project, "bdd", "needs_human")

        assert [("bdd", 1, "failing"), ("bdd", 2, "failing")] == daemon.results(project)
        state = state_of(project)
        assert (False, said) == (state["lint_pass"], state["last_error"])
        first, second = (one for one in daemon.events(project) if one["kind"] == "checks_finished")
        for one in (first, second):
            assert [("lint", 3, None), ("hangs", None, 15), ("types", 1, None)] == [
                (check["name"], check["code"], check["signal"]) for check in one["event"]["post_checks"]
            ]
            assert None is one["event"]["post_check"]
            assert len(json.dumps(one["event"])) < 64 * 1024
        shown = daemon.get("/v1/run", run=daemon.runs(project)[0]["run"])
        assert [("lint", 3), ("hangs", None), ("types", 1)] == [
            (check["name"], check["code"]) for check in shown["post_checks"]
        ]
        assert [
            ("post.lint", 3, "itself"),
            ("post.hangs", None, "deadline"),
            ("post.types", 1, "itself"),
        ] == [(one["what"], one["code"], one["by"]) for one in shown["commands"] if one["what"] != "executor"]
        prompt = prompts(project, "bdd")[1]
        assert ["lint", "hangs", "types"] == [
            line.removeprefix("## Last lines of the check ")
            for line in prompt.splitlines()
            if line.startswith("## Last lines of the check ")
        ]
        assert "Its exit code was 3." in prompt
        assert "> E501\n" in prompt
        assert "> at 1 %\n" in prompt
        assert "\033" not in prompt
        assert len(prompt) < 32 * 1024
        answer = daemon.verb("check", project)
        assert (False, 3, said) == (answer["passed"], len(answer["checks"]), answer["message"])


def miss_the_end_of(daemon: Daemon, project: Path, name: str, number: int) -> None:
    """Kill the daemon while its `number`-th check runs, and start it again when that has ended."""
    eventually_sync(lambda: number == len(lines(project, "checks.log")))
    daemon.kill()
    (project.parent / name).touch()
    eventually_sync(lambda: any(daemon.state_dir.glob(f"runs/*.post.{name}/exit.json")))
    daemon.start()


def test_a_kill_of_the_daemon_during_and_between_checks_repeats_none(tmp_path: Path) -> None:
    """A check that ended while no daemon was there counts, and the next one starts once."""
    wait = "echo {0} >> checks.log; until test -e ../{0}; do sleep 0.05; done"
    checks = {name: wait.format(name) for name in ("one", "two", "three")}
    project = checked_shop(tmp_path, checks, post_check_timeout_s=300)
    with running(tmp_path, released(tmp_path)) as daemon:
        daemon.begin(project)
        for number, name in enumerate(checks, start=1):
            miss_the_end_of(daemon, project, name, number)

        daemon.wait_at(project, "review", "needs_human")
        assert ["one", "two", "three"] == lines(project, "checks.log")
        assert [("bdd", 1, "pass")] == daemon.results(project)
        assert 1 == len(list(daemon.state_dir.glob("runs/*.post.three")))


def test_an_abort_ends_the_running_check_and_starts_no_other(tmp_path: Path) -> None:
    """Also after the daemon was killed meanwhile."""
    checks = {"one": "true", "two": "echo $$ > two; sleep 600", "three": "touch three"}
    project = checked_shop(tmp_path, checks, post_check_timeout_s=300)
    with running(tmp_path, released(tmp_path)) as daemon:
        daemon.begin(project)
        eventually_sync((project / "two").exists)
        daemon.kill()
        daemon.start()
        daemon.wait_for(project, lambda track: track["phase"] == "checking")
        daemon.verb("abort", project)

        daemon.wait_at(project, "bdd", "needs_human")
        assert not (project / "three").exists()
        assert any(daemon.state_dir.glob("runs/*.post.two/exit.json"))
