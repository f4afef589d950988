"""A review as a person meets it: in a notice, on a terminal, decided by keys, under a real daemon."""

from __future__ import annotations

import json
from pathlib import Path

from tests.acceptance.test_resting import rests
from tests.support.agents import project_at, shell_agent, shop
from tests.support.commands import Said, assert_replayed, environment_of, typed
from tests.support.daemon import Daemon, Json, running
from tests.support.eventually import eventually_sync
from tests.support.house import HAND_OVER
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
            terminal.answer("the answer to the unclear points? ", "UTC, as I said\n")
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

        assert (1, "UNANSWERED") == _code(typed(daemon, "approve", "shop", "--json"))
        daemon.verb("note", project, text="UTC")
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
        eventually_sync(lambda: "review" in [one["step"] for one in daemon.told(project)])

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


# --- several at once ------------------------------------------------------------------------------------
OF_ITS_STORY = f"""\
cat > /dev/null
mkdir -p docs/bdd
echo "Scenarios of $HANDOFFD_STORY" > docs/bdd/$HANDOFFD_STORY.md
echo "work on $HANDOFFD_STORY"
{HAND_OVER}"""
DECIDED = ("noted", "rejected", "approved")
AT_ONCE: Json = {"workspace": "clone", "stories": {"parallel": 2}}


def two_gates(daemon: Daemon, base: Path) -> Path:
    """Bring two stories of one repository to their reviews; return the project."""
    project = project_at(base / "shop", TABLE, json.dumps(AT_ONCE))
    assert "initialised" == daemon.verb("init", project)["type"]
    for words in (
        ("init", "--quiet", "-b", "main"), ("add", "-A"), ("commit", "--quiet", "-m", "Begin"),
    ):  # fmt: skip
        assert 0 == git(project, *words)
    for story in ("US-001", "US-002"):
        daemon.begin(project, story)
    eventually_sync(lambda: [True, True] == [track["gate"] for track in daemon.view(project)["tracks"]])
    return project


def agent_of_its_story(base: Path) -> Json:
    """Return settings with the agent that says which story it works on."""
    return {"executor": "agent", "executors": {"agent": shell_agent(base, OF_ITS_STORY)}}


def test_no_answer_offers_to_approve_what_nobody_has_seen(tmp_path: Path) -> None:
    """It names the screen of the gate; and a chat has each line below the story that it is about."""
    with running(tmp_path, agent_of_its_story(tmp_path)) as daemon:
        two_gates(daemon, tmp_path)

        for words in (
            ("start", "shop", "US-001", "--queue"), ("continue", "shop"), ("backlog", "shop"),
            ("skip", "shop", "--story", "US-001"), ("peek", "shop", "--story", "US-001"),
            ("note", "shop", "--story", "US-001", "Use UTC."),
            ("auto", "shop", "skip", "US-001"), ("auto", "shop", "跳過 US-001"),
        ):  # fmt: skip
            answer = typed(daemon, *words)
            said = f"{answer.out}{answer.err}"
            assert "handoffd approve" not in said, words
            assert "--story US-002" not in said, words
            if words[0] != "note":
                assert "handoffd gate" in said, (words, said)
        for story in ("US-001", "US-002"):
            assert f"work on {story}\n" == typed(daemon, "log", "shop", "--story", story).out
        assert "for US-003 yet" in typed(daemon, "log", "shop", "--story", "US-003").err
        assert 2 == typed(daemon, "log", "--run", "d1", "--story", "US-001").code
        assert "這一步要由你決定，不能跳過" in typed(daemon, "auto", "shop", "跳過 US-001").err

        lines = typed(daemon, "auto", "shop", "status").lines
        for story in ("US-001", "US-002"):
            at = lines.index(f"{story}: the review waits for your decision")
            assert lines[at + 1].startswith(f"Please read: docs/bdd/{story}.md")


def test_each_key_is_about_the_story_of_the_gate(tmp_path: Path) -> None:
    """With two gates in one project, its latest run is of one story, and its main track of the other."""
    with running(tmp_path, agent_of_its_story(tmp_path)) as daemon:
        project = two_gates(daemon, tmp_path)
        tracks = {track["track"]: track["story"] for track in daemon.view(project)["tracks"]}
        env = environment_of(daemon)

        for story, other in (("US-001", "US-002"), ("US-002", "US-001")):
            words = ("--config", str(daemon.config), "gate", "shop", "--story", story)
            with at_terminal(*words, env=env) as terminal:
                for key, text in (("d", "+Scenarios of"), ("s", "Scenarios of"), ("l", "work on")):
                    terminal.answer("q quit", key)
                    terminal.wait_for(f"{text} {story}")
                terminal.answer("q quit", "n")
                terminal.answer("next prompt: ", f"of {story}\n")
                terminal.wait_for("noted for the next prompt")
                terminal.answer("q quit", "r" if story == "US-001" else "a")
                if story == "US-001":
                    terminal.answer("nothing to go back: ", "scope\n")
                    terminal.answer("What should change? ", "Less.\n")
                else:
                    terminal.answer("type the word approve: ", "approve\n")
                assert 0 == terminal.end()
            assert other not in terminal.shown

        events = {kind: [one for one in daemon.events(project) if one["kind"] == kind] for kind in DECIDED}
        assert {"US-001": "of US-001", "US-002": "of US-002"} == {
            tracks[one["track"]]: one["event"]["text"] for one in events["noted"]
        }
        assert ["US-001"] == [one["event"]["story"] for one in events["rejected"]]
        assert ["US-002"] == [one["event"]["story"] for one in events["approved"]]
        assert_replayed(daemon)
