"""What a project whose stories work in clones has left in its repository, told by git alone."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.clones import ASTRAY, BASE, CHANGED, DRAFT, MINE, UNKNOWN, Cloned, set_up_at, tested_at

_RECORD = "%H%x1f%T%x1f%P%x1f%B%x1e"


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit. `said` are the trailers of its message."""

    id: str
    tree: str
    parents: tuple[str, ...]
    subject: str
    said: Mapping[str, str] = field(default_factory=dict)

    @property
    def persons(self) -> bool:
        """Whether a person of the harness made it."""
        return self.subject.startswith("person: ")

    @property
    def lands(self) -> str | None:
        """The story that it brings in, if it is the merge of a landing."""
        return self.subject.removeprefix("Land ") if self.subject.startswith("Land ") else None

    def __str__(self) -> str:
        return f"commit {self.id[:12]} {self.subject!r} {dict(self.said)}"


@dataclass(frozen=True, slots=True)
class Branches:
    """One repository.

    `each_step` tells whether the daemon commits each step. `commits` are all that a branch has; `base` the
    ones that handoffd has moved the base branch to, the oldest first; `logs` and `landed` the lines of each
    story's log, on its own branch and on the base branch; `tested` the trees on which tests have passed;
    `trouble` what git, or a look at the files, complains of.
    """

    each_step: bool
    commits: Sequence[Commit]
    base: Sequence[Commit]
    logs: Mapping[str, Sequence[str]]
    landed: Mapping[str, Sequence[str]]
    tested: frozenset[str]
    trouble: Sequence[str] = ()


def look_at(project: Cloned, state_dir: Path) -> Branches:
    """Return what git says about a project. Raises CalledProcessError where git is at its end."""
    root, names = project.root, [story.name for story in project.stories]
    commits = _log(root, "--branches")
    known = {commit.id: commit for commit in commits}
    heads = _git(root, "for-each-ref", "--format=%(refname)", "refs/heads").split()
    there = [name for name in names if f"refs/heads/handoffd/{name}" in heads]
    others = {*heads} - {f"refs/heads/{BASE}", *(f"refs/heads/handoffd/{name}" for name in names)}
    return Branches(
        each_step=project.flavour.commit == "step",
        commits=commits,
        base=[known[one] for one in _moves(root) if one in known],
        logs={name: _lines(root, f"handoffd/{name}", name) for name in there},
        landed={name: _lines(root, BASE, name) for name in names},
        tested=frozenset(_text(tested_at(root)).splitlines()),
        trouble=[
            *(f"a branch that belongs to no story: {name}" for name in sorted(others)),
            *(f"moved to a commit that is on no branch: {one}" for one in _moves(root) if one not in known),
            *_unsound(root),
            *_astray(root),
            *_disturbed(root),
            *_in_the_way(root, state_dir),
            *_set_up_again(root),
        ],
    )


def left_of_clones(project: Cloned, state_dir: Path) -> Iterator[str]:
    """Yield what is left of clones when all stories of a project have been landed, and was cleaned up.

    An agent that commits by itself may leave something uncommitted, which is kept.
    """
    if project.flavour.commit == "agent":
        return
    yield from (f"a clone is left: {one}" for one in state_dir.glob(f"workspaces/*/*/{project.root.name}"))
    bases = _git(project.root, "for-each-ref", "--format=%(refname)", "refs/handoffd/**/base").split()
    yield from (f"a clone's ref is left: {ref}" for ref in bases)


def _moves(root: Path) -> list[str]:
    """Return where handoffd has moved the base branch to, the oldest first."""
    log = _text(root / ".git/logs/refs/heads" / BASE).splitlines()
    return [line.split(" ")[1] for line in log if line.partition("\t")[2] == "handoffd"]


def _unsound(root: Path) -> Iterator[str]:
    checked = subprocess.run(
        ["git", "-C", str(root), "fsck", "--strict", "--no-dangling", "--full"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if checked.returncode or checked.stderr.strip():
        yield f"git fsck: {checked.stdout} {checked.stderr}"


def _disturbed(root: Path) -> Iterator[str]:
    """Yield what differs from the branch in the checkout, but for the files that are a person's own."""
    told = _git(root, "status", "--porcelain")
    if told.splitlines() != [f" M {DRAFT}", f"?? {MINE}"]:
        yield f"the checkout is not as it should be: {told!r}"
    for name, text in ((DRAFT, CHANGED), (MINE, UNKNOWN)):
        if _text(root / name) != text:
            yield f"a person's {name} was changed: {_text(root / name)!r}"
    if (on := _git(root, "symbolic-ref", "HEAD").strip()) != f"refs/heads/{BASE}":
        yield f"the checkout is on {on}"


def _in_the_way(root: Path, state_dir: Path) -> Iterator[str]:
    for folder, _, names in os.walk(root / ".git"):
        yield from (f"a lock is left: {folder}/{name}" for name in names if name.endswith(".lock"))
    yield from (f"a landing is not finished: {one}" for one in state_dir.glob("snapshots/*/landing.json"))


def _set_up_again(root: Path) -> Iterator[str]:
    """Yield the clones that were set up more than once; that of a landing is made for each try."""
    times = Counter(Path(line).parent.name for line in _text(set_up_at(root)).splitlines())
    again = {name: count for name, count in times.items() if count > 1 and "landing" not in name}
    yield from (f"{name} was set up {count} times" for name, count in again.items())


def _log(root: Path, *which: str) -> list[Commit]:
    said = _git(root, "log", f"--format={_RECORD}", *which)
    return [_commit(*record.split("\x1f")) for record in said.split("\x1e\n") if record.strip()]


def _commit(name: str, tree: str, parents: str, message: str) -> Commit:
    lines = message.strip().splitlines()
    pairs = (line.partition(": ") for line in lines[1:])
    said = {key: value for key, colon, value in pairs if colon and " " not in key}
    return Commit(name.strip(), tree, tuple(parents.split()), lines[0], said)


def _lines(root: Path, branch: str, story: str) -> list[str]:
    """Return the lines of a story's attempts: of its log, and of the memory of the project."""
    memory = _shown(root, f"{branch}:PROJECT_MEMORY.md")
    last = [line.removeprefix(f"{story}: ") for line in memory if line.startswith(f"{story}: ")]
    return [*_shown(root, f"{branch}:work/{story}.log"), *last]


def _shown(root: Path, name: str) -> list[str]:
    words = ["git", "-C", str(root), "show", name]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines()


def _astray(root: Path) -> Iterator[str]:
    """Yield the commits that have the file which no step may write."""
    for one in _git(root, "log", "--branches", "--format=%h %s", "--", ASTRAY).splitlines():
        yield f"{ASTRAY} was not put back: {one}"


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True)
    return done.stdout


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
