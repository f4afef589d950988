"""`handoffd reload`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.commands import Commands
from tests.support.controlled import Controlled

from handoffd.api.service import renewed_json
from handoffd.cli.daemon import report
from handoffd.engine.views import Renewed, SettingsView
from handoffd.errors import Problem

PROBLEM = Problem(file="/etc/h.yaml", line=3, key="language", message="must be one", allowed=("en", "zh-TW"))


def answer(*problems: str, brought: int = 0, let_go: int = 0, **view: Any) -> dict[str, Any]:
    """Return what a daemon answers."""
    settings = SettingsView(file="/etc/h.yaml", **view)
    renewed = Renewed(settings=settings, brought=brought, let_go=let_go, problems=problems)
    return renewed_json(renewed, (*settings.warnings, "projects: /x is no folder"))


def test_what_is_in_force_is_named() -> None:
    """And what waits for a restart, who came and went, and what else is to be known."""
    told = answer("/srv/a: bad", brought=2, let_go=1, changed=("execute.slots",), restart=("watch.shards",))

    assert [
        "Now in effect: execute.slots",
        "  /srv/a: bad",
        "Needs a restart of the daemon: watch.shards",
        "2 projects found",
        "1 project let go",
        "warning: projects: /x is no folder",
    ] == list(report(told))


def test_nothing_new_is_said_so() -> None:
    """In one line."""
    assert "The settings have not changed." == next(iter(report(answer())))


def test_what_is_refused_is_named_with_what_to_type() -> None:
    """Every problem with its place and what is allowed."""
    lines = list(report(answer(problems=(PROBLEM,))))

    assert "The settings are invalid; the daemon keeps the last valid ones:" == lines[0]
    assert "  /etc/h.yaml:3: language: must be one (allowed: en, zh-TW)" == lines[1]
    assert "  next: handoffd config check" == lines[-1]
    assert 1 == sum("language" in line for line in lines)


def test_the_daemon_is_asked(control: Controlled, handoffd: Commands) -> None:
    """Its answer is printed; refused settings are exit code 1."""
    control.renewing.view = SettingsView(file="/etc/h.yaml", changed=("execute.slots",))
    good = handoffd("reload")
    control.renewing.view = SettingsView(file="/etc/h.yaml", problems=(PROBLEM,))
    bad, as_json = handoffd("reload"), handoffd("reload", "--json")

    assert (0, "Now in effect: execute.slots") == (good.code, good.lines[0])
    assert (1, 1, "") == (bad.code, as_json.code, bad.out)
    assert not as_json.json["settings"]["taken"]
    assert "language" in bad.err


def test_without_a_daemon_there_is_nothing_to_reload(alone: Path, handoffd: Commands) -> None:
    """It reads all of it when it starts."""
    said = handoffd("reload")

    assert 3 == said.code
    assert "handoffd run" in said.err
