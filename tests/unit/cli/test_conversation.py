"""The questions of `handoffd init`: at a terminal, as options, and not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.commands import environment, program
from tests.support.repositories import git
from tests.support.terminals import Terminal, at_terminal

from handoffd.api.folders import settings_text
from handoffd.inspection.suites import Suites, find_suites
from handoffd.settings.loading import load_project

ENTER = "\n"
ASKED = (
    "tests, or none [",
    "Agent [",
    "Step table [",
    "When you decide [",
    "Notices go to",
    "cost, or none [",
)
"""A part of each question, in their order."""


class Here:
    """A folder with tests, two agents on the PATH of which one is logged in, and a home of its own."""

    def __init__(self, base: Path) -> None:
        self.shop, self.home = base / "shop", base / "home"
        self.shop.mkdir()
        (self.shop / "Makefile").write_text("test:\n\ttrue\n")
        programs = base / "bin"
        programs.mkdir()
        for name in ("claude", "codex"):
            (programs / name).write_text(f"#!/bin/sh\necho {name} 1.2.3\n")
            (programs / name).chmod(0o755)
        (self.home / ".codex").mkdir(parents=True)
        (self.home / ".codex" / "auth.json").write_text("{}")
        self.env = environment(self.home)
        self.env["PATH"] = f"{programs}:{self.env['PATH']}"

    @property
    def settings(self) -> Path:
        """The project's settings."""
        return self.shop / ".ai" / "handoffd.yaml"

    @property
    def own(self) -> Path:
        """The daemon's."""
        return self.home / ".config" / "handoffd" / "handoffd.yaml"

    def files(self) -> set[str]:
        """Return what is in the project and in the home."""
        below = [*self.shop.rglob("*"), *self.home.rglob("*")]
        return {str(path) for path in below if "__pycache__" not in path.parts}

    def words(self, *more: str) -> tuple[str, ...]:
        """Return the command, without a trial of the tests."""
        return ("init", str(self.shop), "--no-tests", *more)

    @contextmanager
    def asked(self, *more: str) -> Iterator[Terminal]:
        """Have a person type it."""
        with at_terminal(*self.words(*more), env=self.env | {"COLUMNS": "300"}) as terminal:  # folds nothing
            yield terminal


@pytest.fixture
def here(tmp_path: Path) -> Here:
    """A new project."""
    return Here(tmp_path)


# --- at a terminal ------------------------------------------------------------------------------------
def test_enter_takes_what_is_found(here: Here) -> None:
    """The test command, and the agent that is there and logged in; the file is printed."""
    with here.asked() as terminal:
        for question in ASKED:
            terminal.answer(question, ENTER)
        assert 0 == terminal.end()
    written = here.settings.read_text()
    assert settings_text(find_suites(here.shop), {"executor": "codex"}) == written
    assert "  claude     claude 1.2.3, not logged in" in terminal.shown
    assert "  codex      codex 1.2.3, logged in" in terminal.shown
    assert "Tests were found: make test" in terminal.shown
    printed = [".ai/handoffd.yaml:", *(f"  {line}" for line in written.splitlines())]
    assert printed == terminal.shown.splitlines()[-len(printed) :]
    assert not here.own.exists()


def test_what_a_trial_of_clones_has_written_is_printed_too(here: Here) -> None:
    """The file as it is on the disk in the end."""
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "Begin")):
        assert 0 == git(here.shop, *words)
    with at_terminal("init", str(here.shop), env=here.env | {"COLUMNS": "300"}) as terminal:
        for question in ASKED:
            terminal.answer(question, ENTER)
        assert 0 == terminal.end()
    written = here.settings.read_text()
    assert "\nworkspace: clone" in written
    printed = [".ai/handoffd.yaml:", *(f"  {line}" for line in written.splitlines())]
    assert printed == terminal.shown.splitlines()[-len(printed) :]


def test_enter_takes_no_agent_that_is_missing(here: Here) -> None:
    """Without any, it is the first that will be there."""
    programs = here.shop.parent / "bin"
    for name in ("claude", "codex"):
        (programs / name).unlink()
    here.env["PATH"] = str(programs)
    with here.asked() as terminal:
        terminal.answer(ASKED[0], "none\n")
        terminal.wait_for("claude     not installed")
        terminal.wait_for("Agent [auto]")
        for answer in (ENTER, *(ENTER for _ in ASKED[2:])):
            terminal.type(answer)
        assert 0 == terminal.end()
    assert "auto" == load_project(here.settings.read_text(), "x").executor


def test_a_wrong_answer_is_asked_again_with_what_is_allowed(here: Here) -> None:
    """Until one fits; then each is in the settings."""
    with here.asked() as terminal:
        for question, *answers in (
            (ASKED[0], "nosuchprogram -x", "sh 'open", "sh run-tests.sh"),
            (ASKED[1], "nosuch", "codex, claude"),
            (ASKED[2], "huge", "web"),
            (ASKED[3], "later", "after"),
            (ASKED[4], "pigeon:home", "ntfy:", "ntfy:a-long-topic-4711"),
            (ASKED[5], "-3", "much", "2.5"),
        ):
            for answer in answers:
                terminal.answer(question, f"{answer}\n")
        assert 0 == terminal.end()
    settings = load_project(here.settings.read_text(), "x")
    assert (("sh", "run-tests.sh"), "exit") == (settings.test.command, settings.test.report)
    assert (("codex", "claude"), "web", 2.5) == (settings.executor, settings.preset, settings.caps.story_usd)
    assert "after" == settings.gates
    for said in (
        "there is no program 'nosuchprogram' here; type a command, or none",
        "there is no executor 'nosuch'; allowed: auto, aider, claude, codex",
        "there is no preset 'huge'; allowed: default, go, proven, web, with-commit",
        "'later' is not a time to decide; allowed: before, after, both, none",
        "'pigeon:home' is not a channel; allowed: ntfy:TOPIC",
        "'-3' is not a number of dollars above 0; allowed: a number, none",
    ):
        assert f"Error: {said}" in terminal.shown
    assert "claude: claude 1.2.3, not logged in; see: handoffd executors check claude" in terminal.shown
    assert 'notify: {"ntfy": {"topic": "a-long-topic-4711"}}\n' == here.own.read_text()
    assert 0o600 == here.own.stat().st_mode & 0o777


@pytest.mark.parametrize("answered", range(len(ASKED)))
def test_ctrl_c_at_a_question_writes_nothing(here: Here, answered: int) -> None:
    """Whatever was answered before: neither in the project, nor in the home."""
    before = here.files()
    with here.asked() as terminal:
        for question in ASKED[:answered]:
            terminal.answer(question, "ntfy:a-long-topic-4711\n" if question == ASKED[4] else ENTER)
        terminal.wait_for(ASKED[answered])
        terminal.interrupt()
        assert 130 == terminal.end()
    assert "Nothing was written." in terminal.shown
    assert before == here.files()


def test_an_option_is_not_asked_for(here: Here) -> None:
    """The others are."""
    with here.asked("--executor", "claude", "--story-usd", "4", "--notify", "none") as terminal:
        terminal.answer(ASKED[0], "none\n")
        terminal.answer(ASKED[2], ENTER)
        terminal.answer(ASKED[3], ENTER)
        assert 0 == terminal.end()
    assert "Agent [" not in terminal.shown
    expected = settings_text(Suites(), {"caps": {"story_usd": 4.0}})
    assert expected == here.settings.read_text()


def test_a_project_that_has_settings_is_not_asked(here: Here) -> None:
    """Its settings stay as they are."""
    here.settings.parent.mkdir()
    here.settings.write_text("executor: codex\n")
    with here.asked() as terminal:
        assert 0 == terminal.end()
    assert "A few questions" not in terminal.shown
    assert "executor: codex\n" == here.settings.read_text()


def test_notices_that_have_a_channel_are_not_asked_about(here: Here) -> None:
    """The daemon's settings stay as they are."""
    here.own.parent.mkdir(parents=True)
    here.own.write_text("notify: {ntfy: {topic: another-topic-17}}\n")
    with here.asked() as terminal:
        for question in (*ASKED[:4], ASKED[5]):
            terminal.answer(question, ENTER)
        assert 0 == terminal.end()
    assert "Notices go to" not in terminal.shown
    assert "notify: {ntfy: {topic: another-topic-17}}\n" == here.own.read_text()


# --- without one --------------------------------------------------------------------------------------
def test_yes_asks_nothing_and_prints_the_same_as_without_a_terminal(here: Here, tmp_path: Path) -> None:
    """To the byte, and so are the files."""
    other = tmp_path / "again"
    other.mkdir()
    there = Here(other)
    plain = program(*there.words(), env=there.env)
    with here.asked("--yes") as terminal:
        assert 0 == terminal.end()
    assert (0, "") == (plain.code, plain.err)
    assert plain.out.replace(str(there.shop), str(here.shop)) == terminal.shown
    assert settings_text(find_suites(here.shop)) == here.settings.read_text() == there.settings.read_text()


def test_each_answer_is_an_option(here: Here) -> None:
    """A script gives them; what it leaves out is as before."""
    said = program(
        *here.words("--executor", "codex", "--preset", "with-commit", "--notify", "https://example.org/hook"),
        *("--story-usd", "3", "--json"), env=here.env,
    )  # fmt: skip
    assert 0 == said.code, said.err
    assert [".ai/handoffd.yaml", ".ai/.gitignore", "CLAUDE.md"] == said.json["created"]
    settings = load_project(here.settings.read_text(), "x")
    assert ("codex", "with-commit", 3.0) == (settings.executor, settings.preset, settings.caps.story_usd)
    assert ("make", "test") == settings.test.command
    assert "https://example.org/hook" in here.own.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--executor", "nosuch"), "--executor: there is no executor 'nosuch'; allowed: auto"),
        (("--preset", "huge"), "--preset: there is no preset 'huge'; allowed: default"),
        (("--story-usd", "0"), "--story-usd: '0' is not a number of dollars above 0"),
        (("--notify", "sms:1"), "--notify: 'sms:1' is not a channel; allowed"),
        (("--test-command", "nosuchprogram"), "--test-command: there is no program 'nosuchprogram' here"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_written(
    here: Here, words: tuple[str, ...], message: str
) -> None:
    """With the allowed values."""
    before = here.files()
    said = program(*here.words(*words), env=here.env)
    assert (1, True) == (said.code, message in said.err), said.err
    assert "next: handoffd init --help" in said.err
    assert before == here.files()


def test_programs_that_the_step_table_starts_are_looked_for(here: Here) -> None:
    """The night would find out that they are missing."""
    (here.shop.parent / "bin/tsc").write_text("#!/bin/sh\n")
    (here.shop.parent / "bin/tsc").chmod(0o755)
    here.env["PATH"] = str(here.shop.parent / "bin")

    said = program(*here.words("--preset", "web"), env=here.env)

    assert 0 == said.code, said.err
    assert (
        "  post_check: eslint is not in the daemon's PATH\n    why: the post_check of impl and v" in said.out
    )
    assert f"next: ${{EDITOR:-vi}} {here.shop}/.ai/step-rules.yaml && handoffd trust" in said.out
    assert "tsc is not in" not in said.out


def test_when_to_decide_can_be_said_of_any_project(here: Here) -> None:
    """Of a new one with the other answers, and of one that has settings already."""
    said = program(*here.words("--executor", "codex", "--gates", "after"), env=here.env)
    assert 0 == said.code, said.err
    assert "after" == load_project(here.settings.read_text(), "x").gates
    assert 0 == program(*here.words("--gates", "both"), env=here.env).code
    settings = load_project(here.settings.read_text(), "x")
    assert ("both", "codex") == (settings.gates, settings.executor)

    by_name = program("init", "shop", "--gates", "none", "--no-tests", env=here.env)  # as `tonight` offers it
    assert (0, True) == (by_name.code, "  wrote gates: none into .ai/handoffd.yaml" in by_name.lines)
    assert "none" == load_project(here.settings.read_text(), "x").gates
    assert "wrote gates" not in program("init", "shop", "--no-tests", env=here.env).out
    unknown = program("init", "shopp", env=here.env)
    assert (4, True) == (unknown.code, "there is no folder shopp here" in unknown.err)


def test_options_do_not_write_over_settings(here: Here) -> None:
    """They are for a new project; the same ones again change nothing."""
    assert 0 == program(*here.words("--executor", "codex"), env=here.env).code
    assert 0 == program(*here.words("--executor", "codex"), env=here.env).code
    said = program(*here.words("--executor", "claude", "--preset", "web"), env=here.env)
    assert (1, True) == (said.code, ".ai/handoffd.yaml is there already" in said.err)
    assert "next: handoffd trust shop" in said.err
    assert "codex" in here.settings.read_text()


def test_settings_of_another_form_are_left_alone(here: Here) -> None:
    """The lines to add are printed."""
    here.own.parent.mkdir(parents=True)
    here.own.write_text(json.dumps({"auto_continue": True}))
    said = program(*here.words("--notify", "ntfy:a-long-topic-4711"), env=here.env)
    assert 0 == said.code, said.err
    assert json.dumps({"auto_continue": True}) == here.own.read_text()
    assert '    notify: {"ntfy": {"topic": "a-long-topic-4711"}}' in said.lines


def test_a_folder_that_cannot_be_a_project_is_refused_before_the_first_question(here: Here) -> None:
    """As without a terminal."""
    with at_terminal("init", str(here.home), env=here.env) as terminal:
        assert 1 == terminal.end()
    assert "cannot be a project" in terminal.shown
    assert "Agent [" not in terminal.shown
    assert not os.path.exists(here.home / ".ai")
