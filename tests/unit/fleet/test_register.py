"""The supervised projects: up or at rest, their names, and their first visit at the start of a daemon."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.house import NOW, STARTED, House, at, begun, daemon, house, make_project, track_of
from tests.unit.journal.making import record

from handoffd.engine.decision import StopTree
from handoffd.engine.run import Usage
from handoffd.engine.track import Limit, StopReason, Track, TrackKey
from handoffd.errors import NotFound, Refused
from handoffd.fleet.membership import root_called
from handoffd.fleet.register import Register, by_project, load, make, row_of, survey
from handoffd.journal.records import StoredTrack
from handoffd.project.project import Project
from handoffd.project.rest import Row, outline_of
from handoffd.protocol.state import Status
from handoffd.settings.model import ProjectCaps


def row(name: str) -> Row:
    """Return a project at rest."""
    return Row(name=name, automatic=True, tracks=("main",), states=None)


def project(root: str, here: House, *tracks: Track) -> Project:
    """Return a project with these main tracks, at most one."""
    key = TrackKey(root)
    stored = tuple(StoredTrack(key=key, track=track, seq=1, digest=None) for track in tracks)
    return Project(root, here.services, stored)


def dismiss(register: Register) -> None:
    """Release the projects that are up."""
    for one in register.awake.values():
        one.dismiss()


# --- up or at rest -----------------------------------------------------------------------------------
async def test_a_root_is_either_up_or_at_rest(here: House) -> None:
    """It moves in both directions, and its name moves with it, until it is forgotten."""
    register, shop = Register(), project("/srv/shop", here)
    register.lay_down(shop.root, row("old"))
    assert (True, False, [shop.root]) == (shop.root in register, "/b" in register, list(register))

    register.get_up(shop.root, shop)
    assert ({}, [shop], 1) == (register.resting, list(register.awake.values()), len(register))
    assert ([shop.root], []) == (register.called("shop"), register.called("old"))

    register.lay_down(shop.root, row("shop"))
    assert ({}, ["shop"]) == (register.awake, [found.name for found in register.resting.values()])
    register.forget(shop.root)
    register.forget(shop.root)
    assert (0, {}) == (len(register), register.resting)
    shop.dismiss()


def test_guests_are_counted_until_they_leave() -> None:
    """Also after an error."""
    register = Register()
    with register.guest("/a"), register.guest("/a"):
        assert (2, 0) == (register.guests("/a"), register.guests("/b"))
    with pytest.raises(RuntimeError), register.guest("/a"):
        raise RuntimeError
    assert 0 == register.guests("/a")


# --- names -------------------------------------------------------------------------------------------
async def test_the_name_of_a_project_is_in_its_state_or_its_folders_name(here: House) -> None:
    """As `status` shows it, up or at rest."""
    register = Register()
    register.awake |= {"/srv/x": project("/srv/x", here, track_of()), "/srv/till": project("/srv/till", here)}
    register.lay_down("/srv/y", row("yard"))

    assert ["shop", "till", "yard"] == [register.name_of(root) for root in register]
    dismiss(register)


async def test_a_shared_name_is_replaced_by_the_root(here: House) -> None:
    """For projects up and at rest, until only one has the name."""
    register = Register()
    for root in ("/a", "/b", "/c"):
        register.lay_down(root, row("shop"))
    register.awake["/shop"] = project("/shop", here)

    assert ["/shop", "/a", "/b", "/c"] == register.called("shop")
    assert {root: root for root in register} == dict(register.names())
    for root in ("/a", "/b", "/shop"):
        register.forget(root)
    assert (["/c"], {"/c": "shop"}) == (register.called("shop"), dict(register.names()))
    register.forget("/c")
    assert ([], 0) == (register.called("shop"), len(register.names()))
    with pytest.raises(KeyError):
        register.names()["/c"]


STATE = Path("/var/lib/handoffd")


@pytest.fixture
async def projects(tmp_path: Path) -> AsyncIterator[Register]:
    """Two projects named `shop` and one named after its folder, `till`."""
    async with house(tmp_path) as here:
        register = Register()
        for name in ("a", "b"):
            root = make_project(tmp_path / name)
            register.awake[root] = project(root, here, track_of())
        (tmp_path / "till/docs").mkdir(parents=True)
        register.awake[f"{tmp_path}/till"] = project(f"{tmp_path}/till", here)
        yield register
        dismiss(register)


async def test_a_project_is_found_by_root_by_inner_path_and_by_name(
    projects: Register, tmp_path: Path
) -> None:
    """Through symbolic links, too; every displayed name leads back to its project."""
    till, names = str(tmp_path / "till"), projects.names()
    (tmp_path / "link").symlink_to(till)

    for name in (till, f"{till}/docs", str(tmp_path / "link" / "docs"), "till"):
        assert till == root_called(name, projects, STATE)
    assert {*list(projects)[:2], "till"} == set(names.values())
    assert list(projects) == [root_called(names[root], projects, STATE) for root in projects]


async def test_an_ambiguous_name_is_refused_with_the_paths(projects: Register) -> None:
    """A person has to give one of them."""
    with pytest.raises(Refused) as refused:
        root_called("shop", projects, STATE)

    assert all(root in refused.value.message for root in list(projects)[:2])
    assert "handoffd projects" == refused.value.hint


@pytest.mark.parametrize("name", ["shpo", "docs", "./till", "/nowhere"])
async def test_an_unknown_name_is_refused_with_the_known_names(
    projects: Register, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A relative path has no meaning, even if the daemon runs inside a project."""
    monkeypatch.chdir(tmp_path / "till")
    with pytest.raises(NotFound) as unknown:
        root_called(name, projects, STATE)

    assert "(known: shop, shop, till)" in unknown.value.message
    assert "handoffd projects" == unknown.value.hint


def test_only_a_folder_that_can_be_a_project_may_be_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home folder cannot, and what is not there cannot either."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "shop").mkdir()

    hints = {}
    for name in ("shop", "none", ""):
        with pytest.raises(NotFound) as unknown:
            root_called(str(tmp_path / name), Register(), STATE)
        hints[name] = unknown.value.hint

    other = "handoffd projects"
    assert {"shop": f"handoffd add {tmp_path}/shop", "none": other, "": other} == hints


def test_only_some_of_many_names_are_listed() -> None:
    """The message stays readable."""
    many = Register()
    for number in range(23):
        many.lay_down(f"/srv/{number}", row(f"{number}"))
    with pytest.raises(NotFound, match="and 3 more"):
        root_called("shop", many, STATE)


def test_an_impossible_path_is_not_found(tmp_path: Path) -> None:
    """A loop of links, a name that is too long, a character that no path can have."""
    (tmp_path / "round").symlink_to(tmp_path / "round")

    for name in (str(tmp_path / "round" / "x"), "/" + "x" * 5_000, "/a\0b"):
        with pytest.raises(NotFound):
            root_called(name, Register(), STATE)


# --- loading at the start of a daemon ----------------------------------------------------------------
QUIET = track_of(Status.NEEDS_HUMAN)


async def loaded(here: House) -> Register:
    """Return the projects in the journal of a house."""
    register = Register()
    await load(register, here.services)
    return register


async def test_an_idle_project_is_loaded_as_a_row(tmp_path: Path) -> None:
    """A project with an attempt in flight is built."""
    async with house(tmp_path, "sleep 600") as here:
        fresh, quiet, busy = (make_project(tmp_path / name) for name in "abc")
        async with daemon(here) as roster:
            await roster.add(fresh)
            await begun(roster, quiet)
            await begun(roster, busy, STARTED)

        register = await loaded(here)
        assert ({fresh, quiet}, {busy}) == (set(register.resting), set(register.awake))
        found = register.resting[quiet]
        assert ("shop", False, ("main",), None) == (found.name, found.automatic, found.tracks, found.trace)
        (stored,) = await here.journal.tracks([quiet])
        assert ({"main": stored.digest}, {"main": None}) == (found.states, register.resting[fresh].states)
        dismiss(register)


async def test_an_unfinished_order_keeps_its_project_up(here: House) -> None:
    """Although its track is idle: the order may be an undelivered notice."""
    for root in ("/srv/owes", "/srv/rests"):
        await here.journal.add_project(root, root[5:], NOW)
        orders = (StopTree(dispatch="d1", why=StopReason.ABORT),) if root == "/srv/owes" else ()
        await here.journal.commit(record(key=TrackKey(root), after=QUIET, effects=orders))

    register = await loaded(here)
    assert (["/srv/owes"], ["/srv/rests"]) == (list(register.awake), list(register.resting))
    dismiss(register)


def test_tracks_are_grouped_by_project() -> None:
    """One row has all tracks of its root."""
    keys = [TrackKey("/a"), TrackKey("/b", "US-1"), TrackKey("/a", "US-2")]
    stored = [outline_of(StoredTrack(key=key, track=QUIET, seq=1, digest="d")) for key in keys]

    found = by_project(stored)

    assert {"/a": (stored[0], stored[2]), "/b": (stored[1],)} == found
    shop, other = row_of("/a", found["/a"]), row_of("/b", found["/b"])
    assert ("shop", ("main", "US-2")) == (shop.name, shop.tracks)
    assert ("b", {"main": None, "US-1": "d"}) == (other.name, other.states)


async def test_spending_and_limits_of_resting_projects_count(tmp_path: Path) -> None:
    """They come from their ledgers."""
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


async def test_all_projects_of_a_journal_can_be_built(here: House) -> None:
    """For read-only commands."""
    for number in range(3):
        await here.journal.add_project(f"/srv/{number}", f"{number}", NOW)
    register = await loaded(here)
    await make(tuple(register.resting), register, here.services)

    assert ({}, 3) == (register.resting, len(register.awake))
    dismiss(register)


# --- the first visit ---------------------------------------------------------------------------------
ZH_TW = "language: zh-TW\n"


async def test_the_first_look_uses_the_survey(here: House, root: str) -> None:
    """The next one reads the folder itself, because a hint reports a later change."""
    shop = project(root, here)
    await survey([shop])
    at(shop.root, ".ai/handoffd.yaml").write_text(ZH_TW)

    await shop.look()
    before = shop.files.settings.language
    await shop.look()

    assert (None, "zh-TW", "ok") == (before, shop.files.settings.language, shop.condition)
    shop.close()


@pytest.mark.parametrize("silent", [False, True], ids=["looked meanwhile", "did not answer in time"])
async def test_a_project_without_a_fresh_survey_looks_for_itself(
    here: House, root: str, silent: bool
) -> None:
    """A verb at the start has already made it look, or the survey got no answer."""
    shop = project(root, here)
    earlier = shop.reconciler.visit()()
    if silent:
        await survey([shop], limit_s=0)
    at(shop.root, ".ai/handoffd.yaml").write_text(ZH_TW)
    if not silent:
        await shop.look()
        shop.reconciler.survey(earlier)

    await shop.look()

    assert ("zh-TW", "ok") == (shop.files.settings.language, shop.condition)
    shop.close()


async def test_a_missing_folder_does_not_stop_the_survey(here: House, tmp_path: Path) -> None:
    """Its project reports the fault, and the others are surveyed."""
    shop, blog = (project(make_project(tmp_path / name), here) for name in ("shop", "blog"))
    shutil.rmtree(shop.root)

    await survey([shop, blog])
    await shop.look()

    await blog.look()
    assert ("missing", "ok") == (shop.condition, blog.condition)
    blog.close()
