"""Carrying out the checks of one track: baseline, tests, post_check, as runs of their own.

Each is a run under the launcher with an id derived from its dispatch, so a restarted daemon that is
given the same order finds the run again instead of starting a second one. A check that we stopped
ourselves (or that vanished with the machine) proves nothing and is run again under the next id.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
from anyio import to_thread
from msgspec.structs import replace

from handoffd.engine.decision import MeasureBaseline, RunChecks
from handoffd.engine.events import BaselineMeasured, ChecksFinished, TestEvidence
from handoffd.engine.run import PostCheck, last_line, with_end
from handoffd.engine.track import TrackKey, Workspace
from handoffd.errors import HandoffdError, StoreError
from handoffd.execute import evidence
from handoffd.execute.base import ExitRecord, RunSpec
from handoffd.execute.checks import (
    MAX_TRIES,
    CheckContext,
    check_run,
    command_spec,
    files_changed_since,
    post_check_run,
    post_check_spec,
    read_test_output,
    ready_test_run,
    test_run_spec,
    tried_again,
)
from handoffd.execute.environment import child_environment
from handoffd.execute.evidence import Baseline, SecondRun
from handoffd.execute.proof import Red, red_of, skipped
from handoffd.execute.reports.report import TestReport
from handoffd.execute.run import Run, adopt, claimed
from handoffd.execute.sandbox.plan import Plan
from handoffd.execute.sandbox.planning import combined, variables_of
from handoffd.git.clones import number_of
from handoffd.protocol.rules import commands_of
from handoffd.track.ai_folder import HandoffFiles
from handoffd.track.second_run import Change, TestFiles
from handoffd.track.services import Home, Services


class Checks:
    """The checks of one track. `live` is shared with the executors, so that a stop reaches all.

    `workspace` returns where the track works now. `links` are what that shares with the project; None: what
    its settings say.
    """

    def __init__(
        self,
        key: TrackKey,
        home: Home,
        services: Services,
        live: dict[str, Run],
        workspace: Callable[[], Workspace],
        links: tuple[str, ...] | None = None,
    ) -> None:
        self._key = key
        self._home = home
        self._files = home.files
        self._services = services
        self.live = live
        self._workspace = workspace
        self._links = links
        self._test_files = TestFiles(key, home.files, services, workspace)

    async def baseline(self, order: MeasureBaseline, timeout_s: float) -> BaselineMeasured:
        """Run the tests and keep their results for this story; return the fact."""
        fault = None
        try:
            context = self.context(check_run(order.dispatch, "baseline"), order.story, "baseline", 1)
            record, report = await self._test(context, timeout_s)
            fault = with_end(report.problem, last_line(record.tail)) if report.problem else None
            if fault is None:
                beyond = await self._test_files.beyond()
                fault = await self._keep_baseline(order.story, evidence.baseline_of(report, beyond))
        except HandoffdError as error:
            fault = error.message
        mark = await to_thread.run_sync(HandoffFiles(self._workspace().folder).mark)
        return BaselineMeasured(dispatch=order.dispatch, mark=mark, fault=fault)

    async def _keep_baseline(self, story: str | None, baseline: Baseline) -> str | None:
        """Keep what a story's tests are compared with; return why that cannot be."""
        body = evidence.encode(baseline)
        if (fault := evidence.too_large(body)) is None:
            await self._services.journal.save_baseline(self._key, story, body)
        return fault

    async def measure(self, order: RunChecks, executor_started_ns: int) -> ChecksFinished:
        """Run what the order asks for; return the fact."""
        tests: TestEvidence | None = None
        posts: tuple[PostCheck, ...] = ()
        try:
            if order.tests is not None and self._files.settings.test.command:
                tests = await self._tests(order, executor_started_ns)
            if order.post_check is not None and (tests is None or tests.fault is None):
                posts = await self._post_checks(order)
        except HandoffdError as error:
            tests = TestEvidence(fault=error.message, verified=False)
        if isinstance(order.post_check, str):
            return ChecksFinished(
                dispatch=order.dispatch, tests=tests, post_check=posts[0] if posts else None
            )
        return ChecksFinished(
            dispatch=order.dispatch, tests=tests, post_checks=evidence.of_bounded_size(posts)
        )

    async def trial(
        self,
        name: str,
        timeout_s: float,
        story: str | None = None,
        look: Callable[[Path], None] = lambda _: None,
    ) -> TestEvidence:
        """Run the tests once, as a run called `name` of which nothing stays, not even when it is cancelled.

        What failed before `story` began does not count against it. `look` sees the folder of the run.
        """
        context = self.context(name, None, "trial", 1)
        body = await self._services.journal.load_baseline(self._key, story) if story is not None else None
        baseline = evidence.decode(body) if body is not None else None
        try:
            record, report = await self._test(context, timeout_s)
            await to_thread.run_sync(look, context.run_dir)
        finally:
            with anyio.CancelScope(shield=True):
                for number in range(1, MAX_TRIES + 1):
                    run_dir = self._services.run_dir(tried_again(name, number))
                    await end_run(run_dir)
                    await to_thread.run_sync(partial(shutil.rmtree, run_dir, ignore_errors=True))
        found = evidence.evidence_of(report, record, baseline, frozenset())
        return evidence.with_passes(found, report)

    async def set_up(self, name: str, folder: str, command: tuple[str, ...], limit_s: float) -> ExitRecord:
        """Run what makes a workspace ready, as a run called `name`, or find it again; wait for its end."""
        context = self.context(name, None, "setup", 1, folder)
        return await self._once(context, command_spec(context, command, limit_s))

    @property
    def environment(self) -> dict[str, str]:
        """The variables that checks get, but for the ones that name a run."""
        settings = self._services.settings
        let_in = variables_of(combined(settings.sandbox, self._files.settings.sandbox))
        return child_environment(
            self._services.environment, settings.execute.env_allow, let_in, project=self._files.settings.env
        )

    async def _tests(self, order: RunChecks, since_ns: int) -> TestEvidence:
        context = self.context(check_run(order.dispatch, "tests"), order.story, order.step, order.attempt)
        kept = await self._services.journal.load_baseline(self._key, order.story)
        baseline = evidence.decode(kept) if kept is not None else None
        red = (baseline or Baseline()).red_at(order.red)
        change = await self._test_files.changed(red) if order.tests == "green" else Change()
        copy = self._services.run_dir(check_run(order.dispatch, "second")) / "tree"
        made: list[str | None] = []
        async with anyio.create_task_group() as beside:
            if change.paths and change.problem is None:
                beside.start_soon(self._copy_ahead, copy, red, made)
            first: tuple[TestEvidence, TestReport] | HandoffdError
            try:
                first = await self._first_run(context, order, baseline, since_ns)
            except HandoffdError as error:  # as itself, not in a group
                first = error
        if isinstance(first, HandoffdError):
            raise first
        found, report = first
        if order.tests == "red" and found.fault is None and not found.timed_out:
            found = await self._keep_red(order, report, baseline or Baseline(), found)
        elif found.fault is None and not found.timed_out:
            found = await self._held(order, red, change, made, report, baseline or Baseline(), found)
        await to_thread.run_sync(self._test_files.removed, copy)
        return found

    async def _copy_ahead(self, copy: Path, red: Red, made: list[str | None]) -> None:
        """Copy the workspace for the second run while the first one runs, and append what the copy lacks.

        A file that goes meanwhile, or a full disk, has it made again when the first run has ended.
        """
        if claimed(copy.parent) is None:  # else an earlier daemon has begun the second run
            with suppress(StoreError):
                made.append(await self._copied(copy, red))

    async def _copied(self, copy: Path, red: Red) -> str | None:
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return await self._test_files.copied(copy, red)

    async def _first_run(
        self, context: CheckContext, order: RunChecks, baseline: Baseline | None, since_ns: int
    ) -> tuple[TestEvidence, TestReport]:
        """Run the tests as they are, again without files that keep others from running."""
        timeout_s = order.check_timeout_min * 60
        record, report = await self._test(context, timeout_s)
        changed = await self._changed(report, since_ns)
        earlier_s = 0.0
        exclude = evidence.files_to_exclude(self._files.settings.test, report, baseline, changed)
        if exclude:
            rest = replace(context, run_id=check_run(order.dispatch, "rest"))
            earlier_s = record.seconds
            record, second = await self._test(rest, timeout_s, exclude)
            report = evidence.merge(report, second, exclude)
            changed |= await self._changed(second, since_ns)
        return evidence.evidence_of(report, record, baseline, changed, earlier_s=earlier_s), report

    async def _keep_red(
        self, order: RunChecks, report: TestReport, baseline: Baseline, found: TestEvidence
    ) -> TestEvidence:
        """Keep what a red step has left for the green ones. A step that is not red may still add tests."""
        red = red_of(report, baseline.results, baseline.unloadable, baseline.red_at(order.red))
        rule = self._files.rules.steps.get(order.step)
        patterns = rule.claude_writes if rule is not None else ()
        red = await self._test_files.kept(red, patterns, report, baseline)
        fault = await self._keep_baseline(order.story, baseline.with_red(order.dispatch, red, order.red))
        if red.beyond is not None and baseline.beyond is None:
            return replace(found, unproven=f"{red.beyond}; before this story there were fewer")
        note = f"{red.more} more are not held" if red.more else red.beyond
        return replace(found, held=fault is None, note=fault or note)

    async def _held(
        self,
        order: RunChecks,
        red: Red,
        change: Change,
        made: list[str | None],
        report: TestReport,
        baseline: Baseline,
        found: TestEvidence,
    ) -> TestEvidence:
        """Return what a green step proved: held to the red step's tests, and to its test files."""
        # Where these are as they were, they skip what they skipped; else the second run shows it.
        own = skipped(report) if change.why_not is None else frozenset()
        red = self._test_files.without_allowed(red)
        found = evidence.held_to(red, report, baseline, own, found, change.paths)
        if found.failing or found.unproven is not None:
            return found
        if change.problem is not None:
            return replace(found, unproven=change.problem)
        if change.why_not is not None:
            return replace(found, note=f"not with the red step's test files: {change.why_not}")
        if not change.paths:  # the first run was the second one already
            return found
        second = await self._second_run(order, red, change, made)
        if isinstance(second, str):
            return replace(found, unproven=second)
        if isinstance(second, TestEvidence):
            return second
        return evidence.held_again(red, report, second, baseline, found)

    async def _second_run(
        self, order: RunChecks, red: Red, change: Change, made: list[str | None]
    ) -> SecondRun | TestEvidence | str:
        """Run the tests with the red step's test files, in a copy; `made` says what it lacks, if it is there.

        Return a fault instead, or what cannot be laid back, in words.
        """
        name = check_run(order.dispatch, "second")
        copy = self._services.run_dir(name) / "tree"
        context = self.context(name, order.story, order.step, order.attempt)
        if claimed(context.run_dir) is None:  # else an earlier daemon has begun it
            lacking = made[0] if made else await self._copied(copy, red)
            if lacking is not None:
                return lacking
        if self._test_files.at_its_place:
            context = replace(context, shown=copy)
        else:
            context = replace(context, root=self._test_files.in_copy(copy))
        record, report = await self._test(context, order.check_timeout_min * 60)
        if (fault := evidence.fault_of(record)) is not None:
            return TestEvidence(fault=fault, verified=False)
        return SecondRun(report=report, record=record, changed=change.paths)

    async def _changed(self, report: TestReport, since_ns: int) -> frozenset[str]:
        files = [error.file for error in report.load_errors]
        return await to_thread.run_sync(files_changed_since, Path(self._workspace().folder), files, since_ns)

    async def _test(
        self, context: CheckContext, timeout_s: float, exclude: tuple[str, ...] = ()
    ) -> tuple[ExitRecord, TestReport]:
        settings = self._files.settings.test

        async def spec(at: CheckContext) -> RunSpec:
            at = await to_thread.run_sync(ready_test_run, at, settings, exclude)
            return test_run_spec(at, settings, timeout_s, exclude)

        record, run_dir = await self._run(context, spec)
        output = await to_thread.run_sync(read_test_output, run_dir, settings, record, context.folder)
        folder = str(context.root)
        report = await to_thread.run_sync(evidence.measured, settings, record, output, folder)
        return record, report

    async def _post_checks(self, order: RunChecks) -> tuple[PostCheck, ...]:
        """Run all checks, also after one has failed. Not side by side: they may write the same caches."""
        ended: list[PostCheck] = []
        for name, command in commands_of(order.post_check):
            ended.append(await self._post_check(order, name, command))
            if self._home.is_aborted(self._key):
                break
        return tuple(ended)

    async def _post_check(self, order: RunChecks, name: str | None, command: str) -> PostCheck:
        run_id = post_check_run(order.dispatch, name)
        context = self.context(run_id, order.story, order.step, order.attempt)

        async def spec(at: CheckContext) -> RunSpec:
            return post_check_spec(at, command, order.post_check_timeout_s)

        record, _ = await self._run(context, spec)
        return evidence.post_check_of(record, name)

    async def _run(
        self, context: CheckContext, spec_for: Callable[[CheckContext], Awaitable[RunSpec]]
    ) -> tuple[ExitRecord, Path]:
        """Start a check (or find it again) and wait for its end; the shim enforces its deadline."""
        record: ExitRecord | None = None
        for number in range(1, MAX_TRIES + 1):
            run_id = tried_again(context.run_id, number)
            at = replace(context, run_id=run_id, run_dir=self._services.run_dir(run_id))
            record = await self._once(at, await spec_for(at))
            if record.by not in {"stop", "lost"} or self._home.is_aborted(self._key):
                return record, at.run_dir
            if self._home.ending:
                await anyio.sleep_forever()  # the order stays undone: the next daemon carries it out
        assert record is not None
        return record, context.run_dir

    async def _once(self, context: CheckContext, spec: RunSpec) -> ExitRecord:
        for folder in (context.run_dir, context.results):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        run = await self._services.launcher.start(context.run_dir, spec)
        self.live[context.run_id] = run
        try:
            if self._home.is_aborted(self._key):  # when there was no process yet that could hear it
                run.stop()
            return await run.wait()
        finally:
            self.live.pop(context.run_id, None)

    def context(
        self, run_id: str, story: str | None, step: str, attempt: int, folder: str | None = None
    ) -> CheckContext:
        """Return where a run of a check is, and what it gets."""
        folder = folder or self._workspace().folder
        return CheckContext(
            run_id=run_id,
            run_dir=self._services.run_dir(run_id),
            root=Path(folder),
            workspace=number_of(folder, self._services.settings.state_dir),
            project=Path(self._key.project),
            environment=self.environment,
            story=story,
            step=step,
            attempt=attempt,
            memory_max=self._services.settings.execute.memory_max,
            tasks_max=self._services.settings.execute.tasks_max,
            sandbox=self._sandbox,
        )

    def _sandbox(self, context: CheckContext, argv: tuple[str, ...]) -> Plan | None:
        asked = self._files.settings.sandbox
        links = self._files.settings.workspace.link if self._links is None else self._links
        place = self._services.place(str(context.root), str(context.project), links)
        results, shown = str(context.results), None if context.shown is None else str(context.shown)
        return self._services.sandbox(
            asked, place, argv, context.environment, run_folder=results, shown=shown
        )


async def end_run(run_dir: Path) -> None:
    """End a run, and return when its last process has ended."""
    run = await to_thread.run_sync(adopt, run_dir)
    if isinstance(run, Run):
        run.stop()
        await run.wait()
