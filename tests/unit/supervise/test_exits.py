"""Ends are told with what the output said: the session to continue, what was used, the last words."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tests.unit.supervise.making import dispatch_of, house, make_project, track_of

from handoffd.engine.ends import End
from handoffd.engine.events import Exit
from handoffd.engine.track import AgentSession
from handoffd.engine.usage import Usage
from handoffd.execute.base import ExitRecord
from handoffd.execute.stream.reading import Seen
from handoffd.execute.stream.verdict import StreamVerdict
from handoffd.supervise.exits import ended, exit_of, source_of


def test_an_exit_record_is_told_whole() -> None:
    """With what the agent's own stream said beside it."""
    record = ExitRecord(run_id="d1", signal=9, by="deadline", seconds=2.5, tail="bye")
    seen = Seen(session="s-1", usage=Usage(output_tokens=7), result=StreamVerdict(is_error=True, error="no"))
    told = exit_of(record, tail="it said: bye", seen=seen)

    assert (None, 9, "deadline", "it said: bye", 2.5, True) == (
        told.code, told.signal, told.by, told.tail, told.seconds, told.stream_error
    )  # fmt: skip
    assert ("s-1", Usage(output_tokens=7)) == (told.session, told.usage)
    assert (None, None) == (exit_of(record, tail="").session, exit_of(record, tail="").usage)


def test_an_exit_is_dated_by_its_record() -> None:
    """It may have been written long before a daemon reads it; a shim of an earlier release dates nothing."""
    dated = ExitRecord(run_id="d1", code=1, tail="a\nb\n", ended_ns=1_769_897_709_500_000_000)
    told = exit_of(dated, tail="a\nb\n")
    assert (datetime(2026, 1, 31, 22, 15, 9, 500_000, tzinfo=UTC), "b") == (told.at, told.line)
    assert None is exit_of(ExitRecord(run_id="d1", code=1), tail="").at


async def test_an_executor_that_is_not_in_the_settings_any_more_is_judged_by_its_record(
    tmp_path: Path,
) -> None:
    """Nobody knows how to read what it printed."""
    async with house(tmp_path) as here:
        gone = dispatch_of(executor="gone")
        assert None is source_of(track_of(dispatch=gone), str(tmp_path), here.services)
        told = ended(gone, ExitRecord(run_id="d1", code=3, tail="no quota"), None, here.services)
    assert Exit(code=3, tail="no quota", line="no quota") == told


async def test_what_a_session_used_before_is_known_when_it_is_continued(tmp_path: Path) -> None:
    """Some agents count it again; of another session, and without one, nothing is."""
    used = Usage(output_tokens=7)
    last = AgentSession(step="bdd", executor="agent", id="s-1", used=used)
    async with house(tmp_path) as here:
        sources = [
            source_of(
                track_of(dispatch=dispatch_of(session=session)).with_ledger(session=last), "/p", here.services
            )
            for session in ("s-1", "s-2", None)
        ]
    assert [used, None, None] == [source.before for source in sources if source is not None]


async def test_a_class_is_found_for_the_end(tmp_path: Path) -> None:
    """Also of a run whose output says nothing."""
    async with house(tmp_path) as here:
        track = track_of(dispatch=dispatch_of())
        source = source_of(track, make_project(tmp_path), here.services)
        told = [
            ended(dispatch_of(), ExitRecord(run_id="d1", code=code), source, here.services) for code in (0, 1)
        ]
    assert [End.CLEAN, End.FAILED] == [exit_.end for exit_ in told]
