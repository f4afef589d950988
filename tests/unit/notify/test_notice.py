"""The form in which a notice leaves the house."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.support.notices import NOTICE


def test_the_json_holds_every_field_under_its_name() -> None:
    """Receivers find what the notice holds, the time as the protocol writes it, and a format number."""
    assert {
        "format": 1,
        "id": "main-7",
        "at": "2026-01-31T22:15:09.123Z",
        "project": "/srv/shop",
        "name": "shop",
        "story": "US-005",
        "step": "review",
        "kind": "needs_human",
        "text": "US-005 waits for a review",
        "why": "the step needs a person",
        "action": "handoffd approve /srv/shop",
        "review": ["docs/bdd/US-005.md"],
    } == json.loads(NOTICE.as_json())


def test_the_json_is_one_line_and_readable() -> None:
    """Line-oriented receivers get one line; Chinese stays Chinese."""
    text = replace(NOTICE, text="需要審查\nnow").as_json()

    assert "\n" not in text
    assert "需要審查" in text
