"""Snapshots of a project's files: commits on no branch, which leave a person's index and branches alone.

git works from a folder of our own beside the repository: with our index and our settings, and only the
objects are shared. So nothing that the repository's own settings name is run. Ignored files and `.ai` are not
part of a snapshot. All calls block: give them to a thread.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from msgspec.structs import replace

from handoffd.errors import Refused, StoreError
from handoffd.files.atomic import digest_of, replace_text
from handoffd.git.command import FAILED, Git
from handoffd.git.labels import RESTORED, Label, Snapshot
from handoffd.git.repository import NO_REPOSITORY, Repository, repository_at

LARGEST = 32 * 1024 * 1024
"""A file of more bytes is left as the last commit or snapshot has it."""
EDITED = "FILES_EDITED"

_REFS = "refs/handoffd/"
_NO_STORY = "_"
_MOST_NAMED = 5


@contextmanager
def _disk_faults() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"snapshots: {error}", code=FAILED) from error


class Snapshots:
    """The snapshots of one project. `environment` is the daemon's own: where git and its settings are."""

    def __init__(self, root: str, state_dir: Path, environment: Mapping[str, str]) -> None:
        self._root = root
        self._shadow = shadow_of(root, state_dir)
        self._environment = environment

    # --- making one ------------------------------------------------------------------------------
    @_disk_faults()
    def take(self, label: Label) -> Snapshot:
        """Keep the files as they are now. Raises StoreError: NO_REPOSITORY, or GIT_FAILED with the reason."""
        repository, git = self._opened()
        return self._kept(repository, git, label, self._tree(repository, git))

    def _kept(self, repository: Repository, git: Git, label: Label, tree: str) -> Snapshot:
        """Make the files that are in our index now a commit, and a ref of it."""
        label = replace(label, order=self._next(label.at))
        head = git.head()
        parent = () if head is None else ("-p", head)
        commit = git.run("commit-tree", tree, *parent, given=_message(label), at=label.at).decode().strip()
        ref = f"{_prefix(repository, label.story)}{_part(label.name)}"
        git.run("update-ref", ref, commit, own=False)
        return Snapshot(label=label, ref=ref, commit=commit)

    def _next(self, at: datetime) -> int:
        """Return a number higher than all before: of the time, or of one that a wrong clock has told."""
        known, latest = self._shadow / "order", 0
        with suppress(FileNotFoundError, ValueError):
            latest = int(known.read_text())
        number = max(latest + 1, int(at.timestamp() * 1000))
        replace_text(known, str(number), durable=False)
        return number

    def _tree(self, repository: Repository, git: Git) -> str:
        """Bring our index up to the files, and return its tree; of a damaged index, begin again."""
        try:
            return self._indexed(repository, git)
        except StoreError:
            (self._shadow / "index").unlink(missing_ok=True)
            return self._indexed(repository, git)

    def _indexed(self, repository: Repository, git: Git) -> str:
        self._take_head(git)
        changed = b"\0".join(self._changed(repository, git))
        if changed:
            git.run("update-index", "--add", "--remove", "--replace", "-z", "--stdin", given=changed + b"\0")
        return git.run("write-tree").decode().strip()

    def _take_head(self, git: Git) -> None:
        """Have everything of HEAD in our index: ignored files that are tracked are kept, too."""
        head, known = git.head() or "", self._shadow / "head"
        if known.exists() and known.read_text() == head and (self._shadow / "index").exists():
            return
        if head:
            git.run("read-tree", "-m", head)
            git.run("update-index", "-q", "--refresh", fine=(0, 1))
        known.write_text(head)

    def _changed(self, repository: Repository, git: Git) -> Iterator[bytes]:
        """Yield the paths that differ from our index, which are the project's to keep."""
        own_rules = os.path.join(repository.common, "info/exclude")
        listed = git.run(
            "ls-files", "-z", "--others", "--modified", "--deleted", "--deduplicate", "--exclude-standard",
            *((f"--exclude-from={own_rules}",) if os.path.isfile(own_rules) else ()),
            "--", *((f":(top,literal){repository.within}",) if repository.within else ()),
        )  # fmt: skip
        outside = os.fsencode(f"{repository.within}.ai/")
        for path in listed.split(b"\0"):
            if path and not path.startswith(outside) and _is_kept(os.fsencode(repository.top), path):
                yield path

    # --- going back to one -----------------------------------------------------------------------
    @_disk_faults()
    def restore(self, to: Snapshot, left: Snapshot, kept: Label) -> tuple[Snapshot, tuple[str, ...]]:
        """Undo what was done between `to` and `left`, after the present is kept; return that, and the paths.

        `left` is what an attempt has left last: who has edited a file since keeps it. Raises Refused for
        a file that would be lost (FILES_EDITED), and StoreError like `take`; nothing was changed then.
        """
        repository, git = self._opened()
        git.durable = True  # what is written over exists in the snapshot only
        now = self._tree(repository, git)
        done = {one.path for one in _changes(git, left.commit, to.commit)}
        changes = [
            one
            for one in _changes(git, now, to.commit)
            if one.path in done and not _is_ours(repository, one.path)
        ]
        self._may_change(git, changes, {one.path for one in _changes(git, left.commit, now)}, left)
        if obstacles := sorted(_obstacles(os.fsencode(repository.top), changes)):
            raise _lost("in the way, and git would not have it again", self._root, obstacles, left)
        before = self._kept(repository, git, kept, now)
        git.run("read-tree", "-m", "-u", now, self._meant(git, now, changes))
        self._kept(repository, git, replace(kept, result=RESTORED), self._tree(repository, git))
        return before, tuple(os.fsdecode(one.path) for one in changes)

    def _may_change(
        self, git: Git, changes: Sequence[Change], edited: AbstractSet[bytes], left: Snapshot
    ) -> None:
        """Raise Refused when a person has edited one of the files, or a filter makes it."""
        paths = [one.path for one in changes]
        if theirs := sorted(edited & {*paths}):
            raise _lost(f"edited since {left.name}, and would be written over", self._root, theirs, left)
        if filtered := _filtered(git, paths):
            raise _stored_elsewhere(filtered)

    def _meant(self, git: Git, now: str, changes: Sequence[Change]) -> str:
        """Return the tree to have: the present one with the changes that are wanted."""
        more = {"GIT_INDEX_FILE": str(self._shadow / "meant")}
        git.run("read-tree", now, more=more)
        lines = b"".join(b"%o %s\t%s\0" % (one.mode, one.blob, one.path) for one in changes)
        git.run("update-index", "-z", "--index-info", given=lines, more=more)
        return git.run("write-tree", more=more).decode().strip()

    # --- looking, and cleaning up ----------------------------------------------------------------
    @_disk_faults()
    def all(self, story: str | None = None) -> tuple[Snapshot, ...]:
        """Return the snapshots, by age; of one story or of all. Raises StoreError like `take`."""
        repository, git = self._opened()
        return self._listed(repository, git, story)

    def _listed(self, repository: Repository, git: Git, story: str | None) -> tuple[Snapshot, ...]:
        where = f"{_REFS}{repository.place}" if story is None else _prefix(repository, story)
        form = "%(refname)%1f%(objectname)%1f%(contents)%1e"
        told = git.run("for-each-ref", f"--format={form}", where, own=False).decode(errors="replace")
        found = (_snapshot(entry) for entry in told.split("\x1e"))
        mine = [one for one in found if one is not None and _is_of(repository, one)]
        return tuple(sorted(mine, key=lambda one: one.label.order))

    @_disk_faults()
    def counted(self, snapshots: Sequence[Snapshot]) -> tuple[Snapshot, ...]:
        """Return them with the number of files in which each differs from the one before it."""
        _, git = self._opened()
        told = [*snapshots[:1]]
        for before, one in pairwise(snapshots):
            told.append(replace(one, files=len(_changes(git, before.commit, one.commit))))
        return tuple(told)

    @_disk_faults()
    def drop(self, snapshots: Iterable[Snapshot]) -> None:
        """Remove the refs; git removes the objects when it tidies up. Raises StoreError like `take`."""
        _, git = self._opened()
        orders = "".join(f"delete {one.ref} {one.commit}\n" for one in snapshots)
        git.run("update-ref", "--stdin", given=orders.encode(), own=False)

    def _opened(self) -> tuple[Repository, Git]:
        repository = repository_at(self._root)
        program = shutil.which("git", path=self._environment.get("PATH"))
        if program is None:
            raise StoreError("git is not found", code=NO_REPOSITORY, hint="sudo apt install git")
        git = Git(program, repository, self._shadow, self._environment)
        if not (self._shadow / "HEAD").exists():
            git.make_shadow()
            (self._shadow / "root").write_text(self._root, errors="surrogateescape")
        with suppress(FileNotFoundError):
            (self._shadow / "index.lock").unlink()  # of one that was killed
        return repository, git


def roots_with_snapshots(state_dir: Path) -> frozenset[str]:
    """Return the roots that snapshots were made of. Blocks."""
    found = (state_dir / "snapshots").glob("*/root")
    return frozenset(path.read_text(errors="surrogateescape") for path in found)


def shadow_of(root: str, state_dir: Path) -> Path:
    """Return our folder beside the repository of a project."""
    return state_dir / "snapshots" / digest_of(root.encode("utf-8", "surrogateescape"))[:32]


# --- paths --------------------------------------------------------------------------------------------
class Change(NamedTuple):
    """A path in which two trees differ: the file's mode in both, its id in the second. Mode 0: no file."""

    path: bytes
    was: int
    mode: int
    blob: bytes


def _changes(git: Git, one: str, other: str) -> list[Change]:
    """Return how a second tree differs from a first."""
    fields = git.run("diff-tree", "-r", "-z", "--no-renames", one, other).split(b"\0")
    pairs = zip(fields[0::2], fields[1::2], strict=False)
    told = [(meta.lstrip(b":").split(b" "), path) for meta, path in pairs]
    return [Change(path, int(meta[0], 8), int(meta[1], 8), meta[3]) for meta, path in told]


def _obstacles(top: bytes, changes: Sequence[Change]) -> Iterator[bytes]:
    """Yield the files that are not git's, where files must be written: ignored ones, which are not kept."""
    known = {one.path for one in changes if one.was}
    for one in changes:
        if one.mode and not one.was:
            yield from (path for path in _there(top, one.path) if path not in known)


def _there(top: bytes, path: bytes) -> Iterator[bytes]:
    """Yield the file that is at a path or instead of one of its folders, or those below it."""
    parts = path.split(b"/")
    for count in range(1, len(parts) + 1):
        place = os.path.join(top, *parts[:count])
        if not os.path.lexists(place):
            return
        if os.path.islink(place) or not os.path.isdir(place):
            yield b"/".join(parts[:count])
            return
    for folder, _, files in os.walk(os.path.join(top, path)):
        yield from (os.path.relpath(os.path.join(folder, file), top) for file in files)


def _is_ours(repository: Repository, path: bytes) -> bool:
    """Return whether a path is handoffd's, or another project's of the same repository."""
    within = os.fsencode(repository.within)
    return not path.startswith(within) or path.startswith(within + b".ai/")


def _is_kept(top: bytes, path: bytes) -> bool:
    """Return whether a path can be kept: not a repository inside of this one, nor what is too large."""
    if path.endswith(b"/"):
        return False
    try:
        status = os.lstat(os.path.join(top, path))
    except (FileNotFoundError, NotADirectoryError):
        return True  # deleted, which is kept as well
    if not stat.S_ISREG(status.st_mode):
        return True
    return status.st_size <= LARGEST and os.access(os.path.join(top, path), os.R_OK)


def _filtered(git: Git, paths: Sequence[bytes]) -> list[str]:
    """Return the paths whose contents a filter would have to make, as of git-lfs."""
    told = git.run("check-attr", "-z", "--stdin", "filter", given=b"".join(path + b"\0" for path in paths))
    fields = told.split(b"\0")
    values = zip(fields[0::3], fields[2::3], strict=False)
    return [os.fsdecode(path) for path, value in values if value not in {b"unspecified", b"unset"}]


def _lost(why: str, root: str, paths: Sequence[bytes], left: Snapshot) -> Refused:
    names = [os.fsdecode(path) for path in paths]
    return Refused(
        f"{why}: {_few(names)}; move or commit it first",
        code=EDITED,
        hint=f"git -C {quote(root)} diff {left.ref} -- {quote(names[0])}",
    )


def _stored_elsewhere(paths: Sequence[str]) -> Refused:
    message = f"git-lfs or another filter makes the contents of {_few(paths)}, and none is run here"
    return Refused(message, code="FILTERED_FILES", hint="git lfs checkout")


def _few(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


# --- refs and what they say ---------------------------------------------------------------------------
def _prefix(repository: Repository, story: str | None) -> str:
    return f"{_REFS}{repository.place}{_NO_STORY if story is None else _part(story)}/"


def _part(name: str) -> str:
    """Return a name as a part of a ref: git takes none that ends with `.lock` or a dot."""
    return f"{name}_" if name.endswith((".lock", ".")) else name


def _is_of(repository: Repository, one: Snapshot) -> bool:
    """Return whether a ref is where this project's are, and not another's of the same repository."""
    return one.ref == f"{_prefix(repository, one.label.story)}{_part(one.label.name)}"


def _message(label: Label) -> bytes:
    facts = {
        "Story": label.story, "Step": label.step, "Number": str(label.number), "Result": label.result,
        "Run": label.run, "By": label.by, "At": label.at.astimezone(UTC).isoformat(),
        "Order": str(label.order),
    }  # fmt: skip
    lines = [f"{name}: {value}" for name, value in facts.items() if value is not None]
    subject = f"{label.story or 'no story'}: {label.name}, {label.result}"
    return "\n".join([subject, "", *lines, ""]).encode(errors="replace")


def _snapshot(entry: str) -> Snapshot | None:
    """Return what a ref says; None of one that others have made."""
    ref, commit, message = (*entry.strip("\n").split("\x1f"), "", "")[:3]
    facts = dict(line.partition(": ")[::2] for line in message.splitlines()[2:])
    try:
        label = Label(
            story=facts.get("Story"), step=facts["Step"], number=int(facts["Number"]),
            result=facts["Result"], run=facts.get("Run"), by=facts.get("By"),
            at=datetime.fromisoformat(facts["At"]), order=int(facts["Order"]),
        )  # fmt: skip
    except (KeyError, ValueError):
        return None
    return Snapshot(label=label, ref=ref, commit=commit)
