"""To which class the end of a run belongs: why it ended, not what it handed over.

Exit codes lie and subtypes lie, so the classes are told apart by what is said where errors stand: in the
result of the stream, in its error lines, and in the last lines that belong to no stream (standard error).
What an agent says in its own words never counts, or one that works on a rate limiter would be parked. Which
words and codes mean what is data: `ends` and `limits` of `config/executors.yaml`. A cause that the stream
names for programs goes before all words. A refusal comes last: it is an error of the provider's that nothing
else explains.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from handoffd.engine.ends import End
from handoffd.engine.usage import Footprint
from handoffd.execute import resets
from handoffd.execute.base import ExitRecord
from handoffd.execute.executor import EndRule, Executor
from handoffd.execute.stream.reader import Seen, plain_lines

PLAIN_LINES = 40
"""How many of the last lines that belong to no stream are searched, the latest first."""

MAX_LINE_CHARS = 500
"""How much of each is searched: an expression may take more than its length in steps."""

ROUNDED_OFF = timedelta(minutes=1)
"""Added to a time of day: agents leave the seconds out."""

_CRASHES = frozenset({signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV})
_BY_A_SHELL = 128
"""What shells add to the number of the signal that ended their child."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The class of an end. None: we ended it, or nobody saw it. `retry_at`: when its limit is over."""

    end: End | None
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A run that is over. `last` is the end of its output, standard error included."""

    record: ExitRecord
    seen: Seen
    last: bytes


def ending_of(executor: Executor, ended: Ended, now: datetime, local: tzinfo) -> Ending:
    """Return the class of a run's end; `local` is the zone of times of day that name none.

    Of a run that had to be ended only a limit or an overload is told, if that was the last thing it met: it
    may have spent its time on trying again.
    """
    by, met = ended.record.by, ended.seen.limit
    if by == "lost" or (by != "itself" and met is None):
        return Ending(end=None)
    if by == "itself":
        end: End | None = _class_of(executor, ended)
    else:
        end = _named(executor, ended) or _meaning(executor, met, ended)
    return Ending(end=end, retry_at=_retry_at(executor, ended, now, local) if end is End.LIMIT else None)


def footprint_of(record: ExitRecord) -> Footprint | None:
    """Return what a run took of the machine; None where nothing was counted and nothing limited."""
    found = Footprint(
        memory_peak=record.memory_peak,
        memory_max=record.memory_max,
        memory_kills=record.memory_kills,
        tasks_peak=record.tasks_peak,
        tasks_max=record.tasks_max,
        tasks_refused=record.tasks_refused,
    )
    return found if found != Footprint() else None


def _class_of(executor: Executor, ended: Ended) -> End:
    if ended.record.out_of_memory:
        return End.MEMORY_LIMIT if ended.record.at_own_limit else End.OUT_OF_MEMORY
    if _is_clean(ended):
        return End.CLEAN
    texts = tuple(_errors(ended))
    told = next(filter(None, (_meaning(executor, text, ended) for text in texts)), None)
    known = _named(executor, ended) or told or _meaning(executor, None, ended)
    return known or (End.REFUSED if _is_refused(executor, ended, texts) else _unexplained(ended))


def _named(executor: Executor, ended: Ended) -> End | None:
    """Return what the cause that the stream names for programs means; a text may be worded anew any day."""
    return next((rule.end for rule in _by_cause(executor, ended) if rule.end is not End.REFUSED), None)


def _by_cause(executor: Executor, ended: Ended) -> Iterator[EndRule]:
    cause = ended.seen.cause
    return (rule for rule in executor.ends if cause and rule.cause is not None and rule.cause.search(cause))


def _is_refused(executor: Executor, ended: Ended, texts: Iterable[str]) -> bool:
    """Return whether the provider answered with an error that nothing else explains, before any work."""
    if ended.seen.tools or ended.seen.files or ended.record.signal is not None:
        return False
    if any(rule.end is End.REFUSED for rule in _by_cause(executor, ended)):
        return True
    code = ended.record.code
    rules = [rule for rule in executor.ends if rule.end is End.REFUSED and rule.code in {None, code}]
    return any(rule.match.search(text) for text in texts for rule in rules if rule.match is not None)


def _meaning(executor: Executor, text: str | None, ended: Ended) -> End | None:
    """Return what an error means, or without a `text` what the exit code alone does; None if nothing."""
    for rule in executor.ends:
        if rule.cause is not None or rule.end is End.REFUSED:
            continue
        by_code = rule.code is None or rule.code == ended.record.code
        by_text = rule.match is None if text is None else rule.match is not None and rule.match.search(text)
        if by_code and by_text:
            return rule.end
    limited = text is not None and any(pattern.search(text) for pattern in executor.limits)
    return End.LIMIT if limited else None


def _unexplained(ended: Ended) -> End:
    record = ended.record
    crashed = record.signal is not None or (record.code or 0) - _BY_A_SHELL in _CRASHES
    return End.CRASH if crashed and ended.seen.result is None else End.FAILED


def _is_clean(ended: Ended) -> bool:
    """Return whether neither the exit code nor the output tells of an error that was the end of it."""
    result = ended.seen.result
    reported = bool(ended.seen.errors) if result is None else result.is_error is True
    return ended.record.code == 0 and not reported


def _errors(ended: Ended) -> Iterator[str]:
    """Yield what was said where errors stand, the most telling first."""
    seen = ended.seen
    if seen.result is not None and seen.result.error is not None:
        yield seen.result.error
    if seen.limit is not None:
        yield seen.limit
    yield from reversed(seen.errors)
    yield from (line[:MAX_LINE_CHARS] for line in reversed(plain_lines(ended.last)[-PLAIN_LINES:]))


def _retry_at(executor: Executor, ended: Ended, now: datetime, local: tzinfo) -> datetime | None:
    """Return when a limit is over: as the stream says it for programs, else the first time that is named."""
    if ended.seen.resets_at is not None:
        try:
            return datetime.fromtimestamp(ended.seen.resets_at, UTC)
        except (ValueError, OverflowError, OSError):
            pass
    named = (
        _moment(pattern.search(text), now, local) for text in _errors(ended) for pattern in executor.limits
    )
    return next(filter(None, named), None)


def _moment(found: re.Match[str] | None, now: datetime, local: tzinfo) -> datetime | None:
    groups = found.groupdict() if found is not None else {}
    if groups.get("wait"):
        return resets.after(groups["wait"], now)
    moment = resets.at(groups["reset"], now, local) if groups.get("reset") else None
    return moment + ROUNDED_OFF if moment is not None else None
