"""The choice of an executor for an attempt."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.eventually import eventually
from tests.support.house import HAND_OVER, NOW, House, daemon, house, make_project, track_of

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


def limits(**minutes: float) -> Callable[[str], Wait | None]:
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
    """With a message, so that the mistake is found."""
    candidates = candidates_of(("cluade", "codex"), BOOK, has("codex"))
    said = ("no executor is called 'cluade'",)
    assert Choice("codex", "codex", said) == first_free(candidates, limits(), NOW)
    assert Choice("codex", "codex", said) == first_free(candidates, limits(codex=5), NOW)


def test_the_reasons_for_skipping_are_in_order() -> None:
    """In the order of the list."""
    choice = first_free(("cluade", CLAUDE, "cdx", CODEX), limits(claude=5), NOW)
    over = "claude is limited until 22:20 UTC (in 5 min)"
    said = ("no executor is called 'cluade'", over, "no executor is called 'cdx'")
    assert Choice("codex", "codex", said) == choice


def test_an_unknown_name_is_chosen_if_there_is_no_other() -> None:
    """Its start reports the mistake."""
    candidates = candidates_of(("cluade", "codex"), BOOK, has())
    assert Choice("cluade", "cluade") == first_free(candidates, limits(), NOW)


# --- the choice -----------------------------------------------------------------------------------
def test_the_first_executor_without_a_limit_is_chosen() -> None:
    """With the reasons against those before it."""
    assert Choice("claude", "claude") == first_free((CLAUDE, CODEX), limits(codex=5), NOW)
    over = "claude is limited until 22:20 UTC (in 5 min)"
    assert Choice("codex", "codex", (over,)) == first_free((CLAUDE, CODEX), limits(claude=5), NOW)


def test_if_all_are_limited_the_first_to_be_free_is_chosen() -> None:
    """No executor was skipped: the choice is made again by then."""
    assert Choice("codex", "codex") == first_free((CLAUDE, CODEX), limits(claude=9, codex=5), NOW)
    assert first_free((), limits(), NOW) is None


def test_an_executor_on_trial_is_skipped() -> None:
    """With a message."""
    tried = Wait("claude", "limit", NOW, TrackKey("/srv/shop"))
    choice = first_free((CLAUDE, CODEX), {"claude": tried}.get, NOW)
    assert Choice("codex", "codex", ("claude is just being tried after its limit",)) == choice


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
    tmp_path: Path, rules: str, settings: str, story: tuple[str, ...], executor: str
) -> None:
    """Step, story, project, daemon."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path, rules=rules, settings=settings)

        assert executor == await chosen(here, root, track_of().with_ledger(executor=story))


async def test_a_changed_memory_limit_changes_the_sign(tmp_path: Path) -> None:
    """So that a run that met the old limit is tried with the new one."""
    async with house(tmp_path) as here:
        root, before, signs = make_project(tmp_path), here.services.settings, set()
        choosing = ExecutorChoice(TrackKey(root), ProjectFiles(root, here.journal, here.clock), here.services)
        for limit in (None, 1 << 30, 2 << 30):
            execute = before.execute.model_copy(update={"memory_max": limit})
            here.services.settings = before.model_copy(update={"execute": execute})
            signs.add(choosing.sign("agent"))
        assert 3 == len(signs)


# --- faults ---------------------------------------------------------------------------------------
async def test_an_installed_program_ends_the_pause_of_a_resting_project(tmp_path: Path) -> None:
    """The poller notices it without a command."""
    async with house(tmp_path) as here:
        program = tmp_path / "late"
        here.services.executors = load_book(
            shipped_layer(),
            Layer(
                file="settings",
                definitions={"late": {"extends": "command", "argv": [str(program)]}},
            ),
        )
        root = make_project(tmp_path)
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
