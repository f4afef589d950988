"""The way from nothing to a supervised workspace in docs/how-to/install.md, typed as it stands there.

In a home of its own, by a shell, with the real program and a real daemon. What needs a package index or a
service manager is stood in for by programs that only end well: the daemon is started here, not by its unit.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.installing import AS_PERSON, FOR_A_PERSON
from tests.support.walks import OWN_MACHINE, script, typed

PROGRAM = Path(sys.executable).parent / "handoffd"

WELL = "#!/bin/sh\n"
STAND_INS = {
    **dict.fromkeys(("pipx", "systemctl", "systemd-run", "loginctl", "journalctl"), WELL),
    "vi": WELL + 'echo sk-secret > "$1"\n',
    "claude": WELL + '[ "$1" = --version ] && echo 2.1.0 || exec sleep 300\n',
    "handoffd": WELL
    + f"""case "$1 $2" in
    "service install")
        {" ".join(AS_PERSON)} {PROGRAM} "$@" --no-start || exit
        CREDENTIALS_DIRECTORY=$HOME/.secrets setsid {PROGRAM} run > "$HOME/daemon.log" 2>&1 &
        until [ -S "$XDG_RUNTIME_DIR/handoffd/control.sock" ]; do sleep 0.1; done ;;
    "service status") ;;
    "doctor "*) {PROGRAM} doctor || true ;;
    *) exec {PROGRAM} "$@" ;;
    esac
    """,
}

pytestmark = [pytest.mark.slow, FOR_A_PERSON]


class Person:
    """Somebody with an empty home, and a shell in it."""

    def __init__(self, home: Path, sockets: Path) -> None:
        self.home = home
        self._environment = {
            "HOME": str(home), "PATH": f"{home / 'bin'}:/usr/bin:/bin", "LANG": "C.UTF-8",
            "XDG_RUNTIME_DIR": str(sockets),
        }  # fmt: skip
        (home / "bin").mkdir()
        for name, text in STAND_INS.items():
            (home / "bin" / name).write_text(text, encoding="utf-8")
            (home / "bin" / name).chmod(0o755)

    def types(self, *commands: str) -> subprocess.CompletedProcess[str]:
        """Return what a shell says to commands, up to the first that fails."""
        return subprocess.run(
            ["bash", "-uxc", script(commands)], env=self._environment, cwd=self.home, text=True, timeout=240,
            check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    """Somebody; whatever daemon they leave behind is ended."""
    with tempfile.TemporaryDirectory(prefix="handoffd-") as sockets:  # pytest's folders are too deep for one
        somebody = Person(tmp_path, Path(sockets))
        yield somebody
        somebody.types("handoffd stop --executors || true")


def test_each_command_works_in_its_order_and_the_last_leave_nothing(person: Person) -> None:
    """From the installation to a story in a workspace, and back; the projects stay."""
    done = person.types(*typed(OWN_MACHINE))

    assert 0 == done.returncode, done.stdout
    assert "handoffd.yaml can be used" in done.stdout
    assert "in force from now on: test.command" in done.stdout
    assert re.search(r"^shop +US-001 +bootstrap", done.stdout, re.MULTILINE), done.stdout
    assert (person.home / "projects/shop/.ai/STATE.json").exists()
    left = (".secrets", ".config/handoffd", ".config/systemd/user/handoffd.service", ".local/state/handoffd")
    assert [] == [name for name in left if (person.home / name).exists()]
