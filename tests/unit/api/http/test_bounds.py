"""Connections over the socket: however many there are, the next one is answered."""

from __future__ import annotations

import http.client
import json
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import anyio
import pytest
from starlette.responses import JSONResponse, StreamingResponse
from tests.support.children import ending
from tests.support.controlled import Controlled, controlled
from tests.support.eventually import eventually_sync
from tests.support.loopback import answer_of, everything
from tests.support.supervision import MemorySupervision
from tests.unit.journal.making import record

from handoffd.api.http.auth import From
from handoffd.api.http.limits import MOST, Limits, Places, Streams
from handoffd.errors import StoreError

FEW = Limits(connections=8)
MANY = Limits(connections=64)
AGENT = From(7)
STATUS = b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n"
FOLLOW = b"GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n"
_CROWD = """
import select, socket, sys

path, count, asked = sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3]) * int(sys.argv[4])
held, waiting = {}, select.poll()

def come():
    one = socket.socket(socket.AF_UNIX)
    one.connect(path)
    one.setblocking(False)
    try:
        one.send(asked)
    except OSError:
        pass
    held[one.fileno()] = one
    waiting.register(one, 0)

for _ in range(count):
    come()
print("up", flush=True)
while True:
    for fd, _ in waiting.poll():
        waiting.unregister(fd)
        held.pop(fd).close()
        come()
"""


@pytest.fixture
def control(supervision: MemorySupervision) -> Iterator[Controlled]:
    """A server with eight places, two of them for people, and two for streams."""
    with controlled(supervision, limits=FEW) as lent:
        yield lent


@contextmanager
def connections(control: Controlled, count: int, begun: bytes) -> Iterator[list[socket.socket]]:
    """Lend `count` connections, each of which has sent `begun`."""
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
def test_a_connection_without_a_whole_request_gives_its_place(control: Controlled, begun: bytes) -> None:
    """To a process that holds fewer connections, however often it comes back."""
    with crowd(control, 10 * FEW.connections, begun):
        for _ in range(5):
            assert 200 == status_of(control)


def test_a_request_that_does_not_come_loses_its_connection(supervision: MemorySupervision) -> None:
    """Over the socket, too."""
    with (
        controlled(supervision, limits=Limits(head_s=0.05)) as control,
        connections(control, 1, b"GET /v1/st") as held,
    ):
        assert b"" == everything(held[0])


def test_streams_are_fewer_than_places(control: Controlled) -> None:
    """Questions are still answered, and when a stream has ended there is room for another."""
    with connections(control, FEW.kept, FOLLOW) as held:
        for one in held:
            assert one.recv(9) == b"HTTP/1.1 "
        assert 1 == control.client.get("/v1/health")["api"]
        held.pop().close()

        def is_answered() -> bool:
            with connections(control, 1, FOLLOW) as (again,):
                return again.recv(12).endswith(b"200")

        assert eventually_sync(is_answered)


def test_when_all_places_work_one_more_request_is_refused(supervision: MemorySupervision) -> None:
    """As JSON, with the next command; when one has been answered there is room again."""
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
        for one in held:
            one.close()
        assert eventually_sync(lambda: control.client.get("/v1/health")["api"] == 1)


@pytest.mark.parametrize("inside", [True, False], ids=["inside a run", "an ordinary process"])
@pytest.mark.parametrize("asked", [(STATUS, 2000), (FOLLOW, 1)], ids=["answers", "streams"])
def test_a_crowd_that_reads_nothing_keeps_no_person_out(
    supervision: MemorySupervision, asked: tuple[bytes, int], inside: bool
) -> None:
    """However many requests one process has in flight, and however often it comes back."""
    person = os.getpid()
    with (
        controlled(supervision, limits=MANY, inside=lambda pid: inside and pid != person) as control,
        crowd(control, 3 * MANY.connections, *asked),
    ):
        for _ in range(5):
            assert 200 == status_of(control)
        control.commit(record(why="seen"))
        with connections(control, 1, FOLLOW.replace(b"follow=1", b"follow=1&after=0")) as (follower,):
            seen = b""
            while b"seen" not in seen:
                piece = follower.recv(65536)
                assert piece, seen
                seen += piece
                assert not seen.startswith(b"HTTP/1.1 503"), seen


@contextmanager
def crowd(control: Controlled, count: int, asked: bytes, times: int = 1) -> Iterator[None]:
    """Have a process hold `count` connections, each with requests whose answers it does not read."""
    with ending(subprocess.Popen(
        [sys.executable, "-c", _CROWD, str(control.socket), str(count), asked.hex(), str(times)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert b"up\n" == process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def status_of(control: Controlled) -> int:
    """Return the status of the answer to a person's request."""
    with connections(control, 1, STATUS.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")) as (one,):
        return answer_of(everything(one)).status


@pytest.mark.parametrize("called", ["requests", "streams"])
async def test_the_last_places_are_for_people(called: str) -> None:
    """The server examines no process before; then it refuses an executor, and one that has many already."""
    looked: list[int] = []

    def inside(pid: int) -> bool:
        looked.append(pid)
        return pid == 7

    places = Places(called, "TOO_MANY", 8, inside)
    with ExitStack() as held:
        for _ in range(6):
            await places.admit(AGENT)
            held.enter_context(places.one(AGENT))
        assert [] == looked
        with pytest.raises(StoreError, match=f"6 {called}, 6 of them by process 7 ") as caught:
            await places.admit(AGENT)
        assert ("TOO_MANY", "ps -fp 7") == (caught.value.code, caught.value.hint)
        for unknown in (From(None), From(7)):
            with pytest.raises(StoreError, match=r"the rest \(2\) is for people"):
                await places.admit(unknown)
        for person in (From(8), From(None, vouched=True)):
            await places.admit(person)
            held.enter_context(places.one(person))
            with pytest.raises(StoreError):
                await places.admit(person)
        with pytest.raises(StoreError, match="ask again"):
            await places.admit(From(9))
    await places.admit(AGENT)


def test_no_process_holds_the_last_places(control: Controlled) -> None:
    """One more of its connections is refused, and says whose there are, whatever the others do."""
    with connections(control, FEW.connections - FEW.kept, b"") as _, connections(control, 1, b"") as (late,):
        refused = answer_of(everything(late))

    assert (503, "TOO_MANY_CONNECTIONS") == (refused.status, json.loads(refused.body)["code"])
    assert (
        f"6 connections are open, 6 of them by process {os.getpid()} " in json.loads(refused.body)["message"]
    )


def test_one_request_at_a_time(control: Controlled) -> None:
    """A client that sends the next one before it has its answer gets that answer, and the end."""
    with connections(control, 1, 3 * STATUS) as (hasty,):
        said = everything(hasty)
    assert said.startswith(b"HTTP/1.1 200")
    assert 1 == said.count(b"HTTP/1.1")
    with connections(control, 1, b"") as (connected,):
        patient = http.client.HTTPConnection("x")
        patient.sock = connected
        for _ in range(3):
            patient.request("GET", "/v1/status")
            assert patient.getresponse().read()
        assert connected is patient.sock


def test_a_refused_connection_ends(supervision: MemorySupervision) -> None:
    """Its unread answer keeps no place."""
    with (
        controlled(supervision, limits=FEW, inside=lambda _: True) as control,
        connections(control, FEW.kept, FOLLOW) as streams,
    ):
        assert all(one.recv(9) == b"HTTP/1.1 " for one in streams)
        with connections(control, 1, FOLLOW) as (refused,):
            answer = answer_of(everything(refused))
    assert (503, "TOO_MANY_STREAMS") == (answer.status, json.loads(answer.body)["code"])
    assert f"by process {os.getpid()} " in json.loads(answer.body)["message"]
    assert f"ps -fp {os.getpid()}" == json.loads(answer.body)["hint"]


async def test_a_process_is_examined_once_for_all_its_requests() -> None:
    """A crowd makes no queue of examinations in which a person would wait."""
    looked, going_on = list[int](), threading.Event()

    def inside(pid: int) -> bool:
        looked.append(pid)
        going_on.wait(60)
        return True

    places = Places("requests", "TOO_MANY", 4, inside)
    refused = 0

    async def ask() -> None:
        nonlocal refused
        with pytest.raises(StoreError):
            await places.admit(AGENT)
        refused += 1

    with ExitStack() as held:
        for _ in range(3):
            held.enter_context(places.one(AGENT))
        async with anyio.create_task_group() as tasks:
            for _ in range(9):
                tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            going_on.set()
    assert (9, [7]) == (refused, looked)


def test_only_streams_are_counted() -> None:
    """An answer of known length ends by itself."""
    streams = Streams(1, lambda _: False)
    answer, stream = JSONResponse({}), StreamingResponse(iter(()))

    assert answer is streams.counted(answer, AGENT)
    assert stream is not streams.counted(stream, AGENT)


def test_connections_leave_most_descriptors_to_others() -> None:
    """A quarter is theirs, and never more than enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
        os._exit(Limits.of_socket().connections)
    assert 32 == os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert min(MOST, soft // 4) == Limits.of_socket().connections
