"""Connections over the socket: what many of them cannot do to the next one."""

from __future__ import annotations

import json
import os
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import anyio
import pytest
from starlette.responses import JSONResponse, StreamingResponse
from tests.support.controlled import Controlled, controlled
from tests.support.eventually import eventually_sync
from tests.support.loopback import answer_of, everything
from tests.support.supervision import MemorySupervision

from handoffd.control.bounds import MOST, Limits, Places, Streams
from handoffd.errors import HandoffdError, StoreError

FEW = Limits(connections=8)
FOLLOW = b"GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def control(supervision: MemorySupervision) -> Iterator[Controlled]:
    """A server with eight places, two of them for people, and two for streams."""
    with controlled(supervision, limits=FEW) as lent:
        yield lent


@contextmanager
def connections(control: Controlled, count: int, begun: bytes) -> Iterator[list[socket.socket]]:
    """Lend so many connections, each of which has sent something."""
    with ExitStack() as held:
        made = [held.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(count)]
        for one in made:
            one.connect(str(control.socket))
            try:
                one.sendall(begun)
            except BrokenPipeError:  # its place was needed
                continue
        yield made


@pytest.mark.parametrize(
    "begun",
    [
        b"", b"GET /v1/st", b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /v1/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n{",
    ],
    ids=["nothing", "half a head", "an answer and no more", "half a body"],
)  # fmt: skip
def test_whoever_waits_for_a_request_gives_its_place(control: Controlled, begun: bytes) -> None:
    """The oldest first; the newest are still there."""
    with connections(control, 10 * FEW.connections, begun) as held:
        assert 1 == control.client.get("/v1/health")["api"]
        held[0].settimeout(60)
        assert everything(held[0])[:12] in {b"", b"HTTP/1.1 200"}


def test_a_request_that_does_not_come_loses_its_connection(supervision: MemorySupervision) -> None:
    """Over the socket, too."""
    with (
        controlled(supervision, limits=Limits(head_s=0.05)) as control,
        connections(control, 1, b"GET /v1/st") as held,
    ):
        assert b"" == everything(held[0])


def test_streams_are_fewer_than_places(control: Controlled) -> None:
    """One more is told; questions are answered, and when one has ended there is room again."""
    with connections(control, FEW.kept, FOLLOW) as held:
        for one in held:
            assert one.recv(9) == b"HTTP/1.1 "
        with connections(control, 1, FOLLOW.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")) as (
            late,
        ):
            refused = answer_of(everything(late))
            assert (503, "TOO_MANY_STREAMS") == (refused.status, json.loads(refused.body)["code"])
        assert 1 == control.client.get("/v1/health")["api"]
        held.pop().close()

        def is_answered() -> bool:
            with connections(control, 1, FOLLOW) as (again,):
                return again.recv(12).endswith(b"200")

        assert eventually_sync(is_answered)


def test_when_all_work_one_more_is_told(supervision: MemorySupervision) -> None:
    """As JSON, with what to do; when one has been answered there is room again."""
    going_on, asked = threading.Event(), threading.Semaphore(0)

    def inside(_: int) -> bool:
        asked.release()
        going_on.wait(60)
        return False

    approve = b'{"project": "shop"}'
    head = b"POST /v1/verbs/approve HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(approve)
    with (
        controlled(supervision, limits=Limits(connections=2), inside=inside) as control,
        connections(control, 2, head + approve) as held,
    ):
        for _ in held:
            assert asked.acquire(timeout=60)
        with connections(control, 1, b"") as (late,):
            refused = answer_of(everything(late))
        going_on.set()

        assert (503, "TOO_MANY_CONNECTIONS") == (refused.status, json.loads(refused.body)["code"])
        assert held[0].recv(12).startswith(b"HTTP/1.1")
        assert eventually_sync(lambda: control.client.get("/v1/health")["api"] == 1)


def test_the_last_places_are_for_people() -> None:
    """Nobody is looked at before; then an executor's process is refused, and a person's is not."""
    looked: list[int] = []

    def inside(pid: int) -> bool:
        looked.append(pid)
        return pid == 7

    async def check() -> None:
        places = Places(Limits(connections=4), inside)
        with ExitStack() as held:
            for _ in range(3):
                await places.admit(7)
                held.enter_context(places.one())
            assert [] == looked
            with pytest.raises(StoreError) as caught:
                await places.admit(7)
            assert "TOO_MANY_CONNECTIONS" == caught.value.code
            await places.admit(8)
        await places.admit(7)

    anyio.run(check)


def test_only_answers_that_go_on_are_counted() -> None:
    """One whose length is known ends by itself."""
    streams = Streams(1)
    answer = JSONResponse({})

    with streams.one():
        assert answer is streams.counted(answer)
        with pytest.raises(HandoffdError):
            streams.counted(StreamingResponse(iter(())))
    assert answer is not streams.counted(StreamingResponse(iter(())))


def test_connections_leave_most_descriptors_to_others() -> None:
    """A quarter is theirs, and never more than enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
        os._exit(Limits.of_socket().connections)
    assert 32 == os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert min(MOST, soft // 4) == Limits.of_socket().connections
