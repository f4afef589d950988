"""A notice in words."""

from __future__ import annotations

from dataclasses import replace

from tests.support.notices import NOTICE

from handoffd.notify.notice import MOST_BYTES, MOST_HEADLINE, headline, message


def test_a_message_has_all_that_a_tired_person_needs() -> None:
    """Project and story, what, why, where, what to type."""
    assert "shop US-005 needs you" == headline(NOTICE)
    assert message(NOTICE).splitlines() == [
        "US-005 waits for a review",
        "Why: the step needs a person",
        "To look at: docs/bdd/US-005.md",
        "Where: /srv/shop (review)",
        "Next: handoffd approve /srv/shop",
    ]


def test_what_is_not_there_is_left_out() -> None:
    """Also a kind of a later release."""
    bare = replace(NOTICE, story=None, step="", why=None, action=None, review=(), kind="new")

    assert "shop new" == headline(bare)
    assert "US-005 waits for a review\nWhere: /srv/shop" == message(bare)


def test_a_long_message_keeps_what_to_type() -> None:
    """In bytes, whatever they are; nothing is cut in the middle of a letter."""
    long = replace(NOTICE, text="擷" * 5000, name="n" * 500, review=tuple(map(str, range(30))))

    told = message(long)
    assert len(told.encode()) <= MOST_BYTES
    assert told.endswith("…\nWhere: /srv/shop (review)\nNext: handoffd approve /srv/shop")
    assert MOST_HEADLINE == len(headline(long))
    assert len(message(replace(NOTICE, action="x" * 9000)).encode()) <= MOST_BYTES
    assert "9 and 20 more" in message(replace(long, text="x"))


def test_a_digest_shows_its_lines() -> None:
    """One below the other."""
    assert "a\n- b\n" in message(replace(NOTICE, lines=("a", "- b")))
