"""What a sign of life is, and what an idle program does all the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from handoffd.execute.base import Vitals
from handoffd.execute.executor import Executor, Idle
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.execute.runner.proc_probe import Received
from handoffd.track.attempts import content_bytes, is_at_rest

BEFORE = Vitals(output_bytes=10, cpu_s=1.0, written_bytes=20_000, stored_bytes=8192)


@pytest.mark.parametrize(
    ("after", "rests"),
    [
        (BEFORE, True),
        (replace(BEFORE, cpu_s=1.1), True),  # 1 % of ten seconds
        (replace(BEFORE, written_bytes=24_000), True),  # threads that wake each other
        (replace(BEFORE, output_bytes=11), False),
        (replace(BEFORE, heard_ns=1), False),  # what is printed and not kept
        (replace(BEFORE, received=(Received(7, 500, 2),)), False),
        (replace(BEFORE, received=(Received(7, 120, 2),)), True),  # pings
        (replace(BEFORE, stored_bytes=12_288), False),
        (replace(BEFORE, written_bytes=40_000), False),
        (replace(BEFORE, cpu_s=1.5), False),
        (replace(BEFORE, cpu_s=0.2), False),  # something that had used it has ended
        (replace(BEFORE, written_bytes=0), False),
    ],
)
def test_each_of_the_signs_is_enough(after: Vitals, rests: bool) -> None:
    """Output, files, writing and computing; what an idle runtime does is none of them."""
    assert rests is is_at_rest(BEFORE, after, 10, Idle())


def test_a_short_burst_in_a_long_silence_is_silence() -> None:
    """A heap that is collected or a lease that is renewed is not work: the share of the whole time counts."""
    burst = replace(BEFORE, cpu_s=2.0)
    assert not is_at_rest(BEFORE, burst, 30, Idle())
    assert is_at_rest(BEFORE, burst, 300, Idle())


def test_content_is_what_pings_do_not_account_for() -> None:
    """Of each connection since the look before; one that is gone, or began anew, takes nothing away."""
    before = replace(BEFORE, received=(Received(1, 1000, 10), Received(2, 50_000, 40), Received(3, 9, 1)))
    after = replace(BEFORE, received=(Received(1, 1640, 20), Received(3, 4, 1), Received(4, 464, 1)))

    assert 400 == content_bytes(before, after, Idle(ping=64))


def test_a_database_that_is_tidied_once_a_minute_is_no_work() -> None:
    """However short the time is in which that happens to fall."""
    tidied = replace(BEFORE, stored_bytes=8192 + 60_000)

    assert is_at_rest(BEFORE, tidied, 1, Idle(stored=1024))
    assert not is_at_rest(BEFORE, tidied, 1, Idle(stored=512))


BOOK = load_book(shipped_layer())
CLAUDE, CODEX, GEMINI, OPENCODE = (BOOK.get(name) for name in ("claude", "codex", "gemini", "opencode"))


@pytest.mark.parametrize(
    ("executor", "cpu", "written", "stored", "ping"),
    [
        (CLAUDE, 0.0053, 8, 0, 0),
        (CLAUDE, 0.0213, 40, 0, 36),
        (CODEX, 0.0007, 7, 24_576, 0),
        (CODEX, 0.0007, 7, 24_576, 14),
        (GEMINI, 0.0020, 8, 0, 14),
        (OPENCODE, 0.0187, 14, 65_536, 0),
        (OPENCODE, 0.0567, 30, 32_768, 14),
    ],
)
def test_what_was_measured_of_idle_clis_is_rest(
    executor: Executor, cpu: float, written: int, stored: int, ping: int
) -> None:
    """Rates a second, the most that was stored in a minute, and two encrypted pings a second."""
    for seconds in (30, 60, 600):
        pings = Received(7, 2 * seconds * (ping + TLS), 2 * seconds) if ping else Received(7, 0, 0)
        after = replace(
            BEFORE,
            cpu_s=1 + cpu * seconds,
            written_bytes=20_000 + written * seconds,
            stored_bytes=8192 + stored * max(1, seconds // 60),
            received=(pings,),
        )
        assert is_at_rest(BEFORE, after, seconds, executor.idle), seconds


TLS = 28
"""What encryption and framing add to a ping."""


@pytest.mark.parametrize(("executor", "token"), [(CODEX, 189), (OPENCODE, 210)])
@pytest.mark.parametrize("tls", [0, TLS])
def test_a_word_every_twenty_seconds_is_life(executor: Executor, token: int, tls: int) -> None:
    """As it was measured, in the time between two looks, with a few pings between. Others print each word."""
    received = Received(7, token + tls + 2 * (14 + tls), 3)

    assert not is_at_rest(BEFORE, replace(BEFORE, received=(received,)), 30, executor.idle)
