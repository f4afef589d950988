"""Held notices are sent once, as one notice, when they are due."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import replace
from tests.support.eventually import eventually
from tests.support.notices import NOTICE, Kept
from tests.unit.notify.making import NIGHT, NOON, QUIET, Recording, Stage

from handoffd.engine.notice import Notice
from handoffd.notify.notifier import Bursts
from handoffd.settings.notify import BurstSettings, NotifySettings

EVENING = {"at": "18:00", "timezone": "UTC", "kinds": ["done"]}
OFF: dict[str, Any] = {"remind": {"after_min": []}}


def settings(**values: Any) -> NotifySettings:
    """Return settings without reminders."""
    return NotifySettings.model_validate({**OFF, **values})


def named(*names: str, **changes: Any) -> list[Notice]:
    """Return a notice with each of these ids."""
    return [replace(NOTICE, **{"at": NOON, **changes, "id": name}) for name in names]


async def test_quiet_hours_hold_back_all_but_urgent_notices() -> None:
    """At their end the rest is sent as one notice."""
    stage = Stage(settings(quiet={**QUIET, "urgent": ["timeout"]}), at=NIGHT)
    async with stage.life() as notifier:
        await stage.send(*named("a", "b", at=NIGHT), *named("late", at=NIGHT, kind="timeout"))
        assert ["late"] == stage.got()
        assert {("recording", "quiet"): NIGHT.replace(hour=7) + timedelta(days=1)} == notifier.releases()
        await stage.later(hours=9)

    _, digest = stage.sink.notices
    assert ("digest", 2, "/state", "2 notices: shop (2)") == (
        digest.kind, digest.count, digest.project, digest.text,
    )  # fmt: skip
    assert ["folded", "folded", "delivered", "delivered"] == stage.box.outcomes()


async def test_the_next_daemon_sends_held_notices_once() -> None:
    """Also if no daemon ran when the hours ended, or one died before or after that."""
    stage, deaf = Stage(settings(quiet=QUIET), at=NIGHT), Recording()
    async with stage.life():
        await stage.send(*named("a", "b", at=NIGHT))
    stage.clock.move(hours=11)
    deaf.shut()
    async with stage.life(deaf):
        await eventually(lambda: deaf.tries)
    async with stage.life():
        await eventually(stage.got)
        await stage.settled()

    assert 1 == len(stage.got())
    assert ["folded", "folded", "delivered"] == stage.box.outcomes()


async def test_what_a_later_release_holds_back_is_left_to_it() -> None:
    """This one cannot know when it is due."""
    stage = Stage(settings(quiet=QUIET), at=NIGHT)
    later: Any = "moonlight"
    stage.box.kept.append(Kept(NOTICE, "recording", 0, held=later))
    async with stage.life() as notifier:
        await stage.later(hours=9)
        assert {} == notifier.releases()

    assert [None] == stage.box.outcomes()


async def test_the_digests_of_two_daemons_have_different_ids() -> None:
    """Receivers drop repetitions by the id; both daemons have the same hours, sinks and numbers."""
    stages = [Stage(settings(quiet=QUIET), at=NIGHT) for _ in range(2)]
    for stage in stages:
        async with stage.life():
            await stage.send(*named("a", "b", at=NIGHT))
            await stage.later(hours=9)

    assert 2 == len({*stages[0].got(), *stages[1].got()})


async def test_a_digest_collects_its_kinds_until_its_time() -> None:
    """Other kinds are sent at once; a single notice is sent as it is; an empty digest is not sent."""
    stage = Stage(settings(digest=EVENING))
    async with stage.life():
        await stage.send(*named("done-1", "done-2", kind="done"), *named("now"))
        assert ["now"] == stage.got()
        await stage.later(hours=6)
        assert 2 == len(stage.got())
        await stage.later(hours=24)
        await stage.send(*named("done-3", at=stage.clock.now(), kind="done", text="US-9 is done"))
        assert 2 == len(stage.got())
        await stage.later(hours=24)

    assert ["needs_human", "digest", "done"] == [notice.kind for notice in stage.sink.notices]
    assert "US-9 is done" == stage.sink.notices[2].text


async def test_a_digest_that_is_due_at_night_waits_for_the_morning() -> None:
    """Quiet hours win, and one notice is sent then."""
    stage = Stage(settings(digest={"at": "23:00", "timezone": "UTC"}, quiet=QUIET))
    async with stage.life() as notifier:
        await stage.send(*named("a", "b", kind="done"))
        assert [NOON.replace(hour=7) + timedelta(days=1)] == list(notifier.releases().values())
        await stage.later(hours=12)
        assert [] == stage.got()
        await stage.later(hours=8)

    assert 1 == len(stage.got())


async def test_settings_without_quiet_hours_release_held_notices() -> None:
    """They are sent at once, and not lost with the setting."""
    stage = Stage(settings(quiet=QUIET), at=NIGHT)
    async with stage.life():
        await stage.send(*named("a", "b", at=NIGHT))
        stage.values = settings()
        await stage.later()

    assert 2 == stage.sink.notices[0].count


async def test_a_box_that_cannot_fold_is_asked_again() -> None:
    """A full disk in the morning costs no digest."""
    stage = Stage(settings(quiet=QUIET), at=NIGHT)
    async with stage.life():
        await stage.send(*named("a", "b", at=NIGHT))
        stage.box.broken = True
        await stage.move(hours=9)
        stage.box.broken = False
        await eventually(stage.got)

    assert 1 == len(stage.got())


async def test_a_digest_marks_decided_tasks_and_gives_no_command_for_them() -> None:
    """The command would decide on the track's next task; a matter of the whole project keeps its own."""
    stage, alone = (Stage(settings(quiet=QUIET), at=NIGHT) for _ in range(2))
    async with stage.life():
        stage.box.over |= {"decided", "cap"}
        await stage.send(*named("decided", "waits", "done"), *named("cap", kind="blocked", track=""))
        await stage.later(hours=12)
    async with alone.life():
        alone.box.over.add("decided")
        await alone.send(*named("decided"))
        await alone.later(hours=12)

    (digest,) = stage.sink.notices
    over = [line for line in digest.lines if "(that is over by now)" in line]
    assert (4, 1, 1) == (digest.count, len(over), sum("over by now" in line for line in digest.lines))
    assert ">" not in over[0]
    assert 3 == sum(f"> {NOTICE.action}" in line for line in digest.lines)
    (single,) = alone.sink.notices
    assert (None, True) == (single.action, single.text.endswith("over by now)"))


async def test_a_clock_that_goes_back_by_years_delays_no_digest_by_years() -> None:
    """It is due at its next time by the new clock."""
    stage = Stage(settings(digest=EVENING))
    async with stage.life() as notifier:
        await stage.send(*named("a", "b", kind="done"))
        stage.clock.move(days=-1000)
        assert [stage.clock.now().replace(hour=18)] == list(notifier.releases().values())


async def test_a_storm_is_a_few_notices_and_one_that_counts_the_rest() -> None:
    """A thousand projects are blocked at once; each notice is recorded."""
    sink = {"p": {"command": ["true"], "burst": True}}
    stage = Stage(settings(burst={"most": 3, "within_s": 60}, sinks=sink))
    stage.real = True
    storm = [
        replace(NOTICE, id=str(n), at=NOON, kind="blocked", project=f"/srv/{n}", name=f"p{n}")
        for n in range(1000)
    ]
    async with stage.life():
        await stage.send(*storm, *named("other", kind="timeout"))
        assert ["0", "1", "2", "other"] == [one.notice.id for one in stage.box.kept if one.held is None]
        await stage.later(minutes=2)

    digest = stage.box.kept[-1].notice
    assert (1002, "digest", 997) == (len(stage.box.kept), digest.kind, digest.count)
    assert digest.text.startswith("997 notices: p3 (1), p4 (1), p5 (1) and others")
    assert 997 == stage.box.outcomes().count("folded")


def test_a_burst_is_counted_over_any_span_for_each_sink_and_kind() -> None:
    """A minute is any minute; a storm of one kind does not hide another."""
    three, bursts = BurstSettings(most=3, within_s=60), Bursts()

    admitted = [bursts.admit("phone", "blocked", at, three) for at in (0, 10, 59, 59.5, 60, 60.5, 70, 130)]
    assert [True, True, True, False, True, False, True, True] == admitted
    one = BurstSettings(most=1)
    apart = [bursts.admit(sink, kind, 0, one) for sink in "ab" for kind in ("done", "timeout") * 2]
    assert [True, True, False, False] * 2 == apart
