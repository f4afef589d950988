"""Quiet hours and digests, by a wall clock that may jump, and what a digest lists."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace
from tests.support.notices import NOTICE

from handoffd.engine.notice import MOST_BYTES, Reason, message
from handoffd.notify.digests import (
    MOST_LISTED,
    Cover,
    digest_at,
    folded,
    is_stale,
    quiet_until,
    release_at,
    report_at,
)
from handoffd.settings.notify import (
    DigestSettings,
    NotifySettings,
    QuietSettings,
    ReportSettings,
    SinkSettings,
)

BERLIN = "Europe/Berlin"
SINK = SinkSettings.model_validate({"command": ["true"]})
EXEMPT = SinkSettings.model_validate({"command": ["true"], "quiet": False, "digest": False})


def utc(text: str) -> datetime:
    """Return an instant."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def quiet(start: str, end: str, **more: object) -> QuietSettings:
    """Return quiet hours in Berlin: UTC+1, in summer UTC+2."""
    return QuietSettings.model_validate({"start": start, "end": end, "timezone": BERLIN, **more})


NIGHT = quiet("22:00", "07:00")


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-01-10T20:59:59", None),
        ("2026-01-10T21:00:00", "2026-01-11T06:00:00"),
        ("2026-01-11T03:00:00", "2026-01-11T06:00:00"),
        ("2026-01-11T06:00:00", None),
        ("2026-07-10T20:00:00", "2026-07-11T05:00:00"),
        ("2026-03-28T21:30:00", "2026-03-29T05:00:00"),  # clocks go forward in it: an hour less
        ("2026-10-24T20:30:00", "2026-10-25T06:00:00"),  # and back: an hour more
    ],
)
def test_a_night_ends_when_the_wall_clock_says_so(now: str, until: str | None) -> None:
    """Also if summer time begins or ends in it."""
    assert (None if until is None else utc(until)) == quiet_until(NIGHT, utc(now))


@pytest.mark.parametrize(
    ("hours", "now", "until"),
    [
        (quiet("12:00", "13:00"), "2026-01-10T11:30:00", "2026-01-10T12:00:00"),
        (quiet("02:10", "02:50"), "2026-03-29T01:20:00", "2026-03-29T01:50:00"),  # the clock shows neither
        (quiet("01:00", "02:30"), "2026-10-25T00:20:00", "2026-10-25T00:30:00"),  # the first 02:30
        (quiet("01:00", "02:30"), "2026-10-25T01:00:00", None),  # at the second one it is over
    ],
)
def test_hours_that_the_clock_skips_or_shows_twice(hours: QuietSettings, now: str, until: str | None) -> None:
    """Quiet hours end in any case, and once."""
    assert (None if until is None else utc(until)) == quiet_until(hours, utc(now))


def test_a_day_means_the_quiet_hours_that_begin_on_it() -> None:
    """Friday's reach into Saturday; consecutive whole days are one span."""
    friday = quiet("22:00", "07:00", days=["fri"])
    weekend = quiet("00:00", "00:00", days=["sat", "sun"])

    assert utc("2026-01-10T06:00:00") == quiet_until(friday, utc("2026-01-10T02:00:00"))  # a Saturday
    assert quiet_until(friday, utc("2026-01-10T22:00:00")) is None
    assert utc("2026-01-11T23:00:00") == quiet_until(weekend, utc("2026-01-10T11:00:00"))
    assert quiet_until(weekend, utc("2026-01-12T11:00:00")) is None
    assert quiet_until(None, utc("2026-01-12T11:00:00")) is None


def test_every_minute_of_a_year_agrees_with_the_wall_clock() -> None:
    """Quiet is exactly when the local time is past 22:00 or before 07:00."""
    for quarter in range(0, 366 * 96, 7):
        now = utc("2026-01-01T00:00:00") + timedelta(minutes=15 * quarter)
        hour = now.astimezone(ZoneInfo(BERLIN)).hour
        assert (hour >= 22 or hour < 7) == (quiet_until(NIGHT, now) is not None), now


@pytest.mark.parametrize(
    ("since", "at"),
    [
        ("2026-01-10T06:29:00", "2026-01-10T06:30:00"),
        ("2026-01-10T06:30:00", "2026-01-11T06:30:00"),
        ("2026-01-10T23:30:00", "2026-01-11T06:30:00"),
        ("2026-03-28T12:00:00", "2026-03-29T05:30:00"),
        ("2026-10-24T12:00:00", "2026-10-25T06:30:00"),
    ],
)
def test_a_digest_is_due_at_its_time_of_the_day(since: str, at: str) -> None:
    """The next one after its first notice."""
    digest = DigestSettings.model_validate({"at": "07:30", "timezone": BERLIN})

    assert utc(at) == digest_at(digest, utc(since))


def test_a_digest_is_due_every_few_hours() -> None:
    """Counted from its first notice."""
    assert utc("2026-01-10T08:00:00") == digest_at(DigestSettings(every_h=2), utc("2026-01-10T06:00:00"))


MORNING = utc("2026-01-10T08:00:00")
NIGHTLY = utc("2026-01-10T23:00:00")
ALL = NotifySettings.model_validate(
    {
        "quiet": {"start": "22:00", "end": "07:00", "timezone": BERLIN},
        "digest": {"at": "06:00", "timezone": BERLIN},
        "burst": {"within_s": 60},
    }
)


@pytest.mark.parametrize(
    ("reason", "sink", "settings", "now", "at"),
    [
        ("quiet", SINK, ALL, NIGHTLY, "2026-01-11T06:00:00"),
        ("quiet", SINK, ALL, MORNING, "2026-01-10T08:00:00"),
        ("quiet", EXEMPT, ALL, NIGHTLY, "2026-01-10T23:00:00"),
        ("quiet", SINK, NotifySettings(), NIGHTLY, "2026-01-10T23:00:00"),
        ("digest", SINK, ALL, MORNING, "2026-01-11T06:00:00"),  # 06:00 there is in the quiet hours
        ("digest", EXEMPT, ALL, MORNING, "2026-01-10T08:00:00"),
        ("digest", SINK, NotifySettings(), MORNING, "2026-01-10T08:00:00"),
        ("burst", SINK, ALL, MORNING, "2026-01-10T08:01:00"),
        ("burst", SINK, ALL, NIGHTLY, "2026-01-11T06:00:00"),
        ("burst", EXEMPT, ALL, NIGHTLY, "2026-01-10T23:01:00"),
    ],
)
def test_a_held_notice_is_due_when_no_reason_holds_it(
    reason: Reason, sink: SinkSettings, settings: NotifySettings, now: datetime, at: str
) -> None:
    """Without a setting it is due at once, but never in quiet hours."""
    assert utc(at) == release_at(reason, sink, settings, now, now)


def test_a_time_that_has_passed_is_now() -> None:
    """The daemon was down when the digest was due, or the clock went back since."""
    late = MORNING + timedelta(days=3)

    assert late == release_at("digest", EXEMPT.model_copy(update={"digest": True}), ALL, MORNING, late)
    assert MORNING + timedelta(minutes=1) == release_at("burst", SINK, ALL, late, MORNING)


def test_a_time_too_far_ahead_is_of_another_clock() -> None:
    """No notice is held for longer than a week of quiet days and a digest."""
    reasons: tuple[Reason, ...] = ("quiet", "digest", "burst")
    for reason, now in itertools.product(reasons, (MORNING, NIGHTLY)):
        assert not is_stale(release_at(reason, SINK, ALL, now, now), now, ALL)
    assert is_stale(MORNING + timedelta(days=30), MORNING, ALL)


def test_without_a_zone_the_machines_zone_counts() -> None:
    """Including its summer time."""
    code = (
        "from datetime import datetime; from handoffd.notify.digests import quiet_until;"
        "from handoffd.settings.notify import QuietSettings;"
        "q = QuietSettings(start='22:00', end='07:00');"
        "print(*(quiet_until(q, datetime.fromisoformat(t)) for t in"
        " ('2026-01-10T21:30:00+00:00', '2026-07-10T20:30:00+00:00')))"
    )
    there = {**os.environ, "TZ": BERLIN}

    told = subprocess.run([sys.executable, "-c", code], env=there, capture_output=True, text=True, check=True)
    assert "2026-01-11 06:00:00+00:00 2026-07-11 05:00:00+00:00" == told.stdout.strip()


COVER = Cover(id="digest-1", place="/state", at=NOTICE.at)


BLOG = replace(
    NOTICE, id="b", project="/srv/blog", name="blog", story=None, step="", action=None, text="a\nb"
)


def test_a_digest_lists_notices_by_project_with_their_commands() -> None:
    """Its text counts them by project, and gives the reason."""
    digest = folded([NOTICE, BLOG, replace(NOTICE, id="c", text="US-006 is done")], 3, "quiet", COVER)

    assert ("digest", 3, "3 notices: shop (2), blog (1)") == (digest.kind, digest.count, digest.text)
    assert digest.lines == (
        "shop:",
        "- US-005 review: US-005 waits for a review > handoffd approve /srv/shop",
        "- US-005 review: US-006 is done > handoffd approve /srv/shop",
        "blog:",
        "- a b",
    )
    assert digest.why is not None
    assert "quiet hours" in digest.why
    assert ("digest-1", "/state", "handoffd status") == (digest.id, digest.project, digest.action)


def test_a_single_notice_is_sent_as_it_is() -> None:
    """Under a new id."""
    assert replace(NOTICE, id="digest-1") == folded([NOTICE], 1, "digest", COVER)


def test_of_a_gate_and_its_reminders_only_the_last_is_listed() -> None:
    """It repeats the others."""
    reminders = (replace(NOTICE, id=f"r{n}", of=NOTICE.id, text=f"waits {n} h") for n in (1, 4))

    lines = folded([NOTICE, BLOG, *reminders], 4, "quiet", COVER).lines
    gate = "- US-005 review: waits 4 h > handoffd approve /srv/shop"
    assert ("blog:", "- a b", "shop:", gate) == lines


def test_of_a_storm_the_first_few_are_named() -> None:
    """The rest is counted."""
    storm = [
        replace(NOTICE, id=str(n), name=f"shop{n}", project=f"/srv/shop{n}", text="x" * 999)
        for n in range(500)
    ]

    digest = folded(storm, 990, "burst", COVER)
    assert "990 notices: shop0 (1), shop1 (1), shop2 (1) and others" == digest.text
    assert f"and {990 - MOST_LISTED} more: handoffd notices" == digest.lines[-1]
    assert 2 * MOST_LISTED + 1 == len(digest.lines)


@pytest.mark.parametrize("letter", ["x", "擷"])
@pytest.mark.parametrize("count", [MOST_LISTED, 90])
def test_a_message_has_whole_lines_and_counts_the_others(letter: str, count: int) -> None:
    """As many as fit: half a command would be another one. No project without lines is named."""
    action = "handoffd approve /srv/a/rather/long/way/to/shop{} --story US-005"
    gates = [
        replace(NOTICE, id=str(n), project=f"/srv/shop{n // 3}", name=f"shop{n // 3}", text=letter * 200,
                action=action.format(n // 3))
        for n in range(count)
    ]  # fmt: skip

    told = message(folded(gates[:80], count, "quiet", COVER))
    lines = told.splitlines()
    shown = [line for line in lines if line.startswith("- ")]
    assert MOST_BYTES - 900 < len(told.encode()) <= MOST_BYTES
    assert all(line.endswith(f"> {action.format(n // 3)}") for n, line in enumerate(shown))
    assert 3 <= len(shown) < MOST_LISTED
    assert lines[-4].startswith("- ")
    assert [f"and {count - len(shown)} more: handoffd notices", "Where: /state", "Next: handoffd status"] == (
        lines[-3:]
    )


def test_a_message_without_room_for_a_line_counts_all() -> None:
    """A command may be longer than a message."""
    long = replace(NOTICE, action=f"handoffd approve /{'x' * 4000}")

    told = message(folded([long, replace(BLOG, id="c")], 2, "quiet", COVER)).splitlines()
    assert ["and 2 more: handoffd notices", "Where: /state", "Next: handoffd status"] == told[2:]


# --- the report of the night -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("settings", "hours", "now", "due"),
    [
        ({}, NIGHT, "2026-01-11T06:00:00", ("2026-01-11T06:00:00", "2026-01-10T06:00:00")),
        ({}, NIGHT, "2026-01-11T05:59:59", ("2026-01-10T06:00:00", "2026-01-09T06:00:00")),
        ({"timezone": BERLIN}, None, "2026-01-11T23:00:00", ("2026-01-11T06:00:00", "2026-01-10T06:00:00")),
        ({"at": "09:30", "timezone": BERLIN}, NIGHT, "2026-07-11T08:00:00",
         ("2026-07-11T07:30:00", "2026-07-10T07:30:00")),
        ({"timezone": BERLIN}, None, "2026-03-29T05:00:00", ("2026-03-29T05:00:00", "2026-03-28T06:00:00")),
    ],
)  # fmt: skip
def test_a_report_is_due_once_a_day(
    settings: dict[str, str], hours: QuietSettings | None, now: str, due: tuple[str, str]
) -> None:
    """At its time, or else when the quiet hours end, or at seven; also when clocks are changed."""
    found = report_at(ReportSettings.model_validate(settings), hours, utc(now))
    assert (utc(due[0]), utc(due[1])) == found


def test_a_report_can_be_switched_off() -> None:
    """Quiet hours or not."""
    assert report_at(ReportSettings(at="off"), NIGHT, utc("2026-01-11T06:00:00")) is None
