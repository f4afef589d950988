"""Whether a hand-off belongs to the running attempt, and what it says.

The one place that decides both, for the executors of the daemon and for those that a person started.
A file that is as it was at the dispatch says nothing; a file that names another story, step, attempt
or dispatch makes the whole hand-off stale, for both files come from one session. Of two claims that
disagree the worse counts. Nothing is raised, whatever the bytes: an agent wrote them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from handoffd.errors import InvalidFile, Problem
from handoffd.protocol.claim import Claim, claim_of_handoff, claim_of_result
from handoffd.protocol.handoff import (
    HANDOFF_FILE,
    RESULT_FILE,
    Absent,
    Claimed,
    FileMark,
    Found,
    Handoff,
    HandoffMark,
    Malformed,
    Reading,
    Stale,
    worst,
)
from handoffd.protocol.handoff_text import Pieces, handoff_pieces, is_blank, result_pieces
from handoffd.protocol.state import Status, canonical_step, same_step
from handoffd.protocol.story import same_story

CLOCK_SLACK = timedelta(seconds=2)
"""File systems and tools round the times they record; so much earlier than the dispatch still counts."""

MAX_WARNINGS = 50

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffTexts:
    """The two files as they lie there now: their bytes (None: missing) and their marks."""

    handoff: bytes | None = None
    result: bytes | None = None
    mark: HandoffMark = HandoffMark()


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The running attempt, as a hand-off must name it to count.

    `mark` is what was recorded at its dispatch. For a dispatch that was not ours `mark` is the
    hand-off applied last, `since` the moment of the dispatch, before which nothing counts, and `dispatch`
    None (as is `attempt`, if it is not known): then it is not compared.
    """

    mark: HandoffMark = HandoffMark()
    story: str | None
    step: str
    attempt: int | None = None
    dispatch: str | None = None
    since: datetime | None = None


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


@dataclass(frozen=True, slots=True)
class _File:
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


_FORMS: dict[str, tuple[Callable[[bytes], Pieces], Callable[[Pieces], Claim]]] = {
    HANDOFF_FILE: (handoff_pieces, claim_of_handoff),
    RESULT_FILE: (result_pieces, claim_of_result),
}


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
    return _found(said, problems, expected)


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
        summary=next((claim.summary for claim in said if claim.summary), None),
        commit_hash=next((claim.commit_hash for claim in said if claim.commit_hash), None),
        error="; ".join(errors) or None,
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
    reasons = {claim.reason for claim in said if claim.reason}
    return ["the two files give different reasons"] if len(reasons) > 1 else []
