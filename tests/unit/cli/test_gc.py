"""What `handoffd gc` tells people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import environment, program

from handoffd.cli.journal import report, weight


def _answer(**more: Any) -> dict[str, Any]:
    doomed = [
        {"kind": "run", "what": f"/state/runs/r{number}", "project": "/srv/shop", "bytes": 1024, "why": "old"}
        for number in range(25)
    ]
    sizes = [
        {"kind": "run", "project": "/srv/shop", "count": 25, "bytes": 25600},
        {"kind": "journal", "project": None, "count": 1, "bytes": 4096},
    ]
    return {"dry_run": False, "doomed": doomed, "sizes": sizes, "kept": {"young": 3, "running": 1}, **more}


def test_it_tells_what_went_and_what_stays() -> None:
    """By kind, with the reasons of what stays."""
    lines = report(_answer())

    assert ["WHAT", "PROJECT", "COUNT", "SIZE"] == lines[0].split()
    assert "records of runs  /srv/shop  25     25 KiB" == lines[1]
    assert "removed: 25 × records of runs, 25 KiB" in lines
    assert "runs kept: 1 running, 3 young" == lines[-1]


def test_a_dry_run_names_the_first_ones() -> None:
    """Each with its reason; the rest is counted."""
    lines = report(_answer(dry_run=True))

    assert "would go: 25 × records of runs, 25 KiB" in lines
    assert "    /state/runs/r19: old" in lines
    assert "    … and 5 more (--json)" in lines
    assert "    /state/runs/r20: old" not in lines


def test_nothing_to_do_is_said() -> None:
    """Instead of silence."""
    assert "removed: nothing" in report(_answer(doomed=[], sizes=[], kept={}))


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (15 * 1024, "15 KiB"), (3 * 2**30, "3.0 GiB")],
)  # fmt: skip
def test_bytes_are_said_as_people_say_them(count: int, text: str) -> None:
    """In units of 1024."""
    assert text == weight(count)


def test_without_a_daemon_it_is_done_here(tmp_path: Path) -> None:
    """Where nothing was ever kept, nothing goes."""
    here = environment(tmp_path)

    said = program("gc", "--dry-run", "--json", env=here)

    assert (0, "") == (said.code, said.err)
    assert (True, [], 0) == (said.json["dry_run"], said.json["doomed"], said.json["freed_bytes"])
    assert "removed: nothing" in program("gc", env=here).out
