"""The output of `cargo test`: text for people, because stable Rust has no other form.

Each test binary announces its number of tests, prints one line for each, and a summary. The output of
failing tests comes between the last of these lines and the summary, and is skipped. Results count only if
they agree with the announcement and the summary: a test that prints around the harness makes the report
unusable, which is better than wrong. A crate that does not compile keeps all tests from running; each file
with a compiler error becomes a file that cannot be loaded.
"""

from __future__ import annotations

import re
from collections import Counter

from msgspec import Struct, field

from handoffd.execute.reports.report import Collector, Outcome, TestReport, printable, read_lines, unusable

MAX_LINE_BYTES = 64 * 1024

_OUTCOMES: dict[str, Outcome] = {"ok": "passed", "FAILED": "failed", "ignored": "skipped", "bench:": "passed"}
_RUNNING = re.compile(r"\s+Running (?:unittests )?(?P<file>.{1,4096}?) \((?P<program>.*)")
_PROGRAM = re.compile(r"(?P<name>.+)-[0-9a-f]{8,32}\)")
"""The last part of its path. One expression for both would try each bracket with each slash."""
_DOC_TESTS = re.compile(r"\s+Doc-tests (?P<name>\S+)")
_BEGIN = re.compile(r"running (?P<count>\d{1,9}) tests?")
_TEST = re.compile(r"test (?P<name>.+?) \.\.\. (?P<outcome>ok|FAILED|ignored|bench:)(?:[, ].*)?")
_SHOULD_PANIC = " - should panic"
_SUM = re.compile(
    r"test result: (?:ok|FAILED)\. (?P<passed>\d{1,9}) passed; (?P<failed>\d{1,9}) failed; "
    r"(?P<ignored>\d{1,9}) ignored; (?P<measured>\d{1,9}) measured; .*"
)
_COMPILER = re.compile(r"(?P<kind>error|warning|note|help)(?:\[\w+\])?: (?P<message>.*)")
_PLACE = re.compile(r"\s*--> (?P<file>.{1,4096}?):\d+:\d+")
_NOT_COMPILED = re.compile(r"error: could not compile `(?P<name>[^`]+)`.*")


class _Binary(Struct):
    """One test binary: the number of tests that it announced, and the results so far."""

    name: str
    announced: int | None = None
    results: list[tuple[str, Outcome]] = field(default_factory=list)
    counts: Counter[Outcome] = field(default_factory=Counter)


def read(body: bytes) -> TestReport:
    """Return the results in the output of `cargo test`; ids are `binary file::module::test`."""
    return read_lines(body, _Reader(), "the output of cargo test")


class _Reader:
    """Collects the results of one binary after the other, and the compiler errors before them."""

    def __init__(self) -> None:
        self._found = Collector()
        self._binary: _Binary | None = None
        self._cut_short: list[str] = []
        self._complaint: str | None = None
        self._complaints: dict[str, str] = {}
        self._not_compiled: list[str] = []
        self._doubt: str | None = None
        self._seen = False

    def line(self, line: bytes) -> None:
        """Take in one line of the output."""
        self._text(line[:MAX_LINE_BYTES].decode("utf-8", "replace"))

    def _text(self, line: str) -> None:
        if line[:1].isspace() and (name := _announced(line)) is not None:
            self._begin(name)
        elif self._binary is None:
            self._compiler(line)
        elif (begin := _BEGIN.fullmatch(line)) and self._binary.announced is None:
            self._binary.announced = int(begin["count"])
            self._seen = True
        elif self._binary.announced is not None:
            self._of_harness(self._binary, self._binary.announced, line)

    def finish(self) -> TestReport:
        """Return the report, once every line has been taken in."""
        self._close()
        if self._doubt is not None:
            return unusable(self._doubt)
        if self._not_compiled:
            places = self._complaints or dict.fromkeys(self._not_compiled, "it could not be compiled")
            for file, message in places.items():
                self._found.add_load_error(file, message)
        elif not self._seen:
            return unusable("there is no result of `cargo test` in the report")
        return self._found.report(cut_short=tuple(self._cut_short))

    def _begin(self, name: str) -> None:
        self._close()
        self._binary = _Binary(printable(name))

    def _of_harness(self, binary: _Binary, announced: int, line: str) -> None:
        if len(binary.results) < announced:
            if result := _TEST.fullmatch(line):
                name = result["name"].removesuffix(_SHOULD_PANIC)
                outcome = _OUTCOMES[result["outcome"]]
                binary.results.append((name, outcome))
                binary.counts[outcome] += 1
        elif (total := _SUM.fullmatch(line)) and _agrees(binary, total):
            self._record(binary)
            self._binary = _Binary(binary.name)  # doc tests may print several such blocks under one name
        if _SUM.fullmatch(line) and len(binary.results) < announced:
            self._doubt = (
                f"{binary.name} announced {announced} tests and reported {len(binary.results)}, as when a "
                "test prints past the harness; `test.report: exit` goes by the exit code alone"
            )

    def _close(self) -> None:
        """Close a binary that printed no summary: it was killed, or called exit."""
        binary, self._binary = self._binary, None
        if binary is not None and binary.announced is not None:
            self._record(binary)
            self._found.add(binary.name, "error")
            self._cut_short.append(f"{binary.name}::")

    def _record(self, binary: _Binary) -> None:
        for name, outcome in binary.results:
            self._found.add(f"{binary.name}::{name}", outcome)

    def _compiler(self, line: str) -> None:
        if line.startswith("error: ") and (failed := _NOT_COMPILED.fullmatch(line)):
            self._not_compiled.append(failed["name"])
        elif found := _COMPILER.fullmatch(line):
            if found["kind"] in {"error", "warning"}:
                self._complaint = found["message"] if found["kind"] == "error" else None
        elif self._complaint is not None and (place := _PLACE.fullmatch(line)):
            self._complaints.setdefault(place["file"], self._complaint)
            self._complaint = None


def _announced(line: str) -> str | None:
    """Return the name of the test binary that a line announces; None for any other line."""
    if (running := _RUNNING.fullmatch(line)) is not None:
        program = _PROGRAM.fullmatch(running["program"].rpartition("/")[2])
        return None if program is None else f"{program['name']} {running['file']}"
    tested = _DOC_TESTS.fullmatch(line)
    return None if tested is None else f"{tested['name']} doc"


def _agrees(binary: _Binary, total: re.Match[str]) -> bool:
    passed = int(total["passed"]) + int(total["measured"])
    summary = (passed, int(total["failed"]), int(total["ignored"]))
    return summary == (binary.counts["passed"], binary.counts["failed"], binary.counts["skipped"])
