"""A hanging test ends the suite, which names the test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PLUGINS = ("-p", "xdist.plugin", "-p", "pytest_asyncio.plugin", "-p", "pytest_timeout")
"""Those of the settings; importing all that are installed takes most of a short suite's time."""


def ran(folder: Path, source: str, *options: str) -> str:
    """Return what a suite of one file and many others says, run by the settings of this one."""
    (folder / "test_it.py").write_text(source, encoding="utf-8")
    for number in range(40):
        (folder / f"test_after_{number:02}.py").write_text("def test_passes(): pass\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(REPOSITORY / "pyproject.toml"), str(folder)]
    command += ["-p", "no:cacheprovider", "-o", "testpaths=", *PLUGINS, *options]
    environment = {**os.environ, "COLUMNS": "200", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert 1 == done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_test_that_hangs_fails_and_the_others_run(tmp_path: Path, workers: str) -> None:
    """In the event loop, in a wait of its own, and while what it used is put away."""
    told = ran(
        tmp_path,
        """
import asyncio, subprocess, threading, pytest

@pytest.fixture
def slow_to_end():
    yield
    threading.Event().wait()

async def test_loop(): await asyncio.Event().wait()
def test_child(): subprocess.run(["sleep", "600"])
def test_fixture(slow_to_end): pass
def test_passes(): pass
""",
        "--timeout=1",
        f"-n{workers}",
        "--dist=loadfile",
    )

    for name in ("test_loop", "test_child", "test_fixture"):
        assert f"test_it.py::{name} - Failed: Timeout" in told
    assert "2 failed, 42 passed, 1 error" in told


@pytest.mark.slow
def test_a_worker_that_dies_ends_the_suite(tmp_path: Path) -> None:
    """It is not replaced: with a file each at a time, the suite would then wait for ever at its end."""
    told = ran(tmp_path, "import os\ndef test_dies(): os._exit(1)\n", "-n2", "--dist=loadfile")

    assert "crashed while running" in told
    assert "test_it.py::test_dies" in told
