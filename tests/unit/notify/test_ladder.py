"""Reminders: every rung once, whatever the clock, the daemon or the settings did meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from handoffd.notify.reminders import Due, due, next_at
from handoffd.settings.notify import RemindSettings

SINCE = datetime(2026, 1, 10, 8, tzinfo=UTC)
LADDER = RemindSettings.model_validate(
    {
        "after_min": [60, 240],
        "escalate": [{"after_min": 120, "to": ["phone"]}, {"after_min": 240, "to": ["boss", "phone"]}],
    }
)


def after(minutes: float, reached_min: float = 0, ladder: RemindSettings = LADDER) -> Due | None:
    """Return what is due so many minutes after a matter came up."""
    return due(SINCE, SINCE + timedelta(minutes=minutes), reached_min, ladder)


def test_the_rungs_one_after_the_other() -> None:
    """A reminder to those who were told, an escalation to others, both at once."""
    assert after(59.9) is None
    assert Due(reached_min=60, remind=True) == after(60)
    assert after(119, 60) is None
    assert Due(reached_min=120, remind=False, escalate_to=("phone",)) == after(120, 60)
    assert Due(reached_min=240, remind=True, escalate_to=("boss", "phone")) == after(240, 120)
    assert after(10_000, 240) is None


def test_what_was_passed_meanwhile_is_told_of_as_one() -> None:
    """The machine slept, or somebody put the clock forward."""
    assert Due(reached_min=240, remind=True, escalate_to=("phone", "boss")) == after(100_000)


def test_a_clock_that_was_put_back_tells_nothing_twice() -> None:
    """Nor anything at all before the matter came up."""
    assert after(30, 60) is None
    assert after(-500) is None


def test_settings_that_change_repeat_nothing() -> None:
    """How far the ladder was climbed is minutes."""
    denser = RemindSettings(after_min=(10, 20, 30, 90))

    assert after(61, 60, denser) is None
    assert Due(reached_min=90, remind=True) == after(95, 60, denser)
    assert after(500, 60, RemindSettings(after_min=())) is None


@given(st.floats(1, 10_000))
def test_when_the_next_rung_is_reached_it_is_due(rung_min: float) -> None:
    """Whatever fraction of a minute it lies at: who looks then looks at no other time."""
    ladder = RemindSettings.model_validate({"after_min": [rung_min]})
    moment = next_at(SINCE, 0, ladder)

    assert moment is not None
    assert Due(reached_min=rung_min, remind=True) == due(SINCE, moment, 0, ladder)


def test_the_next_rung_is_known() -> None:
    """Nothing needs to be looked at before."""
    assert SINCE + timedelta(minutes=60) == next_at(SINCE, 0, LADDER)
    assert SINCE + timedelta(minutes=120) == next_at(SINCE, 60, LADDER)
    assert next_at(SINCE, 240, LADDER) is None
    assert next_at(SINCE, 0, RemindSettings(after_min=())) is None


minutes = st.integers(1, 3000)
ladders = st.builds(
    lambda rungs, escalations: RemindSettings.model_validate(
        {"after_min": rungs, "escalate": [{"after_min": rung, "to": ["x"]} for rung in escalations]}
    ),
    st.lists(minutes, max_size=5),
    st.lists(minutes, max_size=5),
)


@given(ladders, st.lists(st.integers(-5000, 5000), max_size=20))
def test_whatever_the_clock_does_each_rung_is_told_of_once(ladder: RemindSettings, looks: list[int]) -> None:
    """What is reached only rises, and never beyond how long it has waited."""
    reached = 0.0
    for look in looks:
        found = after(look, reached, ladder)
        upcoming = next_at(SINCE, reached, ladder)
        assert (found is not None) == (upcoming is not None and upcoming <= SINCE + timedelta(minutes=look))
        if found is not None:
            assert reached < found.reached_min <= look
            reached = found.reached_min
