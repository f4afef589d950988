"""Commands as templates, and the project they are about."""

from __future__ import annotations

import shlex
from typing import get_args

import pytest

from handoffd.engine.views import Condition
from handoffd.engine.wording import addressed, command, command_for, repair_command


def test_a_command_names_its_project_and_its_words() -> None:
    """The project comes first, in the engine as a place for it."""
    assert "handoffd rollback {project} bdd --force" == command("rollback", "bdd", "--force")
    assert "handoffd rollback /srv/shop bdd" == addressed(command("rollback", "bdd"), "/srv/shop")
    assert "handoffd rules check /srv/shop" == command_for("/srv/shop", "rules check")


def test_a_sentence_is_addressed_like_a_command() -> None:
    """Wherever in it a project is meant."""
    assert "paused; next: handoffd resume /srv/shop" == addressed(
        f"paused; next: {command('resume')}", "/srv/shop"
    )


@pytest.mark.parametrize("odd", ["/srv/my shop", "/srv/$(reboot)", "/srv/it's", "/srv/a;b", "/srv/–"])
def test_a_shell_takes_it_as_it_is_meant(odd: str) -> None:
    """Whatever a folder is called: what is pasted runs one command, about that folder."""
    assert ["handoffd", "note", odd, odd] == shlex.split(command_for(odd, "note", odd))


@pytest.mark.parametrize("condition", get_args(Condition))
def test_whatever_is_wrong_with_a_project_has_a_first_command(condition: str) -> None:
    """A shell takes it, wherever the project lies; a project that is well needs none."""
    typed = repair_command("/srv/my shop", condition)

    assert (condition == "ok") == (typed is None)
    assert "/srv/my shop" in " ".join(shlex.split(typed or "'/srv/my shop'"))
