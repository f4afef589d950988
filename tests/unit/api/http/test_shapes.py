"""Real answers, held against the types that describe them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter
from tests.support.controlled import Controlled
from tests.support.jsonschemas import complaints
from tests.unit.journal.making import dispatch, record, track

from handoffd.api.http.application import described
from handoffd.engine.events import Advanced
from handoffd.errors import HandoffdError
from handoffd.protocol.state import Status


def told(
    answer: Any, path: str, method: str = "get", status: str = "200", *, whole: bool = False
) -> list[str]:
    """Return what the document has against an answer; `whole`: also where it says nothing of a key."""
    document = closed(described()) if whole else described()
    response = document["paths"][path][method]["responses"][status]
    if "$ref" in response:
        response = document["components"]["responses"][response["$ref"].rpartition("/")[2]]
    schema = response["content"]["application/json"]["schema"]
    return complaints(answer, {**schema, "$defs": document["components"]["schemas"]})


def closed(schema: Any) -> Any:
    """Return a schema whose objects have no keys but those that it names."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    named = found.get("type") == "object" and "properties" in found
    return {"additionalProperties": False, **found} if named else found


@pytest.mark.parametrize(
    "path",
    [
        "health",
        "status",
        "projects",
        "limits",
        "slots",
        "notices",
        "usage",
        "runs",
        "events",
        "peek?project=shop",
    ],
)
def test_a_question_is_answered_in_its_shape(control: Controlled, path: str) -> None:
    """As the document says, which names every key that is told."""
    begun = track(status=Status.RUNNING, dispatch=dispatch())
    control.commit(record(Advanced(dispatch="d1", executor="claude"), after=begun))

    assert [] == told(control.client.get(f"/v1/{path}"), f"/v1/{path.partition('?')[0]}", whole=True)


def test_one_project_has_the_shape_of_one(control: Controlled) -> None:
    """As those of `status`."""
    assert [] == told(control.client.get("/v1/projects/shop"), "/v1/projects/{project}")


def test_errors_have_theirs() -> None:
    """Whatever the status."""
    error = HandoffdError("no", code="X", hint=None)

    assert [] == told(
        {"type": "error", "code": error.code, "message": "no", "hint": None}, "/v1/health", status="404"
    )
    assert told({"type": "error"}, "/v1/health", status="404")


def test_the_document_is_plain_json() -> None:
    """As every answer."""
    assert TypeAdapter(Any).dump_python(described(), mode="json") == described()


@pytest.mark.parametrize("verb", ["add", "trust", "pause", "remove"])
def test_a_verb_is_answered_in_its_shape(control: Controlled, verb: str) -> None:
    """Those that are events and those that are none."""
    path = f"/v1/verbs/{verb}"

    assert [] == told(control.client.post(path, {"project": "/srv/shop"}), path, "post")


def test_the_daemons_own_orders_have_theirs(control: Controlled) -> None:
    """Stop and reload."""
    for path in ("/v1/reload", "/v1/stop"):
        assert [] == told(control.client.post(path, {}), path, "post")
