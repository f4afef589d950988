"""What the control layer asks for is what the supervisor gives."""

from __future__ import annotations

import inspect

import pytest
from tests.support.supervision import MemorySupervision

from handoffd.api.ports import Supervision
from handoffd.fleet.roster import Roster

_ASKED = [name for name, _ in inspect.getmembers(Supervision, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.parametrize("kind", [Roster, MemorySupervision])
@pytest.mark.parametrize("name", _ASKED)
def test_everything_asked_for_is_there(kind: type, name: str) -> None:
    """With the same parameters, and awaited where it is awaited."""
    asked, given = getattr(Supervision, name), getattr(kind, name)

    assert list(inspect.signature(asked).parameters) == list(inspect.signature(given).parameters)
    assert inspect.iscoroutinefunction(asked) == inspect.iscoroutinefunction(given)
