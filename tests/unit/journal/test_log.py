"""The contract of a log: what is written is there, in order, all or none, and the same again elsewhere.

Each test runs with the journal in SQLite and with a toy in memory that keeps operations as text.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import replace
from tests.support.memory_log import MemoryLog
from tests.support.recorded import BLOG, SHOP, story
from tests.unit.journal.flowing import FLOW, ID, LABEL, fanned_out, played
from tests.unit.journal.making import KEY, NOW, opened, record, track

from handoffd.api.verification import Verification
from handoffd.engine.decision import WriteChecklist
from handoffd.engine.events import Started
from handoffd.errors import NotFound, StoreError
from handoffd.files.atomic import digest_of
from handoffd.journal.codec import encode
from handoffd.journal.journal import Journal
from handoffd.journal.log import (
    BaselineKept,
    FileTrusted,
    Log,
    Operation,
    OrderDone,
    ProjectAdded,
    ProjectLetGo,
    ProjectRemoved,
    ScheduleArmed,
    ScheduleForgotten,
    activity,
    decode_operation,
)
from handoffd.journal.records import Fire, Newcomer, Origins, StoredSchedule
from handoffd.journal.replay import Recordings
from handoffd.protocol.state import Status

LATER = NOW + timedelta(hours=1)
ORDER = WriteChecklist(story="US-1", task_type="story")
FIRE = Fire(project="/srv/shop", schedule="night", due=NOW, at=LATER, outcome="skipped", why="busy")

EACH: tuple[Operation, ...] = (
    record(effects=(ORDER,), text="{}"),
    played(3).records[-1],
    OrderDone(project="/srv/shop", id=64),
    ProjectAdded(project="/srv/shop", name="shop", at=NOW, brought_by="~/src/*", untrusted=("a",)),
    ProjectLetGo(project="/srv/shop", at=NOW),
    ProjectRemoved(project="/srv/shop", at=NOW),
    FileTrusted(project="/srv/shop", file=".ai/handoffd.yaml", text="auto: true\n", at=NOW),
    BaselineKept(project="/srv/shop", track="main", story="US-1", body=b"\x00\xff"),
    ScheduleArmed(project="/srv/shop", schedule="night", fingerprint="f", at=NOW),
    ScheduleForgotten(project="/srv/shop", schedule="night"),
    FIRE,
    BaselineKept(project="/srv/shop", track="main", story="$1", body=b"with half a character \xed\xa0\xbd"),
)


@pytest.fixture(params=["SQLite", "memory"])
async def log(request: pytest.FixtureRequest, place: Path) -> AsyncIterator[Log]:
    """A new log of each kind."""
    if request.param == "memory":
        yield MemoryLog()
        return
    async with opened(place) as journal:
        yield journal


async def answers(log: Log) -> tuple[Any, ...]:
    """Return what a log says to every question that takes no digest or story."""
    return (
        await log.tracks(), await log.pending_effects(), await log.events(), await log.projects(),
        await log.origins(), await log.trusted(), await log.armed(), await log.flows(), await log.flow(FLOW),
        await log.ended_flows(KEY.project), await log.past_nodes(KEY.project, ID),
    )  # fmt: skip


# --- decisions ----------------------------------------------------------------------------------------
async def test_records_are_numbered_in_their_order(log: Log) -> None:
    """Over all projects; an order is known by its event and its place."""
    first, second = await log.write(record(effects=(ORDER, ORDER), text="{}"), record(key=BLOG))
    third = await log.commit(record(after=track(status=Status.PASS), effects=(ORDER,)))

    assert [1, 2, 3] == [first.seq, second.seq, third.seq]
    assert [64, 65, 192] == [one.id for one in await log.pending_effects()]
    assert [(BLOG, 2, None), (KEY, 3, digest_of("{}"))] == [
        (one.key, one.seq, one.digest) for one in await log.tracks()
    ]
    assert (True, False) == (
        await log.projected_before(KEY, digest_of("{}")), await log.projected_before(BLOG, digest_of("{}"))
    )  # fmt: skip
    for root, shown in ((KEY.project, True), (BLOG.project, False)):
        assert shown is await log.projected_by_any(root, digest_of("{}"))
    (last,) = await log.events(after=1, project=KEY.project)
    assert (3, ("bdd", "pending"), ("bdd", "pass")) == (last.seq, last.before, last.after)
    assert 1 == len(await log.tracks([BLOG.project]))


async def test_an_order_is_done_once(log: Log) -> None:
    """Marking it again changes nothing, and another one is still open."""
    done, open_ = (await log.commit(record(effects=(ORDER, ORDER)))).effects
    await log.effect_done(KEY.project, done.id)
    await log.effect_done(KEY.project, done.id, "refused")

    assert (open_,) == await log.pending_effects(KEY.project)
    assert () == await log.pending_effects(BLOG.project)
    for project, number in ((BLOG.project, open_.id), (KEY.project, 99)):
        with pytest.raises(StoreError, match="effect"):
            await log.effect_done(project, number)
    assert (open_,) == await log.pending_effects()


async def test_a_start_by_the_clock_settles_its_schedule(log: Log) -> None:
    """In the same write: else the next daemon would start the story again."""
    await log.arm([(KEY.project, "night", "f")], NOW)
    started = Started(story="US-1", schedule="night", due=LATER, by="clock")
    await log.commit(record(started, at=LATER))

    (night,) = await log.armed()
    assert night.last is not None
    assert Fire(
        project=KEY.project, schedule="night", due=LATER, at=LATER, outcome="started", story="US-1"
    ) == replace(night.last, why=None)


# --- flows --------------------------------------------------------------------------------------------
async def test_a_flow_comes_back_as_its_last_decision_left_it(log: Log) -> None:
    """With its plan, in one order of events with the tracks."""
    play = played(11)
    first = await log.commit(record())
    for at, one in enumerate(play.records):
        committed = await log.commit_flow(one)
        found = await log.flow(FLOW)

        assert first.seq + 1 + at == committed.seq
        assert one.orders == tuple(order.effect for order in committed.effects)
        assert found is not None
        assert (one.after, play.plan, committed.seq, one.at, LABEL, None) == (
            found.flow, found.plan, found.seq, found.at, found.story, found.unsound
        )  # fmt: skip
        assert list(one.after.nodes) == list(found.flow.nodes)
        assert await log.flows() == await log.flows([KEY.project]) == (() if one.after.ended else (found,))
    assert len(play.records) > 25
    assert () == await log.flows([BLOG.project])
    assert None is await log.flow(BLOG)
    (last,) = await log.events(after=len(play.records))
    assert (FLOW, play.records[-1].event.kind, None) == (last.key, last.kind, last.after)
    assert play.records[-1].why == last.why == last.result["message"]


async def test_an_ended_flow_is_told_in_outline_with_what_it_superseded(log: Log) -> None:
    """The latest one first, and at most as many as asked for."""
    plays = [played(seed, name=f"random-{seed:04}") for seed in (30, 11)]
    for play in plays:
        for one in play.records:
            await log.commit_flow(one)

    found = await log.ended_flows(KEY.project)
    assert ["random-0011", "random-0030"] == [one.id for one in found]
    assert [(play.flow.ended, "random", LABEL) for play in reversed(plays)] == [
        (one.how, one.pipeline, one.story) for one in found
    ]
    assert found[0].ended_at == plays[1].records[-1].at > found[0].started_at
    assert sum(found[0].counts.values()) > 0
    assert found[:1] == await log.ended_flows(KEY.project, 1)
    for play in plays:
        past = [node for one in play.records for node in one.past]
        assert past == [one.node for one in await log.past_nodes(KEY.project, play.flow.id)]
        assert past


async def test_a_decision_may_have_any_number_of_orders(log: Log) -> None:
    """Their ids go on above the room of one event, and no later order has one of them."""
    play = fanned_out(200)
    await log.commit(record(effects=(ORDER,)))
    for one in play.records:
        await log.commit_flow(one)
    await log.commit(record(effects=(ORDER, ORDER)))

    pending = await log.pending_effects()
    ids = [one.id for one in pending]
    assert [64, 128] == ids[:2]
    assert ids == sorted(set(ids))
    assert [order for one in play.records for order in one.orders] == [one.effect for one in pending[1:-2]]
    assert max(len(one.orders) for one in play.records) > 190
    await log.effect_done(KEY.project, ids[70])
    assert ids[70] not in [one.id for one in await log.pending_effects()]


# --- projects -----------------------------------------------------------------------------------------
async def test_projects_come_and_go(log: Log) -> None:
    """What a person removed stays out until a person adds it; what the settings let go may come back."""
    brought = [Newcomer(root=f"/srv/{name}", name=name, brought_by="/srv/*") for name in ("a", "b")]
    await log.add_projects(brought, NOW, untrusted=(".ai/handoffd.yaml",))
    await log.add_project("/srv/mine", "mine", NOW)
    await log.let_go(["/srv/a", "/srv/mine"], LATER)
    await log.remove_project("/srv/b", LATER)

    assert ["/srv/mine"] == [one.root for one in await log.projects()]
    assert Origins(brought_by={}, kept_out=frozenset({"/srv/b"})) == await log.origins()
    await log.add_projects(brought, LATER)
    await log.add_project("/srv/mine", "renamed", LATER)
    names = [(one.name, one.added_at) for one in await log.projects()]
    assert [("a", LATER), ("b", LATER), ("renamed", NOW)] == names
    brought_by = {"/srv/a": "/srv/*", "/srv/b": "/srv/*"}
    assert Origins(brought_by=brought_by, kept_out=frozenset()) == await log.origins()
    await log.add_project("/srv/a", "a", LATER)
    assert {"/srv/b": "/srv/*"} == (await log.origins()).brought_by
    await log.write(
        ProjectAdded(project="/srv/c", name="c", at=NOW), ProjectRemoved(project="/srv/c", at=NOW)
    )
    assert {"/srv/c"} == (await log.origins()).kept_out


async def test_files_are_untrusted_only_where_nothing_was_trusted(log: Log) -> None:
    """The settings may bring a project whose files a person has trusted before."""
    await log.trust("/srv/a", ".ai/handoffd.yaml", "auto: true\n", NOW)
    brought = [Newcomer(root=f"/srv/{name}", name=name, brought_by="/srv/*") for name in ("a", "b")]
    await log.add_projects(brought, NOW, untrusted=(".ai/handoffd.yaml",))

    texts = {root: files[".ai/handoffd.yaml"] for root, files in (await log.trusted()).items()}
    assert {"/srv/a": "auto: true\n", "/srv/b": ""} == texts


async def test_a_path_that_is_no_text_is_refused(log: Log) -> None:
    """It could not come back as it was."""
    with pytest.raises(StoreError, match="not UTF-8"):
        await log.add_project("/srv/caf\udce9", "caf", NOW)


async def test_all_operations_of_a_write_are_done_or_none(log: Log) -> None:
    """Also where only the last one cannot be."""
    with pytest.raises(NotFound):
        await log.write(
            ProjectAdded(project="/srv/a", name="a", at=NOW), ProjectRemoved(project="/srv/none", at=NOW)
        )

    assert () == await log.projects()
    assert () == await log.write()


async def test_what_is_kept_for_a_project_is_replaced(log: Log) -> None:
    """Trusted texts by file, baselines by story."""
    for text in ("old", "new"):
        await log.trust("/srv/shop", ".ai/handoffd.yaml", text, NOW)
        await log.save_baseline(KEY, None, text.encode())
    await log.trust("/srv/blog", ".ai/handoffd.yaml", "", NOW)

    assert {"/srv/shop": {".ai/handoffd.yaml": "new"}} == await log.trusted("/srv/shop")
    assert {"/srv/shop", "/srv/blog"} == set(await log.trusted())
    assert (b"new", None) == (await log.load_baseline(KEY, None), await log.load_baseline(KEY, "US-1"))


async def test_a_schedule_keeps_its_outcome_until_it_is_forgotten(log: Log) -> None:
    """Armed again, it is as it was; with another fingerprint it begins anew."""
    await log.arm([("/srv/shop", "night", "f"), ("/srv/shop", "day", "f")], NOW)
    await log.settle(FIRE)
    await log.arm([("/srv/shop", "night", "f"), ("/srv/shop", "day", "g")], LATER)
    await log.arm([("/srv/shop", "day", "g")], NOW)  # it was known since a time to come
    await log.arm([("/srv/shop", "day", "g")], LATER)
    await log.forget([("/srv/none", "night")])

    day, night = (
        StoredSchedule(
            project="/srv/shop", schedule=name, fingerprint=fingerprint, armed_at=at, last=last
        )
        for name, fingerprint, at, last in (("day", "g", NOW, None), ("night", "f", NOW, FIRE))
    )  # fmt: skip
    assert (day, night) == await log.armed()
    await log.forget([("/srv/shop", "night"), ("/srv/shop", "day")])
    assert () == await log.armed()


# --- the same elsewhere -------------------------------------------------------------------------------
def test_each_kind_of_operation_is_tried() -> None:
    """Below."""
    assert {*get_args(Operation)} == {type(one) for one in EACH}


@pytest.mark.parametrize("operation", EACH, ids=lambda one: type(one).__name__)
def test_every_operation_comes_back_from_its_text(operation: Operation) -> None:
    """Equal, with its project, and with words for an error."""
    assert operation == decode_operation(encode(operation))
    assert "/srv/shop" == operation.project
    assert "/srv/shop" in activity([operation])
    assert activity([operation, operation]).endswith(" and 1 more")


async def test_operations_written_again_elsewhere_make_the_same_journal(tmp_path: Path) -> None:
    """A real story, logged as text first: the journal made of that is as good as the other, and verifies."""
    first, then = MemoryLog(), tmp_path / "then.db"
    async with opened(tmp_path / "journal.db") as journal:
        for log in (first, journal):
            await log.add_project(SHOP.project, "shop", NOW)
            await log.arm([(SHOP.project, "night", "f")], NOW)
            for one in story().records:
                for order in (await log.commit(one)).effects[:1]:
                    await log.effect_done(SHOP.project, order.id)
            for decided in (*played(11).records, *fanned_out(100).records):
                await log.commit_flow(decided)
            await log.trust(SHOP.project, ".ai/handoffd.yaml", "auto: true\n", NOW)
        async with opened(then) as other:
            for line in first.lines:
                await other.write(decode_operation(line))

            assert await answers(journal) == await answers(other)
            assert await answers(first) == await answers(other)
    assert len(story().records) > 5
    with closing(Recordings(then)) as recordings:
        assert Verification(recordings).run().clean


async def test_a_journal_that_is_only_read_takes_nothing(place: Path) -> None:
    """It says what it did not do."""
    async with opened(place):
        reading = await Journal.open_to_read(place)
        with pytest.raises(StoreError, match=r"cannot add /srv/a and 1 more: .* for reading only"):
            await reading.add_projects([Newcomer(root=f"/srv/{name}", name=name) for name in "ab"], NOW)
        await reading.close()
