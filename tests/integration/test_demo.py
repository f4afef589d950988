"""`handoffd demo`, as a new user gives it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path

from tests.support.children import ending

LIMIT_S = 120
PROMPT = b"\n> "


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
    assert "Its own pytest says: 11 passed" in done.stdout
    assert "review is approved automatically: --yes was given" in done.stderr


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


def test_without_a_terminal_it_ends_and_says_who_approved(tmp_path: Path) -> None:
    """The review approves itself, the files of the review are shown, and so is what to look at next."""
    project = tmp_path / "shop"

    done = demo("--directory", str(project))

    assert 0 == done.returncode, done.stdout + done.stderr
    assert "review is approved automatically: there is no terminal" in done.stderr
    for shown in (
        "docs/bdd/US-001.md (new)",
        "### Scenario: a valid code",
        "docs/api/openapi.yaml (changed)",
    ):
        assert shown in done.stderr
    assert "scaffold" in done.stderr
    assert "the daemon ran the tests: 5 pass, 6 fail" in done.stderr
    for named in (f"  cd {project}", "git diff", "rehearse", "init"):
        assert named in done.stdout


def test_at_a_terminal_only_the_word_approves(tmp_path: Path) -> None:
    """An empty line, a yes and an ok are asked again; then the story goes on to its end."""
    ended, shown = at_a_terminal(["\n", "yes\n", "ok\n", "approve\n"], tmp_path / "shop")

    assert 0 == ended, shown
    assert 3 == shown.count("Nothing is decided")
    assert "approved by itself" not in shown
    assert "11 passed" in shown


def test_at_a_terminal_the_end_of_the_input_approves_nothing(tmp_path: Path) -> None:
    """Ctrl-D: the demo ends with an error, and no code was written."""
    ended, shown = at_a_terminal(["\x04"], tmp_path / "shop")

    assert (1, True) == (ended, "nothing is approved by that" in shown), shown
    assert not (tmp_path / "shop/tests/test_discounts.py").exists()


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    """The way on is named."""
    (tmp_path / "mine").touch()

    done = demo("--json", "--directory", str(tmp_path))

    assert 1 == done.returncode
    assert "NOT_EMPTY" == json.loads(done.stdout)["code"]
    assert ["mine"] == [path.name for path in tmp_path.iterdir()]


def at_a_terminal(answers: list[str], project: Path) -> tuple[int, str]:
    """Return exit code and screen of a demo whose every prompt gets the next answer."""
    mine, theirs = os.openpty()
    command = [sys.executable, "-m", "handoffd", "demo", "--directory", str(project)]
    with ending(
        subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    ) as process:
        os.close(theirs)
        seen, answered = b"", 0
        try:
            while select.select([mine], [], [], LIMIT_S)[0] and (more := _read(mine)):
                seen += more
                if answered < len(answers) and seen.count(PROMPT) > answered:
                    os.write(mine, answers[answered].encode())
                    answered += 1
            return process.wait(LIMIT_S), seen.decode()
        finally:
            process.terminate()
            os.close(mine)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # no process has the other side open any more
        return b""
