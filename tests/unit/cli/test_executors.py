"""`handoffd executors`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import Commands

SETTINGS = """
executor: mine
executors:
  mine: {extends: command, argv: [tool], version: [tool, --version], env: [KEY], login: {env: [KEY]}}
"""


@pytest.fixture
def config(alone: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A settings file with an executor whose program is the only one there is, beside the system's own."""
    program = alone / "tool"
    program.write_text("#!/bin/sh\necho tool 1.2\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{alone}:/usr/bin:/bin")
    file = alone / "handoffd.yaml"
    file.write_text(SETTINGS, encoding="utf-8")
    return str(file)


def test_the_matrix_has_every_executor(config: str, handoffd: Commands) -> None:
    """With the version of those that are here; patterns are none."""
    said = handoffd("--config", config, "executors")

    rows = {line.split()[0]: line for line in said.lines}
    assert (0, "EXECUTOR") == (said.code, next(iter(rows)))
    assert {"aider", "claude", "codex", "gemini", "mine", "opencode", "rehearsal"} <= set(rows)
    assert "command" not in rows
    assert "tool 1.2" in rows["mine"]


def test_the_matrix_for_programs(config: str, handoffd: Commands) -> None:
    """What an executor can do, and how it is found."""
    told = {one["name"]: one for one in handoffd("--config", config, "executors", "--json").json["executors"]}

    assert ("tool 1.2", False, "no") == tuple(told["mine"][key] for key in ("version", "logged_in", "tokens"))
    assert {"program", "found", "resume", "limits", "permissions", "account", "writes"} <= set(told["claude"])


def test_check_of_one_says_what_to_type(config: str, handoffd: Commands) -> None:
    """A word for each thing that is wrong; exit code 1."""
    said = handoffd("--config", config, "executors", "check", "mine")

    assert 1 == said.code
    assert "warning  mine         no login was found" in said.lines
    assert "    next: tool --help" in said.lines


def test_check_of_one_with_which_all_is_well(
    config: str, handoffd: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 0."""
    monkeypatch.setenv("KEY", "secret")
    said = handoffd("--config", config, "executors", "check", "mine", "--json")

    assert (0, True, ["ok"]) == (
        said.code,
        said.json["ok"],
        [one["severity"] for one in said.json["findings"]],
    )


def test_check_of_all_leaves_out_what_nobody_wants(
    config: str, handoffd: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that is not there, unless the settings choose it."""
    checked = handoffd("--config", config, "executors", "check", "--json").json["findings"]
    names = {one["check"] for one in checked}
    assert {"mine", "rehearsal"} <= names

    monkeypatch.setenv("PATH", "/nowhere")
    gone = handoffd("--config", config, "executors", "check", "--json").json["findings"]
    assert [("mine", "tool is not found")] == [
        (one["check"], one["what"]) for one in gone if one["severity"] == "fault"
    ]


def test_check_of_all_tells_of_every_missing_one_of_a_list(config: str, handoffd: Commands) -> None:
    """Each is in use: the second when the first is at its limit."""
    chosen = SETTINGS.replace("executor: mine", "executor: [mine, claude]")
    Path(config).write_text(chosen, encoding="utf-8")
    said = handoffd("--config", config, "executors", "check", "--json").json["findings"]
    assert ("claude", "claude is not found") in [(one["check"], one["what"]) for one in said]


def test_a_definition_that_contradicts_itself_is_told_with_its_place(alone: Path, handoffd: Commands) -> None:
    """As the daemon would tell it."""
    file = alone / "handoffd.yaml"
    file.write_text("executors:\n  mine: {argv: [x], session: resume}\n", encoding="utf-8")
    said = handoffd("--config", str(file), "executors", "check", "mine")

    assert 1 == said.code
    assert "executors.mine.session: needs a place for {session} in argv" in said.err


def test_an_executor_that_is_not_there_is_not_found(alone: Path, handoffd: Commands) -> None:
    """With those that are."""
    said = handoffd("executors", "check", "cluade")

    assert 4 == said.code
    assert "  next: handoffd executors" in said.err
