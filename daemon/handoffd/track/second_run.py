"""What decides what a story's tests prove, as its red step left it, and a copy of the workspace that has it.

An agent that must make tests pass may write in them, too. So the files of the tests, and the ones that say
how these are run, are compared with their state when the tests were red. Where they differ, the tests are run
a second time, in a copy of the workspace with these files as they were. Where nothing differs, the first run
was that run already.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from handoffd.engine.track import TrackKey, Workspace
from handoffd.engine.wording import first_few
from handoffd.errors import StoreError
from handoffd.execute.checks import read_bounded
from handoffd.execute.evidence import Baseline
from handoffd.execute.proof import (
    CHANGED,
    MAX_DECLARED,
    WRITTEN_IN,
    Kind,
    Red,
    Sealed,
    choice_of,
    declared_in,
    held_of,
    last_names,
    names_in,
)
from handoffd.execute.reports.report import TestReport
from handoffd.execute.sandbox.plan import LANDLOCK, OFF
from handoffd.execute.sandbox.planning import combined
from handoffd.files.run_removal import bytes_below
from handoffd.git.worktree import Blobs, remove_tree, top_of_clone
from handoffd.inspection.test_files import (
    CHANGED_ONLY,
    TEST_FILES,
    Survey,
    differences,
    forget_compiled,
    keepable,
    lay_back,
    matching,
    secret,
    survey,
)
from handoffd.track.services import Files, Services

COPY_LIMIT_S = 600.0
"""How long it may take to copy a workspace."""
_OF_TESTS = re.compile(r"test|spec|fixture|mock|snapshot|e2e", re.IGNORECASE)
"""What else a red step may write, such as `src/**`, is not compared: green steps change it."""
_MOST_TEXT = 1024 * 1024
"""Bytes of a test file in which tests are looked for."""
_ROOM = 1024 * 1024 * 1024
"""Bytes that a copy leaves free on the daemon's disk."""


class Change(Struct, frozen=True, kw_only=True):
    """How the test files differ from what the red step left; `paths` are from the top of the workspace."""

    paths: tuple[str, ...] = ()
    why_not: str | None = None
    """Why that is not known."""
    problem: str | None = None
    """What was changed that cannot be laid back."""


class TestFiles:
    """The test files of one track's stories. `workspace` returns where the track works now."""

    __test__ = False

    def __init__(
        self, key: TrackKey, files: Files, services: Services, workspace: Callable[[], Workspace]
    ) -> None:
        self._key = key
        self._files = files
        self._services = services
        self._workspace = workspace

    @property
    def top(self) -> Path:
        """The folder that its agents may write: the whole clone, or the project."""
        folder = self._workspace().folder
        return Path(top_of_clone(folder, self._services.settings.state_dir) or folder)

    @property
    def at_its_place(self) -> bool:
        """Whether a check can see a copy in place of the workspace itself."""
        asked = combined(self._services.settings.sandbox, self._files.settings.sandbox)
        return asked.level not in {LANDLOCK, OFF}

    @property
    def _within(self) -> str:
        """The project's folder from the top of the workspace, with a slash; empty where it is the same."""
        within = os.path.relpath(self._workspace().folder, self.top)
        return "" if within == "." else f"{within}/"

    def in_copy(self, copy: Path) -> Path:
        """Return the project's folder in a copy of the workspace."""
        return copy / Path(self._workspace().folder).relative_to(self.top)

    # --- when they are red -----------------------------------------------------------------------
    async def kept(self, red: Red, patterns: Sequence[str], report: TestReport, baseline: Baseline) -> Red:
        """Return it with the test files as they are now; `patterns` are what the red step may write.

        `report` is of the red step's tests.
        """
        red = await to_thread.run_sync(self._kept, red, tuple(patterns))
        if red.tests is None or not report.verified:
            return red
        return await to_thread.run_sync(self._with_written, red, report, baseline)

    def _kept(self, red: Red, patterns: tuple[str, ...]) -> Red:
        wanted = tuple(pattern for pattern in patterns if _OF_TESTS.search(pattern))
        seen = self._survey(self.top, wanted)
        if seen.problem is not None:
            return replace(red, why_not=seen.problem)
        try:
            blobs = self._blobs().keep(keepable(seen.files), str(self.top))
            if hidden := secret(seen.files):
                blobs |= self._blobs().named(hidden, str(self.top))
        except StoreError as error:
            return replace(red, why_not=error.message)
        files = {path: replace(sealed, blob=blobs.get(path)) for path, sealed in seen.files.items()}
        return replace(red, tests=files, patterns=wanted)

    def _with_written(self, red: Red, report: TestReport, baseline: Baseline) -> Red:
        """Return it with the tests that must run by what is written in its files."""
        go = {os.path.dirname(file) for file in red.files if file.endswith(".go")}
        had = last_names(baseline.results)
        names: dict[str, frozenset[str]] = {}
        unloadable: dict[str, str] = {}
        hooks = ""
        for file, text in self._texts(red.tests or {}, "test"):
            names[file] = names_in(file, text) & had
            hooks += text if os.path.basename(file) == "conftest.py" else ""
            if file in red.files or (file.endswith(".go") and os.path.dirname(file) in go):
                unloadable[file] = text
        settings = self._texts(red.tests or {}, "setting")
        command = re.split(r"\bpytest\b", " ".join(self._files.settings.test.command or ()), maxsplit=1)[-1]
        choice = choice_of("\n".join([command, *(text for _, text in settings)]), hooks)
        new = (
            one
            for file, text in sorted(unloadable.items())
            for one in declared_in(file, text, choice)
            if file in red.files or one.name not in had
        )
        held = {
            file and f"{self._within}{file}": ids
            for file, ids in held_of(report, baseline.results, names, red).items()
        }
        return replace(red, declared=tuple(islice(new, MAX_DECLARED)), held=held)

    def _texts(self, files: Mapping[str, Sealed], kind: Kind) -> Iterator[tuple[str, str]]:
        """Yield files of tests or settings by their paths from the project's folder, as ids have them."""
        for path, sealed in files.items():
            has_tests = kind == "setting" or path.endswith(WRITTEN_IN)
            if sealed.kind == kind and has_tests and path.startswith(self._within):
                body = read_bounded(self.top / path, _MOST_TEXT + 1) or b""
                text = "" if len(body) > _MOST_TEXT else body.decode("utf-8", "replace")
                yield path.removeprefix(self._within), text

    # --- when they must be green -----------------------------------------------------------------
    def without_allowed(self, red: Red) -> Red:
        """Return it without the tests of files that a person lets a story change."""
        if not self._files.settings.allow_test_changes:
            return red
        allowed = [self._from_top(pattern) for pattern in self._files.settings.allow_test_changes]
        spec = matching(allowed)
        held = {file: ids for file, ids in red.held.items() if file and not spec(file)}
        return replace(red, held=held)

    async def changed(self, red: Red) -> Change:
        """Return how they differ from what a red step left: before the tests are run, which may write."""
        return await to_thread.run_sync(self._changed, red)

    def _changed(self, red: Red) -> Change:
        if red.tests is None:
            return Change(why_not=red.why_not)
        seen = self._survey(self.top, red.patterns)
        if seen.problem is not None:
            return Change(problem=f"{CHANGED}: {seen.problem}")
        forget_compiled(self.top, seen.files, seen.caches)
        paths = self._differing(red.tests, seen)
        runner = [path for path in paths if _kind(path, red.tests, seen) in CHANGED_ONLY]
        problem = f"{CHANGED}: the test runner itself: {first_few(runner)}" if runner else None
        return Change(paths=paths, problem=problem)

    def _differing(self, before: Mapping[str, Sealed], seen: Survey) -> tuple[str, ...]:
        allowed = [self._from_top(pattern) for pattern in self._files.settings.allow_test_changes]
        return differences(before, seen.files, allowed)

    async def copied(self, into: Path, red: Red) -> str | None:
        """Copy the workspace, with the test files as a red step left them; return what they lack.

        Raises StoreError where no copy can be made.
        """
        return await to_thread.run_sync(partial(self._copied, into, red), abandon_on_cancel=True)

    def _copied(self, into: Path, red: Red) -> str | None:
        assert red.tests is not None
        remove_tree(into)
        try:
            _copy(self.top, into)
            return self._laid_back(into, red.tests, red.patterns)
        except StoreError:
            self.removed(into)
            raise

    def _laid_back(self, into: Path, before: Mapping[str, Sealed], patterns: Sequence[str]) -> str | None:
        seen = self._survey(into, patterns)
        paths = [
            path for path in self._differing(before, seen) if _kind(path, before, seen) not in CHANGED_ONLY
        ]
        blobs = {path: blob for path in paths if path in before and (blob := before[path].blob)}
        contents = self._blobs().contents(blobs)
        command = self._files.settings.test.command or ()
        try:
            lacking = lay_back(into, paths, before, seen.files, contents, command)
        except OSError as error:
            raise StoreError(f"the test files of the red step cannot be laid back: {error}") from error
        forget_compiled(into, {**before, **seen.files}, seen.caches)
        return f"{CHANGED}: {first_few(lacking)}, which cannot be laid back" if lacking else None

    def removed(self, copy: Path) -> None:
        """Remove a copy; what cannot be removed goes with the run."""
        with suppress(StoreError):
            remove_tree(copy)

    def _survey(self, top: Path, patterns: Sequence[str]) -> Survey:
        command = self._files.settings.test.command or ()
        own = (self._from_top(pattern) for pattern in (*TEST_FILES, *patterns))
        more = [pattern for pattern in own if pattern not in TEST_FILES]
        return survey(top, (*TEST_FILES, *more), command, self._within)

    def _from_top(self, pattern: str) -> str:
        """Return a pattern that is from the project's folder as one from the top of the workspace."""
        negated, bare = ("!", pattern[1:]) if pattern.startswith("!") else ("", pattern)
        if not self._within or "/" not in bare.rstrip("/") or bare.startswith("**/"):
            return pattern
        return f"{negated}/{self._within}{bare.lstrip('/')}"

    def _blobs(self) -> Blobs:
        return Blobs(self._workspace().folder, self._services.settings.state_dir, self._services.environment)


def _kind(path: str, before: Mapping[str, Sealed], seen: Survey) -> str:
    return (before.get(path) or seen.files[path]).kind


def _copy(top: Path, into: Path) -> None:
    """Copy a workspace with all that is in it. Raises StoreError."""
    size, free = bytes_below(top), shutil.disk_usage(into.parent).free
    if size + _ROOM > free:
        why = f"{top} takes {size:,} bytes, and {free:,} are free"
        raise StoreError(f"no copy for the second run of the tests: {why}")
    words = ("cp", "-a", "--reflink=auto", "--", str(top), str(into))
    environment = {"PATH": os.defpath, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            words, env=environment, cwd="/", capture_output=True, timeout=COPY_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreError(f"no copy for the second run of the tests: {error}") from error
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").splitlines() or [f"exit code {done.returncode}"]
        raise StoreError(f"no copy for the second run of the tests: {lines[-1][:300]}")
