"""`handoffd mcp`, up to the server itself."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.support.children import ending
from tests.support.commands import environment
from tests.support.eventually import eventually_sync

from handoffd.cli.hooks import REQUIREMENT

REPOSITORY = Path(__file__).parents[3]
_WITHOUT = "import sys; sys.modules['mcp_types'] = None; from handoffd.cli.main import main; main(['mcp'])"


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    """For the Python that runs it, in the version that the extra names."""
    ended = subprocess.run(
        [sys.executable, "-c", _WITHOUT],
        env=environment(tmp_path), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert 1 == ended.returncode
    assert "needs the package mcp" in ended.stderr
    assert f"next: {sys.executable} -m pip install '{REQUIREMENT}'" in ended.stderr
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [REQUIREMENT] == extras["mcp"]
    assert REQUIREMENT in extras["dev"]


def test_a_person_who_starts_it_is_told_what_it_waits_for(tmp_path: Path) -> None:
    """And Ctrl-C ends it at once, although its standard input is still open."""
    ours, theirs = pty.openpty()
    try:
        with ending(subprocess.Popen(
            [sys.executable, "-m", "handoffd", "mcp"],
            env=environment(tmp_path), stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )) as process:  # fmt: skip
            assert process.stderr is not None
            said = process.stderr.readline() + process.stderr.readline()
            # Python's own handler is in place until the server begins: either way it ends.
            eventually_sync(lambda: _catches_no_interrupt(process.pid))
            process.send_signal(2)
            assert -2 == process.wait(60)
        assert b"claude mcp add handoffd -- handoffd mcp" in said
    finally:
        os.close(ours)
        os.close(theirs)


def _catches_no_interrupt(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:")).split()[1]
    return not int(caught, 16) & (1 << 1)
