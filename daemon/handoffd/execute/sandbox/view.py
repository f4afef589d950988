"""Builds what a run sees of the machine's files: the tree, read-only, with parts hidden, empty or writable.

Runs in a process that has just begun in its own mount namespace, with no other thread. All that is shown
again is opened before anything is hidden, and mounted by descriptor: a path that is changed meanwhile
leads nowhere else. Folders that are hidden or private are folders of one file system in memory (the stage),
so that mount points can be made in them.

Beside the view, Landlock is a second wall: it forbids writes that a mistake in the view would allow, mounts
of any kind, tracing of processes outside, abstract sockets and signals to the outside. Alone it cannot hide
processes, and nothing inside a folder that may be written; so it is the weakest level.

Nothing may be imported here: the module's file may be out of sight already.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from handoffd.execute.sandbox import kernel
from handoffd.execute.sandbox.plan import FIXED, GUARDED, LANDLOCK, SCOPES_SINCE, STRICT, Plan

_STAGE = "/tmp"  # noqa: S108  (covered at once by a private folder)
_STAGE_OPTIONS = "mode=0755,size=50%"
_SHARED = 0o1777
"""The mode of folders for temporary files."""
_OWN = 0o700
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_HANDLE = os.O_PATH | os.O_CLOEXEC
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_LARGEST_COPY = 16 * 1024 * 1024

DEVICES = ("full", "null", "random", "tty", "urandom", "zero")
_LINKS = {
    "fd": "/proc/self/fd", "ptmx": "pts/ptmx", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}  # fmt: skip

_HIDE, _PRIVATE, _SHOW, _OPEN = range(4)
"""What is done at a path; of one path in this order."""


class _Entry(NamedTuple):
    depth: int
    kind: int
    path: str
    tree: int
    """What is mounted there; -1 for a new folder."""


class View:
    """The view of one plan. Every method raises OSError, whose file name says what could not be made."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._private = {_real(path) for path in (*plan.private, _STAGE, "/dev/shm")}  # noqa: S108
        self._hidden = {_real(path) for path in (*plan.hidden, "/dev")} - self._private
        self._covers = tuple(f"{path}/" for path in (*self._private, *self._hidden))
        self._rooms: dict[str, int] = {}
        """Folders in which mount points can be made, by where these are: of the stage, and of agents."""
        self._agents: list[str] = []
        """Of these the folders that agents can write: they may have put links there."""
        self._stage = self._void = self._void_file = -1

    def make(self) -> None:
        """Make the view, and this process's own."""
        shown = [*self._new_folders(), *self._shown(), *self._opened(), *self._own(), *_devices()]
        entries = sorted([*shown, *self._unchangeable()])
        copies = tuple(self._copies())
        root = os.open("/", _HANDLE)
        kernel.make_read_only(root, "/", private=True)
        self._set_the_stage()
        inner = "\n".join(entry.path for entry in entries)
        for entry in entries:
            self._carry_out(entry, f"\n{entry.path}/" in inner)
        for path, content, mode in copies:
            self._write_copy(path, content, mode)
        self._finish_devices()
        flags = kernel.READ_ONLY | kernel.NO_SUID | kernel.NO_DEV | kernel.NO_EXEC
        kernel.mount("proc", "/proc", flags)
        _guard(_real(self._plan.workspace), self._plan.repository)

    def _set_the_stage(self) -> None:
        kernel.mount("tmpfs", _STAGE, kernel.NO_SUID | kernel.NO_DEV, _STAGE_OPTIONS)
        self._stage = os.open(_STAGE, _FOLDER)
        os.mkdir("void", 0o555, dir_fd=self._stage)
        self._void = os.open("void", _FOLDER, dir_fd=self._stage)
        flags = os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC
        self._void_file = os.open("void file", flags, 0o444, dir_fd=self._stage)

    # --- before anything is hidden ------------------------------------------------------------------
    def _new_folders(self) -> Iterator[_Entry]:
        yield from (_entry(_HIDE, path, -1) for path in self._hidden)
        yield from (_entry(_PRIVATE, path, -1) for path in self._private)

    def _shown(self) -> Iterator[_Entry]:
        for path in self._plan.readable:
            try:
                source = os.open(path, _HANDLE)
            except OSError:
                continue  # it is not there, or the account may not see it
            real = _path_of(source)
            for place in {place for place in (path, real) if self._is_covered(place)}:
                tree = kernel.copy_of(source, real)
                kernel.make_read_only(tree, real)
                yield _entry(_SHOW, place, tree)
            os.close(source)

    def _opened(self) -> Iterator[_Entry]:
        plan = self._plan
        for path in (plan.workspace, *([plan.repository] if plan.repository else []), *plan.writable):
            source = os.open(path, _HANDLE)
            real = _path_of(source)
            if path == plan.workspace and plan.shown is not None:
                os.close(source)
                source = os.open(plan.shown, _FOLDER | os.O_NOFOLLOW)
            for place in {real, *([path] if self._is_covered(path) else [])}:
                yield _entry(_OPEN, place, kernel.copy_of(source, real))
            os.close(source)

    def _own(self) -> Iterator[_Entry]:
        for path, folder in self._plan.own.items():
            with suppress(OSError):
                os.mkdir(path, _OWN)  # a mount point: what is above may be no folder of the stage
            source = os.open(folder, _FOLDER | os.O_NOFOLLOW)
            real, is_covered = _real(path), self._is_covered(path)
            is_shared = os.path.dirname(path) in self._plan.writable  # and open at both of its paths
            for place in {real, path} if is_covered and is_shared else {path if is_covered else real}:
                tree = kernel.copy_of(source, folder)
                self._rooms[place] = os.dup(tree)
                self._agents.append(place)
                yield _entry(_OPEN, place, tree)
            os.close(source)

    def _unchangeable(self) -> Iterator[_Entry]:
        agents = tuple(f"{place}/" for place in self._agents)
        for named in self._plan.read_only:
            path = named.rstrip("/")
            is_own = path.startswith(agents)
            try:
                source = _opened_or_made(named, is_made=not is_own)
            except OSError:
                continue  # the person has none
            if not stat.S_ISLNK(os.fstat(source).st_mode):
                covered = {path} if self._is_covered(path) else set()
                for place in {path} if is_own else {_path_of(source), *covered}:
                    tree = kernel.copy_of(source, path)
                    kernel.make_read_only(tree, path)
                    yield _entry(_OPEN, place, tree)
            elif is_own:
                _copy_link(path, self._rooms[os.path.dirname(path)])
            os.close(source)

    def _is_covered(self, path: str) -> bool:
        return f"{path}/".startswith(self._covers)

    def _copies(self) -> Iterator[tuple[str, bytes, int]]:
        for pattern in self._plan.copied:
            folder, begin = os.path.split(pattern.rstrip("*"))
            with suppress(OSError):
                for name in sorted(os.listdir(folder)):
                    if name == begin or (pattern.endswith("*") and name.startswith(begin)):
                        yield from _content(os.path.join(folder, name))

    # --- afterwards ---------------------------------------------------------------------------------
    def _carry_out(self, entry: _Entry, has_more_below: bool) -> None:
        try:
            if entry.tree < 0:
                self._attach_new(entry, has_more_below)
                return
            target = self._place(entry.path, entry.tree)
            kernel.attach(entry.tree, target, entry.path)
            os.close(target)
            os.close(entry.tree)
        except OSError as error:
            if entry.kind != _SHOW:
                raise OSError(error.errno, error.strerror, entry.path) from error

    def _attach_new(self, entry: _Entry, has_more_below: bool) -> None:
        """Mount an empty folder, or over a file an empty file; nothing where there is nothing to hide."""
        private = entry.kind == _PRIVATE
        try:
            target = self._place(entry.path, self._stage) if private else os.open(entry.path, _HANDLE)
        except FileNotFoundError:
            return  # an account's home, for example, which was never made
        except OSError:
            if private:
                raise
            return
        if not _is_folder(target):
            source = self._void_file
        elif private or has_more_below:
            source = self._rooms[entry.path] = self._new_room(entry.path, private=private)
        else:
            source = self._void
        tree = kernel.copy_of(source, entry.path)
        if not private:
            kernel.make_read_only(tree, entry.path)
        kernel.attach(tree, target, entry.path)
        os.close(tree)
        os.close(target)

    def _new_room(self, path: str, *, private: bool) -> int:
        name = str(len(self._rooms))
        os.mkdir(name, dir_fd=self._stage)
        os.chmod(name, _mode(path, private=private), dir_fd=self._stage)
        return os.open(name, _FOLDER, dir_fd=self._stage)

    def _place(self, path: str, like: int) -> int:
        """Return a descriptor of the mount point at `path`; make it if it is in a folder of the stage.

        It becomes a folder or a file as `like`, an open one.
        """
        above, last = os.path.split(path)
        if (room := self._rooms.get(above)) is None:
            with suppress(FileNotFoundError):
                return os.open(path, _HANDLE)
            room = self._room_for(above)
        _make_mount_point(last, room, _is_folder(like))
        if path.startswith(tuple(f"{place}/" for place in self._agents)):
            return os.open(last, _HANDLE | os.O_NOFOLLOW, dir_fd=room)  # not by a link of an agent's
        return os.open(path, _HANDLE)

    def _room_for(self, path: str) -> int:
        """Return a folder of the stage, made below the nearest room; it counts as one from now on."""
        above, last = os.path.split(path)
        if path == "/":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if path not in self._rooms:
            room = self._room_for(above)
            with suppress(FileExistsError):
                os.mkdir(last, 0o755, dir_fd=room)
            self._rooms[path] = os.open(last, _FOLDER | os.O_NOFOLLOW, dir_fd=room)
        return self._rooms[path]

    def _write_copy(self, path: str, content: bytes, mode: int) -> None:
        """Write a file into a private folder; anywhere else it is what it was, or hidden."""
        folder, name = os.path.split(path)
        if folder in self._private:
            file = os.open(name, _NEW, mode, dir_fd=self._rooms[folder])
            os.write(file, content)
            os.close(file)

    def _finish_devices(self) -> None:
        room = self._rooms["/dev"]
        for name, target in _LINKS.items():
            os.symlink(target, name, dir_fd=room)
        os.mkdir("pts", dir_fd=room)
        options = "newinstance,ptmxmode=0666,mode=0620"
        kernel.mount("devpts", "/dev/pts", kernel.NO_SUID | kernel.NO_EXEC, options)


def _real(path: str) -> str:
    """Return a path without links; as it is if it leads nowhere."""
    try:
        opened = os.open(path, _HANDLE)
    except OSError:
        return path
    real = _path_of(opened)
    os.close(opened)
    return real


def _path_of(opened: int) -> str:
    return os.readlink(f"/proc/self/fd/{opened}")


def _is_folder(opened: int) -> bool:
    return stat.S_ISDIR(os.fstat(opened).st_mode)


def _entry(kind: int, path: str, tree: int) -> _Entry:
    return _Entry(path.rstrip("/").count("/"), kind, path, tree)


def _mode(path: str, *, private: bool) -> int:
    if not private:
        return 0o555
    return _SHARED if path.rpartition("/")[2] in {"tmp", "shm"} else _OWN


def _devices() -> Iterator[_Entry]:
    for name in DEVICES:
        source = os.open(f"/dev/{name}", _HANDLE)
        yield _entry(_OPEN, f"/dev/{name}", kernel.copy_of(source, f"/dev/{name}"))
        os.close(source)


def _make_mount_point(name: str, room: int, is_folder: bool) -> None:
    """Make a folder or a file; what an agent has put there is moved away."""
    with suppress(FileNotFoundError):
        there = os.stat(name, dir_fd=room, follow_symlinks=False).st_mode
        if stat.S_ISDIR(there) if is_folder else stat.S_ISREG(there):
            return
        os.rename(name, f"{name}.{os.urandom(4).hex()}", src_dir_fd=room, dst_dir_fd=room)
    with suppress(FileExistsError):
        if is_folder:
            os.mkdir(name, 0o755, dir_fd=room)
        else:
            os.close(os.open(name, _NEW | os.O_EXCL, 0o644, dir_fd=room))


def _opened_or_made(path: str, *, is_made: bool) -> int:
    """Open a file, or a folder that ends with a slash, or a link; make an empty one, else an agent could."""
    plain = path.rstrip("/")
    try:
        return os.open(plain, _HANDLE | os.O_NOFOLLOW)
    except FileNotFoundError:
        if not is_made:
            raise
    with suppress(FileExistsError):
        if path.endswith("/"):
            os.mkdir(plain, _OWN)
        else:
            file = os.open(plain, _NEW | os.O_EXCL, 0o600)
            os.write(file, b"{}\n" if path.endswith(".json") else b"")
            os.close(file)
    return os.open(plain, _HANDLE | os.O_NOFOLLOW)


def _copy_link(path: str, room: int) -> None:
    """Make the same link in another folder; it may lead to what is out of sight."""
    name = os.path.basename(path)
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=room)
    os.symlink(os.readlink(path), name, dir_fd=room)


def _content(path: str) -> Iterator[tuple[str, bytes, int]]:
    """Yield a regular file that is not too large, with its mode."""
    file = os.open(path, _PLAIN)
    try:
        seen = os.fstat(file)
        if stat.S_ISREG(seen.st_mode) and seen.st_size <= _LARGEST_COPY:
            with open(file, "rb", closefd=False) as opened:
                yield path, opened.read(), stat.S_IMODE(seen.st_mode)
    finally:
        os.close(file)


# --- inside the workspace -----------------------------------------------------------------------------
def _guard(workspace: str, repository: str | None) -> None:
    """Make mount points of what may not be moved, and read-only ones of what may not be changed.

    Links are not followed: an agent may have made them.
    """
    top = os.open(workspace, _FOLDER)
    for name in FIXED:
        _mount_over_itself(top, name, read_only=name == ".git" and repository is not None)
    with suppress(FileNotFoundError, NotADirectoryError):
        git = os.open(".git" if repository is None else repository, _FOLDER | os.O_NOFOLLOW, dir_fd=top)
        for name in GUARDED:
            _make_missing(git, name)
            _mount_over_itself(git, name, read_only=True)
        os.close(git)
    os.close(top)


def _mount_over_itself(folder: int, name: str, *, read_only: bool) -> None:
    """Make a mount point of an entry of a folder, if it is there."""
    try:
        place = os.open(name, _HANDLE | os.O_NOFOLLOW, dir_fd=folder)
    except FileNotFoundError:
        return
    if stat.S_ISLNK(os.fstat(place).st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    tree = kernel.copy_of(place, name)
    if read_only:
        kernel.make_read_only(tree, name)
    kernel.attach(tree, place, name)
    os.close(tree)
    os.close(place)


def _make_missing(repository: int, name: str) -> None:
    """Make the hooks' folder, or the settings, of a repository without: else an agent could make them."""
    with suppress(FileExistsError, FileNotFoundError):
        os.stat("HEAD", dir_fd=repository, follow_symlinks=False)
        if name == "hooks":
            os.mkdir(name, dir_fd=repository)
        else:
            os.close(os.open(name, _NEW | os.O_EXCL, 0o644, dir_fd=repository))


# --- Landlock -----------------------------------------------------------------------------------------
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2

_WRITE_FILE, _READ_FILE, _READ_FOLDER, _TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 14
_REFER = 1 << 13
_CHANGES = 0b1111111110000 | _WRITE_FILE
"""Making and removing entries of a folder, and writing files: what the first version knows."""
_READS = _READ_FILE | _READ_FOLDER
_OF_A_FILE = _WRITE_FILE | _READ_FILE | _TRUNCATE

_READABLE = (
    "/bin", "/dev", "/etc", "/gnu", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/opt", "/proc", "/sbin",
    "/snap", "/sys", "/usr", "/var/cache", "/var/lib",
)  # fmt: skip
_SHARED_PLACES = ("/tmp",)  # noqa: S108
"""Without a view of its own, a run shares this with every account."""


def writes_known(version: int) -> int:
    """Return the rights to write that this version of Landlock can withhold."""
    return _CHANGES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)


def scopes_known(version: int) -> int:
    """Return the scopes of this version: abstract sockets and signals, or none."""
    return _ABSTRACT_SOCKETS | _SIGNALS if version >= SCOPES_SINCE else 0


def restrict(plan: Plan, version: int) -> None:
    """Put this process under the plan's rules, permanently; raises OSError.

    Does nothing where the kernel has no Landlock and the plan does not ask for it.
    """
    if version < (SCOPES_SINCE if plan.level == STRICT else 1):
        if plan.level in (STRICT, LANDLOCK):
            raise OSError(95, f"this kernel's Landlock has version {version}", "Landlock")
        return
    alone = plan.level == LANDLOCK
    writes = writes_known(version)
    ruleset = kernel.create_ruleset(writes | (_READS if alone else 0), scopes_known(version))
    _allow(ruleset, writes | _READS * alone, (plan.workspace, *_repository(plan), *plan.writable, *plan.own))
    shared = ("/dev/pts", "/dev/shm", *(_SHARED_PLACES if alone else plan.private))  # noqa: S108
    _allow(ruleset, writes | _READS * alone, shared)
    _allow(ruleset, writes | _READS * alone, (f"/dev/{name}" for name in (*DEVICES, "ptmx")))
    if alone:
        _allow(ruleset, _READS, (*_READABLE, *plan.readable))
    kernel.restrict_self(ruleset)
    os.close(ruleset)


def _allow(ruleset: int, rights: int, paths: Iterable[str]) -> None:
    for path in paths:
        with suppress(FileNotFoundError, PermissionError, NotADirectoryError):
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            folder = stat.S_ISDIR(os.fstat(fd).st_mode)
            kernel.add_rule(ruleset, rights if folder else rights & _OF_A_FILE, fd, path)
            os.close(fd)


def _repository(plan: Plan) -> tuple[str, ...]:
    return () if plan.repository is None else (plan.repository,)
