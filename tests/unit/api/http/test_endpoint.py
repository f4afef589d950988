"""An endpoint is one declaration."""

from __future__ import annotations

from tests.support.controlled import Controlled

from handoffd.api.http.application import ENDPOINTS
from handoffd.errors import NotFound, Refused


def test_every_question_is_answered_where_its_declaration_says(control: Controlled) -> None:
    """With JSON, or with a refusal for what its parameters lack; never with a fault or `no such path`."""
    for endpoint in ENDPOINTS:
        if endpoint.method == "GET" and "{" not in endpoint.path:
            assert not refusal(control, endpoint.path).startswith("there is no GET"), endpoint.name


def refusal(control: Controlled, path: str) -> str:
    """Return why a question is refused; nothing when it is answered."""
    try:
        control.client.get(path)
    except (Refused, NotFound) as error:
        return error.message
    return ""
