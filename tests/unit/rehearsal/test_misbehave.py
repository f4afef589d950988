"""Every way to misbehave, seen from outside: exit, signals, files, remaining processes."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from tests.support.eventually import eventually_sync
from tests.support.rehearsal import Rehearsal

from handoffd.protocol.reading import Expected, HandoffTexts, read_handoff
from handoffd.rehearsal.workspace import MARK

HANDOFF = ".ai/HANDOFF.md"
RESULT = ".ai/executor-result"


def told(rehearsal: Rehearsal, act: str, step: str = "impl") -> Rehearsal:
    """Put `act` into the script of `rehearsal`."""
    rehearsal.environ["HANDOFFD_REHEARSAL"] = json.dumps({step: act})
    return rehearsal


def written(rehearsal: Rehearsal, name: str) -> bool:
    """Is that file in the project?"""
    return (rehearsal.root / name).exists()


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        ("fail", ("failing", None)),
        ("fail:scope_warning", ("failing", "scope_warning")),
        ("fail:the moon is full: really", ("failing", "the moon is full: really")),
        ("needs_human", ("needs_human", None)),
        ("lie", ("pass", None)),
    ],
)
def test_a_claim_without_work(shop: Rehearsal, act: str, expected: tuple[str, str | None]) -> None:
    """The hand-off is as the script says, a false pass with counts; no file of the project has changed."""
    before = shop.files()

    ended = told(shop, act).run("impl")

    handoff = shop.handoff()
    assert (0, expected) == (ended.returncode, (handoff["status"], handoff["reason"]))
    assert ("d-impl-1", 12 if act == "lie" else 0) == (handoff["dispatch"], handoff["tests_pass"])
    assert {HANDOFF, RESULT, ".ai/rehearsal-count.json"} == {
        name for name, text in shop.files().items() if before.get(name) != text
    }


@pytest.mark.parametrize(
    ("act", "code"), [("crash", -signal.SIGKILL), ("exit:7", 7), ("none", 0), ("hang:0.01", 0)]
)
def test_an_end_without_a_handoff(shop: Rehearsal, act: str, code: int) -> None:
    """The exit code is as the script says, and nothing is handed over."""
    ended = told(shop, act).run("impl")

    assert (code, False, False) == (ended.returncode, written(shop, HANDOFF), written(shop, RESULT))


def test_a_crash_counts_as_a_start(shop: Rehearsal) -> None:
    """The next starts use the next entries."""
    shop.environ["HANDOFFD_REHEARSAL"] = '{"bdd": ["crash", "exit:3"]}'

    codes = [shop.run("bdd", attempt=attempt).returncode for attempt in (1, 2, 3)]

    assert [-signal.SIGKILL, 3, 0] == codes
    assert ("pass", 3) == (shop.handoff()["status"], shop.handoff()["attempt"])


DEAF = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""A shell that ignores INT, as for a background job."""


@pytest.mark.parametrize(
    ("number", "through"), [(signal.SIGINT, ()), (signal.SIGTERM, ()), (signal.SIGINT, DEAF)]
)
def test_a_hang_is_ended_by_a_signal(
    shop: Rehearsal, number: signal.Signals, through: tuple[str, ...]
) -> None:
    """It writes nothing; a caller that ignores the signal makes no difference."""
    with told(shop, "hang").session("impl", through=through) as session:
        _until_told(session.stdout)
        session.send_signal(number)
        session.communicate(timeout=60)

    assert (-number, False) == (session.returncode, written(shop, HANDOFF))


def test_ignore_term_is_ended_by_kill_alone(shop: Rehearsal) -> None:
    """INT, TERM and HUP change nothing."""
    with told(shop, "ignore-term").session("impl") as session:
        _until_told(session.stdout)
        ignored = f"{(1 << signal.SIGINT - 1) | (1 << signal.SIGTERM - 1) | (1 << signal.SIGHUP - 1):016x}"
        eventually_sync(lambda: _ignores(session.pid) & int(ignored, 16) == int(ignored, 16))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            session.send_signal(number)
        assert session.poll() is None
        session.kill()
        session.communicate(timeout=60)

    assert -signal.SIGKILL == session.returncode


def test_linger_hands_over_and_stays(shop: Rehearsal) -> None:
    """The hand-off is complete while the process still runs."""
    with told(shop, "linger", "bdd").session("bdd") as session:
        eventually_sync(lambda: written(shop, HANDOFF))
        assert ("pass", None) == (shop.handoff()["status"], session.poll())
        session.terminate()
        session.communicate(timeout=60)

    assert -signal.SIGTERM == session.returncode


def test_half_a_handoff_is_opened_and_not_closed(shop: Rehearsal) -> None:
    """The front matter breaks off in the middle of a line; with `hang` the process stays."""
    assert 0 == told(shop, "half").run("impl").returncode
    text = shop.text(HANDOFF)
    assert text.startswith("---\nstory: US-001\n")
    assert (1, True) == (text.count("---"), text.endswith("status: pa"))
    assert not written(shop, RESULT)

    (shop.root / HANDOFF).unlink()
    with told(shop, "half+hang").session("impl") as session:
        eventually_sync(lambda: written(shop, HANDOFF))
        assert session.poll() is None
        session.kill()
        session.communicate(timeout=60)


def test_old_format_has_no_front_matter(shop: Rehearsal) -> None:
    """The work is done, and the hand-off is prose, as of agents before there was a front matter."""
    assert 0 == told(shop, "old-format", "bdd").run("bdd").returncode

    assert shop.text(HANDOFF).startswith("# bdd of US-001\n")
    assert (True, False) == (written(shop, "docs/bdd/US-001.md"), written(shop, RESULT))


def test_flood_prints_exactly_that_much_more(shop: Rehearsal) -> None:
    """The work is done all the same."""
    usual = len(shop.run("bdd").stdout)
    flooded = told(shop, "flood:3000001", "bdd").run("bdd")

    assert usual + 3_000_001 + len("rehearsal: told to flood:3000001\n") == len(flooded.stdout)
    assert {1} == {line.count("rehearsal: ") for line in flooded.stdout.splitlines()[1:]}
    assert "pass" == shop.handoff()["status"]


def test_slow_prints_signs_of_life_and_then_works(shop: Rehearsal) -> None:
    """It takes at least its time."""
    began = time.monotonic()
    ended = told(shop, "slow:0.6", "bdd").run("bdd")

    assert time.monotonic() - began >= 0.6
    assert (2, "pass") == (ended.stdout.count("still at it"), shop.handoff()["status"])


def test_tamper_forges_the_state_and_then_works(shop: Rehearsal) -> None:
    """STATE.json has the step `done`, and its other keys, as a careful forger leaves them."""
    (shop.root / ".ai/STATE.json").write_text('{"project": "shop", "step": "bdd", "status": "running"}')

    assert 0 == told(shop, "tamper", "bdd").run("bdd").returncode

    forged = json.loads(shop.text(".ai/STATE.json"))
    assert ("shop", "done", "pass") == (forged["project"], forged["step"], forged["status"])
    assert "pass" == shop.handoff()["status"]


@pytest.fixture
def orphans() -> Iterator[set[int]]:
    """The orphans that a test has found; none survives it."""
    found: set[int] = set()
    yield found
    for pid in found:
        os.kill(pid, signal.SIGKILL)


def test_orphans_are_out_of_reach_and_hold_the_output(shop: Rehearsal, orphans: set[int]) -> None:
    """Two processes stay: in sessions of their own, without environment, with the session's stdout open."""
    with told(shop, "orphan", "bdd").session("bdd") as session:
        assert session.stdout is not None
        assert 0 == session.wait(timeout=60)
        pipe = os.readlink(f"/proc/{os.getpid()}/fd/{session.stdout.fileno()}")
        eventually_sync(lambda: 2 == len(_orphans(pipe)))
        orphans |= _orphans(pipe)

        for pid in orphans:
            assert b"" == Path(f"/proc/{pid}/environ").read_bytes()
            assert os.getsid(pid) not in (session.pid, os.getsid(0))
        assert "pass" == shop.handoff()["status"]


def test_claim_passes_verify_without_running_the_tests(shop: Rehearsal) -> None:
    """The counts are the ones of the test files, although the tests would fail."""
    shop.performs("bdd", "sdd-delta", "scaffold")

    told(shop, "claim", "verify").run("verify")

    assert ("pass", 11) == (shop.handoff()["status"], shop.handoff()["tests_pass"])
    assert "claimed, not run" in shop.text(HANDOFF)


def _orphans(pipe: str) -> set[int]:
    """Return the marked processes whose stdout is `pipe`."""
    found = set()
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and f"{MARK}-orphan".encode() in (folder / "cmdline").read_bytes():
                found |= {int(folder.name)} if os.readlink(folder / "fd/1") == pipe else set()
        except OSError:
            continue  # it has ended, or is not ours
    return found


def _ignores(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("SigIgn:")).split()[1], 16)


def _until_told(stream: IO[bytes] | None) -> None:
    """Read the session's output up to the line that announces the act."""
    assert stream is not None
    for line in iter(stream.readline, b""):
        if b"told to" in line:
            return
    raise AssertionError("the session ended without the act")


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        ("pass", "found"),
        ("fail:scope_warning", "found"),
        ("lie", "found"),
        ("old-format", "malformed"),
        ("none", "absent"),
        ("stale", "stale"),
        ("half", "malformed"),
        ("garbage", "malformed"),
    ],
)
def test_the_daemon_takes_it_for_what_it_is(shop: Rehearsal, act: str, kind: str) -> None:
    """Each act provokes its case in the daemon's own reader."""
    told(shop, act, "bdd").run("bdd")

    handoff, result = (shop.root / name for name in (HANDOFF, RESULT))
    texts = HandoffTexts(
        handoff=handoff.read_bytes() if handoff.exists() else None,
        result=result.read_bytes() if result.exists() else None,
    )
    expected = Expected(story="US-001", step="bdd", attempt=1, dispatch="d-bdd-1", ours=True)
    reading = read_handoff(texts, expected)

    assert kind == type(reading).__name__.lower(), reading
