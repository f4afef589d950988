"""Which tests a red step has left to be built, and whether a green step has made them pass. Pure.

A suite in which nothing fails proves little: the tests that a story began with may be gone, renamed, skipped
or left out. So a green step is held to the ids that its story's last red step left failing, and to the files
that could not be loaded then, whose tests had no ids yet.

A report is as hostile here as anywhere: at most `MAX_RED` ids are held.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Literal

from msgspec import Struct

from handoffd.engine.wording import counted, first_few
from handoffd.execute.reports.report import BAD, Outcome, TestReport

MAX_RED = 20_000
MAX_RED_FILES = 500

CHANGED = "tests_changed"
"""How the failure begins of an attempt whose tests are not the red step's."""


Kind = Literal["test", "setting", "hook", "runner"]
"""What a file decides: a test itself, how tests are run, what runs with the runner, or the runner."""


class Sealed(Struct, frozen=True, kw_only=True, array_like=True):
    """What a file was that decides what tests prove."""

    kind: Kind
    seal: str
    """Tells whether it is the same, as far as the tests are concerned."""
    content: str
    """The digest of the whole file; where a link leads."""
    mode: Literal["file", "exec", "link"]
    blob: str | None = None
    """The object of git that has its content; None: it is not kept."""


class Red(Struct, frozen=True, kw_only=True):
    """What a red step has left: ids of tests that failed, and files of tests that could not be loaded."""

    ids: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    more: int = 0
    """How many further ids failed that are not held."""
    tests: dict[str, Sealed] | None = None
    """The files that decide what the tests prove, by path from the workspace; None: they are not known."""
    patterns: tuple[str, ...] = ()
    """What the red step may write: these are files of its tests."""
    why_not: str | None = None
    """Why they are not known."""


class Unmet(Struct, frozen=True, kw_only=True):
    """A test of the red step that did not run and pass. `name` is its id, or its file."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name} {self.why}"


def red_of(
    report: TestReport, known: Mapping[str, Outcome], known_files: Collection[str], before: Red
) -> Red:
    """Return what a red step has left, and what is still there of an earlier one of the story.

    `known` and `known_files` are of the baseline: its results, and what could not be loaded then.
    """
    results = report.results
    old, files = frozenset(before.ids), Files(before.files)
    failing = [test_id for test_id, outcome in results.items() if outcome in BAD and test_id not in known]
    kept = [
        test_id
        for test_id, outcome in results.items()
        if outcome == "passed" and test_id not in known and (test_id in old or files.has(test_id))
    ]
    ids = tuple(dict.fromkeys((*failing, *kept)))
    unloadable = (error.file for error in report.load_errors if error.file not in known_files)
    return Red(
        ids=ids[:MAX_RED],
        files=tuple(islice(unloadable, MAX_RED_FILES)),
        more=max(0, len(ids) - MAX_RED),
    )


def unmet(
    red: Red, report: TestReport, known: Mapping[str, Outcome], own_skips: Collection[str] = frozenset()
) -> tuple[Unmet, ...]:
    """Return the tests of the red step that did not run and pass; a failure has its own words elsewhere.

    `own_skips` are tests that the red step's own files skip; of a file that could not be loaded then, no
    other test may be skipped. `known` are the results of the baseline.
    """
    found = [
        Unmet(name=test_id, why="is missing" if outcome is None else "is skipped")
        for test_id in red.ids
        if (outcome := report.results.get(test_id)) is None or outcome == "skipped"
    ]
    found += _unmet_in_files(red, report, known, own_skips)
    return tuple(found)


def _unmet_in_files(
    red: Red, report: TestReport, known: Mapping[str, Outcome], own_skips: Collection[str]
) -> Iterator[Unmet]:
    files, ids = Files(red.files), frozenset(red.ids)
    ran = set[str]()
    new = False
    for test_id, outcome in report.results.items():
        if test_id in known:
            continue
        new = new or outcome != "skipped"
        file = files.of(test_id)
        if file is None:
            continue
        if outcome != "skipped":
            ran.add(file)
        elif test_id not in own_skips and test_id not in ids:
            yield Unmet(name=test_id, why="is skipped")
    broken = {error.file for error in report.load_errors}
    # Some runners' ids do not say the file: then any new test that ran may be one of it.
    named = bool(ran) or any(files.of(test_id) for test_id in report.results)
    for file in red.files:
        if file not in ran and file not in broken and (named or not new):
            yield Unmet(name=file, why="has no test that ran")


def lost(first: TestReport, second: TestReport, known: Mapping[str, Outcome]) -> tuple[Unmet, ...]:
    """Return the new tests that pass in a second run, with the red step's files, and not in the first."""
    return tuple(
        Unmet(name=test_id, why="is missing" if test_id not in first.results else "is skipped")
        for test_id, outcome in second.results.items()
        if outcome == "passed" and test_id not in known and first.results.get(test_id) in {None, "skipped"}
    )


def skipped(report: TestReport) -> frozenset[str]:
    """Return the tests that were skipped."""
    return frozenset(test_id for test_id, outcome in report.results.items() if outcome == "skipped")


def said_of(missed: Collection[Unmet]) -> str:
    """Return in words that tests of the red step did not run and pass."""
    number = counted(len(missed), "test that was red", "tests that were red")
    return f"{CHANGED}: {number} did not run and pass: {first_few([str(one) for one in missed])}"


def nothing_passes(report: TestReport, excused: int) -> str | None:
    """Return that not one test passes; None when one does, or none was collected. `excused` failed before."""
    if not report.verified or not report.results or "passed" in report.results.values():
        return None
    rest = [f"{len(skipped(report))} skipped"] if skipped(report) else []
    rest += [f"{excused} failed before this story"] if excused else []
    return f"no test passes: {', '.join(rest)}"


class Files:
    """Tells which of some test files an id is of, for runners whose ids begin with a path or a module."""

    def __init__(self, files: Collection[str]) -> None:
        self._by_head: dict[str, str] = {}
        for file in files:
            self._by_head.setdefault(file, file)
            parts = file.rsplit(".", 1)[0].split("/")
            for start in range(len(parts)):  # a runner may begin below the root
                self._by_head.setdefault(".".join(parts[start:]), file)

    def of(self, test_id: str) -> str | None:
        """Return the file of a test; None when it is of none of them, or its id does not say."""
        head = test_id.partition("::")[0]
        while head:
            if (file := self._by_head.get(head)) is not None:
                return file
            head = head.rpartition(".")[0]
        return None

    def has(self, test_id: str) -> bool:
        """Return whether a test is of one of the files."""
        return self.of(test_id) is not None
