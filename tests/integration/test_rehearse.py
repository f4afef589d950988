"""`handoffd rehearse`: a story on a copy, the project itself untouched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import javascript

from handoffd.rehearsal.sample import create


def files_of(project: Path) -> dict[str, bytes]:
    """Return every file of a project but git's own."""
    return {
        str(path.relative_to(project)): path.read_bytes()
        for path in project.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(project).parts
    }


def rehearse(
    *arguments: str, temporary: Path | None = None, home: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command with no terminal; `temporary` is where it makes its copy."""
    chosen = {"TMPDIR": temporary, "HOME": home}
    environment = {
        **os.environ,
        "COLUMNS": "120",
        **{key: str(value) for key, value in chosen.items() if value},
    }
    return subprocess.run(
        [sys.executable, "-m", "handoffd", "rehearse", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def folder_with(folder: Path, **files: str) -> Path:
    """Return a project that holds these files; `__` in a name is a dot."""
    folder.mkdir()
    for name, text in {"PROJECT_CONTEXT__md": folder.name, **files}.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


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


def test_a_script_for_a_step_that_there_is_not_is_refused(tmp_path: Path) -> None:
    """It would change nothing, and look as if the rules had."""
    script = tmp_path / "script.json"
    script.write_text('{"verfy": "crash"}')

    done = rehearse(str(create(tmp_path / "shop")), "--yes", "--script", str(script))

    assert 1 == done.returncode
    assert "script.json: verfy: is not a step (allowed: bootstrap, bdd," in done.stderr


def test_a_story_that_is_done_is_refused(tmp_path: Path) -> None:
    """A start that is refused would otherwise be waited for."""
    project = create(tmp_path / "shop")
    (project / ".ai").mkdir(exist_ok=True)
    (project / ".ai/history.md").write_text("# History\n\n## US-001 done\n")

    done = rehearse(str(project), "--yes", "--story", "US-001")

    assert 1 == done.returncode
    refused = f"US-001 was worked on here before\n  next: handoffd rehearse {project} --story US-002\n"
    assert refused in done.stderr


def test_a_home_folder_is_not_copied(tmp_path: Path) -> None:
    """It may hold anything, and a copy of it would stay in /tmp."""
    (tmp_path / "secret").touch()

    done = rehearse(str(tmp_path), "--yes", home=tmp_path)

    assert 1 == done.returncode
    assert "cannot be a project: it is your home folder or above that" in done.stderr


def test_for_programs_it_is_one_object_also_when_it_fails(tmp_path: Path) -> None:
    """The report has the attempts that were made all the same, with the rule that ended them."""
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
    assert "attempt 3, failing" in done.stderr


def test_a_project_without_settings_is_measured(tmp_path: Path) -> None:
    """Its tests are found in the copy; nothing is written into the project."""
    project = create(tmp_path / "shop", settings=False)

    done = rehearse(str(project), "--yes", "--json")

    told = json.loads(done.stdout)
    measured = {row["step"] for row in told["rows"] if row["tests"] is not None}
    assert ({"scaffold", "impl", "verify"}, []) == (measured, told["unmeasured"])
    assert not (project / ".ai").exists()


def test_a_step_that_was_not_measured_is_marked(tmp_path: Path) -> None:
    """No test command: an agent's word is all there is, and the table shows that."""
    done = rehearse(str(folder_with(tmp_path / "notes")), "--yes")

    assert 0 == done.returncode, done.stdout + done.stderr
    assert 3 == done.stdout.count("not measured: no test command")


def test_tests_in_a_language_that_is_not_written_are_skipped_with_a_word(tmp_path: Path) -> None:
    """The story goes to its end all the same, and the table does not say that there was no command."""
    project = folder_with(tmp_path / "java", pom__xml="<project/>")

    done = rehearse(str(project), "--yes", "--json")

    told = json.loads(done.stdout)
    assert (0, ["impl", "scaffold", "verify"]) == (done.returncode, told["unmeasured"])
    assert "this project's are run with mvn" in told["skipped"]
    assert "The story's tests are skipped: the rehearsal writes tests in Python, Go" in done.stderr


def test_a_javascript_project_is_rehearsed_in_its_own_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found, tried red and green, and measured by the daemon."""
    javascript.laid_out()
    monkeypatch.setenv("PATH", javascript.ENVIRONMENT["PATH"])
    project = folder_with(
        tmp_path / "web",
        package__json='{"scripts": {"test": "node --test"}}',
        a__test__js="require('node:test').test('adds', () => {})",
    )

    done = rehearse(str(project), "--yes", "--json")

    told = json.loads(done.stdout)
    measured = {row["step"]: row["tests"] for row in told["rows"] if row["tests"] is not None}
    assert (0, [], None) == (done.returncode, told["unmeasured"], told["skipped"])
    assert (2, 3) == (measured["scaffold"]["fail"], measured["verify"]["pass"])


@pytest.mark.parametrize(
    ("file", "text", "place"),
    [
        (".ai/handoffd.yaml", "language: en\nauto: [\n", 3),
        (".ai/handoffd.yaml", "- a list\n", 1),
        (".ai/handoffd.yaml", "language: en\nauto: maybe\n", 2),
        (".ai/step-rules.yaml", "steps:\n  impl:\n    next_on_pass: nowhere\n", 3),
    ],
)
def test_what_is_wrong_with_a_project_is_said_before_it_is_copied(
    tmp_path: Path, file: str, text: str, place: int
) -> None:
    """With the editor on the person's own file, and nothing left behind."""
    project = create(tmp_path / "shop", settings=False)
    (project / ".ai").mkdir()
    (project / file).write_text(text)

    done = rehearse(str(project), "--yes", "--json", temporary=tmp_path)

    told = json.loads(done.stdout)
    assert (1, "INVALID_FILE", "") == (done.returncode, told["code"], done.stderr)
    assert f"${{EDITOR:-vi}} +{place} {project}/{file}" == told["hint"]
    assert (file, place) == (told["problems"][0]["file"], told["problems"][0]["line"])
    assert [] == list(tmp_path.glob("handoffd-*"))


def test_settings_that_are_a_pipe_are_refused(tmp_path: Path) -> None:
    """They are not waited for."""
    project = create(tmp_path / "shop", settings=False)
    (project / ".ai").mkdir()
    os.mkfifo(project / ".ai/handoffd.yaml")

    done = rehearse(str(project), "--yes", temporary=tmp_path)

    assert 1 == done.returncode
    assert f"{project}/.ai/handoffd.yaml: it is not a regular file" in done.stderr
    assert f"  next: ls -la {project}/.ai\n" in done.stderr
    assert [] == list(tmp_path.glob("handoffd-*"))


def test_a_copy_that_fails_is_removed(tmp_path: Path) -> None:
    """Half a project is of no use. Here the copy's paths are longer than a path may be."""
    folder = project = tmp_path / "shop"
    while len(str(folder)) < 3500:
        folder /= "d" * 200
    folder.mkdir(parents=True)
    (folder / "file").touch()
    long = tmp_path / ("t" * 250) / ("t" * 250) / ("t" * 250)
    long.mkdir(parents=True)

    done = rehearse(str(project), "--yes", "--json", temporary=long)

    told = json.loads(done.stdout)
    assert (1, "NOT_COPIED", "") == (done.returncode, told["code"], done.stderr)
    assert [] == list(long.glob("handoffd-*"))


def test_a_script_is_checked_before_the_start(tmp_path: Path) -> None:
    """File, key, and every act there is; a pipe is read once."""
    project = create(tmp_path / "shop")
    script = tmp_path / "script.json"
    script.write_text('{"bdd": ["pass", "explode"]}')

    done = rehearse(str(project), "--yes", "--json", "--script", str(script), temporary=tmp_path)

    told = json.loads(done.stdout)
    assert (1, "INVALID_FILE", f"${{EDITOR:-vi}} {script}") == (done.returncode, told["code"], told["hint"])
    problem = told["problems"][0]
    assert (str(script), "bdd[1]") == (problem["file"], problem["key"])
    assert {"pass", "exit:CODE", "fail[:REASON]"} <= set(problem["allowed"])
    assert [] == list(tmp_path.glob("handoffd-*"))


def test_no_hint_starts_a_real_story(tmp_path: Path) -> None:
    """Pasted, it rehearses again."""
    project = create(tmp_path / "shop")

    done = rehearse(str(project), "--yes", "--story", "../x")

    assert 1 == done.returncode
    assert f"  next: handoffd rehearse {project} --story US-001\n" in done.stderr


OWN = """\
language: 1
pipeline: own
params: {topic: {type: string}}
roles: {any: {}}
tasks:
  draft: {agent: any, out: {draft: draft.md}, outcomes: {ready: ok}}
  publish:
    needs: [draft]
    ask: Publish it?
    timeout: 1h
    default: go
    outcomes: {go: ok, no: {end: cancelled}}
"""


def test_a_flow_is_rehearsed_on_a_copy(tmp_path: Path) -> None:
    """Of a pipeline of the project's own, too; what its tasks came to is one object for programs."""
    project = create(tmp_path / "shop")
    (project / ".ai/pipelines").mkdir()
    (project / ".ai/pipelines/own.yaml").write_text(OWN)
    before = files_of(project)

    done = rehearse(str(project), "--pipeline", "own", "--param", "topic=bread", "--json")

    assert 0 == done.returncode, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert ("succeeded", {"topic": "bread"}) == (told["ended"], told["params"])
    assert {"draft": "ready", "publish": "go"} == {one["node"]: one["outcome"] for one in told["nodes"]}
    assert before == files_of(project)


def test_a_flow_that_fails_in_the_rehearsal_is_an_error(tmp_path: Path) -> None:
    """It says what the flow came to, and the answers that a script gave."""
    project = create(tmp_path / "shop")
    (project / ".ai/pipelines").mkdir()
    (project / ".ai/pipelines/own.yaml").write_text(OWN)
    script = tmp_path / "script.json"
    script.write_text('{"flow": {"answers": {"publish": "no"}}, "draft": "slow:0.1"}')

    done = rehearse(str(project), "--pipeline", "own", "--param", "topic=bread", "--script", str(script))

    assert 1 == done.returncode
    assert "answered publish: no" in done.stdout
    assert "has ended: cancelled" in done.stderr
    assert "daemon.log" in done.stderr


def test_a_pipeline_or_parameter_that_there_is_not_is_refused(tmp_path: Path) -> None:
    """With the next command."""
    project = create(tmp_path / "shop")

    unknown = rehearse(str(project), "--pipeline", "team-isue")
    missing = rehearse(str(project), "--pipeline", "team-issue")

    assert (4, 1) == (unknown.returncode, missing.returncode)
    assert "did you mean team-issue?" in unknown.stderr
    assert "params.issues: is missing" in missing.stderr
