"""The end of an attempt with the facts from its output: session, usage, last words."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.house import dispatch_of, house, make_project, track_of

from handoffd.engine.run import End, Exit, Usage
from handoffd.engine.track import AgentSession, StopReason
from handoffd.execute.base import POSITION, ExitRecord
from handoffd.execute.meter import Source
from handoffd.execute.registry import Layer, load_book, shipped_layer
from handoffd.execute.runner import capture
from handoffd.execute.stream.line import StreamVerdict
from handoffd.execute.stream.reader import Seen
from handoffd.track.attempts import ended, exit_of, source_of


def test_an_exit_has_everything_from_its_record_and_stream() -> None:
    """Signal, times, tail, session and usage."""
    record = ExitRecord(run_id="d1", signal=9, by="deadline", seconds=2.5, tail="bye")
    seen = Seen(session="s-1", usage=Usage(output_tokens=7), result=StreamVerdict(is_error=True, error="no"))
    told = exit_of(record, tail="it said: bye", seen=seen)

    assert (None, 9, "deadline", "it said: bye", 2.5, True) == (
        told.code, told.signal, told.by, told.tail, told.seconds, told.stream_error
    )  # fmt: skip
    assert ("s-1", Usage(output_tokens=7)) == (told.session, told.usage)
    assert (None, None) == (exit_of(record, tail="").session, exit_of(record, tail="").usage)


def test_an_exit_is_dated_by_its_record() -> None:
    """A daemon may read it much later; shims of earlier releases record no time."""
    dated = ExitRecord(run_id="d1", code=1, tail="a\nb\n", ended_ns=1_769_897_709_500_000_000)
    told = exit_of(dated, tail="a\nb\n")
    assert (datetime(2026, 1, 31, 22, 15, 9, 500_000, tzinfo=UTC), "b") == (told.at, told.line)
    assert None is exit_of(ExitRecord(run_id="d1", code=1), tail="").at


async def test_an_executor_removed_from_the_settings_is_judged_by_its_record(
    tmp_path: Path,
) -> None:
    """Its output format is unknown."""
    async with house(tmp_path) as here:
        gone = dispatch_of(executor="gone")
        assert None is source_of(track_of(dispatch=gone), str(tmp_path), here.services)
        told = ended(gone, ExitRecord(run_id="d1", code=3, tail="no quota"), None, here.services)
    assert Exit(code=3, tail="no quota", line="no quota") == told


async def test_a_stop_without_an_order_came_from_outside(tmp_path: Path) -> None:
    """A shutdown of the machine stops the shims after the daemon."""
    record = ExitRecord(run_id="d1", signal=15, by="stop")
    async with house(tmp_path) as here:
        told = [
            ended(dispatch_of(stop=stop), record, None, here.services).by
            for stop in (None, StopReason.TIMEOUT)
        ]
    assert ["outside", "stop"] == told


async def test_the_earlier_usage_of_a_continued_session_is_known(tmp_path: Path) -> None:
    """Some agents count it again; another session has none."""
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


async def test_every_end_has_a_class(tmp_path: Path) -> None:
    """Even without output."""
    async with house(tmp_path) as here:
        track = track_of(dispatch=dispatch_of())
        source = source_of(track, make_project(tmp_path), here.services)
        told = [
            ended(dispatch_of(), ExitRecord(run_id="d1", code=code), source, here.services) for code in (0, 1)
        ]
    assert [End.CLEAN, End.FAILED] == [exit_.end for exit_ in told]


async def test_a_relative_limit_counts_from_the_agents_message(tmp_path: Path) -> None:
    """A daemon may read it an hour later."""
    project = make_project(tmp_path)
    async with house(tmp_path) as here:
        dispatch = dispatch_of(executor="codex")
        source = source_of(track_of(dispatch=dispatch), project, here.services)
        assert source is not None
        source.run_dir.mkdir(parents=True)
        said_at = round(here.services.clock.now().timestamp()) - 3600
        record = printed(source, said_at, b"Error: hit your usage limit, try again in 2 hours")

        told = ended(dispatch, record, source, here.services)

    assert (End.LIMIT, datetime.fromtimestamp(said_at + 7200, UTC)) == (told.end, told.retry_at)


def printed(source: Source, at: int, text: bytes) -> ExitRecord:
    """Print `text` at second `at` like an agent, and return the record of its end."""
    place, output = source.run_dir / POSITION, capture.open_output(source.output, str(source.run_dir))
    position = os.open(place, os.O_WRONLY | os.O_CREAT, 0o600)
    kept = capture.Ring(output, position, 1000, 8000, remember=10)
    kept.write(memoryview(text))
    kept.close()
    os.utime(place, (at, at))
    return ExitRecord(run_id="d1", code=1, tail=text.decode(), output_bytes=len(text))


@pytest.mark.parametrize(("written", "end"), [(False, End.REFUSED), (True, End.FAILED)])
async def test_a_plain_text_refusal_counts_only_if_no_file_changed(
    tmp_path: Path, written: bool, end: End
) -> None:
    """The output does not list the work; files of handoffd in .ai prove nothing."""
    project = Path(make_project(tmp_path))
    async with house(tmp_path) as here:
        here.services.executors = load_book(
            shipped_layer(),
            Layer(file="settings", definitions={"own": {"extends": "command", "argv": ["own"]}}),
        )
        dispatch = dispatch_of(executor="own")
        source = source_of(track_of(dispatch=dispatch), str(project), here.services)
        assert source is not None
        source.run_dir.mkdir(parents=True)
        ended_ns = time.time_ns() + 60_000_000_000
        record = replace(
            printed(source, round(ended_ns / 1e9), b"API Error: 403 no zebras\n"),
            ended_ns=ended_ns,
            seconds=30,
        )
        if written:
            (project / "src").mkdir()
            (project / "src/shop.py").write_text("1\n")
            record = replace(record, seconds=120)

        assert end is ended(dispatch, record, source, here.services).end
