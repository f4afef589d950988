"""The commands of docs/how-to/install.md and docs/tutorials/first-night.md, typed as they stand there.

A shell types them in a home of its own, with the real program and a real daemon. Programs that only end well
replace what needs a package index or a service manager: the daemon is started here, not by its unit.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.support.installing import AS_PERSON, FOR_A_PERSON
from tests.support.walks import OWN_MACHINE, TUTORIAL, answers, commands, script, typed

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
AT_NIGHT = {
    "python3": WELL + f'exec {sys.executable} "$@"\n',  # it has pytest
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

pytestmark = [pytest.mark.slow, FOR_A_PERSON]


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


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    """A user; a daemon that they leave behind is ended."""
    with tempfile.TemporaryDirectory(prefix="handoffd-") as sockets:  # pytest's folders are too deep for one
        user = Person(tmp_path, Path(sockets))
        yield user
        user.types("handoffd stop --executors || true")


def test_each_command_works_in_its_order_and_the_last_leave_nothing(person: Person) -> None:
    """From the installation to a story in a workspace, and back; the projects stay."""
    done = person.types(*typed(OWN_MACHINE))

    assert 0 == done.returncode, done.stdout
    assert "handoffd.yaml can be used" in done.stdout
    assert "now in effect: test.command" in done.stdout
    assert re.search(r"^shop +US-001 +bootstrap", done.stdout, re.MULTILINE), done.stdout
    assert (person.home / "projects/shop/.ai/STATE.json").exists()
    left = (".secrets", ".config/handoffd", ".config/systemd/user/handoffd.service", ".local/state/handoffd")
    assert [] == [name for name in left if (person.home / name).exists()]


def test_the_tutorial_leads_through_a_night(person: Person) -> None:
    """To a story that the daemon checked, which the reader has reviewed twice and merged."""
    person.has(AT_NIGHT)

    page = TUTORIAL.read_text(encoding="utf-8")
    done = person.types(*commands(page), "git log -1 --format='last commit: %s'")

    assert 0 == done.returncode, done.stdout
    printed = [_lasting(line, person) for line in done.stdout.splitlines()]
    assert [] == [line for line in answers(page) if _lasting(line, person) not in printed], done.stdout
    assert any(line.startswith(_lasting("last commit: US-001 update-memory: ", person)) for line in printed)


def _lasting(line: str, person: Person) -> str:
    """Return a line without what differs from one reader to the next: names, paths, times, ids, kernels."""
    line = line.replace(str(person.home), "/home/alice")
    for differs in (
        r"\d{8}T\d{6}-[0-9a-f]{8}",
        r"socket=\S+",
        r"(?<=by )\w+",
        r"(?<=sandbox: ).+",
        r"[\d.]+",
    ):
        line = re.sub(differs, "0", line)
    return line.rstrip()
