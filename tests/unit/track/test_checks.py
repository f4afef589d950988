"""The checks of one track as runs of their own: what they measure, and what proves nothing."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import anyio
from tests.support.eventually import eventually
from tests.support.house import House, at, make_project

from handoffd.capacity.machine import Shortage
from handoffd.engine.decision import MeasureBaseline, RunChecks
from handoffd.engine.events import BaselineMeasured, ChecksFinished
from handoffd.engine.run import Usage
from handoffd.engine.track import Track, TrackKey, Workspace
from handoffd.execute.run import Run
from handoffd.project.files import ProjectFiles
from handoffd.track.checks import Checks

JUNIT = "<testsuite>{}</testsuite>"
GOOD, BAD = '<testcase classname="t" name="{}"/>', '<testcase classname="t" name="{}"><failure/></testcase>'


class Yard:
    """A track's home for its checks."""

    ending = False
    workable = True

    def __init__(self, files: ProjectFiles) -> None:
        self.files = files
        self.stopped = False

    def stories_done(self) -> frozenset[str]:
        """Return none."""
        return frozenset()

    def touched(self) -> None:
        """Do nothing."""

    def stirred(self) -> None:
        """Do nothing."""

    def room_for(self, key: TrackKey) -> AbstractContextManager[str | None]:
        """Return that there is room."""
        return nullcontext()

    async def overlap(self, key: TrackKey) -> Shortage | None:
        """Return that there is none."""
        return None

    def lands_first(self, track: Track) -> bool:
        """Return False."""
        return False

    def spent_beside(self, key: TrackKey) -> Usage:
        """Return nothing."""
        return Usage()

    async def has_unfinished_git(self) -> bool:
        """Return False."""
        return False

    def is_there(self) -> bool:
        """Return True."""
        return True

    def is_aborted(self, key: TrackKey) -> bool:
        """Return the test's choice."""
        return self.stopped


class Play:
    """The checks of one project whose tests are a shell script."""

    def __init__(self, here: House, root: str, home: Yard) -> None:
        self.home, self.root, self.live = home, root, dict[str, Run]()
        self.checks = Checks(TrackKey(root), home, here.services, self.live, lambda: Workspace(folder=root))

    @classmethod
    async def of(cls, here: House, script: str, report: str = "junit") -> Play:
        """Return the checks of a new project with the test command `script`."""
        command = ["/bin/sh", "-c", script, "tests", "{report}"]
        settings = json.dumps({"test": {"command": command, "report": report}})
        root = make_project(here.base, settings=settings)
        files = ProjectFiles(root, here.journal, here.clock)
        await files.refresh()
        return cls(here, root, Yard(files))

    def report(self, good: str = "", bad: str = "") -> None:
        """Write the report that the next run of the tests copies."""
        cases = [GOOD.format(name) for name in good] + [BAD.format(name) for name in bad]
        at(self.root, "report.xml").write_text(JUNIT.format("".join(cases)))

    def ran(self, run: str) -> bool:
        """Return whether this run is alive and its script has begun."""
        times = at(self.root, "times")
        return run in self.live and times.exists() and "ran\n" == times.read_text()

    async def baseline(self) -> BaselineMeasured:
        """Measure the tests before the story."""
        with anyio.fail_after(60):
            return await self.checks.baseline(MeasureBaseline(dispatch="d1", story="US-001"), 10)

    async def measure(self, dispatch: str = "d1", **order: Any) -> ChecksFinished:
        """Measure a claim; by default tests must be green, and there is no post_check."""
        values: dict[str, Any] = {
            "tests": "green", "check_timeout_min": 1, "post_check": None, "post_check_timeout_s": 10,
        } | order  # fmt: skip
        with anyio.fail_after(60):
            return await self.checks.measure(
                RunChecks(dispatch=dispatch, story="US-001", step="impl", attempt=1, **values), 0
            )


COPY = 'cp report.xml "$1"; echo ran >> times'


async def test_tests_that_failed_before_the_story_are_known(here: House) -> None:
    """A green step is responsible for its own tests, and for those that it broke. No run is repeated."""
    play = await Play.of(here, COPY)
    play.report(good="a", bad="b")
    assert None is (await play.baseline()).fault
    play.report(good="c", bad="abn")

    finished = await play.measure()

    assert finished.tests is not None
    assert (("t::a", "t::n"), ("t::b",), ("t::a",), 1) == (
        finished.tests.failing, finished.tests.known_failing, finished.tests.regressed,
        finished.tests.new_failing,
    )  # fmt: skip
    ran = at(play.root, "times").read_text()
    assert (finished, ran) == (await play.measure(), at(play.root, "times").read_text())


async def test_a_missing_test_runner_is_a_fault_of_the_environment(here: House) -> None:
    """Before the story and after a claim: it proves nothing about the work."""
    play = await Play.of(here, "exit 127")

    assert "was not found" in ((await play.baseline()).fault or "")
    finished = await play.measure(post_check="true")

    assert finished.tests is not None
    assert "was not found" in (finished.tests.fault or "")
    assert None is finished.post_check


async def test_a_post_check_is_a_shell_command_in_the_root(here: House) -> None:
    """It knows the story, and fails by its exit code."""
    play = await Play.of(here, COPY)
    command = "echo {story} $HANDOFFD_STEP; pwd; exit 1"

    finished = await play.measure(tests=None, post_check=command)

    assert None is finished.tests
    assert finished.post_check is not None
    assert not finished.post_check.passed
    assert ["US-001 impl", play.root] == finished.post_check.tail.split("\n")[:2]


async def test_hanging_checks_are_ended(here: House) -> None:
    """Tests and post_check each have their own limit."""
    play = await Play.of(here, "sleep 600")

    finished = await play.measure(check_timeout_min=0.005, post_check="sleep 600", post_check_timeout_s=0.3)

    assert finished.tests is not None
    assert finished.post_check is not None
    assert (True, True) == (finished.tests.timed_out, finished.post_check.timed_out)


async def test_a_killed_check_is_repeated(here: House) -> None:
    """It proves nothing; three times in a row is a fault of the environment."""
    play = await Play.of(here, 'test -e times && exec cp report.xml "$1"; echo ran >> times; sleep 600')
    play.report(good="a")
    found: list[ChecksFinished] = []

    async def measure() -> None:
        found.append(await play.measure())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(measure)
        await eventually(lambda: play.ran("d1.tests"))
        play.live["d1.tests"].stop()

    assert found[0].tests is not None
    assert (None, 1) == (found[0].tests.fault, found[0].tests.counts.passed)
    assert here.services.run_dir("d1.tests.2").is_dir()


async def test_an_abort_ends_running_checks(here: House) -> None:
    """They are not repeated."""
    play = await Play.of(here, "echo ran >> times; sleep 600")

    async def stop() -> None:
        await eventually(lambda: play.ran("d1.tests"))
        play.home.stopped = True
        play.live["d1.tests"].stop()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        finished = await play.measure()

    assert finished.tests is not None
    assert "stopped" in (finished.tests.fault or "")
    assert "ran\n" == at(play.root, "times").read_text()


async def test_an_abort_prevents_checks_that_have_not_begun(here: House) -> None:
    """Although there was no process to stop yet."""
    play = await Play.of(here, "sleep 600")
    play.home.stopped = True

    finished = await play.measure(post_check="sleep 600")

    assert finished.tests is not None
    assert "stopped" in (finished.tests.fault or "")
    assert None is finished.post_check


async def test_without_a_test_command_nothing_is_measured(here: House, root: str, tmp_path: Path) -> None:
    """The claim counts as it is."""
    files = ProjectFiles(root, here.journal, here.clock)
    play = Play(here, str(tmp_path / "shop"), Yard(files))

    assert ChecksFinished(dispatch="d1") == await play.measure()
