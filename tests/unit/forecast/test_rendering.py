"""The plan on a screen: one page, 80 columns, nothing that a terminal obeys."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.forecast.evenings import NOW, SHIPPED, planned, project
from tests.unit.forecast.test_planning import limit, schedule

from handoffd.forecast.plan import Tonight
from handoffd.forecast.rendering import as_text, headline, in_short
from handoffd.forecast.snapshot import ProjectNow
from handoffd.settings.model import CapSettings
from handoffd.settings.notify import QuietSettings


def everything(**more: Any) -> Tonight:
    """Return a night of which every section has something to say."""
    parts: dict[str, Any] = {
        "limits": (limit(until=NOW + timedelta(minutes=30)),), "schedules": (schedule(),),
        "quiet": QuietSettings(start="21:00", end="07:00"), "caps": CapSettings(daemon_usd=9), **more,
    }  # fmt: skip
    return planned(project("US-1", "US-2"), project("US-7", root="/srv/blog", rules=SHIPPED), **parts)


def test_the_screen_of_a_night() -> None:
    """Outcomes first; then each story, and what stops it with the command against that."""
    lines = as_text(everything(), UTC).splitlines()
    assert "Until 08:00 (10 h): 2 stories done, 1 story stops" == lines[0]
    assert "  shop US-1             22:30 bdd to update-memory; done 23:40" in lines
    assert "  blog US-7             22:30 bdd to contract; stops 23:00 at review" in lines
    stop = lines.index("  blog                  23:00 at review, before any code (US-7)")
    assert "      handoffd init blog --gates after" == lines[stop + 1]
    assert "  claude                until 22:30: 5 hours" in lines
    assert "  21:00 to 07:00: only urgent notices are sent" in lines
    assert "  shop                  00:00 nightly: US-9, skipped: US-2 is in flight" in lines
    assert "  each step as it went before in its project, in the median" in lines


@pytest.mark.parametrize(
    ("projects", "said"),
    [
        ((project("US-1", rules=SHIPPED),), "Every story stops at review, before its first line of code."),
        (
            (project("US-1", "US-2", rules=SHIPPED),),
            "1 of 2 stories stops at review, before its first line of code; the others do not",
        ),
        (
            (*(project("US-1", rules=SHIPPED, root=root) for root in "ab"), project("US-8", root="c")),
            "2 of 3 stories stop at review, before their first line of code.",
        ),
    ],
)  # fmt: skip
def test_what_stops_at_a_gate_before_its_code_comes_first(
    projects: tuple[ProjectNow, ...], said: str
) -> None:
    """It is what a person wants to know before going to bed."""
    night = planned(*projects)
    assert said == as_text(night, UTC).splitlines()[1]
    assert said in in_short(night, UTC)


def test_counts_of_nothing_are_left_out() -> None:
    """A night in which nothing is done says what stops."""
    held = project("US-1", paused_by="mei")
    assert "Until 08:00 (10 h): 1 not begun" == headline(planned(held), UTC)
    assert "Until 08:00 (10 h): nothing" == headline(planned(), UTC)


def test_the_lines_fit_a_terminal_but_for_commands() -> None:
    """However long names are, and whatever signs are in them."""
    hostile = "US-\x1b[2J" + "x" * 60
    night = everything()
    stories = tuple(replace(one, story=hostile, why="y" * 300) for one in night.stories)
    stops = tuple(replace(one, name="n" * 90, why="\x07" + "z" * 200) for one in night.stops)
    text = as_text(replace(night, stories=stories, stops=stops), UTC)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert [] == [line for line in text.splitlines() if len(line) > 80 and not line.startswith("      ")]


def test_a_plan_that_does_not_hold_warns() -> None:
    """No daemon, more work than is played through, nothing at all."""
    assert "No daemon runs" in as_text(replace(everything(), daemon=False), UTC)
    assert "There is more work than is planned ahead" in as_text(replace(everything(), whole=False), UTC)
    assert "no story is in flight or waits" in as_text(planned(), UTC)


def test_the_short_form_names_the_first_that_stops_it() -> None:
    """For the report of a night."""
    held = planned(project("US-1", paused_by="mei"), project("US-7", root="/srv/blog"))
    assert "First of what stops it: shop: paused by mei." in in_short(held, UTC)
    assert "See: handoffd tonight" in in_short(planned(project("US-1")), UTC)


def test_a_plan_by_the_protocol_says_so() -> None:
    """It has no cost, and says that, too."""
    text = as_text(planned(project("US-1"), took={}), UTC)
    assert "there is no past yet" in text
    assert "without a known cost: 7 steps" in text
