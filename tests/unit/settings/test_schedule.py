"""Entries of `schedule` in the settings."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from pydantic import ValidationError

from handoffd.settings.schedule import ScheduledStart, SharedStart, expanded, must_differ

SUNDAY = datetime(2027, 1, 3, 3, 5)  # noqa: DTZ001  (only its digits are looked at)


def entry(**changes: Any) -> ScheduledStart:
    """Return an entry with `changes`."""
    return ScheduledStart(**{"name": "nightly", "cron": "0 3 * * *", "start": "REVIEW-{date}", **changes})


def test_the_time_it_is_due_is_filled_into_the_story() -> None:
    """Date, time, and the week as ISO counts it."""
    assert "a-2027-01-03-0305-2026-W53" == expanded("{name}-{date}-{time}-{week}", "a", SUNDAY)
    assert "REVIEW-2027-01-03" == entry().story(SUNDAY)


def test_a_custom_task_has_a_label_of_its_own() -> None:
    """Else each would be the one of the night before."""
    custom = entry(start=None, custom="Look around.")
    assert "nightly-2027-01-03-0305" == custom.story(SUNDAY)
    assert "LOOK-2026-W53" == entry(start=None, custom="Look.", label="LOOK-{week}").story(SUNDAY)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "../x"}, "must be 1 to 32 of"),
        ({"name": "x" * 33}, "must be 1 to 32 of"),
        ({"cron": "x"}, "must be five fields"),
        ({"timezone": "Mars/Olympus"}, "must be a time zone such as"),
        ({"timezone": "/etc/passwd"}, "must be a time zone such as"),
        ({"start": "a b"}, "must be the id of a story"),
        ({"start": "{story}"}, "must be the id of a story"),
        ({"start": "x" * 60 + "{date}"}, "must be the id of a story"),
        ({"custom": "Both."}, "and not both"),
        ({"start": None}, "must have `start`"),
        ({"catch_up_h": 0}, "greater than 0"),
        ({"jitter_s": 3601}, "less than or equal to 3600"),
        ({"overlap": "never"}, "'skip' or 'queue'"),
        ({"projects": ["*"]}, "Extra inputs"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], said: str) -> None:
    """Before anything is started by it."""
    with pytest.raises(ValidationError) as caught:
        entry(**changes)
    assert said in str(caught.value)


def test_executors_are_a_list_or_a_text_with_commas() -> None:
    """As on the command line."""
    assert ("claude", "codex") == entry(executor="claude, codex").executor
    assert ("claude",) == entry(executor=["claude"]).executor


def test_an_entry_of_the_daemon_says_for_which_projects() -> None:
    """None at all is no answer."""
    with pytest.raises(ValidationError):
        SharedStart(name="a", cron="@daily", start="X", projects=())


def test_two_entries_have_two_names() -> None:
    """What has become of them is kept by name."""
    assert (entry(), entry(name="b")) == must_differ((entry(), entry(name="b")))
    with pytest.raises(ValueError, match="two entries are called 'nightly'"):
        must_differ((entry(), entry()))


def test_another_time_or_zone_is_another_schedule() -> None:
    """It begins anew; another story does not."""
    assert entry().fingerprint == entry(start="X").fingerprint
    assert 3 == len({one.fingerprint for one in (entry(), entry(cron="@daily"), entry(timezone="UTC"))})
