"""What verify reports was measured, and the design has the change once."""

from __future__ import annotations

from tests.support.rehearsal import Rehearsal

from handoffd.rehearsal.assignment import Assignment
from handoffd.rehearsal.programs import claimed, measured
from handoffd.rehearsal.workspace import Workspace

VERIFY = Assignment("verify", "US-001", 1, "d-1", "")


def test_failing_tests_fail_the_step(shop: Rehearsal) -> None:
    """Without the feature the tests really fail, and the hand-off says how many and which."""
    shop.passes("scaffold")

    report = measured(Workspace(str(shop.root)), VERIFY)

    assert ("failing", (5, 6, 0)) == (report.status, report.tests)
    assert 6 == len(report.failing)
    assert "tests/test_discounts.py::test_a_valid_code_lowers_the_total" in report.failing


def test_a_test_file_that_cannot_be_loaded_is_not_a_pass(shop: Rehearsal) -> None:
    """pytest's refusal to go on counts as what it is."""
    (shop.root / "tests/test_pricing.py").write_text("import nothing_of_that_name\n")

    report = measured(Workspace(str(shop.root)), VERIFY)

    assert ("failing", 1) == (report.status, report.tests.failed)


def test_a_runner_that_breaks_is_no_pass(shop: Rehearsal) -> None:
    """What it said last is handed over."""
    (shop.root / "tests/conftest.py").write_text("raise SystemExit('no database')\n")

    report = measured(Workspace(str(shop.root)), VERIFY)

    assert ("failing", "the tests could not be run: no database") == (report.status, report.summary)


def test_without_pytest_the_counts_are_claimed_and_the_notes_say_so(shop: Rehearsal) -> None:
    """A project's own Python may have no pytest; that is no failure of the story."""
    python = shop.root / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho No module named pytest >&2\nexit 1\n")
    python.chmod(0o755)

    report = measured(Workspace(str(shop.root)), VERIFY)

    assert ("pass", (5, 0, 0)) == (report.status, report.tests)
    assert "claimed, not run" in " ".join(report.notes)


def test_the_change_is_merged_into_the_design_once(shop: Rehearsal) -> None:
    """Every item of the change is in the design; what was there stays."""
    shop.passes("sdd-delta")
    before = shop.text("docs/sdd.md")

    claimed(Workspace(str(shop.root)), VERIFY)
    claimed(Workspace(str(shop.root)), VERIFY)

    after = shop.text("docs/sdd.md")
    assert after.startswith(before)
    assert (1, 4, 1) == tuple(after.count(text) for text in ("## Since US-001", "- added: ", "- modified: "))
    assert "removed" not in after


def test_without_a_change_there_is_nothing_to_merge(foreign: Rehearsal) -> None:
    """The design stays as it is, and is not reported as changed."""
    report = claimed(Workspace(str(foreign.root)), VERIFY)

    assert ((), "# Design\n\nBy hand.\n") == (report.files, foreign.text("docs/sdd.md"))
    assert "missing" in " ".join(report.notes)
