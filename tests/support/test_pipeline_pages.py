"""The pages about shipped pipelines: their commands, and the parts that are made from the files."""

from __future__ import annotations

import pytest
from tests.support.shipped_pipelines import FOLDER, PAGES, misused, plan_of
from tests.support.shipped_pipelines import blocks as made


def text_of(name: str) -> str:
    """Return the page about a pipeline."""
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def test_each_page_has_its_picture_and_is_in_the_overview() -> None:
    """A page that is added or renamed takes its picture along."""
    assert {"README", *PAGES} == {path.stem for path in FOLDER.glob("*.md")}
    assert {*PAGES} == {path.stem for path in FOLDER.glob("*.svg")}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_every_generated_part_and_the_picture(name: str) -> None:
    """So that parameters, questions, tasks and limits are the ones of the file."""
    page = text_of(name)
    parts = [part for part in made() if part.endswith(f"-of-{name}")]

    assert 4 == len(parts)
    assert [] == [part for part in parts if f"<!-- generated: {part} -->" not in page]
    assert f"]({name}.svg)" in page


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_a_page_start_a_flow(name: str) -> None:
    """Its parameters are the ones of the pipeline, with values that fit, and none is missing."""
    page = text_of(name)

    assert f"handoffd flow start {name}" in page
    assert [] == list(misused(page))


def test_a_wrong_command_is_noticed() -> None:
    """A parameter that is missing, one that is unknown, and one that does not fit."""
    name, other = "team-issue", "clean"
    wrong = f"handoffd flow start {name} --param priority=9\nhandoffd flow start {other} --param all=true\n"

    assert ["issues"] == list(plan_of(name).required)
    assert [
        "team-issue: issues is missing",
        "team-issue: priority must be at most 5, not 9",
        "clean: all is unknown",
    ] == list(misused(wrong))
