"""Where the time of a night went, and when no daemon was there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import replace
from tests.unit.journal.making import KEY, NOW
from tests.unit.report.nights import HOUR, happened, night, ran

from handoffd.engine.track import EXTERNAL
from handoffd.journal.records import Life
from handoffd.report.building import awaits, time_spent, without_daemon
from handoffd.report.values import Down, TimeSpent

ALL = {KEY.project}
MINUTE = timedelta(minutes=1)


def spent(*events: Any, before: tuple[Any, ...] = (), downs: tuple[Down, ...] = (), **more: Any) -> TimeSpent:
    """Return what two hours went into."""
    return time_spent(night(events=events, before=before, **more), downs, ALL)


def hours(spent: TimeSpent) -> dict[str, float]:
    """Return the hours that are not 0."""
    found = {name: getattr(spent, name) / 3600 for name in TimeSpent.__struct_fields__}
    return {name: length for name, length in found.items() if length}


def test_a_wait_lasts_until_the_next_event_of_its_track() -> None:
    """The last one until the end."""
    events = [happened("slot", at=NOW + HOUR / 2), happened("checks", at=NOW + HOUR)]
    found = spent(*events, happened("person", at=NOW + 1.5 * HOUR))
    assert {"slots": 0.5, "checks": 0.5, "people": 0.5} == hours(found)


def test_what_waited_before_waits_from_the_beginning_on() -> None:
    """However long before it began; tracks do not end one another's waits."""
    other = replace(happened("limit", at=NOW - 9 * HOUR), key=KEY._replace(track="other"))
    found = spent(happened("slot", at=NOW + HOUR), before=(happened("person", at=NOW - 9 * HOUR), other))
    assert {"people": 1, "slots": 1, "limits": 2} == hours(found)


def test_agents_work_as_long_as_their_records_say() -> None:
    """Clipped to the night; one that goes on works until its end; a person's attempt is not an agent's."""
    runs = (
        ran("d1", NOW - HOUR, NOW + HOUR / 2),
        ran("d2", NOW + 1.5 * HOUR, None),
        ran("d3", None, NOW + HOUR),
        ran("d4", NOW, NOW + HOUR, executor=EXTERNAL),
    )
    assert {"agents": 1} == hours(spent(happened("agent", at=NOW), runs=runs))


def test_without_a_daemon_its_own_work_waits_for_it() -> None:
    """A person may decide all the same, and agents go on."""
    down = Down(since=NOW - HOUR, until=NOW + HOUR / 2, how="died")
    found = spent(happened("checks", at=NOW), happened("nothing", at=NOW + HOUR), downs=(down,))
    assert {"checks": 0.5, "down": 0.5} == hours(found)
    assert {"people": 2} == hours(spent(happened("person", at=NOW), downs=(down,)))


def test_a_project_that_is_not_supervised_any_more_waits_for_nothing() -> None:
    """From its last event on."""
    events = (happened("slot", at=NOW), happened("person", at=NOW + HOUR))
    assert {"slots": 1} == hours(time_spent(night(events=events), (), set()))


def test_a_clock_that_was_put_back_makes_no_time() -> None:
    """Nor a negative one."""
    assert {"people": 1.5} == hours(
        spent(happened("slot", at=NOW + HOUR), happened("person", at=NOW + HOUR / 2))
    )


def test_events_of_older_releases_say_it_by_their_status() -> None:
    """As far as that goes."""
    told = {
        status: awaits(happened(None, after=("impl", status)))
        for status in ("running", "needs_human", "timeout", "pending", "failing")
    }
    assert ["agent", "person", "person", "slot", "slot"] == list(told.values())
    assert "nothing" == awaits(happened(None, after=("done", "pass")))
    assert "nothing" == awaits(replace(happened(None, after=("bootstrap", "pending")), story=None))
    assert "nothing" == awaits(happened(None, after=None))


# --- without a daemon --------------------------------------------------------------------------------
def downs(*lives: Life, alive: bool = True) -> list[tuple[float, float | None, str]]:
    """Return the times without a daemon in two hours, in hours."""
    found = without_daemon(lives, NOW, NOW + 2 * HOUR, alive=alive)
    return [
        ((one.since - NOW) / HOUR, None if one.until is None else (one.until - NOW) / HOUR, one.how)
        for one in found
    ]


def test_between_two_lives_there_was_no_daemon() -> None:
    """A restart is none; how the first one ended is known if it could say it."""
    assert [(1, 1.5, "died")] == downs(
        Life(NOW, NOW + HOUR, None), Life(NOW + 1.5 * HOUR, NOW + 1.6 * HOUR, None)
    )
    slept = Life(NOW, NOW + HOUR, "slept")
    assert [(1, 1.5, "slept")] == downs(slept, Life(NOW + 1.5 * HOUR, NOW + 2 * HOUR, None))
    assert [] == downs(Life(NOW, NOW + HOUR, "stopped"), Life(NOW + HOUR + MINUTE, NOW + 2 * HOUR, None))


def test_an_absence_that_began_before_the_night_is_said_with_its_begin() -> None:
    """One that ended before it, or began after it, is not."""
    before = Life(NOW - 9 * HOUR, NOW - 8 * HOUR, "stopped")
    assert [(-8, 1, "stopped")] == downs(before, Life(NOW + HOUR, NOW + 2 * HOUR, None))
    assert [] == downs(before, Life(NOW - HOUR, NOW + 2 * HOUR, None))
    assert [] == downs(Life(NOW, NOW + 3 * HOUR, None), Life(NOW + 9 * HOUR, NOW + 9 * HOUR, None))


def test_if_none_runs_now_the_last_absence_has_no_end() -> None:
    """A journal of before it was noted says nothing."""
    assert [(1, None, "stopped")] == downs(Life(NOW, NOW + HOUR, "stopped"), alive=False)
    assert [] == downs(Life(NOW, NOW + 2 * HOUR, None), alive=False)
    assert [] == downs(alive=False)


def test_a_clock_that_was_put_back_is_not_an_absence() -> None:
    """The first life was seen later than the second one began."""
    last = Life(NOW + HOUR, NOW + 2 * HOUR, None)
    assert [] == downs(Life(NOW, NOW + HOUR, None), Life(NOW + HOUR / 2, NOW + 0.6 * HOUR, None), last)
