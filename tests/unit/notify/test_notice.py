"""The form in which a notice leaves the house."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.support.notices import NOTICE

from handoffd.notify.notice import Notice


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
        "track": "main",
        "of": None,
        "count": 1,
        "lines": [],
        "more": 0,
    } == json.loads(NOTICE.as_json())


def test_the_json_is_one_line_and_readable() -> None:
    """Line-oriented receivers get one line; Chinese stays Chinese."""
    text = replace(NOTICE, text="需要審查\nnow").as_json()

    assert "\n" not in text
    assert "需要審查" in text


def test_a_recorded_notice_is_read_as_it_was() -> None:
    """Its time included; what a later release adds is left out, what it leaves out has its default."""
    assert NOTICE == Notice.from_json(NOTICE.as_json())
    later = {**json.loads(NOTICE.as_json()), "colour": "red"}
    del later["review"]
    assert replace(NOTICE, review=()) == Notice.from_json(json.dumps(later))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"id": "1"}', '{"at": 3}', '{"at": "yesterday"}'])
def test_what_is_no_notice_is_refused(text: str) -> None:
    """With one kind of error."""
    with pytest.raises(ValueError):  # noqa: PT011  (json has its own subclass)
        Notice.from_json(text)
