"""The table of endpoints as a whole."""

from __future__ import annotations

from collections import Counter

from handoffd.api.http.application import ENDPOINTS
from handoffd.api.verbs import VERBS


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
