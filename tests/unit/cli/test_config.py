"""`handoffd config`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.commands import Commands

from handoffd.settings.notify import EXAMPLE_TOPIC


def test_show_tells_every_setting_and_its_source(
    alone: Path, handoffd: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file with its line, the variable, or the default."""
    file = alone / "handoffd.yaml"
    file.write_text("language: en\nexecute:\n  slots: 7\n", encoding="utf-8")
    monkeypatch.setenv("HANDOFFD_EXECUTOR", "codex")

    told = handoffd("--config", str(file), "config", "show", "--json").json

    found = {one["key"]: (one["value"], one["source"]) for one in told["settings"]}
    assert str(file) == told["file"]
    assert (7, f"file {file}:3") == found["execute.slots"]
    assert ("codex", "environment HANDOFFD_EXECUTOR") == found["executor"]
    assert "default" == found["schedule.poll_s"][1]
    text = handoffd("--config", str(file), "config", "show")
    assert [f"execute.slots  7  file {file}:3"] == [
        " ".join(line.split()).replace(" ", "  ", 2) for line in text.lines if "slots" in line
    ]


def test_check_lists_all_problems(alone: Path, handoffd: Commands) -> None:
    """At once, each with its place."""
    file = alone / "handoffd.yaml"
    file.write_text("execute:\n  slots: none\nnonsense: 1\nlog: {level: loud}\n", encoding="utf-8")

    said = handoffd("--config", str(file), "config", "check")

    assert (1, "") == (said.code, said.out)
    assert f"{file}:2: execute.slots" in said.err
    assert f"{file}:3: nonsense" in said.err
    assert f"  next: ${{EDITOR:-vi}} +2 {file}" in said.err
    places = re.findall(r"handoffd\.yaml:(\d+):", said.err)
    assert ["2", "3", "4"] == places
    told = handoffd("--config", str(file), "config", "check", "--json").json
    assert ("INVALID_FILE", f"${{EDITOR:-vi}} +2 {file}") == (told["code"], told["hint"])


def test_check_of_what_is_right(alone: Path, handoffd: Commands) -> None:
    """A file, or none."""
    assert ["There is no settings file; the defaults apply."] == handoffd("config", "check").lines
    file = alone / "handoffd.yaml"
    file.write_text("language: en\n", encoding="utf-8")
    assert [f"{file} is valid."] == handoffd("--config", str(file), "config", "check").lines
    assert {"type": "valid", "file": None, "warnings": []} == handoffd("config", "check", "--json").json


def test_check_warns_of_a_sink_that_is_switched_off(alone: Path, handoffd: Commands) -> None:
    """By its name: the example's topic can be used, and nothing is sent to it."""
    file = alone / "handoffd.yaml"
    file.write_text(f"notify: {{sinks: {{phone: {{ntfy: {{topic: {EXAMPLE_TOPIC}}}}}}}}}\n", encoding="utf-8")

    said = handoffd("--config", str(file), "config", "check")

    assert 0 == said.code
    assert [f"{file} is valid."] == said.lines[:1]
    assert said.lines[1].startswith(f"warning: the sink phone is switched off: its topic is {EXAMPLE_TOPIC}")
    (warning,) = handoffd("--config", str(file), "config", "check", "--json").json["warnings"]
    assert f"warning: {warning}" == said.lines[1]


def test_a_file_is_checked_before_it_is_put_in_place(alone: Path, handoffd: Commands) -> None:
    """With the executors in it, which only show what is wrong with them beside the others."""
    good, bad = alone / "good.yaml", alone / "bad.yaml"
    good.write_text("execute: {slots: 2}\n")
    bad.write_text("executors:\n  own:\n    extends: nobody\n")

    assert (0, [f"{good} is valid."]) == (
        handoffd("config", "check", str(good)).code, handoffd("config", "check", str(good)).lines,
    )  # fmt: skip
    said = handoffd("config", "check", str(bad), "--json")
    assert (1, [(3, "executors.own.extends")]) == (
        said.code, [(one["line"], one["key"]) for one in said.json["problems"]],
    )  # fmt: skip
