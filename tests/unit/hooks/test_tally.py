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
    """Within one attempt and session; a good hand-off in between begins anew."""
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
    """However many sessions there were."""
    tally = _tally(tmp_path)
    for number in range(80):
        tally.verdict(f"{number:0200}", "d" * 60, f"why {number}")

    assert Path(tally_path(str(tmp_path / "state/hooks"), str(tmp_path))).stat().st_size < 64 * 1024
