"""`session-open`, `session-check` and `retro`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kit.boards import board, given, row

from handoffd.errors import InvalidFile, NotFound
from handoffd.kit.given import Answer, Done
from handoffd.kit.sessions import retro, session_check, session_open


def _opened(tmp_path: Path, *topics: str, answer: Answer | None = None) -> Done:
    (tmp_path / "flows").mkdir(exist_ok=True)
    rows: list[dict[str, Any]] = [
        {"flow": f"session-{number}", "pipeline": "session", "params": {"topic": topic}}
        for number, topic in enumerate(topics, 1)
    ]
    rows.append({"flow": "session-own", "pipeline": "session", "params": {"topic": "Speed"}})
    rows.append({"flow": "debug-1", "pipeline": "debug", "params": {"topic": "Speed"}})
    (tmp_path / "flows/flows.json").write_text(json.dumps(rows))
    answers = {} if answer is None else {"pick": answer}
    return session_open(
        given(
            tmp_path / "w",
            flows=tmp_path / "flows",
            flow="session-own",
            params={"topic": " speed"},
            answers=answers,
        )
    )


def test_a_session_of_its_own_is_begun_where_no_other_is_about_the_topic(tmp_path: Path) -> None:
    """Other topics, other pipelines and the flow itself do not count."""
    assert ("created", {"session": "session-own"}) == (
        _opened(tmp_path, "Safety").outcome,
        _opened(tmp_path, "Safety").fields,
    )
    assert "created" == session_open(given(tmp_path, params={"topic": "x"})).outcome


def test_one_open_session_is_taken_up_and_of_several_a_person_picks_one(tmp_path: Path) -> None:
    """Never the first by chance."""
    assert {"session": "session-2"} == _opened(tmp_path, "Safety", "SPEED").fields
    assert "ambiguous" == _opened(tmp_path, "speed", "Speed").outcome
    chosen = _opened(tmp_path, "speed", "Speed", answer=Answer("chosen", "session-2"))
    assert ("reused", {"session": "session-2"}) == (chosen.outcome, chosen.fields)
    assert "created" == _opened(tmp_path, "speed", "Speed", answer=Answer("new")).outcome
    with pytest.raises(InvalidFile, match=r"must name one session \(allowed: session-1, session-2\)"):
        _opened(tmp_path, "speed", "Speed", answer=Answer("chosen", "session-9"))


# --- the plan of another flow -------------------------------------------------------------------------
def _checked(tmp_path: Path, *tasks: dict[str, Any]) -> Done:
    rows = [row("design", "task-analysis.json")]
    board(tmp_path / "flows/f-1", rows, {"design/task-analysis.json": {"tasks": list(tasks)}})
    return session_check(given(tmp_path / "w", flows=tmp_path / "flows", words={"flow": "f-1"}))


def _task(name: str, *needs: str, role: str = "reader") -> dict[str, Any]:
    return {
        "id": name,
        "title": name,
        "description": "d",
        "role": role,
        "blocked_by": list(needs),
        "files": [],
    }


def test_a_sound_list_of_tasks_is_handed_over_as_it_is(tmp_path: Path) -> None:
    """In the form that both pipelines read."""
    done = _checked(tmp_path, _task("T1"), _task("T2", "T1", role="developer"))

    assert ["T1"] == json.loads(done.out["task-analysis.json"])["tasks"][1]["blocked_by"]
    assert {"tasks": 2} == done.fields


def test_tasks_that_a_team_cannot_do_are_refused(tmp_path: Path) -> None:
    """A role that it has not, needs that lead nowhere, no tasks, no file."""
    with pytest.raises(InvalidFile, match=r"tasks\[0\]\.role: unknown value 'translator' \(allowed: reader"):
        _checked(tmp_path, _task("T1", role="translator"))
    with pytest.raises(InvalidFile, match="there is no task 'T9'"):
        _checked(tmp_path, _task("T1", "T9"))
    with pytest.raises(InvalidFile, match="is empty"):
        _checked(tmp_path)
    board(tmp_path / "flows/f-1", [], {})
    with pytest.raises(NotFound, match=r"no task-analysis\.json"):
        session_check(given(tmp_path / "w", flows=tmp_path / "flows", words={"flow": "f-1"}))


# --- looking back -------------------------------------------------------------------------------------
def test_velocity_is_the_share_of_items_that_were_done(tmp_path: Path) -> None:
    """An item one of whose tasks was left out is not done."""
    rows = [
        row("sprint/dev[T1]/build", outcome="complete"),
        row("sprint/dev[T1]/merge", outcome="merged"),
        row("sprint/dev[T2]/build", outcome="failed", state="dropped"),
        row("sprint/dev[T2]/merge", state="skipped"),
        row("sprint/test", outcome="pass", fields={"pass_rate": 0.98}),
    ]
    done = retro(given(tmp_path / "w", board=board(tmp_path / "b", rows, {})))

    assert {"velocity": 0.5, "done": 1, "planned": 2} == done.fields
    assert "1 of 2 tasks done. Tests passed: 98%." == done.summary


def test_a_sprint_without_a_split_is_whole(tmp_path: Path) -> None:
    """One developer did all of it."""
    assert 1 == retro(given(tmp_path)).fields["velocity"]
