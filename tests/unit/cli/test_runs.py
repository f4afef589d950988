"""`handoffd runs`."""

from __future__ import annotations

from tests.support.commands import Commands
from tests.support.controlled import Controlled
from tests.unit.store.making import dispatch, record, track

from handoffd.cli.wording import moment
from handoffd.engine.events import Advanced
from handoffd.protocol.state import Status


def test_one_line_a_dispatch(control: Controlled, handoffd: Commands) -> None:
    """Newest first; what has no verdict runs."""
    begun = track(status=Status.RUNNING, dispatch=dispatch())
    control.commit(record(Advanced(dispatch="d1", executor="claude"), after=begun))

    decided = moment("2026-01-31T22:15:09.123Z")
    assert [
        "DECIDED              PROJECT  STORY  STEP  ATTEMPT  RESULT   RUN",
        f"{decided}  shop     US-1   bdd   1        running  d1",
    ] == handoffd("runs", "shop").lines
    assert ["d1"] == [run["run"] for run in handoffd("runs", "--json").json["runs"]]


def test_nothing_is_said(control: Controlled, handoffd: Commands) -> None:
    """In words for people, as an empty list for programs."""
    assert ["Nothing has run yet."] == handoffd("runs").lines
    assert {"runs": []} == handoffd("runs", "--json").json
