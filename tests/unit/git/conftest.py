"""A repository with one commit, and its clones and branches of stories."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent

import pytest
from tests.support.repositories import git

from handoffd import failpoints
from handoffd.git.branches import StoryBranch
from handoffd.git.clones import Clone, Clones

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def first_commit(root: Path) -> Path:
    """Make a repository with one commit of `kept`, `below/one` and .gitignore."""
    (root / "below").mkdir(parents=True)
    (root / ".gitignore").write_text("*.log\n")
    (root / "kept").write_text("kept\n")
    (root / "below/one").write_text("one\n")
    for words in (("init", "--quiet", "-b", "main"), ("add", "--all"), ("commit", "--quiet", "-m", "first")):
        assert 0 == git(root, *words)
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one commit of `kept`, `below/one` and .gitignore."""
    return first_commit(tmp_path / "shop")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The same, in a folder of projects."""
    return first_commit(tmp_path / "projects/shop")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state directory."""
    return tmp_path / "state"


Make = Callable[..., Clone]


@pytest.fixture
def make(project: Path, state: Path) -> Make:
    """Return what makes the clone of a story."""

    def made(root: Path = project, story: str = "US-1", links: tuple[str, ...] = ()) -> Clone:
        return Clones(str(root), state, dict(os.environ)).make(story, links, None, AT)

    return made


Branch = Callable[..., StoryBranch]


@pytest.fixture
def branch(project: Path, state: Path) -> Branch:
    """Return what commits on the branch of a clone and publishes it."""

    def of(clone: Clone, root: Path = project) -> StoryBranch:
        return StoryBranch(str(root), clone.workspace, state, dict(os.environ))

    return of


AsAnother = Callable[[str], None]


@pytest.fixture
def as_another(tmp_path: Path, project: Path, state: Path) -> AsAnother:
    """Return what runs code as an account that is not root, who may do all in any folder.

    The code has `clone` of US-1, `branch` and `clear`; all files are given to that account.
    """

    def run(code: str) -> None:
        if os.geteuid() == 0:
            for path in (tmp_path, *tmp_path.rglob("*")):
                os.chown(path, _ANOTHER, _ANOTHER, follow_symlinks=False)
            for folder in tmp_path.parents:
                if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
                    folder.chmod(0o755)
        script = f"""
            import os
            from datetime import UTC, datetime
            from pathlib import Path
            from handoffd.git.branches import StoryBranch
            from handoffd.git.clones import Clones, _clear as clear
            if os.geteuid() == 0:
                os.setresgid({_ANOTHER}, {_ANOTHER}, {_ANOTHER})
                os.setresuid({_ANOTHER}, {_ANOTHER}, {_ANOTHER})
            at, environment = datetime(2026, 1, 2, tzinfo=UTC), {{"PATH": os.defpath}}
            clone = Clones({str(project)!r}, Path({str(state)!r}), environment).of("US-1")
            branch = StoryBranch({str(project)!r}, clone.workspace, Path({str(state)!r}), environment)
        """
        subprocess.run([sys.executable, "-c", f"{dedent(script)}\n{code}"], check=True, cwd=tmp_path)

    return run


_ANOTHER = 65534
Killed = Callable[[str, str], None]


@pytest.fixture
def killed_at(tmp_path: Path, project: Path, state: Path) -> Killed:
    """Return what runs code in a process that is killed after git did `words`, or before it with `!words`.

    The code has `clones`, and `branch` of the clone of US-1 where that is there.
    """

    def run(words: str, code: str) -> None:
        program, real = tmp_path / "deadly/git", shutil.which("git")
        program.parent.mkdir(exist_ok=True)
        when = f'case " $* " in *" {words.lstrip("!")} "*)'
        first = "" if words.startswith("!") else f'{real} "$@" || exit;'
        program.write_text(f'#!/bin/sh\n{when} {first} kill -KILL $PPID; exit;; esac\nexec {real} "$@"\n')
        program.chmod(0o755)
        script = f"""
            from datetime import UTC, datetime
            from pathlib import Path
            from handoffd.git.branches import StoryBranch
            from handoffd.git.clones import Clones
            at, environment = datetime(2026, 1, 2, tzinfo=UTC), {{"PATH": "{program.parent}:/usr/bin:/bin"}}
            clones = Clones({str(project)!r}, Path({str(state)!r}), environment)
            clone = clones.of("US-1")
            if clone is not None:
                branch = StoryBranch({str(project)!r}, clone.workspace, Path({str(state)!r}), environment)
        """
        ended = subprocess.run([sys.executable, "-c", f"{dedent(script)}\n{code}"], check=False)
        assert -9 == ended.returncode

    return run


class Crashed(BaseException):
    """In place of a crash: nothing catches it."""


@contextmanager
def crashing(point: str, does: Callable[[], object]) -> Iterator[None]:
    """Have something happen when a point is first reached."""
    left = [does]

    def act(reached: str, _: str) -> None:
        if reached == point and left:
            left.pop()()

    failpoints.arm(act)
    try:
        yield
    finally:
        failpoints.arm(None)


def crash() -> None:
    """End what goes on where it is."""
    raise Crashed
