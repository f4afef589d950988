"""Who is there when a daemon starts: rows for those at rest, projects for those with something to do."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tests.support.house import NOW, STARTED, House, daemon, house, make_project, track_of
from tests.unit.journal.making import record

from handoffd.engine.decision import StopTree
from handoffd.engine.events import Initialised
from handoffd.engine.run import Usage
from handoffd.engine.track import Limit, StopReason, Track, TrackKey
from handoffd.fleet.register import Register, by_project, load, make, row_of
from handoffd.journal.records import StoredTrack
from handoffd.project.rest import outline_of
from handoffd.protocol.state import Status
from handoffd.settings.model import ProjectCaps


async def loaded(here: House) -> Register:
    """Return whom the journal of a house knows."""
    register = Register()
    await load(register, here.services)
    return register


async def test_who_has_nothing_to_do_is_a_row(tmp_path: Path) -> None:
    """Whoever has, is made: with an attempt in flight, a turn, an order that is not done."""
    async with house(tmp_path, "sleep 600") as here:
        fresh, quiet, busy = (make_project(tmp_path / name) for name in "abc")
        async with daemon(here) as roster:
            for root in (fresh, quiet, busy):
                await roster.add(root)
            for root in (quiet, busy):
                await roster.give(root, Initialised(project=root[-6]))
            await roster.give(busy, STARTED)

        register = await loaded(here)
        assert ({fresh, quiet}, {busy}) == (set(register.resting), set(register.awake))
        row = register.resting[quiet]
        assert ("b", False, ("main",), None) == (row.name, row.automatic, row.tracks, row.trace)
        (stored,) = await here.journal.tracks([quiet])
        assert ({"main": stored.digest}, {"main": None}) == (row.states, register.resting[fresh].states)
        register.awake[busy].dismiss()


QUIET = track_of(Status.NEEDS_HUMAN)


async def test_an_order_that_is_not_done_keeps_its_project_up(tmp_path: Path) -> None:
    """Though its track has come to rest: somebody has not been told yet, for one."""
    async with house(tmp_path) as here:
        for root in ("/srv/owes", "/srv/rests"):
            await here.journal.add_project(root, root[5:], NOW)
            orders = (StopTree(dispatch="d1", why=StopReason.ABORT),) if root == "/srv/owes" else ()
            await here.journal.commit(record(key=TrackKey(root), after=QUIET, effects=orders))

        register = await loaded(here)
        assert (["/srv/owes"], ["/srv/rests"]) == (list(register.awake), list(register.resting))
        register.awake["/srv/owes"].dismiss()


def test_tracks_are_sorted_by_their_project() -> None:
    """Several tracks of one root belong together, and one row has them all."""
    keys = [TrackKey("/a"), TrackKey("/b", "US-1"), TrackKey("/a", "US-2")]
    stored = [
        outline_of(StoredTrack(key=key, track=track_of(Status.NEEDS_HUMAN), seq=1, digest="d"))
        for key in keys
    ]

    found = by_project(stored)

    assert {"/a": (stored[0], stored[2]), "/b": (stored[1],)} == found
    assert ("shop", ("main", "US-2")) == (row_of("/a", found["/a"]).name, row_of("/a", found["/a"]).tracks)
    other = row_of("/b", found["/b"])
    assert ("b", {"main": None, "US-1": "d"}) == (other.name, other.states)


async def test_what_those_at_rest_have_spent_and_met_counts(tmp_path: Path) -> None:
    """Their ledgers say it, and nobody else."""
    async with house(tmp_path, caps={"daemon_usd": 10}) as here:
        until = NOW + timedelta(hours=1)
        limit = Limit(account="purse", executor="agent", kind="limit", since=NOW, until=until)
        for root in ("/srv/a", "/srv/b"):
            await here.journal.add_project(root, root[5:], NOW)
            after = QUIET.with_ledger(limited=(limit,), spent=Usage(cost_usd=6.0))
            await here.journal.commit(record(key=TrackKey(root), after=after))

        register = await loaded(here)

        assert ([], 2) == (list(register.awake), len(register))
        assert {TrackKey("/srv/a"), TrackKey("/srv/b")} == set(here.services.accounts.tracks("purse"))
        over = here.services.budgets.over(TrackKey("/srv/c"), Track(), ProjectCaps())
        assert over is not None
        assert 12.0 == over.spent


async def test_all_of_a_journal_can_be_made(tmp_path: Path) -> None:
    """For whoever only looks."""
    async with house(tmp_path) as here:
        for number in range(3):
            await here.journal.add_project(f"/srv/{number}", f"{number}", NOW)
        register = await loaded(here)
        await make(tuple(register.resting), register, here.services)

        assert ({}, 3) == (register.resting, len(register.awake))
        for project in register.awake.values():
            project.dismiss()
