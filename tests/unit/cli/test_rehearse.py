"""`handoffd rehearse`: a story on a copy, the project itself untouched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from handoffd.cli.rehearse import copy_project
from handoffd.rehearsal.sample import create


def files_of(project: Path) -> dict[str, bytes]:
    """Return every file of a project but git's own."""
    return {
        str(path.relative_to(project)): path.read_bytes()
        for path in project.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(project).parts
    }


def rehearse(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command with no terminal."""
    command = [sys.executable, "-m", "handoffd", "rehearse", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=90, check=False
    )


def test_a_story_is_rehearsed_on_a_copy(tmp_path: Path) -> None:
    """The person's project is as it was, and the copy has the story done."""
    project = create(tmp_path / "shop")
    before = files_of(project)

    done = rehearse(str(project), "--yes")

    assert 0 == done.returncode, done.stdout + done.stderr
    assert "update-memory" in done.stdout
    assert "The copy: " in done.stdout
    assert before == files_of(project)


def test_a_script_makes_it_misbehave_and_the_rules_answer(tmp_path: Path) -> None:
    """Attempts used up in the rehearsal end it with exit code 1, the step and the log."""
    project = create(tmp_path / "shop")
    script = tmp_path / "script.json"
    script.write_text('{"bdd": ["fail", "fail", "fail"]}')

    done = rehearse(str(project), "--yes", "--script", str(script))

    assert 1 == done.returncode
    assert "the story stopped at bdd (needs_human)" in done.stderr
    assert "daemon.log" in done.stderr


def test_for_programs_it_is_one_object_also_when_it_fails(tmp_path: Path) -> None:
    """The attempts that were made are told all the same, with the rule's end of them."""
    project = create(tmp_path / "shop")
    script = tmp_path / "script.json"
    script.write_text('{"bdd": ["fail", "fail", "fail"]}')

    done = rehearse(str(project), "--yes", "--json", "--script", str(script))

    told = json.loads(done.stdout)
    assert (1, "error", "STORY_STOPPED") == (done.returncode, told["type"], told["code"])
    assert [("bdd", 1, "failing"), ("bdd", 2, "failing"), ("bdd", 3, "failing")] == [
        (row["step"], row["attempt"], row["result"]) for row in told["rows"]
    ]
    assert told["project"].endswith("/shop")
    assert told["hint"].startswith("less ")
    assert "bdd attempt 3" in done.stderr


def test_the_copy_takes_up_no_story_in_flight_and_keeps_the_settings(tmp_path: Path) -> None:
    """What belongs to a run is left out; everything else of the settings stays, comments too."""
    project = create(tmp_path / "shop")
    (project / ".ai/handoffd.yaml").write_text("# ours\nexecutor: claude\nlanguage: zh-TW\n")
    (project / ".ai/STATE.json").write_text("{}")
    (project / ".ai/runs").mkdir()

    copy = copy_project(project, tmp_path / "copy", None)

    assert not (copy / ".ai/STATE.json").exists()
    assert not (copy / ".ai/runs").exists()
    assert "# ours\nexecutor: rehearsal\nlanguage: zh-TW\n" == (copy / ".ai/handoffd.yaml").read_text()
