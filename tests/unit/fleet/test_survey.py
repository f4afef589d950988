"""The first visit of all projects: what it spares, and whom it leaves to look for themselves."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.house import House, at, house, make_project

from handoffd.fleet.register import survey
from handoffd.project.project import Project


def projects_in(here: House, *names: str) -> list[Project]:
    """Return projects that are known to nobody yet."""
    return [Project(make_project(here.base / name), here.services, ()) for name in names]


async def test_the_first_look_takes_what_the_survey_found(tmp_path: Path) -> None:
    """The next one goes there itself, for a later change is hinted of."""
    async with house(tmp_path) as here:
        (shop,) = projects_in(here, "shop")
        await survey([shop])
        at(shop.root, ".ai/handoffd.yaml").write_text("language: zh-TW\n")

        await shop.look()
        before = shop.files.settings.language
        await shop.look()

        assert (None, "zh-TW", "ok") == (before, shop.files.settings.language, shop.condition)
        shop.close()


async def test_who_has_looked_meanwhile_has_seen_more(tmp_path: Path) -> None:
    """A verb that is given at the start looks for itself; what was found before that is forgotten."""
    async with house(tmp_path) as here:
        (shop,) = projects_in(here, "shop")
        earlier = shop.visit()()
        at(shop.root, ".ai/handoffd.yaml").write_text("language: zh-TW\n")
        await shop.look()

        shop.survey(earlier)
        await shop.look()

        assert "zh-TW" == shop.files.settings.language
        shop.close()


async def test_a_project_that_is_gone_says_so_itself(tmp_path: Path) -> None:
    """And keeps nobody else from being surveyed."""
    async with house(tmp_path) as here:
        shop, blog = projects_in(here, "shop", "blog")
        shutil.rmtree(shop.root)

        await survey([shop, blog])
        await shop.look()

        await blog.look()
        assert ("missing", "ok") == (shop.condition, blog.condition)
        blog.close()


async def test_what_does_not_answer_is_left_out(tmp_path: Path) -> None:
    """It looks for itself then."""
    async with house(tmp_path) as here:
        (shop,) = projects_in(here, "shop")

        await survey([shop], limit_s=0)
        at(shop.root, ".ai/handoffd.yaml").write_text("language: zh-TW\n")
        await shop.look()

        assert "zh-TW" == shop.files.settings.language

        assert "ok" == shop.condition
        shop.close()
