"""The checks of one track as runs of their own: what they measure, and what proves nothing."""

from __future__ import annotations

import json
import shutil
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.eventually import eventually
from tests.support.house import House, at, house, make_project
from tests.support.repositories import git
from tests.support.sandboxes import is_possible

from handoffd.capacity.machine import Shortage
from handoffd.engine.decision import MeasureBaseline, Notify, RunChecks
from handoffd.engine.events import BaselineMeasured, ChecksFinished
from handoffd.engine.run import Usage
from handoffd.engine.track import Track, TrackKey, Workspace
from handoffd.execute.evidence import MOST_PRINTED
from handoffd.execute.run import Run
from handoffd.project.files import ProjectFiles
from handoffd.protocol.delivery import Delivered
from handoffd.protocol.handoff import Reading
from handoffd.protocol.json_schema import Schema
from handoffd.track.checks import Checks

JUNIT = "<testsuite>{}</testsuite>"
GOOD, BAD = '<testcase classname="t" name="{}"/>', '<testcase classname="t" name="{}"><failure/></testcase>'

SKIPPED = '<testcase classname="t" name="{}"><skipped/></testcase>'


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

    def schema(self, name: str) -> Schema | None:
        """Return that there is none."""
        return None

    async def furnish(self, track: Track) -> None:
        """Leave the folder as it is."""

    async def delivered(self, track: Track, reading: Reading) -> Delivered | None:
        """Return that nothing has to be delivered."""
        return None

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

    @property
    def beside(self) -> bool:
        """No story has a track of its own."""
        return False

    def lands_first(self, track: Track) -> bool:
        """Return False."""
        return False

    def spent_beside(self, key: TrackKey) -> Usage:
        """Return nothing."""
        return Usage()

    async def known_for(self, order: Notify) -> None:
        """Return nothing."""

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
    async def of(cls, here: House, script: str, report: str = "junit", **more: object) -> Play:
        """Return the checks of a new project with the test command `script`, and `more` settings."""
        command = ["/bin/sh", "-c", script, "tests", "{report}"]
        settings = json.dumps({"test": {"command": command, "report": report}} | more)
        root = make_project(here.base, settings=settings)
        files = ProjectFiles(root, here.journal, here.clock)
        await files.refresh()
        return cls(here, root, Yard(files))

    def report(self, good: str = "", bad: str = "", skipped: str = "") -> None:
        """Write the report that the next run of the tests copies."""
        cases = [GOOD.format(name) for name in good] + [BAD.format(name) for name in bad]
        cases += [SKIPPED.format(name) for name in skipped]
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


COPY = 'cp report.xml "$1"; echo ran >> times; ! grep -q "<failure" report.xml'


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


async def test_a_green_step_is_held_to_the_tests_that_were_red(here: House) -> None:
    """Each must run and pass, whatever else does; without a red step there is nothing to be held to."""
    play = await Play.of(here, COPY)
    play.report(good="a")
    assert None is (await play.baseline()).fault
    play.report(good="a", bad="xyz")
    left = await play.measure("d1", tests="red")
    play.report(good="ax", skipped="y")

    held, free = await play.measure("d2", red="d1"), await play.measure("d3")

    assert left.tests is not None
    assert left.tests.held
    assert held.tests is not None
    assert free.tests is not None
    said = "tests_changed: 2 tests that were red did not run and pass: t::y is skipped, t::z is missing"
    assert (said, ("t::y", "t::z")) == (held.tests.unproven, held.tests.failing)
    assert (None, ()) == (free.tests.unproven, free.tests.failing)
    play.report(good="axyz")
    whole = await play.measure("d4", red="d1")
    assert whole.tests is not None
    assert (None, (), 4) == (whole.tests.unproven, whole.tests.failing, whole.tests.counts.passed)


HELD = 'cp tests/report.xml "$1"; pwd >> "$HOME/ran"; ! grep -q "<failure" tests/report.xml'
"""Tests whose report is one of their own files, and which note where they run."""


def _says(play: Play, *, good: str = "", bad: str = "") -> None:
    cases = [GOOD.format(name) for name in good] + [BAD.format(name) for name in bad]
    at(play.root, "tests").mkdir(exist_ok=True)
    at(play.root, "tests/report.xml").write_text(JUNIT.format("".join(cases)))


async def _red(play: Play) -> None:
    git(at(play.root, ""), "init", "--quiet")
    _says(play, bad="x")
    left = await play.measure("d1", tests="red")
    assert left.tests is not None
    assert left.tests.held


@pytest.mark.parametrize("level", ["auto", "off"])
async def test_the_tests_run_again_with_the_red_steps_files(tmp_path: Path, level: str) -> None:
    """In a copy, at the workspace's own path where there is a sandbox; the workspace stays as it is."""
    if level == "auto" and not is_possible():
        pytest.skip("no sandbox here")
    async with house(tmp_path, sandbox={"level": level}) as here:
        play = await Play.of(here, HELD)
        await _red(play)
        _says(play, good="x")
        finished = await play.measure("d2", red="d1")

        assert finished.tests is not None
        said = "tests_changed: with the red step's versions of tests/report.xml, 1 test fails: t::x"
        assert said == finished.tests.unproven
        copy = play.root if level == "auto" else str(here.services.run_dir("d2.second") / "tree")
        assert [play.root, play.root, copy] == (here.base / "ran").read_text().split()
        assert 'name="x"/>' in at(play.root, "tests/report.xml").read_text()
        second = here.services.run_dir("d2.second")
        assert (True, False) == (second.is_dir(), (second / "tree").exists())


async def test_without_a_difference_the_tests_run_once(here: House) -> None:
    """Also where a person lets the file change that differs."""
    play = await Play.of(here, COPY, allow_test_changes=["tests/*.txt", "report.xml"])
    await _red_report(play)
    at(play.root, "tests/more.txt").write_text("x")
    play.report(good="x")

    finished = await play.measure("d2", red="d1")

    assert finished.tests is not None
    assert (None, None, ()) == (finished.tests.unproven, finished.tests.note, finished.tests.failing)
    assert not here.services.run_dir("d2.second").exists()


async def _red_report(play: Play) -> None:
    git(at(play.root, ""), "init", "--quiet")
    at(play.root, "tests").mkdir()
    play.report(bad="x")
    await play.measure("d1", tests="red")


async def test_of_what_a_red_step_may_write_only_tests_are_compared(here: House) -> None:
    """Product code is what green steps change."""
    play = await Play.of(here, COPY, allow_test_changes=["report.xml"])
    at(play.root, ".ai/step-rules.yaml").write_text(
        "steps: {impl: {next_on_pass: verify, tests: red, claude_writes: [src/**, spec/**]}}"
    )
    await play.home.files.refresh()
    for name in ("src", "spec"):
        at(play.root, name).mkdir()
        at(play.root, f"{name}/cart").write_text("1")
    await _red_report(play)
    for name in ("src", "spec"):
        at(play.root, f"{name}/cart").write_text("2")
    play.report(good="x")

    finished = await play.measure("d2", red="d1")

    assert finished.tests is not None
    assert "also with the red step's versions of spec/cart" == finished.tests.note


async def test_without_a_repository_a_second_run_is_not_possible(here: House) -> None:
    """The evidence tells that; the tests that were red must pass all the same."""
    play = await Play.of(here, COPY)
    play.report(bad="x")
    await play.measure("d1", tests="red")
    at(play.root, "conftest.py").touch()
    play.report(good="x")

    finished = await play.measure("d2", red="d1")

    assert finished.tests is not None
    assert finished.tests.unproven is None
    assert "not with the red step's test files" in (finished.tests.note or "")
    assert "is in no git repository" in (finished.tests.note or "")


async def test_a_file_that_cannot_be_laid_back_is_a_failure(here: House) -> None:
    """An agent has removed its object from the repository, which is its own to write."""
    play = await Play.of(here, HELD)
    await _red(play)
    shutil.rmtree(at(play.root, ".git/objects"))
    at(play.root, ".git/objects").mkdir()
    _says(play, good="x")

    finished = await play.measure("d2", red="d1")

    assert finished.tests is not None
    assert "tests_changed: tests/report.xml, which cannot be laid back" == finished.tests.unproven


async def test_a_second_run_that_was_begun_is_found_again(here: House) -> None:
    """A daemon that takes over neither copies the workspace anew nor runs the tests again."""
    play = await Play.of(here, HELD)
    await _red(play)
    _says(play, good="x")

    once, again = await play.measure("d2", red="d1"), await play.measure("d2", red="d1")

    assert once == again
    assert 3 == len((here.base / "ran").read_text().split())


async def test_a_second_red_step_holds_to_what_is_still_there(here: House) -> None:
    """A test of the first that it took out is not missed; one that passes already still is."""
    play = await Play.of(here, COPY)
    play.report(bad="xy")
    await play.measure("d1", tests="red")
    play.report(good="x", bad="z")
    await play.measure("d2", tests="red", red="d1")
    play.report(good="z")

    after = await play.measure("d3", red="d2")

    assert after.tests is not None
    assert ("t::x",) == after.tests.failing


async def test_where_no_test_passes_nothing_is_proved(here: House) -> None:
    """Also not for a landing, whose tests run outside of any step."""
    play = await Play.of(here, COPY)
    play.report(skipped="ab")

    finished, trial = await play.measure(), await play.checks.trial("t1", 60)

    assert finished.tests is not None
    assert "no test passes: 2 skipped" == finished.tests.unproven == trial.unproven


async def test_a_success_with_failures_in_the_report_is_none(here: House) -> None:
    """Someone has changed how the runner ends: also if these tests failed before the story."""
    play = await Play.of(here, COPY.replace("! grep", "test -e quiet || ! grep"))
    play.report(good="a", bad="b")
    await play.baseline()
    at(play.root, "quiet").touch()

    turned = await play.measure()

    assert turned.tests is not None
    assert ("exit code 0, though the report names failing tests",) == turned.tests.failing


async def test_a_command_that_always_succeeds_may_go_on_doing_so(here: House) -> None:
    """Its tests ended like that before the story."""
    play = await Play.of(here, 'cp report.xml "$1"')
    play.report(good="a", bad="b")
    await play.baseline()

    finished = await play.measure()

    assert finished.tests is not None
    assert () == finished.tests.failing


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


async def test_all_checks_of_a_post_check_run_each_within_its_limit(here: House) -> None:
    """One after another, in their order; a failure or a hang of one does not keep the next from running."""
    play = await Play.of(here, COPY)
    commands = {
        "first": "echo first >> order; exit 3",
        "hangs": "echo hangs >> order; sleep 600",
        "dies": "echo dies >> order; kill -9 $$",
        "last": "echo last >> order; echo fine",
    }

    finished = await play.measure(tests=None, post_check=commands, post_check_timeout_s=0.5)

    assert None is finished.post_check
    assert [("first", 3, None), ("hangs", None, 15), ("dies", None, 9), ("last", 0, None)] == [
        (one.name, one.code, one.signal) for one in finished.post_checks
    ]
    assert [False, True, False, False] == [one.timed_out for one in finished.post_checks]
    assert [False, False, False, True] == [one.passed for one in finished.post_checks]
    assert [*commands] == at(play.root, "order").read_text().split()
    assert finished == await play.measure(tests=None, post_check=commands), "ends that are known are kept"
    assert [*commands] == at(play.root, "order").read_text().split()


async def test_the_outputs_of_all_checks_together_are_bounded(here: House) -> None:
    """Megabytes of binary data; of a check that passed nothing is kept, of the others their ends."""
    play = await Play.of(here, COPY)
    flood = "head -c 3000000 /dev/urandom; echo; echo the end of {}; exit 1"
    commands = {f"c{number}": flood.format(number) for number in range(9)} | {"fine": "echo fine"}

    finished = await play.measure(tests=None, post_check=commands)

    tails = [one.tail for one in finished.post_checks]
    assert "" == tails.pop()
    assert all(tail.endswith(f"the end of {number}\n") for number, tail in enumerate(tails))
    assert sum(len(tail.encode()) for tail in tails) <= MOST_PRINTED
    assert [f"the end of {number}" for number in range(9)] == [
        one.line for one in finished.post_checks if not one.passed
    ]


async def test_a_check_that_cannot_be_run_is_a_fault_and_the_others_run(here: House) -> None:
    """One that is killed three times in a row proves nothing."""
    play = await Play.of(here, COPY)
    commands = {"killed": "echo x >> times; sleep 600", "fine": "true"}
    found: list[ChecksFinished] = []

    async def measure() -> None:
        found.append(await play.measure(tests=None, post_check=commands))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(measure)
        for name in ("d1.post.killed", "d1.post.killed.2", "d1.post.killed.3"):
            await eventually(partial(play.live.__contains__, name))
            play.live[name].stop()

    assert [("killed", "the command was stopped before it ended"), ("fine", None)] == [
        (one.name, one.fault) for one in found[0].post_checks
    ]


async def test_an_abort_between_two_checks_prevents_the_next(here: House) -> None:
    """The one that runs is ended and not repeated."""
    play = await Play.of(here, COPY)

    async def stop() -> None:
        times = at(play.root, "times")
        await eventually(lambda: times.exists() and times.read_text() and "d1.post.a" in play.live)
        play.home.stopped = True
        play.live["d1.post.a"].stop()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        finished = await play.measure(
            tests=None, post_check={"a": "echo a >> times; sleep 600", "b": "echo b >> times"}
        )

    assert ["a"] == [one.name for one in finished.post_checks]
    assert "a\n" == at(play.root, "times").read_text()


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
