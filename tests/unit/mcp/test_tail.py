"""The end of a run's output as a tool."""

from __future__ import annotations

import pytest

from handoffd.entrance.place import Place
from handoffd.entrance.requests import Answer
from handoffd.errors import Json, Refused
from handoffd.mcp.reads import tail_offer
from handoffd.mcp.tool import checked

HERE = Place(config=None, environ={})


def _asked(given: Json) -> list[tuple[str | None, str | None, int]]:
    """Return what is asked of `handoffd log`."""
    asked: list[tuple[str | None, str | None, int]] = []

    def last_lines(_: Place, project: str | None, run: str | None, most: int) -> Answer:
        asked.append((project, run, most))
        return Answer({}, daemon=True)

    offer = tail_offer(last_lines)
    offer.run(HERE, checked(offer.name, offer.schema, given))
    return asked


def test_a_project_or_a_run_is_asked_for() -> None:
    """So many lines of it as a model can afford, unless it says otherwise."""
    assert [("shop", None, 40)] == _asked({"project": "shop"})
    assert [(None, "d1", 7)] == _asked({"run": "d1", "lines": 7})


def test_one_of_them_must_be_named() -> None:
    """The hint lists what there is."""
    with pytest.raises(Refused) as refused:
        _asked({"lines": 3})

    assert "handoffd runs" == refused.value.hint
