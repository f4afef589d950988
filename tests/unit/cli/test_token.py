"""`handoffd token`."""

from __future__ import annotations

from tests.support.commands import Commands


def test_it_is_printed_made_and_replaced(handoffd: Commands) -> None:
    """The same one until it is rotated."""
    first = handoffd("token").out.strip()
    told = handoffd("token", "--json").json
    second = handoffd("token", "--rotate").out.strip()

    assert first == told["token"]
    assert first != second
    assert second == handoffd("token").out.strip()
