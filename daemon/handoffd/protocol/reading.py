"""Whether a hand-off belongs to the running attempt, and what it says.

The one place that decides both, for the executors of the daemon and for agents that a person started. A
file that is as it was at the dispatch says nothing; a file that names another story, step, attempt or
dispatch makes the whole hand-off stale, for both files come from one session. Of two claims that disagree
the worse counts. Nothing is raised, whatever the bytes: an agent wrote them. A value that cannot be used
is left out with a warning, an unknown status is a failure that names the value. What an executor of the
daemon leaves must say how it ended: text without front matter counts only where a person started the agent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from handoffd.errors import InvalidFile, Problem
from handoffd.protocol.handoff import (
    HANDOFF_FILE,
    RESULT_FILE,
    Absent,
    Claimed,
    FileMark,
    Found,
    FrontMatter,
    Handoff,
    HandoffMark,
    Malformed,
    Note,
    Reading,
    Scalar,
    Stale,
    worst,
)
from handoffd.protocol.handoff_text import Fields, Pieces, handoff_pieces, is_blank, result_pieces
from handoffd.protocol.handoff_values import fields_in, notes_in
from handoffd.protocol.state import (
    MAX_NUMBER,
    Reason,
    Status,
    TestCounts,
    canonical_step,
    near_reason,
    near_status,
    same_step,
)
from handoffd.protocol.story import relative_path, same_story

CLOCK_SLACK = timedelta(seconds=2)
"""File systems and tools round the times they record; so much earlier than the dispatch still counts."""

MAX_WARNINGS = 50

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# --- the two files as one hand-off --------------------------------------------------------------------
class HandoffTexts(Struct, frozen=True, kw_only=True):
    """The two files as they are now: their bytes (None: missing) and their marks."""

    handoff: bytes | None = None
    result: bytes | None = None
    mark: HandoffMark = HandoffMark()


class Expected(Struct, frozen=True, kw_only=True):
    """The running attempt, as a hand-off must name it to count.

    `mark` is what was recorded at its dispatch. For a dispatch that was not ours `mark` is the
    hand-off applied last, `since` the moment of the dispatch, before which nothing counts, and `dispatch`
    None (as is `attempt`, if it is not known): then it is not compared. `ours`: an executor of the daemon has
    made the attempt, so what cannot be read does not pass.
    """

    mark: HandoffMark = HandoffMark()
    story: str | None
    step: str
    attempt: int | None = None
    dispatch: str | None = None
    since: datetime | None = None
    ours: bool = False


def read_handoff(texts: HandoffTexts, expected: Expected) -> Reading:
    """Return what the two files are worth for the attempt that `expected` describes."""
    handoff = _File(HANDOFF_FILE, texts.handoff, texts.mark.handoff, expected.mark.handoff)
    result = _File(RESULT_FILE, texts.result, texts.mark.result, expected.mark.result)
    files = [file for file in (handoff, result) if file.is_written]
    if not files:
        return Absent()
    old = {file.name: file.why_old(expected.since) for file in files}
    fresh = [file for file in files if old[file.name] is None]
    if not fresh:
        return Stale(why="; ".join(why for why in old.values() if why))
    claims = [_read(file) for file in fresh]
    for claim in claims:
        foreign = _why_foreign(claim, expected) if isinstance(claim, Claim) else None
        if foreign:
            return Stale(why=foreign)
    return _combine(claims, expected)


def read_claims(texts: HandoffTexts) -> Absent | Malformed | Found:
    """Return what the two files say together, whatever attempt they are of: nothing is stale."""
    files = (_File(HANDOFF_FILE, texts.handoff), _File(RESULT_FILE, texts.result))
    claims = [_read(file) for file in files if file.is_written]
    if not claims:
        return Absent()
    step = next((claim.step for claim in claims if isinstance(claim, Claim) and claim.step), "")
    return _combine(claims, Expected(story=None, step=canonical_step(step)))


class _File(Struct, frozen=True):
    name: str
    content: bytes | None
    mark: FileMark | None = None
    recorded: FileMark | None = None

    @property
    def is_written(self) -> bool:
        """Whether there is anything in it."""
        return self.content is not None and not is_blank(self.content)

    def why_old(self, since: datetime | None) -> str | None:
        """Return why the file was not written by the running attempt; None if it may have been."""
        if self.mark is None:
            return None
        if self.mark == self.recorded:
            return f"{self.name} was not written since the dispatch"
        if since is None:
            return None
        earliest = (since - CLOCK_SLACK - _EPOCH) // timedelta(microseconds=1) * 1000
        return f"{self.name} is older than the dispatch" if self.mark.mtime_ns < earliest else None


def _read(file: _File) -> Claim | Problem:
    """Return what a file says, or the first thing that keeps it from being read."""
    split, judge = _FORMS[file.name]
    assert file.content is not None
    try:
        return judge(split(file.content))
    except InvalidFile as error:
        return error.problems[0]


def _why_foreign(claim: Claim, expected: Expected) -> str | None:
    """Return what shows that a claim is about something else; None if nothing does."""
    if claim.story and expected.story and not same_story(claim.story, expected.story):
        return f"{claim.file} names story {claim.story[:80]!r}, not {expected.story!r}"
    if claim.step and not same_step(claim.step, expected.step):
        return f"{claim.file} names step {claim.step[:80]!r}, not {expected.step!r}"
    if None not in (claim.attempt, expected.attempt) and claim.attempt != expected.attempt:
        return f"{claim.file} names attempt {claim.attempt}, not {expected.attempt}"
    if claim.dispatch and expected.dispatch and claim.dispatch != expected.dispatch:
        return f"{claim.file} names dispatch {claim.dispatch[:80]!r}, not {expected.dispatch!r}"
    return None


def _combine(claims: list[Claim | Problem], expected: Expected) -> Malformed | Found:
    """Return the reading of one or two fresh files, HANDOFF.md first."""
    problems = [claim for claim in claims if isinstance(claim, Problem)]
    said = [claim for claim in claims if isinstance(claim, Claim)]
    if not said:
        return Malformed(problem=problems[0])
    silent = said[0].file == RESULT_FILE and said[0].status is None
    unread = next((problem for problem in problems if problem.file == HANDOFF_FILE), None)
    if unread is not None and (silent or said[0].status is Status.PASS):
        return Malformed(problem=unread)
    if silent:
        return Malformed(problem=Problem(file=RESULT_FILE, key="status", message="is missing"))
    found = _found(said, problems, expected)
    unread = _unread(said, found.handoff.status) if expected.ours else None
    return found if unread is None else Malformed(problem=unread)


def _unread(said: list[Claim], status: Claimed | None) -> Problem | None:
    """Return why what an executor left does not pass: a failure might be read as one."""
    if status is None:
        return Problem(file=HANDOFF_FILE, line=1, message="has no front matter: it begins with a line `---`")
    if status is not Status.PASS:
        return None
    unsaid = [claim for claim in said if claim.status is None] if _is_unsaid(said) else []
    doubts = (claim for claim in unsaid if claim.errors or claim.failing_tests)
    silent = (Problem(file=claim.file, key="status", message="is missing") for claim in doubts)
    uncounted = (claim.uncounted for claim in said if claim.uncounted is not None)
    return next(uncounted, None) or next(silent, None)


def _is_unsaid(said: list[Claim]) -> bool:
    return all(claim.status is None for claim in said)


def _found(said: list[Claim], problems: list[Problem], expected: Expected) -> Found:
    """Return one hand-off made of the claims (HANDOFF.md first) and what could not be read."""
    status, leading = _verdict(said)
    errors = [error for claim in said for error in claim.errors]
    errors += [str(problem) for problem in problems if problem.file == HANDOFF_FILE]
    ignored = tuple(str(problem) for problem in problems if problem.file == RESULT_FILE)
    handoff = Handoff(
        status=status,
        reason=leading.reason or next((claim.reason for claim in said if claim.reason), None),
        story=next((claim.story for claim in said if claim.story), None),
        step=expected.step if any(claim.step for claim in said) else None,
        attempt=next((claim.attempt for claim in said if claim.attempt is not None), None),
        dispatch=next((claim.dispatch for claim in said if claim.dispatch), None),
        tests=next((claim.tests for claim in said if claim.tests), None),
        failing_tests=next((claim.failing_tests for claim in said if claim.failing_tests), ()),
        files_changed=next((claim.files_changed for claim in said if claim.files_changed), ()),
        summary=next((claim.summary for claim in said if claim.summary), said[0].opening),
        commit_hash=next((claim.commit_hash for claim in said if claim.commit_hash), None),
        error="; ".join(errors) or None,
        outcome=leading.outcome or next((claim.outcome for claim in said if claim.outcome), None),
        fields=next((claim.fields for claim in said if claim.fields), {}),
        notes=next((claim.notes for claim in said if claim.notes), ()),
        question=next((claim.question for claim in said if claim.question), None),
    )
    details = tuple(warning for claim in said for warning in claim.warnings)
    warnings = (*_disagreements(said), *_respelt_step(said, expected), *ignored, *details)
    return Found(handoff=handoff, source=_source(leading), warnings=warnings[:MAX_WARNINGS])


def _verdict(said: list[Claim]) -> tuple[Claimed | None, Claim]:
    """Return the status that counts and the claim it comes from; executor-result leads where they agree."""
    voices = {claim.file: claim.status for claim in said if claim.status is not None}
    if not voices:
        return (None if said[0].old_format else Status.PASS), said[0]
    status = worst(*voices.values())
    return status, next(claim for claim in reversed(said) if claim.status == status)


def _source(claim: Claim) -> Literal["front-matter", "old-format", "executor-result"]:
    if claim.file == RESULT_FILE:
        return "executor-result"
    return "old-format" if claim.old_format else "front-matter"


def _respelt_step(said: list[Claim], expected: Expected) -> list[str]:
    return [
        f"{claim.file}: step: {claim.step!r} is read as {expected.step!r}"
        for claim in said
        if claim.step and claim.step != expected.step
    ]


def _disagreements(said: list[Claim]) -> list[str]:
    words = [f"{claim.file} says {claim.status.value}" for claim in said if claim.status is not None]
    if len({claim.status for claim in said if claim.status is not None}) > 1:
        return [f"{', '.join(words)}: the worse counts"]
    given = {
        "reasons": len({claim.reason for claim in said if claim.reason}),
        "outcomes": len({claim.outcome for claim in said if claim.outcome}),
    }
    return [f"the two files give different {name}" for name, count in given.items() if count > 1]


# --- one file as a claim ------------------------------------------------------------------------------
MAX_SUMMARY_CHARACTERS = 4_000

MAX_NAME_CHARACTERS = 1_024

MAX_ITEMS = 2_000

MAX_OUTCOME_CHARACTERS = 80

MAX_QUESTION_CHARACTERS = 2_000

_NOTHING = frozenset({"", "~", "-", "none", "null", "nil", "n/a", "na"})

_NUMBER = re.compile(r"(\d{1,10})(?!\d)")

_COMMIT = re.compile(r"[0-9a-fA-F]{4,64}")


_PHRASES: Mapping[str, Reason] = {
    "NEEDS CLARIFICATION": Reason.NEEDS_CLARIFICATION,
    "CONSTITUTION VIOLATION": Reason.CONSTITUTION_VIOLATION,
    "SCOPE WARNING": Reason.SCOPE_WARNING,
}


class Claim(Struct, frozen=True, kw_only=True):
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
    opening: str | None = None
    """The first paragraph of the body: the summary where no file has one."""
    commit_hash: str | None = None
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    uncounted: Problem | None = None
    """Why its number of failed tests cannot be read."""
    outcome: str | None = None
    fields: Mapping[str, Scalar] = {}
    notes: tuple[Note, ...] = ()
    question: str | None = None


def claim_of_handoff(pieces: Pieces) -> Claim:
    """Return what HANDOFF.md says; without front matter, what its body states outright."""
    opening = _opening(pieces.body)
    if pieces.fields is not None:
        return replace(_claim(HANDOFF_FILE, pieces.fields, pieces.warnings), opening=opening)
    reason = next((reason for phrase, reason in _PHRASES.items() if phrase in pieces.body), None)
    return Claim(
        file=HANDOFF_FILE, old_format=True, status=None if reason is None else Status.FAILING, reason=reason,
        opening=opening, warnings=pieces.warnings,
    )  # fmt: skip


_NO_PROSE = re.compile(r"#{1,6}[ \t]|```|~~~")
_ITEM = re.compile(r"(?:[-*+]|\d{1,3}[.)])[ \t]+")


def _opening(body: str) -> str | None:
    """Return what the first paragraph, or the first item of a list, of a body says; headings are not one."""
    found: list[str] = []
    for line in map(str.strip, body.splitlines()):
        begins = _ITEM.match(line)
        if found and (not line or begins or _NO_PROSE.match(line)):
            break
        if any(map(str.isalnum, line)) and not _NO_PROSE.match(line):
            found.append(line[begins.end() :] if begins else line)
    return " ".join(found)[:MAX_SUMMARY_CHARACTERS] or None


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
    question = reader.long_text("question", MAX_QUESTION_CHARACTERS)
    if question is not None and status is None:
        status = Status.NEEDS_HUMAN
    return Claim(
        file=file, status=status, reason=reason, tests=tests,
        story=reader.name("story"), step=reader.name("step"), attempt=reader.number("attempt"),
        dispatch=reader.name("dispatch"), failing_tests=reader.names("failing_tests"),
        files_changed=reader.paths("files_changed"),
        summary=reader.long_text("summary", MAX_SUMMARY_CHARACTERS), outcome=reader.outcome(),
        fields=reader.scalars(), notes=reader.notes(), question=question,
        commit_hash=reader.commit_hash(), errors=tuple(reader.errors), warnings=tuple(reader.warnings),
        uncounted=reader.uncounted,
    )  # fmt: skip


class _Reader(Struct):
    """Takes single fields out of a file, collecting warnings about them."""

    file: str
    fields: Fields
    warnings: list[str]
    errors: list[str] = field(default_factory=list)
    uncounted: Problem | None = None
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
        """Return a field as text; None where it is missing, empty, or not text."""
        value = self._value(key)
        if not self._says(key):
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
        if not self._says("status"):
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
        if not self._says("reason"):
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
        if counts["fail"] is None and self._says("tests_fail"):
            line = self.fields.lines.get(self._written.get("tests_fail", ""))
            self.uncounted = Problem(file=self.file, line=line, key="tests_fail", message="is not a number")
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
        """Return a list of paths, without entries that lead out of the root or are not paths."""
        plain = {written: relative_path(written) for written in self.names(key)}
        for written in (written for written, path in plain.items() if path is None):
            self.warn(key, f"{written[:80]!r} is not a path inside the project, and is ignored")
        return tuple(dict.fromkeys(path for path in plain.values() if path is not None))

    def long_text(self, key: str, most: int) -> str | None:
        """Return a field that may be of several lines, cut where it is too long."""
        text = self.text(key)
        if text is None or len(text) <= most:
            return text
        self.warn(key, f"is cut at {most:,} characters")
        return text[:most]

    def outcome(self) -> str | None:
        """Return the outcome; which ones there are is the task's business."""
        name = self.name("outcome")
        return name and name[:MAX_OUTCOME_CHARACTERS]

    def scalars(self) -> Mapping[str, Scalar]:
        """Return the values by name."""
        value = self._value("fields")
        return fields_in(value, lambda words: self.warn("fields", words)) if self._says("fields") else {}

    def notes(self) -> tuple[Note, ...]:
        """Return what others should know."""
        value = self._value("notes")
        return notes_in(value, lambda words: self.warn("notes", words)) if self._says("notes") else ()

    def commit_hash(self) -> str | None:
        """Return the commit, if it looks like one."""
        text = self.text("commit_hash")
        if text is None or _COMMIT.fullmatch(text):
            return text and text.lower()
        self.warn("commit_hash", f"{text[:80]!r} is not a commit, and is ignored")
        return None

    def _says(self, key: str) -> bool:
        value = self._value(key)
        return value is not None and not (isinstance(value, str) and value.strip().lower() in _NOTHING)

    def _value(self, key: str) -> Any:
        return self.fields.values.get(self._written.get(key, key))

    def _items(self, key: str, value: list[Any]) -> Iterator[str]:
        for item in value:
            text = _item_text(item)
            if text is None:
                self.warn(key, "holds an item that is not text, which is ignored")
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


_FORMS: dict[str, tuple[Callable[[bytes], Pieces], Callable[[Pieces], Claim]]] = {
    HANDOFF_FILE: (handoff_pieces, claim_of_handoff),
    RESULT_FILE: (result_pieces, claim_of_result),
}
