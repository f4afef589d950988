"""Where the library asks."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.controlled import Controlled

from handoffd.engine.events import Noted, PromptTaken
from handoffd.entrance.requests import account
from handoffd.library.project import dispatch, path_of, peeked, verb


def test_a_daemon_is_asked_when_one_runs(control: Controlled) -> None:
    """With the arguments that were given, and no others."""
    verb("note", "/srv/shop", text="Cents.", note=None)
    taken = dispatch("/srv/shop")

    given = [asked for _, asked in control.supervision.given]
    assert [Noted(text="Cents.", by=account()), PromptTaken(dispatch="d-1", by=account())] == given
    assert taken.type == "dispatched"
    assert "# Do bdd" == taken.prompt
    assert "bdd" == peeked("/srv/shop")["step"]


def test_a_project_is_a_folder_wherever_the_process_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text or a path; relative, or in somebody's home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/mei")

    assert str(tmp_path / "shop") == path_of("shop") == path_of(Path("shop"))
    assert "/home/mei/shop" == path_of("~/shop")
