"""Views of all projects and of one, whoever is up and whoever rests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.eventually import eventually
from tests.support.house import INITIALISED, daemon, house, make_project

from handoffd.errors import NotFound
from handoffd.fleet.status import _TOLD_AT_ONCE


async def test_those_that_are_up_and_those_at_rest_are_told_of_together(tmp_path: Path) -> None:
    """By root, and nobody gets up for it."""
    async with house(tmp_path) as here, daemon(here, rest_after_s=0.01) as roster:
        roots = [make_project(tmp_path / name) for name in "ab"]
        for root in roots:
            await roster.add(root)
        await eventually(lambda: roster.resting == 2)
        with roster._register.guest(roots[0]):
            await roster.give(roots[0], INITIALISED)

            views = await roster.views()

            assert roots == [view.project for view in views]
            assert ["ok", "not_initialized"] == [view.condition for view in views]
            assert [views[0]] == [await roster.view(roots[0])]
            assert 1 == roster.resting


async def test_a_stranger_is_not_told_of(tmp_path: Path) -> None:
    """With the command that would add it."""
    async with house(tmp_path) as here, daemon(here) as roster:
        with pytest.raises(NotFound) as unknown:
            await roster.view("/srv/nowhere")
        assert "handoffd add /srv/nowhere" == unknown.value.hint


async def test_many_are_told_of_in_turns(tmp_path: Path) -> None:
    """None is left out."""
    async with house(tmp_path) as here:
        for number in range(_TOLD_AT_ONCE + 1):
            await here.journal.add_project(f"/srv/{number:04}", f"{number}", here.clock.now())
        async with daemon(here, rest_after_s=0.01) as roster:
            assert [f"/srv/{number:04}" for number in range(_TOLD_AT_ONCE + 1)] == [
                view.project for view in await roster.views()
            ]


async def test_what_is_kept_can_be_forgotten(tmp_path: Path) -> None:
    """It also tells what follows from the daemon's settings, which change."""
    async with house(tmp_path) as here, daemon(here, rest_after_s=0.01) as roster:
        root = make_project(tmp_path)
        await roster.add(root)
        await eventually(lambda: roster.resting == 1)
        before = await roster.view(root)
        kept = replace(before, called=None)  # others may come that have its name
        assert [kept] == [row.view for row in roster._register.resting.values()]

        roster.forget_views()

        assert [None] == [row.view for row in roster._register.resting.values()]
        assert before == await roster.view(root)
