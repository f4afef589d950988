"""`handoffd kit`: the programs of pipelines, typed by hand and run in a task."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.flows.__main__ import shipped
from tests.support.commands import Commands

from handoffd.cli.pipelines.kit import usage
from handoffd.forecast.flows import everything
from handoffd.kit.programs import PROGRAMS


@pytest.fixture
def shop(alone: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, which is the current folder."""
    root = alone / "shop"
    root.mkdir()
    monkeypatch.chdir(root)
    return root


def _called() -> set[str]:
    """Return the commands of the kit that shipped pipelines run."""
    lines = (
        task.doer if isinstance(task.doer, str) else " ".join(task.doer)
        for loaded in shipped().values()
        for _, task in everything(loaded.plan.root)
        if task.kind == "command"
    )
    return {line for line in lines if line.startswith("handoffd kit ")}


def test_the_list_names_every_program(shop: Path, handoffd: Commands) -> None:
    """With one line about each; as JSON with its words, too."""
    shown = handoffd("kit", "list")
    found = handoffd("kit", "list", "--json").json

    assert list(PROGRAMS) == [line.split()[0] for line in shown.lines]
    assert list(PROGRAMS) == [one["name"] for one in found["programs"]]
    assert "handoffd kit trash MANIFEST [--ids IDS]" == usage(PROGRAMS["trash"])


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_has_help(shop: Path, handoffd: Commands, name: str) -> None:
    """With an example that is a command line of it."""
    text = handoffd("kit", name, "--help").out

    assert PROGRAMS[name].about in re.sub(r"\s+", " ", text)
    assert f"Example: handoffd kit {name}" in text


@pytest.mark.parametrize("line", sorted(_called()))
def test_every_command_of_a_shipped_pipeline_is_there(line: str) -> None:
    """With as many words and such options as the program takes."""
    _, _, name, *words = line.split()
    program = PROGRAMS[name]
    options = {word.split("=")[0] for word in words if word.startswith("--")}

    assert options <= {word.name for word in program.words}
    flags = {word.name for word in program.words if word.flag}
    taken = {at for at, word in enumerate(words) if word.startswith("--")}
    taken |= {at + 1 for at, word in enumerate(words) if word.startswith("--") and word not in flags}
    positional = [word for word in program.words if not word.name.startswith("--")]
    assert len(words) - len(taken) in range(
        sum(word.default is None for word in positional), len(positional) + 1
    )


def test_a_pipeline_with_a_program_that_is_missing_is_refused(shop: Path, handoffd: Commands) -> None:
    """With the line, the key, and the program that is meant."""
    text = "language: 1\npipeline: p\ntasks:\n  a:\n    run: handoffd kit globbs\n  b: {run: make}\n"
    (shop / "p.yaml").write_text(text)

    refused = handoffd("pipeline", "check", "./p.yaml")

    assert 1 == refused.code
    assert (
        "p.yaml:4: tasks.a.run: there is no program 'globbs' in the kit; did you mean globs?" in refused.err
    )
    (shop / "p.yaml").write_text(text.replace("globbs", "globs"))
    assert 0 == handoffd("pipeline", "check", "./p.yaml").code


def test_a_program_reads_the_environment_and_writes_its_result(
    shop: Path, handoffd: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a task of a flow."""
    (shop / "main.py").write_text("x")
    monkeypatch.setenv("HANDOFFD_PARAM_PATHS", '["**"]')
    monkeypatch.setenv("HANDOFFD_OUT", str(shop / "out"))
    monkeypatch.setenv("HANDOFFD_RESULT", str(shop / "result.json"))
    (shop / "out").mkdir()

    shown = handoffd("kit", "globs")

    assert ["1 file.", "outcome: found"] == shown.lines
    assert {"files": ["main.py"], "globs": ["**"]} == json.loads((shop / "out/files.json").read_text())
    assert "found" == json.loads((shop / "result.json").read_text())["outcome"]


def test_a_refusal_is_an_error_with_the_next_command(shop: Path, handoffd: Commands) -> None:
    """An exit code other than 0, which a flow takes for `failed`."""
    refused = handoffd("kit", "restore", "clean-7k2q")

    assert 4 == refused.code
    assert "there is no .ai/trash/clean-7k2q" in refused.err
    assert "next: ls .ai/trash" in refused.err
