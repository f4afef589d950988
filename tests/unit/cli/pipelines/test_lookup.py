"""`handoffd add` and `handoffd trust` tell what they trusted of a project's pipelines."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import Commands

from handoffd.cli.pipelines.lookup import MOST_CHANGES, MOST_FIRST, MOST_LINES, Change, named, told

TEXT = "language: 1\npipeline: {name}\ntasks:\n  build: {{run: make}}\n"


@pytest.fixture
def shop(alone: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that is not supervised yet, and is the current folder; it has a folder for pipelines."""
    root = alone / "shop"
    (root / ".ai/pipelines").mkdir(parents=True)
    monkeypatch.chdir(root)
    return root


def add(shop: Path, name: str, text: str = TEXT) -> Path:
    """Write a pipeline of the project."""
    path = shop / f".ai/pipelines/{name}.yaml"
    path.write_text(text.format(name=name), encoding="utf-8")
    return path


def test_add_names_the_pipelines_that_it_trusts(handoffd: Commands, shop: Path) -> None:
    """Once: they are trusted from then on."""
    add(shop, "docs")
    add(shop, "kid", "language: 1\npipeline: kid\ntaskz: {{}}\n")

    lines = handoffd("add", str(shop)).lines

    assert "  trusted with it: .ai/pipelines/docs.yaml, .ai/pipelines/kid.yaml" in lines
    assert any(line.startswith("trusted, but broken: .ai/pipelines/kid.yaml:") for line in lines)
    assert f"  next: handoffd pipeline check kid --project {shop}" in lines


def test_trust_shows_what_changed(handoffd: Commands, shop: Path) -> None:
    """The lines of an edit that differ, and the first lines of a new file."""
    add(shop, "docs")
    handoffd("add", str(shop))
    add(shop, "docs", TEXT.replace("make", "make all"))
    add(shop, "night")

    lines = handoffd("trust", str(shop)).lines

    assert [
        "now in effect: .ai/pipelines/docs.yaml, .ai/pipelines/night.yaml",
        ".ai/pipelines/docs.yaml was edited:",
        "  -  build: {run: make}",
        "  +  build: {run: make all}",
        ".ai/pipelines/night.yaml is new, 4 lines:",
        "  +language: 1",
        "  +pipeline: night",
        "  +tasks:",
        "  +  build: {run: make}",
    ] == lines[:9]


def test_trust_tells_broken_and_dropped_files(handoffd: Commands, shop: Path) -> None:
    """A broken one is not in effect; one that is not trusted any more is named."""
    path = add(shop, "docs")
    handoffd("add", str(shop))
    path.unlink()

    assert "no longer trusted: .ai/pipelines/docs.yaml" == handoffd("trust", str(shop)).lines[0]

    add(shop, "kid", "language: 1\npipeline: kid\ntaskz: {{}}\n")
    said = handoffd("trust", str(shop))
    assert said.lines[0].startswith("trusted, but broken: .ai/pipelines/kid.yaml:")
    assert "now in effect" not in said.out
    add(shop, "kid", "language: 1\npipeline: kid\ntaskz: {{}}  # edited\n")
    data = handoffd("trust", str(shop), "--json").json
    assert ([".ai/pipelines/kid.yaml"], []) == (data["broken"], data["dropped"])


def test_long_changes_are_cut() -> None:
    """An agent may have written any number of lines and files."""
    long = "".join(f"line {number}\n" for number in range(100))
    files = {f"f{number:02}": "text\n" for number in range(MOST_CHANGES + 2)}

    new, edited = Change({}, {"a": long}), Change({"a": "x\n"}, {"a": long})

    assert MOST_FIRST + 2 == len(told(new, differences=True))
    assert MOST_LINES + 2 == len(told(edited, differences=True))
    assert "  and 90 more lines" == told(new, differences=True)[-1]
    assert "and 2 more files" == told(Change({}, files), differences=True)[-1]
    assert [] == [*named(Change()), *told(Change(), differences=True)]
