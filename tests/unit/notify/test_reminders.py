"""People are reminded of tasks that wait for them, at each time once, until they decide."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.eventually import eventually
from tests.support.notices import NOTICE, MemoryBox
from tests.unit.notify.making import NIGHT, NOON, QUIET, Stage, WallClock

from handoffd.engine.notice import Matter, Notice
from handoffd.errors import StoreError
from handoffd.notify.reminders import Due, Reminders, due, next_at, span
from handoffd.settings.notify import NotifySettings, RemindSettings

LADDER = {"after_min": [60, 240], "escalate": [{"after_min": 120, "to": ["boss"]}]}
GATE = replace(NOTICE, id="gate", at=NOON)
STUCK = replace(GATE, id="standstill-1~a", kind="blocked", track="")


def settings(**values: Any) -> NotifySettings:
    """Return settings with a ladder of reminders; `boss` gets escalations only."""
    form = {"command": ["true"]}
    given = {"routes": [{"to": ["me"]}], "remind": LADDER, "sinks": {"me": form, "boss": form}, **values}
    return NotifySettings.model_validate(given)


@pytest.fixture
def stage() -> Stage:
    """The sinks `me` and `boss`, at noon."""
    return Stage(settings(), "me", "boss")


async def test_a_gate_is_repeated_rung_by_rung(stage: Stage) -> None:
    """The same sinks get it again, with the next command; after a while others get it, too."""
    async with stage.life():
        await stage.send(GATE)
        await stage.later(minutes=59)
        assert ["gate"] == stage.got("me")
        await stage.later(minutes=1)
        await stage.later(minutes=60)
        await stage.later(minutes=120)
        await stage.later(days=30)

    assert ["gate", "reminder-60-gate", "reminder-240-gate"] == stage.got("me")
    assert ["escalation-120-gate"] == stage.got("boss")
    reminder = stage.sinks["me"].notices[1]
    assert ("reminder", "gate", NOON.replace(hour=13)) == (reminder.kind, reminder.of, reminder.at)
    assert "US-005 waits for a review (it has waited for 60 min)" == reminder.text
    assert NOTICE.action == reminder.action == stage.sinks["boss"].notices[0].action


async def test_replaced_matters_are_not_kept_until_they_were_due() -> None:
    """A busy workspace passes thousands of gates before the first reminder."""
    clock, box = WallClock(NOON), MemoryBox()
    reminders = Reminders(box, clock, settings().remind, lambda *_: pytest.fail("nothing is due"), 1)
    for number in range(1000):
        reminders.add([Matter(notice=f"gate-{number}", lane=("/srv/shop", "main"), since=NOON)])

    assert 1 == len(reminders.upcoming())
    assert len(reminders._heap) < 100


async def test_a_decided_task_is_not_repeated(stage: Stage) -> None:
    """The box is asked when the reminder is due; then the matter is forgotten."""
    async with stage.life() as notifier:
        await stage.send(GATE)
        await stage.later(minutes=60)
        stage.box.over.add("gate")
        await stage.later(minutes=60)
        await eventually(lambda: {} == stage.box.waiting_matters)
        assert {} == notifier.reminders()

    assert (["gate", "reminder-60-gate"], []) == (stage.got("me"), stage.got("boss"))


async def test_a_restart_repeats_nothing_and_sends_missed_reminders_as_one(stage: Stage) -> None:
    """Also when the clock jumped ahead or back meanwhile."""
    async with stage.life():
        await stage.send(GATE)
        await stage.later(minutes=60)
    assert [60.0] == [matter.reached_min for matter in stage.box.waiting_matters.values()]
    stage.clock.move(minutes=10)
    async with stage.life():
        await stage.later(minutes=1)
        assert ["gate", "reminder-60-gate"] == stage.got("me")
    stage.clock.move(days=2)
    async with stage.life():
        await eventually(lambda: stage.got("boss") and 3 == len(stage.got("me")))
    stage.clock.move(days=-900)
    async with stage.life():
        await stage.later(minutes=1)

    assert ["gate", "reminder-60-gate", "reminder-240-gate"] == stage.got("me")
    assert ["escalation-240-gate"] == stage.got("boss")


async def test_a_clock_that_goes_back_delays_no_reminder_by_years(stage: Stage) -> None:
    """The task then counts as new by the clock that people see."""
    async with stage.life() as notifier:
        await stage.send(GATE)
        await stage.later(days=-900)
        assert [stage.clock.now() + timedelta(minutes=60)] == list(notifier.reminders().values())
        await stage.later(minutes=60)

    assert ["gate", "reminder-60-gate"] == stage.got("me")


async def test_only_tasks_for_a_person_are_repeated(stage: Stage) -> None:
    """Not what is done, nor a notice without an order, unless its sender says that it waits."""
    async with stage.life() as notifier:
        await stage.send(replace(GATE, id="done", kind="done", track="a"))
        notifier.send(replace(GATE, id="full", kind="needs_human", track="b"))
        notifier.send(replace(GATE, id="trust", kind="needs_human", track=""), waits=True)
        await stage.settled()

        assert ["trust"] == list(notifier.reminders())
        notifier.settle("/srv/shop", "other")
        notifier.settle("/srv/shop")
        await eventually(lambda: {} == notifier.reminders() and {} == stage.box.waiting_matters)


async def test_a_lasting_condition_is_repeated_if_its_kind_waits_for_a_person(stage: Stage) -> None:
    """Until a check reports that it is over; a warning never."""
    async with stage.life() as notifier:
        notifier.stand(STUCK, "~condition")
        notifier.stand(replace(STUCK, id="condition-2~a", kind="warning", project="/srv/blog"), "~condition")
        await stage.settled()
        await stage.later(minutes=120)
        notifier.settle("/srv/shop", "~condition")
        await stage.settled()
        await stage.later(days=30)

    assert ["standstill-1~a", "condition-2~a", "reminder-120-standstill-1~a"] == stage.got("me")
    assert ["escalation-120-standstill-1~a"] == stage.got("boss")


async def test_a_condition_of_an_earlier_daemon_is_repeated_once_this_one_finds_it_too(stage: Stage) -> None:
    """A person may have repaired it meanwhile; under a new id the same condition is not sent again."""
    async with stage.life() as notifier:
        for project in ("/srv/shop", "/srv/blog"):
            notifier.stand(replace(STUCK, id=f"standstill-{project}~a", project=project), "~condition")
        await stage.settled()
    stage.clock.move(minutes=90)
    async with stage.life() as notifier:
        await stage.later(minutes=1)
        assert 2 == len(stage.got("me"))
        notifier.settle("/srv/blog", "~condition")
        notifier.stand(replace(STUCK, id="standstill-/srv/shop~b"), "~condition")
        await stage.settled()
        await stage.later(minutes=1)
        await stage.later(days=30)

    expected = ["reminder-60-standstill-/srv/shop~a", "reminder-240-standstill-/srv/shop~a"]
    assert expected == stage.got("me")[2:]
    assert ["escalation-240-standstill-/srv/shop~a"] == stage.got("boss")


async def test_the_same_notice_opens_a_matter_once(stage: Stage) -> None:
    """Each daemon finds the same untrusted edit; a person who decided it is not asked again."""
    async with stage.life() as notifier:
        for _ in range(2):
            notifier.send(GATE, waits=True)
            await stage.settled()
            notifier.settle(GATE.project, GATE.track)
            await eventually(lambda: {} == stage.box.waiting_matters)

    assert ["gate"] == stage.got("me")


async def test_a_tracks_next_gate_replaces_the_last(stage: Stage) -> None:
    """A track waits for one decision at a time."""
    async with stage.life():
        await stage.send(GATE)
        stage.clock.move(minutes=30)
        await stage.send(replace(GATE, id="next", at=stage.clock.now()))
        await stage.later(minutes=40)
        assert ["gate", "next"] == stage.got("me")
        await stage.later(minutes=30)

    assert ["gate", "next", "reminder-60-next"] == stage.got("me")


async def test_at_night_reminders_wait_for_the_morning_in_one_notice() -> None:
    """It lists the gate once."""
    stage = Stage(settings(quiet={**QUIET, "urgent": ["escalation"]}), "me", "boss", at=NIGHT)
    async with stage.life():
        await stage.send(replace(GATE, at=NIGHT))
        for _ in range(4):
            await stage.later(hours=1)
        assert ([], ["escalation-120-gate"]) == (stage.got("me"), stage.got("boss"))
        await stage.later(hours=5)

    (digest,) = stage.sinks["me"].notices
    assert (3, 2) == (digest.count, len(digest.lines))
    assert "4 h" in digest.lines[1]


async def test_a_box_that_cannot_answer_is_asked_again(stage: Stage) -> None:
    """The reminder is sent all the same, and once; a decided task is forgotten all the same."""
    box = stage.box
    async with stage.life():
        await stage.send(GATE)
        box.broken = True
        await stage.move(minutes=60)
        box.broken = False
        await eventually(lambda: 2 == len(stage.got("me")))
        box.over.add("gate")
        box.broken = True
        await stage.move(minutes=60)
        box.broken = False
        await eventually(lambda: {} == box.waiting_matters)

    assert ["gate", "reminder-60-gate"] == stage.got("me")


class Fickle(MemoryBox):
    """A box that cannot read one notice for a while."""

    refuses = ""
    refused = 0

    async def outlook(self, notice: str) -> Notice | None:
        """Return any other notice."""
        if notice == self.refuses:
            self.refused += 1
            raise StoreError("no space left")
        return await super().outlook(notice)


async def test_a_decided_task_is_forgotten_although_the_next_one_cannot_be_read() -> None:
    """It would be called waiting until the next start."""
    box = Fickle()
    stage = Stage(settings(), "me", "boss", box=box)
    async with stage.life() as notifier:
        await stage.send(replace(GATE, id="over", track="a"), replace(GATE, id="asked", track="b"))
        box.over.add("over")
        box.refuses = "asked"
        await stage.move(minutes=60)
        await eventually(lambda: box.refused)
        box.refuses = ""
        await eventually(lambda: ["asked"] == list(notifier.reminders()))


class Slow(MemoryBox):
    """A box that answers for one notice only when `gate` opens: with the old state, or with an error."""

    def __init__(self, slow: str, *, fails: bool) -> None:
        super().__init__()
        self.slow = slow
        self.fails = fails
        self.asked = 0
        self.gate = anyio.Event()
        self.known[slow] = GATE

    async def outlook(self, notice: str) -> Notice | None:
        """Return the state at the time of the question."""
        found = await super().outlook(notice)
        if notice == self.slow:
            self.asked += 1
            await self.gate.wait()
            if self.fails and self.asked == 1:
                raise StoreError("no space left")
        return found


@asynccontextmanager
async def asked(box: Slow, clock: WallClock, sent: list[str], *gates: Matter) -> AsyncIterator[Reminders]:
    """Run the reminders of these gates up to the question to the box; open its gate at the block's end."""
    ladder = settings(remind={"after_min": [60]}).remind
    reminders = Reminders(box, clock, ladder, lambda _, matter, __: sent.append(matter.notice), 0.01)
    reminders.add(gates)
    clock.move(minutes=60)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(reminders.run)
            await eventually(lambda: box.asked)
            yield reminders
            box.gate.set()
            await (eventually(lambda: sent) if box.fails else anyio.wait_all_tasks_blocked())
            group.cancel_scope.cancel()


def gate(notice: str, track: str) -> Matter:
    """Return a matter since noon."""
    return Matter(notice=notice, lane=("/srv/shop", track), since=NOON)


async def test_a_decided_task_may_be_replaced_while_the_box_answers_for_another() -> None:
    """It cannot be forgotten twice."""
    clock, sent = WallClock(NOON), list[str]()
    async with asked(Slow("b", fails=True), clock, sent, gate("over", "a"), gate("b", "b")) as reminders:
        reminders.add([replace(gate("newer", "a"), since=clock.now())])

    assert (["b"], {"b", "newer"}) == (sent, {one.notice for one, _ in reminders.upcoming()})


async def test_a_task_that_is_settled_while_the_box_answers_does_not_come_back() -> None:
    """People would be reminded of it again."""
    sent = list[str]()
    async with asked(Slow("gate", fails=False), WallClock(NOON), sent, gate("gate", "main")) as reminders:
        await reminders.settle(["gate"])

    assert ([], (), 0) == (sent, reminders.upcoming(), len(reminders._heap))


async def test_a_task_that_cannot_be_settled_for_hours_is_kept_once() -> None:
    """The notifier tries again every few seconds while the journal cannot be written."""
    box = MemoryBox()
    box.broken = True
    reminders = Reminders(box, WallClock(NOON), settings().remind, lambda *_: None, 0.01)
    reminders.add([gate("gate", "main")])
    for _ in range(100):
        with pytest.raises(StoreError):
            await reminders.settle(["gate"])

    assert 1 == len(reminders._heap) == len(reminders.upcoming())


async def test_the_first_sink_gets_reminders_of_tasks_from_before_it() -> None:
    """Without sinks no reminder counts as sent; decided tasks are forgotten all the same."""
    stage = Stage(NotifySettings())
    stage.sinks = {}
    async with stage.life() as notifier:
        await stage.send(GATE)
        stage.clock.move(minutes=200)
        await stage.send(replace(GATE, id="later", at=stage.clock.now()))
        await stage.move(minutes=61)
        assert {"later": None} == notifier.reminders()
        await stage.send(replace(GATE, id="other", at=stage.clock.now(), project="/srv/blog"))
        stage.box.over.add("other")
        await stage.move(minutes=61)
        await eventually(lambda: {"later": None} == notifier.reminders())
    assert [0.0] == [matter.reached_min for matter in stage.box.waiting_matters.values()]
    assert 3 == len(stage.box.orders)

    wired = Stage(settings(), "me", "boss", at=stage.clock.now(), box=stage.box)
    async with wired.life():
        await wired.later(minutes=0)
    assert (["reminder-120-later"], ["escalation-120-later"]) == (wired.got("me"), wired.got("boss"))


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (timedelta(minutes=119, seconds=59), "119 min"),
        (timedelta(hours=2), "2 h"),
        (timedelta(hours=47, minutes=59), "47 h"),
        (timedelta(hours=50), "2 days"),
    ],
)
def test_lengths_in_words(length: timedelta, words: str) -> None:
    """As exact as people want."""
    assert words == span(length)


SINCE = datetime(2026, 1, 10, 8, tzinfo=UTC)


RUNGS = RemindSettings.model_validate(
    {
        "after_min": [60, 240],
        "escalate": [{"after_min": 120, "to": ["phone"]}, {"after_min": 240, "to": ["boss", "phone"]}],
    }
)


def after(minutes: float, reached_min: float = 0, ladder: RemindSettings = RUNGS) -> Due | None:
    """Return what is due this long after a matter began."""
    return due(SINCE, SINCE + timedelta(minutes=minutes), reached_min, ladder)


def test_the_rungs_one_after_the_other() -> None:
    """A reminder, an escalation, both at once."""
    assert after(59.9) is None
    assert Due(reached_min=60, remind=True) == after(60)
    assert after(119, 60) is None
    assert Due(reached_min=120, remind=False, escalate_to=("phone",)) == after(120, 60)
    assert Due(reached_min=240, remind=True, escalate_to=("boss", "phone")) == after(240, 120)
    assert after(10_000, 240) is None


def test_missed_rungs_become_one_reminder() -> None:
    """The machine slept, or the clock jumped ahead."""
    assert Due(reached_min=240, remind=True, escalate_to=("phone", "boss")) == after(100_000)


def test_a_clock_that_goes_back_repeats_nothing() -> None:
    """Nothing is due before the matter began."""
    assert after(30, 60) is None
    assert after(-500) is None


def test_settings_that_change_repeat_nothing() -> None:
    """The last rung is recorded in minutes."""
    denser = RemindSettings(after_min=(10, 20, 30, 90))

    assert after(61, 60, denser) is None
    assert Due(reached_min=90, remind=True) == after(95, 60, denser)
    assert after(500, 60, RemindSettings(after_min=())) is None


@given(st.floats(1, 10_000))
def test_when_the_next_rung_is_reached_it_is_due(rung_min: float) -> None:
    """Also at a fraction of a minute: it is checked only then."""
    ladder = RemindSettings.model_validate({"after_min": [rung_min]})
    moment = next_at(SINCE, 0, ladder)

    assert moment is not None
    assert Due(reached_min=rung_min, remind=True) == due(SINCE, moment, 0, ladder)


def test_the_next_rung_is_known() -> None:
    """No check is needed before."""
    assert SINCE + timedelta(minutes=60) == next_at(SINCE, 0, RUNGS)
    assert SINCE + timedelta(minutes=120) == next_at(SINCE, 60, RUNGS)
    assert next_at(SINCE, 240, RUNGS) is None
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
def test_each_rung_is_reached_once_by_any_clock(ladder: RemindSettings, looks: list[int]) -> None:
    """The last rung only rises, and never beyond how long the matter has waited."""
    reached = 0.0
    for look in looks:
        found = after(look, reached, ladder)
        upcoming = next_at(SINCE, reached, ladder)
        assert (found is not None) == (upcoming is not None and upcoming <= SINCE + timedelta(minutes=look))
        if found is not None:
            assert reached < found.reached_min <= look
            reached = found.reached_min
