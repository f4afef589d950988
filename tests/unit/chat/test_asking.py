"""What to type, from the command that leads on."""

from __future__ import annotations

import pytest

from handoffd.chat.wording import to_type, wording


@pytest.mark.parametrize(
    ("command", "begins"),
    [
        ("handoffd approve /srv/shop", "Type `approve`, or `reject REASON"),
        ("handoffd approve /srv/shop --story US-1", "Type `approve`, or `reject REASON"),
        ("handoffd retry '/srv/my shop'", "Type `retry`"),
        ("handoffd dispatch /srv/shop", "Type `continue`"),
        ("handoffd resume /srv/shop", "Type `continue`"),
        ("handoffd start /srv/shop STORY", "Type `start US-001`"),
        ("handoffd note /srv/shop TEXT", "Type `note:"),
        ("handoffd reopen /srv/shop STEP", "Type `reopen STEP"),
        ("handoffd status /srv/shop --watch", "Type `status`"),
        ("handoffd start /srv/shop US-2 --queue", "In a terminal: handoffd start /srv/shop US-2 --queue"),
        ("handoffd limits lift x && handoffd resume /srv/shop", "In a terminal: handoffd limits lift"),
        ("handoffd budget /srv/shop --usd 8", "In a terminal: handoffd budget"),
        ("${EDITOR:-vi} 'it''s", "In a terminal: ${EDITOR:-vi}"),
    ],
)  # fmt: skip
def test_what_can_be_said_is_said(command: str, begins: str) -> None:
    """Everything else is for a terminal."""
    assert str(to_type(wording("en"), command)).startswith(begins)


def test_nothing_is_asked_of_nobody() -> None:
    """While it is the daemon's turn."""
    assert to_type(wording("zh-TW"), None) is None
