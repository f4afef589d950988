"""Real git repositories: what git says of them, and two branches that cannot be merged without a hand."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_WHO = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
_ALONE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_EDITOR": "true"}


def git(folder: Path, *words: str) -> int:
    """Run git, of no account's settings, and return how it ended: a conflict ends with an error."""
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        env={**os.environ, **_WHO, **_ALONE}, capture_output=True, check=False,
    )  # fmt: skip
    return done.returncode


def said(folder: Path, *words: str, given: str | None = None) -> str:
    """Return what git says, of no account's settings; an error of git is one of the test."""
    done = subprocess.run(
        ["git", "-C", str(folder), *words], input=given,
        env={**os.environ, **_WHO, **_ALONE}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def divided(root: Path) -> Path:
    """Make a folder a repository whose branches `main`, checked out, and `other` contradict each other."""
    root.mkdir(exist_ok=True)
    assert 0 == git(root, "init", "--quiet", "--initial-branch", "main")
    for branch, text in (("main", "one"), ("other", "two"), ("main", "three")):
        git(root, "checkout", "--quiet", *(["-b"] if branch == "other" else []), branch)
        (root / "contested").write_text(text)
        git(root, "add", "contested")
        assert 0 == git(root, "commit", "--quiet", "-m", text)
    return root
