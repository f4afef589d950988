"""What hooks keep of a project: counts, the result of a hand-off, and the lock for one hook at a time."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.eventually import eventually_sync

from handoffd.hooks.project import Standing
from handoffd.hooks.tally import ENOUGH, KNOWN, SEND_BACK, Tally, remember, remembered, tally_path, turn

STATE: dict[str, object] = {"status": "running", "dispatched_at": "2026-01-01T10:00:00Z", "step": "bdd"}


@pytest.fixture
def tally(tmp_path: Path) -> Tally:
    """The counts of a project, of which none is kept yet."""
    return Tally(str(tmp_path / "state/hooks"), str(tmp_path))


def _path(tmp_path: Path) -> Path:
    return Path(tally_path(str(tmp_path / "state/hooks"), str(tmp_path)))


def _verdicts(tally: Tally, step: str, reasons: str, session: str = "s") -> list[str]:
    return [tally.verdict(session, step, reason) for reason in reasons]


def _started(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True)


def test_a_word_to_a_person_sends_no_agent_back(tmp_path: Path, tally: Tally) -> None:
    """It is new once, and does not count. Most sessions are never sent back and leave nothing behind."""
    tally.clear("s")
    assert not (tmp_path / "state").exists()
    assert [True, False] == [tally.is_news("why") for _ in range(2)]
    assert [SEND_BACK, SEND_BACK, ENOUGH] == _verdicts(tally, "d", "abc")


def test_twice_in_a_row_and_no_more(tally: Tally) -> None:
    """For one step and session; after a good hand-off, or at another step, the count begins again."""
    assert [SEND_BACK, SEND_BACK, ENOUGH, ENOUGH] == _verdicts(tally, "d1", "abcd")
    assert [SEND_BACK] == _verdicts(tally, "d2", "e")
    assert [SEND_BACK] == _verdicts(tally, "d1", "f", "other")
    tally.clear("s")
    assert [SEND_BACK, SEND_BACK, ENOUGH] == _verdicts(tally, "d2", "ghi")


def test_the_same_reason_is_given_once(tmp_path: Path, tally: Tally) -> None:
    """To any session, however many ask at once."""
    code = (
        "import sys; from handoffd.hooks.tally import Tally; "
        "print(Tally(sys.argv[1], sys.argv[2]).verdict(sys.argv[3], 'd', 'why'))"
    )
    asked = [_started(code, str(tmp_path / "state/hooks"), str(tmp_path), f"s{n}") for n in range(5)]
    said = [process.communicate(timeout=60)[0].strip() for process in asked]

    assert [KNOWN] * 4 + [SEND_BACK] == sorted(said)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"sessions": {"s": [1]}, "reasons": []}', "[" * 60_000])
def test_a_torn_file_begins_anew(tmp_path: Path, tally: Tally, text: str) -> None:
    """It loses only counts."""
    _path(tmp_path).parent.mkdir(parents=True)
    _path(tmp_path).write_text(text, encoding="utf-8")

    assert [SEND_BACK, KNOWN] == [tally.verdict("s", "d", "why") for _ in range(2)]


def test_the_file_stays_small(tmp_path: Path, tally: Tally) -> None:
    """However many sessions there were, and whatever the names of sessions and steps."""
    for number in range(80):
        for sign in ("x", "\U0001f600", "\ud800", '"'):
            tally.verdict(sign * 2000 + str(number), sign * 9000, f"{sign * 9000} {number}")

    assert _path(tmp_path).stat().st_size < 64 * 1024
    name = "\U0001f600" * 200
    assert [SEND_BACK, SEND_BACK, ENOUGH] == [tally.verdict(name, name, name + why) for why in "abc"]
    assert KNOWN == tally.verdict("other", "d", name + "a")
    huge = "x" * 70_000
    assert [SEND_BACK, KNOWN] == [tally.verdict(huge, "d", "huge") for _ in range(2)]


# --- the result of a hand-off ------------------------------------------------------------------------
def test_a_result_is_known_for_that_very_handoff(tmp_path: Path) -> None:
    """Not for another one, another attempt or another status. Only its owner may read the file."""
    folder = root = str(tmp_path)
    standing = Standing(root, STATE, 5)
    assert remembered(folder, standing) is None
    remember(folder, standing, {"type": "stale"})

    assert {"type": "stale"} == remembered(folder, standing)
    assert remembered(folder, Standing(root, STATE, 6)) is None
    for other in ({"status": "failing"}, {"dispatched_at": "2026-01-01T11:00:00Z"}, {"step": "impl"}):
        assert remembered(folder, Standing(root, {**STATE, **other}, 5)) is None
    (file,) = tmp_path.iterdir()
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"of": []}', "[" * 50_000])
def test_a_torn_result_is_none(tmp_path: Path, text: str) -> None:
    """The hook then applies the hand-off again."""
    Path(tally_path(str(tmp_path), str(tmp_path), "last")).write_text(text, encoding="utf-8")

    assert remembered(str(tmp_path), Standing(str(tmp_path), STATE, 5)) is None


# --- one hook at a time ------------------------------------------------------------------------------
def test_one_at_a_time(tmp_path: Path) -> None:
    """Another hook of the same project waits until the first has ended."""
    code = (
        "import sys; from handoffd.hooks.tally import turn\n"
        "with turn(sys.argv[1], sys.argv[2]): print('my turn')"
    )
    with turn(str(tmp_path / "hooks"), str(tmp_path)):
        other = _started(code, str(tmp_path / "hooks"), str(tmp_path))
        eventually_sync(lambda: "flock" in _waiting_in(other.pid) or _waiting_in(other.pid) == "0")
        assert other.poll() is None
    assert "my turn\n" == other.communicate(timeout=60)[0]


def _waiting_in(pid: int) -> str:
    """Return the kernel function a process waits in; 0 if the kernel hides it."""
    try:
        return Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return "0"
