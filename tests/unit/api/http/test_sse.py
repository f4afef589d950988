"""Events as they come, as lines and as server-sent events: what a reader gets, and its return."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest
from tests.support.controlled import Controlled, controlled
from tests.support.supervision import MemorySupervision
from tests.unit.journal.making import record

from handoffd.api.answers import HistoryGap
from handoffd.api.events import event_answer
from handoffd.api.http.routes import EventStream, message


def messages(lines: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    """Yield messages as a browser would read them, comments and the rest left out."""
    fields: dict[str, Any] = {}
    for line in lines:
        name, _, value = line.decode().partition(": ")
        if not line and "data" in fields:
            yield {**fields, "data": json.loads(fields["data"])}
        fields = {**fields, name: value} if line else {}


def streamed(control: Controlled, **query: Any) -> Any:
    """Lend the lines of a stream."""
    return control.client.stream("/v1/events", stream=1, **query)


def test_past_events_come_first(control: Controlled) -> None:
    """By number, under its kind."""
    control.commit(record(why="one"))

    with streamed(control, after=0) as stream:
        assert (stream.header("Content-Type") or "").startswith("text/event-stream")
        assert "no-cache" == stream.header("Cache-Control")
        coming = messages(stream.lines())
        first = next(coming)
        control.commit(record(why="two"))
        second = next(coming)

    assert [("1", "one"), ("2", "two")] == [(one["id"], one["data"]["why"]) for one in (first, second)]
    assert first["event"] == first["data"]["kind"]


@pytest.mark.parametrize(
    ("headers", "query", "first"),
    [
        ({"Last-Event-ID": "2"}, {"stream": 1, "after": 0}, "three"),
        ({"Accept": "text/event-stream"}, {"after": 0}, "one"),
    ],
)
def test_headers_select_the_stream(
    control: Controlled, headers: dict[str, str], query: dict[str, int], first: str
) -> None:
    """A returning reader's header counts more than its address; a browser asks by media type."""
    for why in ("one", "two", "three"):
        control.commit(record(why=why))

    with control.client.stream("/v1/events", headers, **query) as stream:
        assert first == next(messages(stream.lines()))["data"]["why"]


def test_numbers_of_another_journal_are_a_gap(control: Controlled) -> None:
    """All events follow."""
    control.commit(record(why="one"))

    with streamed(control, after=99) as stream:
        coming = messages(stream.lines())
        gap, first = next(coming), next(coming)

    assert ("gap", "0", 100, None) == (gap["event"], gap["id"], gap["data"]["from"], gap["data"]["to"])
    assert "one" == first["data"]["why"]


def test_a_line_of_events_is_one_message(control: Controlled) -> None:
    """Its text cannot look like another one; behind a gap with its numbers a returning reader goes on."""
    control.commit(record(why="a\n\nid: 99\revent: x\u2028"))
    (several,) = control.run(control.journal.events)
    missing = HistoryGap(after=4, next=9, why="a backup was restored")

    lines = message(event_answer(several)).split(b"\n")
    assert ([b"id: 1", b"event: noted"], [b"", b""]) == (lines[:2], lines[3:])
    assert b"\r" not in lines[2]
    told = b'id: 8\nevent: gap\ndata: {"from":5,"to":8,"next":9,"why":"a backup was restored"}\n\n'
    assert told == message(missing)


def test_a_stream_ends_with_the_server(supervision: MemorySupervision) -> None:
    """In order, with its end."""
    with controlled(supervision) as control:
        context = streamed(control)
        stream = context.__enter__()
        pieces = stream.pieces()
        hello = next(pieces)
    rest = list(pieces)
    context.__exit__(None, None, None)

    assert (b"retry: 2000\n\n", []) == (hello, rest)


async def test_without_events_comments_are_sent() -> None:
    """They keep a proxy from ending the connection."""
    sent: list[bytes] = []
    beaten, gone = anyio.Event(), anyio.Event()

    async def nothing() -> AsyncIterator[HistoryGap]:
        await beaten.wait()
        lines: list[HistoryGap] = []
        for line in lines:
            yield line

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))
        if message.get("body", b"").startswith(b":"):
            beaten.set()

    with anyio.fail_after(60):
        await EventStream(nothing(), beat_s=0.001)({"type": "http"}, receive, send)

    assert b": nothing new\n\n" in sent
    assert b"" == sent[-1]


async def test_a_reader_that_leaves_ends_its_stream() -> None:
    """At once, though nothing happens."""

    async def never() -> AsyncIterator[HistoryGap]:
        await anyio.sleep_forever()
        yield HistoryGap(after=0, next=1, why="never")

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        pass

    with anyio.fail_after(60):
        await EventStream(never())({"type": "http"}, receive, send)


def test_events_are_a_list_unless_they_are_followed(control: Controlled) -> None:
    """One object, or one a line."""
    control.commit(record(why="one"))

    assert ["one"] == [event["why"] for event in control.client.get("/v1/events", follow=0)["events"]]
    with control.client.stream("/v1/events", follow="true", after=0) as stream:
        assert "application/x-ndjson" == stream.header("Content-Type")
        assert b'"why":"one"' in next(stream.lines())
