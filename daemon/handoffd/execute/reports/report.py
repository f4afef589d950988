"""The common form of all test reports, and the limits that all readers keep.

Code that an agent has just changed writes the report, so it may be huge, broken or malicious. Readers never
raise: an unreadable report becomes a `TestReport` with a `problem`, which proves nothing in either direction.
Ids are compared across runs and stored, so they are shortened in a way that keeps them distinct, and hold
only characters that can be encoded and printed.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping
from typing import Literal, Protocol

from msgspec import Struct, field

from handoffd.protocol.state import TestCounts

# --- report ------------------------------------------------------------------------------------
Outcome = Literal["passed", "failed", "error", "skipped"]

MAX_REPORT_BYTES = 64 * 1024 * 1024
MAX_RESULTS = 200_000
MAX_LINES = 2_000_000
MAX_ID_CHARS = 500
MAX_MESSAGE_CHARS = 2000
MAX_EXCERPT_CHARS = 4096

EVERYTHING = ""
"""The scope (a prefix of test ids) that covers the whole run."""

# A test reported twice under one id (pytest reports a failed teardown that way) keeps the worse.
_SEVERITY: Mapping[Outcome, int] = {"skipped": 0, "passed": 1, "failed": 2, "error": 3}


class LoadError(Struct, frozen=True, kw_only=True):
    """A file whose tests could not even be collected or built.

    `file` is a path as the runner gave it, or the name of a package where it named no file.
    """

    file: str
    message: str = ""


class TestReport(Struct, frozen=True, kw_only=True):
    """The results of one run of a project's tests.

    `cut_short` lists scopes (prefixes of ids) whose run ended early: a test that is missing there was not
    deleted, it was never run. `unnamed_failure` is a failure without a test id (an exit code, a bail-out).
    `excerpt` is the output of failing tests, for runners whose own output is for machines. With a `problem`
    the report is unusable and everything else in it is empty.
    """

    __test__ = False

    results: Mapping[str, Outcome] = field(default_factory=dict)
    load_errors: tuple[LoadError, ...] = ()
    cut_short: tuple[str, ...] = ()
    unnamed_failure: str | None = None
    excerpt: str = ""
    verified: bool = True
    problem: str | None = None

    @property
    def counts(self) -> TestCounts:
        """The number of ids by outcome; a file that cannot be loaded counts as one failure."""
        values = list(self.results.values())
        failed = values.count("failed") + values.count("error") + len(self.load_errors)
        return TestCounts(passed=values.count("passed"), failed=failed, skipped=values.count("skipped"))

    @property
    def names_a_failure(self) -> bool:
        """Whether a result in the report explains why the runner exits with an error."""
        return bool(self.load_errors) or any(outcome in BAD for outcome in self.results.values())


BAD: frozenset[Outcome] = frozenset({"failed", "error"})


class TooManyResults(Exception):
    """The report holds more results than the limits allow."""


class Collector:
    """Collects results and load errors while a report is read, within the limits."""

    def __init__(self) -> None:
        self.results: dict[str, Outcome] = {}
        self.load_errors: dict[str, LoadError] = {}
        self.excerpt = ""

    def add(self, test_id: str, outcome: Outcome) -> None:
        """Record one result; of two results for one id the worse one stays, in either order."""
        test_id = bounded_id(test_id)
        before = self.results.get(test_id)
        if before is None and len(self.results) >= MAX_RESULTS:
            raise TooManyResults(f"more than {MAX_RESULTS} test results")
        if before is None or _SEVERITY[outcome] > _SEVERITY[before]:
            self.results[test_id] = outcome

    def add_load_error(self, file: str, message: str) -> None:
        """Record that `file` could not be loaded; the first message for a file stays."""
        if len(self.load_errors) >= MAX_RESULTS:
            raise TooManyResults(f"more than {MAX_RESULTS} files that cannot be loaded")
        file = bounded_id(file)
        self.load_errors.setdefault(file, LoadError(file=file, message=bounded_message(message)))

    def explain(self, text: str) -> None:
        """Add the output of a failing test to the excerpt, while there is room."""
        room = MAX_EXCERPT_CHARS - len(self.excerpt)
        if room > 0:
            self.excerpt += _in_lines(text, room)

    def report(self, *, cut_short: tuple[str, ...] = (), unnamed_failure: str | None = None) -> TestReport:
        """Return the collected results."""
        return TestReport(
            results=self.results,
            load_errors=tuple(self.load_errors.values()),
            cut_short=cut_short,
            unnamed_failure=unnamed_failure,
            excerpt=self.excerpt,
        )


def unusable(problem: str) -> TestReport:
    """Return a report that proves nothing; `problem` is the reason."""
    return TestReport(problem=bounded_message(problem), verified=False)


def size_problem(body: bytes) -> TestReport | None:
    """Return an unusable report if `body` is empty or too large, else None."""
    if not body.strip():
        return unusable("the report is empty")
    if len(body) > MAX_REPORT_BYTES:
        return unusable(f"the report is larger than {MAX_REPORT_BYTES // 1024 // 1024} MiB")
    return None


class LineReader(Protocol):
    """Builds a report from lines, fed one after the other."""

    def line(self, line: bytes) -> None:
        """Take in one line, without its end. Raises TooManyResults."""

    def finish(self) -> TestReport:
        """Return the report, once every line has been taken in. Raises TooManyResults."""


def read_lines(body: bytes, reader: LineReader, what: str) -> TestReport:
    """Return the report that `reader` builds from `body`; `what` names the input in a refusal."""
    if bad := size_problem(body):
        return bad
    try:
        for line in _lines(body):
            reader.line(line)
        return reader.finish()
    except TooManyResults as excess:
        return unusable(f"{what} was refused: {excess}")


def _lines(body: bytes) -> Iterator[bytes]:
    """Yield lines without their ends, one at a time: a list of millions of them could fill the memory."""
    for number, line in enumerate(io.BytesIO(body)):
        if number >= MAX_LINES:
            raise TooManyResults(f"more than {MAX_LINES} lines")
        yield line.rstrip(b"\r\n")


def bounded_id(text: str) -> str:
    """Return `text` printable and at most `MAX_ID_CHARS` long; a long one ends in its digest."""
    text = printable(text)
    if len(text) <= MAX_ID_CHARS:
        return text
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return f"{text[: MAX_ID_CHARS - len(digest) - 1]}~{digest}"


def bounded_message(text: str) -> str:
    """Return the beginning of `text` with its line ends, safe to print and to encode."""
    return _in_lines(text, MAX_MESSAGE_CHARS).strip()


def _in_lines(text: str, most: int) -> str:
    """Return the first `most` characters of `text`, each line printable; go indents by tabs."""
    return "\n".join(map(printable, text[:most].expandtabs(4)[:most].split("\n")))


def printable(text: str) -> str:
    """Return `text` with control characters and lone surrogates replaced."""
    text = text.encode("utf-8", "replace").decode()
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


# --- a check that reports by its exit code alone ------------------------------------------------------
def exit_report(code: int | None, signal: int | None) -> TestReport:
    """Return the report of a runner with nothing but an exit code or a signal; counts are unknown."""
    return TestReport(verified=False, unnamed_failure=describe_failure(code, signal))


def describe_failure(code: int | None, signal: int | None) -> str | None:
    """Return `exit code 1` or `signal 11`; None for success."""
    if signal is not None:
        return f"signal {signal}"
    return f"exit code {code}" if code else None
