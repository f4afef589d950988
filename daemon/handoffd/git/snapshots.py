"""Snapshots of a project's files: commits on no branch, which leave a person's index and branches alone.

Which commits are snapshots is on a list of our own, beside our index of the repository: what its refs say is
an agent's to write, and only keeps git from removing the commits. Ignored files and the project's
`.ai` are not part of a snapshot. All calls block: give them to a thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC
from itertools import pairwise
from pathlib import Path
from shlex import quote
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from handoffd.engine.wording import command_for, first_few
from handoffd.errors import Refused, StoreError
from handoffd.failpoints import reached
from handoffd.files.atomic import replace_text
from handoffd.files.rooted import read_project_file, write_project_file
from handoffd.git.command import Git
from handoffd.git.labels import (
    BEGUN,
    RESTORED,
    Label,
    Snapshot,
    made_before,
    name_of,
    of_this_life,
    since_entered,
)
from handoffd.git.repository import Repository, as_part, repository_at
from handoffd.git.worktree import (
    LARGEST,
    LIMIT_S,
    Worktree,
    can_be_kept,
    disk_faults,
    filtered,
    in_place_of,
    status_at,
)

RESTORE_LIMIT_S = 45.0
"""How long a way back may take, for whose answer a client waits a minute."""
EDITED = "FILES_EDITED"

_MOST = 5000
"""How many snapshots of a project are known; the oldest are forgotten first, and their refs stay."""
_GITLINK, _FILE, _PROGRAM = 0o160000, 0o100644, 0o100755
_LIST = msgspec.json.Decoder(list[Snapshot])


class Snapshots:
    """The snapshots of one project. `environment` is the daemon's own: where git and its settings are.

    `seen` has looked at the files just now, and no program has been at work since: the first one is of that.
    """

    def __init__(
        self, root: str, state_dir: Path, environment: Mapping[str, str], seen: Worktree | None = None
    ) -> None:
        self._root = root
        if seen is None or seen.folder != root:
            seen = Worktree(root, state_dir, environment)
        self.worktree, self._seen = seen, seen.seen
        self._shadow = self.worktree.shadow
        self._environment = environment

    @property
    def left_out(self) -> Sequence[str]:
        """The paths that git could not take into the last one that was made here."""
        return self.worktree.left_out

    # --- making one ------------------------------------------------------------------------------
    @disk_faults()
    def take(self, label: Label, left: str | None = None) -> Snapshot:
        """Keep the files as they are now; `left` is the tree that an attempt left before its checks.

        What was kept of the same before stays. Raises StoreError: NO_REPOSITORY, GIT_TOO_SLOW, or GIT_FAILED
        with the reason; it is noted as missing.
        """
        try:
            with self.worktree.opened(self.worktree.limit_s) as (repository, git):
                if (known := made_before(label, of_this_life(self.all(label.story)))) is not None:
                    return known
                seen, self._seen = self._seen, None
                tree = seen or self.worktree.tree(repository, git)
                return self._kept(repository, git, label, tree, self.worktree.beside(repository, git), left)
        except StoreError:
            with suppress(StoreError):
                self.miss(label)
            raise

    @disk_faults()
    def miss(self, label: Label) -> None:
        """Note that a snapshot is missing, if there are others: a way back must not pass over it."""
        if self.all():
            with self.worktree.locked(LIMIT_S):
                if made_before(label, of_this_life(self.all(label.story))) is None:
                    self._note(Snapshot(label=label, name=self._name_of(label), ref="", commit=None))

    def _kept(
        self,
        repository: Repository,
        git: Git,
        label: Label,
        tree: str,
        beside: Mapping[str, str] | None = None,
        left: str | None = None,
    ) -> Snapshot:
        """Make a tree of the files a commit, and a ref of it."""
        head = repository.head()
        parent = () if head is None else (head,)
        name = self._name_of(label)
        made = Snapshot(
            label=label,
            name=name,
            ref=f"{_prefix(repository, label.story)}{as_part(name)}",
            commit=git.commit(tree, *parent, message=_message(label, name), at=label.at),
            beside=beside,
            left=left,
        )
        # Not by git, which would follow a ref that an agent made a link to a branch.
        write_project_file(Path(repository.common), made.ref, f"{made.commit}\n", durable=git.durable)
        self._note(made, durable=git.durable)
        return made

    @disk_faults()
    def adopt(self, made: Sequence[Snapshot]) -> None:
        """Have the snapshots of a clone among these, whose objects are in this repository by now."""
        with self.worktree.opened(LIMIT_S) as (repository, _):
            for one in made:
                ref = f"{_prefix(repository, one.label.story)}{as_part(one.name)}" if one.commit else ""
                if one.commit:
                    write_project_file(Path(repository.common), ref, f"{one.commit}\n", durable=True)
                self._note(replace(one, ref=ref))

    def _name_of(self, label: Label) -> str:
        return name_of(label, of_this_life(self.all(label.story)) if label.result != BEGUN else ())

    def _note(self, made: Snapshot, *, durable: bool = False) -> None:
        """Put one on the list; it replaces the one of its name, also of an earlier life of its story."""
        name = (made.label.story, made.name)
        self._write(
            [*(one for one in self.all() if (one.label.story, one.name) != name), made], durable=durable
        )

    def _write(self, known: Sequence[Snapshot], *, durable: bool = False) -> None:
        replace_text(self._shadow / "made.json", msgspec.json.encode(known[-_MOST:]), durable=durable)

    # --- going back to one -----------------------------------------------------------------------
    @disk_faults()
    def restore(
        self, since: Sequence[Snapshot], kept: Label, *, over: bool = False
    ) -> tuple[Snapshot, tuple[str, ...]]:
        """Undo what attempts have done since the first of these, after the present is kept.

        Returns the snapshot of the present, and the changed paths. What others have changed between two
        attempts, or after the last one, is not undone; where an attempt has changed the same file, that is
        refused (FILES_EDITED), unless a person goes `over` it. Raises Refused, too, for what no snapshot has,
        and StoreError like `take`; nothing was changed then, unless the error says that.
        """
        with self.worktree.opened(RESTORE_LIMIT_S) as (repository, git):
            git.durable = True  # what is written over exists in the snapshot only
            now, to = self.worktree.tree(repository, git), since[0].commit or ""
            git.run("update-index", "-q", "--refresh", fine=(0, 1))  # a file may have been touched only
            done, theirs = _done_and_theirs(git, since, now)
            is_ours = self.worktree.ours(repository)
            changes = [
                one
                for one in _changes(git, now, to)
                if one.path in done and is_ours(one.path) and not one.of_inner
            ]
            self._may_change(repository, git, changes, set() if over else theirs)
            before = self._kept(repository, git, kept, now)
            try:
                git.run("read-tree", "-m", "-u", now, self._meant(git, now, changes))
            except StoreError as error:
                why = f"it may be half done: the files were kept as {before.ref}, type it again"
                raise StoreError(f"{error.message}; {why}", code=error.code) from error
            self._kept(repository, git, replace(kept, result=RESTORED), self.worktree.tree(repository, git))
            return before, tuple(os.fsdecode(one.path) for one in changes)

    def _may_change(
        self, repository: Repository, git: Git, changes: Sequence[Change], edited: set[bytes]
    ) -> None:
        """Raise Refused when something would be lost, or git could not write a file."""
        top, paths = os.fsencode(repository.top), [one.path for one in changes]
        if theirs := sorted(edited & {*paths}):
            why = f"not only attempts have changed {_few(theirs)}; --over goes over that, after it is kept"
            raise Refused(why, code=EDITED, hint=f"git -C {quote(self._root)} status --short")
        if obstacles := sorted({*_obstacles(top, changes)}):
            why = f"in the way, and in no snapshot: {_few(obstacles)}; move it away"
            place = os.path.join(repository.top, os.fsdecode(obstacles[0]))
            raise Refused(why, code=EDITED, hint=f"ls -ld {quote(place)}")
        if made := filtered(git, paths):
            why = f"git-lfs or another filter makes the contents of {_few(made)}, and none is run here"
            raise Refused(why, code="FILTERED_FILES", hint=command_for(self._root, "snapshots"))

    def _meant(self, git: Git, now: str, changes: Sequence[Change]) -> str:
        """Return the tree to have: the present one with the changes that are wanted."""
        git.run("read-tree", now, index="meant")
        lines = b"".join(b"%o %s\t%s\0" % (one.mode, one.blob, one.path) for one in changes)
        git.run("update-index", "-z", "--index-info", given=lines, index="meant")
        return git.run("write-tree", index="meant").decode().strip()

    # --- what a step has changed -----------------------------------------------------------------
    @disk_faults()
    def measured(self, story: str | None, step: str, *, durable: bool) -> Measured | None:
        """Return what a step has changed since it was entered; None where the files were not kept then.

        What others, and the checks of its attempts, have changed between these is left out. `durable`: what
        is found survives a power cut. Raises StoreError like `take`.
        """
        since = since_entered(of_this_life(self.all(story)), step)
        if not since:
            return None
        with self.worktree.opened(self.worktree.limit_s) as (repository, git):
            git.durable = durable
            now = self.worktree.tree(repository, git)
            paths = self._changed_since(repository, git, since, now)
            was, beside = since[0].beside, self.worktree.beside(repository, git)
            others = [one for one in {**(was or beside), **beside} if (was or {}).get(one) != beside.get(one)]
            others = [] if was is None else others
            mine, sizes = {*paths}, _sizes(git, since[0].commit or "", now) if paths else []
            sizes = [one for one in sizes if one.path in mine]
            lines = sum(one.added or 0 for one in sizes), sum(one.removed or 0 for one in sizes)
            return Measured(now, repository.within, tuple(paths), tuple(sorted(others)), lines)

    @disk_faults()
    def changed_by(self, label: Label, *, story: bool) -> frozenset[bytes] | None:
        """Return the paths that the step has changed which a label ends, and whose files are kept by now.

        `story`: that all steps of its story have changed. None where they were not kept, or not all since the
        step was entered, or the story began. Raises StoreError like `take`.
        """
        life = of_this_life(self.all(label.story))
        last = life[-1] if life and replace(life[-1].label, at=label.at) == label else None
        since = life[:-1] if story else since_entered(life[:-1], label.step)
        if last is None or last.commit is None or not since or None in {one.commit for one in since}:
            return None
        with self.worktree.opened(self.worktree.limit_s) as (repository, git):
            return frozenset(self._changed_since(repository, git, since, _end_of(git, last)))

    def _changed_since(self, at: Repository, git: Git, since: Sequence[Snapshot], now: str) -> list[bytes]:
        mine = None if len(since) == 1 else _by_agents(git, since, now)
        is_ours = self.worktree.ours(at)
        return [
            one.path
            for one in _changes(git, since[0].commit or "", now)
            if (mine is None or one.path in mine) and is_ours(one.path) and not one.of_inner
        ]

    @disk_faults()
    def put_back(self, kept: Label, found: Measured, wanted: Collection[bytes], left_ns: int) -> PutBack:
        """Bring `wanted` files back as they were when the step of a label was entered, after they are kept.

        It can be begun again where a crash has cut it off. What others have changed, too, stays, and what was
        changed since `found` or after `left_ns`, when the attempt had ended. Raises StoreError.
        """
        life = of_this_life(self.all(kept.story))
        since = since_entered(life, kept.step)
        with self.worktree.opened(RESTORE_LIMIT_S) as (repository, git):
            git.durable = True
            begun = made_before(kept, life)
            before = begun or self._kept(repository, git, kept, found.tree)
            now = self.worktree.tree(repository, git)
            git.run("update-index", "-q", "--refresh", fine=(0, 1))
            _, theirs = _by_attempts(git, since, now)
            theirs.update(one.path for one in _changes(git, found.tree, now))
            changes = [one for one in _changes(git, now, since[0].commit or "") if one.path in wanted]
            theirs |= {one.path for one in changes if _changed_after(repository.top, one.path, left_ns)}
            if begun is not None:  # a git that was killed may have written half a file
                theirs -= {one.path for one in changes if _is_half(git, repository.top, one)}
            stay: dict[bytes, str] = {}
            # First what says how files are made: it may be the agent's own, and would keep others back.
            for first in (True, False):
                group = [one for one in changes if one.path.endswith(b".gitattributes") is first]
                stay |= (kept_out := dict(_staying(git, os.fsencode(repository.top), group, theirs)))
                if meant := [one for one in group if one.path not in kept_out]:
                    reached("before_put_back")
                    git.run("read-tree", "-m", "-u", now, self._meant(git, now, meant))
                    reached("after_put_back")
                    now = self.worktree.tree(repository, git)
            return PutBack(ref=before.ref, stay=stay, tree=now)

    @disk_faults()
    def by_checks(
        self, made: Snapshot, strays: Callable[[Sequence[str]], Collection[str]], *, undo: bool
    ) -> list[str]:
        """Return which files of the project the checks of an attempt have changed that are `strays`, sorted.

        `undo`: it is put back, and what they have made counts, too. Raises StoreError.
        """
        with self.worktree.opened(RESTORE_LIMIT_S) as (repository, git):
            is_ours, now = self.worktree.ours(repository), made.commit or ""
            changes = [one for one in _changes(git, now, _end_of(git, made)) if one.mode or undo]
            changes = [one for one in changes if is_ours(one.path) and not one.of_inner]
            within = os.fsencode(repository.within)
            names = {
                one.path.removeprefix(within).decode("utf-8", "backslashreplace"): one for one in changes
            }
            wanted = sorted(strays(tuple(names)))
            changes = [names[name] for name in wanted]
            if undo and changes:
                git.run("read-tree", "-m", "-u", now, self._meant(git, now, changes))
            return wanted

    # --- looking, and cleaning up ----------------------------------------------------------------
    def all(self, story: str | None = "") -> tuple[Snapshot, ...]:
        """Return the snapshots by age, of one story (None: before the first) or, without one, of all."""
        try:
            known = _LIST.decode((self._shadow / "made.json").read_bytes())
        except (OSError, msgspec.DecodeError):
            return ()
        return tuple(one for one in known if story in {"", one.label.story})

    @disk_faults()
    def counted(self, snapshots: Sequence[Snapshot]) -> tuple[Snapshot, ...]:
        """Return them with the number of files in which each differs from the one before it.

        Raises StoreError where nothing can be kept.
        """
        repository = repository_at(self._root)
        git = Git(self.worktree.program(), repository, self._shadow, self._environment, LIMIT_S)
        before: str | None = None
        told: list[Snapshot] = []
        for one in snapshots:
            files = None
            if before is not None and one.commit is not None:
                with suppress(StoreError):  # a person may have removed a ref
                    files = len(_changes(git, before, one.commit))
            before = one.commit or before
            told.append(replace(one, files=files))
        return tuple(told)

    @disk_faults()
    def compared(self, life: Sequence[Snapshot], news: str = "") -> Comparison:
        """Return how the files differ between the first and the last of these that were made, by age.

        Of each file also which steps' attempts have changed it, as far as no snapshot is missing around them.
        `news` is where the branch ends that the story lands on: what it has taken in from there is not its
        own. Raises StoreError where nothing was kept, or a snapshot is gone.
        """
        made = [one for one in life if one.commit is not None]
        repository = self.worktree.repository()
        git = Git(self.worktree.program(), repository, self._shadow, self._environment, LIMIT_S)
        steps: dict[bytes, list[str]] = {}
        for before, after in pairwise(life):
            if before.commit is None or after.commit is None or after.label.run is None:
                continue
            for one in _changes(git, before.commit, after.commit):
                if after.label.step not in steps.setdefault(one.path, []):
                    steps[one.path].append(after.label.step)
        within, is_ours = os.fsencode(repository.within), self.worktree.ours(repository)
        first, last = made[0].commit or "", made[-1].commit or ""
        met = _taken_in(git, first, last, news)
        own = None if met is None else {one.path for one in _changes(git, met, last)}
        begun = met if met is not None and made[0].label.result == BEGUN else first
        files = tuple(
            one._replace(path=one.path.removeprefix(within), steps=tuple(steps.get(one.path, ())))
            for one in _sizes(git, begun, last)
            if is_ours(one.path) and (own is None or one.path in own)
        )
        return Comparison(since=made[0], until=made[-1], files=files)

    @disk_faults()
    def drop(self, snapshots: Iterable[Snapshot]) -> None:
        """Forget snapshots and remove their refs; git removes the objects when it tidies up."""
        with self.worktree.opened(LIMIT_S) as (repository, git):
            gone = []
            for one in snapshots:
                if one.commit is not None and repository.value_of(one.ref) == one.commit:
                    git.delete_ref(one.ref, one.commit)
                gone.append(one)
                self._write([known for known in self.all() if known not in gone])


def roots_with_snapshots(state_dir: Path) -> frozenset[str]:
    """Return the folders that snapshots were made of. Blocks."""
    return frozenset(os.fsdecode(path.read_bytes()) for path in (state_dir / "snapshots").glob("*/root"))


# --- paths --------------------------------------------------------------------------------------------
class Change(NamedTuple):
    """A path in which two trees differ: the file's mode in both, its id in the second. Mode 0: no file."""

    path: bytes
    was: int
    mode: int
    blob: bytes

    @property
    def of_inner(self) -> bool:
        """Whether it is only about a repository inside of this one: that is left as it is."""
        return self.mode == _GITLINK or (self.was == _GITLINK and not self.mode)


def _changes(git: Git, one: str, other: str) -> list[Change]:
    """Return how a second tree differs from a first."""
    fields = git.run("diff-tree", "-r", "-z", "--no-renames", "--end-of-options", one, other).split(b"\0")
    pairs = zip(fields[0::2], fields[1::2], strict=False)
    told = [(meta.lstrip(b":").split(b" "), path) for meta, path in pairs]
    return [Change(path, int(meta[0], 8), int(meta[1], 8), meta[3]) for meta, path in told]


class Measured(NamedTuple):
    """What a step has changed, by paths from the top of the repository."""

    tree: str
    """The files as they were then."""
    within: str
    """The project's root from there, with a `/` at its end."""
    paths: tuple[bytes, ...]
    beside: tuple[str, ...]
    """Large files and repositories of their own, which the tree does not have."""
    lines: tuple[int, int] = 0, 0
    """How many lines came and went in `paths`."""


class PutBack(NamedTuple):
    """How files were put back as they were."""

    ref: str
    """The snapshot that has them as they were until then."""
    stay: Mapping[bytes, str]
    """The ones that were left as they are, and why."""
    tree: str
    """The files as they are now."""


class Difference(NamedTuple):
    """A file that differs: its path below the project, and how many lines came and went.

    No lines are counted in a file that git takes for binary. `steps` are the ones whose attempts changed it.
    """

    path: bytes
    status: Literal["added", "changed", "removed"]
    added: int | None
    removed: int | None
    steps: tuple[str, ...] = ()


class Comparison(NamedTuple):
    """How the files of a story differ between two of its snapshots."""

    since: Snapshot
    until: Snapshot
    files: tuple[Difference, ...]


_STATUS: Final[Mapping[bytes, Literal["added", "changed", "removed"]]] = {b"A": "added", b"D": "removed"}


def _sizes(git: Git, one: str, other: str) -> list[Difference]:
    """Return which files differ between two trees, and by how many lines."""
    told = git.run(
        "diff-tree", "-r", "-z", "--raw", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv",
        "--end-of-options", one, other,
    )  # fmt: skip
    fields = [field for field in told.split(b"\0") if field]
    count = next((at for at, field in enumerate(fields[::2]) if not field.startswith(b":")), len(fields) // 2)
    states = {fields[2 * at + 1]: fields[2 * at].rpartition(b" ")[2] for at in range(count)}
    found = []
    for field in fields[2 * count :]:
        added, removed, path = field.split(b"\t", 2)
        status = _STATUS.get(states.get(path, b""), "changed")
        found.append(Difference(path, status, _lines(added), _lines(removed)))
    return found


def _lines(told: bytes) -> int | None:
    return int(told) if told.isdigit() else None


def _done_and_theirs(git: Git, since: Sequence[Snapshot], now: str) -> tuple[set[bytes], set[bytes]]:
    """Return the paths that attempts have changed (or we, in a way back), and that others have changed."""
    done: set[bytes] = set()
    theirs: set[bytes] = set()
    for before, after in pairwise(since):
        ours = after.label.run is not None or after.label.result == RESTORED
        changed = _changes(git, before.commit or "", after.commit or "")
        (done if ours else theirs).update(one.path for one in changed)
    theirs.update(one.path for one in _changes(git, since[-1].commit or "", now))
    return done, theirs


def _by_attempts(git: Git, since: Sequence[Snapshot], now: str) -> tuple[set[bytes], set[bytes]]:
    """Return the paths that attempts have changed, also the one that has just ended, and that others have."""
    mine = {one.path for one in _changes(git, since[-1].commit or "", now)}
    theirs: set[bytes] = set()
    for before, after in pairwise(since):
        changed = _changes(git, before.commit or "", after.commit or "")
        (theirs if after.label.run is None else mine).update(one.path for one in changed)
    return mine, theirs


def _taken_in(git: Git, first: str, last: str, news: str) -> str | None:
    """Return up to where a story has taken in a branch since its first snapshot; None: it has not."""
    met = git.run("merge-base", last, news, fine=(0, 1)).decode().strip() if news else ""
    return met if met and not git.is_so("merge-base", "--is-ancestor", met, first) else None


def _by_agents(git: Git, since: Sequence[Snapshot], now: str) -> set[bytes]:
    """Return the paths that attempts have changed before their checks began, also the one that just ended."""
    mine = {one.path for one in _changes(git, since[-1].commit or "", now)}
    for before, after in pairwise(since):
        if after.label.run is not None:
            mine.update(one.path for one in _changes(git, before.commit or "", _end_of(git, after)))
    return mine


def _end_of(git: Git, attempt: Snapshot) -> str:
    """Return the files as an attempt left them, before its checks.

    No ref keeps that tree: git may have removed it where a story rested for weeks.
    """
    known = attempt.left is not None and git.is_so("cat-file", "-e", attempt.left)
    return (attempt.left if known else attempt.commit) or ""


def _staying(
    git: Git, top: bytes, changes: Sequence[Change], theirs: Collection[bytes]
) -> Iterator[tuple[bytes, str]]:
    """Yield the paths whose changes must not be made, each with the reason."""
    made = {*filtered(git, [one.path for one in changes])} if changes else set()
    known = _known(changes)
    for one in changes:
        if one.path in theirs:
            yield one.path, "it was changed by others, too"
        elif one.path in made:
            yield one.path, "git-lfs or another filter makes its contents"
        elif (obstacle := next(_obstacles_of(one, top, known), None)) is not None:
            yield one.path, f"{os.fsdecode(obstacle)} is in the way, and in no snapshot"


def _changed_after(top: str, path: bytes, at_ns: int) -> bool:
    """Return whether a file was changed after a time; no program can set the time that is compared."""
    found = status_at(os.fsencode(top), path)
    return found is not None and found.st_ctime_ns > at_ns


def _is_half(git: Git, top: str, one: Change) -> bool:
    """Return whether a file is the beginning of what a change makes of it."""
    if one.mode not in {_FILE, _PROGRAM}:
        return False
    wanted = git.run("cat-file", "blob", one.blob.decode())
    with suppress(StoreError):
        seen = read_project_file(Path(top), os.fsdecode(one.path), LARGEST)
        return seen is not None and len(seen.content) < len(wanted) and wanted.startswith(seen.content)
    return False


def _obstacles(top: bytes, changes: Sequence[Change]) -> Iterator[bytes]:
    """Yield what would be lost though no snapshot has it: ignored files, large ones, inner repositories."""
    known = _known(changes)
    for one in changes:
        yield from _obstacles_of(one, top, known)


def _known(changes: Sequence[Change]) -> set[bytes]:
    return {one.path for one in changes if one.was and one.was != _GITLINK}


def _obstacles_of(one: Change, top: bytes, known: Collection[bytes]) -> Iterator[bytes]:
    if one.was == _GITLINK:
        yield one.path
    elif one.mode and not one.was:
        yield from (path for path in in_place_of(top, one.path) if path not in known)
    elif (found := status_at(top, one.path)) is not None and not can_be_kept(top, one.path, found):
        yield one.path


def _few(paths: Sequence[bytes]) -> str:
    return first_few([*map(os.fsdecode, paths)])


# --- refs and what their commits say ------------------------------------------------------------------
def _prefix(repository: Repository, story: str | None) -> str:
    return f"refs/handoffd/{repository.place}{'@project' if story is None else as_part(story)}/"


def _message(label: Label, name: str) -> bytes:
    facts = {
        "Story": label.story, "Step": label.step, "Result": label.result, "Run": label.run,
        "By": None if label.by is None else " ".join(label.by.split()),
        "At": label.at.astimezone(UTC).isoformat(),
    }  # fmt: skip
    lines = [f"{fact}: {value}" for fact, value in facts.items() if value is not None]
    subject = f"{label.story or 'no story'}: {name}, {label.result}"
    return "\n".join([subject, "", *lines, ""]).encode(errors="replace")
