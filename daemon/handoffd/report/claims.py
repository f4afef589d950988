"""What agents claimed of their attempts, held against what the daemon measured of them.

The report lists each claim that was not so. Of a longer time they are summed up: how often the claim of an
agent that its step passes has met the measurement, by executor and by step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, get_args

from handoffd.engine.wording import first_few, flatters
from handoffd.journal.history import Attempts, Claimed, Counts, Measured, Ran
from handoffd.protocol.state import Status
from handoffd.report.values import About, ClaimsBy, ClaimsRow

_REFUTED: Final = frozenset({Status.FAILING.value, Status.TIMEOUT.value})
"""The verdicts that a claim to pass does not meet."""


def ended_runs(attempts: Attempts) -> list[Ran]:
    """Return the runs that ended in the time; others went on at its end."""
    since, until = attempts.since, attempts.until
    return [run for run in attempts.runs if run.ended_at and since <= run.ended_at < until]


def claims_of(attempts: Attempts) -> Iterator[tuple[Ran, Claimed, Measured | None]]:
    """Yield the runs that ended in the time and left a hand-off, and what was measured of them."""
    claims = {event.claimed.dispatch: event.claimed for event in attempts.events if event.claimed}
    found = {event.measured.dispatch: event.measured for event in attempts.events if event.measured}
    for run in ended_runs(attempts):
        if (claim := claims.get(run.id)) is not None:
            yield run, claim, found.get(run.id)


def against(run: Ran, claim: Claimed, measured: Measured | None) -> Iterator[tuple[About, str, str]]:
    """Yield what of a claim is not so: about what, the claim, the measurement."""
    said, tests = claim.said, None if measured is None else measured.tests
    counts = tests.counts if tests and tests.verified and not (tests.fault or tests.timed_out) else None
    if said.status == Status.PASS and said.tests and counts and _flatters(said.tests, counts):
        yield "tests", _in_words(said.tests), _in_words(counts)
    elif said.status == Status.PASS and run.result in _REFUTED and measured is not None:
        yield "outcome", "pass", (run.why or run.result or "").removeprefix("pass claimed, but ")
    if claim.untouched:
        yield "files", f"it changed {first_few(claim.untouched, 3)}", _AS_BEFORE[len(claim.untouched) > 1]


_AS_BEFORE: Final = ("the file is as it was", "the files are as they were")


def _flatters(claimed: Counts, measured: Counts) -> bool:
    return flatters(claimed.passed - measured.passed, claimed.failed - measured.failed)


def _in_words(counts: Counts) -> str:
    return f"{counts.passed} pass, {counts.failed} fail"


# --- of a longer time ---------------------------------------------------------------------------------
def tally(attempts: Attempts, by: ClaimsBy | None = None) -> tuple[list[ClaimsRow], ClaimsRow]:
    """Return how often claims were met: a row for each executor and step (or one of them), and the total."""
    groups, total = defaultdict[tuple[str | None, str | None], Counter[str]](Counter), Counter[str]()
    for run in ended_runs(attempts):
        groups[_group(run, by)]["runs"] += 1
    for run, claim, measured in claims_of(attempts):
        if claim.said.status == Status.PASS:
            groups[_group(run, by)].update(_counted(set(_about(run, claim, measured)), measured))
    for counts in groups.values():
        total.update(counts)
    rows = [_row(counts, *key) for key, counts in groups.items()]
    return sorted(rows, key=lambda row: (row.executor or "", row.step or "")), _row(total)


def _group(run: Ran, by: ClaimsBy | None) -> tuple[str | None, str | None]:
    return None if by == "step" else run.executor, None if by == "executor" else run.step


def _about(run: Ran, claim: Claimed, measured: Measured | None) -> Iterator[About]:
    """Yield what of a claim to pass is not so; a report says the one thing that shows it best."""
    yield from (about for about, _, _ in against(run, claim, measured))
    if run.result in _REFUTED and measured is not None:
        yield "outcome"


def _counted(false: set[About], measured: Measured | None) -> Iterable[str]:
    """Yield what one claim counts for. One that nothing was measured of is neither met nor false."""
    yield "claims"
    if measured is not None or false:
        yield from ("measured", *(false or ("met",)))


def _row(counts: Counter[str], executor: str | None = None, step: str | None = None) -> ClaimsRow:
    return ClaimsRow(
        executor=executor, step=step, runs=counts["runs"], claims=counts["claims"],
        measured=counts["measured"], met=counts["met"],
        false={about: counts[about] for about in get_args(About)},
    )  # fmt: skip
