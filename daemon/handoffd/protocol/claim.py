"""One hand-off file as a claim: its fields, normalised.

Nothing here raises: a value that cannot be used is left out with a warning, an unknown status is a
failure that names the value. How two claims make one hand-off is decided in `reading.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from handoffd.protocol.handoff import HANDOFF_FILE, RESULT_FILE, Claimed, FrontMatter
from handoffd.protocol.handoff_text import Fields, Pieces
from handoffd.protocol.state import MAX_NUMBER, Reason, Status, TestCounts, near_reason, near_status
from handoffd.protocol.story import relative_path

MAX_SUMMARY_CHARACTERS = 4_000
MAX_NAME_CHARACTERS = 1_024
MAX_ITEMS = 2_000

_NOTHING = frozenset({"", "~", "-", "none", "null", "nil", "n/a", "na"})
_NUMBER = re.compile(r"(\d{1,10})(?!\d)")
_COMMIT = re.compile(r"[0-9a-fA-F]{4,64}")
_PHRASES: Mapping[str, Reason] = {
    "NEEDS CLARIFICATION": Reason.NEEDS_CLARIFICATION,
    "CONSTITUTION VIOLATION": Reason.CONSTITUTION_VIOLATION,
    "SCOPE WARNING": Reason.SCOPE_WARNING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one file says. `status` None: it does not say, and nothing in it tells."""

    file: str
    old_format: bool = False
    status: Claimed | None = None
    reason: Reason | None = None
    story: str | None = None
    step: str | None = None
    attempt: int | None = None
    dispatch: str | None = None
    tests: TestCounts | None = None
    failing_tests: tuple[str, ...] = ()
    files_changed: tuple[str, ...] = ()
    summary: str | None = None
    commit_hash: str | None = None
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def claim_of_handoff(pieces: Pieces) -> Claim:
    """Return what HANDOFF.md says; without front matter, what its body says in so many words."""
    if pieces.fields is not None:
        return _claim(HANDOFF_FILE, pieces.fields, pieces.warnings)
    reason = next((reason for phrase, reason in _PHRASES.items() if phrase in pieces.body), None)
    if reason is None:
        return Claim(file=HANDOFF_FILE, old_format=True, warnings=pieces.warnings)
    return Claim(
        file=HANDOFF_FILE, old_format=True, status=Status.FAILING, reason=reason, warnings=pieces.warnings
    )  # fmt: skip


def claim_of_result(pieces: Pieces) -> Claim:
    """Return what executor-result says; a file of one word is taken as a status."""
    assert pieces.fields is not None
    fields, word = pieces.fields, pieces.body.strip()
    if not fields.values and near_status(word) is not None:
        fields = Fields({"status": word}, {"status": 1})
    return _claim(RESULT_FILE, fields, pieces.warnings)


def _claim(file: str, fields: Fields, warnings: tuple[str, ...]) -> Claim:
    reader = _Reader(file, fields, list(warnings))
    reason = reader.reason()
    tests = reader.tests()
    status = reader.status()
    if reason is not None and status in (None, Status.PASS):
        if status is Status.PASS:
            reader.warn("reason", f"{reason.value!r} outranks the status pass")
        status = Status.FAILING
    if tests is not None and tests.failed > 0:
        if status is Status.PASS:
            reader.warn("status", f"is pass with {tests.failed} failing tests")
        status = status or Status.FAILING
    return Claim(
        file=file, status=status, reason=reason, tests=tests,
        story=reader.name("story"), step=reader.name("step"), attempt=reader.number("attempt"),
        dispatch=reader.name("dispatch"), failing_tests=reader.names("failing_tests"),
        files_changed=reader.paths("files_changed"), summary=reader.summary(),
        commit_hash=reader.commit_hash(), errors=tuple(reader.errors), warnings=tuple(reader.warnings),
    )  # fmt: skip


@dataclass(slots=True)
class _Reader:
    """Takes single fields out of a file, collecting what has to be said about them."""

    file: str
    fields: Fields
    warnings: list[str]
    errors: list[str] = field(default_factory=list)
    _written: dict[str, str] = field(default_factory=dict)
    """The key as it was written, by its normal form; the first of several counts."""

    def __post_init__(self) -> None:
        for key in self.fields.values:
            normal = key.strip().lower().replace("-", "_").replace(" ", "_")
            if normal not in FrontMatter.model_fields:
                continue
            if normal in self._written:
                self.warn(normal, f"is also given as {key!r}, which is ignored")
            self._written.setdefault(normal, key)

    def warn(self, key: str, message: str) -> None:
        """Note something about a field."""
        line = self.fields.lines.get(self._written.get(key, key))
        place = self.file if line is None else f"{self.file}:{line}"
        self.warnings.append(f"{place}: {key}: {message}")

    def text(self, key: str) -> str | None:
        """Return a field as text; None where it is missing, says nothing, or is no text."""
        value = self._value(key)
        if value is None or (isinstance(value, str) and value.strip().lower() in _NOTHING):
            return None
        if isinstance(value, str):
            return value.strip()
        self.warn(key, "must be text, and is ignored")
        return None

    def name(self, key: str) -> str | None:
        """Return a field that is one short line."""
        text = self.text(key)
        return None if text is None else " ".join(text.split())[:MAX_NAME_CHARACTERS]

    def number(self, key: str) -> int | None:
        """Return a field that is a whole number; of `2 of 5` the first."""
        text = self.text(key)
        if text is None:
            return None
        found = _NUMBER.match(text)
        if found is None or int(found[1]) > MAX_NUMBER:
            self.warn(key, f"{text[:80]!r} is not a number from 0 to {MAX_NUMBER:,}, and is ignored")
            return None
        if found[0] != text:
            self.warn(key, f"{text[:80]!r} is read as {int(found[1])}")
        return int(found[1])

    def status(self) -> Claimed | None:
        """Return the status; one that a hand-off cannot have is a failure."""
        value = self._value("status")
        if value is None or (isinstance(value, str) and value.strip().lower() in _NOTHING):
            return None
        written = value.strip() if isinstance(value, str) else ""
        near = near_status(written)
        match near:
            case Status.PASS | Status.FAILING | Status.NEEDS_HUMAN:
                if near.value != written:
                    self.warn("status", f"{written!r} is read as {near.value!r}")
                return near
            case None:
                self.errors.append(f"{self.file}: unknown status {written[:200] or value!r:.200}")
            case _:
                self.errors.append(f"{self.file}: a hand-off cannot have the status {near.value!r}")
        return Status.FAILING

    def reason(self) -> Reason | None:
        """Return the reason; an unknown one is none, its text kept as an error."""
        value = self._value("reason")
        if value is None or (isinstance(value, str) and value.strip().lower() in _NOTHING):
            return None
        written = value.strip() if isinstance(value, str) else ""
        near = near_reason(written)
        if near is None:
            self.errors.append(f"{self.file}: unknown reason {written[:200] or value!r:.200}")
        elif near.value != written:
            self.warn("reason", f"{written!r} is read as {near.value!r}")
        return near

    def tests(self) -> TestCounts | None:
        """Return the counts; None where none is given."""
        counts = {name: self.number(f"tests_{name}") for name in ("pass", "fail", "skip")}
        if all(count is None for count in counts.values()):
            return None
        return TestCounts.model_validate({name: count or 0 for name, count in counts.items()})

    def names(self, key: str) -> tuple[str, ...]:
        """Return a field that is a list, block or inline; one text is split at its commas."""
        value = self._value(key)
        if isinstance(value, str):
            value = re.split(r",\s+", value.strip().removeprefix("[").removesuffix("]"))
        if value is None:
            return ()
        if not isinstance(value, list):
            self.warn(key, "must be a list, and is ignored")
            return ()
        found = tuple(dict.fromkeys(self._items(key, value)))
        if len(found) > MAX_ITEMS:
            self.warn(key, f"only the first {MAX_ITEMS:,} of {len(found):,} are kept")
        return found[:MAX_ITEMS]

    def paths(self, key: str) -> tuple[str, ...]:
        """Return a list of paths, without those that are none or lead out of the root."""
        plain = {written: relative_path(written) for written in self.names(key)}
        for written in (written for written, path in plain.items() if path is None):
            self.warn(key, f"{written[:80]!r} is not a path inside the project, and is ignored")
        return tuple(dict.fromkeys(path for path in plain.values() if path is not None))

    def summary(self) -> str | None:
        """Return the summary, cut where it is too long."""
        text = self.text("summary")
        if text is None or len(text) <= MAX_SUMMARY_CHARACTERS:
            return text
        self.warn("summary", f"is cut at {MAX_SUMMARY_CHARACTERS:,} characters")
        return text[:MAX_SUMMARY_CHARACTERS]

    def commit_hash(self) -> str | None:
        """Return the commit, if it looks like one."""
        text = self.text("commit_hash")
        if text is None or _COMMIT.fullmatch(text):
            return text and text.lower()
        self.warn("commit_hash", f"{text[:80]!r} is no commit, and is ignored")
        return None

    def _value(self, key: str) -> Any:
        return self.fields.values.get(self._written.get(key, key))

    def _items(self, key: str, value: list[Any]) -> Iterator[str]:
        for item in value:
            text = _item_text(item)
            if text is None:
                self.warn(key, "holds an item that is no text, which is ignored")
            elif text.lower() not in _NOTHING:
                yield text[:MAX_NAME_CHARACTERS]


def _item_text(item: Any) -> str | None:
    """Return an item of a list as text; of `- path: what was done` the path."""
    if isinstance(item, dict) and item:
        named = next((item[key] for key in ("path", "file", "name") if key in item), None)
        item = next(iter(item)) if named is None else named
    if isinstance(item, str):
        return " ".join(item.split()).strip("`'\"")
    return "" if item is None else None
