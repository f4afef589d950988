"""The choice of an executor for an attempt."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.eventually import eventually
from tests.support.house import HAND_OVER, NOW, House, daemon, make_project, track_of

from handoffd.capacity.accounts import Wait
from handoffd.engine.events import Initialised, Started
from handoffd.engine.track import Track, TrackKey
from handoffd.execute.executor import Executor
from handoffd.execute.registry import (
    ExecutorBook,
    Layer,
    candidates_of,
    load_book,
    names_in,
    no_agent,
    shipped_layer,
)
from handoffd.project.files import ProjectFiles
from handoffd.track.executor_choice import Choice, ExecutorChoice, first_free

BOOK = ExecutorBook(
    {
        "claude": Executor(name="claude", argv=("claude",)),
        "command": Executor(name="command"),
        "rehearsal": Executor(name="rehearsal", argv=("{python}",)),
        "codex": Executor(name="codex", argv=("codex",)),
    }
)
CLAUDE, CODEX = BOOK.executors["claude"], BOOK.executors["codex"]


def has(*names: str) -> Callable[[Executor], bool]:
    """Return a machine with these executors installed."""
    return lambda executor: executor.name in names


Limits = Callable[[str], Wait | None]


def limits(**minutes: float) -> Limits:
    """Return accounts with limits for some minutes."""
    waits = {name: Wait(name, "limit", NOW + timedelta(minutes=left), None) for name, left in minutes.items()}
    return waits.get


# --- the candidates -------------------------------------------------------------------------------
def test_auto_means_all_installed_agents_in_order() -> None:
    """Neither a base nor the rehearsal, which would pass steps without any work."""
    assert (CLAUDE, CODEX) == candidates_of(("auto",), BOOK, has("codex", "claude", "rehearsal", "command"))
    assert (CODEX,) == candidates_of(("auto",), BOOK, has("codex"))
    assert () == candidates_of(("auto",), BOOK, has())


def test_a_list_means_its_installed_executors() -> None:
    """If there are none, the first stays: its start reports what is missing."""
    assert (CODEX, CLAUDE) == candidates_of(("codex", "claude"), BOOK, has("claude", "codex"))
    assert (CLAUDE,) == candidates_of(("codex", "claude"), BOOK, has("claude"))
    assert (CODEX,) == candidates_of(("codex", "claude"), BOOK, has())


def test_an_unknown_name_is_skipped_if_another_is_usable() -> None:
    """With a message, so that the mistake is found; chosen alone, its start reports it."""
    names = ("cluade", "codex")
    skipped = Choice("codex", "codex", ("no executor is called 'cluade'",))
    for limited in (limits(), limits(codex=5)):
        assert skipped == first_free(candidates_of(names, BOOK, has("codex")), limited, NOW)
    assert Choice("cluade", "cluade") == first_free(candidates_of(names, BOOK, has()), limits(), NOW)


# --- the choice -----------------------------------------------------------------------------------
CLAUDE_IS_OVER = "claude is limited until 22:20 UTC (in 5 min)"
ON_TRIAL = {"claude": Wait("claude", "limit", NOW, TrackKey("/srv/shop"))}
MISSPELT = ("cluade", CLAUDE, "cdx", CODEX)
MISTAKES = ("no executor is called 'cluade'", CLAUDE_IS_OVER, "no executor is called 'cdx'")


@pytest.mark.parametrize(
    ("candidates", "limited", "name", "reasons"),
    [
        ((CLAUDE, CODEX), limits(codex=5), "claude", ()),
        ((CLAUDE, CODEX), limits(claude=5), "codex", (CLAUDE_IS_OVER,)),
        # If all are limited, the first to be free: the choice is made again by then.
        ((CLAUDE, CODEX), limits(claude=9, codex=5), "codex", ()),
        ((CLAUDE, CODEX), ON_TRIAL.get, "codex", ("claude is just being tried after its limit",)),
        (MISSPELT, limits(claude=5), "codex", MISTAKES),
        ((), limits(), None, ()),
    ],
)
def test_the_first_executor_without_a_limit_is_chosen(
    candidates: tuple[Executor | str, ...], limited: Limits, name: str | None, reasons: tuple[str, ...]
) -> None:
    """With the reasons against those before it, in the order of the list."""
    expected = None if name is None else Choice(name, name, reasons)
    assert expected == first_free(candidates, limited, NOW)


def test_a_setting_is_one_name_several_or_none() -> None:
    """All three are read as a tuple."""
    assert [("a",), ("a", "b"), ()] == [names_in("a"), names_in(("a", "b")), names_in(None)]


def test_without_any_agent_the_error_lists_the_known_ones() -> None:
    """And the next command."""
    error = no_agent(BOOK)
    assert ("NO_EXECUTOR", "handoffd doctor") == (error.code, error.hint)
    assert "executor: auto, and none is installed of claude, codex" == error.message


# --- which setting wins ---------------------------------------------------------------------------
async def chosen(here: House, root: str, track: Track) -> str:
    """Return the executor of a project's next attempt."""
    files = ProjectFiles(root, here.journal, here.clock)
    await files.refresh()
    return (await ExecutorChoice(TrackKey(root), files, here.services).choose(track)).executor


@pytest.mark.parametrize(
    ("rules", "settings", "story", "executor"),
    [
        ("", "", (), "agent"),
        ("", "executor: rehearsal\n", (), "rehearsal"),
        ("", "executor: rehearsal\n", ("agent",), "agent"),
        ("steps: {bdd: {executor: [rehearsal]}}\n", "", ("agent",), "rehearsal"),
        ("steps: {impl: {executor: rehearsal}}\n", "", (), "agent"),
        ("", "executor: [no-such-thing, agent]\n", (), "agent"),
        ("", "executor: [no-such-thing]\n", (), "no-such-thing"),
    ],
)
async def test_the_most_specific_setting_wins(
    here: House, tmp_path: Path, rules: str, settings: str, story: tuple[str, ...], executor: str
) -> None:
    """Step, story, project, daemon."""
    root = make_project(tmp_path, rules=rules, settings=settings)

    assert executor == await chosen(here, root, track_of().with_ledger(executor=story))


async def test_a_changed_memory_limit_changes_the_sign(here: House, tmp_path: Path) -> None:
    """So that a run that met the old limit is tried with the new one."""
    root, before, signs = make_project(tmp_path), here.services.settings, set()
    choosing = ExecutorChoice(TrackKey(root), ProjectFiles(root, here.journal, here.clock), here.services)
    for limit in (None, 1 << 30, 2 << 30):
        execute = before.execute.model_copy(update={"memory_max": limit})
        here.services.settings = before.model_copy(update={"execute": execute})
        signs.add(choosing.sign("agent"))
    assert 3 == len(signs)


# --- faults ---------------------------------------------------------------------------------------
async def test_an_installed_program_ends_the_pause_of_a_resting_project(
    here: House, root: str, tmp_path: Path
) -> None:
    """The poller notices it without a command."""
    program = tmp_path / "late"
    here.services.executors = load_book(
        shipped_layer(),
        Layer(file="settings", definitions={"late": {"extends": "command", "argv": [str(program)]}}),
    )
    async with daemon(here, rest_after_s=0.01) as roster:
        await roster.add(root)
        await roster.give(root, Initialised(project="shop"))
        await roster.give(root, Started(story="US-001", executor=("late",)))

        async def rests() -> int | None:
            await roster.poll()
            return roster.resting or None

        looks: Any = rests
        await eventually(looks)
        view = await roster.view(root)
        assert "handoffd: late is not to be found" == view.paused_by
        program.write_text("#!/bin/sh\ncat > /dev/null\n" + HAND_OVER, encoding="utf-8")
        program.chmod(0o755)

        async def goes_on() -> str | None:
            await roster.poll()
            (track,) = (await roster.view(root)).tracks
            return track.step if track.step == "review" else None

        again: Any = goes_on
        await eventually(again)
