"""Watching by inotify: every way of writing, lost events, limits, one watch for two."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from tests.support.eventually import eventually
from tests.unit.watch.test_backend import running as running_alone
from tests.unit.watch.test_inotify import packed
from tests.unit.watch.watching import Hints, project, publish, touch_name_that_is_no_utf8, watching

from handoffd.settings.model import WatchSettings
from handoffd.watch.inotify_backend import IN_IGNORED, Event, InotifyBackend

if sys.platform != "linux":
    pytest.skip("elsewhere there is no inotify", allow_module_level=True)

UNSWEPT = WatchSettings(backend="inotify", sweep_s=3600)
QUEUED = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
ROOM_FOR_ALL = 100_000


def _append(file: Path) -> None:
    with file.open("a") as opened:
        opened.write("more")


def _move_away(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))


WAYS: dict[str, Callable[[Path], None]] = {
    "append": _append,
    "truncate without closing": lambda file: os.truncate(file, 1),
    "set its time": lambda file: os.utime(file, (1, 1)),
    "make it unreadable": lambda file: file.chmod(0),
    "delete": Path.unlink,
    "move away": _move_away,
    "link": lambda file: os.link(file, file.with_name("executor-result")),
    "symbolic link": lambda file: file.with_name("executor-result").symlink_to("nowhere"),
    "a folder in its place": lambda file: file.with_name("step-rules.yaml").mkdir(),
}


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_of_changing_a_file_is_hinted(tmp_path: Path, way: str) -> None:
    """Whether or not it is closed afterwards, and by whatever call."""
    root = project(tmp_path)
    publish(root, "first")
    async with watching(UNSWEPT, root) as (_, hints):
        WAYS[way](root / ".ai" / "HANDOFF.md")
        await eventually(lambda: 2 <= hints.count[str(root)])


@pytest.mark.parametrize("away", [Path.unlink, _move_away])
async def test_a_file_that_vanishes_is_not_hinted_at_once(
    tmp_path: Path, away: Callable[[Path], None]
) -> None:
    """Writing it again must not get in the way of `rm -r`: a later change elsewhere is heard first."""
    root, other = project(tmp_path, "root"), project(tmp_path, "other")
    publish(root, "x")
    async with running_alone(InotifyBackend(), root, other) as told:
        away(root / ".ai" / "HANDOFF.md")
        publish(other, "x")
        await eventually(lambda: str(root) in told.heard)

    assert [str(other), str(root)] == told.heard[:2]


async def test_a_file_that_stays_open_is_hinted(tmp_path: Path) -> None:
    """After each write, before it is closed."""
    root = project(tmp_path)
    async with watching(UNSWEPT, root) as (_, hints):
        with (root / ".ai" / "HANDOFF.md").open("w") as opened:
            for text in ("one", "one two"):
                opened.write(text.rpartition("one ")[2])
                opened.flush()
                before = hints.count[str(root)]
                opened.write(" ")
                opened.flush()
                await eventually(lambda before=before: before < hints.count[str(root)])  # type: ignore[misc]


async def test_noise_is_not_hinted(tmp_path: Path) -> None:
    """Neither other names, nor what is below a folder."""
    root = project(tmp_path)
    (root / ".ai" / "runs").mkdir()
    async with watching(UNSWEPT, root) as (_, hints):
        for number in range(50):
            (root / ".ai" / f"noise-{number}").touch()
            (root / ".ai" / "runs" / "HANDOFF.md").write_text(str(number))
        touch_name_that_is_no_utf8(root)
        (root / ".ai" / "HANDOFF.md").mkdir()  # one event
        await eventually(lambda: 2 <= hints.count[str(root)])
        assert 2 == hints.count[str(root)]


async def test_names_that_are_not_utf8_are_like_any_other(tmp_path: Path) -> None:
    """Inside a project and on the way to it."""
    root = project(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")))
    async with watching(UNSWEPT, root) as (watcher, hints):
        touch_name_that_is_no_utf8(root)
        publish(root, "heard")
        await eventually(hints.saw(root, "heard"))
        assert {} == watcher.degraded


async def test_a_project_that_comes_or_goes_disturbs_no_other(tmp_path: Path) -> None:
    """No other is placed again, and so no other is swept."""
    roots = [project(tmp_path, str(number)) for number in range(5)]
    backend = InotifyBackend()
    async with running_alone(backend, *roots[:4]) as told:
        told.found.clear()
        backend.remove(str(roots[0]))
        backend.add(str(roots[4]))
        await eventually(lambda: told.where(roots[4]))
        shutil.rmtree(roots[1] / ".ai")
        await eventually(lambda: str(roots[1]) in told.gone)

    assert [str(roots[4])] == [place.root for place in told.found]
    assert {str(roots[1])} == set(told.gone)


async def test_recovery_places_all_projects_again(tmp_path: Path) -> None:
    """A watch may have ended unheard; a new folder may have the number of the old one."""
    roots = [project(tmp_path, str(number)) for number in range(5)]
    backend = InotifyBackend()
    async with running_alone(backend, *roots) as told:
        told.found.clear()
        backend.recover()
        await eventually(lambda: 5 == len(told.found))

    assert set(map(str, roots)) == {place.root for place in told.found}


async def test_a_project_that_is_removed_while_it_is_placed_leaves_no_watch(tmp_path: Path) -> None:
    """Added and removed in a breath, any number of times."""
    root, other = project(tmp_path, "root"), project(tmp_path, "other")
    backend = InotifyBackend()
    async with running_alone(backend) as told:
        for _ in range(20):
            backend.add(str(root))
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            backend.remove(str(root))
        backend.add(str(other))
        await eventually(lambda: told.where(other))
        await eventually(lambda: 1 == watches_of(backend))
        publish(root, "unheard")
        publish(other, "heard")
        await eventually(lambda: str(other) in told.heard)

    assert {str(other)} == set(told.heard)


def watches_of(backend: InotifyBackend) -> int:
    """Return how many watches the kernel keeps for it."""
    kernel = backend._kernel
    assert kernel is not None
    return Path(f"/proc/self/fdinfo/{kernel.descriptor}").read_text().count("inotify wd:")


async def test_a_watch_that_ended_before_it_was_noted_is_made_again(tmp_path: Path) -> None:
    """Its event came while the thread that made it was on its way back."""
    root, other = project(tmp_path, "root"), project(tmp_path, "other")
    backend = InotifyBackend()
    async with running_alone(backend, root) as told:
        backend._placing = {str(root), str(other)}
        backend._sort(packed(Event(7_000_001, IN_IGNORED, b"")), told)
        assert backend._take_over(str(root), 7_000_001)
        assert backend._take_over(str(other), 7_000_002)
        told.found.clear()
        await eventually(lambda: told.where(root))

    assert [str(root)] == [place.root for place in told.found]


async def test_it_gives_everything_back_when_it_ends(tmp_path: Path) -> None:
    """No descriptor stays."""
    root = project(tmp_path)
    before = inotify_descriptors()
    async with watching(UNSWEPT, root):
        during = inotify_descriptors()

    assert (before + 1, before) == (during, inotify_descriptors())


def inotify_descriptors() -> int:
    """Return how many instances this process has."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that lists them
            count += "inotify" in os.readlink(f"/proc/self/fd/{name}")
    return count


async def test_two_projects_that_are_one_folder_are_both_hinted(tmp_path: Path) -> None:
    """The kernel has one watch for both; the one that remains keeps it."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    real, linked = project(tmp_path / "real"), tmp_path / "link" / "project"
    async with watching(UNSWEPT, real, linked) as (watcher, hints):
        publish(real, "for both")
        await eventually(hints.saw(real, "for both"))
        await eventually(hints.saw(linked, "for both"))
        watcher.remove(str(real))
        publish(real, "for one")
        await eventually(hints.saw(linked, "for one"))

    assert "for both" == hints.seen[str(real)]


async def test_changes_without_a_pause_are_few_hints(tmp_path: Path) -> None:
    """Though the loop could read each by itself; and the neighbour is hinted at once."""
    noisy, quiet = project(tmp_path, "noisy"), project(tmp_path, "quiet")
    async with watching(UNSWEPT, noisy, quiet) as (_, hints):
        for number in range(200):
            publish(noisy, str(number))
            await anyio.lowlevel.checkpoint()
        publish(quiet, "heard")
        await eventually(hints.saw(quiet, "heard"))

    assert hints.count[str(noisy)] < 100


@pytest.mark.skipif(QUEUED > ROOM_FOR_ALL, reason="the machine's queue is too long to be filled in a test")
async def test_lost_events_are_made_up_for_by_a_sweep(tmp_path: Path) -> None:
    """A real overflow over a few names: the last change has no event, and is found all the same."""
    noisy, other, replaced = (project(tmp_path, name) for name in ("noisy", "other", "replaced"))
    async with watching(UNSWEPT, noisy, other, replaced) as (_, hints):
        publish(replaced, "heard, so that the sweep has no reason to think it deaf")
        for number in range(QUEUED // 2 + 100):  # the loop reads none of these; two events each
            os.utime(noisy / ".ai", (number, number))
            (noisy / ".ai" / "noise").touch()
        publish(other, "lost")
        shutil.rmtree(replaced / ".ai")
        (replaced / ".ai").mkdir()  # perhaps with the same inode
        await eventually(hints.saw(other, "lost"))
        for root in (other, replaced):
            await until_the_watch_hears(root, hints)


async def until_the_watch_hears(root: Path, hints: Hints) -> None:
    """Make changes until one of them is hinted: at last the watch is set up again."""
    heard = False
    while not heard:
        text = f"at {anyio.current_time()}"
        publish(root, text)
        with anyio.move_on_after(1) as limit:
            await eventually(hints.saw(root, text))
        heard = not limit.cancelled_caught


async def test_other_settings_apply_at_once(tmp_path: Path) -> None:
    """A sweep that would have been in an hour is due."""
    root, other = project(tmp_path, "root"), project(tmp_path, "other")
    async with watching(UNSWEPT, root) as (watcher, hints):
        root.rename(tmp_path / "old")
        other.rename(root)
        publish(root, "without an event")
        watcher.configure(UNSWEPT.model_copy(update={"sweep_s": 0.05}))
        await eventually(hints.saw(root, "without an event"))


# --- in a namespace of its own ------------------------------------------------------------------------
NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


def alone(script: str, *words: object, before: str = "true") -> str:
    """Run a script of this file in namespaces of its own, after a command; return what it prints."""
    prefix = [*NAMESPACE, "sh", "-c", f'{before} && exec "$@"', "sh"]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False, timeout=60).returncode:
        pytest.skip("no user namespaces here")
    argv = [*prefix, sys.executable, "-c", f"{_START}{script}{_END}", *map(str, words)]
    done = subprocess.run(
        argv, capture_output=True, check=False, timeout=300, text=True,
        env={**os.environ, "PYTHONPATH": f"daemon{os.pathsep}."},
    )  # fmt: skip
    assert "" == done.stderr
    return done.stdout.strip()


_START = """
import subprocess, sys, anyio
from pathlib import Path
from tests.support.eventually import eventually
from tests.unit.watch.watching import publish, watching
from handoffd.settings.model import WatchSettings
from handoffd.watch.backend import LIMIT_REACHED
import structlog
structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
UNSWEPT = WatchSettings(backend="inotify", sweep_s=3600)
OFTEN = WatchSettings(backend="inotify", sweep_s=0.1)
roots = [Path(word) for word in sys.argv[1:]]

async def main():
"""
_END = """
anyio.run(main)
"""


@pytest.mark.parametrize(
    ("limit", "value", "refused"), [("max_inotify_watches", 6, 4), ("max_inotify_instances", 0, 10)]
)
def test_at_the_systems_limit_the_rest_is_swept_until_there_is_room(
    tmp_path: Path, limit: str, value: int, refused: int
) -> None:
    """Watched projects stay watched; the sweep hints the others, until they can be watched as well."""
    roots = [project(tmp_path, str(number)) for number in range(10)]
    script = f"""
    async with watching(OFTEN, *roots) as (watcher, hints):
        print(len(watcher.degraded), set(watcher.degraded.values()) == {{LIMIT_REACHED}})
        for root in roots:
            publish(root, "x")
            await eventually(hints.saw(root, "x"))
        Path("/proc/sys/user/{limit}").write_text("1000")
        await eventually(lambda: not watcher.degraded)
        print(len(watcher.degraded))
"""
    assert f"{refused} True\n0" == alone(script, *roots, before=f"echo {value} > /proc/sys/user/{limit}")


def test_a_folder_that_is_mounted_over_and_unmounted_is_followed(tmp_path: Path) -> None:
    """The kernel reports the end of the mount; the folder below is watched from then on."""
    root = project(tmp_path)
    script = """
    root, folder = roots[0], str(roots[0] / ".ai")
    async with watching(UNSWEPT, root) as (watcher, hints):
        publish(root, "mounted")
        await eventually(hints.saw(root, "mounted"))
        subprocess.run(["umount", folder], check=True)
        publish(root, "below")
        await eventually(hints.saw(root, "below"))
        publish(root, "still below")
        await eventually(hints.saw(root, "still below"))
        print(dict(watcher.degraded))
"""
    assert "{}" == alone(script, root, before=f"mount -t tmpfs none {root}/.ai")
