"""Which sinks a notice goes to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.notices import NOTICE

from handoffd.notify.notifier import sinks_for
from handoffd.settings.notify import NotifySettings

SINKS = ("mail", "phone")


def told(routes: list[dict[str, Any]], **changes: Any) -> tuple[str, ...]:
    """Return who is told of a notice."""
    form = {"command": ["true"]}
    settings = NotifySettings.model_validate({"sinks": dict.fromkeys(SINKS, form), "routes": routes})
    return sinks_for(replace(NOTICE, **changes), settings, SINKS, {"/srv/shop": "web"}.get)


@pytest.mark.parametrize(
    ("routes", "sinks"),
    [
        ([], SINKS),
        ([{"to": ["phone"]}], ("phone",)),
        ([{"kinds": ["done"], "to": ["phone"]}], SINKS),
        ([{"kinds": ["done", "needs_human"], "to": ["phone"]}], ("phone",)),
        ([{"projects": ["shop"], "to": ["phone"]}], ("phone",)),
        ([{"projects": ["/srv/*"], "to": ["phone"]}], ("phone",)),
        ([{"projects": ["sho", "SHOP", "/srv"], "to": ["phone"]}], SINKS),
        ([{"projects": ["group:web"], "to": ["phone"]}], ("phone",)),
        ([{"projects": ["group:w*"], "to": ["phone"]}], SINKS),
        ([{"projects": ["blog", "s*"], "kinds": ["needs_human"], "to": ["mail"]}], ("mail",)),
        ([{"projects": ["s*"], "kinds": ["done"], "to": ["mail"]}], SINKS),
        ([{"projects": ["s*"], "to": ["mail"]}, {"to": ["phone"]}], ("mail",)),  # the first that fits
        ([{"kinds": ["done"], "to": ["mail"]}, {"to": []}], ()),
    ],
)
def test_the_first_route_that_fits_decides(routes: list[dict[str, Any]], sinks: tuple[str, ...]) -> None:
    """And without one every sink is told: nothing is lost for want of a rule."""
    assert sinks == told(routes)


def test_what_nobody_asked_for_is_told_to_nobody() -> None:
    """`events` goes before the routes."""
    settings = NotifySettings.model_validate({"events": ["done"], "routes": [{"to": []}]})

    assert () == sinks_for(NOTICE, settings, SINKS, lambda _: None)
