"""Tests under a real systemd are collected by `make test-systemd` alone, which sees to what they need."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.systemd.__main__ import SYSTEM
from tests.systemd.box import Box, Mode
from tests.systemd.root import NoBox
from tests.systemd.service import Form, Service, Story

collect_ignore_glob = [] if SYSTEM in os.environ else ["test_*.py"]

AGENT = Path(__file__).with_name("agent.sh")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Boot each box once, and play each case in the forms that it is about."""
    if SYSTEM in os.environ:  # else these are the tests of a suite that has none of ours
        items[:] = sorted(filter(_is_played, items), key=_turn)


def _turn(item: pytest.Item) -> tuple[bool, bool]:
    """Return what comes later: the second box, and in each what has a service installed that stays."""
    assert isinstance(item, pytest.Function)
    return "container" in item.name, "service" in item.fixturenames


def _is_played(item: pytest.Item) -> bool:
    only = item.get_closest_marker("form")
    assert isinstance(item, pytest.Function)
    return only is None or item.callspec.params["form"] in only.args


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


@pytest.fixture(scope="session")
def program(box: Box) -> None:
    """This checkout, installed where every account of the box can read it."""
    box.put_checkout("/opt/checkout", "root")
    box.must("python3 -m venv /opt/tested && /opt/tested/bin/pip install --quiet /opt/checkout")


@pytest.fixture(scope="session", params=list(Form), ids=str)
def form(request: pytest.FixtureRequest, box: Box, program: None) -> Iterator[Service]:
    """A service in each form, removed in the end."""
    service = Service(box, request.param)
    yield service
    service.remove()


@pytest.fixture
def service(form: Service) -> Service:
    """The service, installed and running."""
    form.install()
    return form


@pytest.fixture
def story(service: Service, request: pytest.FixtureRequest) -> Iterator[Story]:
    """A story of a project of its own, whose agent works."""
    name = re.sub(r"\W+", "-", request.node.name.removeprefix("test_"))
    with contextlib.closing(Story(service, name)) as story:
        yield story
