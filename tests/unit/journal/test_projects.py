"""Projects in the journal, and what it keeps for them: origins, trusted texts, baselines, schedules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.playbook import Playbook, track_at
from tests.unit.journal.conftest import Golden
from tests.unit.journal.making import KEY, NOW, older, opened

from handoffd.engine.events import Started
from handoffd.errors import StoreError
from handoffd.journal.journal import Journal
from handoffd.journal.records import Fire, Newcomer, Origins, Record, StoredSchedule

SHOP = KEY.project
AT = datetime(2026, 1, 31, 22, tzinfo=UTC)
DUE = AT + timedelta(hours=5)


# --- projects -----------------------------------------------------------------------------------------
async def test_projects_baselines_and_trust_are_kept(place: Path) -> None:
    """They survive a restart."""
    async with opened(place) as journal:
        await journal.add_project("/srv/shop", "shop", NOW)
        await journal.add_project("/srv/blog", "blog", NOW)
        await journal.remove_project("/srv/blog", NOW + timedelta(days=1))
        await journal.save_baseline(KEY, "US-1", b"\x00results")
        await journal.save_baseline(KEY, None, b"of a custom task")
        await journal.trust("/srv/shop", ".ai/step-rules.yaml", "steps: {}", NOW)

    async with opened(place) as journal:
        (kept,) = await journal.projects()
        assert ("/srv/shop", "shop", NOW) == (kept.root, kept.name, kept.added_at)
        assert b"\x00results" == await journal.load_baseline(KEY, "US-1")
        assert b"of a custom task" == await journal.load_baseline(KEY, None)
        assert await journal.load_baseline(KEY, "US-2") is None
        assert {"/srv/shop": {".ai/step-rules.yaml": "steps: {}"}} == await journal.trusted()
        with pytest.raises(StoreError, match="not UTF-8"):
            await journal.add_project("/srv/caf\udce9", "café", NOW)


async def test_how_a_project_came_is_kept(journal: Journal) -> None:
    """What the settings bring they may let go and bring again; what a person removed stays away."""
    brought = [Newcomer(root=f"/srv/{name}", name=name, brought_by="/srv/*") for name in ("a", "b", "c")]
    await journal.add_project("/srv/own", "own", NOW)
    await journal.add_projects(brought, NOW, untrusted=("settings",))
    await journal.let_go(["/srv/a", "/srv/own"], NOW)
    await journal.remove_project("/srv/b", NOW)

    assert ["/srv/c", "/srv/own"] == [known.root for known in await journal.projects()]
    left = Origins(brought_by={"/srv/c": "/srv/*"}, kept_out=frozenset({"/srv/b"}))
    assert left == await journal.origins()

    await journal.add_projects(brought[:1], NOW)
    await journal.add_project("/srv/b", "b", NOW)
    await journal.add_project("/srv/c", "c", NOW)  # of a person's own, from now on
    assert Origins(brought_by={"/srv/a": "/srv/*"}, kept_out=frozenset()) == await journal.origins()


async def test_files_of_a_found_project_are_not_trusted_unless_they_were(journal: Journal) -> None:
    """A person has not seen them; what a person trusted before stays trusted."""
    newcomers = [Newcomer(root="/srv/a", name="a", brought_by="/srv/*")]
    await journal.trust("/srv/a", "rules", "steps: {}\n", NOW)
    await journal.add_projects(newcomers, NOW, untrusted=("settings", "rules"))

    assert {"/srv/a": {"settings": "", "rules": "steps: {}\n"}} == await journal.trusted()


async def test_many_projects_come_all_or_none(journal: Journal) -> None:
    """A path that the journal cannot hold is an error, and the others are not added."""
    with pytest.raises(StoreError):
        await journal.add_projects([Newcomer(root=r, name="n") for r in ("/srv/a", "/srv/caf\udce9")], NOW)

    assert () == await journal.projects()


async def test_a_journal_of_schema_5_brought_no_project_by_settings(golden: Golden, tmp_path: Path) -> None:
    """It can be read before its migration, and after."""
    async with older(5, tmp_path) as reading:
        assert Origins(brought_by={}, kept_out=frozenset()) == await reading.origins()
    async with opened(golden(5)) as journal:
        assert Origins(brought_by={}, kept_out=frozenset({"/srv/blog"})) == await journal.origins()


async def test_a_journal_of_schema_6_knows_what_the_settings_brought(golden: Golden, tmp_path: Path) -> None:
    """But no schedules: neither before its migration, nor after."""
    async with older(6, tmp_path) as reading:
        assert () == await reading.schedules.all()
    async with opened(golden(6)) as journal:
        assert {"/srv/work/a": "/srv/work"} == (await journal.origins()).brought_by
        assert () == await journal.schedules.all()


# --- schedules ----------------------------------------------------------------------------------------
def record(event: Started, status: str = "done") -> Record:
    """Return what the engine decides on a start."""
    play = Playbook(track_at(status)).given(event)
    decision = play.decision
    return Record(
        key=KEY, at=DUE, event=event, track=decision.track, effects=decision.effects,
        result=decision.result, why=decision.why, state_text=None,
    )  # fmt: skip


async def test_a_schedule_is_known_since_it_was_armed(journal: Journal) -> None:
    """Once; with another fingerprint it begins anew."""
    await journal.arm([(SHOP, "nightly", "0 3 * * *")], AT)
    await journal.arm([(SHOP, "nightly", "0 3 * * *")], DUE)
    known = StoredSchedule(project=SHOP, schedule="nightly", fingerprint="0 3 * * *", armed_at=AT, last=None)
    assert (known,) == await journal.schedules.all()
    assert AT == known.handled

    await journal.arm([(SHOP, "nightly", "0 4 * * *")], DUE)
    [again] = await journal.schedules.all()
    assert DUE == again.handled


async def test_a_start_is_dealt_with_in_the_transaction_of_its_event(journal: Journal) -> None:
    """Whether it began or waits in the backlog."""
    await journal.arm([(SHOP, "nightly", "x"), ("/srv/blog", "nightly", "x")], AT)

    await journal.commit(record(Started(story="R-1", schedule="nightly", due=DUE)))

    other, found = await journal.schedules.all()
    assert DUE == found.handled
    started = Fire(project=SHOP, schedule="nightly", due=DUE, at=DUE, outcome="started", story="R-1")
    assert (None, started) == (other.last, found.last)

    await journal.commit(record(Started(story="R-2", schedule="nightly", due=DUE, queue=True), "impl"))
    queued = await journal.schedules.of(SHOP, "nightly")
    assert queued is not None
    assert queued.last is not None
    assert ("queued", "R-2 waits behind US-1") == (queued.last.outcome, queued.last.why)


async def test_a_persons_start_settles_no_schedule(journal: Journal) -> None:
    """Only a start that names the schedule does."""
    await journal.arm([(SHOP, "nightly", "x")], AT)
    await journal.commit(record(Started(story="R-1")))
    [found] = await journal.schedules.all()
    assert found.last is None


async def test_a_schedule_that_started_nothing_is_dealt_with_as_well(journal: Journal) -> None:
    """With the reason."""
    await journal.arm([(SHOP, "nightly", "x")], AT)
    fire = Fire(project=SHOP, schedule="nightly", due=DUE, at=DUE, outcome="skipped", why="US-1 runs")
    await journal.settle(fire)
    [found] = await journal.schedules.all()
    assert (fire, DUE) == (found.last, found.handled)


async def test_a_schedule_that_left_the_settings_is_forgotten(journal: Journal) -> None:
    """The others stay."""
    await journal.arm([(SHOP, "a", "x"), (SHOP, "b", "x")], AT)
    await journal.forget([(SHOP, "a"), (SHOP, "never")])
    assert ["b"] == [one.schedule for one in await journal.schedules.all()]
    await journal.forget([])
    await journal.arm([], AT)
    assert await journal.schedules.of(SHOP, "a") is None


async def test_a_journal_of_schema_7_knows_what_the_clock_has_started(golden: Golden) -> None:
    """As the first release with schedules wrote it."""
    async with opened(golden(7)) as journal:
        look, nightly = await journal.schedules.all()
    assert look.last is not None
    assert nightly.last is not None
    assert ("skipped", "US-005 is in flight at impl") == (look.last.outcome, look.last.why)
    assert ("started", "US-005", AT) == (nightly.last.outcome, nightly.last.story, nightly.handled)
