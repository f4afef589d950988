"""The command line, called in this process or as a program of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.children import ending

from handoffd.cli.main import main

if TYPE_CHECKING:  # httpx and more, which few tests of commands need
    from tests.support.daemon import Daemon

LIMIT_S = 60


@dataclass(frozen=True, slots=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, read as JSON."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """What it printed, line by line."""
        return self.out.splitlines()


class Commands:
    """Calls `main` with words, as the console script does."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *words: str) -> Said:
        """Return what the command says."""
        self._capture.readouterr()
        with pytest.raises(SystemExit) as exited:
            main(words)
        out, err = self._capture.readouterr()
        code = exited.value.code
        assert isinstance(code, int)
        return Said(code, out, err)


def cells(line: str) -> list[str]:
    """Return the columns of a line of a table."""
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def environment(runtime: Path, **more: str) -> dict[str, str]:
    """Return an environment in which `handoffd` finds the daemon at `runtime`, and no person's own."""
    mine = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    places = {"HANDOFFD_RUNTIME_DIR": str(runtime), "HANDOFFD_STATE_DIR": str(runtime / "state")}
    return {**mine, "HOME": str(runtime), **places, **more}


def environment_of(daemon: Daemon, **more: str) -> dict[str, str]:
    """Return an environment in which `handoffd` finds this daemon."""
    return environment(daemon.runtime_dir, HANDOFFD_STATE_DIR=str(daemon.state_dir), **more)


def typed(daemon: Daemon, *words: str) -> Said:
    """Run `python -m handoffd` with a daemon's settings, whether that runs or not."""
    return program("--config", str(daemon.config), *words, env=environment_of(daemon))


def assert_replayed(daemon: Daemon) -> None:
    """Check that every decision in a daemon's journal is made again as it was recorded."""
    said = typed(daemon, "journal", "verify", "--json")
    assert (0, True, []) == (said.code, said.json["clean"], said.json["findings"]), said.out
    assert said.json["replayed"] > 0


def program(*words: str, env: Mapping[str, str]) -> Said:
    """Run `python -m handoffd` to its end."""
    ended = subprocess.run(
        [sys.executable, "-m", "handoffd", *words],
        env=dict(env), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    return Said(ended.returncode, ended.stdout, ended.stderr)


@contextmanager
def started(*words: str, env: Mapping[str, str], **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run `python -m handoffd` until the context ends; its output is piped unless `more` says otherwise."""
    command = [sys.executable, "-m", "handoffd", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with ending(subprocess.Popen(command, env=dict(env), **{**pipes, **more})) as process:
        yield process
