"""Fields and notes as agents write them: what is understood, what is left out, and that nothing breaks."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoffd.protocol.handoff import FileMark, Found, Handoff, HandoffMark, Note, Scalar
from handoffd.protocol.handoff_values import (
    MAX_FIELD_BYTES,
    MAX_FIELDS,
    MAX_NOTE_BYTES,
    MAX_NOTES,
    fields_in,
    notes_in,
)
from handoffd.protocol.reading import HandoffTexts, read_claims
from handoffd.protocol.state import Status

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner, max_size=5),
    max_leaves=30,
)
"""What a front matter can hold."""


def read(text: str, result: str | None = None) -> Found:
    """Return what HANDOFF.md with this front matter says, together with executor-result."""
    mark = HandoffMark(handoff=FileMark(digest="d", inode=1, mtime_ns=1))
    other = None if result is None else result.encode()
    found = read_claims(HandoffTexts(handoff=f"---\n{text}---\n".encode(), result=other, mark=mark))
    assert isinstance(found, Found), found
    return found


def said(value: Any) -> tuple[dict[str, Scalar], list[str]]:
    """Return the fields of a value, and the warnings about it."""
    warnings: list[str] = []
    return fields_in(value, warnings.append), warnings


def noted(value: Any) -> tuple[tuple[Note, ...], list[str]]:
    """Return the notes of a value, and the warnings about it."""
    warnings: list[str] = []
    return notes_in(value, warnings.append), warnings


# --- a whole hand-off ---------------------------------------------------------------------------------
WHOLE = """\
status: pass
outcome: revise
fields:
  score: 6.5
  high: "2"
  blocked: false
  mode: full
notes:
  - {tag: api, severity: high, files: [shop/api.py], text: The old route must stay.}
  - The tests need Redis.
question: "Prices with tax, or without?"
"""


def test_a_hand_off_of_a_task_says_more() -> None:
    """Its outcome, its fields, its notes and its question."""
    found = read(WHOLE)

    assert found.warnings == ()
    assert found.handoff == Handoff(
        status=Status.PASS,
        outcome="revise",
        fields={"score": 6.5, "high": 2.0, "blocked": False, "mode": "full"},
        notes=(
            Note(text="The old route must stay.", tag="api", severity="high", files=("shop/api.py",)),
            Note(text="The tests need Redis."),
        ),
        question="Prices with tax, or without?",
    )


def test_a_hand_off_without_them_reads_as_before() -> None:
    """So every journal of before is read alike."""
    handoff = read("status: pass\n").handoff

    assert (None, {}, (), None) == (handoff.outcome, handoff.fields, handoff.notes, handoff.question)
    assert handoff == Handoff(status=Status.PASS)


def test_a_question_alone_needs_a_person() -> None:
    """Also where no status was written; one that was written stays."""
    assert read('question: "Which?"\n').handoff.status is Status.NEEDS_HUMAN
    assert read('status: pass\nquestion: "Which?"\n').handoff.status is Status.PASS
    assert read("status: pass\nquestion: none\n").handoff.question is None


def test_executor_result_may_give_the_outcome() -> None:
    """As it may give the status; a warning says where two differ."""
    alone = read("summary: done\n", "status: pass\noutcome: revise\n")
    both = read("status: pass\noutcome: ready\n", "status: pass\noutcome: revise\n")

    assert ("revise", ()) == (alone.handoff.outcome, alone.warnings)
    assert "revise" == both.handoff.outcome
    assert ("the two files give different outcomes",) == both.warnings


def test_warnings_name_file_line_and_key() -> None:
    """As they do for every other key."""
    assert read("status: pass\nfields: {score: .nan}\n").warnings == (
        ".ai/HANDOFF.md:3: fields: score: '.nan' is not a number that can be used, and is ignored",
    )


# --- fields -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("7", 7.0), ("-7.5", -7.5), ("+.5", 0.5), ("0", 0.0), ("1e3", 1000.0), ("3.", 3.0), (" 8 ", 8.0),
        ("true", True), ("False", False), ("none", "none"), ("007", "007"), ("8/10", "8/10"), (".", "."),
        ("1_000", "1_000"), ("e5", "e5"),
    ],
)  # fmt: skip
def test_a_field_is_a_number_a_truth_or_a_text(written: str, value: Scalar) -> None:
    """Numbers as people write them; whether they were quoted is not seen."""
    fields, warnings = said({"x": written})

    assert ({"x": value}, []) == (fields, warnings)
    assert type(value) is type(fields["x"])


@pytest.mark.parametrize("written", [".nan", "NaN", "-inf", ".inf", "Infinity", "1e999", ["1"], {"a": "1"}])
def test_what_cannot_be_a_field_is_left_out_with_a_warning(written: Any) -> None:
    """One line, which names the field."""
    fields, warnings = said({"x": written, "y": "1"})

    assert {"y": 1.0} == fields
    assert 1 == len(warnings)
    assert warnings[0].startswith("x: ")


def test_fields_may_be_a_list_of_pairs() -> None:
    """The first of a name counts; empty ones say nothing."""
    assert ({"a": 1.0, "b": "x"}, []) == said([{"a": "1"}, {"b": "x", "c": None, "d": ""}, {"a": "2"}])


@pytest.mark.parametrize("written", ["score: 7", ["score"], [["score", "7"]]])
def test_fields_that_are_no_mapping_are_ignored(written: Any) -> None:
    """With a warning."""
    assert ({}, ["must be a mapping from names to values, and is ignored"]) == said(written)


def test_fields_are_limited_in_number_and_size() -> None:
    """The first ones are kept."""
    many, warnings = said({f"f{number}": "1" for number in range(MAX_FIELDS + 3)})
    long, _ = said({"a": "x" * (MAX_FIELD_BYTES - 1), "b": "y"})

    assert [f"f{number}" for number in range(MAX_FIELDS)] == list(many)
    assert ["3 are left out: there may be 64, of 8 KiB together"] == warnings
    assert ["a"] == list(long)


@given(ANYTHING)
def test_whatever_is_written_gives_fields_within_limits(written: Any) -> None:
    """Finite numbers, truths and texts."""
    fields, _ = said(written)

    assert len(fields) <= MAX_FIELDS
    assert all(not isinstance(one, float) or math.isfinite(one) for one in fields.values())
    assert fields == Handoff.model_validate({"status": None, "fields": fields}).fields


# --- notes --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("written", "note"),
    [
        ("Plain.", Note(text="Plain.")),
        ([{"text": "A", "severity": "blocker"}], Note(text="A", severity="critical")),
        ([{"type": "api", "message": "A", "level": "WARN"}], Note(text="A", tag="api", severity="medium")),
        ([{"cache": "It is never emptied."}], Note(text="It is never emptied.", tag="cache")),
        ({"note": "A", "tag": "two words", "file": "a.py, b.py"},
         Note(text="A", tag="two-words", files=("a.py", "b.py"))),
    ],
)  # fmt: skip
def test_a_note_may_be_written_in_many_ways(written: Any, note: Note) -> None:
    """Other words for its keys and severities are understood."""
    assert ((note,), []) == noted(written)


@pytest.mark.parametrize(
    ("written", "warning"),
    [
        ([{"tag": "api", "severity": "low"}], "holds an entry without a text, which is ignored"),
        ([["a"]], "holds an entry that is neither a text nor a mapping, which is ignored"),
        ([{"text": "A", "severity": "odd"}], "the severity 'odd' is unknown, and is read as 'info'"),
        ([{"text": "A", "files": ["../b"]}], "'../b' is not a path inside the project, and is ignored"),
        (["x" * 2001], "an entry is cut at 2,000 characters"),
    ],
)
def test_what_is_wrong_with_a_note_is_told(written: Any, warning: str) -> None:
    """And the rest of it is kept."""
    assert [warning] == noted(written)[1]


def test_notes_are_limited_in_number_and_size() -> None:
    """The first ones are kept."""
    many, warnings = noted([f"Note {number}" for number in range(MAX_NOTES + 2)])
    long, _ = noted(["x" * 2000] * MAX_NOTES)

    assert MAX_NOTES == len(many)
    assert ["2 are left out: there may be 50, of 16 KiB together"] == warnings
    assert MAX_NOTE_BYTES // 2000 == len(long)


@given(ANYTHING)
def test_whatever_is_written_gives_notes_within_limits(written: Any) -> None:
    """Each has a text."""
    notes, _ = noted(written)

    assert len(notes) <= MAX_NOTES
    assert all(note.text.strip() for note in notes)
