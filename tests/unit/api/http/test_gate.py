"""What the gate counts; by real sockets: test_tcp.py."""

from __future__ import annotations

from handoffd.api.http.auth import BURST, PER_S, Bucket


def test_a_burst_is_let_through_and_then_so_many_a_second() -> None:
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
