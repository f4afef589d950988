"""Git, and projects that are kept in it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from handoffd.doctor.projects import GitFacts, check_git, git_facts


def test_a_project_in_a_repository_is_fine(tmp_path: Path) -> None:
    """Whether it is its root, a folder below that, or a worktree, whose .git is a file."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path / "whole")], check=True)
    below = tmp_path / "whole/part"
    below.mkdir()
    worktree = tmp_path / "tree"
    worktree.mkdir()
    (worktree / ".git").write_text("gitdir: elsewhere")
    roots = [str(tmp_path / "whole"), str(below), str(worktree)]

    facts = git_facts(roots, os.environ)

    assert () == facts.loose
    (found,) = check_git(facts)
    assert "ok" == found.severity
    assert found.what.startswith("git version ")


def test_projects_outside_of_repositories_are_named(tmp_path: Path) -> None:
    """A few of them, with the command for the first."""
    roots = [str(tmp_path / name) for name in ("a b", "c", "d", "e")]

    (found,) = check_git(GitFacts(version="git version 2", loose=roots))

    assert "warning" == found.severity
    assert f"{roots[0]}, {roots[1]}, {roots[2]} and 1 more are in no git repository" == found.what
    assert f"git -C '{roots[0]}' init" == found.action


def test_a_machine_without_git(tmp_path: Path) -> None:
    """Neither does a program count that is called so and cannot answer."""
    assert None is git_facts([], {"PATH": str(tmp_path)}).version
    broken = tmp_path / "git"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    assert None is git_facts([], {"PATH": str(tmp_path)}).version

    (found,) = check_git(GitFacts(version=None))
    assert ("warning", "git is not found") == (found.severity, found.what)
