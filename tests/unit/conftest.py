"""What the tests of everything that asks a daemon share: one in memory, none, and the command line."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog
from tests.support.commands import Commands, environment
from tests.support.controlled import Controlled, controlled
from tests.support.house import House, house, make_project
from tests.support.supervision import MemorySupervision, project_view, track_view


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[House]:
    """A house whose agent hands over at once."""
    async with house(tmp_path) as lent:
        yield lent


@pytest.fixture
def taipei(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine in Taipei, eight hours ahead of UTC."""
    monkeypatch.setenv("TZ", "Asia/Taipei")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def root(tmp_path: Path) -> str:
    """The root of a project with a short pipeline."""
    return make_project(tmp_path)


@pytest.fixture
def supervision() -> MemorySupervision:
    """Two projects: one waits at its review, one is not initialised."""
    return MemorySupervision(project_view("/srv/shop", track_view()), project_view("/srv/empty"))


@pytest.fixture
def control(supervision: MemorySupervision, monkeypatch: pytest.MonkeyPatch) -> Iterator[Controlled]:
    """A daemon's socket over those projects, where commands look for it."""
    with controlled(supervision) as lent:
        _look_at(lent.runtime, monkeypatch)
        yield lent


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """No daemon: an empty folder where commands look for one. Logging is put back afterwards."""
    _look_at(tmp_path, monkeypatch)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield tmp_path
    root.handlers[:], root.level = handlers, level
    logging.captureWarnings(False)


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """Undo the logging configuration of commands that a test called; keep the suite's plain tracebacks."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture
def handoffd(capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Commands:
    """The command line. A test that has no daemon gets none, not that of the person who runs the tests."""
    if "HANDOFFD_RUNTIME_DIR" not in os.environ:
        request.getfixturevalue("alone")
    return Commands(capfd)


def _look_at(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "STATE_DIRECTORY",
        "RUNTIME_DIRECTORY",
        "XDG_CONFIG_HOME",
        "HANDOFFD_CONFIG",
        "HANDOFFD_RUN",
    ):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment(runtime).items():
        monkeypatch.setenv(name, value)
