"""Tests under a real systemd are collected by `make test-systemd` alone, which sees to what they need."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.systemd.__main__ import SYSTEM
from tests.systemd.box import Box, Mode
from tests.systemd.root import NoBox

collect_ignore_glob = [] if SYSTEM in os.environ else ["test_*.py"]

AGENT = Path(__file__).with_name("agent.sh")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Boot each box once."""
    if SYSTEM in os.environ:  # else these are the tests of a suite that has none of ours
        items.sort(key=lambda item: "container" in item.name)


@pytest.fixture(scope="session", params=list(Mode), ids=str)
def box(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A booted box of each mode, which all of its tests share, with the agent of the tests for a `claude`."""
    try:
        box = Box(request.param, Path(os.environ[SYSTEM]), tmp_path_factory.mktemp("box"))
    except NoBox as error:
        pytest.exit(f"test-systemd: {error}", returncode=2)
    with contextlib.closing(box):
        program = box.path("/usr/local/bin/claude")
        program.write_bytes(AGENT.read_bytes())
        program.chmod(0o755)
        box.must("install -d -m 1777 /var/tmp/desks")
        yield box
