"""What acceptance tests share: daemons are forked from one process that has imported handoffd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.daemon import Daemon, running
from tests.support.nursery import Nursery


@pytest.fixture(scope="session", autouse=True)
def nursery() -> Iterator[Nursery]:
    """Lend the process that daemons are forked from, as long as the session lasts."""
    Nursery.lent = Nursery()
    yield Nursery.lent
    Nursery.lent.close()
    Nursery.lent = None


@pytest.fixture(scope="module")
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Lend a running daemon to the tests of a module, by its `SETTINGS` if it has any."""
    settings = getattr(request.module, "SETTINGS", None)
    with running(tmp_path_factory.mktemp("daemon"), settings) as lent:
        yield lent
