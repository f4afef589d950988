"""One real watchfiles watcher: what it reports, how it ends, what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.support.eventually import eventually

from handoffd.settings.model import WatchSettings
from handoffd.watch.folders import Place, place_of
from handoffd.watch.watchfiles_backend import Fault, Watch, bearable, open_watch

SETTINGS = WatchSettings()


class Deliveries:
    """What a watch delivered, and how it ended."""

    def __init__(self) -> None:
        self.touched: list[str] = []
        self.moved: list[str] = []
        self.batches = 0
        self.ended = False
        self.fault: Fault | None = None

    def take(self, touched: frozenset[str], moved: frozenset[str]) -> None:
        """Note one batch."""
        self.batches += 1
        self.touched += touched
        self.moved += moved


@asynccontextmanager
async def running(watch: Watch | None) -> AsyncIterator[Deliveries]:
    """Run `watch` for as long as the block lasts."""
    assert watch is not None
    deliveries = Deliveries()

    async def run() -> None:
        deliveries.fault = await watch.run(deliveries.take, anyio.CapacityLimiter(1))
        deliveries.ended = True

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            yield deliveries
            group.cancel_scope.cancel()


def _projects(folder: Path, *names: str) -> list[Place]:
    for name in names:
        (folder / name / ".ai").mkdir(parents=True)
    return [place_of(str(folder / name)) for name in names]


async def test_a_burst_on_one_project_is_one_hint_in_its_batch(tmp_path: Path) -> None:
    """Every file of a project may change; a batch names the project once."""
    places = _projects(tmp_path, "a", "b")
    watch, refused = open_watch(places, WatchSettings(step_ms=100, debounce_ms=1000))
    for name in ("HANDOFF.md", "executor-result", "STATE.json"):
        (tmp_path / "a" / ".ai" / name).write_text("x", encoding="utf-8")
    (tmp_path / "b" / ".ai" / "notes.md").write_text("x", encoding="utf-8")

    async with running(watch) as got:
        await eventually(lambda: bool(got.touched))

    assert {} == refused
    assert ([str(tmp_path / "a")], []) == (got.touched, got.moved)


async def test_names_we_do_not_know_never_reach_the_event_loop(tmp_path: Path) -> None:
    """Noise in `.ai` is sorted out in the watch's own thread."""
    places = _projects(tmp_path, "a", "b")
    watch, _ = open_watch(places, SETTINGS)

    async with running(watch) as got:
        for number in range(50):
            (tmp_path / "b" / ".ai" / f"noise-{number}").touch()
        (tmp_path / "a" / ".ai" / "HANDOFF.md").touch()
        await eventually(lambda: bool(got.touched))

    assert ([str(tmp_path / "a")], 1) == (got.touched, got.batches)


async def test_the_folder_itself_is_reported_as_moved(tmp_path: Path) -> None:
    """Renaming `.ai` away, or deleting it, is told apart from a change in it."""
    places = _projects(tmp_path, "a", "b", "c")
    (tmp_path / "d").mkdir()
    watch, _ = open_watch([*places, place_of(str(tmp_path / "d"))], SETTINGS)

    async with running(watch) as got:
        (tmp_path / "a" / ".ai").rename(tmp_path / "a" / "old")
        (tmp_path / "b" / ".ai").rmdir()
        (tmp_path / "d" / ".ai").mkdir()
        await eventually(lambda: 3 <= len(set(got.moved)))

    assert {str(tmp_path / name) for name in "abd"} == set(got.moved)


async def test_stop_ends_it_without_a_fault(tmp_path: Path) -> None:
    """A stopped watch returns, and its thread with it."""
    watch, _ = open_watch(_projects(tmp_path, "a"), SETTINGS)
    assert watch is not None

    async with running(watch) as got:
        watch.stop()
        await eventually(lambda: got.ended)

    assert got.fault is None


async def test_a_name_that_is_no_utf8_ends_it_and_names_the_project(tmp_path: Path) -> None:
    """The fault says which project caused it."""
    watch, _ = open_watch(_projects(tmp_path, "a", "b"), SETTINGS)

    async with running(watch) as got:
        os.close(os.open(os.fsencode(tmp_path / "b" / ".ai") + b"/\xff\xfe", os.O_CREAT | os.O_WRONLY))
        await eventually(lambda: got.ended)

    assert got.fault is not None
    assert str(tmp_path / "b") == got.fault.root


async def test_a_folder_that_vanished_costs_only_itself(tmp_path: Path) -> None:
    """A missing path, which makes watchfiles refuse all of them, is left out and named."""
    places = _projects(tmp_path, "a", "b", "c")
    (tmp_path / "b" / ".ai").rmdir()

    watch, refused = open_watch(places, SETTINGS)
    async with running(watch) as got:
        (tmp_path / "c" / ".ai" / "HANDOFF.md").touch()
        await eventually(lambda: bool(got.touched))

    assert [str(tmp_path / "b")] == list(refused)
    assert [str(tmp_path / "c")] == got.touched


def test_a_name_that_is_no_utf8_is_an_obstacle_only_to_the_wary(tmp_path: Path) -> None:
    """A file that breaks watchers only when touched does not cost an untried project its watch."""
    (place,) = _projects(tmp_path, "a")
    Path(os.fsdecode(os.fsencode(tmp_path / "a" / ".ai") + b"/\xff")).touch()

    assert bearable(place).why_not is None
    assert "not UTF-8" in (bearable(place, wary=True).why_not or "")


def test_a_path_that_is_no_utf8_is_an_obstacle(tmp_path: Path) -> None:
    """A project whose own path cannot be given to watchfiles is told so."""
    (place,) = _projects(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")), "a")

    assert "its path is not UTF-8" == bearable(place).why_not


_AT_THE_LIMIT = """
import sys
from handoffd.settings.model import WatchSettings
from handoffd.watch.folders import place_of
from handoffd.watch.backend import LIMIT_REACHED
from handoffd.watch.watchfiles_backend import open_watch

watch, refused = open_watch([place_of(root) for root in sys.argv[1:]], WatchSettings())
assert set(refused.values()) <= {LIMIT_REACHED}, refused
print(watch is not None, len(refused))
"""


@pytest.mark.parametrize(
    ("limit", "value", "expected"),
    [("max_inotify_watches", 6, "True 5"), ("max_inotify_instances", 0, "False 10")],
)
def test_at_the_systems_limit_what_fits_is_watched(
    tmp_path: Path, limit: str, value: int, expected: str
) -> None:
    """Beyond the kernel's own limit the rest is refused with that reason (in a namespace of its own)."""
    places = _projects(tmp_path, *map(str, range(10)))
    script = f'echo {value} > /proc/sys/user/{limit} && exec "$@"'
    argv = ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh", sys.executable, "-c"]
    if subprocess.run([*argv, ""], capture_output=True, check=False, timeout=60).returncode:
        pytest.skip("no user namespaces here")

    done = subprocess.run(
        [*argv, _AT_THE_LIMIT, *(place.root for place in places)],
        capture_output=True, check=False, timeout=60, text=True, env={**os.environ, "PYTHONPATH": "daemon"},
    )  # fmt: skip

    assert (expected, "") == (done.stdout.strip(), done.stderr)
