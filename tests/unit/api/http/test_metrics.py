"""The endpoint that Prometheus asks."""

from __future__ import annotations

import pytest
from tests.support.controlled import Controlled

from handoffd.errors import NotFound


def test_without_counts_it_says_so(control: Controlled) -> None:
    """The service of one verb has none."""
    with pytest.raises(NotFound) as caught, control.client.stream("/metrics"):
        pass

    assert "handoffd run" == caught.value.hint
