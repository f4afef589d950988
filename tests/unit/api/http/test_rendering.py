"""A long answer says the same as a short one."""

from __future__ import annotations

import json

import pytest

from handoffd.api.http.application import rendered
from handoffd.errors import Json


@pytest.mark.parametrize(
    "told",
    [
        {"projects": []},
        {"api": 1, "at": "店", "projects": [{"name": f"{number}", "x": None} for number in range(120)]},
        {"projects": [1], "after": {"projects": 2}},
    ],
)
async def test_nothing_is_lost_between_the_pieces(told: Json) -> None:
    """Whatever stands beside the long list."""
    response = await rendered(told, "projects")

    assert told == json.loads(bytes(response.body))
    assert ("application/json", str(len(response.body))) == (
        response.headers["content-type"],
        response.headers["content-length"],
    )
