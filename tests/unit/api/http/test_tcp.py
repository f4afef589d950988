"""The loopback port, by real sockets: who gets in, and which attacks fail; and its token."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Literal

import pytest
from tests.support.controlled import Controlled, controlled
from tests.support.eventually import eventually_sync
from tests.support.loopback import Loopback, answer_of, everything, has_ipv6
from tests.support.supervision import MemorySupervision
from tests.unit.journal.making import record

from handoffd.api.http.auth import BURST, PER_S, Bucket, Token, ensured, read, rotated
from handoffd.api.http.limits import Limits
from handoffd.api.http.server import TcpDoor, listen_on_loopback, port_of
from handoffd.engine.events import Approved, Noted
from handoffd.errors import Refused, StoreError

needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this kernel has no ::1")
NOTE = json.dumps({"project": "shop", "text": "x"}).encode()


@pytest.fixture
def control(supervision: MemorySupervision) -> Iterator[Controlled]:
    """A server with a port."""
    with controlled(supervision, tcp=True) as lent:
        yield lent


def port_at(control: Controlled, address: str = "127.0.0.1") -> Loopback:
    """Return the port of a server."""
    assert control.tcp_port is not None
    return Loopback(control.tcp_port, control.token_file, address)


def whole(port: Loopback, path: str) -> bytes:
    """Return a GET with the token that leaves the connection open."""
    host = f"Host: 127.0.0.1:{port.port}\r\n"
    return f"GET {path} HTTP/1.1\r\n{host}Authorization: Bearer {port.token}\r\n\r\n".encode()


@pytest.fixture
def port(control: Controlled) -> Loopback:
    """Its port."""
    return port_at(control)


def test_a_request_with_the_token_is_answered(port: Loopback, control: Controlled) -> None:
    """As over the socket, under each name of this machine."""
    for name in ("localhost", "[::1]", "127.0.0.1"):
        assert 200 == port.ask("GET", "/v1/status", host=f"{name}:{port.port}").status
    assert 200 == port.ask("POST", "/v1/verbs/note", NOTE).status
    assert [Noted(text="x", by="api over TCP")] == [verb for _, verb in control.supervision.given]


@pytest.mark.parametrize(
    "host", ["evil.example:{}", "127.0.0.1", "127.0.0.1:1", "localhost.:{}", "127.0.0.1:{}.x"]
)
def test_another_host_is_refused(port: Loopback, host: str) -> None:
    """Whatever its name resolves to: a page whose name points here is still another host."""
    answer = port.ask("GET", "/v1/health", host=host.format(port.port))

    assert (403, "FORBIDDEN") == (answer.status, answer.json["code"])


def test_two_hosts_or_tokens_are_refused(port: Loopback) -> None:
    """It would be unclear which one counts; nor is a request without a host answered."""
    own, token = f"Host: 127.0.0.1:{port.port}\r\n", f"Authorization: Bearer {port.token}\r\n"

    for headers, refused in (
        (token, {400, 403}),
        (own * 2 + token, {400, 403}),
        (f"{own}Host: evil.example\r\n{token}", {400, 403}),
        (own + token * 2, {401}),
    ):
        raw = f"GET /v1/health HTTP/1.1\r\n{headers}Connection: close\r\n\r\n"
        assert port.send(raw.encode()).status in refused, headers


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:{}"])
def test_a_page_is_refused_even_with_the_token(port: Loopback, origin: str) -> None:
    """Any origin at all; and nothing allows it to ask again."""
    for method in ("GET", "OPTIONS", "POST"):
        answer = port.ask(method, "/v1/status", origin=origin.format(port.port))
        assert (403, "FORBIDDEN") == (answer.status, answer.json["code"])
        assert [] == [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "given", [None, "", "Bearer ", "Bearer wrong", "Basic {}", "{}", "Bearer {} x", "Bearer {}x"]
)
def test_without_the_token_nothing_is_answered(port: Loopback, given: str | None) -> None:
    """401 at every path, with the command that shows it."""
    answer = port.ask("GET", "/v1/nothing", authorization=given and given.format(port.token))

    assert (401, "UNAUTHORIZED", "Bearer") == (
        answer.status, answer.json["code"], answer.headers["www-authenticate"],
    )  # fmt: skip
    assert "handoffd token" in answer.json["hint"]


def test_a_body_is_not_read_before_the_token(port: Loopback) -> None:
    """A request that announces a gigabyte is refused at once."""
    assert 401 == port.ask("POST", "/v1/reload", authorization=None, content_length="1000000000").status


@pytest.mark.parametrize(
    "kind", [None, "", "text/plain", "application/x-www-form-urlencoded", "application/jsonx"]
)
def test_a_body_must_say_that_it_is_json(port: Loopback, control: Controlled, kind: str | None) -> None:
    """A page could send any other one without a question about its origin. No body needs no type."""
    answer = port.ask("POST", "/v1/verbs/note", NOTE, content_type=kind)

    assert (415, "UNSUPPORTED_MEDIA_TYPE") == (answer.status, answer.json["code"])
    assert [] == control.supervision.given
    with_charset = "Application/JSON; charset=utf-8"
    assert 200 == port.ask("POST", "/v1/verbs/note", NOTE, content_type=with_charset).status
    assert 200 == port.ask("POST", "/v1/reload").status


def test_verbs_for_people_are_refused(port: Loopback, control: Controlled) -> None:
    """An agent of this account can read the token, too."""
    body = json.dumps({"project": "shop"}).encode()

    for path in ("/v1/verbs/approve", "/v1/verbs/retry", "/v1/verbs/trust", "/v1/stop"):
        answer = port.ask("POST", path, b"{}" if path.endswith("stop") else body)
        assert (403, "NOT_OVER_TCP") == (answer.status, answer.json["code"]), path
        assert answer.json["hint"].startswith("handoffd ")
    assert ([], []) == (control.supervision.given, control.stopped_with)


def test_verbs_for_people_pass_where_a_person_vouched_for_the_token(supervision: MemorySupervision) -> None:
    """`control.tcp.gates`."""
    with controlled(supervision, tcp=True, gates=True, inside=lambda _: True) as control:
        port = port_at(control)
        assert 200 == port.ask("POST", "/v1/verbs/approve", b'{"project": "shop", "by": "eve"}').status

    assert [("/srv/shop", Approved(undoable=True, by="eve over TCP"))] == supervision.given


def test_strange_methods_do_nothing(port: Loopback) -> None:
    """TRACE echoes no header, CONNECT opens no tunnel, HEAD of a stream does not last."""
    for method in ("TRACE", "CONNECT", "HEAD", "PUT", "BREW"):
        answer = port.ask(method, "/v1/events?follow=1")
        assert 405 == answer.status, method
        assert port.token.encode() not in answer.body
    assert 404 == port.ask("GET", "http://evil.example/v1/health").status  # as a proxy would be asked


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/9.9\r\n\r\n", b"\0" * 100 + b"\r\n\r\n",
        b"POST /v1/reload HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"GET /v1/health HTTP/1.1\r\nHost : x\r\n\r\n", b"GET /v1/health HTTP/1.1\r\n Host: x\r\n\r\n",
    ],
)  # fmt: skip
def test_anything_else_than_http_is_refused(port: Loopback, raw: bytes) -> None:
    """As JSON; and the next one is answered."""
    answer = port.send(raw + b"\r\n\r\n")

    assert (answer.status, answer.json["type"]) in {(400, "error"), (401, "error"), (403, "error")}
    assert 200 == port.ask("GET", "/v1/health").status


def test_a_body_in_two_lengths_is_never_two_requests(port: Loopback, control: Controlled) -> None:
    """Chunked and counted at once, and chunks that are none."""
    own = f"Host: 127.0.0.1:{port.port}\r\nAuthorization: Bearer {port.token}\r\n"
    head = (
        f"POST /v1/verbs/note HTTP/1.1\r\n{own}Content-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\nConnection: close\r\n"
    ).encode()

    for raw in (b"\r\nfrob\r\n", b"\r\n-5\r\nhello\r\n", b"\r\nffffffffffffffffffffffff\r\nx"):
        assert port.send(head + raw).status in {0, 400}
    port.send(head + b"Content-Length: 4\r\n\r\n0\r\n\r\nPOST /v1/reload HTTP/1.1\r\n\r\n")
    assert [] == control.supervision.given


@pytest.mark.parametrize("size", [40_000, 100_000])
def test_a_large_header_is_refused_even_with_the_token(port: Loopback, size: int) -> None:
    """In any number of pieces; a smaller one is allowed."""
    answer = port.ask("GET", "/v1/health", x_large="x" * size)

    assert (431, "HEADERS_TOO_LARGE") == (answer.status, answer.json["code"])
    assert 200 == port.ask("GET", "/v1/health", x_large="x" * 30_000).status


def test_huge_headers_are_refused(port: Loopback) -> None:
    """One that is long, and many."""
    for raw in (b"X: " + b"x" * 200_000, b"".join(b"X%d: x\r\n" % number for number in range(20_000))):
        with closing(port.connect()) as connection:
            try:
                connection.sendall(b"GET /v1/health HTTP/1.1\r\n" + raw)
            except (BrokenPipeError, ConnectionResetError):
                continue
            assert answer_of(everything(connection)).status in {0, 431}
    assert 200 == port.ask("GET", "/v1/health").status


def test_connections_are_bounded(port: Loopback) -> None:
    """However many wait with half a request, the next whole one is answered."""
    with ExitStack() as held:
        for _ in range(3 * Limits().connections):
            held.enter_context(closing(port.connect())).sendall(b"GET /v1/st")
        assert 200 == port.ask("GET", "/v1/health").status


@pytest.mark.parametrize("begun", [b"", b"GET /v1/health HTTP/1.1\r\nHost: x"])
def test_a_request_that_does_not_come_loses_its_connection(
    supervision: MemorySupervision, begun: bytes
) -> None:
    """Also the second one of a connection."""
    with controlled(supervision, tcp=True, limits=Limits(head_s=0.05)) as control:
        port = port_at(control)
        with closing(port.connect()) as connection:
            connection.sendall(begun)
            assert b"" == everything(connection)
        with closing(port.connect()) as connection:
            connection.sendall(whole(port, "/v1/health") + b"GET /v1")
            assert 200 == answer_of(everything(connection)).status


def test_an_answer_without_a_reader_is_ended(supervision: MemorySupervision) -> None:
    """It frees its place; the history is still there when its reader comes back."""
    limits = Limits(connections=4, stalled_s=0.05)  # and so one stream
    with controlled(supervision, tcp=True, limits=limits) as control:
        port = port_at(control)
        with closing(port.connect()) as connection:
            connection.sendall(whole(port, "/v1/events?stream=1&after=0"))
            assert connection.recv(10)
            assert 503 == port.ask("GET", "/v1/events?follow=1").status

            def is_ended() -> bool:
                control.commit(record(why="x" * 500_000))
                with closing(port.connect()) as again:
                    again.sendall(whole(port, "/v1/events?stream=1&after=0"))
                    return again.recv(12).endswith(b"200")

            assert eventually_sync(is_ended)


@needs_ipv6
def test_the_other_loopback_is_served_as_well(supervision: MemorySupervision) -> None:
    """`host: ::1`: under its own name, with the token, and nowhere else."""
    with controlled(supervision, tcp=True, host="::1") as control:
        port = port_at(control, "::1")
        own = f"[::1]:{port.port}"

        assert 200 == port.ask("GET", "/v1/status", host=own).status
        assert 200 == port.ask("POST", "/v1/verbs/note", NOTE, host=own).status
        assert 401 == port.ask("GET", "/v1/status", host=own, authorization=None).status
        assert 403 == port.ask("GET", "/v1/status", host=f"[::2]:{port.port}").status
        with pytest.raises(ConnectionRefusedError):
            Loopback(port.port, control.token_file).connect()

    assert [Noted(text="x", by="api over TCP")] == [verb for _, verb in supervision.given]


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=needs_ipv6)])
def test_a_port_in_use_is_an_error(host: Literal["127.0.0.1", "::1"]) -> None:
    """With its address, and the command that shows its owner."""
    family = socket.AF_INET6 if host == "::1" else socket.AF_INET
    with closing(socket.create_server((host, 0), family=family)) as other:
        door = TcpDoor(host=host, port=port_of(other), token_file=Path("/nowhere"))
        with pytest.raises(StoreError, match=f"cannot listen on {host} port") as caught:
            listen_on_loopback(door)

    assert ("PORT_TAKEN", True) == (caught.value.code, "ss -ltnp" in (caught.value.hint or ""))


def test_streams_over_tcp_end_with_the_server(supervision: MemorySupervision) -> None:
    """In order: the last chunk comes."""
    with controlled(supervision, tcp=True) as control:
        port = port_at(control)
        connection = port.connect()
        connection.sendall(whole(port, "/v1/events?follow=1"))
        begun = connection.recv(65536)
    with closing(connection):
        rest = everything(connection)

    assert begun.startswith(b"HTTP/1.1 200")
    assert (begun + rest).endswith(b"0\r\n\r\n")


def test_a_burst_passes_and_then_a_rate() -> None:
    """And never more than a burst, however long nothing came."""
    now = [0.0]
    bucket = Bucket(lambda: now[0])

    def taken() -> int:
        return sum(bucket.take() for _ in range(BURST * 10))

    assert BURST == taken()
    assert 0 == taken()
    now[0] = 2.0
    assert 2 * PER_S == taken()
    now[0] = 1e6
    assert BURST == taken()


# --- the token ---------------------------------------------------------------------------------------
def test_a_token_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    """Mode 0600, whatever the umask; the folder is made when need be."""
    path = tmp_path / "state" / "control.token"
    before = os.umask(0)
    try:
        token = ensured(path)
    finally:
        os.umask(before)

    assert token == ensured(path) == read(path)
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert [path] == list(path.parent.iterdir())
    assert len(token) >= 43


def test_a_new_token_replaces_the_old_one(tmp_path: Path) -> None:
    """Also for a server that read the old one."""
    path = tmp_path / "control.token"
    token, first = Token(path), ensured(path)
    assert token.opens(first.encode())

    second = rotated(path)

    assert first != second
    assert (False, True) == (token.opens(first.encode()), token.opens(second.encode()))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_token_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    """It opens nothing, and the error has the command for a new one."""
    path = tmp_path / "control.token"
    text = ensured(path)
    path.chmod(mode)

    assert not Token(path).opens(text.encode())
    with pytest.raises(Refused) as caught:
        ensured(path)
    assert "UNSAFE_TOKEN" == caught.value.code
    assert "handoffd token" in (caught.value.hint or "")


def test_another_kind_of_file_is_not_used(tmp_path: Path) -> None:
    """A link, a folder, a pipe, an empty or a short text; nor does a missing file open anything."""
    path = tmp_path / "control.token"
    assert not Token(path).opens(b"")

    def link() -> None:
        (tmp_path / "other").write_text("x" * 43)
        path.symlink_to(tmp_path / "other")

    def text(content: str) -> None:
        path.write_text(content)
        path.chmod(0o600)

    for make in (link, path.mkdir, lambda: os.mkfifo(path, 0o600), lambda: text(""), lambda: text("short")):
        make()
        with pytest.raises(Refused):
            read(path)
        assert not Token(path).opens(b"")
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def test_a_token_needs_a_folder(tmp_path: Path) -> None:
    """The error has the path."""
    (tmp_path / "state").write_text("a file")

    with pytest.raises(StoreError, match="state"):
        ensured(tmp_path / "state" / "control.token")


def test_a_token_of_the_settings_needs_no_file(tmp_path: Path) -> None:
    """An existing file does not count."""
    path = tmp_path / "control.token"
    text, token = ensured(path), Token(path, "given-by-the-settings")

    assert (True, False) == (token.opens(b"given-by-the-settings"), token.opens(text.encode()))
