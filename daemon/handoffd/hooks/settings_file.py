"""Claude Code's settings files: where they are, and how one is changed without losing anything in it."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Final

from handoffd.errors import InvalidFile, Problem, Refused, remedies, with_remedy
from handoffd.files.atomic import replace_at, replace_text
from handoffd.files.rooted import open_file, open_parent
from handoffd.hooks.entries import EMPTY, Found, commands, is_ours, with_ours, without_ours

SHARED: Final = ".claude/settings.json"
LOCAL: Final = ".claude/settings.local.json"
MAX_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """One settings file: `name` below `root`, which is a project or a person's home.

    `keep` is a folder of ours for what taking our hooks out could not restore by itself.
    """

    root: Path
    name: str
    keep: Path

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.root / self.name

    def hooks(self) -> tuple[Found, ...]:
        """Return its command hooks. Raises InvalidFile and StoreError."""
        text = self._read()
        with remedies("/"):
            return () if text is None or not text.strip() else commands(text, str(self.path))

    def install(self, command: str, events: tuple[str, ...]) -> bool:
        """Put our hooks in, one at each of `events`; return whether that changed the file.

        Raises InvalidFile and StoreError; nothing is written then.
        """
        before = self._read()
        base = before if before is not None and before.strip() else EMPTY
        with remedies("/"):
            after = with_ours(base, str(self.path), command, events)
        if after == before:
            return False
        known, original = self._original(before)
        if known and without_ours(after, str(self.path)) != original:
            self._remember(after, original)
        self._write(after)
        return True

    def uninstall(self) -> bool:
        """Take our hooks out; return whether there were any. Raises InvalidFile and StoreError."""
        before = self._read()
        if before is None or not before.strip():
            return False
        known, original = self._remembered(before)
        with remedies("/"):
            after = original if known else without_ours(before, str(self.path))
        if after == before:
            return False
        if after is None:
            self._remove()
        else:
            self._write(after)
        with suppress(OSError):
            self._note(before).unlink()
        return True

    def _original(self, before: str | None) -> tuple[bool, str | None]:
        """Return whether it is known what the file was without any hook of ours, and what (None: none)."""
        if before is None or not before.strip():
            return True, before
        if any(is_ours(one.command) for one in commands(before, str(self.path))):
            return self._remembered(before)
        return True, before

    def _read(self) -> str | None:
        with open_file(self.root, self.name) as handle:
            if handle is None:
                return None
            with open(handle, "rb", closefd=False) as file:
                raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise Refused(
                f"{self.path} is longer than {MAX_BYTES} bytes", hint=f"ls -l {quote(str(self.path))}"
            )
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            problem = Problem(file=str(self.path), message=f"byte {error.start} is no UTF-8")
            raise with_remedy(InvalidFile((problem,))) from None

    def _write(self, text: str) -> None:
        with open_parent(self.root, self.name, create=True) as folder:
            assert folder is not None
            replace_at(folder, self.path, text)

    def _remove(self) -> None:
        with open_parent(self.root, self.name) as folder:
            if folder is not None:
                os.unlink(self.path.name, dir_fd=folder)

    def _remember(self, installed: str, original: str | None) -> None:
        self.keep.mkdir(mode=0o700, parents=True, exist_ok=True)
        note = self._note(installed)
        replace_text(note, json.dumps({"file": str(self.path), "original": original}))
        note.chmod(0o600)

    def _remembered(self, installed: str) -> tuple[bool, str | None]:
        """Return whether it is known what the file was before it became `installed`, and what."""
        try:
            data = json.loads(self._note(installed).read_text("utf-8"))
            return True, data["original"]
        except (OSError, ValueError, KeyError, TypeError):
            return False, None

    def _note(self, installed: str) -> Path:
        told = f"{self.path}\0{installed}".encode()
        return self.keep / f"{hashlib.sha256(told).hexdigest()[:32]}.json"
