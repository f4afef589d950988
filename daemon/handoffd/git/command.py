"""Runs git on one repository so that nothing which its settings or attributes name is run.

Commands on files work from a folder of our own beside the repository: with our index and our settings, and
only the objects are shared. The few that need HEAD or refs work from the repository's folder, without hooks.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from threading import Timer
from typing import IO, NoReturn

from handoffd.errors import StoreError
from handoffd.git.repository import Repository

LIMIT_S = 60.0
"""How long one piece of work may take, whatever it asks of git."""
FAILED = "GIT_FAILED"

_MOST_OUTPUT = 64 * 1024 * 1024


class Git:
    """Runs git on one repository for at most `LIMIT_S` in all. Raises StoreError (GIT_FAILED)."""

    def __init__(
        self, program: str, repository: Repository, shadow: Path, environment: Mapping[str, str]
    ) -> None:
        self.durable = False
        """Whether what git writes must survive a power cut at once: each object costs a sync."""
        self._program = program
        self._repository = repository
        self._shadow = shadow
        self._daemon = environment
        self._until = time.monotonic() + LIMIT_S
        self._ignored: str | None = None
        self._head: tuple[str | None] | None = None

    def make_shadow(self) -> None:
        """Make our folder: a repository without objects of its own, of the same kind as the real one."""
        kind = self.run("rev-parse", "--show-object-format", own=False).decode().strip()
        self._shadow.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = Path(tempfile.mkdtemp(dir=self._shadow.parent))
        self.run("init", "--quiet", "--bare", "--template=", f"--object-format={kind}", str(new), alone=True)
        with suppress(OSError):  # another was as fast
            new.rename(self._shadow)

    def head(self) -> str | None:
        """Return the commit that was checked out when this was asked first; None before the first commit."""
        if self._head is None:
            told = self.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}", own=False, fine=(0, 1))
            self._head = (told.decode().strip() or None,)
        return self._head[0]

    def run(
        self,
        *words: str,
        given: bytes = b"",
        own: bool = True,
        alone: bool = False,
        fine: Collection[int] = (0,),
        at: datetime | None = None,
        more: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return what git prints. With `own`, it works from our folder; else from the repository's.

        `fine`: the exit codes that do not count as a failure. `at` dates a commit. `alone`: on neither.
        """
        places = {} if alone else self._ours() if own else {"GIT_DIR": self._repository.folder}
        dates = {} if at is None else {f"GIT_{who}_DATE": at.isoformat() for who in ("AUTHOR", "COMMITTER")}
        environment = {**self._base(), **places, **dates, **(more or {})}
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as errors:
            stdin.write(given)
            stdin.seek(0)
            code, told = self._ran([self._program, *self._settings(), *words], environment, stdin, errors)
            if code not in fine:
                errors.seek(0)
                _failed(words[0], code, errors.read(4096))
        return told

    def _settings(self) -> tuple[str, ...]:
        return (*_SETTINGS, *_DURABLE) if self.durable else _SETTINGS

    def _ran(
        self, words: Sequence[str], environment: Mapping[str, str], stdin: IO[bytes], errors: IO[bytes]
    ) -> tuple[int, bytes]:
        try:
            process = subprocess.Popen(
                words, env=environment, cwd=self._repository.top,
                stdin=stdin, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        except OSError as error:
            raise StoreError(f"git: {error.strerror}", code=FAILED) from error
        late = Timer(max(self._until - time.monotonic(), 0.0), process.kill)
        late.start()
        try:
            with process:
                assert process.stdout is not None
                told = process.stdout.read(_MOST_OUTPUT)
                if process.stdout.read(1):
                    process.kill()
        finally:
            late.cancel()
        return process.returncode, told

    def _base(self) -> dict[str, str]:
        """Return an environment in which git reads no settings but the repository's, where it must."""
        return {
            "PATH": self._daemon.get("PATH", os.defpath), "LC_ALL": "C", "HOME": "/nonexistent",
            "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1",
            "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_REPLACE_OBJECTS": "1",
            **{f"GIT_{who}_NAME": "handoffd" for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_EMAIL": "handoffd@localhost" for who in ("AUTHOR", "COMMITTER")},
        }  # fmt: skip

    def _ours(self) -> dict[str, str]:
        return {
            "GIT_DIR": str(self._shadow),
            "GIT_WORK_TREE": self._repository.top,
            "GIT_OBJECT_DIRECTORY": os.path.join(self._repository.common, "objects"),
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "core.excludesFile",
            "GIT_CONFIG_VALUE_0": self._ignoring(),
        }

    def _ignoring(self) -> str:
        """Return the file that names what this account ignores everywhere."""
        if self._ignored is None:
            home = {name: self._daemon[name] for name in ("HOME", "XDG_CONFIG_HOME") if name in self._daemon}
            self._ignored = ignored_everywhere(self._program, home)
        return self._ignored


_SETTINGS = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false",
    "-c", "core.bare=false", "-c", "gc.auto=0",
)  # fmt: skip
_DURABLE = ("-c", "core.fsync=all")
"""git's own default is that a commit is on the disk some seconds later."""


def ignored_everywhere(program: str, home: Mapping[str, str]) -> str:
    """Return the path of the account's own list of ignored files, whether it exists or not."""
    usual = os.path.join(home.get("XDG_CONFIG_HOME") or f"{home.get('HOME', '')}/.config", "git/ignore")
    words = (program, "config", "--global", "--type=path", "--get", "core.excludesFile")
    with suppress(OSError, subprocess.TimeoutExpired):
        told = subprocess.run(
            words, env={"PATH": os.defpath, **home}, cwd="/", capture_output=True, timeout=5, check=False
        )
        return os.fsdecode(told.stdout).rstrip("\n") or usual
    return usual


def _failed(word: str, code: int, said: bytes) -> NoReturn:
    lines = said.decode(errors="replace").strip().splitlines()
    why = lines[-1][:300] if lines else f"ended with {code}"
    if code < 0:
        why = f"did not end within {LIMIT_S:.0f} s, or prints too much"
    raise StoreError(f"git {word}: {why}", code=FAILED)
