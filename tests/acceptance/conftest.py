"""What acceptance tests share: daemons are forked from one process that has imported handoffd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.nursery import Nursery


@pytest.fixture(scope="session", autouse=True)
def nursery() -> Iterator[Nursery]:
    """Lend the process that daemons are forked from, as long as the session lasts."""
    Nursery.lent = Nursery()
    yield Nursery.lent
    Nursery.lent.close()
    Nursery.lent = None
