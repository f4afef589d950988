"""`handoffd gate`: the list of all gates, the screen of one, and its keys on a terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.commands import Commands, environment
from tests.support.controlled import Controlled
from tests.support.supervision import gate_view
from tests.support.terminals import Terminal, at_terminal
from tests.unit.git.conftest import first_commit
from tests.unit.git.test_snapshots import label

from handoffd.cli.stories.gate import coloured, colours, diff
from handoffd.engine.events import Approved, Noted, Rejected
from handoffd.git.labels import BEGUN
from handoffd.git.snapshots import Snapshots
from handoffd.protocol.state import Reason

HELP = "q quit"


# --- without a terminal ---------------------------------------------------------------------------------
def test_without_a_project_every_open_gate_is_listed(control: Controlled, handoffd: Commands) -> None:
    """One line each, with the command."""
    said = handoffd("gate")

    assert 0 == said.code
    head, line = said.lines
    assert ["STORY", "GATE", "SINCE", "LOOK AT IT"] == head.split(maxsplit=3)
    assert line.startswith("US-001")
    assert line.endswith("handoffd gate shop")
    assert [("/srv/shop", "US-001", "review")] == [
        (one["project"], one["story"], one["step"]) for one in handoffd("gate", "--json").json["gates"]
    ]


def test_one_gate_is_shown_or_is_json_and_no_key_is_asked_for(
    control: Controlled, handoffd: Commands
) -> None:
    """There is no terminal."""
    shown = handoffd("gate", "shop")

    assert "shop US-001 waits at review" == shown.lines[0]
    assert HELP not in shown.out
    assert "approve review?" == handoffd("gate", "shop", "--json").json["asked"]
    assert "approve review again?" == handoffd("gate", "shop", "--json", "--since-last").json["asked"]
    assert "US-002" == handoffd("gate", "shop", "--story", "US-002", "--json").json["story"]
    assert 2 == handoffd("gate", "--since-last").code
    assert 4 == handoffd("gate", "unknown").code


# --- keys -----------------------------------------------------------------------------------------------
@contextmanager
def on_screen(control: Controlled, *words: str, **env: str) -> Iterator[Terminal]:
    """Lend the screen of the shop's gate on a terminal."""
    with at_terminal("gate", "shop", *words, env=environment(control.runtime, **env)) as terminal:
        terminal.wait_for(HELP)
        yield terminal


def test_the_word_approve_approves_that_story_and_no_other_word_does(control: Controlled) -> None:
    """Not its first letter, not a yes, not an empty line; an arrow key is not the letter it ends with."""
    with on_screen(control) as terminal:
        for word in ("a", "y", "yes", "Approve it", ""):
            terminal.type("a")
            terminal.answer("type the word approve: ", f"{word}\n")
            terminal.wait_for("Nothing is decided.")
            terminal.wait_for(HELP)
        terminal.type("\x1b[A")
        terminal.wait_for(HELP)
        assert [] == control.supervision.given

        terminal.type("a")
        terminal.answer("type the word approve: ", "approve\n")
        terminal.answer("the answer to the unclear points? ", "Both.\n")
        terminal.wait_for("to take it back until the next attempt begins: handoffd undo ")
        assert 0 == terminal.end()

    [(root, verb)] = control.supervision.given
    assert isinstance(verb, Approved)
    assert ("/srv/shop", "US-001", "Both.") == (root, verb.story, verb.note)


def test_a_rejection_has_a_reason_and_a_note(control: Controlled) -> None:
    """Each reason is shown with where it leads; none rejects nothing, an unknown one is asked again."""
    with on_screen(control) as terminal:
        terminal.type("r")
        terminal.wait_for("needs_clarification → bdd")
        terminal.answer("nothing to go back: ", "it\x1b[2J is bad\n")
        terminal.wait_for("unknown reason 'it\\x1b[2J is bad'; reasons: needs_clarification")
        terminal.answer("nothing to go back: ", "\n")
        terminal.wait_for("Nothing is decided.")
        terminal.wait_for(HELP)
        terminal.type("r")
        terminal.answer("nothing to go back: ", "clarification\n")
        terminal.answer("What should change? ", "which zone\n")
        assert 0 == terminal.end()

    [(_, verb)] = control.supervision.given
    assert isinstance(verb, Rejected)
    assert (Reason.NEEDS_CLARIFICATION, "which zone", "US-001") == (verb.reason, verb.note, verb.story)


def test_a_note_is_kept_and_the_gate_stays(control: Controlled) -> None:
    """An empty one is none."""
    with on_screen(control) as terminal:
        terminal.type("n")
        terminal.answer("next prompt: ", "\n")
        terminal.wait_for(HELP)
        terminal.type("n")
        terminal.answer("next prompt: ", "use UTC\n")
        terminal.wait_for(HELP)
        terminal.type("q")
        assert 0 == terminal.end()

    assert ["use UTC"] == [verb.text for _, verb in control.supervision.given if isinstance(verb, Noted)]
    assert 1 == len(control.supervision.given)


def test_a_gate_that_has_changed_is_shown_before_it_is_decided(control: Controlled) -> None:
    """By then the story may be at another gate that the person has not seen."""
    with on_screen(control) as terminal:
        control.supervision.at_gate = {"step": "acceptance"}
        terminal.type("a")
        terminal.answer("type the word approve: ", "approve\n")
        terminal.answer("the answer to the unclear points? ", "\n")
        terminal.wait_for("It has changed meanwhile. Nothing is decided.")
        terminal.wait_for("waits at acceptance")
        terminal.wait_for(HELP)
        assert [] == control.supervision.given
        terminal.type("\x04")
        assert 0 == terminal.end()


def test_keys_show_the_evidence_and_say_what_is_not_there(control: Controlled) -> None:
    """Also a project that is gone ends nothing."""
    with on_screen(control) as terminal:
        terminal.type("e")
        terminal.wait_for("handoffd log --run 20260102T030405-0a1b2c3d2")
        terminal.wait_for(HELP)
        for key in "dstl":
            terminal.type(key)
            terminal.wait_for(HELP)
        terminal.type("q")
        assert 0 == terminal.end()
    assert "no records of run" in terminal.shown


def test_keys_can_be_left_out(control: Controlled) -> None:
    """For a screen that only looks."""
    with at_terminal("gate", "shop", "--no-keys", env=environment(control.runtime)) as terminal:
        assert 0 == terminal.end()
    assert HELP not in terminal.shown


# --- the diff -------------------------------------------------------------------------------------------
@pytest.fixture
def commits(tmp_path: Path) -> tuple[Path, Path, str, str]:
    """A repository, the state directory, and two commits that differ; all names and settings are hostile."""
    root, state = first_commit(tmp_path / "shop"), tmp_path / "state"
    ran = tmp_path / "ran"
    config = root / ".git/config"
    bad = f'[diff "bad"]\n command = touch {ran}\n textconv = touch {ran}\n[core]\n pager = touch {ran}\n'
    config.write_text(config.read_text() + bad)
    (root / ".gitattributes").write_text("* diff=bad\n")
    snapshots = Snapshots(str(root), state, dict(os.environ))
    before = snapshots.take(label(0, step="bdd", result=BEGUN))
    (root / "kept").write_text("kept\n-- a line that looks like a header\n\x1b[2J\x9bcleared\n")
    after = snapshots.take(label(1))
    return root, state, before.commit or "", after.commit or ""


def test_a_diff_is_escaped_and_runs_nothing(commits: tuple[Path, Path, str, str]) -> None:
    """Neither drivers, nor textconv, nor what else a repository names."""
    root, state, before, after = commits

    text = diff(str(root), state, before, after, os.environ)

    assert "+\\x1b[2J\\x9bcleared" in text
    assert "--- a/kept\n+++ b/kept" in text
    assert not (root.parent / "ran").exists()


def test_colours_are_the_person_s_own(tmp_path: Path) -> None:
    """Of their settings of git, nothing else is taken; none where they want none."""
    home = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "xterm"}
    config = tmp_path / ".gitconfig"
    config.write_text("[color.diff]\n new = blue\n")

    chosen = colours(home)

    lines = list(coloured("--- a/x\n+++ b/x\n@@ -1 +1 @@\n--- old\n+++ new\n same", chosen))
    meta, frag = chosen["meta"], chosen["frag"]
    assert [
        f"{meta}--- a/x\x1b[m", f"{meta}+++ b/x\x1b[m", f"{frag}@@ -1 +1 @@\x1b[m",
        f"{chosen['old']}--- old\x1b[m", "\x1b[34m+++ new\x1b[m", " same",
    ] == lines  # fmt: skip
    config.write_text("[color]\n diff = never\n")
    assert {} == colours(home)


def at_commits(control: Controlled, commits: tuple[Path, Path, str, str]) -> Path:
    """Have the gate be about two commits of a repository; return its folder."""
    root, _, before, after = commits
    changes = gate_view("/srv/shop").changes
    assert changes is not None
    control.supervision.at_gate = {
        "folder": str(root),
        "changes": replace(changes, base=before, end=after),
    }
    return root


@pytest.mark.parametrize(("own", "told", "in_colour"), [({}, "<-R>", True), ({"LESS": "-i"}, "<-i>", False)])
def test_less_shows_colours_and_no_codes(
    control: Controlled,
    commits: tuple[Path, Path, str, str],
    tmp_path: Path,
    own: dict[str, str],
    told: str,
    in_colour: bool,
) -> None:
    """One that its person has set up without colours gets none."""
    at_commits(control, commits)
    pager = tmp_path / "less"
    pager.write_text('#!/bin/sh\necho "<$LESS>"\nexec cat -v\n')
    pager.chmod(0o755)
    with on_screen(control, PAGER=str(pager), **own) as terminal:
        terminal.type("d")
        terminal.wait_for(told)
        terminal.wait_for("cleared")
        terminal.wait_for(HELP)
        terminal.type("q")
        assert 0 == terminal.end()
    assert in_colour is ("^[[" in terminal.shown.partition(told)[2])


def test_the_diff_of_the_screen_is_that_of_its_two_commits(
    control: Controlled, commits: tuple[Path, Path, str, str]
) -> None:
    """In the repository that the gate names."""
    root = at_commits(control, commits)
    (root / "docs/bdd").mkdir(parents=True)
    (root / "docs/bdd/US-001.md").write_text("# Scenarios\n\x1b[2J\n")
    with on_screen(control) as terminal:
        terminal.type("d")
        terminal.wait_for("cleared")
        terminal.wait_for(HELP)
        terminal.type("s")
        terminal.wait_for("# Scenarios\n\\x1b[2J")
        terminal.wait_for(HELP)
        terminal.type("q")
        assert 0 == terminal.end()
    assert "\x1b[2J" not in terminal.shown
