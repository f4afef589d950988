"""What people say to handoffd in a chat: what follows, and what must never follow, by one running daemon."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.chatting import Facts, Workspace, ways
from tests.support.daemon import Daemon

from handoffd.protocol import yamltext

Json = dict[str, Any]

DATA = Path(__file__).parents[1] / "data" / "chat" / "phrases.yaml"
ROWS: list[Json] = yamltext.load(DATA.read_text(encoding="utf-8"), file=DATA.name).data
WAYS = ways(ROWS)
TASK = {"in": {"A": "fresh"}, "action": "dispatched", "dispatches": ["A"]}
"""What follows where a row says nothing of it: the whole message is a task."""
numbers = itertools.count()


def test_every_phrase_is_there() -> None:
    """Of the two matrices, none is left out."""
    assert set(range(1, 102)) == {row["row"] for row in ROWS}
    assert len(WAYS) > 250


def some() -> Iterator[Any]:
    """Yield the ways, all but the first of each row for `make whole` only."""
    said = set[str]()
    for name, row, say in WAYS:
        number = name.partition(":")[0]
        yield pytest.param(name, row, say, id=name, marks=[pytest.mark.whole] * (number in said))
        said.add(number)


@pytest.mark.parametrize(("name", "row", "say"), [*some()])
def test_a_phrase(daemon: Daemon, tmp_path: Path, name: str, row: Json, say: str) -> None:
    """It leads to what its row says, and to nothing else."""
    row = row if "action" in row else {**TASK, "task": say, **row}
    workspace = Workspace(daemon, tmp_path / f"w{next(numbers)}", row.get("in", {"A": "ready"}))
    try:
        before = workspace.facts()
        answer = _said(daemon, workspace, row, say)
        after = workspace.facts()
    finally:
        workspace.close()

    told = f"{answer['action']}: {answer['report']}"
    about = row.get("about", row.get("at", "A"))
    assert answer["action"] in row["action"].split("|"), told
    assert (str(workspace.folder / about) if about else None) == answer["project"], told
    for words in row.get("tells", ()):
        assert any(word in answer["report"] for word in words.split("|")), told
    _check_facts(row, before, after, told)
    _check_words(row, say, answer, after.tracks.get(about or "", {}))
    _check_prompt(row, answer)


def _said(daemon: Daemon, workspace: Workspace, row: Json, say: str) -> Json:
    """Return the answer to the last message: to `then`, about the project of the answer before."""
    at, here = row.get("at", "A"), row.get("here")
    body: Json = {"text": say, "by": "pat"}
    if at is not None:
        body["project"] = str(workspace.folder / at)
    if here is not None:
        body["here"] = str(workspace.folder / here)
    answer = daemon.post("/v1/messages", body)
    if "then" in row:
        answer = daemon.post("/v1/messages", {**body, "text": row["then"], "project": answer["project"]})
    assert "message" == answer["type"], answer
    return answer


def _check_facts(row: Json, before: Facts, after: Facts, told: str) -> None:
    """What the row does not name has not happened."""
    begins, dispatches = set(row.get("begins", ())), row.get("dispatches", ())
    assert before.begun | begins == after.begun, told
    assert before.touched | begins == after.touched, told
    expected = {name: before.dispatches.get(name, 0) + (name in dispatches) for name in after.dispatches}
    assert expected == after.dispatches, told
    moves = {*dispatches, *row.get("moves", ()), *row.get("opens", ())}
    for name, track in before.tracks.items():
        changed = {key for key, value in track.items() if after.tracks[name][key] != value}
        noted = {"human_note"} if "keeps" in row else set()
        waits = {"backlog"} if name in row.get("queues", {}) else set()
        assert name in moves or changed <= noted | waits, (told, track, after.tracks[name])
        if track["gate"] and name not in {*row.get("opens", ()), *row.get("parks", {})}:
            closed = after.tracks[name]["gate"] or row["action"] == "rejected"
            assert closed, (told, after.tracks[name])


def _check_words(row: Json, say: str, answer: Json, track: Json) -> None:
    """The message is kept, the story is the one that it named, and no other one is lost."""
    if (keeps := row.get("keeps")) is not None:
        wanted = [say] if keeps is True else keeps.split("|")
        assert any(word in (track["human_note"] or "") for word in wanted), track
    for story in row.get("queues", {}).values():
        assert story in track["backlog"], track
    for story in row.get("parks", {}).values():
        assert story in [*track["parked"], *track["backlog"]], track
    if "story" in row:
        assert row["story"] == track["story"], track
    if "step" in row:
        assert row["step"] == answer["result"]["step"], answer["result"]


def _check_prompt(row: Json, answer: Json) -> None:
    """The prompt asks for what the message said, and for one step."""
    prompt = (answer["result"] or {}).get("prompt", "")
    if "task" in row:
        assert row["task"] in prompt
    if "teams" in row:
        assert row["teams"] == ("Agent team" in prompt or "agent team" in prompt or "團隊" in prompt)
