"""Programs inside a sandbox, started without shim and daemon: as this account, and as an ordinary one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import pytest
from tests.support.leaks import FOLDERS
from tests.support.runs import PACKAGE, PYTHON

from handoffd.execute.sandbox import entry
from handoffd.execute.sandbox.plan import Plan

ORDINARY = 1000
"""An account without rights; it need not have a name."""
PATH = "/usr/local/bin:/usr/bin:/bin"

_PROGRAM = """
import json, os, sys
sys.path.append({package!r})
from handoffd.execute.runner import spawn
from handoffd.execute.sandbox import entry
from handoffd.execute.sandbox.plan import Plan
given = json.loads(sys.stdin.read())
if given["account"] != os.geteuid():
    os.setgroups([])
    os.setgid(given["account"])
    os.setuid(given["account"])
null = os.open("/dev/null", os.O_RDONLY)
try:
    kept = entry.start(Plan.from_raw(given["plan"]), given["argv"], given["env"], given["cwd"], null, 1)
except spawn.Refusal as refusal:
    sys.exit(str(refusal))
kept.seen()
os.waitpid(kept.keeper, 0)
sys.exit(os.waitstatus_to_exitcode(kept.ended()))
"""


@dataclass(frozen=True)
class Box:
    """A folder of an account, with a workspace and things outside of it."""

    folder: Path
    account: int

    @property
    def workspace(self) -> Path:
        """A git repository with an `.ai` folder."""
        return self.folder / "work"

    @property
    def home(self) -> Path:
        """A home with a secret in it."""
        return self.folder / "home"

    def plan(self, **more: object) -> Plan:
        """Return the plan that hides everything in the folder but the workspace."""
        values: dict[str, object] = {
            "level": "auto",
            "network": "on",
            "workspace": str(self.workspace),
            "hidden": ("/root", "/home", "/run", str(self.folder)),
            "private": ("/tmp", "/var/tmp", str(self.home)),
        }
        return Plan.from_raw(values | more)

    def run(
        self, script: str, plan: Plan | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Return how a shell script ended in the workspace, inside the plan (the usual one)."""
        given = {
            "account": self.account,
            "plan": asdict(plan or self.plan()),
            "argv": ["/bin/sh", "-c", script],
            "env": {"PATH": PATH, "HOME": str(self.home), **(env or {})},
            "cwd": str(self.workspace),
        }
        program = [PYTHON, "-I", "-S", "-c", _PROGRAM.format(package=PACKAGE)]
        return subprocess.run(
            program, input=json.dumps(given), capture_output=True, check=False, text=True, timeout=60
        )


@contextmanager
def box(account: int) -> Iterator[Box]:
    """Lend a folder that belongs to `account`."""
    require_namespaces()
    made = Box(Path(tempfile.mkdtemp(prefix=FOLDERS, dir="/var/tmp")), account)
    try:
        for path in (made.workspace / ".ai", made.workspace / ".git/hooks", made.home / ".ssh"):
            path.mkdir(parents=True)
        (made.workspace / ".git/HEAD").write_text("ref: refs/heads/main\n")
        (made.workspace / ".git/config").write_text("[core]\n")
        (made.home / ".ssh/id").write_text("a secret\n")
        for folder, _, names in os.walk(made.folder):
            for path in (Path(folder), *(Path(folder, name) for name in names)):
                os.chown(path, account, account)
        made.folder.chmod(0o755)
        yield made
    finally:
        shutil.rmtree(made.folder)


def accounts() -> list[int]:
    """Return the accounts that this test can be: its own, and as root an ordinary one."""
    return [os.geteuid(), ORDINARY] if os.geteuid() == 0 else [os.geteuid()]


def require_namespaces() -> None:
    """Skip the test where no sandbox can be made."""
    if not is_possible():
        pytest.skip("this machine forbids namespaces; `handoffd doctor` says how to permit them")


@cache
def is_possible() -> bool:
    """Tell whether the usual sandbox can be made here; without it, daemons of tests do without."""
    command = [PYTHON, "-I", "-S", "-E", entry.__file__, "auto", "on"]
    return subprocess.run(command, check=False, capture_output=True, timeout=60).returncode == 0
