"""Folders are asked about through whatever there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import environment
from tests.support.controlled import Controlled
from tests.unit.inspection.making import write_state

from handoffd.entrance.place import Place
from handoffd.entrance.requests import inspect
from handoffd.errors import NotFound


def query(runtime: Path, project: str) -> tuple[bool, dict[str, object]]:
    """Return whether a daemon answered, and what."""
    place = Place(config=None, environ=environment(runtime))
    answer = inspect(place, "/v1/query", {"project": project}, lambda asked: asked.query(project))
    return answer.daemon, answer.json


def test_a_daemon_is_asked_first(control: Controlled) -> None:
    """It knows the names of its projects."""
    daemon, told = query(control.runtime, "shop")

    assert (True, "/srv/shop") == (daemon, told["root"])


def test_files_are_enough(alone: Path) -> None:
    """Nothing is made to find that out; names mean nothing then."""
    write_state(alone / "shop")
    before = sorted(alone.rglob("*"))

    daemon, told = query(alone, str(alone / "shop"))

    assert (False, "US-005", False) == (daemon, told["story"], told["supervised"])
    with pytest.raises(NotFound):
        query(alone, "shop")
    assert before == sorted(alone.rglob("*"))
