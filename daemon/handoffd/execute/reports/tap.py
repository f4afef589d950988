"""TAP 13 and 14, as node, bats, prove scripts and pg_prove write it.

The id of a test point inside a subtest begins with the names above it, and the enclosing name comes *after*
its children in the stream: results are held by depth until the enclosing point is read. Everything
that is not TAP (comments, YAML details, stray output) is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from handoffd.execute.reports.report import (
    EVERYTHING,
    MAX_RESULTS,
    Collector,
    Outcome,
    TestReport,
    TooManyResults,
    bounded_id,
    bounded_message,
    read_lines,
    unusable,
)

MAX_DEPTH = 32
MAX_LINE_BYTES = 64 * 1024

_POINT = re.compile(r"(?P<bad>not )?ok(?!\S)(?:[ \t]+(?P<number>\d{1,9})(?!\S))?[ \t]*(?:- ?)?(?P<rest>.*)")
_PLAN = re.compile(r"1\.\.(?P<last>\d{1,9})(?P<rest>\s*(?:#.*)?)$")
_DIRECTIVE = re.compile(r"(?<!\\)#\s*(?P<word>SKIP|TODO)\S*", re.IGNORECASE)
_DURATION = re.compile(r"(?<!\\)#\s*(?:in|time=?)\s*[\d.]+\s*m?s\s*$")
_BEST: tuple[Outcome, ...] = ("passed", "skipped", "failed", "error")
_FILE = re.compile(r"(?:[^\s:]*/)[^\s:/]+\.[A-Za-z0-9]{1,6}")


class _Level(Struct):
    """One level of the stream: what has been read since the point that encloses it."""

    results: list[tuple[str, Outcome]] = field(default_factory=list)
    points: int = 0
    planned: int | None = None


def read(body: bytes) -> TestReport:
    """Return the results in a TAP stream; ids are descriptions, inner ones `outer::inner`."""
    return read_lines(body, _Reader(), "the TAP report")


class _Reader:
    """Reads lines into levels; folds a level into the point that encloses it."""

    def __init__(self) -> None:
        self._bail_out: str | None = None
        self._found = Collector()
        self._levels: list[_Level] = [_Level()]
        self._yaml_indent: int | None = None
        self._seen = 0

    def line(self, line: bytes) -> None:
        """Take in one line without its end; lines after `Bail out!` are ignored."""
        if self._bail_out is None:
            self._text_line(line[:MAX_LINE_BYTES].decode("utf-8", "replace").rstrip())

    def _text_line(self, line: str) -> None:
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        if not text or self._in_yaml(text, indent):
            return
        if text.startswith("Bail out!"):
            self._bail_out = bounded_message(text)
            return
        depth, odd = divmod(indent, 4)
        if odd or depth > MAX_DEPTH:
            return
        if plan := _PLAN.match(text):
            self._level(depth).planned = int(plan.group("last"))
            self._seen += 1
        elif point := _POINT.match(text):
            self._point(depth, point)

    def finish(self) -> TestReport:
        """Return the report, once every line has been taken in."""
        top = self._levels[0]
        unfinished = any(level.results for level in self._levels[1:])
        if not self._seen and self._bail_out is None:
            return unusable("there is no TAP in the report (neither a plan nor a test point)")
        for name, outcome in _numbered(one for level in self._levels for one in level.results):
            self._found.add(name, outcome)
        unnamed = self._bail_out
        if unnamed is None and unfinished:
            unnamed = "the output ends inside a subtest"
        elif unnamed is None and top.planned is None:
            unnamed = "the output ends without a plan"
        elif unnamed is None and top.planned != top.points:
            unnamed = f"{top.planned} tests were planned, {top.points} were run"
        return self._found.report(cut_short=(EVERYTHING,) if unnamed else (), unnamed_failure=unnamed)

    def _in_yaml(self, text: str, indent: int) -> bool:
        if self._yaml_indent is not None:
            if indent >= self._yaml_indent:
                if text == "..." and indent == self._yaml_indent:
                    self._yaml_indent = None
                return True
            self._yaml_indent = None  # never closed: what is less indented is TAP again
        if text == "---" and indent % 4 == 2:
            self._yaml_indent = indent
            return True
        return False

    def _level(self, depth: int) -> _Level:
        while len(self._levels) <= depth:
            self._levels.append(_Level())
        return self._levels[depth]

    def _point(self, depth: int, point: re.Match[str]) -> None:
        self._seen += 1
        level = self._level(depth)
        level.points += 1
        if self._seen > MAX_RESULTS:
            raise TooManyResults(f"more than {MAX_RESULTS} test points")
        name, outcome = _judge(point, level.points)
        inner = [entry for deeper in self._levels[depth + 1 :] for entry in deeper.results]
        del self._levels[depth + 1 :]
        if outcome == "failed" and not inner and _FILE.fullmatch(name):
            # node reports a file that cannot be imported as one failed test named after the file.
            self._found.add_load_error(name, "the tests of this file could not be run")
            return
        level.results.extend((bounded_id(f"{name}::{below}"), result) for below, result in inner)
        level.results.append((name, outcome))


def _numbered(results: Iterable[tuple[str, Outcome]]) -> Iterator[tuple[str, Outcome]]:
    """Yield the results, a second one of a name as `name (2)`: node's names do not say their file.

    The best one comes first, in whatever order they were run: a new test that fails then has an id of its
    own, and the one that has passed before keeps it.
    """
    by_name: dict[str, list[Outcome]] = {}
    for name, outcome in results:
        by_name.setdefault(name, []).append(outcome)
    for name, outcomes in by_name.items():
        for number, outcome in enumerate(sorted(outcomes, key=_BEST.index), 1):
            yield (name if number == 1 else bounded_id(f"{name} ({number})")), outcome


def _judge(point: re.Match[str], ordinal: int) -> tuple[str, Outcome]:
    """Return the name and outcome of a test point. A failing TODO counts as skipped."""
    rest = _DURATION.sub("", point.group("rest"))
    directive = _DIRECTIVE.search(rest)
    name = rest[: directive.start()] if directive else rest
    name = name.strip().replace("\\#", "#").replace("\\\\", "\\")
    name = bounded_id(name or f"test {point.group('number') or ordinal}")
    if directive and (directive.group("word").upper() == "SKIP" or point.group("bad")):
        return name, "skipped"
    return name, "failed" if point.group("bad") else "passed"
