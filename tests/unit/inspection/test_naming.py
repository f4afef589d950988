"""What a project is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.inspection.project_status import project_name


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("package.json", '{"name": "@acme/shop"}', "@acme/shop"),
        ("pyproject.toml", '[project]\nname = "shop"', "shop"),
        ("pyproject.toml", '[tool.poetry]\nname = "shop"', "shop"),
        ("go.mod", "module example.org/acme/shop\n\ngo 1.23\n", "shop"),
        ("Cargo.toml", '[package]\nname = "shop"', "shop"),
        ("package.json", "{not json", "folder"),
        ("package.json", '["name"]', "folder"),
        ("package.json", '{"name": 5}', "folder"),
        ("package.json", '{"name": "\\u001b[2J"}', "folder"),
        ("package.json", "[" * 100_000, "folder"),
        ("pyproject.toml", "[project\n", "folder"),
    ],
)
def test_a_project_is_called_what_it_calls_itself(tmp_path: Path, file: str, text: str, name: str) -> None:
    """A manifest that is broken is somebody else's business: then it is the folder's name."""
    root = tmp_path / "folder"
    root.mkdir()
    (root / file).write_text(text, encoding="utf-8")

    assert name == project_name(str(root))


def test_a_manifest_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """Nothing outside of the project is read."""
    (tmp_path / "secret").write_text('{"name": "secret"}', encoding="utf-8")
    root = tmp_path / "folder"
    root.mkdir()
    (root / "package.json").symlink_to(tmp_path / "secret")

    assert "folder" == project_name(str(root))
