"""`handoffd token`."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import Commands


def test_it_is_printed_made_and_replaced(handoffd: Commands) -> None:
    """The same one until it is rotated."""
    first = handoffd("token").out.strip()
    told = handoffd("token", "--json").json
    second = handoffd("token", "--rotate").out.strip()

    assert first == told["token"]
    assert first != second
    assert second == handoffd("token").out.strip()


def test_one_that_the_settings_give_is_not_printed(handoffd: Commands, tmp_path: Path) -> None:
    """It may be known to the daemon alone."""
    file = tmp_path / "handoffd.yaml"
    file.write_text("control: {tcp: {port: 8321, token: {credential: token}}}\n", encoding="utf-8")

    said = handoffd("--config", str(file), "token")

    assert (1, "") == (said.code, said.out)
    assert "control.tcp.token" in said.err
