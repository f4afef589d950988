"""An endpoint is one declaration; and the table of all of them."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.support.controlled import Controlled

from handoffd.api.http.application import ENDPOINTS
from handoffd.api.verbs import VERBS
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


def test_every_verb_has_its_endpoint() -> None:
    """Without being declared twice."""
    paths = {endpoint.path for endpoint in ENDPOINTS if endpoint.method == "POST"}

    assert set() == {f"/v1/verbs/{verb}" for verb in VERBS} - paths


def test_names_and_requests_are_unique() -> None:
    """Clients are generated with a function for each name."""
    names = Counter(endpoint.name for endpoint in ENDPOINTS)
    requests = Counter((endpoint.method, endpoint.path) for endpoint in ENDPOINTS)

    assert {1} == {*names.values(), *requests.values()}


def test_every_endpoint_is_described() -> None:
    """In sentences; only what is sent has a body, and each of its parameters says what it is."""
    for endpoint in ENDPOINTS:
        assert endpoint.help.endswith("."), endpoint.name
        assert ("POST" == endpoint.method) == (endpoint.body is not None), endpoint.name
        assert all(parameter.help for parameter in endpoint.url), endpoint.name
        assert all(parameter.help for parameter in endpoint.body or ()), endpoint.name


def test_without_counts_it_says_so(control: Controlled) -> None:
    """The service of one verb has none."""
    with pytest.raises(NotFound) as caught, control.client.stream("/metrics"):
        pass

    assert "handoffd run" == caught.value.hint
