"""A review as a person meets it: in a notice, on a terminal, decided by keys, under a real daemon."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.test_resting import rests
from tests.support.agents import shell_agent, shop
from tests.support.commands import Said, assert_replayed, environment_of, typed
from tests.support.daemon import Daemon, Json, running
from tests.support.eventually import eventually_sync
from tests.support.repositories import git
from tests.support.terminals import at_terminal

TABLE = "steps: {bdd: {next_on_pass: review, timeout_min: 5}, review: {next_on_pass: update-memory}}\n"
AGENT = """\
cat > /dev/null
mkdir -p docs/bdd
printf '# Scenarios\\n[NEEDS CLARIFICATION] Which zone?\\n' > docs/bdd/US-001.md
echo 'print(1)' >> shop.py
printf -- '---\\nstep: %s\\nstatus: pass\\ntests_pass: 4\\nsummary: It is written.\\n---\\n' \\
  "$HANDOFFD_STEP" > .ai/new
mv .ai/new .ai/HANDOFF.md
"""


def settings(base: Path) -> Json:
    """Return settings with the agent as executor."""
    return {"executor": "agent", "executors": {"agent": shell_agent(base, AGENT)}}


def to_review(daemon: Daemon, base: Path) -> Path:
    """Bring a story to its review, in a repository; return the project."""
    project = shop(base, TABLE)
    for words in (("init", "--quiet", "-b", "main"), ("add", "PROJECT_CONTEXT.md")):
        git(project, *words)
    assert 0 == git(project, "commit", "--quiet", "-m", "first")
    daemon.verb("start", project, story="US-001")
    daemon.wait_at(project, "review", "needs_human")
    return project


def test_a_review_is_read_and_decided_on_a_terminal(tmp_path: Path) -> None:
    """The diff, a rejection, what came since, and the approval; the journal can be replayed."""
    with running(tmp_path, settings(tmp_path)) as daemon:
        project = to_review(daemon, tmp_path)
        env = environment_of(daemon)

        with at_terminal("--config", str(daemon.config), "gate", "shop", env=env) as terminal:
            terminal.wait_for("2 files changed since bdd-0: +3 -0 lines")
            terminal.wait_for("docs/bdd/US-001.md:2 [NEEDS CLARIFICATION] Which zone?")
            terminal.wait_for("It is written. (the agent's own words)")
            terminal.answer("q quit", "d")
            terminal.wait_for("+print(1)")
            terminal.answer("q quit", "r")
            terminal.answer("nothing to go back: ", "needs_clarification\n")
            terminal.answer("What should change? ", "UTC\n")
            assert 0 == terminal.end()
            assert "review rejected by" in terminal.shown

        daemon.wait_for(project, lambda track: track["gate"] and len(daemon.runs(project)) == 2)
        with at_terminal("--config", str(daemon.config), "gate", "shop", "--since-last", env=env) as terminal:
            terminal.wait_for("1 file changed since this gate was decided last (review-1): +1 -0")
            terminal.answer("q quit", "a")
            terminal.answer("type the word approve: ", "approve\n")
            assert 0 == terminal.end()
            assert "handoffd undo" not in terminal.shown  # with a free slot it would be too late

        daemon.wait_at(project, "done", "pass")
        assert_replayed(daemon)


def test_an_approval_is_taken_back_while_nothing_has_begun(tmp_path: Path) -> None:
    """The gate waits again, with a notice; once the attempt has begun it is too late; all can be replayed."""
    with running(tmp_path, settings(tmp_path)) as daemon:
        project = to_review(daemon, tmp_path)
        assert (1, "NOTHING_APPROVED") == _code(typed(daemon, "undo", "shop", "--json"))
        daemon.verb("pause", project)
        assert "handoffd undo shop" in typed(daemon, "approve", "shop", "--note", "Fine.").out
        assert "pass" == daemon.track(project)["status"]

        undone = typed(daemon, "undo", "shop", "--story", "US-001")
        assert 0 == undone.code, undone.err
        assert "the approval of review by" in undone.out
        track = daemon.track(project)
        assert (True, "needs_human", None) == (track["gate"], track["status"], track["human_note"])
        daemon.verb("resume", project)
        waiting = daemon.get("/v1/notices")["waiting"]
        assert ["review of US-001 waits for your decision again"] == [one["text"] for one in waiting]
        assert "US-001 waits at review" in typed(daemon, "gate", "shop").out
        assert ["bdd"] == [run["step"] for run in daemon.runs(project)]

        daemon.verb("approve", project)
        daemon.wait_at(project, "done", "pass")
        assert (1, "ALREADY_DONE") == _code(typed(daemon, "undo", "shop", "--json"))
        assert_replayed(daemon)


def _code(said: Said) -> tuple[int, str]:
    return said.code, said.json["code"]


def test_the_notice_the_status_and_the_list_have_the_same_gate(tmp_path: Path) -> None:
    """In short, each with the command for the rest; without a daemon, too."""
    with running(tmp_path, settings(tmp_path)) as daemon:
        project = to_review(daemon, tmp_path)
        daemon.wait_delivered()

        [told] = [one for one in daemon.told(project) if one["step"] == "review"]
        assert f"All of it: handoffd gate {project}" in told["facts"]
        assert "Changed since bdd-0: 2 files, +3 -0 lines" in told["facts"]
        assert "Scope: 1 of them is outside of what the step may write" in told["facts"]
        assert any(one.startswith("Cost: ") and "sandbox: " in one for one in told["facts"])
        assert "The agent says: It is written." in told["facts"]
        status = typed(daemon, "status", "shop")
        assert "changed since bdd-0: 2 files, +3 -0 lines\n" in status.out
        assert "scope: 1 of them is outside of what the step may write\n" in status.out
        assert "handoffd gate shop" in typed(daemon, "gate").out
        eventually_sync(lambda: rests(daemon, project))
        shown = typed(daemon, "gate", "shop")  # its own step table counts, also where it was at rest
        assert "update-memory begins" in shown.out
        daemon.terminate()

        offline = typed(daemon, "gate", "shop")
        assert shown.lines == offline.lines[: len(shown.lines)]
