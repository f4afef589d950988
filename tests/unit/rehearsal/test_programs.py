"""Another program is run to its end, or to its limit."""

from __future__ import annotations

import sys
from pathlib import Path

from handoffd.rehearsal.programs import run


def test_code_and_both_streams_are_returned(tmp_path: Path) -> None:
    """In the order they were written, from the right folder, without input."""
    code = "import os, sys; print(os.getcwd(), flush=True); print(sys.stdin.read(), file=sys.stderr); exit(3)"

    ended = run([sys.executable, "-c", code], str(tmp_path), limit_s=60)

    assert (3, f"{tmp_path.resolve()}\n\n") == ended


def test_a_program_that_never_ends_has_a_limit(tmp_path: Path) -> None:
    """It is ended, and that is said."""
    ended = run([sys.executable, "-c", "import signal; signal.pause()"], str(tmp_path), limit_s=0.1)

    assert (None, f"{sys.executable} was not done after 0.1 s") == ended


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    """A project without git is no reason for a traceback."""
    program = str(tmp_path / "no-such-program")

    assert (None, f"{program}: No such file or directory") == run([program], str(tmp_path), limit_s=1)
