"""Runs git so that nothing which a repository's settings, attributes or refs name is run or followed.

git works from a folder of our own beside the repository: with our index and our settings, and only the
objects are shared. The repository's settings are not read, with one exception: to remove refs git must work
from the repository's own folder, where hooks are off and nothing can be fetched.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import IO, NoReturn

from handoffd.errors import StoreError
from handoffd.git.repository import COMMIT, Repository

FAILED = "GIT_FAILED"
TOO_SLOW = "GIT_TOO_SLOW"

_MOST_OUTPUT = 64 * 1024 * 1024
_END_S = 1.0
"""How long git may take to remove its unfinished files when it is asked to end."""
_MOST_SAID = 300
_DELETING = "deleting"
"""The file in the shadow that is there while git removes a ref."""


class Git:
    """Runs git on one repository, for at most `limit_s`. Raises StoreError: GIT_FAILED, GIT_TOO_SLOW."""

    def __init__(
        self,
        program: str,
        repository: Repository,
        shadow: Path,
        environment: Mapping[str, str],
        limit_s: float,
    ) -> None:
        self.durable = False
        """Whether what git writes must survive a power cut at once: each object costs a sync."""
        self.lock: int | None = None
        """Held by each git, too: one that outlives a killed daemon is waited for."""
        self.scratch: str | None = None
        """Where new objects go instead of into the repository: a folder that is thrown away."""
        self._program = program
        self._repository = repository
        self._shadow = shadow
        self._daemon = environment
        self._limit_s = limit_s
        self._until = time.monotonic() + limit_s

    @property
    def shadow(self) -> Path:
        """Our folder beside the repository."""
        return self._shadow

    @property
    def left_s(self) -> float:
        """How many seconds of its limit are left."""
        return max(self._until - time.monotonic(), 0.0)

    def run(
        self,
        *words: str,
        given: bytes | Path = b"",
        fine: Collection[int] = (0,),
        at: datetime | None = None,
        author: str | None = None,
        index: str = "index",
    ) -> bytes:
        """Return what git prints, of a command that works on the files, the objects and our `index`.

        `given` is what it reads, or a file with that. `fine`: the exit codes that do not count as a failure.
        `at` dates a commit; `author` is `NAME <ADDRESS>`. An `index` may be another one, by its whole path.
        """
        dates = {} if at is None else {f"GIT_{who}_DATE": at.isoformat() for who in ("AUTHOR", "COMMITTER")}
        return self._told(words, {**self._places(index), **dates, **_signed(author)}, given, fine)[0]

    def is_so(self, *words: str) -> bool:
        """Return whether git says yes to a question: by its exit code, 0 or 1."""
        return self._told(words, self._places("index"), b"", (0, 1))[1] == 0

    def _places(self, index: str) -> dict[str, str]:
        return {
            "GIT_DIR": str(self._shadow),
            "GIT_WORK_TREE": self._repository.top,
            **self._objects(),
            "GIT_INDEX_FILE": str(self._shadow / index),
            "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": "core.excludesFile",
            "GIT_CONFIG_VALUE_0": self._ignoring(),
            "GIT_CONFIG_KEY_1": "core.attributesFile",
            "GIT_CONFIG_VALUE_1": os.devnull,
            **self._shallow(),
        }

    def _objects(self) -> dict[str, str]:
        """Return where git finds objects, and where it writes new ones."""
        objects = os.path.join(self._repository.common, "objects")
        if self.scratch is None:
            return {"GIT_OBJECT_DIRECTORY": objects}
        quoted = objects.replace("\\", "\\\\").replace('"', '\\"')  # a path may have a colon
        return {"GIT_OBJECT_DIRECTORY": self.scratch, "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"'}

    def _shallow(self) -> dict[str, str]:
        """Return where git finds at which commits a history without its beginning ends."""
        path = os.path.join(self._repository.common, "shallow")
        return {"GIT_SHALLOW_FILE": path} if os.path.isfile(path) and not os.path.islink(path) else {}

    def make_shadow(self, kind: str) -> None:
        """Make our folder: a repository without objects of its own. `kind`: sha1 or sha256."""
        words = ("init", "--quiet", "--bare", "--template=", f"--object-format={kind}", str(self._shadow))
        self._told(words, {}, b"", (0,))

    def delete_ref(self, ref: str, commit: str) -> None:
        """Remove a ref of the repository that has this value still."""
        note, common = self._shadow / _DELETING, Path(self._repository.common)
        for lock in (common / f"{ref}.lock", common / "packed-refs.lock"):
            if _is_of(lock, note, self._limit_s) and left_in(lock) is not None:
                lock.unlink(missing_ok=True)
        self._shadow.mkdir(mode=0o700, parents=True, exist_ok=True)  # of a clone that was never made whole
        note.touch()
        self._update_refs(b"delete %s\0%s\0" % (ref.encode(), commit.encode()))
        note.unlink(missing_ok=True)

    def move_ref(self, ref: str, commit: str, was: str) -> None:
        """Have a ref of the repository that has the value `was` still end at a commit."""
        folder = self._repository.common
        for part in ref.split("/")[:-1]:  # git would write where a link leads
            folder = os.path.join(folder, part)
            if os.path.islink(folder):
                raise StoreError(f"{folder} is a link", code=FAILED)
        self.let_go(ref, commit)
        self._update_refs(b"update %s\0%s\0%s\0" % (os.fsencode(ref), commit.encode(), was.encode()))

    def let_go(self, ref: str, commit: str) -> None:
        """Remove the lock of a ref which a git has left that was killed while it moved the ref for us.

        It names nothing yet, or this commit or an earlier one, and is not touched any more. Others stay.
        """
        lock = Path(self._repository.common, f"{ref}.lock")
        if (told := left_in(lock)) is not None and (told in {"", commit} or self._is_behind(told, commit)):
            lock.unlink(missing_ok=True)

    def _is_behind(self, earlier: str, commit: str) -> bool:
        with suppress(StoreError):  # it is not there
            return COMMIT.fullmatch(earlier) is not None and self.is_so(
                "merge-base", "--is-ancestor", earlier, commit
            )
        return False

    def _update_refs(self, order: bytes) -> None:
        for name in ("packed-refs", "logs"):
            if os.path.islink(os.path.join(self._repository.common, name)):
                raise StoreError(f"{self._repository.common}/{name} is a link", code=FAILED)
        places = {"GIT_DIR": self._repository.folder}
        self._told(("update-ref", "-m", "handoffd", "--no-deref", "-z", "--stdin"), places, order, (0,))

    def _told(
        self, words: Sequence[str], places: Mapping[str, str], given: bytes | Path, fine: Collection[int]
    ) -> tuple[bytes, int]:
        """Return what git prints, and its exit code."""
        command = [self._program, *_SETTINGS, *(_DURABLE if self.durable else ()), *words]
        # Files, not pipes: a process that git leaves behind would hold a pipe open.
        with (
            _holding(given) as stdin, tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as errors,
        ):  # fmt: skip
            try:
                process = subprocess.Popen(
                    command, env={**self._base(), **places}, cwd=self._repository.top,
                    stdin=stdin, stdout=told, stderr=errors, start_new_session=True,
                    pass_fds=() if self.lock is None else (self.lock,),
                )  # fmt: skip
            except OSError as error:
                raise StoreError(f"git: {error.strerror}", code=FAILED) from error
            code = self._code_of(process, words[0])
            told.seek(0)
            errors.seek(0)
            said = told.read(_MOST_OUTPUT + 1)
            if code not in fine:
                _failed(words[0], code, errors.read(4096))
            if len(said) > _MOST_OUTPUT:
                raise StoreError(f"git {words[0]}: it prints more than {_MOST_OUTPUT:,} bytes", code=FAILED)
            return said, code

    def _code_of(self, process: subprocess.Popen[bytes], word: str) -> int:
        if not _ends_within(process, self.left_s):
            os.killpg(process.pid, signal.SIGTERM)  # it removes its unfinished files
            _ends_within(process, _END_S)
            os.killpg(process.pid, signal.SIGKILL)  # also what it has started; it is not waited for yet
            process.wait()
            raise StoreError(f"git {word} did not end within {self._limit_s:.0f} s", code=TOO_SLOW)
        return process.wait()

    def _base(self) -> dict[str, str]:
        """Return an environment in which git takes up only the settings that are given here."""
        return {
            "PATH": self._daemon.get("PATH", os.defpath), "LC_ALL": "C", "HOME": "/nonexistent",
            "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1",
            "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none",
            **{f"GIT_{who}_NAME": "handoffd" for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_EMAIL": "handoffd@localhost" for who in ("AUTHOR", "COMMITTER")},
        }  # fmt: skip

    def _ignoring(self) -> str:
        names = ("HOME", "XDG_CONFIG_HOME")
        variables = tuple((name, self._daemon[name]) for name in names if name in self._daemon)
        return ignored_everywhere(self._program, variables)


_LIVES_S = 1.0


def left_in(lock: Path) -> str | None:
    """Return what a lock has that no living git works on; None where there is no such lock. Blocks."""
    until = time.monotonic() + _LIVES_S
    try:
        before = lock.stat()
        while time.monotonic() < until:
            if lock.stat() != before:
                return None
            time.sleep(_LIVES_S / 20)
        return lock.read_text("ascii", "replace").strip()
    except OSError:
        return None


def _is_of(lock: Path, note: Path, limit_s: float) -> bool:
    """Return whether a lock was taken while our git may have been at work that `note` was made for."""
    with suppress(OSError):
        return 0 <= lock.stat().st_mtime_ns - note.stat().st_mtime_ns <= limit_s * 1e9
    return False


def _holding(given: bytes | Path) -> IO[bytes]:
    """Return a file that git reads; the caller closes it."""
    if isinstance(given, Path):
        return given.open("rb")
    file = tempfile.TemporaryFile()  # noqa: SIM115  (as above)
    file.write(given)
    file.seek(0)
    return file


def _signed(author: str | None) -> dict[str, str]:
    if author is None:
        return {}
    name, _, address = author.rstrip(">").rpartition(" <")
    return {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": address}


_SETTINGS = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false",
    "-c", "core.bare=false", "-c", "core.commitGraph=false", "-c", "core.multiPackIndex=false",
    "-c", "gc.auto=0", "-c", "core.splitIndex=false",
)  # fmt: skip
_DURABLE = ("-c", "core.fsync=all")
"""git's own default is that a commit is on the disk some seconds later."""


@lru_cache(maxsize=8)
def ignored_everywhere(program: str, variables: tuple[tuple[str, str], ...]) -> str:
    """Return the path of the account's own list of ignored files, whether it exists or not.

    `variables` tell where the account's settings are. It is asked once: another path needs another daemon.
    """
    home = dict(variables)
    usual = os.path.join(home.get("XDG_CONFIG_HOME") or f"{home.get('HOME', '')}/.config", "git/ignore")
    return setting(program, ("--global",), "core.excludesFile", home) or usual


def setting(program: str, where: Sequence[str], key: str, home: Mapping[str, str]) -> str:
    """Return a setting of git as a path would be, empty when it has none. `git config` runs nothing."""
    words = (program, "config", *where, "--type=path", "--get", key)
    with suppress(OSError, subprocess.TimeoutExpired):
        told = subprocess.run(
            words, env={"PATH": os.defpath, **home}, cwd="/", capture_output=True, timeout=5, check=False
        )
        return os.fsdecode(told.stdout).rstrip("\n")
    return ""


def _ends_within(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Return whether a process ends in time. `Popen.wait` would look again and again, ever more seldom."""
    handle = os.pidfd_open(process.pid)
    try:
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        return bool(ended.poll(limit_s * 1000))
    finally:
        os.close(handle)


def _failed(word: str, code: int, said: bytes) -> NoReturn:
    lines = " ".join(said.decode(errors="replace").split())
    why = lines[:_MOST_SAID] or (f"signal {-code}" if code < 0 else f"exit code {code}")
    raise StoreError(f"git {word}: {why}", code=FAILED)
