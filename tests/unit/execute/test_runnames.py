"""What runs are called."""

from __future__ import annotations

from handoffd.execute.checks import MAX_TRIES, check_run, runs_of, tried_again


def test_a_check_is_named_after_its_dispatch() -> None:
    """The first try by the check alone."""
    assert "d1.tests" == check_run("d1", "tests") == tried_again(check_run("d1", "tests"), 1)
    assert "d1.post.3" == tried_again(check_run("d1", "post"), 3)


def test_the_runs_of_a_dispatch_are_its_executor_and_all_tries_of_all_checks() -> None:
    """Each once."""
    names = runs_of("d1")

    assert "d1" == names[0]
    assert {"d1.baseline", "d1.tests", "d1.rest", "d1.post", f"d1.rest.{MAX_TRIES}"} <= {*names}
    assert 1 + 4 * MAX_TRIES == len({*names}) == len(names)
