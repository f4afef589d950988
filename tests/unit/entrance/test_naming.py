"""What a project is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.entrance.place import by_name, called


@pytest.mark.parametrize("word", ["shop", "shop-2"])
def test_a_word_that_is_no_path_is_a_name(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon knows the projects by their names, too."""
    monkeypatch.chdir(tmp_path)

    assert word == called(word)


def test_a_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a folder here, the folder itself, and one at home."""
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert str(tmp_path / "shop") == called("shop") == called("./shop") == called("~/shop")
    assert str(tmp_path) == called(".")


SHOP = {"project": "/srv/a/long/way/to/shop", "called": "shop"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("handoffd approve {0} --story US-001", "handoffd approve shop --story US-001"),
        ("handoffd rules check {0}", "handoffd rules check shop"),
        ("handoffd abort {0} && handoffd start {0} US-0", "handoffd abort shop && handoffd start shop US-0"),
        ("ls -ld {0}; or: handoffd remove {0}", "ls -ld {0}; or: handoffd remove shop"),
        ("git -C {0} status", "git -C {0} status"),
        ("handoffd log --follow {0}", "handoffd log --follow {0}"),
        ("handoffd add {0}/below", "handoffd add {0}/below"),
    ],
)
def test_a_command_calls_its_project_by_name(text: str, shown: str) -> None:
    """Only where handoffd takes a name; other programs need the path."""
    root = SHOP["project"]

    assert shown.format(root) == by_name(text.format(root), SHOP)


@pytest.mark.parametrize("name", [None, "/srv/a/long/way/to/shop", "-v", "two words", "a;b", "here"])
def test_a_name_that_would_mean_something_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    """Several projects have it, it is an option, a shell would take it apart, or a folder here has it."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    text = f"handoffd approve {SHOP['project']}"

    assert text == by_name(text, SHOP | {"called": name})
    assert text == by_name(text, {"project": SHOP["project"]})  # of an older daemon


def test_the_name_of_a_folder_that_is_the_project_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Path and name lead to the same one."""
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path)
    root = str(tmp_path / "shop")

    assert "handoffd approve shop" == by_name(f"handoffd approve {root}", {"project": root, "called": "shop"})
