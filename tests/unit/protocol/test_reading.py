"""One hand-off file as a claim, which hand-off counts, and what two files say together."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoffd.protocol.handoff import Absent, FileMark, Found, HandoffMark, Malformed, Stale
from handoffd.protocol.handoff_text import handoff_pieces, result_pieces
from handoffd.protocol.reading import (
    MAX_ITEMS,
    MAX_SUMMARY_CHARACTERS,
    Claim,
    Expected,
    HandoffTexts,
    claim_of_handoff,
    claim_of_result,
    read_claims,
    read_handoff,
)
from handoffd.protocol.state import Reason, Status, TestCounts

# --- two files ---------------------------------------------------------------------------------------
HANDOFFS = Path(__file__).parents[2] / "data" / "handoffs"

DISPATCH = "20261121T073312-4f9a1c"

EXPECTED = Expected(story="US-005", step="impl", attempt=2, dispatch=DISPATCH, ours=True)

BY_HAND = Expected(story="US-005", step="impl", attempt=2, dispatch=DISPATCH)
"""The same attempt by a person or another tool, which was given its prompt."""

DISPATCHED_AT = datetime(2026, 1, 31, 22, 0, tzinfo=UTC)

PASS = b"---\nstatus: pass\n---\n"

WITH_REASON = b"---\nstatus: pass\nreason: nfr_missing\n---\n"


def mark(content: bytes | None, *, inode: int = 1, mtime_ns: int = 1) -> FileMark | None:
    """Return the mark of a file, None for none."""
    if content is None:
        return None
    return FileMark(digest=hashlib.sha256(content).hexdigest(), inode=inode, mtime_ns=mtime_ns)


def texts(
    handoff: bytes | None = None, result: bytes | None = None, *, inode: int = 1, mtime_ns: int = 1
) -> HandoffTexts:
    """Return both files as they are, each with its mark."""
    one, other = (mark(content, inode=inode, mtime_ns=mtime_ns) for content in (handoff, result))
    return HandoffTexts(handoff=handoff, result=result, mark=HandoffMark(handoff=one, result=other))


def found(handoff: bytes | None = None, result: bytes | None = None, expected: Expected = EXPECTED) -> Found:
    """Return what the files say, which must count."""
    reading = read_handoff(texts(handoff, result), expected)
    assert isinstance(reading, Found), reading
    return reading


def front(**fields: Any) -> bytes:
    """Return a HANDOFF.md with these fields."""
    return ("---\n" + "".join(f"{key}: {value}\n" for key, value in fields.items()) + "---\n").encode()


@pytest.mark.parametrize(
    ("body", "summary"),
    [
        ("# Next session\n\nFinish the\nrounding.\n\nThen rest.", "Finish the rounding."),
        ("## Done\n- The toggle **works**\n- and its test\n", "The toggle **works**"),
        ("1. First\n2. Second", "First"),
        ("```\n$ make\n```", "$ make"),
        ("# Done\n\n---\n\n...\n", None),
        ("", None),
    ],
)
def test_without_a_summary_the_body_says_what_was_done(body: str, summary: str | None) -> None:
    """Its first paragraph or item; a summary in either file goes before it."""
    assert summary == found(front(status="pass") + body.encode()).handoff.summary
    if body:
        assert summary == found(body.encode(), expected=BY_HAND).handoff.summary
    assert "mine" == found(front(summary="mine") + body.encode()).handoff.summary
    assert "theirs" == found(front(status="pass") + body.encode(), b"summary: theirs").handoff.summary


def test_a_body_without_an_end_makes_a_summary_that_has_one() -> None:
    """It is cut as any other."""
    handoff = found(front(status="pass") + b"x" * 60_000).handoff
    assert MAX_SUMMARY_CHARACTERS == len(handoff.summary or "")


# --- whole files --------------------------------------------------------------------------------------
def test_block_lists() -> None:
    """Every field of a full front matter arrives."""
    reading = found((HANDOFFS / "block-lists.md").read_bytes())

    handoff = reading.handoff
    assert ("front-matter", ()) == (reading.source, reading.warnings)
    assert (Status.FAILING, Reason.SCOPE_WARNING, None) == (handoff.status, handoff.reason, handoff.error)
    assert ("US-005", "impl", 2, DISPATCH) == (handoff.story, handoff.step, handoff.attempt, handoff.dispatch)
    assert TestCounts.model_validate({"pass": 12, "fail": 1, "skip": 2}) == handoff.tests
    assert ("shop/pricing.py", "tests/test_pricing.py") == handoff.files_changed
    assert ("tests/test_pricing.py::test_discount[a, b]",) == handoff.failing_tests
    assert ("0123456", "Discounts work;\none test is left.") == (handoff.commit_hash, handoff.summary)


def test_inline_lists_an_alias_of_the_step_and_a_code_fence() -> None:
    """The claim counts, with a warning; `005` is story US-005."""
    reading = found((HANDOFFS / "inline-lists.md").read_bytes())

    assert (Status.PASS, "impl") == (reading.handoff.status, reading.handoff.step)
    assert ("shop/pricing.py", "tests/test_pricing.py") == reading.handoff.files_changed
    assert (".ai/HANDOFF.md: step: 'implementation' is read as 'impl'",) == reading.warnings

    reading = found((HANDOFFS / "fenced.md").read_bytes())
    assert Status.NEEDS_HUMAN == reading.handoff.status
    assert Reason.NEEDS_CLARIFICATION == reading.handoff.reason
    assert "fence" in reading.warnings[0]


def test_the_old_format() -> None:
    """Words in the body decide; without them the status stays open."""
    reading = found((HANDOFFS / "old-format.md").read_bytes())
    silent = found(b"# Hand-off\n\nAll is well.\n", expected=BY_HAND)

    assert ("old-format", Status.FAILING) == (reading.source, reading.handoff.status)
    assert Reason.NEEDS_CLARIFICATION == reading.handoff.reason
    assert ("old-format", None, None) == (silent.source, silent.handoff.status, silent.handoff.reason)


@pytest.mark.parametrize(("name", "line"), [("unclosed", 2), ("unparsable", 3), ("bomb", 2)])
def test_front_matter_that_cannot_be_read_is_malformed(name: str, line: int) -> None:
    """The problem names the line."""
    reading = read_handoff(texts((HANDOFFS / f"{name}.md").read_bytes()), EXPECTED)

    assert isinstance(reading, Malformed)
    assert (".ai/HANDOFF.md", line) == (reading.problem.file, reading.problem.line)


@pytest.mark.parametrize("blank", [None, b"", b"\n \n", b"\0\0"])
def test_nothing_written_is_absent(blank: bytes | None) -> None:
    """Missing, empty and blank are the same, for one file or both."""
    assert isinstance(read_handoff(texts(blank, blank), EXPECTED), Absent)
    assert "executor-result" == found(blank, b"status: pass").source


# --- which hand-off counts ----------------------------------------------------------------------------
def test_a_file_as_it_was_at_the_dispatch_is_stale() -> None:
    """It was written before."""
    before = texts(PASS, b"status: pass")

    reading = read_handoff(before, Expected(story="US-005", step="impl", mark=before.mark))

    assert isinstance(reading, Stale)
    assert "was not written since the dispatch" in reading.why


@pytest.mark.parametrize(("inode", "mtime_ns"), [(2, 1), (1, 2)])
def test_a_byte_identical_rewrite_counts(inode: int, mtime_ns: int) -> None:
    """Another inode or time is enough."""
    expected = Expected(story="US-005", step="impl", mark=texts(PASS).mark)

    assert isinstance(read_handoff(texts(PASS, inode=inode, mtime_ns=mtime_ns), expected), Found)


def test_only_the_fresh_one_of_two_files_is_read() -> None:
    """An old HANDOFF.md says nothing beside a new executor-result, and the reverse."""
    old = front(status="failing", summary="old")
    old_handoff = Expected(story="US-005", step="impl", mark=texts(old).mark)
    old_result = Expected(story="US-005", step="impl", mark=texts(None, b"status: failing").mark)

    newer = found(old, b"status: pass", old_handoff)
    other = found(PASS, b"status: failing", old_result)

    assert ("executor-result", Status.PASS) == (newer.source, newer.handoff.status)
    assert newer.handoff.summary is None
    assert ("front-matter", Status.PASS, ()) == (other.source, other.handoff.status, other.warnings)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"story": "US-006"}, "story"),
        ({"step": "verify"}, "step"),
        ({"step": "quality-gate"}, "step"),
        ({"attempt": 1}, "attempt"),
        ({"dispatch": "20261121T073311-000000"}, "dispatch"),
    ],
)
def test_a_hand_off_that_names_something_else_is_stale(fields: dict[str, Any], word: str) -> None:
    """In either file, it makes both stale: they come from one session."""
    for reading in (
        read_handoff(texts(front(status="pass", **fields)), EXPECTED),
        read_handoff(texts(front(status="pass", **fields), b"status: pass"), EXPECTED),
        read_handoff(texts(PASS, front(status="pass", **fields)), EXPECTED),
    ):
        assert isinstance(reading, Stale)
        assert f"names {word}" in reading.why


@pytest.mark.parametrize(
    "fields",
    [
        {"story": "005"}, {"story": "none"}, {"story": ""}, {"step": "Implementation"}, {"step": "IMPL"},
        {"attempt": "2/5"}, {"attempt": ""}, {"dispatch": DISPATCH}, {"dispatch": "n/a"},
    ],
)  # fmt: skip
def test_a_hand_off_that_names_the_attempt_or_nothing_counts(fields: dict[str, Any]) -> None:
    """Only what is given is compared, in any spelling."""
    assert Status.PASS == found(front(status="pass", **fields)).handoff.status


def test_unknown_parts_of_the_dispatch_are_not_compared() -> None:
    """A dispatch that was not ours has no id and a project that boots has no story."""
    text = front(status="pass", story="US-001", attempt=7, dispatch="other")
    handoff = found(text, expected=Expected(story=None, step="bootstrap")).handoff

    assert ("US-001", 7, "other") == (handoff.story, handoff.attempt, handoff.dispatch)


@pytest.mark.parametrize(("seconds", "counts"), [(-3.0, False), (-2.0, True), (0.0, True), (60.0, True)])
def test_of_a_foreign_dispatch_only_later_files_count(seconds: float, counts: bool) -> None:
    """Two seconds before the dispatch are allowed for clocks that round."""
    written = DISPATCHED_AT + timedelta(seconds=seconds)
    there = texts(PASS, mtime_ns=int(written.timestamp()) * 1_000_000_000)

    reading = read_handoff(there, Expected(story="US-005", step="impl", since=DISPATCHED_AT))

    assert counts == isinstance(reading, Found)
    assert counts or (isinstance(reading, Stale) and "older than the dispatch" in reading.why)


# --- what two files say -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("handoff", "result", "status", "reason", "source"),
    [
        (PASS, b"status: pass", "pass", None, "executor-result"),
        (PASS, b"status: failing", "failing", None, "executor-result"),
        (front(status="failing"), b"status: pass", "failing", None, "front-matter"),
        (front(status="needs_human"), b"status: failing", "needs_human", None, "front-matter"),
        (front(status="failing"), b"status: needs_human", "needs_human", None, "executor-result"),
        (PASS, b"reason: scope_warning", "failing", "scope_warning", "executor-result"),
        (WITH_REASON, b"status: pass", "failing", "nfr_missing", "front-matter"),
        (WITH_REASON, b"status: failing", "failing", "nfr_missing", "executor-result"),
        (WITH_REASON, b"reason: scope_warning", "failing", "scope_warning", "executor-result"),
        (front(tests_fail=1), b"status: pass", "failing", None, "front-matter"),
        (front(summary="x"), b"status: failing", "failing", None, "executor-result"),
        (front(summary="x"), b"summary: y", "pass", None, "front-matter"),
        (front(summary="x"), None, "pass", None, "front-matter"),
        (front(tests_fail=1), None, "failing", None, "front-matter"),
        (PASS, b"no pairs here!", "pass", None, "front-matter"),
        (b"Old format.", b"status: pass", "pass", None, "executor-result"),
        (b"SCOPE WARNING", b"status: pass", "failing", "scope_warning", "old-format"),
        (b"Old format.", b"summary: y", None, None, "old-format"),
        (None, b"status: pass", "pass", None, "executor-result"),
        (None, b"reason: nfr_missing", "failing", "nfr_missing", "executor-result"),
    ],
)  # fmt: skip
def test_status_reason_and_source_of_two_files(
    handoff: bytes | None, result: bytes | None, status: str | None, reason: str | None, source: str
) -> None:
    """executor-result leads; where the two disagree the worse counts; a missing status has a default."""
    reading = found(handoff, result, EXPECTED if status is not None else BY_HAND)

    assert (status, reason, source) == (reading.handoff.status, reading.handoff.reason, reading.source)


@pytest.mark.parametrize(
    ("handoff", "result", "line"),
    [
        (b"# Done\n---\nstatus: pass\n---\n", None, 1),  # a heading before it
        (b"----\nstatus: pass\n----\n", None, 1),
        (b"status: pass\nstep: impl\n", None, 1),
        (b"All tests fail.\n", b"summary: y", 1),
        (front(status="pass", tests_fail="three"), None, 3),
        (front(tests_fail="[a, b]"), None, 2),
        (PASS, b"tests_fail: three", 1),
        (front(reason="build_broken"), None, None),
        (front(failing_tests="[a, b]"), None, None),
    ],
)
def test_what_an_executor_left_that_cannot_be_read_is_no_pass(
    handoff: bytes, result: bytes | None, line: int | None
) -> None:
    """A failure might be read as one; only a person's own agent is believed without front matter."""
    reading = read_handoff(texts(handoff, result), EXPECTED)

    assert isinstance(reading, Malformed)
    assert line == reading.problem.line
    assert isinstance(read_handoff(texts(handoff, result), BY_HAND), Found)


def test_what_says_that_it_failed_is_heard_as_it_is() -> None:
    """A word in the text, or the other file, is enough for a failure, and a status for a pass."""
    assert Status.FAILING is found(b"SCOPE WARNING: too wide").handoff.status
    assert Status.PASS is found(b"All is well.", b"status: pass").handoff.status
    assert Status.FAILING is found(front(status="failing", tests_fail="three")).handoff.status


def test_a_disagreement_is_the_first_warning() -> None:
    """Two files that agree have none."""
    reading = found(front(status="passed"), b"status: failing")

    warning = ".ai/HANDOFF.md says pass, .ai/executor-result says failing: the worse counts"
    assert warning == reading.warnings[0]
    assert () == found(PASS, b"status: pass").warnings


def test_other_fields_come_from_handoff_md_first() -> None:
    """executor-result fills in what is missing there."""
    result = b"status: pass\nsummary: short\ncommit_hash: abcdef1"
    handoff = found(front(summary="long", tests_pass=3), result).handoff

    assert ("long", "abcdef1") == (handoff.summary, handoff.commit_hash)
    assert handoff.tests is not None
    assert 3 == handoff.tests.passed


def test_errors_of_a_claim_are_kept() -> None:
    """An unknown status fails, an unknown reason does not; both are named."""
    handoff = found(front(status="green"), b"status: pass\nreason: moonlight").handoff

    assert (Status.FAILING, None) == (handoff.status, handoff.reason)
    error = ".ai/HANDOFF.md: unknown status 'green'; .ai/executor-result: unknown reason 'moonlight'"
    assert error == handoff.error


UNCLOSED = b"---\nstatus: pass\n"


@pytest.mark.parametrize("result", [None, b"status: pass", b"summary: x", b"x" * 70_000])
def test_an_unreadable_handoff_md_cannot_be_made_good_by_a_pass(result: bytes | None) -> None:
    """It may be half written."""
    reading = read_handoff(texts(UNCLOSED, result), EXPECTED)

    assert isinstance(reading, Malformed)
    assert ".ai/HANDOFF.md" == reading.problem.file


def test_a_failure_in_executor_result_counts_beside_an_unreadable_handoff_md() -> None:
    """So that its reason is not lost; the error has the problem, too."""
    reading = found(UNCLOSED, b"status: failing\nreason: needs_clarification")

    assert (Status.FAILING, Reason.NEEDS_CLARIFICATION) == (reading.handoff.status, reading.handoff.reason)
    assert "never closed" in (reading.handoff.error or "")


def test_an_unreadable_executor_result_does_not_void_handoff_md() -> None:
    """It is optional; a warning has the problem."""
    reading = found(PASS, b"x" * 70_000)

    assert Status.PASS == reading.handoff.status
    assert "larger than 64 KiB" in reading.warnings[0]


@pytest.mark.parametrize("result", [b"summary: x", b"hello there", b"x" * 70_000])
def test_an_executor_result_alone_must_have_a_status_or_a_reason(result: bytes) -> None:
    """A pass is never made out of nothing."""
    reading = read_handoff(texts(None, result), EXPECTED)

    assert isinstance(reading, Malformed)
    assert ".ai/executor-result" == reading.problem.file


# --- hostile bytes ------------------------------------------------------------------------------------
SOUND = ["pass", "failing", "-1", "9" * 30, "US-005", "~"]

VALUES = st.sampled_from([*SOUND, "[", "[a, b]", "{a: b}", "'", "*x", "!t x", "|", "\ufffd", "a: b"])

FIELDS = "story step attempt status reason files_changed tests_fail dispatch summary"

KEYS = st.sampled_from([*FIELDS.split(), "x", "- y", "?"])

LINES = st.lists(st.tuples(KEYS, VALUES), max_size=8).map(
    lambda pairs: "".join(f"{key}: {value}\n" for key, value in pairs)
)

BYTES = (
    st.binary(max_size=200)
    | st.text(max_size=80).map(lambda text: ("---\n" + text + "\n---\n").encode("utf-8", "replace"))
    | LINES.map(lambda lines: f"---\n{lines}---\nbody".encode())
    | LINES.map(str.encode)
)


@settings(max_examples=250)
@given(handoff=st.none() | BYTES, result=st.none() | BYTES)
def test_no_bytes_raise(handoff: bytes | None, result: bytes | None) -> None:
    """Whatever an agent leaves, there is a reading; and it can say why."""
    reading = read_handoff(texts(handoff, result), EXPECTED)

    assert isinstance(reading, Absent | Stale | Malformed | Found)
    if isinstance(reading, Found) and reading.source != "old-format":
        assert reading.handoff.status is not None


def test_claims_are_read_whatever_attempt_they_are_of() -> None:
    """The worse counts as ever; nothing is stale, and without a file there is no claim."""
    text = front(story="US-9", step="sdd_delta", status="pass")
    reading = read_claims(HandoffTexts(handoff=text, result=b"failing"))

    assert isinstance(reading, Found)
    assert ("US-9", "sdd-delta") == (reading.handoff.story, reading.handoff.step)
    assert Status.FAILING == reading.handoff.status
    assert read_claims(HandoffTexts(handoff=b" \n")) == Absent()
    assert isinstance(read_claims(HandoffTexts(handoff=b"---\nstatus: pass\n")), Malformed)


# --- one file as a claim -----------------------------------------------------------------------------
def claim(front: str) -> Claim:
    """Return the claim of a HANDOFF.md with this front matter."""
    return claim_of_handoff(handoff_pieces(f"---\n{front}\n---\n".encode()))


@pytest.mark.parametrize(
    ("front", "status", "reason"),
    [
        ("status: pass", Status.PASS, None),
        ("status: failing", Status.FAILING, None),
        ("status: needs_human", Status.NEEDS_HUMAN, None),
        ("status: Passed", Status.PASS, None),
        ("Status: failed", Status.FAILING, None),
        ("status: ''", None, None),
        ("x: 1", None, None),
        ("tests_fail: 2", Status.FAILING, None),
        ("tests_fail: 0", None, None),
        ("status: pass\ntests_fail: 2", Status.PASS, None),
        ("status: pass\nreason: scope_warning", Status.FAILING, Reason.SCOPE_WARNING),
        ("reason: Needs-Clarification", Status.FAILING, Reason.NEEDS_CLARIFICATION),
        ("status: needs_human\nreason: nfr_missing", Status.NEEDS_HUMAN, Reason.NFR_MISSING),
        ("status: pass\nreason: none", Status.PASS, None),
        ("status: pass\nreason: ~", Status.PASS, None),
    ],
)
def test_status_and_reason_of_a_claim(front: str, status: Status | None, reason: Reason | None) -> None:
    """A valid reason outranks pass and a missing status; failing tests stand for a missing status."""
    found = claim(front)

    assert (status, reason, ()) == (found.status, found.reason, found.errors)


@pytest.mark.parametrize(
    "status", ["green", "pending", "running", "timeout", "[pass]", "pass|failing", "true"]
)
def test_a_status_that_no_hand_off_has_is_a_failure(status: str) -> None:
    """The error names what was written."""
    found = claim(f"status: {status}")

    assert Status.FAILING == found.status
    assert status.strip("[]") in found.errors[0]


@pytest.mark.parametrize("reason", ["because", "[scope_warning]", "{a: b}"])
def test_an_unknown_reason_is_none(reason: str) -> None:
    """Its text is kept, and so is the status."""
    found = claim(f"status: pass\nreason: {reason}")

    assert (Status.PASS, None) == (found.status, found.reason)
    assert "unknown reason" in found.errors[0]


def test_all_fields_of_a_claim() -> None:
    """Ids and hashes are kept as they were written, digits or not."""
    found = claim(
        "story: 013\nstep: api_contract\nattempt: 2\ndispatch: 20261121T073312-4f9a1c\ncommit_hash: 1234567\n"
        "tests_pass: 3\ntests_skip: '1'\nsummary: ' a\n\n  b '\nmore: [1]"
    )

    assert ("013", "api_contract", 2, "20261121T073312-4f9a1c", "1234567") == (
        found.story, found.step, found.attempt, found.dispatch, found.commit_hash
    )  # fmt: skip
    assert TestCounts.model_validate({"pass": 3, "fail": 0, "skip": 1}) == found.tests
    assert "a\nb" == found.summary
    assert () == found.warnings


@pytest.mark.parametrize(
    ("front", "files"),
    [
        ("files_changed:\n  - a.py\n  - b c.py", ("a.py", "b c.py")),
        ("files_changed: [a.py, ./b//c.py, a.py]", ("a.py", "b/c.py")),
        ("files_changed: a.py, b.py", ("a.py", "b.py")),
        ("files-changed: a.py", ("a.py",)),
        ("files_changed: none", ()),
        ("files_changed: [none]", ()),
        ("files_changed:", ()),
        ("files_changed:\n - '`a.py`'\n - b.py: it\n - {path: c.py, n: 3}", ("a.py", "b.py", "c.py")),
    ],
)
def test_lists_of_files(front: str, files: tuple[str, ...]) -> None:
    """Block, inline, a bare text, and items that say what was done."""
    found = claim(front)

    assert (files, ()) == (found.files_changed, found.warnings)


@pytest.mark.parametrize(
    ("front", "warning"),
    [
        ("files_changed: [/etc/passwd, ../x]", "not a path inside the project"),
        ("files_changed: {a: b}", "must be a list"),
        ("files_changed: [[a]]", "not text"),
        ("story: [US-1]", "must be text"),
        ("attempt: first", "not a number"),
        ("tests_pass: -3", "not a number"),
        ("tests_pass: 9999999999", "not a number"),
        ("commit_hash: HEAD", "not a commit"),
        ("status: pass\nStatus: failing", "also given"),
        ("status: passed", "'passed' is read as 'pass'"),
        ("status: pass\ntests_fail: 1", "pass with 1 failing"),
        ("status: pass\nreason: scope_warning", "outranks"),
    ],
)
def test_an_unusable_value_is_left_out_with_a_warning(front: str, warning: str) -> None:
    """The warning names file, line and key; the rest of the claim counts."""
    found = claim(front)

    assert warning in found.warnings[0]
    assert found.warnings[0].startswith(".ai/HANDOFF.md:")
    empty = (found.files_changed, found.story, found.attempt, found.commit_hash)
    assert ((), None, None, None) == empty


def test_numbers_with_words_around_them() -> None:
    """`2 of 5` is attempt 2, with a warning."""
    found = claim("attempt: 2 of 5\ntests_pass: 12 passed")

    assert 2 == found.attempt
    assert found.tests is not None
    assert 12 == found.tests.passed
    assert len(found.warnings) == 2


def test_sizes_are_limited() -> None:
    """Prompts and the journal take only so much of a text."""
    names = ", ".join(f"t{number}" for number in range(MAX_ITEMS + 1))
    found = claim_of_result(result_pieces(f"summary: {'x' * 5000}\nfailing_tests: {names}".encode()))

    assert MAX_SUMMARY_CHARACTERS == len(found.summary or "")
    assert MAX_ITEMS == len(found.failing_tests)
    assert len(found.warnings) == 2


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ("- [NEEDS CLARIFICATION] which?", Status.FAILING, Reason.NEEDS_CLARIFICATION),
        ("a CONSTITUTION VIOLATION", Status.FAILING, Reason.CONSTITUTION_VIOLATION),
        ("SCOPE WARNING: too much", Status.FAILING, Reason.SCOPE_WARNING),
        ("All done, no scope warning.\n", None, None),
    ],
)
def test_the_old_format_is_searched(body: str, status: Status | None, reason: Reason | None) -> None:
    """Without front matter the body's own words fail the attempt; without these the exit code decides."""
    found = claim_of_handoff(handoff_pieces(body.encode()))

    assert (True, status, reason) == (found.old_format, found.status, found.reason)


@pytest.mark.parametrize(
    ("text", "status"), [("pass\n", Status.PASS), ("FAILED", Status.FAILING), ("hm", None)]
)
def test_an_executor_result_of_one_word(text: str, status: Status | None) -> None:
    """A lone status word is a status."""
    assert status == claim_of_result(result_pieces(text.encode())).status
