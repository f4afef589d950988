"""What came of a story that was played: for people, for programs, and when it stopped on its way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from handoffd.cli.story.player import Played, StoryFailed, tell

ROW = {"step": "bdd", "attempt": 1, "seconds": 0.5, "tests": None, "result": "pass"}


def played(step: str) -> Played:
    """Return a story that ended at `step`."""
    status = "pass" if step == "done" else "needs_human"
    track = {"step": step, "status": status, "last_error": "no attempt left", "reason": None}
    return Played(
        project="/tmp/shop", story="US-001", track=track, rows=(ROW,), log=Path("/tmp/my demo/daemon.log")
    )


def test_people_get_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """And whatever proves the outcome goes back to whoever told it."""
    assert {"pytest": "1 passed"} == tell(
        played("done"), as_json=False, prove=lambda _: {"pytest": "1 passed"}
    )

    out = capsys.readouterr().out
    assert "tests measured" in out
    assert "│ bdd" in out


def test_programs_get_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    """With the rows of the table, and what was proved."""
    tell(played("done"), as_json=True, prove=lambda _: {"pytest": "1 passed"})

    assert {
        "type": "played", "project": "/tmp/shop", "story": "US-001", "log": "/tmp/my demo/daemon.log",
        "rows": [ROW], "unmeasured": [], "skipped": None, "pytest": "1 passed",
    } == json.loads(capsys.readouterr().out)  # fmt: skip


def test_a_story_that_stopped_is_an_error_with_all_that_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    """The log is the next thing to look at; in JSON nothing is said twice."""
    with pytest.raises(StoryFailed) as failed:
        tell(played("bdd"), as_json=True)

    assert "the story stopped at bdd (needs_human): no attempt left" == failed.value.message
    assert ("STORY_STOPPED", "less '/tmp/my demo/daemon.log'") == (failed.value.code, failed.value.hint)
    assert [ROW] == failed.value.details["rows"]
    assert "" == capsys.readouterr().out
