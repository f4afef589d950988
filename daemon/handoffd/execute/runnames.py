"""What the runs of a dispatch are called: the executor as the dispatch, each check with a word after a dot.

Whoever looks for them asks for each by name: to find them in the folder of all runs takes longer with every
run that was ever begun.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

Check = Literal["baseline", "tests", "rest", "post"]

MAX_TRIES: Final = 3
"""Runs of one check before its missing result is taken for a fault of the environment."""


def check_run(dispatch: str, check: Check) -> str:
    """Return the name of a check's run."""
    return f"{dispatch}.{check}"


def tried_again(name: str, number: int) -> str:
    """Return the name of a check's run when it is tried for the `number`-th time, from 1."""
    return name if number == 1 else f"{name}.{number}"


def runs_of(dispatch: str) -> tuple[str, ...]:
    """Return every name that a run of a dispatch may have; few of them are there."""
    checks = (check_run(dispatch, check) for check in get_args(Check))
    return (dispatch, *(tried_again(name, 1 + tries) for name in checks for tries in range(MAX_TRIES)))
