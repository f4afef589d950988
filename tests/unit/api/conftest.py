"""What the tests of the control layer share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.controlled import Controlled, controlled
from tests.support.supervision import MemorySupervision, project_view, track_view


@pytest.fixture
def supervision() -> MemorySupervision:
    """Two projects: one waits at its review, one is not initialised."""
    return MemorySupervision(project_view("/srv/shop", track_view()), project_view("/srv/empty"))


@pytest.fixture
def control(supervision: MemorySupervision) -> Iterator[Controlled]:
    """A server over those projects."""
    with controlled(supervision) as lent:
        yield lent
