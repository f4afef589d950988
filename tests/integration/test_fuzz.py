"""A slice of what `make fuzz-api` does: some endpoints, few cases, all checks."""

from __future__ import annotations

import pytest
from tests.fuzz.__main__ import run

SOME = ("usage", "events", "note", "budget")


@pytest.mark.slow
def test_the_daemon_is_as_its_description_says() -> None:
    """Whatever a machine that reads the description can think of."""
    some = [word for name in SOME for word in ("--include-operation-id", name)]

    ended = run(["--phases", "coverage,fuzzing", "--max-examples", "2", *some], limit_s=600)

    assert 0 == ended.returncode
