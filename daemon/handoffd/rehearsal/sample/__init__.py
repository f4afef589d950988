"""A small real project to rehearse on, and to try a set-up with: a till with its tests and documents.

Its next story, US-001, is one that the rehearsal executor really carries out: tests that fail for
want of the behaviour, then the code that makes them pass.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from handoffd.rehearsal.workspace import STORY as STORY
from handoffd.rehearsal.workspace import project_files

_GIT_LIMIT_S = 30


def create(directory: Path, *, git: bool = True, settings: bool = True, python: str = sys.executable) -> Path:
    """Write the sample into `directory` (made if missing, must be empty) and return its real path.

    `git` makes it a repository with one commit; `settings` writes `.ai/handoffd.yaml` with a test
    command that runs pytest under `python`. Raises `FileExistsError` when the directory is not empty.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise FileExistsError(f"{directory} is not empty")
    root = directory.resolve()
    files = project_files()
    if settings:
        files[".ai/handoffd.yaml"] = settings_text(python)
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if git:
        _commit_everything(root)
    return root


def settings_text(python: str) -> str:
    """Return an `.ai/handoffd.yaml` whose tests run under `python` and report as JUnit XML."""
    # The plugins around that Python have nothing to do here, and loading them may take longer than the tests.
    options = ["-q", "--disable-plugin-autoload", "-p", "no:cacheprovider", "--junitxml={report}"]
    command = [python, "-B", "-m", "pytest", *options]
    return (
        f"test:\n  command: {json.dumps(command)}\n  report: junit\n  exclude_argument: --ignore={{file}}\n"
    )


def _commit_everything(root: Path) -> None:
    identity = (
        "-c",
        "user.name=Corner Shop",
        "-c",
        "user.email=shop@localhost",
        "-c",
        "commit.gpgsign=false",
    )
    for arguments in (
        ("-c", "init.defaultBranch=main", "init", "--quiet"),
        ("add", "--all"),
        (*identity, "commit", "--quiet", "--no-verify", "--message", "chore: the corner shop as it is"),
    ):
        subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, timeout=_GIT_LIMIT_S)
