"""A short slice of the soak: the same house, the same restarts, the same checks, in half a minute."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

from tests.soak.campaign import Soak, plan
from tests.soak.report import curves, result, table
from tests.soak.workspace import workspace


def test_a_workspace_is_soaked() -> None:
    """Every story ends as scripted, each notice is sent once, nothing is left behind."""
    told: list[str] = []
    # Not pytest's folders: the path of a socket has room for about a hundred bytes only.
    with tempfile.TemporaryDirectory(prefix="handoffd-") as base:
        soak = Soak(
            workspace(Path(base, "house"), 6, 3), Random("slice"), plan(0.2, 2, rest_s=0.5), told.append
        )
        try:
            soak.run()
            found = result(soak, soak.judged(), warm_up_s=1)
        finally:
            soak.abandon()

    assert ([], []) == (found["violations"], found["faults"])
    assert 2 == found["restarts"]
    assert found["stories"] >= 6
    assert found["notices"] >= 6
    assert told
    assert "promises broken" in table(found)
    assert curves(soak).startswith("<svg")
