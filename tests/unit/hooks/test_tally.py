"""How often an agent is sent back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from handoffd.hooks.tally import ENOUGH, KNOWN, SEND_BACK, Tally, tally_path


def _tally(tmp_path: Path) -> Tally:
    return Tally(str(tmp_path / "state/hooks"), str(tmp_path))


def test_twice_in_a_row_and_no_more(tmp_path: Path) -> None:
    """For one step and session; a good hand-off in between, or another step, begins anew."""
    tally = _tally(tmp_path)

    assert [SEND_BACK, SEND_BACK, ENOUGH, ENOUGH] == [tally.verdict("s", "d1", why) for why in "abcd"]
    assert SEND_BACK == tally.verdict("s", "d2", "e")
    assert SEND_BACK == tally.verdict("other", "d1", "f")
    tally.clear("s")
    assert [SEND_BACK, SEND_BACK, ENOUGH] == [tally.verdict("s", "d2", why) for why in "ghi"]


def test_the_same_reason_is_told_once(tmp_path: Path) -> None:
    """Whoever asks, and however many ask at once."""
    _tally(tmp_path)
    code = (
        "import sys; from handoffd.hooks.tally import Tally; "
        "print(Tally(sys.argv[1], sys.argv[2]).verdict(sys.argv[3], 'd', 'why'))"
    )
    asked = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "state/hooks"), str(tmp_path), f"s{number}"],
            stdout=subprocess.PIPE, text=True,
        )
        for number in range(5)
    ]  # fmt: skip
    said = [process.communicate(timeout=60)[0].strip() for process in asked]

    assert [KNOWN] * 4 + [SEND_BACK] == sorted(said)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"sessions": {"s": [1]}, "reasons": []}', "[" * 60_000])
def test_a_torn_file_begins_anew(tmp_path: Path, text: str) -> None:
    """Nothing is lost but a count."""
    tally = _tally(tmp_path)
    path = Path(tally_path(str(tmp_path / "state/hooks"), str(tmp_path)))
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")

    assert SEND_BACK == tally.verdict("s", "d", "why")
    assert KNOWN == tally.verdict("s", "d", "why")


def test_the_file_stays_small(tmp_path: Path) -> None:
    """However many sessions there were, and whatever they and their steps are called."""
    tally = _tally(tmp_path)
    for number in range(80):
        for sign in ("x", "\U0001f600", "\ud800", '"'):
            tally.verdict(sign * 2000 + str(number), sign * 9000, f"{sign * 9000} {number}")

    assert Path(tally_path(str(tmp_path / "state/hooks"), str(tmp_path))).stat().st_size < 64 * 1024
    name = "\U0001f600" * 200
    assert [SEND_BACK, SEND_BACK, ENOUGH] == [tally.verdict(name, name, name + why) for why in "abc"]
    assert KNOWN == tally.verdict("other", "d", name + "a")
    huge = "x" * 70_000
    assert [SEND_BACK, KNOWN] == [tally.verdict(huge, "d", "huge") for _ in range(2)]


def test_news_is_told_once_and_counts_for_nobody(tmp_path: Path) -> None:
    """A word to a person sends no agent back."""
    tally = _tally(tmp_path)

    assert [True, False] == [tally.is_news("why") for _ in range(2)]
    assert [SEND_BACK, SEND_BACK, ENOUGH] == [tally.verdict("s", "d", why) for why in "abc"]


def test_forgetting_leaves_nothing_behind(tmp_path: Path) -> None:
    """Most sessions are never sent back."""
    _tally(tmp_path).clear("s")

    assert not (tmp_path / "state").exists()
