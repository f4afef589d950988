"""How an executor's end is told to the engine: by its exit record, and by what its own output says.

Exit codes alone lie. What the output has told is known by then but for its last lines, so the next executor
does not wait for a long stream to be read again.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from handoffd.engine.ends import LIMITS, End
from handoffd.engine.events import Exit
from handoffd.engine.track import Dispatch, Track
from handoffd.engine.usage import Usage
from handoffd.engine.wording import last_line
from handoffd.execute.base import ExitRecord
from handoffd.execute.checks import any_changed_since
from handoffd.execute.ending import Ended, Ending, ending_of, footprint_of
from handoffd.execute.executor import Executor
from handoffd.execute.meter import Source, heard_at
from handoffd.execute.output import read_output
from handoffd.execute.stream.format import StreamFormat
from handoffd.execute.stream.reader import Seen, last_words, plain_words
from handoffd.supervise.runfolders import output_path
from handoffd.supervise.services import Services

OUTPUT_END_BYTES = 256 * 1024
"""How much of the end of an output is searched for what went wrong, and for what the agent said last."""


def source_of(track: Track, project: str, services: Services) -> Source | None:
    """Return how the output of the dispatch in flight is read; None if there is none, or no such executor."""
    dispatch = track.ledger.dispatch
    executor = services.executors.executors.get(dispatch.executor) if dispatch is not None else None
    if dispatch is None or executor is None:
        return None
    last = track.ledger.session
    return Source(
        executor=executor,
        run_dir=services.run_dir(dispatch.id),
        output=output_path(project, dispatch.id),
        before=last.used if last is not None and last.id == dispatch.session else None,
        prices=services.prices,
        project=Path(project),
    )


def ended(dispatch: Dispatch, record: ExitRecord, source: Source | None, services: Services) -> Exit:
    """Return how the run of a dispatch ended; blocks while the rest of its output is read."""
    exit_ = _ended(dispatch, record, source, services)
    # Our own order is recorded before a shim hears of it.
    return replace(exit_, by="outside") if exit_.by == "stop" and dispatch.stop is None else exit_


def _ended(dispatch: Dispatch, record: ExitRecord, source: Source | None, services: Services) -> Exit:
    if source is None:
        return exit_of(record, tail=plain_words(record.tail))
    run = Ended(record=record, seen=services.meters.finish(dispatch.id, source), last=b"")
    if not _went_well(run):
        run = replace(run, last=read_output(source.run_dir, source.output, last=OUTPUT_END_BYTES))
    now = services.clock.now()
    # What it says of a limit counts from when it said so: the daemon may have been away since.
    said_at = min(heard_at(source.run_dir) or ended_at(record) or now, now)
    ending = ending_of(source.executor, run, said_at, said_at.astimezone().tzinfo or UTC)
    if ending.end in LIMITS and not services.settings.limits.wait:
        ending = Ending(end=End.FAILED)  # nobody waits for it: a failure as any other
    if ending.end is End.REFUSED and source.executor.output == "text" and _has_worked(record, source):
        ending = Ending(end=End.FAILED)
    return exit_of(record, tail=_last_words(source.executor, run), seen=run.seen, ending=ending)


def _has_worked(record: ExitRecord, source: Source) -> bool:
    """Return whether a file changed while a run went on: plain output need not tell of a tool's call."""
    if source.project is None or record.ended_ns is None:
        return False
    return any_changed_since(source.project, record.ended_ns - int(record.seconds * 1e9))


def _went_well(run: Ended) -> bool:
    result = run.seen.result
    return run.record.code == 0 and result is not None and result.is_error is False


def _last_words(executor: Executor, run: Ended) -> str:
    """Return the end of an output for people: a stream is for programs, and is put into words."""
    if executor.output == "text":
        return plain_words(run.record.tail)
    return last_words(executor.stream or StreamFormat(), run.seen.result, run.last)


def ended_at(record: ExitRecord) -> datetime | None:
    """Return when a run ended, by the wall clock; None where its shim did not see it."""
    return None if record.ended_ns is None else datetime.fromtimestamp(record.ended_ns / 1e9, UTC)


def exit_of(record: ExitRecord, *, tail: str, seen: Seen | None = None, ending: Ending | None = None) -> Exit:
    """Return an exit record as the engine sees it, with what the output has told."""
    seen, ending = seen or Seen(), ending or Ending(end=None)
    return Exit(
        code=record.code,
        signal=record.signal,
        by=record.by,
        tail=tail,
        seconds=record.seconds,
        stream_error=seen.result is not None and seen.result.is_error is True,
        end=ending.end,
        session=seen.session,
        usage=seen.usage if seen.usage != Usage() else None,
        model=seen.model,
        retry_at=ending.retry_at,
        line=last_line(tail),
        at=ended_at(record),
        footprint=footprint_of(record),
    )
