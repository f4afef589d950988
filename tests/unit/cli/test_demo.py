"""`handoffd demo`: as a new user gives it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command with no terminal."""
    command = [sys.executable, "-m", "handoffd", "demo", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300, check=False
    )


def test_it_takes_a_story_to_its_end_and_proves_it(tmp_path: Path) -> None:
    """Every step in the table, the files of the review, the project's own tests, what to type next."""
    project = tmp_path / "shop"

    done = demo("--yes", "--directory", str(project))

    assert 0 == done.returncode, done.stdout + done.stderr
    for step in ("bdd", "sdd-delta", "contract", "review", "scaffold", "impl", "verify", "update-memory"):
        assert f"│ {step} " in done.stdout
    assert f"The project: {project.resolve()}" in done.stdout
    assert "Its own pytest says: 11 passed" in done.stdout
    assert "docs/bdd/US-001.md (new)" in done.stderr
    assert "review is approved by itself: --yes was given" in done.stderr
    assert f"git -C {project.resolve()} diff" in done.stdout


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
    assert "✓ impl" in done.stderr


def test_without_a_terminal_the_review_approves_itself_and_says_so(tmp_path: Path) -> None:
    """A pipe or a CI job sees the whole story; the reason stands where a person would have been asked."""
    done = demo("--directory", str(tmp_path / "shop"))

    assert 0 == done.returncode, done.stdout + done.stderr
    assert "review is approved by itself: there is no terminal" in done.stderr
    assert "✓ approved" in done.stdout


def test_at_a_terminal_only_the_word_approves(tmp_path: Path) -> None:
    """Return, a yes and a note decide nothing; `approve` does."""
    person, terminal = pty.openpty()
    command = [sys.executable, "-m", "handoffd", "demo", "--directory", str(tmp_path / "shop")]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        os.write(person, b"\nyes\nlooks fine\napprove\n")
        said = _all_of(person)
        assert 0 == process.wait(300), said
    os.close(person)

    assert 3 == said.count("Nothing is decided"), said
    assert "11 passed" in said


def _all_of(terminal: int) -> str:
    """Return what is printed to a terminal until its last writer is gone."""
    said = b""
    with suppress(OSError):  # EIO: no writer is left
        while chunk := os.read(terminal, 4096):
            said += chunk
    return said.decode("utf-8", "replace")


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    """The demo writes into a project of its own only, and says how to name one."""
    (tmp_path / "mine.txt").write_text("kept", "utf-8")

    done = demo("--json", "--directory", str(tmp_path))

    assert (1, "NOT_EMPTY") == (done.returncode, json.loads(done.stdout)["code"])
    assert ["mine.txt"] == [path.name for path in tmp_path.iterdir()]
