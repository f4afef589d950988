"""A notice to send, a box that keeps some, and a web server that receives them."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from msgspec.structs import replace
from tests.support.loopback import answering

from handoffd.engine.notice import (
    Expired,
    Held,
    Lot,
    Matter,
    Notice,
    Opened,
    Opening,
    Parcel,
    Reason,
    Waiting,
)
from handoffd.errors import StoreError

NOTICE = Notice(
    id="main-7",
    at=datetime(2026, 1, 31, 22, 15, 9, 123000, tzinfo=UTC),
    project="/srv/shop",
    name="shop",
    story="US-005",
    step="review",
    kind="needs_human",
    text="US-005 waits for a review",
    why="the step needs a person",
    action="handoffd approve /srv/shop",
    review=("docs/bdd/US-005.md",),
    track="main",
)


Request = tuple[str, str, dict[str, str], Any]


@dataclass
class Kept:
    """A notice in a `MemoryBox`, for one sink."""

    notice: Notice
    sink: str
    born_s: float
    tries: int = 0
    why: str = ""
    outcome: str | None = None
    held: Reason | None = None


class MemoryBox:
    """Fits `notify.box.Box`: what it keeps outlives a notifier. While `broken`, it can do nothing."""

    def __init__(self) -> None:
        self.kept: list[Kept] = []
        self.orders: list[int] = []
        self.waiting_matters: dict[tuple[str, str], Matter] = {}
        self.known: dict[str, Notice] = {}
        self.over: set[str] = set()
        """The ids of notices of which nothing waits any more."""
        self.lived_s = 0.0
        self.broken = False
        self.largest = 0

    def outcomes(self) -> list[str | None]:
        """Return the outcome of each."""
        return [one.outcome for one in self.kept]

    def _check(self) -> None:
        if self.broken:
            raise StoreError("no space left")

    def _now(self, lived_s: float) -> None:
        self._check()
        self.lived_s = max(self.lived_s, lived_s)

    async def open(self, sinks: Collection[str]) -> Opened:
        """Drop the notices of other sinks."""
        self._check()
        dropped: dict[str, int] = {}
        for one in self.kept:
            if one.sink not in sinks and one.outcome is None:
                one.outcome = "dropped"
                dropped[one.sink] = dropped.get(one.sink, 0) + 1
        return Opened(lived_s=self.lived_s, dropped=dropped)

    async def keep(self, parcels: Sequence[Parcel], lived_s: float) -> tuple[Matter, ...]:
        """Record notices."""
        self._now(lived_s)
        opened: list[Matter] = []
        for parcel in parcels:
            notice = parcel.notice
            if notice.id not in self.known:
                self.kept += [
                    Kept(notice, sink, lived_s, held=parcel.held.get(sink)) for sink in parcel.sinks
                ]
                opened += [self._opened(notice, parcel.opens)] if parcel.opens is not None else []
            self.known[notice.id] = notice
            if parcel.climbed is not None:
                self._climb(*parcel.climbed)
            if parcel.order is not None:
                self.orders.append(parcel.order)
        return tuple(opened)

    def _opened(self, notice: Notice, opening: Opening) -> Matter:
        matter = Matter(notice=notice.id, lane=opening.lane, since=notice.at, reached_min=opening.reached_min)
        self.waiting_matters[opening.lane] = matter
        return matter

    def _climb(self, notice: str, reached_min: float) -> None:
        for lane, matter in self.waiting_matters.items():
            if matter.notice == notice:
                self.waiting_matters[lane] = replace(matter, reached_min=reached_min)

    async def held(self) -> tuple[Held, ...]:
        """Return what is held back."""
        self._check()
        keys = {(one.sink, one.held) for one in self.kept if one.held and one.outcome is None}
        found = []
        for sink, reason in keys:
            assert reason
            back = self._held_back(sink, reason)
            since = min(one.notice.at for one in back)
            found.append(Held(sink=sink, reason=reason, count=len(back), since=since))
        return tuple(found)

    def _held_back(self, sink: str, reason: str) -> list[Kept]:
        return [one for one in self.kept if (one.sink, one.held, one.outcome) == (sink, reason, None)]

    async def lot(self, sink: str, reason: Reason, limit: int) -> Lot | None:
        """Return what is held back of a sink."""
        self._check()
        back = self._held_back(sink, reason)
        notices = tuple(one.notice for one in back[:limit])
        return Lot(upto=len(self.kept), count=len(back), notices=notices) if back else None

    async def fold(self, sink: str, reason: Reason, upto: int, instead: Notice, lived_s: float) -> None:
        """Fold what is held back into one."""
        self._now(lived_s)
        for one in self._held_back(sink, reason):
            if one in self.kept[:upto]:
                one.outcome = "folded"
        self.kept.append(Kept(instead, sink, lived_s))

    async def matters(self) -> tuple[Matter, ...]:
        """Return the open matters."""
        self._check()
        return tuple(self.waiting_matters.values())

    async def outlook(self, notice: str) -> Notice | None:
        """Return a notice unless its matter is over."""
        self._check()
        return None if notice in self.over else self.known.get(notice)

    async def settle(self, notices: Sequence[str]) -> None:
        """Forget matters."""
        self._check()
        self.waiting_matters = {
            lane: matter for lane, matter in self.waiting_matters.items() if matter.notice not in notices
        }

    async def waiting(self, sink: str, after: int, limit: int) -> tuple[Waiting, ...]:
        """Return the queued notices; numbers are places in the list, from 1."""
        self._check()
        found = [
            Waiting(number=number, lane=(one.notice.project, one.notice.track), tries=one.tries)
            for number, one in enumerate(self.kept, 1)
            if number > after and one.sink == sink and one.outcome is None and one.held is None
        ][:limit]
        self.largest = max(self.largest, len(found))
        return tuple(found)

    async def read(self, number: int) -> Notice | None:
        """Return a notice; one with an empty id counts as lost."""
        self._check()
        notice = self.kept[number - 1].notice
        return notice if notice.id else None

    async def delivered(self, number: int, lived_s: float) -> None:
        """Mark a notice."""
        self._now(lived_s)
        self.kept[number - 1].outcome = "delivered"

    async def failed(self, number: int, why: str, lived_s: float) -> None:
        """Count a try."""
        self._now(lived_s)
        self.kept[number - 1].tries += 1
        self.kept[number - 1].why = why

    async def give_up(self, number: int, why: str, lived_s: float) -> Expired:
        """Give one up."""
        await self.failed(number, why, lived_s)
        return self._lose(number)

    async def expire(self, sink: str, age_s: float, lived_s: float) -> tuple[Expired, ...]:
        """Give up what is old."""
        self._now(lived_s)
        return tuple(
            self._lose(number)
            for number, one in enumerate(self.kept, 1)
            if one.sink == sink and one.outcome is None and one.held is None and one.born_s <= lived_s - age_s
        )

    def _lose(self, number: int) -> Expired:
        one = self.kept[number - 1]
        one.outcome = "given_up"
        return Expired(lane=(one.notice.project, one.notice.track), numbers=(number,), first=one.notice.id)


@dataclass
class MemoryDesk:
    """Fits `control.ports.Desk`."""

    tries: Mapping[str, float] = field(default_factory=dict)
    held: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    again: Mapping[str, datetime | None] = field(default_factory=dict)

    def next_tries(self) -> Mapping[str, float]:
        """Return when sinks are tried again."""
        return self.tries

    def releases(self) -> Mapping[tuple[str, str], datetime]:
        """Return when held notices will be sent."""
        return self.held

    def reminders(self) -> Mapping[str, datetime | None]:
        """Return when reminders will be sent."""
        return self.again


class Server(ThreadingHTTPServer):
    """Answers every request with one status and remembers what it got."""

    daemon_threads = True

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.hold = threading.Event()
        """While it is cleared, no request is answered."""
        self.hold.set()
        self.requests: list[Request] = []

    def address(self, path: str = "/", user: str = "") -> str:
        """Return a URL that leads here."""
        return f"http://{user}127.0.0.1:{self.server_address[1]}{path}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        """Take note and answer."""
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "null")
        self.server.requests.append((self.command, self.path, dict(self.headers), body))
        self.server.hold.wait()
        self.send_response(self.server.status)
        self.send_header("Location", self.server.address("/elsewhere"))
        self.send_header("Content-Length", "0")
        with suppress(ConnectionError):  # the client may have closed
            self.end_headers()

    def do_GET(self) -> None:
        """Take note of a request that should not have been made."""
        self.do_POST()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(status: int) -> Iterator[Server]:
    """Run a server for as long as the block lasts."""
    with Server(status) as server, answering(server, server.hold):
        yield server
