"""What of `make test-systemd` needs no box: its scripts, what it types, why it does not run somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.typed import typed as understood
from tests.support.walks import INSTALL, OWN_MACHINE, SERVER, script, typed
from tests.systemd import box

AGENT = Path(box.__file__).with_name("agent.sh")


def test_every_command_of_the_walks_is_typed() -> None:
    """A walk that is added to the page needs a test that types it."""
    section = INSTALL.read_text(encoding="utf-8").partition("\n## From nothing to ")[2].partition("\n## ")[0]

    assert [OWN_MACHINE, SERVER] == re.findall(r"^### (.*)$", section, re.MULTILINE)
    assert section.count("\n$ ") == len(typed(OWN_MACHINE)) + len(typed(SERVER))


@pytest.mark.parametrize("walk", [OWN_MACHINE, SERVER])
def test_the_commands_of_a_walk_exist(walk: str) -> None:
    """With those options; what a shell does with the rest is for the box to show."""
    commands = re.findall(r"^(?:sudo |agents )?(handoffd .*)$", "\n".join(_single(walk)), re.MULTILINE)

    assert {"start", "trust", "service install", "service uninstall"} <= {
        understood(command).name for command in commands
    }


def _single(walk: str) -> list[str]:
    return [part for command in typed(walk) for part in command.splitlines()[0].split(" && ")]


@pytest.mark.parametrize("text", [script(typed(OWN_MACHINE)), script(typed(SERVER)), box.HOLDER], ids=len)
def test_a_shell_can_read_the_scripts(text: str) -> None:
    """All that is handed to one as a whole."""
    read = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False, timeout=60)

    assert ("", 0) == (read.stderr, read.returncode)


def test_the_agent_notes_its_start_and_hands_over(tmp_path: Path) -> None:
    """Once it may finish."""
    project, desks = tmp_path / "shop", tmp_path / "desks"
    (project / ".ai").mkdir(parents=True)
    user = subprocess.run(
        ["id", "-un"], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()
    desk = desks / f"{user}-shop"
    desk.mkdir(parents=True)
    (desk / "impl").touch()
    environment = {**os.environ, "HANDOFFD_RUN": "r1", "HANDOFFD_STEP": "impl", "ANTHROPIC_API_KEY": "sk"}
    script = AGENT.read_text(encoding="utf-8").replace("/var/tmp/desks", str(desks))

    subprocess.run(["sh", "-c", script], cwd=project, env=environment, input=b"", check=True, timeout=60)

    assert re.fullmatch(r"r1 impl \d+\n", (desk / "begun").read_text(encoding="utf-8"))
    assert "dispatch: r1\n" in (project / ".ai/HANDOFF.md").read_text(encoding="utf-8")


def test_a_machine_that_can_boot_no_box_is_told_why(tmp_path: Path) -> None:
    """In one line, by an exit code that no green run has."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.systemd"], env={"PATH": str(tmp_path), "PYTHONPATH": "daemon:."},
        cwd=INSTALL.parents[2], capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert 2 == done.returncode
    assert re.fullmatch(r"test-systemd: .+\n", done.stderr)
