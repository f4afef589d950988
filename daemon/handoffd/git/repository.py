"""Where the repository of a project is, and what is not finished in it, without running git.

Read from the files that git keeps: it costs a few looks at names, and anyone may have written them. A linked
worktree and a submodule have a file `.git` that names the folder where they keep theirs.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from shlex import quote

from msgspec import Struct

from handoffd.errors import StoreError
from handoffd.files.atomic import digest_of
from handoffd.files.rooted import read_project_file

NO_REPOSITORY = "NO_REPOSITORY"

_UNFINISHED: Mapping[str, str] = {
    "rebase-merge": "rebase",
    "rebase-apply/applying": "patch series (git am)",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick or revert",
    "BISECT_LOG": "bisect",
}
"""What is in git's folder while something is not finished. In a rebase there may be the others as well."""

_REBASED = ("rebase-merge/head-name", "rebase-apply/head-name")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
MOST_SAID = 300
"""The bytes of a file that has the name of a commit, or of a branch."""
_LONGEST = 4096 + len("gitdir: \n")


class Repository(Struct, frozen=True, kw_only=True):
    """The repository of a project whose git folder is this account's own, and no link."""

    top: str
    """The working tree's top folder: the project's root, or one above it."""
    within: str
    """The project's root from there, with a `/` at its end; empty when they are the same."""
    folder: str
    """Where git keeps HEAD and the index of this working tree."""
    common: str
    """Where it keeps the objects and branches, which linked worktrees share."""

    @property
    def place(self) -> str:
        """What tells this project from others of the repository, as a part of refs; empty: the only one."""
        linked = [] if self.folder == self.common else ["@worktree", as_part(os.path.basename(self.folder))]
        parts = [*linked, *map(as_part, self.within.split("/")[:-1])]
        return "".join(f"{part}/" for part in parts)

    def head(self) -> str | None:
        """Return the commit that is checked out; None before the first. Raises StoreError when it is unclear.

        git itself is not asked: it would read the repository's settings, and might fetch what is missing.
        """
        said = _line_in(os.path.join(self.folder, "HEAD"))
        for _ in range(_MOST_LINKS):
            if not said.startswith("ref: "):
                return _commit(said) if said else None
            ref = said.removeprefix("ref: ").strip()
            if ref == "refs/heads/.invalid":
                raise _none(f"{self.top} keeps its refs as reftable")
            said = self.value_of(ref)
        raise StoreError("HEAD leads from branch to branch", code="GIT_FAILED")

    def branch_at(self, folder: str) -> str | None:
        """Return the branch (`refs/heads/main`) that a working tree is on; None: on none.

        `folder` is where git keeps its HEAD.
        """
        said = _line_in(os.path.join(folder, "HEAD"))
        return said.removeprefix("ref: ").strip() if said.startswith("ref: ") else None

    def checkout_of(self, ref: str) -> str | None:
        """Return the top folder of a working tree that is on a branch; None: no one's is."""
        if self.branch_at(self.folder) == ref:
            return self.top
        on = (top for folder, top in self._trees() if self.branch_at(folder) == ref)
        return next((top for top in on if os.path.isdir(top)), None)

    def rebase_of(self, ref: str) -> str | None:
        """Return the top folder of a working tree in which a branch is being rebased; None: in none."""
        on = (top for folder, top in self._trees() if ref in rebased_in(folder))
        return next((top for top in on if os.path.isdir(top)), None)

    def _trees(self) -> Iterator[tuple[str, str]]:
        """Yield where git keeps HEAD and the index of each working tree, and its top folder."""
        yield self.folder, self.top
        if os.path.basename(self.common) == ".git":  # else it is a bare one
            yield self.common, os.path.dirname(self.common)
        for folder in self.linked():
            yield folder, os.path.dirname(_line_in(os.path.join(folder, "gitdir")))

    def linked(self) -> list[str]:
        """Return the folders where git keeps HEAD and the index of linked worktrees."""
        return glob.glob(f"{glob.escape(self.common)}/worktrees/*")

    def value_of(self, ref: str) -> str:
        """Return what a ref says; empty when it is not there, or not where refs are."""
        if not ref.startswith("refs/") or ".." in ref:
            return ""
        loose = _line_in(os.path.join(self.common, ref))
        return loose or _packed(os.path.join(self.common, "packed-refs"), ref)

    def said(self, name: str) -> str:
        """Return what a small file of git's folder says; empty where it is none, or behind a link."""
        with suppress(StoreError):
            seen = read_project_file(Path(self.folder), name, MOST_SAID)
            return "" if seen is None else os.fsdecode(seen.content).strip()
        return ""

    def refs_at(self, prefix: str) -> list[str]:
        """Return the refs in one folder of refs whose names begin so, in order: `refs/handoffd/US-1/dis`."""
        folder = os.path.dirname(prefix)
        names = {f"{folder}/{os.path.basename(path)}" for path in _entries(os.path.join(self.common, folder))}
        lines = _lines_of_packed(os.path.join(self.common, "packed-refs"))
        names |= {os.fsdecode(line.split(b" ", 1)[1]) for line in lines if b" refs/" in line}
        return sorted(ref for ref in names if ref.startswith(prefix) and "/" not in ref[len(folder) + 1 :])


def end_of(repository: Repository, ref: str) -> str:
    """Return the commit at the end of a branch, empty when it is not there. Raises StoreError."""
    value = repository.value_of(ref)
    if value and COMMIT.fullmatch(value) is None:
        why = f"{ref} in {repository.top} is not a branch of its own: {value[:MOST_SAID]!r}"
        raise StoreError(why, code="GIT_FAILED")
    return value


def in_use(repository: Repository) -> set[str]:
    """Return the branches that the project's working trees stand on, or will when a rebase is over."""
    used: set[str] = set()
    for folder in (repository.common, *repository.linked()):
        ref = repository.branch_at(folder)
        with suppress(OSError):
            ref = os.readlink(os.path.join(folder, "HEAD"))  # as git did it once
        while ref is not None and ref not in used:  # a branch may be another name of one
            used.add(ref)
            value = repository.value_of(ref)
            ref = value.removeprefix("ref: ").strip() if value.startswith("ref: ") else None
        used |= rebased_in(folder)
    return used


def rebased_in(folder: str) -> set[str]:
    """Return the branch that git moves when the rebase in a working tree is over; nothing without one."""
    return {_line_in(os.path.join(folder, name)) for name in _REBASED} - {""}


COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PLAIN = re.compile(r"[A-Za-z0-9._-]")
_MOST_PACKED = 64 * 1024 * 1024
_MOST_OF_AGENTS = 16 * 1024 * 1024
_HEADS, _STASH = "refs/heads/", "refs/stash"
_MOST_LINKS = 5
_LONGEST_PART = 200
FLOW = "flow:"
"""How the name of a flow's tree begins beside the names of stories; no story's has a colon."""
_OF_A_FLOW = "flow@"
"""The same as a part of refs and paths: no other part has an `@` but at its beginning."""


def as_part(name: str) -> str:
    """Return a name as a part of a ref, different for different names: git does not take all characters."""
    part = "".join(one if _PLAIN.match(one) else _escaped(one) for one in name)
    for awkward in ("..", ".lock"):
        part = part.replace(awkward, awkward.replace(".", _escaped(".")))
    if part.startswith("."):
        part = _escaped(".") + part[1:]
    part = part[:-1] + _escaped(".") if part.endswith(".") else part
    if len(part) <= _LONGEST_PART:
        return part
    return f"{part[:100]}-{digest_of(part.encode())[:32]}"  # a file name has 255 bytes at most


def part_of(story: str) -> str:
    """Return the name of a story as a part of refs and paths; of a flow's tree, one that no story has."""
    flow = story.removeprefix(FLOW)
    return as_part(story) if flow == story else f"{_OF_A_FLOW}{as_part(flow)}"


def flow_of(story: str) -> str | None:
    """Return the flow that a name of a tree is of: of `flow:team-issue-7k2q.read-3`, `team-issue-7k2q`.

    No id of a flow has a dot, and a name of a tree may: an item's id has what it likes.
    """
    return story.removeprefix(FLOW).partition(".")[0] if story.startswith(FLOW) else None


def _escaped(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


def _commit(said: str) -> str:
    if COMMIT.fullmatch(said) is None:
        raise StoreError("HEAD names no commit", code="GIT_FAILED")
    return said


def heads_in(common: Path) -> Iterator[str]:
    """Yield what the branches of a clone say, and its stashes: an agent may have left commits on any.

    `common` is its folder `.git`. Raises StoreError for what is not a file.
    """
    packed = read_project_file(common, "packed-refs", _MOST_OF_AGENTS)
    for line in packed.content.splitlines() if packed is not None else ():
        name, _, ref = os.fsdecode(line).partition(" ")
        if ref.startswith(_HEADS) or ref == _STASH:
            yield name
    for path in (*files_below(str(common / _HEADS)), str(common / _STASH)):
        seen = read_project_file(common, os.path.relpath(path, common), _LONGEST)
        yield "" if seen is None else os.fsdecode(seen.content).strip()
    stashes = read_project_file(common, f"logs/{_STASH}", _MOST_OF_AGENTS)  # all of them
    for line in stashes.content.splitlines() if stashes is not None else ():
        yield os.fsdecode(line.partition(b" ")[2].partition(b" ")[0])


def files_below(folder: str) -> Iterator[str]:
    """Yield the paths of what is below a folder and is not a folder, however deep; links are not followed."""
    folders = [folder]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    yield entry.path


def _entries(folder: str) -> list[str]:
    with suppress(OSError):
        return [name for name in os.listdir(folder) if not name.endswith(".lock")]
    return []


def _packed(path: str, ref: str) -> str:
    """Return what the packed refs say of one; empty when they do not have it."""
    wanted = b" " + os.fsencode(ref)
    lines = (line for line in _lines_of_packed(path) if line.endswith(wanted))
    return next((os.fsdecode(line.split(b" ")[0]) for line in lines), "")


def _lines_of_packed(path: str) -> list[bytes]:
    with suppress(OSError):
        file = os.open(path, _READ)
        with open(file, "rb") as packed:
            if stat.S_ISREG(os.fstat(file).st_mode):
                return packed.read(_MOST_PACKED).splitlines()
    return []


def repository_at(root: str) -> Repository:
    """Return the repository of a project. Blocks. Raises StoreError where nothing may be kept in it."""
    top = repository_of(root)
    folder = None if top is None else _folder_of_git(top)
    if top is None or folder is None:
        raise _none(f"{root} is in no git repository", f"git -C {quote(root)} init")
    folder = os.path.normpath(folder)
    common = os.path.normpath(os.path.join(folder, _line_in(os.path.join(folder, "commondir")) or "."))
    if not _belongs(top, folder, common):
        raise _none(f"the git folder of {top} is elsewhere: {folder}")
    inner = (os.path.join(common, name) for name in ("objects", "refs"))
    for path in (
        os.path.join(top, ".git"),
        folder,
        common,
        *inner,
        *_links_in(os.path.join(common, "objects")),
    ):
        _must_be_ours(path)
    within = os.path.relpath(os.path.abspath(root), top)
    return Repository(top=top, within="" if within == "." else f"{within}/", folder=folder, common=common)


def _links_in(objects: str) -> list[str]:
    """Return the links among the folders of objects: what is written into one would be elsewhere."""
    with suppress(OSError), os.scandir(objects) as entries:
        return [entry.path for entry in entries if entry.is_symlink()]
    return []


def _belongs(top: str, folder: str, common: str) -> bool:
    """Return whether a git folder is this working tree's and no other's, whatever a file `.git` says."""
    if folder == os.path.join(top, ".git"):
        return common == folder
    if folder == os.path.join(common, "worktrees", os.path.basename(folder)):
        back = _line_in(os.path.join(folder, "gitdir"))
        return os.path.realpath(back) == os.path.realpath(os.path.join(top, ".git"))
    above = repository_of(os.path.dirname(top))  # a submodule's is in that of the repository around it
    modules = None if above is None else os.path.join(os.path.realpath(above), ".git", "modules", "")
    return modules is not None and os.path.realpath(folder).startswith(modules) and common == folder


def _must_be_ours(path: str) -> None:
    """Objects of another account in its folder would keep that account from adding any."""
    try:
        status = os.lstat(path)
    except OSError as error:
        raise _none(f"{path}: {error.strerror}") from error
    if stat.S_ISLNK(status.st_mode):
        raise _none(f"{path} is a link")
    if status.st_uid != os.geteuid():
        raise _none(f"{path} belongs to another account", f"ls -ld {quote(path)}")


def _none(why: str, hint: str | None = None) -> StoreError:
    return StoreError(why, code=NO_REPOSITORY, hint=hint)


def repository_of(root: str) -> str | None:
    """Return the folder, `root` or one above it, that has the `.git` which git would use; or None."""
    folder = os.path.abspath(root)
    while not os.path.lexists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return folder


def own_folder_of_git(root: str) -> str | None:
    """Return git's folder in the top folder of a working tree; None where it is not there, but elsewhere."""
    top = repository_of(root)
    folder = None if top is None else os.path.join(top, ".git")
    return folder if folder is not None and os.path.isdir(folder) and not os.path.islink(folder) else None


def unfinished_in(root: str) -> str | None:
    """Return what is not finished in the repository of a project (`merge`, ...); None: nothing. Blocks."""
    folder = repository_of(root)
    git = None if folder is None else _folder_of_git(folder)
    if git is None:
        return None
    return next(
        (what for name, what in _UNFINISHED.items() if os.path.lexists(os.path.join(git, name))), None
    )


def _folder_of_git(repository: str) -> str | None:
    """Return the git directory of a working tree; None when it is unknown."""
    place = os.path.join(repository, ".git")
    if os.path.isdir(place):
        return place
    line = _line_in(place)
    named = line.removeprefix("gitdir:").strip() if line.startswith("gitdir:") else ""
    return os.path.join(repository, named) if named else None


def said_in(path: str, most: int = MOST_SAID) -> bytes:
    """Return the beginning of a file that an agent may have written; of a link or a pipe, nothing."""
    with suppress(OSError, ValueError):
        file = os.open(path, _READ)
        try:
            return os.read(file, most) if stat.S_ISREG(os.fstat(file).st_mode) else b""
        finally:
            os.close(file)
    return b""


def _line_in(path: str) -> str:
    """Return what a small file of git says; empty when it is none, a link or a pipe."""
    return os.fsdecode(said_in(path, _LONGEST).strip())


# --- what git obeys -----------------------------------------------------------------------------------
LEADS_AWAY = "commondir"
"""A file of git that names another folder for objects and settings: only further worktrees have it."""
_OBEYED = (
    "config", "config.worktree", LEADS_AWAY, "hooks",
    "info/exclude", "info/attributes", "info/sparse-checkout", "info/grafts",
)  # fmt: skip
"""Files and folders of git's own folder that say what git runs, ignores and reads; `git gc` writes none."""
_INNER = re.compile(
    r"(?P<folder>(?:modules|worktrees)/.+?)/(?:config(?:\.worktree)?|commondir|hooks|info)(?:/|$)"
)
_MOST_OBEYED, _LARGEST_OBEYED, _MOST_INNER = 500, 1024 * 1024, 100


class Obeyed(Struct, frozen=True, array_like=True):
    """A file that git or handoffd obeys: its mode and what it holds, of a link where it leads."""

    mode: int
    content: bytes


def obeyed_in(repository: Repository) -> dict[str, Obeyed]:
    """Return the files that git obeys in a repository, by their path from its own folder. Blocks.

    Its submodules and other worktrees count, too, as far as git keeps them in that folder.
    """
    inner = islice(_inner_folders(repository.folder), _MOST_INNER)
    return files_at(repository.folder, [*(f"{one}/{name}" for one in inner for name in _OBEYED), *_OBEYED])


def files_at(folder: str, paths: Sequence[str]) -> dict[str, Obeyed]:
    """Return the files at paths from a folder, also below them. Blocks.

    Large ones and samples of hooks are left out; links are not followed.
    """
    found: dict[str, Obeyed] = {}
    pending = [*paths]
    while pending and len(found) < _MOST_OBEYED:
        path = pending.pop()
        with suppress(OSError):
            place = os.path.join(folder, path)
            status = os.lstat(place)
            if stat.S_ISDIR(status.st_mode):
                pending += [f"{path}/{name}" for name in os.listdir(place) if not name.endswith(".sample")]
            elif stat.S_ISLNK(status.st_mode):
                found[path] = Obeyed(stat.S_IFLNK, os.fsencode(os.readlink(place)))
            elif stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST_OBEYED:
                found[path] = Obeyed(stat.S_IMODE(status.st_mode), Path(place).read_bytes())
    return found


def _inner_folders(folder: str) -> Iterator[str]:
    """Yield the folders that git has for submodules and worktrees, from its own folder."""
    pending = ["modules", "worktrees"]
    for _ in range(_MOST_OBEYED):
        if not pending:
            return
        path = pending.pop()
        place = os.path.join(folder, path)
        if os.path.islink(place):
            continue
        if os.path.lexists(os.path.join(place, "HEAD")):
            yield path
            pending.append(f"{path}/modules")
        else:  # the name of a submodule may have a /
            with suppress(OSError), os.scandir(place) as entries:
                pending += [f"{path}/{one.name}" for one in entries if one.is_dir(follow_symlinks=False)]


def disobeyed(was: Mapping[str, Obeyed], now: Mapping[str, Obeyed]) -> tuple[str, ...]:
    """Return the paths of what has changed between two looks, sorted.

    A submodule or a worktree that came or went is git's own work, and no path of it is among them.
    """
    folders = {_inner_folder(path) for path in was} & {_inner_folder(path) for path in now} | {""}
    changed = sorted(path for path in {*was, *now} if was.get(path) != now.get(path))
    return tuple(path for path in changed if _inner_folder(path) in folders)


def _inner_folder(path: str) -> str:
    inner = _INNER.match(path)
    return inner["folder"] if inner else ""


def obey_again(folder: str, path: str, was: Obeyed | None) -> None:
    """Have a file as it was, None: gone; a link in place of one of its folders goes, too.

    `path` is from `folder`. Raises OSError.
    """
    place, parts = folder, path.split("/")
    for part in parts:
        place = os.path.join(place, part)
        is_folder = os.path.isdir(place) and not os.path.islink(place)
        if os.path.lexists(place) and (part is parts[-1] or not is_folder):
            shutil.rmtree(place) if is_folder else os.unlink(place)
        if part is not parts[-1] and was is not None:
            os.makedirs(place, exist_ok=True)
    if was is not None and was.mode == stat.S_IFLNK:
        os.symlink(was.content, os.fsencode(place))
    elif was is not None:
        with open(place, "xb", opener=lambda name, flags: os.open(name, flags, was.mode)) as file:
            file.write(was.content)
