"""The OpenAPI document: whole, well-formed, and true of the server that answers it."""

from __future__ import annotations

import json
from typing import Any

from tests.support.controlled import Controlled

from handoffd.api.http.application import ENDPOINTS, described


def references(value: Any) -> set[str]:
    """Return everything that a document refers to."""
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


def test_every_endpoint_is_in_it() -> None:
    """With its name, its parameters and every status."""
    paths = described()["paths"]

    for endpoint in ENDPOINTS:
        operation = paths[endpoint.path.replace(":path", "")][endpoint.method.lower()]
        assert endpoint.name == operation["operationId"]
        keyed = "POST" == endpoint.method and endpoint.keyed
        assert len(endpoint.url) + keyed == len(operation.get("parameters", []))
        assert ("POST" == endpoint.method) == ("requestBody" in operation)
        assert {"200", "400", "404", "409", "500"} <= operation["responses"].keys()
    assert len(ENDPOINTS) == sum(len(operations) for operations in paths.values())


def test_what_it_refers_to_is_there() -> None:
    """No reference leads nowhere."""
    document = described()

    for reference in references(document):
        found: Any = document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
        assert found


def test_it_is_served(control: Controlled) -> None:
    """The same as in the documentation, which a test compares."""
    assert json.loads(json.dumps(described())) == control.client.get("/v1/openapi.json")


def test_a_path_in_the_url_is_a_parameter() -> None:
    """Named as in the path."""
    (parameter,) = described()["paths"]["/v1/projects/{project}"]["get"]["parameters"]

    assert ("project", "path", True) == (parameter["name"], parameter["in"], parameter["required"])
