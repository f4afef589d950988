"""What a step has written is checked under a real daemon and in the sandbox, and so is an approval."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.agents import project_at, shell_agent, state_of
from tests.support.commands import typed
from tests.support.daemon import Daemon, Json, prompts, running
from tests.support.house import HAND_OVER

STORY = "docs/bdd/US-001.md"
CONTRACT = "docs/api/openapi.yaml"
HASTY = f"""\
cat > /dev/null
mkdir -p docs/bdd docs/api tests
doubt='[NEEDS CLARIFICATION] in cents?'
case $HANDOFFD_STEP-$HANDOFFD_ATTEMPT in
  bdd-2) printf '### Scenario: S1 a guest pays\\n%s\\n' "$doubt" > {STORY};;
  bdd-3) printf '### Scenario: S1 a guest pays @unit\\n%s\\n' "$doubt" > {STORY};;
  contract-1) echo 'openapi: 3.1.0' > {CONTRACT};;
  contract-2) printf 'openapi: 3.1.0\\ninfo: {{title: Shop, version: "1"}}\\npaths: {{}}\\n' > {CONTRACT};;
  verify-2) echo 'def test_s1_a_guest_pays(): ...' > tests/test_pay.py;;
esac
{HAND_OVER}"""
"""Hands over at once, and does its work only after a failed attempt."""

TABLE = {
    "steps": {
        "bdd": {"next_on_pass": "contract", "max_attempts": 3},
        "contract": {"next_on_pass": "review"},
        "review": {"next_on_pass": "verify"},
        "verify": {"next_on_pass": "done", "on_fail": {"default": "verify"}, "tests": None},
    }
}
LEVELS = "@unit, @integration, @component, @e2e or @perf(ID)"
MISSING = f"{STORY}: it is missing, and this step writes it"
NO_LEVEL = f"{STORY}:1: scenario 'a guest pays' has no test level: {LEVELS}"
UNREAD = f'{CONTRACT}:1: "info" is a required property'
UNTESTED = f"{STORY}:1: scenario 'a guest pays' has no test: no test file has S1 in its name or description"


def errors(daemon: Daemon, project: Path) -> list[str]:
    """Return the last line of each check of outputs, the oldest first; it is empty where nothing is wrong."""
    found = (one["event"] for one in daemon.events(project) if one["kind"] == "checks_finished")
    return [check["line"] for one in found for check in one["post_checks"]]


def test_what_a_step_has_written_is_held_to_its_rule(tmp_path: Path) -> None:
    """Each failure names file and line, to people and the next attempt; an approval answers what is open."""

    def settings(_: Daemon) -> Json:
        agent = shell_agent(tmp_path, HASTY)
        return {"executor": "agent", "executors": {"agent": agent}}

    own = json.dumps({"preset": ["with-commit", "proven"]})
    project = project_at(tmp_path / "shop", json.dumps(TABLE), own)
    with running(tmp_path, settings) as daemon:
        daemon.begin(project)
        daemon.wait_at(project, "review", "needs_human")
        assert [MISSING, NO_LEVEL, "", f"{UNREAD} (and 1 more)", ""] == errors(daemon, project)
        told = {run["why"] for run in daemon.runs(project)}
        assert f"pass claimed, but post_check: outputs failed with exit code 1 ({MISSING})" in told
        assert f"> {NO_LEVEL}\n" in prompts(project, "bdd")[2]
        shown = typed(daemon, "show", daemon.runs(project)[-2]["run"]).out
        assert "outputs failed with exit code 1" in " ".join(shown.split())

        refused = typed(daemon, "approve", str(project))
        assert 1 == refused.code
        assert (
            "leaves open what is unclear: [NEEDS CLARIFICATION] in cents? (docs/bdd/US-001.md:2)"
            in refused.err
        )
        assert "next: handoffd approve shop --note 'THE ANSWER'" in refused.err
        assert "needs_human" == state_of(project)["status"]
        assert 0 == typed(daemon, "approve", str(project), "--note", "Yes.").code

        daemon.wait_at(project, "done", "pass")
        assert [UNTESTED, ""] == errors(daemon, project)[-2:]
        assert [("verify", 1, "failing"), ("verify", 2, "pass")] == daemon.results(project)[-2:]
