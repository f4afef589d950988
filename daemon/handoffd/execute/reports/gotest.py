"""`go test -json`, read line by line.

The stream comes with the build's own text mixed in: since Go 1.24 as `build-output` events, before
that as plain lines on stderr. A package that does not build becomes one load error for each file
the compiler complains about. A package that ended without finishing (panic, os.Exit, time limit)
lacks the bare `FAIL` line, which a finished package with failing tests prints.
"""

from __future__ import annotations

import json
import re

from msgspec import Struct, field

from handoffd.execute.reports.report import (
    MAX_EXCERPT_CHARS,
    Collector,
    Outcome,
    TestReport,
    printable,
    read_lines,
    unusable,
)

MAX_LINE_BYTES = 1024 * 1024
MAX_BUILD_ERRORS = 10_000

_OUTCOMES: dict[str, Outcome] = {"pass": "passed", "fail": "failed", "skip": "skipped"}
_COMPLAINT = re.compile(r"(?:vet: )?(?P<file>[^\s:][^:\n]{0,4095}\.go):\d+(?::\d+)?: (?P<message>.+)")
_HEADER = re.compile(r"# (?P<build>\S+(?: \[\S+\])?)$")
_NOT_BUILT = re.compile(r"FAIL\t(?P<package>\S+) \[(?:build|setup) failed\]")


class _Package(Struct):
    """The state of one package so far."""

    running: dict[str, str] = field(default_factory=dict)
    """Tests that have begun and not ended, with the beginning of their output."""
    bad_tests: int = 0
    finished: bool = False
    over: bool = False
    failed: bool = False
    not_built: bool = False
    failed_build: str | None = None


def read(body: bytes) -> TestReport:
    """Return the results in a `go test -json` stream; ids are `package::Test/subtest`."""
    return read_lines(body, _Reader(), "the go test report")


class _Reader:
    """Collects events by package, and compiler errors by build."""

    def __init__(self) -> None:
        self._found = Collector()
        self._packages: dict[str, _Package] = {}
        self._complaints: dict[str, list[tuple[str, str, str]]] = {}
        """By build: the file, what is wrong with it, and the compiler's whole line."""
        self._complaint_count = 0
        self._untold: dict[str, list[tuple[str, str, str]]] = {}
        """The complaints that have not become load errors: one build can break many packages."""
        self._builds_of: dict[str, list[str]] = {}
        """The builds that are certainly of a package, by its name."""
        self._text_build = ""
        self._events = 0

    def line(self, line: bytes) -> None:
        """Take in one line, an event or text of the build."""
        if len(line) > MAX_LINE_BYTES:
            return
        event = _event(line)
        if event is None:
            self._build_text(line.decode("utf-8", "replace").rstrip(), None)
            return
        self._events += 1
        if event.get("Action") == "build-output":
            self._build_text(event.get("Output", "").rstrip(), event.get("ImportPath", ""))
        elif package := event.get("Package"):
            self._package_event(self._packages.setdefault(package, _Package()), package, event)

    def finish(self) -> TestReport:
        """Return the report, once every line has been taken in."""
        if not self._events and not self._packages:
            return unusable("there is no event of `go test -json` in the report")
        self._untold = dict(self._complaints)
        for build in self._complaints:
            for package in _packages_of(build):
                self._builds_of.setdefault(package, []).append(build)
        cut_short = tuple(f"{name}::" for name in self._packages if self._settle(name))
        open_end = [name for name, state in self._packages.items() if not state.over]
        unnamed = f"the report ends before {printable(open_end[0][:200])} does" if open_end else None
        return self._found.report(cut_short=cut_short, unnamed_failure=unnamed)

    def _package_event(self, state: _Package, package: str, event: dict[str, str]) -> None:
        action, test = event.get("Action", ""), event.get("Test")
        if action == "output":
            self._output(state, test, event.get("Output", ""))
        elif test is None:
            if action in _OUTCOMES:
                state.over = True
                state.failed = action == "fail"
                state.failed_build = event.get("FailedBuild")
        elif action == "run":
            state.running[test] = ""
        elif outcome := _OUTCOMES.get(action):
            printed = state.running.pop(test, "")
            self._found.add(f"{package}::{test}", outcome)
            if outcome == "failed":
                state.bad_tests += 1
                self._found.explain(printed)

    @staticmethod
    def _output(state: _Package, test: str | None, text: str) -> None:
        if test in state.running and len(state.running[test]) < MAX_EXCERPT_CHARS:
            state.running[test] += text
        if text == "FAIL\n":
            state.finished = True
        elif _NOT_BUILT.match(text):
            state.not_built = True

    def _build_text(self, text: str, build: str | None) -> None:
        """Take in one line of the compiler; `build` is None where only a header names it."""
        if not_built := _NOT_BUILT.match(text):
            state = self._packages.setdefault(not_built.group("package"), _Package())
            state.not_built = state.over = state.failed = True
        elif header := _HEADER.match(text):
            self._text_build = header.group("build").strip("[]")  # vet adds a line "# [package]"
        elif (complaint := _COMPLAINT.match(text)) and self._complaint_count < MAX_BUILD_ERRORS:
            self._complaint_count += 1
            found = (_tidy(complaint.group("file")), complaint.group("message"), f"{text}\n")
            self._complaints.setdefault(build or self._text_build, []).append(found)

    def _settle(self, name: str) -> bool:
        """Judge a package at the end of the stream; return whether its run was cut short."""
        state = self._packages[name]
        if state.not_built or state.failed_build:
            self._not_built(name, state)
            state.over = True
            return False
        for test, printed in state.running.items():
            self._found.add(f"{name}::{test}", "error")
            self._found.explain(printed)
        cut_short = not state.over or (state.failed and not state.finished)
        if state.failed and not state.bad_tests and not state.running:
            self._found.add(name, "error")
        return cut_short

    def _not_built(self, name: str, state: _Package) -> None:
        named = (state.failed_build,) if state.failed_build in self._complaints else self._builds_of.get(name)
        # Before Go 1.24 no event names the build that broke a package: then every broken build counts.
        for build in named or tuple(self._untold):
            for file, message, line in self._untold.pop(build or "", ()):
                self._found.add_load_error(file, message)
                self._found.explain(line)
        if not self._complaints:
            self._found.add_load_error(name, "the package could not be built")


def _event(line: bytes) -> dict[str, str] | None:
    """Return the event's text fields; None for a line without an event."""
    if not line.startswith(b"{"):
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not isinstance(data.get("Action"), str):
        return None
    return {key: value for key, value in data.items() if isinstance(value, str)}


def _packages_of(build: str) -> set[str]:
    """Return what the package of `build` ("p", "p.test", "p [p.test]", "p_test [p.test]") may be called."""
    first = build.split(" ", maxsplit=1)[0]
    return {first, first.removesuffix(".test"), first.removesuffix("_test")}


def _tidy(path: str) -> str:
    return printable(path).removeprefix("./")
