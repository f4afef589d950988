"""Verbs as commands: words, options, and what the answers say."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.support.commands import Commands
from tests.support.controlled import Controlled
from tests.support.supervision import project_view

from handoffd.api.verbs import VERBS
from handoffd.cli.verbs import report
from handoffd.cli.wording import UNMEASURED
from handoffd.doctor.machine import check_sandbox, sandbox_facts
from handoffd.engine import decision
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
from handoffd.engine.run import PostCheck
from handoffd.engine.views import AppliedKind
from handoffd.entrance.requests import account
from handoffd.protocol.state import Reason, plain
from handoffd.settings.model import SandboxSettings

ME = account()


def started(**more: Any) -> Started:
    """Return the start of US-2 by a release that knows every part of the answer."""
    return Started(
        story="US-2", bootstrapped=False, tells_aside=True, heeds_begun=True, keeps_place=True,
        names_story=True, heeds_words=True, by=ME, **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        ("approve shop", Approved(undoable=True, by=ME)),
        ("approve shop --note fine", Approved(note="fine", undoable=True, by=ME)),
        ("approve shop --story US-001", Approved(story="US-001", undoable=True, by=ME)),
        ("reject shop scope_warning", Rejected(reason=Reason.SCOPE_WARNING, by=ME)),
        ("retry shop", Retried(by=ME)),
        ("skip shop", Skipped(by=ME)),
        ("abort shop", Aborted(by=ME)),
        ("pause shop", Paused(by=ME)),
        ("resume shop", Resumed(by=ME)),
        ("note shop 'be quick'", Noted(text="be quick", by=ME)),
        ("rollback shop bdd --force", RolledBack(step="bdd", force=True, by=ME)),
        ("reopen shop bdd", Reopened(step="bdd", entry=2, by=ME)),
        ("confirm shop", EditConfirmed(by=ME)),
        (
            "start shop US-2 --queue --blocked-by US-1 --blocked-by US-3",
            started(queue=True, blocked_by=("US-1", "US-3")),
        ),
        ("start shop US-2 --agent-teams", started(agent_teams=True)),
        (
            "start shop US-2 US-3 US-2 US-4 --priority -5 --complexity L",
            started(then=("US-3", "US-4"), priority=-5, complexity="L"),
        ),
        ("continue shop", Continued(by=ME)),
        ("backlog move shop US-2", BacklogMoved(story="US-2", by=ME)),
        ("backlog move shop US-2 --before US-1", BacklogMoved(story="US-2", before="US-1", by=ME)),
        ("backlog move shop US-2 --last", BacklogMoved(story="US-2", last=True, by=ME)),
        (
            "backlog edit shop US-2 --priority 7 --blocked-by US-1",
            BacklogEdited(story="US-2", priority=7, blocked_by=("US-1",), by=ME),
        ),
        (
            "backlog edit shop US-2 --unblock --complexity S --executor claude",
            BacklogEdited(story="US-2", blocked_by=(), complexity="S", executor=("claude",), by=ME),
        ),
        (
            "backlog edit shop US-2 --executor claude --executor codex,claude",
            BacklogEdited(story="US-2", executor=("claude", "codex"), by=ME),
        ),
        ("backlog remove shop US-2 US-3", BacklogRemoved(stories=("US-2", "US-3"), by=ME)),
        ("backlog auto shop on", AutoContinueChosen(on=True, by=ME)),
        ("backlog auto shop off", AutoContinueChosen(on=False, by=ME)),
        ("backlog auto shop default", AutoContinueChosen(on=None, by=ME)),
    ],
)
def test_words_and_options_become_the_verb(
    control: Controlled, handoffd: Commands, words: str, verb: Verb
) -> None:
    """What is typed reaches the project as what it means."""
    said = handoffd(*shlex.split(words))

    assert (0, "") == (said.code, said.err)
    assert [("/srv/shop", verb)] == control.supervision.given


def test_the_project_is_the_current_folder_unless_named(
    control: Controlled, handoffd: Commands, here: Path
) -> None:
    """The only word of a verb that needs one is that word, not a project."""
    control.supervision.projects[str(here)] = control.supervision.projects["/srv/shop"]

    for words in (["note", "hello"], ["pause"], ["note", ".", "hello there"]):
        assert 0 == handoffd(*words).code

    assert {str(here)} == {root for root, _ in control.supervision.given}


# --- the name of a project in place of another word ------------------------------------------------------
@pytest.fixture
def web(control: Controlled, here: Path) -> str:
    """The project in the current folder, beside the one named shop."""
    control.supervision.projects[str(here)] = project_view(str(here), name="web")
    return str(here)


REASONS = f" # REASON: {', '.join(Reason)}"


@pytest.mark.parametrize(
    ("words", "missing", "following"),
    [
        ("start shop", "STORY is missing: its id, e.g. US-001", "start shop STORY"),
        ("start shop --queue --priority 3", "STORY is missing: its id, e.g. US-001", "start shop STORY"),
        ("start /srv/shop", "STORY is missing: its id, e.g. US-001", "start shop STORY"),
        ("start .", "STORY is missing: its id, e.g. US-001", "start web STORY"),
        ("custom shop", "TEXT is missing: the instruction", "custom shop TEXT"),
        ("note shop", "TEXT is missing: the note", "note shop TEXT"),
        ("reject shop", "REASON is missing", f"reject shop REASON{REASONS}"),
        ("level shop", "LEVEL is missing: 1 or 2", "level shop LEVEL"),
        ("use shop", "EXECUTOR is missing: NAME", "use shop EXECUTOR"),
        ("backlog auto shop", "AUTO is missing: on; off", "backlog auto shop AUTO"),
    ],
)
def test_the_name_of_a_project_is_not_taken_for_the_word_that_is_missing(
    control: Controlled, handoffd: Commands, web: str, words: str, missing: str, following: str
) -> None:
    """One refusal reports it and names the command to type; nothing happens to the project here."""
    said = handoffd(*shlex.split(words))

    name = next(word for word in words.split() if word in {"shop", "/srv/shop", "."})
    assert (1, "") == (said.code, said.out)
    assert f"handoffd: {name!r} names a project, and {missing}" in said.err
    assert f"\n  next: handoffd {following}\n" in said.err
    assert [] == control.supervision.given


@pytest.mark.parametrize(
    ("words", "code", "following"),
    [
        ("rollback shop", "INVALID_TARGET", "rollback shop STEP"),
        ("reopen shop", "INVALID_TARGET", "reopen shop STEP"),
        ("backlog move shop", "NOT_IN_BACKLOG", "backlog move shop STORY"),
        ("backlog edit shop --priority 3", "NOT_IN_BACKLOG", "backlog edit shop STORY"),
        ("backlog remove shop", "NOT_IN_BACKLOG", "backlog remove shop STORIES"),
    ],
)
def test_a_word_that_the_engine_refuses_may_have_been_meant_as_the_project(
    control: Controlled, handoffd: Commands, web: str, words: str, code: str, following: str
) -> None:
    """Then the refusal says that. One with the project, or for another reason, stays as it is."""
    control.supervision.answer = Refusal(code=code, message="not here", caller_instruction="x")

    said = handoffd(*words.split(), "--json")

    told = ("BAD_ARGUMENT", f"handoffd {following}")
    assert (1, told) == (said.code, (said.json["code"], said.json["hint"]))
    project_too = handoffd(*words.replace("shop", ". shop").split(), "--json")
    assert code == project_too.json["code"]
    control.supervision.answer = Refusal(code="WRONG_STEP", message="no gate", caller_instruction="x")
    assert "WRONG_STEP" == handoffd(*words.split(), "--json").json["code"]


def test_the_other_meaning_of_a_word_is_offered_and_stays_possible(
    control: Controlled, handoffd: Commands, web: str
) -> None:
    """The current folder named as the project makes the word what it is."""
    assert "(if it is the STORY: `handoffd start . shop`)" in handoffd("start", "shop").err
    assert "(if it is the TEXT: `handoffd note . shop`)" in handoffd("note", "shop").err

    for words in (
        ["start", ".", "shop"],
        ["note", ".", "shop"],
        ["note", "shop it is"],
        ["note", "x" * 9000],
    ):
        assert 0 == handoffd(*words).code

    assert {web} == {root for root, _ in control.supervision.given}


def test_a_word_that_can_only_be_the_other_is_taken(
    control: Controlled, handoffd: Commands, web: str
) -> None:
    """A story that the project here has in its backlog, a reason, an executor."""
    for name in ("US-2", "scope_warning", "claude"):
        control.supervision.projects[f"/srv/{name}"] = project_view(f"/srv/{name}", name=name)

    for words in (["start", "US-2"], ["reject", "scope_warning"], ["use", "claude"]):
        assert 0 == handoffd(*words).code

    assert {web} == {root for root, _ in control.supervision.given}


def test_a_project_whose_name_is_a_folder_here_is_called_by_its_path(
    control: Controlled, handoffd: Commands, web: str
) -> None:
    """Its name would mean the folder."""
    (Path(web) / "shop").mkdir()

    assert "\n  next: handoffd start /srv/shop STORY\n" in handoffd("start", "shop").err
    (Path(web) / "US-7").mkdir()
    assert 0 == handoffd("start", "US-7").code


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
    """The message names the word that is missing or too much."""
    answer = handoffd(*words)

    assert 2 == answer.code
    assert said in answer.err
    assert [] == control.supervision.given


@pytest.mark.parametrize("words", [["approve", "shop"], ["reject", "shop", "scope_warning"]])
def test_an_empty_story_opens_no_gate(control: Controlled, handoffd: Commands, words: list[str]) -> None:
    """`--story "$STORY"` with an unset variable does not mean the story in flight."""
    said = handoffd(*words, "--story", "")

    assert 1 == said.code
    assert "story is empty: name one, or leave it out" in said.err
    assert [] == control.supervision.given


def test_the_answer_has_the_next_command(control: Controlled, handoffd: Commands) -> None:
    """For people; programs get the JSON of the API."""
    assert [
        "taken",
        "  waits for: a person's decision",
        "  next: handoffd gate /srv/shop",
        "  to take it back until the next attempt begins: handoffd undo /srv/shop",
    ] == handoffd("approve", "shop").lines
    answer = handoffd("approve", "shop", "--json").json
    assert ("accepted", "/srv/shop") == (answer["type"], answer["project"])


def test_a_refusal_is_exit_code_1(control: Controlled, handoffd: Commands) -> None:
    """With its code and the next command; as JSON on stdout."""
    control.supervision.answer = Refusal(
        code="WRONG_STEP", message="no gate", caller_instruction="x", next_command="handoffd retry {project}"
    )

    said = handoffd("approve", "shop")
    error = "handoffd: no gate [WRONG_STEP]\n  next: handoffd retry /srv/shop\n"
    assert (1, "", error) == (said.code, said.out, said.err)
    said = handoffd("approve", "shop", "--json")
    assert (1, "WRONG_STEP", "") == (said.code, said.json["code"], said.err)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_json(handoffd: Commands, verb: str) -> None:
    """The project comes first in all of them, but for flows: the id of one tells its project."""
    said = handoffd(*VERBS[verb].typed.split(), "--help")

    first = "" if VERBS[verb].of_flow else "[PROJECT]"
    assert f"handoffd {VERBS[verb].typed} [OPTIONS] {first}" in said.out
    assert "--json" in said.out


def test_add_remove_trust_and_init_report_what_they_did(
    control: Controlled, handoffd: Commands, tmp_path: Path
) -> None:
    """And what comes next."""
    control.supervision.held = ("test.command",)
    root = tmp_path / "fresh"
    root.mkdir()
    sandbox = [f"  sandbox: {one.what}" for one in check_sandbox(sandbox_facts(SandboxSettings()))]

    for words, lines in (
        (
            ("add", str(root)),
            [f"fresh is now supervised: {root} (level 0)", f"  next: handoffd init {root}"],
        ),
        (
            ("init", str(root)),
            [
                f"fresh is initialised: {root}",
                "  wrote .ai/handoffd.yaml",
                "  wrote .ai/.gitignore",
                "  wrote CLAUDE.md",
                "  tests: none found; agents' claims count until you set test.command in .ai/handoffd.yaml",
                "  workspace: root; stories work in the project's own folder",
                "    why: it is in no git repository",
                "    next: git init",
                *sandbox,
                "  missing: PROJECT_CONTEXT.md and PROJECT_MEMORY.md; the first story's bootstrap step writes"
                " them",
                f"  Claude Code by hand: handoffd hooks install --project {root}   (applies its hand-offs)",
                f"  next: handoffd start {root} STORY",
            ],
        ),
        (("trust", "shop"), ["now in effect: test.command"]),
        (("trust", "shop"), ["no edit was pending; the project's current files are trusted"]),
        (("remove", "empty"), ["empty is no longer supervised; its files and its history stay"]),
    ):
        assert lines == handoffd(*words).lines


# --- what each answer says --------------------------------------------------------------------------
RESULTS: list[tuple[decision.Result, str]] = [
    (
        decision.Dispatched(
            project="shop", story="US-1", step="bdd", attempt=2, dispatch="d1", caller_instruction="wait"
        ),
        "US-1: bdd, attempt 2, is dispatched as d1",
    ),
    (decision.Finished(story="US-1", summary="US-1 is done", caller_instruction="x"), "US-1 is done"),
    (
        decision.Finished(
            story="US-3", summary="US-3 is done", caller_instruction="x", review_suggested=True
        ),
        "US-3 is done\n  a review of the project is suggested: handoffd review /srv/shop",
    ),
    (
        decision.NeedsHuman(step="review", message="look", caller_instruction="x", review=("docs/a.md",)),
        "look\n  review: docs/a.md",
    ),
    (decision.Blocked(step="bdd", reason="US-0", caller_instruction="x"), "bdd is blocked: US-0"),
    (
        decision.AlreadyRunning(step="bdd", elapsed_min=3.5, last_error=None, caller_instruction="x"),
        "bdd has been running for 3.5 min",
    ),
    (decision.TimedOut(step="bdd", elapsed_min=9, message="over", caller_instruction="x"), "over"),
    (
        decision.Refusal(code="NO", message="no", caller_instruction="x", next_command="handoffd status"),
        "handoffd: no [NO]\n  next: handoffd status",
    ),
    (
        decision.Accepted(step="bdd", status="pending", message="\x1b[2J", caller_instruction="x"),
        "\\x1b[2J (bdd, pending)",
    ),
]


@pytest.mark.parametrize(("result", "lines"), RESULTS)
def test_each_result_is_reported(result: decision.Result, lines: str) -> None:
    """In one line, or a few."""
    assert lines.split("\n") == report({"project": "/srv/shop", **plain(result)})


def test_no_kind_of_result_is_forgotten() -> None:
    """The table has all of them."""
    assert set(get_args(decision.Result)) == {type(result) for result, _ in RESULTS}


def test_a_command_inside_a_message_calls_the_project_by_its_name() -> None:
    """As the one in the line below it does."""
    answer = {
        "type": "accepted", "project": "/srv/shop", "called": "corner-shop", "step": "bdd",
        "status": "pending", "message": "aside: `handoffd start /srv/shop US-1 --queue` takes it up again",
    }  # fmt: skip
    (line,) = report(answer)
    assert line.startswith("aside: `handoffd start corner-shop US-1 --queue` takes")


@pytest.mark.parametrize("status", ["failing", "pass"])
def test_a_decided_gate_is_reported_without_its_old_step(status: str) -> None:
    """The message names where the story goes, which the old step and status would contradict."""
    message = "review rejected by root, back to bdd"
    answer = {"type": "accepted", "message": message, "step": "review", "status": status}
    assert [message] == report({**answer, "next_command": None})


@pytest.mark.parametrize("kind", get_args(AppliedKind))
def test_the_kind_of_a_hand_off_begins_the_line(kind: str) -> None:
    """Except where the message itself names it, or it is an error."""
    message = "taken already: bdd is pass" if kind == "taken" else "bdd is pass"
    lines = {"taken": message, "error": f"handoffd: {message} [X]"}

    expected = [lines.get(kind, f"{kind}: {message}")]
    assert expected == report({"type": kind, "message": message, "code": "X"})


FOUND = "  found, but not run: web (npm test), a b (go test ./...), c (make test) and 1 more"


@pytest.mark.parametrize(
    ("command", "created", "lines"),
    [
        (None, (".ai/handoffd.yaml",), [
            f"  tests: none chosen; {UNMEASURED}",
            f"{FOUND}; .ai/handoffd.yaml has a commented line for them",
        ]),
        (None, (), [f"  tests: none chosen; {UNMEASURED}", FOUND]),
        (["cargo", "test"], (".ai/handoffd.yaml",), [
            "  tests: cargo test   (change it in .ai/handoffd.yaml)", FOUND,
        ]),
    ],
)  # fmt: skip
def test_tests_that_handoffd_does_not_run_are_named(
    command: list[str] | None, created: tuple[str, ...], lines: list[str]
) -> None:
    """What was found beside the command, or instead of one."""
    others = [("web", "npm test"), ("a b", "go test ./..."), ("c", "make test"), ("d", "make test")]
    said = report(
        {
            "type": "initialised", "project": "/srv/shop", "name": "shop", "level": 0, "created": created,
            "missing": [], "test_command": command, "warnings": [],
            "other_tests": [{"folder": folder, "command": typed.split()} for folder, typed in others],
        }
    )  # fmt: skip

    assert lines == [line for line in said if "tests:" in line or "found" in line]


def test_each_of_several_checks_has_its_end_and_its_output(control: Controlled, handoffd: Commands) -> None:
    """Control sequences of an output do not reach the terminal; of a check that passed nothing is shown."""
    control.supervision.checked = (
        PostCheck(passed=True, name="lint", code=0, tail="fine"),
        PostCheck(passed=False, name="types", code=2, tail="a.py:1\n\x1b[2Jb.py:2\n"),
        PostCheck(passed=False, name="slow", signal=15, timed_out=True),
    )

    said = handoffd("check", "shop")

    assert 1 == said.code
    assert [
        "lint passed",
        "types failed with exit code 2",
        "  a.py:1",
        r"  \x1b[2Jb.py:2",
        "slow did not end in time",
    ] == said.err.splitlines()
    answer = handoffd("check", "shop", "--json").json
    assert [("lint", 0, None), ("types", 2, None), ("slow", None, 15)] == [
        (one["name"], one["code"], one["signal"]) for one in answer["checks"]
    ]
