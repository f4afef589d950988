"""The sweep finds what a watch missed, and nothing twice."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from handoffd.watch.folders import NOWHERE, folder_identity
from handoffd.watch.watcher import SLICE, Sweeper


def _write(root: str, name: str, text: str) -> None:
    Path(root, ".ai", name).write_text(text, encoding="utf-8")


@pytest.fixture
def roots(tmp_path: Path) -> list[str]:
    """Three projects that have handed over once."""
    for name in "abc":
        (tmp_path / name / ".ai").mkdir(parents=True)
        (tmp_path / name / ".ai" / "HANDOFF.md").write_text("one", encoding="utf-8")
    return [str(tmp_path / name) for name in "abc"]


@pytest.fixture
def hints() -> list[str]:
    """The roots that were hinted, in order."""
    return []


@pytest.fixture
def sweeper(roots: list[str], hints: list[str]) -> Sweeper:
    """A sweeper with all three, which has not looked yet."""
    made = Sweeper(hints.append)
    for root in roots:
        made.add(root)
    return made


async def test_the_first_sight_is_only_remembered(sweeper: Sweeper, hints: list[str]) -> None:
    """The caller that adds a project looks at it anyway; the sweep only hints later changes."""
    swept = await sweeper.sweep_now()

    assert [] == hints
    assert (frozenset(), frozenset()) == (swept.changed, swept.moved)


async def test_the_first_sight_is_hinted_when_asked_for(roots: list[str]) -> None:
    """A project that was added by the watcher is hinted once its signature is known."""
    hints: list[str] = []
    sweeper = Sweeper(hints.append)
    sweeper.add(roots[0], hint_first=True)
    sweeper.add(roots[1])

    await sweeper.sweep_now()
    await sweeper.sweep_now()

    assert [roots[0]] == hints


async def test_a_change_is_hinted_once(roots: list[str], sweeper: Sweeper, hints: list[str]) -> None:
    """A changed project is hinted by the next sweep and not by the one after it."""
    await sweeper.sweep_now()
    _write(roots[1], "STATE.json", "{}")

    first = await sweeper.sweep_now()
    second = await sweeper.sweep_now()

    assert [roots[1]] == hints
    assert (frozenset({roots[1]}), frozenset()) == (first.changed, second.changed)


async def test_only_the_roots_asked_for_are_swept(
    roots: list[str], sweeper: Sweeper, hints: list[str]
) -> None:
    """A sweep of some roots leaves the news of the others for later."""
    await sweeper.sweep_now()
    for root in roots:
        _write(root, "executor-result", "status: pass")

    await sweeper.sweep_now([roots[2], "/never/added"])
    assert [roots[2]] == hints

    await sweeper.sweep_now()
    assert sorted(roots) == sorted(hints)


async def test_a_removed_root_is_forgotten(roots: list[str], sweeper: Sweeper, hints: list[str]) -> None:
    """A project that was removed is not hinted."""
    await sweeper.sweep_now()
    sweeper.remove(roots[0])
    _write(roots[0], "HANDOFF.md", "two!")

    assert frozenset() == (await sweeper.sweep_now()).changed
    assert [] == hints


async def test_a_replaced_folder_is_reported(roots: list[str], sweeper: Sweeper) -> None:
    """Compared with the one that was there last; only once."""
    await sweeper.sweep_now()
    os.rename(f"{roots[0]}/.ai", f"{roots[0]}/old")
    os.mkdir(f"{roots[0]}/.ai")
    os.rename(f"{roots[1]}/.ai", f"{roots[1]}/old")

    assert frozenset(roots[:2]) == (await sweeper.sweep_now()).moved
    assert frozenset() == (await sweeper.sweep_now()).moved


async def test_a_folder_is_compared_with_the_one_expected(roots: list[str], sweeper: Sweeper) -> None:
    """At the first sight as well: it may have been replaced before it was swept."""
    expected = {roots[0]: folder_identity(f"{roots[0]}/.ai"), roots[1]: NOWHERE, roots[2]: b"another one"}

    swept = await sweeper.sweep_now(expected, expected=expected)

    assert frozenset(roots[1:]) == swept.moved


async def test_more_projects_than_one_slice(tmp_path: Path) -> None:
    """None of them is left out."""
    roots = [str(tmp_path / str(number)) for number in range(2 * SLICE + 1)]
    hints: list[str] = []
    sweeper = Sweeper(hints.append)
    for root in roots:
        os.makedirs(f"{root}/.ai")
        sweeper.add(root, hint_first=True)

    swept = await sweeper.sweep_now()

    assert roots == sorted(hints, key=lambda root: int(Path(root).name))
    assert frozenset(roots) == swept.changed


async def test_a_root_that_is_removed_during_its_visit_is_not_hinted(roots: list[str]) -> None:
    """The thread's late result does not add it again."""
    hints: list[str] = []
    sweeper = Sweeper(hints.append)
    sweeper.add(roots[0], hint_first=True)
    async with anyio.create_task_group() as group:
        group.start_soon(sweeper.sweep_now)
        await anyio.lowlevel.checkpoint()  # the thread is on its way
        sweeper.remove(roots[0])

    assert [] == hints
    assert frozenset() == (await sweeper.sweep_now()).changed
