"""Verify measures tests and merges the design once; commit makes one commit; programs have a limit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.rehearsal import Rehearsal

from handoffd.rehearsal import sample
from handoffd.rehearsal.assignment import Assignment
from handoffd.rehearsal.programs import claimed, measured, run
from handoffd.rehearsal.workspace import Workspace


def test_code_and_both_streams_are_returned(tmp_path: Path) -> None:
    """In order, from the right folder, without input."""
    code = "import os, sys; print(os.getcwd(), flush=True); print(sys.stdin.read(), file=sys.stderr); exit(3)"

    ended = run([sys.executable, "-c", code], str(tmp_path), limit_s=60)

    assert (3, f"{tmp_path.resolve()}\n\n") == ended


def test_a_program_that_never_ends_has_a_limit(tmp_path: Path) -> None:
    """It is killed, and the output names the limit."""
    ended = run([sys.executable, "-c", "import signal; signal.pause()"], str(tmp_path), limit_s=0.1)

    assert (None, f"{sys.executable} was not done after 0.1 s") == ended


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    """A project without git causes no traceback."""
    program = str(tmp_path / "no-such-program")

    assert (None, f"{program}: No such file or directory") == run([program], str(tmp_path), limit_s=1)


VERIFY = Assignment("verify", "US-001", 1, "d-1", "")


def test_failing_tests_fail_the_step(shop: Rehearsal) -> None:
    """Without the feature the tests really fail, and the hand-off counts and names them."""
    shop.performs("scaffold")

    report = measured(Workspace(str(shop.root)), VERIFY)

    assert ("failing", (5, 6, 0)) == (report.status, report.tests)
    assert 6 == len(report.failing)
    assert "tests/test_discounts.py::test_a_valid_code_lowers_the_total" in report.failing


def test_a_test_file_that_cannot_be_loaded_is_not_a_pass(shop: Rehearsal) -> None:
    """An error of pytest counts as a failure."""
    (shop.root / "tests/test_pricing.py").write_text("import nothing_of_that_name\n")

    report = measured(Workspace(str(shop.root)), VERIFY)

    assert ("failing", 1) == (report.status, report.tests.failed)


def test_a_runner_that_breaks_is_not_a_pass(shop: Rehearsal) -> None:
    """Its last output is handed over."""
    (shop.root / "tests/conftest.py").write_text("raise SystemExit('no database')\n")

    report = measured(Workspace(str(shop.root)), VERIFY)

    assert ("failing", "the tests could not be run: no database") == (report.status, report.summary)


def test_without_pytest_the_counts_are_claimed_and_the_notes_say_so(shop: Rehearsal) -> None:
    """A project's own Python may have no pytest; the story does not fail for that."""
    python = shop.root / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho No module named pytest >&2\nexit 1\n")
    python.chmod(0o755)

    report = measured(Workspace(str(shop.root)), VERIFY)

    assert ("pass", (5, 0, 0)) == (report.status, report.tests)
    assert "claimed, not run" in " ".join(report.notes)


def test_the_change_is_merged_into_the_design_once(shop: Rehearsal) -> None:
    """Every item of the change is added to the design."""
    shop.performs("sdd-delta")
    before = shop.text("docs/sdd.md")

    claimed(Workspace(str(shop.root)), VERIFY)
    claimed(Workspace(str(shop.root)), VERIFY)

    after = shop.text("docs/sdd.md")
    assert after.startswith(before)
    assert (1, 4, 1) == tuple(after.count(text) for text in ("## Since US-001", "- added: ", "- modified: "))
    assert "removed" not in after


def test_without_a_change_there_is_nothing_to_merge(foreign: Rehearsal) -> None:
    """The design stays as it is, and is not reported as changed."""
    report = claimed(Workspace(str(foreign.root)), VERIFY)

    assert ((), "# Design\n\nBy hand.\n") == (report.files, foreign.text("docs/sdd.md"))
    assert "missing" in " ".join(report.notes)


@pytest.fixture
def repository(tmp_path: Path) -> Rehearsal:
    """The sample under git, in an account whose git has no name or address."""
    (tmp_path / "home").mkdir()
    root = sample.create(tmp_path / "shop")
    return Rehearsal(root, {"HOME": str(tmp_path / "home"), "GIT_CONFIG_NOSYSTEM": "1"})


def git(rehearsal: Rehearsal, *arguments: str) -> str:
    """Return the output of git."""
    argv = ("git", *arguments)
    ended = subprocess.run(argv, cwd=rehearsal.root, capture_output=True, text=True, check=True)
    return ended.stdout.rstrip()


def test_the_commit_has_the_storys_files_and_no_others(repository: Rehearsal) -> None:
    """Its subject names the story; a person's work, staged or not, and the memory stay out of it."""
    repository.performs("bdd", "scaffold", "impl")
    (repository.root / "README.md").write_text("half a sentence\n")
    (repository.root / "draft.txt").write_text("mine\n")
    git(repository, "add", "draft.txt")
    (repository.root / "PROJECT_MEMORY.md").write_text("mine, too\n")

    repository.passes("commit")

    assert repository.handoff()["commit_hash"] == git(repository, "rev-parse", "HEAD")
    assert "feat: discount codes (US-001)" == git(repository, "log", "-1", "--format=%s")
    files = ["docs/bdd/US-001.md", "shop/pricing.py", "shop/receipt.py", "tests/test_discounts.py"]
    assert files == git(repository, "show", "--format=", "--name-only").splitlines()
    rest = [" M PROJECT_MEMORY.md", " M README.md", "A  draft.txt"]
    assert rest == git(repository, "status", "--porcelain").splitlines()


def test_a_repeated_commit_names_the_first(repository: Rehearsal) -> None:
    """A session that died between the commit and the hand-off does not commit twice."""
    repository.passes("bdd", "commit")
    first = repository.handoff()["commit_hash"]

    repository.passes("commit")

    assert first == repository.handoff()["commit_hash"]
    assert "2" == git(repository, "rev-list", "--count", "HEAD")


def test_without_its_own_repository_a_project_gets_no_commit(shop: Rehearsal) -> None:
    """No hash is invented, and a repository around the project is left alone."""
    git(Rehearsal(shop.root.parent), "init", "--quiet")

    shop.performs("bdd", "commit")

    assert "commit_hash" not in shop.handoff()
    assert "not a git repository" in shop.handoff()["summary"]
    assert "" == git(Rehearsal(shop.root.parent), "diff", "--cached", "--name-only")


def test_a_story_without_files_commits_nothing(repository: Rehearsal) -> None:
    """A person's staged files are not the story's."""
    for name in ("docs/sdd.md", "docs/api/openapi.yaml"):
        (repository.root / name).unlink()
    (repository.root / "draft.txt").write_text("mine\n")
    git(repository, "add", "draft.txt")

    ended = repository.run("commit", story="US-003")

    assert (0, "pass") == (ended.returncode, repository.handoff()["status"])
    assert "commit_hash" not in repository.handoff()
    assert "1" == git(repository, "rev-list", "--count", "HEAD")


def test_a_refused_commit_fails_the_step(repository: Rehearsal) -> None:
    """The project's hook decides, and its output is handed over."""
    hook = repository.root / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\necho not on a Friday\nexit 1\n")
    hook.chmod(0o755)
    repository.performs("bdd")

    repository.run("commit")

    found = (repository.handoff()["status"], repository.handoff()["summary"])
    assert ("failing", "git would not commit: not on a Friday") == found
