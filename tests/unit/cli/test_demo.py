"""`handoffd demo`: as a new user gives it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command with no terminal."""
    command = [sys.executable, "-m", "handoffd", "demo", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300, check=False
    )


def test_it_takes_a_story_to_its_end_and_proves_it(tmp_path: Path) -> None:
    """Every step in the table, the review by --yes, and the produced project's own tests."""
    project = tmp_path / "shop"

    done = demo("--yes", "--directory", str(project))

    assert 0 == done.returncode, done.stdout + done.stderr
    for step in ("bdd", "sdd-delta", "contract", "review", "scaffold", "impl", "verify", "update-memory"):
        assert f"│ {step} " in done.stdout
    assert f"The project: {project.resolve()}" in done.stdout
    assert "11 passed" in done.stdout.splitlines()[-1]


def test_for_programs_it_is_one_object(tmp_path: Path) -> None:
    """On stdout, with the rows of the table; progress is on stderr."""
    project = tmp_path / "shop"

    done = demo("--yes", "--json", "--directory", str(project))

    assert 0 == done.returncode, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert ("played", str(project), "US-001") == (told["type"], told["project"], told["story"])
    assert ["bdd", "sdd-delta", "contract", "review", "scaffold", "impl", "verify", "update-memory"] == [
        row["step"] for row in told["rows"]
    ]
    assert all({"step", "attempt", "seconds", "tests", "result"} == row.keys() for row in told["rows"])
    assert told["pytest"].startswith("11 passed")
    assert "impl attempt 1" in done.stderr


def test_without_a_terminal_it_says_how_to_go_on() -> None:
    """The review asks a person; where there is none, the next command is named."""
    done = demo()

    assert 1 == done.returncode
    assert "make demo YES=1" in done.stderr
    assert "handoffd demo --yes" in json.loads(demo("--json").stdout)["hint"]
