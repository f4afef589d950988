"""People are told again of what waits for them, each time once, until it is over."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import anyio
import pytest
from tests.support.eventually import eventually
from tests.support.notices import NOTICE, MemoryBox
from tests.unit.notify.making import NIGHT, NOON, Recording, WallClock
from tests.unit.notify.test_releases import QUIET, telling

from handoffd.errors import StoreError
from handoffd.notify.notice import Notice
from handoffd.notify.notifier import Notifier
from handoffd.notify.ports import Matter
from handoffd.notify.reminders import Reminders, span
from handoffd.settings.notify import NotifySettings

LADDER = {"after_min": [60, 240], "escalate": [{"after_min": 120, "to": ["boss"]}]}
GATE = replace(NOTICE, id="gate", at=NOON)


def settings(**values: Any) -> NotifySettings:
    """Return settings with a ladder of reminders; `boss` gets escalations only."""
    form = {"command": ["true"]}
    given = {"routes": [{"to": ["me"]}], "remind": LADDER, "sinks": {"me": form, "boss": form}, **values}
    return NotifySettings.model_validate(given)


async def later(notifier: Notifier, clock: WallClock, **by: float) -> None:
    """Move the clock, and have it looked at."""
    clock.move(**by)
    notifier.configure(settings())
    await anyio.wait_all_tasks_blocked()
    assert await notifier.drain(60)


async def test_a_gate_is_told_of_again_rung_by_rung() -> None:
    """To those who were told, with what to type; after a while to others too."""
    clock, box, me, boss = WallClock(NOON), MemoryBox(), Recording("me"), Recording("boss")
    async with telling(settings(), clock, box, me, boss) as notifier:
        notifier.send(GATE, 7)
        await later(notifier, clock, minutes=59)
        assert ["gate"] == me.got
        await later(notifier, clock, minutes=1)
        await later(notifier, clock, minutes=60)
        await later(notifier, clock, minutes=120)
        await later(notifier, clock, days=30)

    assert ["gate", "reminder-60-gate", "reminder-240-gate"] == me.got
    assert ["escalation-120-gate"] == boss.got
    reminder = me.notices[1]
    assert ("reminder", "gate", clock.now().replace(month=1, day=12, hour=13)) == (
        reminder.kind, reminder.of, reminder.at,
    )  # fmt: skip
    assert "US-005 waits for a review (it has waited for 60 min)" == reminder.text
    assert NOTICE.action == reminder.action == boss.notices[0].action


async def test_what_a_track_no_longer_waits_for_is_not_kept_until_it_were_due() -> None:
    """A busy workspace passes thousands of gates before the first of them would be told of again."""
    clock, box = WallClock(NOON), MemoryBox()

    reminders = Reminders(box, clock, settings().remind, lambda *_: pytest.fail("nothing is due"), 1)
    for number in range(1000):
        reminders.add([Matter(notice=f"gate-{number}", lane=("/srv/shop", "main"), since=NOON)])

    assert 1 == len(reminders.upcoming())
    assert len(reminders._heap) < 100


async def test_what_is_over_is_told_of_no_more() -> None:
    """Nobody has to say so: it is asked when it is due, and forgotten then."""
    clock, box, me, boss = WallClock(NOON), MemoryBox(), Recording("me"), Recording("boss")
    async with telling(settings(), clock, box, me, boss) as notifier:
        notifier.send(GATE, 7)
        await later(notifier, clock, minutes=60)
        box.over.add("gate")
        await later(notifier, clock, minutes=60)
        await eventually(lambda: {} == box.waiting_matters)
        assert {} == notifier.reminders()

    assert (["gate", "reminder-60-gate"], []) == (me.got, boss.got)


async def test_a_restart_repeats_nothing_and_makes_up_for_what_was_passed_as_one() -> None:
    """Also when the clock was put forward, or back."""
    clock, box, me, boss = WallClock(NOON), MemoryBox(), Recording("me"), Recording("boss")
    async with telling(settings(), clock, box, me, boss) as notifier:
        notifier.send(GATE, 7)
        await later(notifier, clock, minutes=60)
    assert [60.0] == [matter.reached_min for matter in box.waiting_matters.values()]
    clock.move(minutes=10)
    async with telling(settings(), clock, box, me, boss) as notifier:
        await later(notifier, clock, minutes=1)
        assert ["gate", "reminder-60-gate"] == me.got
    clock.move(days=2)
    async with telling(settings(), clock, box, me, boss):
        await eventually(lambda: boss.got and 3 == len(me.got))
    clock.move(days=-900)
    async with telling(settings(), clock, box, me, boss) as notifier:
        await later(notifier, clock, minutes=1)

    assert ["gate", "reminder-60-gate", "reminder-240-gate"] == me.got
    assert ["escalation-240-gate"] == boss.got


async def test_a_clock_that_is_put_back_does_not_put_reminders_off_for_years() -> None:
    """It has waited since then, by the clock that people see."""
    clock, box, me, boss = WallClock(NOON), MemoryBox(), Recording("me"), Recording("boss")
    async with telling(settings(), clock, box, me, boss) as notifier:
        notifier.send(GATE, 7)
        assert await notifier.drain(60)
        await later(notifier, clock, days=-900)
        assert [clock.now() + timedelta(minutes=60)] == list(notifier.reminders().values())
        await later(notifier, clock, minutes=60)

    assert ["gate", "reminder-60-gate"] == me.got


async def test_only_what_comes_from_a_decision_waits_and_only_for_a_person() -> None:
    """What is done, and warnings, are told of once. A person's gate may be told of by others too."""
    clock, box, me, boss = WallClock(NOON), MemoryBox(), Recording("me"), Recording("boss")
    async with telling(settings(), clock, box, me, boss) as notifier:
        notifier.send(replace(GATE, id="done", kind="done", track="a"), 7)
        notifier.send(replace(GATE, id="full", kind="needs_human", track="b"))
        notifier.send(replace(GATE, id="trust", kind="needs_human", track=""), waits=True)
        assert await notifier.drain(60)

        assert ["trust"] == list(notifier.reminders())
        notifier.settle("/srv/shop", "nobody")
        notifier.settle("/srv/shop")
        await eventually(lambda: {} == notifier.reminders() and {} == box.waiting_matters)


STUCK = replace(GATE, id="standstill-1~a", kind="blocked", track="")


async def test_what_stands_is_told_of_again_if_it_is_of_a_kind_that_waits() -> None:
    """Until somebody says that it is over, and a warning never."""
    clock, box, me, boss = WallClock(NOON), MemoryBox(), Recording("me"), Recording("boss")
    async with telling(settings(), clock, box, me, boss) as notifier:
        notifier.stand(STUCK, "~condition")
        notifier.stand(replace(STUCK, id="condition-2~a", kind="warning", project="/srv/blog"), "~condition")
        assert await notifier.drain(60)
        await later(notifier, clock, minutes=120)
        notifier.settle("/srv/shop", "~condition")
        assert await notifier.drain(60)
        await later(notifier, clock, days=30)

    assert ["standstill-1~a", "condition-2~a", "reminder-120-standstill-1~a"] == me.got
    assert ["escalation-120-standstill-1~a"] == boss.got


async def test_what_an_earlier_life_found_is_told_of_again_when_this_one_has_found_it_too() -> None:
    """It may have been mended meanwhile, of which no row tells; under an id that is new it is no news."""
    clock, box, me, boss = WallClock(NOON), MemoryBox(), Recording("me"), Recording("boss")
    async with telling(settings(), clock, box, me, boss) as notifier:
        for project in ("/srv/shop", "/srv/blog"):
            notifier.stand(replace(STUCK, id=f"standstill-{project}~a", project=project), "~condition")
        assert await notifier.drain(60)
    clock.move(minutes=90)
    async with telling(settings(), clock, box, me, boss) as notifier:
        await later(notifier, clock, minutes=1)
        assert 2 == len(me.got)
        notifier.settle("/srv/blog", "~condition")
        notifier.stand(replace(STUCK, id="standstill-/srv/shop~b"), "~condition")
        assert await notifier.drain(60)
        await later(notifier, clock, minutes=1)
        await later(notifier, clock, days=30)

    assert ["reminder-60-standstill-/srv/shop~a", "reminder-240-standstill-/srv/shop~a"] == me.got[2:]
    assert ["escalation-240-standstill-/srv/shop~a"] == boss.got


async def test_the_same_notice_opens_nothing_twice() -> None:
    """Each daemon finds the same edit that waits for trust; who decided it once is not asked again."""
    clock, box, me, boss = WallClock(NOON), MemoryBox(), Recording("me"), Recording("boss")
    async with telling(settings(), clock, box, me, boss) as notifier:
        for _ in range(2):
            notifier.send(GATE, waits=True)
            assert await notifier.drain(60)
            notifier.settle(GATE.project, GATE.track)
            await eventually(lambda: {} == box.waiting_matters)

    assert ["gate"] == me.got


async def test_a_track_waits_for_one_thing_at_a_time() -> None:
    """The next gate takes the place of the last."""
    clock, box, me, boss = WallClock(NOON), MemoryBox(), Recording("me"), Recording("boss")
    async with telling(settings(), clock, box, me, boss) as notifier:
        notifier.send(GATE, 7)
        assert await notifier.drain(60)
        clock.move(minutes=30)
        notifier.send(replace(GATE, id="next", at=clock.now()), 8)
        assert await notifier.drain(60)
        await later(notifier, clock, minutes=40)
        assert ["gate", "next"] == me.got
        await later(notifier, clock, minutes=30)

    assert ["gate", "next", "reminder-60-next"] == me.got


async def test_at_night_reminders_wait_for_the_morning_in_one_notice() -> None:
    """Which lists the gate once, however often it would have been told of."""
    clock, box, me, boss = WallClock(NIGHT), MemoryBox(), Recording("me"), Recording("boss")
    night = settings(quiet={**QUIET, "urgent": ["escalation"]})
    async with telling(night, clock, box, me, boss) as notifier:
        notifier.send(replace(GATE, at=NIGHT), 7)
        for _ in range(4):
            clock.move(hours=1)
            notifier.configure(night)
            await anyio.wait_all_tasks_blocked()
            assert await notifier.drain(60)
        assert ([], ["escalation-120-gate"]) == (me.got, boss.got)
        clock.move(hours=5)
        notifier.configure(night)
        await eventually(lambda: me.got)

    (digest,) = me.notices
    assert (3, 2) == (digest.count, len(digest.lines))
    assert "4 h" in digest.lines[1]


async def test_a_box_that_cannot_be_asked_is_asked_again() -> None:
    """The rung is told of all the same, and once."""
    clock, box, me, boss = WallClock(NOON), MemoryBox(), Recording("me"), Recording("boss")
    async with telling(settings(), clock, box, me, boss) as notifier:
        notifier.send(GATE, 7)
        assert await notifier.drain(60)
        box.broken = True
        clock.move(minutes=60)
        notifier.configure(settings())
        await anyio.wait_all_tasks_blocked()
        box.broken = False
        await eventually(lambda: 2 == len(me.got))
        box.over.add("gate")
        box.broken = True
        clock.move(minutes=60)
        notifier.configure(settings())
        await anyio.wait_all_tasks_blocked()
        box.broken = False
        await eventually(lambda: {} == box.waiting_matters)

    assert ["gate", "reminder-60-gate"] == me.got


async def test_what_was_found_to_be_over_is_forgotten_although_the_next_one_cannot_be_asked_for() -> None:
    """It would be called waiting until the next start."""
    clock, box, me, boss = WallClock(NOON), Fickle(), Recording("me"), Recording("boss")
    async with telling(settings(), clock, box, me, boss) as notifier:
        notifier.send(replace(GATE, id="over", track="a"), 7)
        notifier.send(replace(GATE, id="asked", track="b"), 8)
        assert await notifier.drain(60)
        box.over.add("over")
        box.refuses = "asked"
        clock.move(minutes=60)
        notifier.configure(settings())
        await eventually(lambda: box.refused)
        box.refuses = ""
        await eventually(lambda: ["asked"] == list(notifier.reminders()))


class Fickle(MemoryBox):
    """A box of which one notice cannot be read, for a while."""

    refuses = ""
    refused = 0

    async def outlook(self, notice: str) -> Notice | None:
        """Return what is there, but for that."""
        if notice == self.refuses:
            self.refused += 1
            raise StoreError("no space left")
        return await super().outlook(notice)


class Slow(MemoryBox):
    """A box that says what became of one notice only when `gate` is opened; as it was, or not at all."""

    def __init__(self, slow: str, *, fails: bool) -> None:
        super().__init__()
        self.slow = slow
        self.fails = fails
        self.asked = 0
        self.gate = anyio.Event()

    async def outlook(self, notice: str) -> Notice | None:
        """Return what was there when it was asked."""
        found = await super().outlook(notice)
        if notice == self.slow:
            self.asked += 1
            await self.gate.wait()
            if self.fails and self.asked == 1:
                raise StoreError("no space left")
        return found


async def test_what_is_replaced_while_the_box_is_asked_for_another_one_crashes_nothing() -> None:
    """It was found to be over, and cannot be forgotten once more."""
    clock, box, told = WallClock(NOON), Slow("asked", fails=True), list[str]()
    ladder = settings(remind={"after_min": [60]}).remind
    reminders = Reminders(box, clock, ladder, lambda _, matter, __: told.append(matter.notice), 0.01)
    box.known["asked"] = GATE
    over, asked, newer = (
        Matter(notice=name, lane=("/srv/shop", track), since=NOON)
        for name, track in (("over", "a"), ("asked", "b"), ("newer", "a"))
    )
    reminders.add([over, asked])
    clock.move(minutes=60)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(reminders.run)
            await eventually(lambda: box.asked)
            reminders.add([replace(newer, since=clock.now())])
            box.gate.set()
            await eventually(lambda: told)
            group.cancel_scope.cancel()

    assert (["asked"], {"asked", "newer"}) == (told, {one.notice for one, _ in reminders.upcoming()})


async def test_what_is_settled_while_the_box_is_asked_for_it_does_not_come_back() -> None:
    """Nobody would forget it again before it were due, and people would be told of it once more."""
    clock, box, told = WallClock(NOON), Slow("gate", fails=False), list[str]()
    ladder = settings().remind
    reminders = Reminders(box, clock, ladder, lambda _, matter, __: told.append(matter.notice), 0.01)
    box.known["gate"] = GATE
    reminders.add([Matter(notice="gate", lane=("/srv/shop", "main"), since=NOON)])
    clock.move(minutes=60)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(reminders.run)
            await eventually(lambda: box.asked)
            await reminders.settle(["gate"])
            box.gate.set()
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()

    assert ([], (), 0) == (told, reminders.upcoming(), len(reminders._heap))


async def test_what_cannot_be_settled_for_hours_waits_once() -> None:
    """Whoever records notices tries again every few seconds, as long as the journal cannot be written."""
    clock, box = WallClock(NOON), MemoryBox()
    box.broken = True
    reminders = Reminders(box, clock, settings().remind, lambda *_: None, 0.01)
    reminders.add([Matter(notice="gate", lane=("/srv/shop", "main"), since=NOON)])

    for _ in range(100):
        with pytest.raises(StoreError):
            await reminders.settle(["gate"])

    assert 1 == len(reminders._heap) == len(reminders.upcoming())


async def test_what_waits_while_there_are_no_sinks_is_told_of_by_the_first_that_comes() -> None:
    """Nobody could be told, so no rung was climbed; and what is over is forgotten all the same."""
    clock, box = WallClock(NOON), MemoryBox()
    async with telling(NotifySettings(), clock, box) as notifier:
        notifier.send(GATE, 7)
        assert await notifier.drain(60)
        clock.move(minutes=200)
        notifier.send(replace(GATE, id="later", at=clock.now()), 8)
        assert await notifier.drain(60)
        clock.move(minutes=61)
        notifier.configure(NotifySettings())
        await anyio.wait_all_tasks_blocked()
        assert {"later": None} == notifier.reminders()
        notifier.send(replace(GATE, id="other", at=clock.now(), project="/srv/blog"), 9)
        assert await notifier.drain(60)
        box.over.add("other")
        clock.move(minutes=61)
        notifier.configure(NotifySettings())
        await eventually(lambda: {"later": None} == notifier.reminders())
    assert [0.0] == [matter.reached_min for matter in box.waiting_matters.values()]
    assert [7, 8, 9] == box.orders

    me, boss = Recording("me"), Recording("boss")
    async with telling(settings(), clock, box, me, boss) as notifier:
        await later(notifier, clock, minutes=0)
    assert (["reminder-120-later"], ["escalation-120-later"]) == (me.got, boss.got)


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
    """No more exact than people want."""
    assert words == span(length)
