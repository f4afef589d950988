"""`handoffd config` and `handoffd rules`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.commands import Commands
from tests.support.controlled import Controlled

from handoffd.settings.notify import EXAMPLE_TOPIC

Configure = Callable[[str], str]


# --- settings ---------------------------------------------------------------------------------------
def test_show_has_every_setting_and_its_source(
    configure: Configure, handoffd: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file with its line, the variable, or the default."""
    file = configure("language: en\nexecute:\n  slots: 7\n")
    monkeypatch.setenv("HANDOFFD_EXECUTOR", "codex")

    shown = handoffd("--config", file, "config", "show", "--json").json
    text = handoffd("--config", file, "config", "show")

    found = {one["key"]: (one["value"], one["source"]) for one in shown["settings"]}
    assert (file, f"Settings file: {file}") == (shown["file"], text.lines[0])
    assert handoffd("config", "show").lines[0].startswith("Settings file: none; it would be /")
    assert (7, f"file {file}:3") == found["execute.slots"]
    assert ("codex", "environment HANDOFFD_EXECUTOR") == found["executor"]
    assert "default" == found["schedule.poll_s"][1]
    assert [["execute.slots", "7", "file", f"{file}:3"]] == [
        line.split() for line in text.lines if "slots" in line
    ]


def test_check_lists_all_problems(configure: Configure, handoffd: Commands) -> None:
    """At once, each with its place."""
    file = configure("execute:\n  slots: none\nnonsense: 1\nlog: {level: loud}\n")

    said = handoffd("--config", file, "config", "check")

    assert (1, "") == (said.code, said.out)
    assert f"{file}:2: execute.slots" in said.err
    assert f"{file}:3: nonsense" in said.err
    assert f"  next: ${{EDITOR:-vi}} +2 {file}" in said.err
    assert ["2", "3", "4"] == re.findall(r"handoffd\.yaml:(\d+):", said.err)
    error = handoffd("--config", file, "config", "check", "--json").json
    assert ("INVALID_FILE", f"${{EDITOR:-vi}} +2 {file}") == (error["code"], error["hint"])


def test_the_settings_of_a_project_are_checked_elsewhere(handoffd: Commands, tmp_path: Path) -> None:
    """Each of their keys would be unknown here."""
    said = handoffd("config", "check", str(tmp_path / ".ai/handoffd.yaml")).err

    assert "has the settings of a project, not of the daemon" in said
    assert f"next: handoffd rules check {tmp_path}" in said


def test_check_of_valid_settings(configure: Configure, handoffd: Commands) -> None:
    """A file, or none."""
    assert ["There is no settings file; the defaults apply."] == handoffd("config", "check").lines
    assert {"type": "valid", "file": None, "warnings": []} == handoffd("config", "check", "--json").json
    file = configure("language: en\n")
    assert [f"{file} is valid."] == handoffd("--config", file, "config", "check").lines


def test_check_warns_of_a_sink_that_is_switched_off(configure: Configure, handoffd: Commands) -> None:
    """By its name: the example's topic can be used, and nothing is sent to it."""
    file = configure(f"notify: {{sinks: {{phone: {{ntfy: {{topic: {EXAMPLE_TOPIC}}}}}}}}}\n")

    said = handoffd("--config", file, "config", "check")

    assert (0, f"{file} is valid.") == (said.code, said.lines[0])
    assert said.lines[1].startswith(
        f"warning: the sink phone is switched off: its topic, {EXAMPLE_TOPIC}, is"
    )
    (warning,) = handoffd("--config", file, "config", "check", "--json").json["warnings"]
    assert f"warning: {warning}" == said.lines[1]


def test_a_file_is_checked_before_it_is_put_in_place(configure: Configure, handoffd: Commands) -> None:
    """With its executors, some faults of which show only beside the shipped ones."""
    file = configure("execute: {slots: 2}\n")
    said = handoffd("config", "check", file)
    assert (0, [f"{file} is valid."]) == (said.code, said.lines)
    file = configure("executors:\n  own:\n    extends: missing\n")
    said = handoffd("config", "check", file, "--json")
    assert (1, [(3, "executors.own.extends")]) == (
        said.code, [(one["line"], one["key"]) for one in said.json["problems"]],
    )  # fmt: skip


# --- rules ------------------------------------------------------------------------------------------
@pytest.fixture
def ai(alone: Path) -> Path:
    """The .ai of a project."""
    folder = alone / "shop/.ai"
    folder.mkdir(parents=True)
    return folder


def test_a_valid_table_is_shown_with_its_pipelines(ai: Path, handoffd: Commands) -> None:
    """A preset counts."""
    (ai / "handoffd.yaml").write_text("preset: with-commit\n", encoding="utf-8")

    said = handoffd("rules", "check", str(ai.parent))

    assert 0 == said.code
    assert "verify → commit → update-memory" in said.out
    assert "commit" in handoffd("rules", "check", str(ai.parent), "--json").json["pipelines"]["story"]


def test_problems_come_with_file_line_and_key(ai: Path, handoffd: Commands) -> None:
    """And the values that are allowed."""
    (ai / "step-rules.yaml").write_text("steps:\n  impl:\n    next_on_pass: nowhere\n", encoding="utf-8")

    said = handoffd("rules", "check", str(ai.parent))

    assert 1 == said.code
    assert ".ai/step-rules.yaml:3: steps.impl.next_on_pass" in said.err
    assert "verify" in said.err
    editor = f"${{EDITOR:-vi}} +3 {ai}/step-rules.yaml"
    assert f"  next: {editor}" in said.err
    assert editor == handoffd("rules", "show", str(ai.parent), "--json").json["hint"]


def test_every_value_is_shown_with_its_source(
    ai: Path, handoffd: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project's own line, the shipped one, or the built-in default."""
    (ai / "step-rules.yaml").write_text("steps:\n  impl:\n    max_attempts: 9\n", encoding="utf-8")
    monkeypatch.chdir(ai.parent)

    rules = {one["key"]: one for one in handoffd("rules", "show", "--json").json["rules"]}
    shown = [line.split() for line in handoffd("rules", "show").lines]

    changed = rules["steps.impl.max_attempts"]
    assert (9, ".ai/step-rules.yaml", 3) == (changed["value"], changed["file"], changed["line"])
    assert "config/step-rules.yaml" == rules["steps.bdd.max_attempts"]["file"]
    assert rules["steps.bdd.retry_on_timeout"]["file"] is None
    assert ["steps.impl.max_attempts", "9", ".ai/step-rules.yaml:3"] in shown


def test_an_unknown_project_is_not_found(control: Controlled, handoffd: Commands) -> None:
    """Neither a name nor a path."""
    assert 4 == handoffd("rules", "check", "nope").code
    assert 4 == handoffd("rules", "check", "/srv/nope").code
