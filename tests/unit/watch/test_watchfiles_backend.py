"""Watching by watchfiles: what one watch reports and refuses, and when a shard is built anew."""

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
from tests.unit.watch.watching import project, publish, touch_name_that_is_no_utf8, watching

from handoffd.settings.model import WatchSettings
from handoffd.watch.folders import Place, place_of
from handoffd.watch.watchfiles_backend import Fault, Watch, WatchfilesBackend, bearable, open_watch

SETTINGS = WatchSettings()
UNSWEPT = WatchSettings(backend="watchfiles", sweep_s=3600)
SWEPT_OFTEN = WatchSettings(backend="watchfiles", sweep_s=0.1)


class Deliveries:
    """The deliveries of a watch, and how it ended."""

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
    return [place_of(str(project(folder, name))) for name in names]


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
    """Renaming `.ai` away, or deleting it, is not a change in it."""
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


def test_a_name_that_is_not_utf8_is_an_obstacle_only_to_the_wary(tmp_path: Path) -> None:
    """A file that breaks watchers only when touched does not cost an untried project its watch."""
    (place,) = _projects(tmp_path, "a")
    touch_name_that_is_no_utf8(tmp_path / "a")

    assert bearable(place).why_not is None
    assert "not UTF-8" in (bearable(place, wary=True).why_not or "")


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


# --- the backend --------------------------------------------------------------------------------------
async def test_a_name_that_is_not_utf8_costs_the_others_nothing(tmp_path: Path) -> None:
    """The project at fault is left to the sweep, and reported; its neighbours stay watched."""
    culprit, neighbour = project(tmp_path, "culprit"), project(tmp_path, "neighbour")
    async with watching(UNSWEPT, culprit, neighbour) as (watcher, hints):
        touch_name_that_is_no_utf8(culprit)
        await eventually(lambda: str(culprit) in watcher.degraded)
        for text in ("one", "two"):
            publish(neighbour, text)
            await eventually(hints.saw(neighbour, text))
        publish(culprit, "swept")
        await watcher.sweep_now()

    assert "swept" == hints.seen[str(culprit)]
    assert [str(culprit)] == list(watcher.degraded)


async def test_a_project_at_fault_is_watched_again_when_it_is_repaired(tmp_path: Path) -> None:
    """It is tried again at a sweep, but not while the bad name is still there."""
    culprit = project(tmp_path)
    async with watching(SWEPT_OFTEN, culprit) as (watcher, hints):
        touch_name_that_is_no_utf8(culprit)
        await eventually(lambda: "holds a name that is not UTF-8" in watcher.degraded.get(str(culprit), ""))
        os.unlink(os.fsencode(culprit / ".ai") + b"/\xff\xfe")
        await eventually(lambda: {} == watcher.degraded)
        publish(culprit, "repaired")
        await eventually(hints.saw(culprit, "repaired"))


async def test_a_watch_that_went_deaf_is_built_anew(tmp_path: Path) -> None:
    """watchfiles reports no overflow: a change that only the sweep saw gives it away."""
    root = project(tmp_path)
    async with watching(SWEPT_OFTEN, root) as (watcher, hints):
        assert isinstance(watcher._backend, WatchfilesBackend)
        (shard,) = watcher._backend._shards
        deaf = shard.watch
        assert deaf is not None
        deaf.stop()
        publish(root, "swept")
        await eventually(hints.saw(root, "swept"))
        await eventually(lambda: shard.watch not in (None, deaf))


async def test_a_path_that_is_not_utf8_cannot_be_watched(tmp_path: Path) -> None:
    """The reason is reported."""
    root = project(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")))
    async with watching(UNSWEPT, root) as (watcher, _):
        assert {str(root): "its path is not UTF-8"} == watcher.degraded
