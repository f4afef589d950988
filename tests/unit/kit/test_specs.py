"""`merge` and `spec-check`: requirements as one list, and how ready a specification is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.generate import ROOT
from tests.support.jsonschemas import complaints
from tests.unit.kit.boards import board, given, row

from handoffd.errors import Refused
from handoffd.kit.given import Answer, Done
from handoffd.kit.specs import merge, spec_check

SCHEMA = json.loads((ROOT / "config/schema/requirements/1.json").read_text("utf-8"))
LONG = " word" * 200
GOOD = {
    "brief.md": f"# Brief\n\nFor REQ-1.{LONG}",
    "requirements.md": f"# Requirements\n\n## REQ-1 Fast\n\n- NFR-1: at night{LONG}",
    "architecture.md": f"# Architecture\n\n## ADR-1\n\nREQ-1 and NFR-1.{LONG}",
    "epics.md": f"# Epics\n\n## EPIC-1\n\nREQ-1{LONG}",
}


def _merged(tmp_path: Path, answer: Answer | None = None) -> tuple[Done, list[dict[str, object]]]:
    old = [{"id": "R1", "text": "Fast?", "assumed": True}, {"id": "R2", "text": "Safe", "assumed": True}]
    new = [{"id": "R1", "text": "Within 1 s", "source": "the answer"}]
    rows = [row("discover", "gaps.json"), row("gaps", "gaps.json")]
    files = {"discover/gaps.json": {"requirements": old}, "gaps/gaps.json": {"requirements": new}}
    answers = {} if answer is None else {"questions": answer}
    done = merge(given(tmp_path / "w", board=board(tmp_path / "b", rows, files), answers=answers))
    data = json.loads(done.out["refined-requirements.json"])
    assert [] == complaints(data, SCHEMA)
    return done, data["requirements"]


def test_the_latest_form_of_a_requirement_counts(tmp_path: Path) -> None:
    """What is only assumed stays marked."""
    done, rows = _merged(tmp_path)

    assert [("R1", "Within 1 s", False), ("R2", "Safe", True)] == [
        (one["id"], one["text"], one["assumed"]) for one in rows
    ]
    assert {"requirements": 2, "assumed": 1} == done.fields


def test_what_a_person_answered_is_in_the_list(tmp_path: Path) -> None:
    """If the assumptions were accepted, nothing is added."""
    assert "At night" == _merged(tmp_path, Answer("answered", "At\nnight"))[1][-1]["text"]
    assert 2 == len(_merged(tmp_path, Answer("accept_all"))[1])


def test_a_board_without_gaps_has_nothing_to_merge(tmp_path: Path) -> None:
    """The file is named."""
    with pytest.raises(Refused, match=r"no gaps\.json"):
        merge(given(tmp_path))


def _score(tmp_path: Path, **changed: str) -> Done:
    folder = tmp_path / "docs/specs"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {**GOOD, **{f"{name}.md": text for name, text in changed.items()}}.items():
        (folder / name).write_text(text)
    return spec_check(given(tmp_path))


def test_a_whole_specification_has_all_points(tmp_path: Path) -> None:
    """25 for each part."""
    assert 100 == _score(tmp_path).fields["score"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("epics", "", "Missing: epics.md."),
        ("brief", GOOD["brief.md"] + " TBD", "With open places: brief.md."),
        ("brief", GOOD["brief.md"] + " ADR-9", "Not defined: ADR-9."),
        ("requirements", GOOD["requirements.md"] + "\n\n## REQ-2 Small", "Not followed up: REQ-2."),
        ("brief", "# Brief", "Short: brief.md."),
    ],
)
def test_what_is_missing_costs_points_and_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    """So that the next round knows what to do."""
    done = _score(tmp_path, **{name: text})

    assert 70 < float(done.fields["score"]) < 100
    assert said in done.summary


def test_without_documents_there_are_no_points(tmp_path: Path) -> None:
    """Nothing is ready by being absent."""
    assert 0 == spec_check(given(tmp_path)).fields["score"]
