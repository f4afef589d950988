"""A reader of the pages: a home of its own with the real program, and a shell to type what they say.

Programs that only end well replace what needs a package index or a service manager.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.installing import AS_PERSON
from tests.support.recording import Shown, recorded
from tests.support.walks import script

PROGRAM = Path(sys.executable).parent / "handoffd"

WELL = "#!/bin/sh\n"
RUN = f"""setsid {PROGRAM} run > "$HOME/daemon.log" 2>&1 &
        until {PROGRAM} status --json | grep -q '"daemon": true'; do sleep 0.1; done"""
STAND_INS = {
    **dict.fromkeys(("pipx", "systemctl", "systemd-run", "loginctl", "journalctl"), WELL),
    "vi": WELL + 'echo sk-secret > "$1"\n',
    "claude": WELL + '[ "$1" = --version ] && echo 2.1.0 || exec sleep 300\n',
    "handoffd": WELL
    + f"""case "$1 $2" in
    "service install")
        {" ".join(AS_PERSON)} {PROGRAM} "$@" --no-start || exit
        export CREDENTIALS_DIRECTORY=$HOME/.secrets
        {RUN} ;;
    "service status") ;;
    "doctor "*) {PROGRAM} doctor || true ;;
    *) exec {PROGRAM} "$@" ;;
    esac
    """,
}
PYTHON = {"python3": WELL + f'exec {sys.executable} "$@"\n'}  # it has pytest
AT_NIGHT = {
    **PYTHON,
    "handoffd": WELL
    + f"""case "$1" in
    run)  # in a second terminal
        {RUN}
        exec cat "$HOME/daemon.log" ;;
    status)  # the reader looks until the story waits for them
        until {PROGRAM} status . --json | grep -qE '"step": "(review|done)"'; do sleep 0.1; done ;;
    esac
    exec {PROGRAM} "$@"
    """,
}
"""What is different for the reader of the tutorial."""
AT_SOME_NIGHT = {**PYTHON, "handoffd": WELL + f'[ "$1" = run ] || exec {PROGRAM} "$@"\n{RUN}\n'}
"""Only the daemon is in another terminal."""


AT_A_FLOW = {
    **PYTHON,
    "handoffd": WELL
    + f"""case "$1 $2" in
    "run ")  # in a second terminal
        {RUN}
        exec cat "$HOME/daemon.log" ;;
    "flow show")  # the reader looks until nothing is at work
        while {PROGRAM} "$@" --json | grep -q '"state": "working"'; do sleep 0.1; done ;;
    esac
    exec {PROGRAM} "$@"
    """,
}
"""What is different for the reader of the tutorial about flows."""


class Person:
    """A user with an empty home, and a shell in it."""

    def __init__(self, home: Path, sockets: Path) -> None:
        self.home = home
        self._environment = {
            "HOME": str(home), "PATH": f"{home / 'bin'}:/usr/bin:/bin", "LANG": "C.UTF-8",
            "XDG_RUNTIME_DIR": str(sockets), "EMAIL": "alice@example.com",
            # The stand-in for python3 leads out of the folders of programs, to the Python that has pytest.
            "HANDOFFD_SANDBOX__VISIBLE": json.dumps([sys.prefix, sys.base_prefix]),
        }  # fmt: skip
        (home / "bin").mkdir()
        self.has(STAND_INS)

    def has(self, programs: Mapping[str, str]) -> None:
        """Put scripts on the PATH, in place of others of the same name."""
        for name, text in programs.items():
            (self.home / "bin" / name).write_text(text, encoding="utf-8")
            (self.home / "bin" / name).chmod(0o755)

    def types(self, *commands: str) -> subprocess.CompletedProcess[str]:
        """Return what a shell says to commands, up to the first that fails."""
        return subprocess.run(
            ["bash", "-uxc", script(commands)], env=self._environment, cwd=self.home, text=True, timeout=240,
            check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def sees(self, commands: Sequence[str]) -> list[Shown]:
        """Return what a terminal shows of each command, up to the first that fails; `q` leaves a review."""
        env = {**self._environment, "TERM": "xterm", "GIT_PAGER": "cat"}
        return recorded(commands, env=env, folder=self.home, keys={"q quit": "q"})

    def lasting(self, line: str) -> str:
        """Return a line without names, paths, times, ids and kernels, which differ between readers."""
        line = line.replace(str(self.home), "/home/alice")
        for differs, same in _DIFFERS.items():
            line = re.sub(differs, same, line)
        return line.rstrip()


_DIFFERS = {
    r"\d{8}T\d{6}-[0-9a-f]{8}": "RUN",
    r"\bpage-[0-9a-z]{4}\b": "FLOW",
    r"/tmp/handoffd-rehearsal-\w+": "COPY",
    r"\b[0-9a-f]{7}\b": "COMMIT",
    r"\b[0-9a-f]{12}…": "COMMIT…",
    r"^ +(?=\d+\.\d s  )": "",
    r"socket=\S+": "SOCKET",
    r"(?<=by )\w+( on pts/\d+)?": "WHO",
    r"(?<=sandbox: ).+": "HOW",
    r" · (baseline|starting)$": "",
    r"for \d+ (s|min|h):": "for a while:",
    r"(?<=usage limit, until ).+": "LATER",
    r"\d+(\.\d+)*": "0",
}
"""Patterns, the longer ones first, and the word that they become."""
