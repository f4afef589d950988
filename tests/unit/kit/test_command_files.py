"""`resolve-path`, `render` and `write`: a command file, from its parameters to its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.kit.boards import board, given, row

from handoffd.errors import InvalidFile, NotFound, Refused
from handoffd.kit.command_files import render, resolve_path, write

PARAMS = {"name": "fix-types", "group": "code", "description": 'Repairs "types": all of them'}
PATH = ".claude/commands/code/fix-types.md"


def test_the_place_follows_from_name_and_group(tmp_path: Path) -> None:
    """Whether a file is there is the outcome."""
    one = given(tmp_path, params=PARAMS)

    assert ("free", {"path": PATH}) == (resolve_path(one).outcome, resolve_path(one).fields)
    (tmp_path / PATH).parent.mkdir(parents=True)
    (tmp_path / PATH).write_text("old")
    assert "exists" == resolve_path(one).outcome
    assert ".claude/commands/a.md" == resolve_path(given(tmp_path, params={"name": "a"})).fields["path"]


@pytest.mark.parametrize(
    "wrong",
    [{"name": "../x"}, {"name": "A"}, {"name": ""}, {"name": "a-"}, {"group": "../.."}, {"group": "a/b"}],
)
def test_a_name_that_would_lead_elsewhere_is_refused(tmp_path: Path, wrong: dict[str, str]) -> None:
    """Also when the daemon has not checked the parameters."""
    with pytest.raises(InvalidFile, match="HANDOFFD_PARAM_"):
        resolve_path(given(tmp_path, params={**PARAMS, **wrong}))


def test_the_front_matter_is_sound_whatever_the_description_says(tmp_path: Path) -> None:
    """Quotes, colons, lines and braces are part of the text."""
    description = 'a: "b" {name}\n--- # c'
    text = render(given(tmp_path, params={**PARAMS, "description": description})).out["command.md"].decode()

    assert {"description": description} == yaml.safe_load(text.split("---\n")[1].replace("\\n---", "\\n---"))
    assert "{name}\n--- # c" in text


def test_a_placeholder_without_a_value_is_an_error(tmp_path: Path) -> None:
    """It is named, with the ones that have a value."""
    (tmp_path / "own.md").write_text("{name} {author}")

    with pytest.raises(InvalidFile, match=r"own\.md: author: this placeholder has no value \(allowed: "):
        render(given(tmp_path, params=PARAMS, words={"from": "own.md"}))
    with pytest.raises(NotFound, match=r"no template other\.md"):
        render(given(tmp_path, params=PARAMS, words={"from": "other.md"}))


def _written(tmp_path: Path, target: str, **params: Any) -> dict[str, bytes]:
    rows = [row("target", outcome=target), row("render", "command.md", outcome="pass")]
    one = board(tmp_path / "board", rows, {"render/command.md": "new"})
    return dict(write(given(tmp_path / "work", board=one, params={**PARAMS, **params})).writes)


def test_what_was_rendered_is_written_to_its_place(tmp_path: Path) -> None:
    """Nothing else is."""
    assert {PATH: b"new"} == _written(tmp_path, "free")


def test_a_file_is_overwritten_only_with_a_persons_word(tmp_path: Path) -> None:
    """One that appeared after the look at the place is kept, too."""
    path = tmp_path / "work" / PATH
    path.parent.mkdir(parents=True)
    path.write_text("old")

    with pytest.raises(Refused, match="no person agreed to overwrite it"):
        _written(tmp_path, "free")
    assert {PATH: b"new"} == _written(tmp_path, "exists")


def test_nothing_is_written_that_was_not_rendered(tmp_path: Path) -> None:
    """The message names the program that renders."""
    with pytest.raises(NotFound, match="kit render command-md"):
        write(given(tmp_path, params=PARAMS))
