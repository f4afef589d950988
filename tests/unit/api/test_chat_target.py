"""Which project a message is about: named, talked of, around the sender, or the only one there is."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.supervision import MemorySupervision, project_view, track_view
from tests.unit.inspection.making import write
from tests.unit.journal.making import opened

from handoffd.api.chat import Found, Places, Spoken
from handoffd.api.service import Service
from handoffd.clock import SystemClock
from handoffd.errors import HandoffdError, NotFound, Refused


@pytest.fixture
async def places(tmp_path: Path) -> AsyncIterator[Places]:
    """A workspace with two supervised projects, `shop` and `bank`, and `legacy`, which is only there."""
    for name in ("shop", "bank", "legacy"):
        write(tmp_path / name, "package.json", "{}")
    views = (project_view(str(tmp_path / name), track_view()) for name in ("shop", "bank"))
    async with opened(tmp_path / "journal.db") as journal:
        service = Service(MemorySupervision(*views), journal, SystemClock(), runs_dir=Path(os.devnull))
        yield Places(service)


def about(found: Found) -> str | None:
    """Return the name of the folder that a message is about."""
    return None if found.root is None else Path(found.root).name


@pytest.mark.parametrize(
    ("text", "talked_of", "name", "supervised"),
    [
        ("status", "bank", "bank", True),
        ("open project bank", "shop", "bank", True),
        ("開啟專案 bank", "shop", "bank", True),
        ("bank: fix the sums", "shop", "bank", True),
        ("add a link to legacy", "shop", "shop", True),
        ("open legacy", "shop", "legacy", False),
        ("legacy 專案加入購物車", "shop", "legacy", False),
        ("用 CC 幫 legacy 做 code review", "shop", "legacy", False),
        ("create project legacy", "shop", "legacy", False),
    ],
)
async def test_a_message_is_about_what_it_names(
    places: Places, tmp_path: Path, text: str, talked_of: str, name: str, supervised: bool
) -> None:
    """Else about what is talked of; a folder beside a project has a name, too."""
    found = await places.found(text, Spoken(project=str(tmp_path / talked_of)))

    assert (name, supervised) == (about(found), found.supervised)


@pytest.mark.parametrize("text", ["open project nosuch", "繼續專案 nosuch", "nosuch 專案加入購物車"])
async def test_a_name_that_nobody_has_is_not_found(places: Places, tmp_path: Path, text: str) -> None:
    """What is meant for it does not reach the project that is talked of."""
    with pytest.raises(NotFound) as unknown:
        await places.found(text, Spoken(project=str(tmp_path / "shop")))

    assert ("PROJECT_UNKNOWN", "nosuch") == (unknown.value.code, unknown.value.details["given"])


async def test_a_project_to_be_made_is_made_by_hand_first(places: Places, tmp_path: Path) -> None:
    """The next command says where."""
    with pytest.raises(NotFound) as unknown:
        await places.found("create project nosuch", Spoken(project=str(tmp_path / "shop")))

    assert f"mkdir {tmp_path}/nosuch && handoffd init {tmp_path}/nosuch" == unknown.value.hint


@pytest.mark.parametrize("text", ["fix the sums", "CC, fix the sums", "start US-1", "init project"])
async def test_nothing_begins_where_the_sender_happens_to_be(
    places: Places, tmp_path: Path, text: str
) -> None:
    """It is told how to name the folder."""
    with pytest.raises(Refused) as refused:
        await places.found(text, Spoken(here=str(tmp_path / "legacy")))

    assert "FOLDER_NOT_NAMED" == refused.value.code
    assert str(refused.value.hint).startswith(f"handoffd auto {tmp_path}/legacy ")


async def test_where_the_sender_is_can_be_asked_about(places: Places, tmp_path: Path) -> None:
    """A supervised project there is meant in everything; a folder that is no project only by `detect`."""
    inside, beside = Spoken(here=str(tmp_path / "shop/src")), Spoken(here=str(tmp_path / "legacy"))

    assert "shop" == about(await places.found("fix the sums", inside))
    assert "legacy" == about(await places.found("status", beside))
    assert None is about(await places.found("status", Spoken(here=str(tmp_path))))
    assert tmp_path.name == about(await places.found("framework", Spoken(here=str(tmp_path))))


async def test_projects_are_compared_by_name(places: Places, tmp_path: Path) -> None:
    """In the order of the message; one alone is not compared with anything."""
    found = await places.found("compare bank and legacy", Spoken(project=str(tmp_path / "shop")))
    assert (str(tmp_path / "bank"), str(tmp_path / "legacy")) == found.compared

    with pytest.raises(HandoffdError, match="which project"):
        await places.found("compare the progress of bank and nosuch", Spoken())


@pytest.mark.parametrize("text", ["legacy 專案加入購物車", "create project legacy"])
async def test_only_people_begin_where_nobody_supervises(places: Places, tmp_path: Path, text: str) -> None:
    """Where that is asked for: a project's settings are trusted by it."""
    with pytest.raises(Refused) as refused:
        await places.found(text, Spoken(project=str(tmp_path / "shop"), supervised_only=True))

    assert "PEOPLE_ONLY" == refused.value.code


async def test_names_are_looked_for_beside_what_is_known(places: Places, tmp_path: Path) -> None:
    """And in the folder that the sender is in, if that is no project itself."""
    assert (str(tmp_path),) == await places.bases(Spoken())
    (tmp_path / "elsewhere").mkdir()
    assert str(tmp_path / "elsewhere") == (await places.bases(Spoken(here=str(tmp_path / "elsewhere"))))[0]
