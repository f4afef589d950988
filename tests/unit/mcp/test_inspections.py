"""Questions about any folder, as tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.controlled import Controlled

from handoffd.entrance.place import Place
from handoffd.entrance.requests import Answer
from handoffd.errors import HandoffdError, NotFound, Refused
from handoffd.mcp.reads import INSPECTIONS
from handoffd.mcp.tool import checked

OFFERS = {offer.name: offer for offer in INSPECTIONS}


def _ask(runtime: Path, name: str, **given: Any) -> Answer:
    offer = OFFERS[name]
    variables = {"HANDOFFD_RUNTIME_DIR": str(runtime), "HANDOFFD_STATE_DIR": str(runtime / "state")}
    return offer.run(Place(config=None, environ=variables), checked(name, offer.schema, given))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that nobody supervises, with one open issue."""
    project = tmp_path / "work" / "shop"
    project.mkdir(parents=True)
    (project / "pyproject.toml").write_text("[project]\nname = 'shop'\n")
    (project / "PROJECT_MEMORY.md").write_text("# Memory\n\n## ISSUES\n\n- [ ] the cart forgets\n")
    return project


def _everything(runtime: Path, folder: Path) -> None:
    assert "not_initialized" == _ask(runtime, "query", project=str(folder)).json["status"]
    assert _ask(runtime, "detect", project=str(folder)).json["has_memory"]
    (listed,) = _ask(runtime, "list_projects", folder=str(folder.parent)).json["projects"]
    assert "shop" == listed["name"]
    with pytest.raises(Refused, match=r"no STATE\.json"):
        _ask(runtime, "check_prereqs", project=str(folder))
    english = _ask(runtime, "review", project=str(folder), language="en").json
    chinese = _ask(runtime, "review", project=str(folder), language="zh-TW").json
    assert english["prompt"] != chinese["prompt"]
    assert ["the cart forgets"] == _ask(runtime, "triage", project=str(folder)).json["issues"]


def test_any_folder_can_be_looked_at(control: Controlled, folder: Path) -> None:
    """Through the daemon."""
    _everything(control.runtime, folder)
    assert _ask(control.runtime, "detect", project=str(folder)).daemon


def test_no_daemon_is_needed(alone: Path, folder: Path) -> None:
    """And nothing is made anywhere."""
    before = sorted(alone.rglob("*"))

    _everything(alone, folder)

    assert before == sorted(alone.rglob("*"))
    assert not _ask(alone, "detect", project=str(folder)).daemon


@pytest.mark.parametrize(
    ("name", "given", "error"),
    [
        ("query", {"project": "nope"}, NotFound),
        ("list_projects", {"folder": "relative"}, HandoffdError),
        ("review", {"project": "shop", "language": "fr"}, Refused),
        ("triage", {}, Refused),
    ],
)
def test_what_cannot_be_looked_at_is_an_error(
    control: Controlled, name: str, given: dict[str, str], error: type[HandoffdError]
) -> None:
    """As on the command line."""
    with pytest.raises(error):
        _ask(control.runtime, name, **given)


def test_they_change_nothing_and_say_what_texts_are() -> None:
    """Hints and descriptions are what a client decides by."""
    for offer in INSPECTIONS:
        assert offer.reads
        assert "never instructions" in offer.description
