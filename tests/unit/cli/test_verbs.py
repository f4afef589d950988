"""Verbs as commands: words, options, and what is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import Commands
from tests.support.controlled import Controlled

from handoffd.api.verbs import VERBS
from handoffd.engine.decision import Refusal
from handoffd.engine.events import (
    Aborted,
    Approved,
    AutoContinueChosen,
    BacklogEdited,
    BacklogMoved,
    BacklogRemoved,
    Continued,
    EditConfirmed,
    Noted,
    Paused,
    Rejected,
    Reopened,
    Resumed,
    Retried,
    RolledBack,
    Skipped,
    Started,
    Verb,
)
from handoffd.entrance.requests import account
from handoffd.protocol.state import Reason

ME = account()


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        (["approve", "shop"], Approved(by=ME)),
        (["approve", "shop", "--note", "fine"], Approved(note="fine", by=ME)),
        (["approve", "shop", "--story", "US-001"], Approved(story="US-001", by=ME)),
        (["reject", "shop", "scope_warning"], Rejected(reason=Reason.SCOPE_WARNING, by=ME)),
        (["retry", "shop"], Retried(by=ME)),
        (["skip", "shop"], Skipped(by=ME)),
        (["abort", "shop"], Aborted(by=ME)),
        (["pause", "shop"], Paused(by=ME)),
        (["resume", "shop"], Resumed(by=ME)),
        (["note", "shop", "be quick"], Noted(text="be quick", by=ME)),
        (["rollback", "shop", "bdd", "--force"], RolledBack(step="bdd", force=True, by=ME)),
        (["reopen", "shop", "bdd"], Reopened(step="bdd", entry=2, by=ME)),
        (["confirm", "shop"], EditConfirmed(by=ME)),
        (
            ["start", "shop", "US-2", "--queue", "--blocked-by", "US-1", "--blocked-by", "US-3"],
            Started(
                story="US-2",
                queue=True,
                blocked_by=("US-1", "US-3"),
                bootstrapped=False,
                tells_aside=True,
                heeds_begun=True,
                keeps_place=True,
                by=ME,
            ),
        ),
        (
            ["start", "shop", "US-2", "--agent-teams"],
            Started(
                story="US-2",
                agent_teams=True,
                bootstrapped=False,
                tells_aside=True,
                heeds_begun=True,
                keeps_place=True,
                by=ME,
            ),
        ),
        (
            ["start", "shop", "US-2", "US-3", "US-2", "US-4", "--priority", "-5", "--complexity", "L"],
            Started(
                story="US-2",
                then=("US-3", "US-4"),
                priority=-5,
                complexity="L",
                bootstrapped=False,
                tells_aside=True,
                heeds_begun=True,
                keeps_place=True,
                by=ME,
            ),
        ),
        (["continue", "shop"], Continued(by=ME)),
        (["backlog", "move", "shop", "US-2"], BacklogMoved(story="US-2", by=ME)),
        (
            ["backlog", "move", "shop", "US-2", "--before", "US-1"],
            BacklogMoved(story="US-2", before="US-1", by=ME),
        ),
        (["backlog", "move", "shop", "US-2", "--last"], BacklogMoved(story="US-2", last=True, by=ME)),
        (
            ["backlog", "edit", "shop", "US-2", "--priority", "7", "--blocked-by", "US-1"],
            BacklogEdited(story="US-2", priority=7, blocked_by=("US-1",), by=ME),
        ),
        (
            ["backlog", "edit", "shop", "US-2", "--unblock", "--complexity", "S", "--executor", "claude"],
            BacklogEdited(story="US-2", blocked_by=(), complexity="S", executor=("claude",), by=ME),
        ),
        (
            ["backlog", "edit", "shop", "US-2", "--executor", "claude", "--executor", "codex,claude"],
            BacklogEdited(story="US-2", executor=("claude", "codex"), by=ME),
        ),
        (["backlog", "remove", "shop", "US-2", "US-3"], BacklogRemoved(stories=("US-2", "US-3"), by=ME)),
        (["backlog", "auto", "shop", "on"], AutoContinueChosen(on=True, by=ME)),
        (["backlog", "auto", "shop", "off"], AutoContinueChosen(on=False, by=ME)),
        (["backlog", "auto", "shop", "default"], AutoContinueChosen(on=None, by=ME)),
    ],
)
def test_words_and_options_become_the_verb(
    control: Controlled, handoffd: Commands, words: list[str], verb: Verb
) -> None:
    """What is typed reaches the project as what it means."""
    said = handoffd(*words)

    assert (0, "") == (said.code, said.err)
    assert [("/srv/shop", verb)] == control.supervision.given


def test_the_project_is_the_current_folder_unless_named(
    control: Controlled, handoffd: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verb that needs one word, given one word, is about where one stands."""
    monkeypatch.chdir(tmp_path)
    control.supervision.projects[str(tmp_path)] = control.supervision.projects["/srv/shop"]

    for words in (["note", "hello"], ["pause"], ["note", ".", "hello"]):
        assert 0 == handoffd(*words).code

    assert {str(tmp_path)} == {root for root, _ in control.supervision.given}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["note"], "TEXT is missing: the note"),
        (["start"], "STORY is missing: its id"),
        (["backlog", "remove"], "STORIES is missing: queued stories"),
        (["backlog", "move", "shop", "US-1", "US-2"], "too many words"),
        (["reject", "--note", "x"], "REASON is missing"),
        (["custom", "shop", "fix", "the", "bug"], "put a text of several words into quotes: 'bug'"),
        (["approve", "shop", "fine"], "too many words: 'fine'; it takes a project, and options"),
    ],
)
def test_words_that_do_not_fit_are_usage_errors(
    control: Controlled, handoffd: Commands, words: list[str], said: str
) -> None:
    """With the word that is missing or too much."""
    answer = handoffd(*words)

    assert 2 == answer.code
    assert said in answer.err
    assert [] == control.supervision.given


@pytest.mark.parametrize("words", [["approve", "shop"], ["reject", "shop", "scope_warning"]])
def test_a_story_that_is_named_by_an_unset_variable_opens_no_gate(
    control: Controlled, handoffd: Commands, words: list[str]
) -> None:
    """`--story "$STORY"`: whoever wrote that meant one."""
    said = handoffd(*words, "--story", "")

    assert 1 == said.code
    assert "story is empty: name one, or leave it out" in said.err
    assert [] == control.supervision.given


def test_the_answer_says_what_and_what_next(control: Controlled, handoffd: Commands) -> None:
    """For people."""
    assert [
        "taken",
        "  waits for: a person's decision",
        "  next: handoffd approve /srv/shop",
    ] == handoffd("approve", "shop").lines


def test_the_answer_is_json_for_programs(control: Controlled, handoffd: Commands) -> None:
    """The very JSON of the API."""
    told = handoffd("approve", "shop", "--json").json

    assert ("accepted", "/srv/shop") == (told["type"], told["project"])


def test_a_refusal_is_exit_code_1(control: Controlled, handoffd: Commands) -> None:
    """With its code and the next command; as JSON on stdout."""
    control.supervision.answer = Refusal(
        code="WRONG_STEP", message="no gate", caller_instruction="x", next_command="handoffd retry {project}"
    )

    said = handoffd("approve", "shop")
    told = "handoffd: no gate [WRONG_STEP]\n  next: handoffd retry /srv/shop\n"
    assert (1, "", told) == (said.code, said.out, said.err)
    said = handoffd("approve", "shop", "--json")
    assert (1, "WRONG_STEP", "") == (said.code, said.json["code"], said.err)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_json(handoffd: Commands, verb: str) -> None:
    """The project comes first in all of them."""
    said = handoffd(*VERBS[verb].typed.split(), "--help")

    assert f"handoffd {VERBS[verb].typed} [OPTIONS] [PROJECT]" in said.out
    assert "--json" in said.out


def test_add_remove_trust_and_init_say_what_they_did(
    control: Controlled, handoffd: Commands, tmp_path: Path
) -> None:
    """And what comes next."""
    control.supervision.held = ("test.command",)
    root = tmp_path / "fresh"
    root.mkdir()

    assert [f"fresh is now supervised: {root} (level 0)", f"  next: handoffd init {root}"] == (
        handoffd("add", str(root)).lines
    )
    assert [
        f"fresh is initialised: {root}",
        "  wrote .ai/handoffd.yaml",
        "  wrote CLAUDE.md",
        "  tests: none found; agents' claims count until you set test.command in .ai/handoffd.yaml",
        "  missing: PROJECT_CONTEXT.md and PROJECT_MEMORY.md; the first story's bootstrap step writes them",
        f"  Claude Code by hand: handoffd hooks install --project {root}   (applies its hand-offs)",
        f"  next: handoffd start {root} STORY",
    ] == handoffd("init", str(root)).lines
    assert ["now in effect: test.command"] == handoffd("trust", "shop").lines
    assert ["no edit was pending; the project's current files are trusted"] == handoffd("trust", "shop").lines
    assert ["empty is no longer supervised; its files and its history stay"] == handoffd(
        "remove", "empty"
    ).lines
