"""A story under the real daemon that may spend only so much: stopped, raised by a person, finished."""

from __future__ import annotations

from pathlib import Path

from tests.support.agents import lines, project_at, shell_agent
from tests.support.commands import assert_replayed, typed
from tests.support.daemon import Json, running
from tests.support.eventually import eventually_sync
from tests.support.house import HAND_OVER

AGENT = f"""\
cat > /dev/null
echo "$HANDOFFD_STEP" >> starts.log
{HAND_OVER}printf '{{"type": "result", "is_error": false, "result": "done", "total_cost_usd": 0.5}}\\n'
"""
"""Costs half a dollar a run, and reports it as claude does."""

RULES = """\
steps:
  bdd: {next_on_pass: sdd-delta}
  sdd-delta: {next_on_pass: contract}
  contract: {next_on_pass: update-memory}
"""


def settings(base: Path, **caps: object) -> Json:
    """Return settings with the agent as executor, and caps."""
    agent = shell_agent(base, AGENT, ["--resume", "{session}"], extends="claude")
    return {"executor": "agent", "executors": {"agent": agent}, "caps": caps}


def test_a_story_is_stopped_by_its_budget_raised_and_finished(tmp_path: Path) -> None:
    """A kill of the daemon between changes nothing: what was spent is in the journal, and told once."""
    project = project_at(tmp_path / "shop", RULES)
    with running(tmp_path, settings(tmp_path, story_usd=1)) as daemon:
        daemon.begin(project)
        track = daemon.wait_saying(project, "the story's budget")
        assert "the story's budget: $1.00 of $1.00 spent" == track["waits_for"]
        assert ("contract", "pending", 1) == (track["step"], track["status"], track["attempt"])
        assert f"handoffd budget {project} --story US-001 --usd 2" == track["next_command"]
        eventually_sync(lambda: {"blocked"} == {one["kind"] for one in daemon.told(project)})

        daemon.kill()
        daemon.start()
        daemon.wait_for(project, lambda one: one["waits_for"] == track["waits_for"])
        assert ["bdd", "sdd-delta"] == lines(project, "starts.log")

        refused = daemon.verb("budget", project)
        assert "NO_AMOUNT" == refused["code"]
        assert "accepted" == daemon.verb("budget", project, story="US-001", usd=2.5)["type"]
        daemon.wait_at(project, "done", "pass")
        eventually_sync(lambda: {"warning", "done"} <= {one["kind"] for one in daemon.told(project)})

        told = daemon.told(project)
        # By id: what was on its way when the daemon was killed is delivered again.
        assert ["blocked", "done", "warning"] == sorted({one["id"]: one["kind"] for one in told}.values())
        assert "US-001 is done, $2.00" == next(one["text"] for one in told if one["kind"] == "done")
        assert [0.5] * 4 == [run["exit"]["usage"]["cost_usd"] for run in daemon.runs(project)]
        assert_replayed(daemon)


def test_a_day_that_is_used_up_holds_every_project_and_tells_once(tmp_path: Path) -> None:
    """What runs goes on; nothing new is started anywhere."""
    shop, blog = project_at(tmp_path / "shop", RULES), project_at(tmp_path / "blog", RULES)
    with running(tmp_path, settings(tmp_path, day_usd=0.5)) as daemon:
        daemon.begin(shop)
        daemon.wait_saying(shop, "the day's budget")
        daemon.begin(blog)
        track = daemon.wait_saying(blog, "the day's budget")

        assert (
            "handoffd config show  # raise caps.day_usd in the file it names, then restart the daemon"
            == track["next_command"]
        )
        assert (["bdd"], []) == (lines(shop, "starts.log"), lines(blog, "starts.log"))
        assert [] == [one for project in (shop, blog) for one in daemon.told(project)]
        eventually_sync(lambda: {"blocked"} == {one["kind"] for one in daemon.told(daemon.state_dir)})


SPENDER = """\
cat > /dev/null
echo "$HANDOFFD_STEP" >> starts.log
printf '{"type": "system", "subtype": "init", "session_id": "s1", "model": "claude-sonnet-4-5"}\\n'
printf '{"type": "assistant", "message": {"id": "m1", "content": [], "usage": {"output_tokens": 200000}}}\\n'
sleep 600
"""
"""Uses tokens for three dollars in its first call of the model, and goes on."""


def test_an_attempt_is_ended_at_its_cap_while_it_runs(tmp_path: Path) -> None:
    """By what its stream has told so far and the price table; no attempt is spent, a person gets a notice."""
    project = project_at(tmp_path / "shop", RULES)
    whole = settings(tmp_path, attempt_usd=2)
    (tmp_path / "agent.sh").write_text(SPENDER)
    with running(tmp_path, whole) as daemon:
        daemon.begin(project)
        track = daemon.wait_saying(project, "the attempt's budget")
        assert ("the attempt's budget: $3.00 of $2.00 spent", "pending", 1) == (
            track["waits_for"], track["status"], track["attempt"],
        )  # fmt: skip
        (run,) = daemon.runs(project)
        assert ("stop", 3.0, "table", "claude-sonnet-4-5") == (
            run["exit"]["by"], run["usage"]["cost_usd"], run["usage"]["priced"], run["model"],
        )  # fmt: skip
        eventually_sync(lambda: "blocked" in {one["kind"] for one in daemon.told(project)})

        (tmp_path / "agent.sh").write_text(f'echo "$*" >> arguments.log\n{AGENT}')
        assert "accepted" == daemon.verb("retry", project)["type"]
        daemon.wait_at(project, "done", "pass")
        first, *others = (project / "arguments.log").read_text().splitlines()
        assert "--resume s1" in first
        assert not any("--resume" in one for one in others)


def test_a_cap_of_attempts_that_is_raised_in_the_settings_lets_them_go_on(tmp_path: Path) -> None:
    """With the next start of the daemon, once a person trusts the settings."""
    project = project_at(tmp_path / "shop", RULES)
    whole = settings(tmp_path, attempt_usd=2)
    (tmp_path / "agent.sh").write_text(SPENDER)
    with running(tmp_path, whole) as daemon:
        daemon.begin(project)
        daemon.wait_saying(project, "the attempt's budget")
        assert "accepted" == daemon.verb("budget", project, attempt=True, tokens=10**9)["type"]
        daemon.terminate()
        assert ["bdd"] == lines(project, "starts.log")
        (tmp_path / "agent.sh").write_text(AGENT)
        (tmp_path / "handoffd.yaml").write_text(
            (tmp_path / "handoffd.yaml").read_text().replace('"attempt_usd": 2', '"attempt_usd": 50')
        )
        assert 0 == typed(daemon, "trust", "--daemon", "--yes").code
        daemon.start()
        daemon.wait_at(project, "done", "pass")
