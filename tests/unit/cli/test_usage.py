"""`handoffd usage`."""

from __future__ import annotations

import csv
from dataclasses import replace

from tests.support.commands import Commands
from tests.support.controlled import Controlled
from tests.unit.journal.making import NOW, dispatch, record, track

from handoffd.cli.runs import usage_report
from handoffd.cli.wording import unstyled
from handoffd.engine.events import ExecutorExited
from handoffd.engine.run import Exit, Usage
from handoffd.protocol.handoff import Absent
from handoffd.protocol.state import Status

USED = Usage(
    input_tokens=1000, output_tokens=9000, cache_read_tokens=90_000, cost_usd=0.42, priced="provider"
)


def ran(control: Controlled, run: str, usage: Usage | None, story: str = "US-1") -> None:
    """Have a run end that used something."""
    begun = replace(dispatch(run), story=story)
    control.commit(record(after=track(status=Status.RUNNING, story=story, dispatch=begun)))
    event = ExecutorExited(dispatch=run, exit=Exit(code=0, usage=usage), reading=Absent())
    control.commit(record(event, after=track(status=Status.PASS)))


def test_steps_are_listed_beside_what_is_expected(control: Controlled, handoffd: Commands) -> None:
    """With all of them below, and what is not known of some."""
    ran(control, "d1", USED)
    ran(control, "d2", None)

    assert [
        "STEP  RUNS  INPUT  OUTPUT  CACHE READ  CACHE WRITE  TOKENS   COST   NEW A RUN  REFERENCE",
        "bdd   2     1,000  9,000   90,000      0            100,000  $0.42  10,000     2,000–5,000  above",
        "all   2     1,000  9,000   90,000      0            100,000  $0.42",
        "1 of 2 runs did not report their usage.",
    ] == handoffd("usage").lines


def test_runs_without_a_price_are_told_of(control: Controlled, handoffd: Commands) -> None:
    """And how to mend that."""
    ran(control, "d1", Usage(output_tokens=5))
    said = handoffd("usage", "--by", "project")
    assert "shop     1     0      5       0           0            5       –" == said.lines[1]
    assert "The cost of 1 of 1 run is unknown: see `prices` in the settings." == said.lines[-1]


def test_it_can_be_grouped_and_narrowed(control: Controlled, handoffd: Commands) -> None:
    """By what, since when, of which project."""
    ran(control, "d1", USED)
    by_story = handoffd("usage", "shop", "--by", "story", "--json").json
    assert ("story", "/srv/shop", None) == (by_story["by"], by_story["project"], by_story["since"])
    assert ["US-1"] == [row["story"] for row in by_story["rows"]]
    later = (NOW.replace(year=NOW.year + 1)).date().isoformat()
    assert ["No run has ended since then."] == handoffd("usage", "--since", later).lines
    assert [] == handoffd("usage", "empty", "--json").json["rows"]


def test_comma_separated_values_are_for_spreadsheets(control: Controlled, handoffd: Commands) -> None:
    """A name from a project is no formula there."""
    ran(control, "d1", USED, story='=HYPERLINK("x")')
    (row,) = csv.DictReader(handoffd("usage", "--by", "story", "--csv").lines)
    assert ("""'=HYPERLINK("x")""", "0.42", "10000", "15000") == (
        row["story"], row["cost_usd"], row["new_tokens"], row["reference_low"],
    )  # fmt: skip


def test_nothing_has_used_nothing(control: Controlled, handoffd: Commands) -> None:
    """Not an empty table."""
    assert ["No run has ended yet."] == handoffd("usage").lines
    assert "" == handoffd("usage", "--csv").out


def test_what_cannot_be_asked_is_wrong_usage(control: Controlled, handoffd: Commands) -> None:
    """The client knows the groups, the daemon what a time is."""
    assert 2 == handoffd("usage", "--by", "month").code
    said = handoffd("usage", "--since", "yesterday")
    assert (1, True) == (said.code, "next: handoffd usage --since 7d" in said.err)


def test_runs_show_what_each_used(control: Controlled, handoffd: Commands) -> None:
    """In columns, and in JSON."""
    ran(control, "d1", USED)
    assert "pass    100,000  $0.42  d1" in handoffd("runs").out
    (run,) = handoffd("runs", "--json").json["runs"]
    assert (100_000, 0.42, "provider") == tuple(run["usage"][key] for key in ("tokens", "cost_usd", "priced"))


def test_a_small_screen_gets_the_sums(control: Controlled, handoffd: Commands) -> None:
    """The kinds of tokens give way first; what is left out is named."""
    ran(control, "d1", Usage(input_tokens=1_234_567, output_tokens=7_654_321, cache_read_tokens=987_654_321))
    found = handoffd("usage", "--json").json

    lines = usage_report(found, 80)

    assert all(len(unstyled(line)) <= 80 for line in lines), lines
    assert "TOKENS" in lines[0]
    assert any(line.startswith("Not on this screen: ") for line in lines)
    assert "CACHE WRITE" in usage_report(found)[0]
