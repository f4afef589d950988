"""Where the daemon is, found without reading more settings than that takes.

The socket follows from two directories. Only when a settings file speaks of one of them is it
read properly, because that costs a quarter of a second; else the environment and the defaults do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

from handoffd.api.client import ANSWER_S, Client
from handoffd.entrance.naming import called
from handoffd.errors import InvalidFile
from handoffd.settings.paths import default_files, default_runtime_dir, default_state_dir

if TYPE_CHECKING:
    from handoffd.settings.model import Settings

SOCKET = "control.sock"
_MOST_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What the command line was told about where to look. `config` is the settings file, if named."""

    config: str | None
    environ: Mapping[str, str]

    def client(self, answer_s: float = ANSWER_S) -> Client:
        """Return a client for the daemon's socket. Raises InvalidFile like `settings`."""
        return Client(self.socket(), answer_s, self._holder)

    def socket(self) -> Path:
        """Return where the daemon would answer."""
        state, runtime = self._variable("STATE_DIR"), self._variable("RUNTIME_DIR")
        if runtime is not None and runtime.startswith("/"):
            return Path(runtime) / SOCKET
        relative = any(given is not None and not given.startswith("/") for given in (state, runtime))
        if relative or self._file_may_say():
            return self.settings().control_socket
        state_dir = Path(state) if state else default_state_dir(self.environ)
        return default_runtime_dir(self.environ, state_dir) / SOCKET

    def settings(self) -> Settings:
        """Return the daemon's settings. Raises InvalidFile."""
        from handoffd.settings.loading import load

        try:
            return load({"config": self.config}, self.environ).settings
        except InvalidFile as invalid:
            named = () if self.config is None else ("--config", self.config)
            hint = join(("handoffd", *named, "config", "check"))
            raise InvalidFile(invalid.problems, hint=hint) from None

    def _holder(self) -> int | None:
        """Return the process that has the state directory, if it says so."""
        from handoffd.files.locks import daemon_lock_path, holder_of

        found = holder_of(daemon_lock_path(self.settings().state_dir))
        return None if found is None else found.pid

    def project(self, word: str | None) -> str:
        """Return what to call a project by: an absolute path, or a name. None is the current folder."""
        return os.getcwd() if word is None else called(word)

    def _variable(self, name: str) -> str | None:
        wanted = f"HANDOFFD_{name}"
        return next((value for key, value in self.environ.items() if key.upper() == wanted and value), None)

    def _file_may_say(self) -> bool:
        """Return whether the settings file may speak of either directory, or cannot be looked into."""
        path = self.config or next(
            (file for file in default_files(self.environ) if os.path.lexists(file)), None
        )
        if path is None:
            return False
        try:
            with open(path, "rb") as file:
                text = file.read(_MOST_BYTES)
        except OSError:
            return True  # then its reader says what is wrong
        return b"state_dir" in text or b"runtime_dir" in text
