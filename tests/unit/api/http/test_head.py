"""What a request says before its body, over the socket; over the port: test_tcp.py."""

from __future__ import annotations

import socket

import pytest
from tests.support.controlled import Controlled
from tests.support.loopback import Answer, answer_of, everything

from handoffd.api.http.limits import MOST_HEAD_BYTES, head_bytes


def send(control: Controlled, raw: bytes) -> Answer:
    """Return the answer to bytes as they are, once the server has ended the connection."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(control.socket))
        connection.sendall(raw)
        return answer_of(everything(connection))


def request(line: str, *headers: str) -> bytes:
    """Return a whole request without a body."""
    return "\r\n".join(
        [f"{line} HTTP/1.1", "Host: localhost", "Connection: close", *headers, "", ""]
    ).encode()


@pytest.mark.parametrize(("size", "status"), [(20_000, 200), (40_000, 431), (100_000, 431)])
def test_headers_have_a_limit(control: Controlled, size: int, status: int) -> None:
    """One that is long, and many; in one piece they are complete before the HTTP library counts them."""
    many = [f"X{number}: {'x' * 90}" for number in range(size // 100)]

    for headers in ([f"X: {'x' * size}"], many):
        answer = send(control, request("GET /v1/health", *headers))
        assert status == answer.status
        assert answer.json.get("code") == (None if status == 200 else "HEADERS_TOO_LARGE")


def test_a_path_counts_as_well(control: Controlled) -> None:
    """Whatever comes before the body."""
    answer = send(control, request(f"GET /v1/status?project={'x' * 40_000}"))

    assert (431, "HEADERS_TOO_LARGE") == (answer.status, answer.json["code"])


def test_what_does_not_end_is_refused_in_the_same_form(control: Controlled) -> None:
    """The HTTP library itself gives up on it; the answer arrives though more was on its way."""
    answer = send(control, b"GET /v1/health HTTP/1.1\r\nX: " + b"x" * 100_000)

    assert (431, "HEADERS_TOO_LARGE", "close") == (
        answer.status, answer.json["code"], answer.headers["connection"],
    )  # fmt: skip


@pytest.mark.parametrize("raw", [b"\x16\x03\x01\x02\r\n\r\n", b"frob\r\n\r\n"])
def test_what_is_no_request_is_told_so_as_json(control: Controlled, raw: bytes) -> None:
    """With a status, and nothing after it."""
    answer = send(control, raw)

    assert (400, "BAD_REQUEST", "application/json") == (
        answer.status, answer.json["code"], answer.headers["content-type"],
    )  # fmt: skip


def test_a_body_that_breaks_off_ends_its_request(control: Controlled) -> None:
    """Its verb is not given, and the next one is answered."""
    head = request("POST /v1/verbs/note", "Transfer-Encoding: chunked")

    assert 400 == send(control, head + b"frob\r\n").status
    assert [] == control.supervision.given
    assert 1 == control.client.get("/v1/health")["api"]


def test_a_head_is_counted_with_its_line_ends() -> None:
    """As it came, but for the letters between the words of its first line."""
    scope = {
        "method": "GET",
        "raw_path": b"/v1",
        "query_string": b"a=1",
        "headers": [(b"x", b"yz"), (b"n", b"")],
    }

    assert 3 + 3 + 3 + (1 + 2 + 4) + (1 + 4) == head_bytes(scope)
    assert MOST_HEAD_BYTES > head_bytes(scope)
