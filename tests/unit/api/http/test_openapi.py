"""The OpenAPI document: whole, well-formed, and true of real answers and checks."""

from __future__ import annotations

import json
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import TypeAdapter
from tests.support.controlled import Controlled
from tests.support.jsonschemas import complaints
from tests.unit.journal.making import dispatch, record, track

from handoffd.api.arguments import values
from handoffd.api.http.application import ENDPOINTS, described
from handoffd.api.http.endpoint import body_schema, url_parameter
from handoffd.api.questions import UrlParameter
from handoffd.api.verbs import Parameter
from handoffd.engine.decision import Refusal
from handoffd.engine.events import Advanced
from handoffd.errors import HandoffdError, Refused
from handoffd.protocol.state import Status


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


def test_no_reference_leads_nowhere() -> None:
    """Each has a target in the document."""
    document = described()

    for reference in references(document):
        found: Any = document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
        assert found


def test_it_is_served(control: Controlled) -> None:
    """The same as in the documentation, which a test compares; plain JSON, as every answer."""
    assert json.loads(json.dumps(described())) == control.client.get("/v1/openapi.json")
    assert TypeAdapter(Any).dump_python(described(), mode="json") == described()


def test_a_path_in_the_url_is_a_parameter() -> None:
    """Named as in the path."""
    (parameter,) = described()["paths"]["/v1/projects/{project}"]["get"]["parameters"]

    assert ("project", "path", True) == (parameter["name"], parameter["in"], parameter["required"])


# --- real answers ------------------------------------------------------------------------------------
def told(
    answer: Any, path: str, method: str = "get", status: str = "200", *, whole: bool = False
) -> list[str]:
    """Return how an answer contradicts the document; `whole`: also in keys that this does not name."""
    document = closed(described()) if whole else described()
    response = document["paths"][path][method]["responses"][status]
    if "$ref" in response:
        response = document["components"]["responses"][response["$ref"].rpartition("/")[2]]
    schema = response["content"]["application/json"]["schema"]
    return complaints(answer, {**schema, "$defs": document["components"]["schemas"]})


def closed(schema: Any) -> Any:
    """Return a schema whose objects have no keys but those that it names.

    Parts that one object is made of are joined first: each part alone names only some of its keys.
    """
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "allOf" in schema:
        return {"anyOf": [closed(one) for one in joined(schema["allOf"])]}
    found = {key: closed(value) for key, value in schema.items()}
    named = found.get("type") == "object" and "properties" in found
    return {"additionalProperties": False, **found} if named else found


def joined(parts: list[Any]) -> list[Any]:
    """Return every object that can be made of one alternative of each part."""
    schemas = described()["components"]["schemas"]
    objects: list[dict[str, Any]] = [{"type": "object", "properties": {}, "required": []}]
    for part in parts:
        kinds = [schemas[one["$ref"].rpartition("/")[2]] for one in kinds_of(part)]
        objects = [
            {
                "type": "object",
                "properties": {**one["properties"], **kind["properties"]},
                "required": [*one["required"], *kind.get("required", ())],
            }
            for one in objects
            for kind in kinds
        ]
    return objects


def kinds_of(part: Any) -> list[Any]:
    """Return the references of a part: one, or one for each alternative."""
    found: list[Any] = part.get("anyOf", [part])
    return found


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
        "run?run=d1",
        "events",
        "peek?project=shop",
    ],
)
def test_a_question_is_answered_in_its_shape(control: Controlled, path: str) -> None:
    """The document names every key of it."""
    begun = track(status=Status.RUNNING, dispatch=dispatch())
    control.commit(record(Advanced(dispatch="d1", executor="claude"), after=begun))

    assert [] == told(control.client.get(f"/v1/{path}"), f"/v1/{path.partition('?')[0]}", whole=True)


def test_an_error_has_its_shape() -> None:
    """With every status."""
    error = HandoffdError("no", code="X", hint=None)

    assert [] == told(
        {"type": "error", "code": error.code, "message": "no", "hint": None}, "/v1/health", status="404"
    )
    assert told({"type": "error"}, "/v1/health", status="404")


@pytest.mark.parametrize(
    "path",
    [
        "verbs/add",
        "verbs/trust",
        "verbs/pause",
        "verbs/dispatch",
        "verbs/apply",
        "verbs/check",
        "verbs/remove",
        "reload",
        "stop",
    ],
)
def test_a_verb_or_an_order_is_answered_in_its_shape(control: Controlled, path: str) -> None:
    """Also a verb without an event, and a project."""
    given = {"project": "/srv/shop"} if path.startswith("verbs") else {}

    assert [] == told(control.client.get("/v1/projects/shop"), "/v1/projects/{project}")
    assert [] == told(control.client.post(f"/v1/{path}", given), f"/v1/{path}", "post")


def test_a_verb_names_the_project_beside_its_result(control: Controlled) -> None:
    """The document asks for the keys of both."""
    answer = control.client.post("/v1/verbs/pause", {"project": "/srv/shop"})
    cut = {key: value for key, value in answer.items() if key != "waits_for"}

    assert [] == told(answer, "/v1/verbs/pause", "post", whole=True)
    assert told(cut, "/v1/verbs/pause", "post")
    prompt = control.client.post("/v1/verbs/dispatch", {"project": "/srv/shop"})
    assert [] == told(prompt, "/v1/verbs/dispatch", "post", whole=True)
    assert told(prompt, "/v1/verbs/pause", "post", whole=True)


def test_a_refusal_of_the_engine_is_a_conflict(control: Controlled) -> None:
    """It has the keys of every verb's answer, which other conflicts lack; success is something else."""
    control.supervision.answer = Refusal(
        code="WRONG_STEP", message="no gate", caller_instruction="x", next_command=None
    )
    refusal = control.client.post("/v1/verbs/approve", {"project": "/srv/shop"})

    assert [] == told(refusal, "/v1/verbs/approve", "post", "409", whole=True)
    assert [] == told({"type": "error", "code": "LOCKED", "message": "x"}, "/v1/verbs/approve", "post", "409")
    assert told(refusal, "/v1/verbs/approve", "post")


# --- parameters: what is described is what is checked -------------------------------------------------
TYPES: tuple[Any, ...] = get_args(get_type_hints(Parameter)["type"])
NEVER_REQUIRED, ALWAYS_REQUIRED = {"flag"}, {"level"}
VALUES: tuple[Any, ...] = (
    None, "", "US-001", "main", "..", "a..b", "a.", ".a", "x" * 64, "x" * 65, "spec_drift",
    "needs_clarification",
    "x" * 65536, "x" * 65537, "7", "0", True, False, 0, 1, 1.0, 1.5, -1, 10**12, 10**12 + 1, [], ["US-001"],
    ["/"], [5], {}, {"a": 1}, -1000, 1000, 1001, "-1000", "1000", "1001", "-7", "M",
)  # fmt: skip


def accepted(parameter: Parameter, value: Any) -> bool:
    """Return whether the check takes a value."""
    try:
        values((parameter,), {parameter.name: value})
    except Refused:
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "required"),
    [
        *((kind, False) for kind in TYPES if kind not in ALWAYS_REQUIRED),
        *((kind, True) for kind in TYPES if kind not in NEVER_REQUIRED),
    ],
)
def test_the_schema_allows_what_the_check_takes(kind: Any, required: bool) -> None:
    """And nothing else."""
    parameter = Parameter(name="x", type=kind, required=required, help="x")
    schema = body_schema((parameter,))

    for value in VALUES:
        assert accepted(parameter, value) == (not complaints({"x": value}, schema)), repr(value)[:80]


def test_only_choices_and_known_parameters_are_allowed() -> None:
    """In the schema as in the check."""
    parameter = Parameter(name="x", type="text", help="x", choices=("en", "zh-TW"))
    for value in ("en", "zh-TW", "de", "", None, 5):
        assert accepted(parameter, value) == (not complaints({"x": value}, body_schema((parameter,)))), value

    schema = body_schema((Parameter(name="x", type="text", required=True, help="x"),))
    assert complaints({"x": "a", "y": "b"}, schema)
    assert complaints({}, schema)


def test_a_parameter_of_the_url_has_its_limits() -> None:
    """Numbers, flags, choices, and what must be there."""

    def schema(**given: Any) -> Any:
        return url_parameter(UrlParameter(name="x", help="x", **given))["schema"]

    assert {"type": "integer", "minimum": 0, "maximum": 2**53, "default": 5} == schema(
        type="number", default=5
    )
    assert {"type": "string", "enum": ["1", "true", "0", "false", ""], "default": "false"} == schema(
        type="flag", default=False
    )
    assert {"type": "string", "enum": ["a", ""]} == schema(choices=("a",))
    assert {"type": "string", "pattern": "^$|^a$"} == schema(pattern="^a$")
    assert {"type": "string", "minLength": 1} == schema(required=True)
