"""What a red step leaves, and whether a green one has made just that pass."""

from __future__ import annotations

import pytest

from handoffd.execute.proof import MAX_RED, Files, Red, lost, nothing_passes, red_of, said_of, unmet
from handoffd.execute.reports.report import LoadError, Outcome, TestReport

NOTHING = Red()


def report(*files: str, **results: Outcome) -> TestReport:
    """Return a report of tests `t::name`; `files` could not be loaded."""
    return TestReport(
        results={f"t::{name}": outcome for name, outcome in results.items()},
        load_errors=tuple(LoadError(file=file) for file in files),
    )


def test_a_red_step_leaves_its_new_failures() -> None:
    """Not what failed or passed before the story, nor a file that could not be loaded then."""
    found = report("new.py", "old.py", a="failed", b="error", c="passed", d="skipped", old="failed")
    assert Red(ids=("t::a", "t::b"), files=("new.py",)) == red_of(
        found, {"t::old": "failed"}, {"old.py"}, NOTHING
    )


def test_of_a_hostile_report_not_every_id_is_kept() -> None:
    """The number of the others is."""
    many = TestReport(results={f"t::{number}": "failed" for number in range(MAX_RED + 7)})
    red = red_of(many, {}, (), NOTHING)
    assert (MAX_RED, 7) == (len(red.ids), red.more)


def test_what_an_earlier_red_step_left_counts_while_it_is_there() -> None:
    """Also the tests of a file that could not be loaded then, though they pass by now."""
    before = Red(ids=("t::a", "t::gone", "t::idle"), files=("tests/test_new.py",))
    found = TestReport(
        results={
            "t::a": "passed", "t::idle": "skipped", "tests.test_new.TestIt::b": "passed",
            "tests.test_old::c": "passed",
        }
    )  # fmt: skip
    assert ("t::a", "tests.test_new.TestIt::b") == red_of(found, {}, (), before).ids


@pytest.mark.parametrize(
    ("found", "missed"),
    [
        (report(a="passed", b="passed"), []),
        (report(a="passed", b="failed"), []),  # a failing test has words of its own
        (report(a="passed"), ["t::b is missing"]),
        (report(a="skipped", b="passed"), ["t::a is skipped"]),
        (report(), ["t::a is missing", "t::b is missing"]),
    ],
)
def test_every_red_test_must_run_and_pass(found: TestReport, missed: list[str]) -> None:
    """Others in their place do not count."""
    assert missed == [str(one) for one in unmet(Red(ids=("t::a", "t::b")), found, {})]


@pytest.mark.parametrize(
    ("results", "missed"),
    [
        ({"tests.test_new::a": "passed"}, []),
        ({"tests.test_new.TestIt::a": "failed"}, []),
        ({"test_new::a": "passed"}, []),  # a runner that begins in the folder of the tests
        ({}, ["tests/test_new.py has no test that ran"]),
        ({"tests.test_newer::a": "passed"}, []),  # no id says its file: it may be one of it
        ({"old::a": "passed"}, ["tests/test_new.py has no test that ran"]),
        (
            {"tests.test_new::a": "skipped"},
            ["tests.test_new::a is skipped", "tests/test_new.py has no test that ran"],
        ),
        ({"tests.test_new::a": "skipped", "tests.test_new::b": "passed"}, ["tests.test_new::a is skipped"]),
        ({"tests.test_new::own": "skipped", "tests.test_new::b": "passed"}, []),
    ],
)
def test_of_a_file_that_could_not_be_loaded_a_test_must_run(
    results: dict[str, Outcome], missed: list[str]
) -> None:
    """None may be skipped but what the red step's own files skip."""
    red, own = Red(files=("tests/test_new.py",)), {"tests.test_new::own"}
    found = unmet(red, TestReport(results=results), {"old::a": "passed"}, own)
    assert missed == [str(one) for one in found]


def test_a_test_that_passes_only_with_the_red_steps_files_is_lost() -> None:
    """One from before the story may go: it passed there, too."""
    first, second = report(a="passed", b="skipped"), report(a="passed", b="passed", c="passed", old="passed")
    found = lost(first, second, {"t::old": "passed"})
    assert ["t::b is skipped", "t::c is missing"] == [str(one) for one in found]
    said = "tests_changed: 2 tests that were red did not run and pass: t::b is skipped, t::c is missing"
    assert said == said_of(found)


@pytest.mark.parametrize(
    ("found", "excused", "said"),
    [
        (report(a="passed", b="skipped"), 0, None),
        (report(), 0, None),
        (report(a="skipped", b="failed"), 1, "no test passes: 1 skipped, 1 failed before this story"),
        (TestReport(verified=False), 0, None),
    ],
)
def test_some_test_must_pass(found: TestReport, excused: int, said: str | None) -> None:
    """An exit code alone does not tell; a run that collects nothing has words of its own."""
    assert said == nothing_passes(found, excused)


def test_ids_say_their_file_by_path_or_module() -> None:
    """As pytest, vitest and jest write them; node's ids say none."""
    files = Files(("tests/test_a.py", "src/cart.test.ts"))
    assert "tests/test_a.py" == files.of("tests.test_a.TestX::test_1")
    assert "src/cart.test.ts" == files.of("src/cart.test.ts::adds > twice")
    assert files.of("adds::twice") is None
