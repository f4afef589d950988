"""The answers about what was done: beside the engine (work by hand, trials, landings, a reload), and by runs.

Reports of usage show the protocol's expected tokens beside steps and stories. They compare tokens that were
new to the model (input, output, cache writes): an agent reads the same context again with every call, and a
cache makes that cheap.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, time, timedelta
from functools import reduce
from operator import add
from shlex import quote
from typing import Any, Final, get_args

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from handoffd.api.answers import (
    AddedMany,
    AppliedAnswer,
    CheckedAnswer,
    DiscardedAnswer,
    LandedAnswer,
    NotAdded,
    Reloaded,
    SettingsRead,
    TriedTests,
    TriedWorkspace,
)
from handoffd.api.events import Names, named, usage_counts
from handoffd.engine.run import Moment, PostCheck, Usage
from handoffd.engine.views import Applied, LandedView, Renewed, Tried, WorkspaceTrial
from handoffd.engine.wording import addressed as for_project
from handoffd.engine.wording import command_for, counted
from handoffd.errors import HandoffdError, Refused
from handoffd.journal.dispatches import Grouping
from handoffd.journal.records import UsageSum
from handoffd.protocol.state import render_state

APPLY_S: Final = 40.0
"""How long a daemon lets a caller wait for checks; after that the caller asks again."""

TRIAL_S: Final = 2.0
"""How long it lets one wait that wants to hear what goes on in a trial."""

_THEN: Final = {
    "applied": "the attempt is judged",
    "taken": "a hand-off counts once, so nothing changed now",
    "stale": "nothing changed; do not hand the same file in again",
    "pending": "the step is not done yet: wait for .ai/HANDOFF.md",
    "missing": "nothing changed; dispatch the step, then have its hand-off written",
    "error": "nothing changed; fix .ai/HANDOFF.md first",
}


def applied(outcome: Applied, root: str, called: str | None) -> AppliedAnswer:
    """Return the outcome of a hand-off: its type, the current STATE, and what to do next."""
    then = "its claims are being checked; ask again for the outcome" if outcome.checking else None
    following = for_project(outcome.next_command, root) if outcome.next_command else None
    failed = outcome.type == "error"
    return AppliedAnswer(
        type=outcome.type,
        message=outcome.message,
        state=json.loads(render_state(outcome.state)),
        checking=outcome.checking,
        caller_instruction=f"{outcome.message}; {then or _THEN[outcome.type]}; next: {following}",
        project=root,
        called=called,
        next_command=following,
        code=outcome.code if failed else UNSET,
        recoverable=True if failed else UNSET,
    )


def post_checked(command: str | None, ended: PostCheck | None, root: str) -> CheckedAnswer:
    """Return the outcome of a post_check."""
    passed = ended.passed if ended is not None else None
    if ended is None:
        told = "the step has no post_check"
    elif ended.fault is not None:
        told = f"post_check could not be run: {ended.fault}"
    else:
        told = f"post_check {'passed' if passed else 'did not end in time' if ended.timed_out else 'failed'}"
    return CheckedAnswer(
        project=root,
        passed=passed,
        command=command,
        tail=ended.tail if ended is not None else "",
        message=told,
        caller_instruction=f"{told}; nothing else follows from it",
    )


def landed(outcome: LandedView, root: str, called: str | None, following: str | None) -> LandedAnswer:
    """Return the outcome of a landing."""
    told = _landing_in_words(outcome)
    again = command_for(root, "land", "--story", outcome.story) if outcome.going_on else following
    return LandedAnswer(
        project=root, called=called, story=outcome.story, onto=outcome.onto, commit=outcome.commit,
        files=outcome.files, tests=outcome.tests.counts if outcome.tests is not None else None,
        already=outcome.already, checking=outcome.going_on, message=told, next_command=again,
        caller_instruction=f"{told}; {f'next: {again}' if again else 'nothing else follows'}",
    )  # fmt: skip


def discarded(story: str, kept: str, root: str, called: str | None) -> DiscardedAnswer:
    """Return the outcome of throwing away what a story has done."""
    told = f"{story} is discarded; {kept} keeps what it did"
    back = f"git -C {quote(root)} branch NAME {kept}"
    return DiscardedAnswer(
        project=root, called=called, story=story, kept=kept, message=told,
        caller_instruction=f"{told}; to have it back: {back}",
    )  # fmt: skip


def _landing_in_words(landed: LandedView) -> str:
    if landed.going_on:
        return f"{landed.story} is being merged and tested"
    if landed.already:
        return f"{landed.story} is on {landed.onto} already"
    tests = landed.tests
    ran = f"; {counted(tests.counts.passed, 'test passes', 'tests pass')} there" if tests is not None else ""
    return f"{landed.story} is on {landed.onto} now: {counted(landed.files, 'file')} changed{ran}"


def tried(outcome: Tried, root: str, called: str | None) -> TriedTests:
    """Return the outcome of a project's tests."""
    evidence = outcome.evidence
    if outcome.command is None or evidence is None:
        return TriedTests(project=root, called=called, held=outcome.held, path=outcome.path)
    ended = evidence.fault is None and not evidence.timed_out
    return TriedTests(
        project=root,
        called=called,
        path=outcome.path,
        command=outcome.command,
        passed=not evidence.failing if ended else None,
        verified=evidence.verified,
        timed_out=evidence.timed_out,
        fault=evidence.fault,
        tests=evidence.counts if ended and evidence.verified else None,
        failing=evidence.failing,
        line=evidence.line,
        tail=evidence.tail,
        seconds=round(evidence.seconds, 1),
    )


def tried_workspace(outcome: WorkspaceTrial, root: str, called: str | None) -> TriedWorkspace:
    """Return the outcome of trying a project in a clone."""
    return TriedWorkspace(
        project=root, called=called, kind=outcome.kind, fits=outcome.fits, link=outcome.link,
        why=outcome.why, remedy=outcome.remedy, command=outcome.command,
        tests=tried(outcome.tried, root, called) if outcome.tried is not None else None,
        checking=outcome.doing is not None, doing=outcome.doing,
    )  # fmt: skip


def reloaded(renewed: Renewed, warnings: tuple[str, ...]) -> Reloaded:
    """Return the outcome of a reload."""
    view = renewed.settings
    return Reloaded(
        settings=SettingsRead(
            file=view.file,
            taken=not view.problems,
            changed=view.changed,
            restart=view.restart,
            problems=view.problems,
        ),
        brought=renewed.brought,
        let_go=renewed.let_go,
        problems=(*map(str, view.problems), *renewed.problems),
        warnings=warnings,
    )


def added_many(outcome: Mapping[str, str | HandoffdError]) -> AddedMany:
    """Return the added projects, and why others were refused."""
    refused = {asked: error for asked, error in outcome.items() if isinstance(error, HandoffdError)}
    return AddedMany(
        added=[root for root in outcome.values() if isinstance(root, str)],
        refused=[
            NotAdded(project=asked, code=error.code, message=error.message, hint=error.hint)
            for asked, error in refused.items()
        ],
    )


# --- what runs have used ------------------------------------------------------------------------------
class UsageRow(Struct, frozen=True, kw_only=True):
    """The usage of some ended runs. It names the group that they were summed up by; a total names none.

    `measured` counts the runs whose tokens are known, `unpriced` the ones among these without a cost.
    `new_tokens` are the tokens that no cache had, of a run if summed up by step, else of a story; `reference`
    is the range to expect.
    """

    project: str | UnsetType | None = UNSET
    name: str | UnsetType = UNSET
    story: str | UnsetType | None = UNSET
    step: str | UnsetType | None = UNSET
    day: str | UnsetType | None = UNSET
    executor: str | UnsetType | None = UNSET
    runs: int
    measured: int
    unpriced: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    tokens: int
    cost_usd: float | None
    priced: str | None
    new_tokens: int | UnsetType | None = UNSET
    reference: tuple[int, int] | UnsetType | None = UNSET
    above: bool | UnsetType | None = UNSET
    """Whether `new_tokens` are above the reference."""


class UsageAnswer(Struct, frozen=True, kw_only=True):
    """The usage of ended runs: a row for each group, and the total."""

    project: str | None
    since: Moment | None
    by: str
    rows: list[UsageRow]
    total: UsageRow


REFERENCE: Final[Mapping[str, tuple[int, int]]] = {
    "bdd": (2_000, 5_000),
    "sdd-delta": (3_000, 8_000),
    "contract": (1_000, 3_000),
    "review": (0, 0),
    "scaffold": (2_000, 5_000),
    "impl": (5_000, 15_000),
    "verify": (1_000, 3_000),
    "update-memory": (500, 1_000),
}
"""Expected tokens of one run of a step: low and high, from the protocol."""
STORY_REFERENCE: Final = (15_000, 40_000)
"""Expected tokens of a whole story: low and high."""

_AGO = re.compile(r"(\d{1,4})([hdw])")
_UNITS: Final[Mapping[str, timedelta]] = {
    "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1),
}  # fmt: skip


def grouping(text: str | None) -> Grouping:
    """Return the grouping, by step for None. Raises Refused (BAD_ARGUMENT)."""
    if text is None:
        return "step"
    known: tuple[Grouping, ...] = get_args(Grouping)
    for by in known:
        if text == by:
            return by
    message = f"by must be one of {', '.join(get_args(Grouping))}, not {str(text)[:80]!r}"
    raise Refused(message, code="BAD_ARGUMENT", hint="handoffd usage --by step")


def begin_of(text: str | None, now: datetime) -> datetime | None:
    """Return the moment for `7d`, `12h`, `2w`, a date (its local midnight) or an RFC 3339 time.

    Raises Refused (BAD_ARGUMENT) for anything else.
    """
    if not text:
        return None
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now - int(ago[1]) * _UNITS[ago[2]]
    try:
        moment = datetime.fromisoformat(text)
        here = moment if moment.tzinfo else datetime.combine(moment.date(), time())
        return here.astimezone(UTC)
    except (ValueError, OverflowError):
        message = f"since must be like 7d, 12h, 2w or 2026-01-31, not {text[:80]!r}"
        raise Refused(message, code="BAD_ARGUMENT", hint="handoffd usage --since 7d") from None


def usage_report(sums: Iterable[UsageSum], by: Grouping, names: Names) -> tuple[list[UsageRow], UsageRow]:
    """Return the sums as rows, and their total."""
    found = tuple(sums)
    whole = UsageSum(
        key=(),
        runs=sum(one.runs for one in found),
        measured=sum(one.measured for one in found),
        unpriced=sum(one.unpriced for one in found),
        usage=reduce(add, (one.usage for one in found), Usage()),
    )
    rows = [_row(one, **_key(one.key, by, names), **_compared(one, by)) for one in found]
    return rows, _row(whole)


def _row(one: UsageSum, **more: Any) -> UsageRow:
    counts = asdict(usage_counts(one.usage))
    return UsageRow(runs=one.runs, measured=one.measured, unpriced=one.unpriced, **counts, **more)


def _key(key: tuple[str | None, ...], by: Grouping, names: Names) -> dict[str, str | None]:
    match by:
        case "story":
            root, story = key
            return {"project": root, "name": named(root or "", names), "story": story}
        case "project":
            (root,) = key
            return {"project": root, "name": named(root or "", names)}
        case _:
            return {by: key[0]}


def _compared(one: UsageSum, by: Grouping) -> dict[str, Any]:
    """Return the tokens new to the model, per run or per story, beside the expected ones; else empty."""
    if by not in {"step", "story"}:
        return {}
    new, expected = _new_tokens(one, by)
    above = None if new is None or expected is None else new > expected[1]
    return {"new_tokens": new, "reference": expected, "above": above}


def _new_tokens(one: UsageSum, by: Grouping) -> tuple[int | None, tuple[int, int] | None]:
    new = one.usage.tokens - one.usage.cache_read_tokens
    if by == "step" and one.measured:
        return round(new / one.measured), REFERENCE.get(one.key[0] or "")
    if by == "story" and one.measured and not str(one.key[1]).startswith("CUSTOM-"):
        return new, STORY_REFERENCE
    return None, None
