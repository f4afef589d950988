"""One hand-off file as a claim: fields normalised, nothing raised."""

from __future__ import annotations

import pytest

from handoffd.protocol.handoff_text import handoff_pieces, result_pieces
from handoffd.protocol.reading import (
    MAX_ITEMS,
    MAX_SUMMARY_CHARACTERS,
    Claim,
    claim_of_handoff,
    claim_of_result,
)
from handoffd.protocol.state import Reason, Status, TestCounts


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
