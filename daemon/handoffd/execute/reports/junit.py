"""JUnit XML, as pytest, vitest, jest and most other runners write it.

junitparser knows the dialects of a test case, but loads whole documents through ElementTree, which
expands entities and keeps every byte. So the document is streamed through expat here: a DOCTYPE is
refused before any entity can exist, one test case is in memory at a time, and junitparser is
given just that one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Any
from xml.etree.ElementTree import Element, SubElement
from xml.parsers import expat

import junitparser

from handoffd.execute.reports.report import (
    EVERYTHING,
    MAX_MESSAGE_CHARS,
    Collector,
    LoadError,
    Outcome,
    TestReport,
    TooManyResults,
    size_problem,
    unusable,
)

MAX_ELEMENTS = 1_000_000
MAX_COMPLAINTS = 1000
MAX_DEPTH = 64

_OF_A_CLASS = frozenset({"", "classMethod", "executionError", "initializationError"})
"""Names for what keeps all tests of a class from running, in JUnit 4 and 5, by maven and gradle."""
_RESULT_TAGS = frozenset({"failure", "error", "skipped"})
_ROOT_TAGS = frozenset({"testsuites", "testsuite"})
_MODULE = re.compile(r"while (?:importing test module|loading conftest) '([^'\n]{1,4096})'")
_DECLARATION = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*<\?xml[^>]{0,200}\?>")
_COMPILER = re.compile(
    r"^(?:\[ERROR\] |e: )?(?:file://)?(?P<file>/[^:\n]{1,4096}\.(?:java|kt|groovy|scala)):"
    r"(?:\[\d+,\d+\]|\d+: error:|\d+:\d+:?| \(\d+, \d+\):) *(?P<message>[^\n]{1,2000})",
    re.MULTILINE,
)
"""A line of javac or kotlinc, by itself or as maven and gradle print it."""
_PATH = re.compile(r"[^\s:]*[^\s:/]\.[A-Za-z0-9]{1,6}")


class _Refused(Exception):
    """The document is not one that a test runner writes."""


def read(body: bytes) -> TestReport:
    """Return the results in a JUnit XML report; ids are `classname::name`."""
    if bad := size_problem(body):
        return bad
    reader = _Reader()
    try:
        reader.parser.Parse(body, True)
    except _Refused as refusal:
        return unusable(f"the JUnit report was refused: {refusal}")
    except TooManyResults as excess:
        return unusable(f"the JUnit report was refused: {excess}")
    except (expat.ExpatError, ValueError, LookupError) as error:
        return unusable(f"the JUnit report is not well-formed XML: {error}")
    if reader.internal_error:
        return unusable(f"the test runner broke: {reader.internal_error}")
    if reader.ended_inside:
        return reader.found.report(cut_short=(EVERYTHING,), unnamed_failure="the run was ended inside a test")
    return reader.found.report()


def united(bodies: Iterable[bytes]) -> bytes:
    """Return several reports as one, as maven and gradle write a file for each class.

    What is not a report by itself makes the whole one unusable.
    """
    return b"<testsuites>%s</testsuites>" % b"".join(_DECLARATION.sub(b"", body) for body in bodies)


def not_compiled(printed: str) -> tuple[LoadError, ...]:
    """Return the files which a compiler of the JVM complains of, each with its first complaint."""
    found = Collector()
    for place in islice(_COMPILER.finditer(printed), MAX_COMPLAINTS):
        found.add_load_error(place["file"], place["message"])
    return tuple(found.load_errors.values())


class _Reader:
    """Handlers for expat that keep the open test case and nothing else of the document."""

    def __init__(self) -> None:
        self.found = Collector()
        self.internal_error: str | None = None
        self.ended_inside = False
        """Whether a test has begun and has no name: `pytest.exit` leaves it so."""
        self._elements = 0
        self._depth = 0
        self._suites: list[str] = []
        self._case: Element | None = None
        self._result: Element | None = None
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text

    def _doctype(self, *_: Any) -> None:
        raise _Refused("it has a DOCTYPE, which no test runner writes")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        self._depth += 1
        if self._elements == 1 and tag not in _ROOT_TAGS:
            raise _Refused(f"its root is <{tag[:50]}>, not <testsuites> or <testsuite>")
        if self._elements > MAX_ELEMENTS or self._depth > MAX_DEPTH:
            raise _Refused(f"it has more than {MAX_ELEMENTS} elements or {MAX_DEPTH} levels")
        if tag == "testsuite":
            self._suites.append(attributes.get("name", ""))
        elif tag == "testcase":
            self._case = Element(tag, attributes)
        elif self._case is not None and tag in _RESULT_TAGS and self._result is None:
            self._result = SubElement(self._case, tag, attributes)
            self._result.text = ""

    def _text(self, data: str) -> None:
        if self._result is not None:
            text = self._result.text or ""
            self._result.text = text + data[: max(0, 2 * MAX_MESSAGE_CHARS - len(text))]

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if self._result is not None and tag == self._result.tag:
            self._result = None
        elif tag == "testcase" and self._case is not None:
            self._finish(junitparser.TestCase.fromelem(self._case))  # type: ignore[no-untyped-call]
            self._case = None
        elif tag == "testsuite" and self._suites:
            self._suites.pop()

    def _finish(self, case: junitparser.TestCase) -> None:
        name = case.name or "(no name)"
        message, text = _first_bad(case)
        if (case.classname, name, message) == ("pytest", "internal", "internal error"):
            self.internal_error = (text.strip().splitlines() or [message])[-1][:300]
        elif case.name is None and case.classname is None and not case.result:
            self.ended_inside = True
        elif file := _unloadable_file(case, message, text) or _unloadable_class(case):
            self.found.add_load_error(file, text or message)
        else:
            # pytest writes an empty classname for a module that skips itself; others write none.
            group = self._suites[-1] if case.classname is None and self._suites else case.classname
            self.found.add(f"{group}::{name}" if group else name, _outcome(case))


def _outcome(case: junitparser.TestCase) -> Outcome:
    if case.is_error:
        return "error"
    if case.is_failure:
        return "failed"
    return "skipped" if case.is_skipped else "passed"


def _first_bad(case: junitparser.TestCase) -> tuple[str, str]:
    for result in case.result:
        if not isinstance(result, junitparser.Skipped):
            return str(result.message or ""), str(result.text or "")
    return "", ""


def _unloadable_class(case: junitparser.TestCase) -> str | None:
    """Return the class of which no test could run, as a file."""
    if not case.classname or (case.name or "") not in _OF_A_CLASS or not (case.is_error or case.is_failure):
        return None
    return f"{str(case.classname).replace('.', '/')}.class"


def _unloadable_file(case: junitparser.TestCase, message: str, text: str) -> str | None:
    """Return the file that could not be loaded, if this test case reports that; else None."""
    if not (case.is_error or case.is_failure):
        return None
    name = str(case.name or "")
    if message == "collection failure" and not case.classname:
        return _pytest_file(name, text)
    # vitest reports a suite that cannot be loaded as one case named after its file.
    if case.classname == name and _PATH.fullmatch(name):
        return name
    return None


def _pytest_file(name: str, text: str) -> str:
    """Return the file behind pytest's dotted module name; only an import error gives its path."""
    if named := _MODULE.search(text):
        return named.group(1)
    return f"{name.replace('.', '/')}.py" if name else "(unnamed test file)"
