"""A message, with a daemon and without one."""

from __future__ import annotations

from pathlib import Path

from tests.support.controlled import Controlled

from handoffd.entrance.place import Place
from handoffd.entrance.requests import say


def test_a_daemon_is_told_when_one_runs(control: Controlled) -> None:
    """In the name of the account."""
    answer = say(
        Place(config=None, environ={"HANDOFFD_RUNTIME_DIR": str(control.runtime)}), "/srv/shop", "status?"
    )

    assert answer.daemon
    assert "query" == answer.json["action"]


def test_a_question_needs_no_daemon_and_leaves_nothing(alone: Path, tmp_path: Path) -> None:
    """Not even the folders of a journal."""
    (tmp_path / "shop").mkdir()
    answer = say(
        Place(
            config=None, environ={"HANDOFFD_RUNTIME_DIR": str(alone), "HANDOFFD_STATE_DIR": str(alone / "x")}
        ),
        str(tmp_path / "shop"),
        "目前進度？",
    )

    assert not answer.daemon
    assert ("query", False) == (answer.json["action"], (alone / "x").exists())
