"""An endpoint is one declaration."""

from __future__ import annotations

from contextlib import suppress

from tests.support.controlled import Controlled

from handoffd.control.api.table import ENDPOINTS
from handoffd.errors import Refused


def test_every_question_is_answered_where_its_declaration_says(control: Controlled) -> None:
    """With JSON, or with a refusal for what its parameters lack; never with a fault or `no such path`."""
    for endpoint in ENDPOINTS:
        if endpoint.method == "GET" and "{" not in endpoint.path:
            with suppress(Refused):
                assert isinstance(control.client.get(endpoint.path), dict)
