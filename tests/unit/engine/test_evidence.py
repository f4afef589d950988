"""What a test run proves about a claim."""

from __future__ import annotations

from tests.support.playbook import green, red

from handoffd.engine.judging import green_problem, red_problem


def test_red_is_a_new_failing_test() -> None:
    """One is enough; none, or only old ones, is not."""
    assert red_problem(red("t.py::new")) is None
    assert "no new test fails" in (red_problem(green(3)) or "")
    assert "no new test fails" in (red_problem(red("old", new_failing=0)) or "")


def test_a_broken_old_test_is_not_red() -> None:
    """What passed before the story must still pass, and is named when it does not."""
    problem = red_problem(red("t.py::new", regressed=("t.py::old",)))
    assert "tests that passed before this story fail now: t.py::old" == problem


def test_green_is_no_failing_test_of_the_storys_own() -> None:
    """Known failures do not count, collecting nothing does."""
    assert green_problem(green(3, known_failing=("old",))) is None
    assert "1 tests fail: t" == green_problem(red("t"))
    assert "the test command collected no test" == green_problem(green(0))
    assert green_problem(green(0, verified=False)) is None


def test_long_lists_of_tests_are_cut() -> None:
    """A person reads the first few and how many more there are."""
    names = tuple(f"t{number}" for number in range(8))
    assert "8 tests fail: t0, t1, t2, t3, t4 and 3 more" == green_problem(red(*names))
