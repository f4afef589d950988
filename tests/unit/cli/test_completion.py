"""Completion by the shell: what is offered at each place of a command line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.daemon import running

from handoffd.cli.asking import SHELLS
from handoffd.protocol.state import Reason


def offered(words: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """Return what bash is offered for the last of `words`; a blank at the end begins a new one."""
    split = words.split(" ")
    asked = {"_HANDOFFD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(split) - 1)}
    program = "import sys; sys.argv[0] = 'handoffd'; from handoffd.cli.start import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **(environ or {}), **asked},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_verbs_are_completed() -> None:
    """All kinds of commands, also behind an option of the program; nothing is made up."""
    assert ["approve", "apply"] == offered("handoffd ap")
    assert ["completion"] == offered("handoffd comp")
    assert [] == offered("handoffd nosuch")


def test_options_and_their_values_are_completed() -> None:
    """As the help has them."""
    assert {"--note", "--story"} <= set(offered("handoffd approve --"))
    assert ["bash"] == offered("handoffd completion b")


def test_projects_and_reasons_are_completed(tmp_path: Path) -> None:
    """The daemon knows the names; at a rejection the reasons come behind the project."""
    shop = tmp_path / "shop"
    shop.mkdir()
    with running(tmp_path) as daemon:
        daemon.verb("init", shop)
        environ = {"HANDOFFD_CONFIG": str(daemon.config)}

        assert ["shop"] == offered("handoffd status sh", environ)
        assert ["shop"] == offered("handoffd reject ", environ)
        assert list(Reason) == offered("handoffd reject shop ", environ)


def test_without_a_daemon_no_name_is_offered(tmp_path: Path) -> None:
    """And nothing is said, for it would stand in the middle of what is typed."""
    assert [] == offered("handoffd status ", {"HANDOFFD_RUNTIME_DIR": str(tmp_path)})


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_takes_its_script(shell: str) -> None:
    """It names the program, and where the shell is here, that reads it without complaint."""
    done = subprocess.run(
        [sys.executable, "-m", "handoffd", "completion", shell], capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip

    assert f"_HANDOFFD_COMPLETE={shell}_complete" in done.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, timeout=60, check=True)
