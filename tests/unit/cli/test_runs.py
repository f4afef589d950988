"""`handoffd runs`."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.support.commands import Commands
from tests.support.controlled import Controlled
from tests.unit.journal.making import dispatch, record, track

from handoffd.cli.runs import runs_report
from handoffd.cli.wording import moment, unstyled
from handoffd.engine.events import Advanced
from handoffd.protocol.state import Status


def test_one_line_a_dispatch(control: Controlled, handoffd: Commands) -> None:
    """Newest first; what has no verdict runs."""
    begun = track(status=Status.RUNNING, dispatch=dispatch())
    control.commit(record(Advanced(dispatch="d1", executor="claude"), after=begun))

    decided = moment("2026-01-31T22:15:09.123Z")
    assert [
        "DECIDED              PROJECT  STORY  STEP  ATTEMPT  RESULT   TOKENS  COST  RUN",
        f"{decided}  shop     US-1   bdd   1        running  –       –     d1",
    ] == handoffd("runs", "shop").lines
    assert ["d1"] == [run["run"] for run in handoffd("runs", "--json").json["runs"]]


def test_every_command_calls_a_project_the_same(control: Controlled, handoffd: Commands) -> None:
    """What is shown in one place can be typed in another: its own name, not its folder's."""
    view = control.supervision.projects["/srv/shop"]
    control.supervision.projects = {"/srv/shop": replace(view, name="corner")}
    begun = track(status=Status.RUNNING, dispatch=dispatch())
    control.commit(record(Advanced(dispatch="d1", executor="claude"), after=begun))

    for words in (
        ["status"],
        ["projects"],
        ["runs"],
        ["runs", "corner"],
        ["events"],
        ["events", "-p", "corner"],
    ):
        said = handoffd(*words)
        assert 0 == said.code, words
        assert "corner" in said.out, words
        assert "shop" not in said.out.replace("/srv/shop", ""), words
    (run,) = handoffd("runs", "--json").json["runs"]
    assert ("/srv/shop", "corner") == (run["project"], run["name"])
    assert "corner" == json.loads(handoffd("events", "--json").out)["name"]


def test_one_that_nobody_supervises_is_called_by_its_folder(control: Controlled, handoffd: Commands) -> None:
    """Its history stays."""
    control.supervision.projects.clear()
    begun = track(status=Status.RUNNING, dispatch=dispatch())
    control.commit(record(Advanced(dispatch="d1", executor="claude"), after=begun))

    assert ["shop"] == [run["name"] for run in handoffd("runs", "--json").json["runs"]]


def test_nothing_is_said(control: Controlled, handoffd: Commands) -> None:
    """In words for people, as an empty list for programs."""
    assert ["Nothing has run yet."] == handoffd("runs").lines
    assert {"runs": []} == handoffd("runs", "--json").json


def test_a_small_screen_gets_what_fits_and_is_told_of_the_rest() -> None:
    """The run's name stays, for the next command needs it; a pipe gets every column."""
    run = {
        "decided_at": "2026-01-31T22:15:09.123Z", "project": "/srv/portal", "name": "customer-portal",
        "story": "US-001", "step": "update-memory", "attempt": 1, "result": "failing",
        "usage": None, "run": "20260131T221509.123-4711",
    }  # fmt: skip

    *lines, last = runs_report([run], 80)

    assert all(len(unstyled(line)) <= 80 for line in [*lines, last])
    assert "20260131T221509.123-4711" in lines[1]
    assert last.startswith("Not on this screen: DECIDED, ")
    assert 2 == len(runs_report([run]))
