"""What ships with handoffd is found."""

from __future__ import annotations

import pytest

from handoffd.settings.paths import shared


@pytest.mark.parametrize(
    "parts",
    [
        ("config", "step-rules.yaml"),
        ("config", "executors.yaml"),
        ("config", "handoffd.example.yaml"),
        ("config", "prompts", "en", "prompt.j2"),
        ("systemd", "handoffd.service"),
    ],
)
def test_shipped_files_are_there(parts: tuple[str, ...]) -> None:
    """Wherever the package lies."""
    assert shared(*parts).is_file()


def test_a_path_is_absolute() -> None:
    """Whatever folder a verb is given in."""
    assert shared("config").is_absolute()
