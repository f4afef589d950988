"""How long a new user waits: from `pipx install` to the end of an agent's first step.

    python -m tests.benchmarks.first_step [--json]

The commands are the README's, in a home of their own, and `pipx` downloads the packages: with uv, or
with pip if PIPX_DEFAULT_BACKEND names it. There is no systemd, and a script plays claude.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.measures import machine
from tests.benchmarks.rows import Row, table
from tests.support.installing import PYTHON, REPOSITORY, TOOLS

Json = dict[str, Any]

GOAL_S = 60.0
LIMIT_S = 600.0
_ASK_EVERY_S = 0.02
_HEADING = "\n## A minute with claude\n"
_SECOND = re.compile(r"in a second terminal: (.+)")
_INDEX = ("PIP_", "PIPX_DEFAULT_BACKEND", "SSL_", "REQUESTS_", "HTTP", "http", "NO_PROXY", "no_proxy")
"""How the names begin of variables that say where packages are, and how to get them."""

PROGRAMS = {
    "pipx": f'exec {TOOLS / "pipx"} "$@"',
    # Plugins of this project's pytest take longer to load than a user's whole run.
    "python3": f'PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 exec {sys.executable} "$@"',
    "claude": """[ "$1" = --version ] && echo 2.1.0 && exit
exec "$(dirname "$(readlink -f ~/.local/bin/handoffd)")/python" -m handoffd.rehearsal""",
}
"""What a new user has; claude is the rehearsal."""
FILES = {
    "basket.py": "def total(prices):\n    return sum(prices)\n",
    "test_basket.py": "from basket import total\n\n\ndef test_total():\n    assert total([1, 2]) == 3\n",
    ".gitignore": "__pycache__/\n",
}


def quick_start() -> list[str]:
    """Return the README's commands up to the first story; of two for the daemon, the one without systemd."""
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8").partition(_HEADING)[2]
    lines = text.split("```")[1].strip().splitlines()
    typed = [
        found[1] if (found := _SECOND.search(line)) else line.partition("#")[0].strip() for line in lines
    ]
    return typed[: next(at for at, line in enumerate(typed) if line.startswith("handoffd start ")) + 1]


class NewUser:
    """A home with a project in it, and a shell."""

    def __init__(self, home: Path, sockets: Path) -> None:
        self.home, self.folder = home, REPOSITORY
        self.seconds: dict[str, float] = {}
        """What each part took."""
        self._environment = {
            **{name: value for name, value in os.environ.items() if name.startswith(_INDEX)},
            "HOME": str(home), "PATH": f"{home}/.local/bin:{home}/bin:/usr/bin:/bin", "LANG": "C.UTF-8",
            "XDG_RUNTIME_DIR": str(sockets), "EMAIL": "alice@example.com", "PIPX_DEFAULT_PYTHON": str(PYTHON),
            # The stand-in for python3 leads out of the folders of programs, to the Python that has pytest.
            "HANDOFFD_SANDBOX__VISIBLE": json.dumps([sys.prefix, sys.base_prefix]),
        }  # fmt: skip
        (home / "bin").mkdir()
        for name, text in PROGRAMS.items():
            (home / "bin" / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            (home / "bin" / name).chmod(0o755)
        project = home / "projects/shop"
        project.mkdir(parents=True)
        for name, text in FILES.items():
            (project / name).write_text(text, encoding="utf-8")
        self.types(f"cd {project} && git init -qb main && git add . && git commit -qm Begin")

    def types(self, command: str) -> str:
        """Return what a command prints; `cd` alone is where the next one is typed."""
        if found := re.fullmatch(r"cd ~/(\S+)", command):
            self.folder = self.home / found[1]
            return ""
        done = subprocess.run(
            ["bash", "-c", command], env=self._environment, cwd=self.folder, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        assert 0 == done.returncode, (command, done.stdout, done.stderr)
        return done.stdout

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Keep how long the block takes as a part."""
        began = time.perf_counter()
        yield
        self.seconds[part] = time.perf_counter() - began

    @contextmanager
    def second_terminal(self, command: str) -> Iterator[None]:
        """Have a command at work in another terminal, once the daemon that it starts answers."""
        with (self.home / "daemon.log").open("wb") as log:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                env=self._environment,
                cwd=self.home,
                stdout=log,
                stderr=log,
            )
        try:
            self.until("handoffd status --json", lambda told: told["daemon"])
            yield
        finally:
            self.types("handoffd stop --executors || true")
            process.terminate()
            process.wait(60)

    def until(self, command: str, done: Callable[[Json], bool]) -> Json:
        """Ask with a command that prints JSON until the answer will do; return it."""
        latest = time.perf_counter() + LIMIT_S
        while not done(answer := json.loads(self.types(command))):
            assert time.perf_counter() < latest, (answer, (self.home / "daemon.log").read_text())
            time.sleep(_ASK_EVERY_S)
        found: Json = answer
        return found


def measure(user: NewUser, install: Callable[[str], object]) -> Json:
    """Type the README's commands, the first by `install`; return the first run, and what each part took."""
    installs, runs, enters, prepares, starts = quick_start()
    with user.timed("install"):
        install(installs)
    user.types(enters)
    with ExitStack() as terminals:
        with user.timed("daemon"):
            terminals.enter_context(user.second_terminal(runs))
        with user.timed("init"):
            user.types(f"{prepares} --yes")
        with user.timed("start"):
            user.types(starts)
        with user.timed("first step"):
            told = user.until(
                "handoffd runs . --json", lambda told: any(one["result"] for one in told["runs"])
            )
    return {"machine": machine(user.home), "run": told["runs"][-1], "seconds": user.seconds}


def text(found: Json) -> str:
    """Return the report for people."""
    about = ", ".join(f"{name} {value}" for name, value in found["machine"].items())
    rows = [Row(what=part, value=took, unit="s") for part, took in found["seconds"].items()]
    whole = Row(what="in all", value=sum(found["seconds"].values()), unit="s", at_most=GOAL_S)
    return table(f"{found['run']['step']}: {found['run']['result']}", [*rows, whole], [about])


def main() -> int:
    """Measure once, and print what each part took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    as_json = parser.parse_args().json
    with tempfile.TemporaryDirectory(prefix="first-") as home, tempfile.TemporaryDirectory() as sockets:
        user = NewUser(Path(home), Path(sockets))
        found = measure(user, user.types)
    print(json.dumps(found) if as_json else text(found))
    return 0 if found["run"]["result"] == "pass" else 1


if __name__ == "__main__":
    sys.exit(main())
