"""The declaration of an endpoint, from which its route and its description are generated.

To add an endpoint, declare a `Question` in `api/questions.py` or an `Endpoint` in `routes.py`. Its parameters
are checked before its function is called. Errors all have one shape, a stable code and a fitting status. The
last part of this module generates the OpenAPI document from all endpoints: `make schema` writes it to
docs/reference, and a daemon answers it at `/v1/openapi.json`. `application.py` checks parameters of URLs,
`api/arguments.py` parameters of bodies; a test gives the checks and the schemas the same values.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import cleandoc
from itertools import islice
from typing import Any, Final, Literal

import anyio
import msgspec
from msgspec import Struct
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

import handoffd
from handoffd.api.arguments import schema_of
from handoffd.api.questions import MOST, UrlParameter
from handoffd.api.service import Caller, Service
from handoffd.api.verbs import Parameter
from handoffd.errors import HandoffdError, Json, Locked, NotFound, Refused, StoreError

KEY_HEADER: Final = "Idempotency-Key"
MOST_KEY: Final = 128
"""Characters of a key."""


class Asked(Struct, frozen=True, kw_only=True):
    """One checked request: `given` has a value for every parameter of the endpoint, by name.

    Streams end when `closing` is set. `body` is the JSON object as received, for a `raw` endpoint.
    """

    service: Service
    given: Mapping[str, Any]
    body: Json
    caller: Caller
    closing: anyio.Event
    request: Request


class Endpoint(Struct, frozen=True, kw_only=True):
    """One method of one path.

    `answer` turns a request into a struct, into a JSON object (409 when its `type` is `error`), or into a
    response of its own. `shape` is the type of the first two, `beside` types whose keys a result of the
    engine also has, `media` the media types. `body` None: the endpoint takes no body. `raw`: `answer` checks
    the body itself. `keyed`: it accepts an idempotency key. `one_event`: it commits at most one event, whose
    result is the answer. `long` names a list in the answer that may have thousands of entries. `hint`: the
    command line for the same, shown after a bad request.
    """

    name: str
    path: str
    help: str
    answer: Callable[[Asked], Awaitable[Struct | Json | Response]]
    method: Literal["GET", "POST"] = "GET"
    url: tuple[UrlParameter, ...] = ()
    body: tuple[Parameter, ...] | None = None
    raw: bool = False
    keyed: bool = True
    one_event: bool = False
    shape: Any = dict[str, Any]
    beside: tuple[type[Struct], ...] = ()
    media: tuple[str, ...] = ("application/json",)
    long: str | None = None
    hint: str | None = None


BY: Final = Parameter(name="by", type="text", help="the name to record; `api` without it")


# --- errors ------------------------------------------------------------------------------------------
class Error(Struct, frozen=True, kw_only=True):
    """An error, or a refusal of the engine. Further keys may give details."""

    type: Literal["error"]
    code: str
    message: str
    hint: str | None = None
    """The next command to type."""
    project: str | None = None
    """The project that the hint is for."""
    called: str | None = None
    """What to call that in a command."""


class ErrorStatus(Struct, frozen=True, kw_only=True):
    """A status, its meaning and its codes. `name` is that of the response in OpenAPI."""

    status: int
    name: str
    codes: tuple[str, ...]
    when: str
    others: bool = False
    """Whether the status also comes with codes that are not listed here: codes of verbs and files."""


ERRORS: Final = (
    ErrorStatus(
        status=400, name="BadRequest", codes=("BAD_REQUEST", "BAD_ARGUMENT", "INVALID_STORY", "INVALID_TEXT"),
        when="the request or an argument cannot be used",
    ),
    ErrorStatus(
        status=401, name="Unauthorized", codes=("UNAUTHORIZED",),
        when="over TCP: no token, or not the one of `handoffd token`",
    ),
    ErrorStatus(
        status=403, name="Forbidden", codes=("FORBIDDEN", "INSIDE_EXECUTOR", "NOT_OVER_TCP"),
        when="another account, another host, a page in a browser; or a verb for people, from another caller",
    ),
    ErrorStatus(
        status=404, name="NotFound", codes=("NOT_FOUND",), others=True,
        when="no such path, verb, project or run",
    ),
    ErrorStatus(
        status=405, name="MethodNotAllowed", codes=("METHOD_NOT_ALLOWED",),
        when="the path has other methods; the header `Allow` names them",
    ),
    ErrorStatus(
        status=408, name="TooSlow", codes=("REQUEST_TIMEOUT",), when="the body did not arrive in time"
    ),
    ErrorStatus(
        status=409, name="Conflict", codes=("IDEMPOTENCY_CONFLICT", "REQUEST_CUT_SHORT"), others=True,
        when="refused: by the engine (the body is its result), because something is locked, or by its key",
    ),
    ErrorStatus(status=413, name="TooLarge", codes=("TOO_LARGE",), when="the body is too large"),
    ErrorStatus(
        status=415, name="UnsupportedMediaType", codes=("UNSUPPORTED_MEDIA_TYPE",),
        when="over TCP: a body that does not say that it is JSON",
    ),
    ErrorStatus(
        status=429, name="TooMany", codes=("TOO_MANY_REQUESTS",), when="over TCP: too many wrong tokens"
    ),
    ErrorStatus(
        status=431, name="HeadersTooLarge", codes=("HEADERS_TOO_LARGE",),
        when="the request line and the headers are larger than 32 KiB",
    ),
    ErrorStatus(
        status=500, name="Fault", codes=("INTERNAL",), when="a fault of handoffd; its log has more"
    ),
    ErrorStatus(
        status=503, name="Unavailable", codes=("TOO_MANY_CONNECTIONS", "TOO_MANY_STREAMS"), others=True,
        when="too many requests or streams at once; or the journal or a file could not be read or written",
    ),
)  # fmt: skip
"""Every error status, in order."""

BY_CODE: Final[Mapping[str, int]] = {code: one.status for one in ERRORS for code in one.codes}
"""The status of a code, whatever its family."""

_BY_FAMILY: Final[tuple[tuple[type[HandoffdError], int], ...]] = (
    (NotFound, 404),
    (Locked, 409),
    (Refused, 409),
    (StoreError, 503),
)


def status_of(error: HandoffdError) -> int:
    """Return the HTTP status for an error; 400 for a family without one."""
    by_family = next((code for kind, code in _BY_FAMILY if isinstance(error, kind)), 400)
    return BY_CODE.get(error.code, by_family)


def error_json(error: HandoffdError) -> Json:
    """Return an error as JSON: type, code, message, hint, and its details."""
    told = {"type": "error", "code": error.code, "message": error.message, "hint": error.hint}
    return {**told, **error.details}


def error_body(error: HandoffdError) -> bytes:
    """Return an error as bytes of JSON. A message may quote half characters, which become `?`."""
    text = json.dumps(error_json(error), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", errors="replace")


def error_response(error: HandoffdError, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response for an error, with its status."""
    return Response(error_body(error), status_of(error), headers, "application/json")


# --- the OpenAPI document ----------------------------------------------------------------------------
JSON: Final = "application/json"
_REF: Final = "#/components/schemas/{model}"
_INFO: Final = {
    "title": "handoffd control API",
    "version": handoffd.__version__,
    "description": "Every verb and every question of handoffd. Over the Unix socket no token is needed.",
    "license": {"name": "MIT", "identifier": "MIT"},
}
_KEY: Final = {
    "name": KEY_HEADER,
    "in": "header",
    "required": False,
    "description": "carried out once: a repeat within 24 hours gets the first answer",
    "schema": {"type": "string", "pattern": f"^[!-~]{{1,{MOST_KEY}}}$"},
}
_SERVERS: Final = [
    {
        "url": "http://127.0.0.1:{port}",
        "description": "loopback, if control.tcp is set; the same paths are served on control.sock",
        "variables": {"port": {"default": "8321"}},
    }
]


def document(endpoints: Sequence[Endpoint]) -> Json:
    """Return the OpenAPI 3.1 document for these endpoints."""
    shapes, schemas = _shapes(endpoints)
    paths: dict[str, Json] = {}
    for endpoint in endpoints:
        path = paths.setdefault(endpoint.path.replace(":path", ""), {})
        path[endpoint.method.lower()] = _operation(endpoint, shapes[endpoint.name])
    return {
        "openapi": "3.1.0",
        "info": _INFO,
        "servers": _SERVERS,
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "parameters": {KEY_HEADER: _KEY},
            "responses": {one.name: _response(one) for one in ERRORS},
            "schemas": schemas,
        },
    }


def _shapes(endpoints: Sequence[Endpoint]) -> tuple[Mapping[str, Json], Json]:
    """Return the schema of each endpoint's answer, by name, and the schemas that these refer to."""
    kinds = [kind for one in endpoints for kind in (one.shape, *one.beside)]
    found, together = schemas_of([*kinds, Error])
    schemas = iter(found)
    shapes: dict[str, Json] = {}
    for one in endpoints:
        parts = list(islice(schemas, 1 + len(one.beside)))
        shapes[one.name] = {"allOf": parts} if one.beside else parts[0]
    return shapes, together


def schemas_of(shapes: Sequence[Any]) -> tuple[Sequence[Json], Json]:
    """Return the schema of each type, and by name the structs and models that they refer to."""
    models: dict[str, Json] = {}

    def of_model(kind: type) -> Json:
        if not issubclass(kind, BaseModel):
            raise TypeError(f"{kind.__name__} has no schema")
        schema = kind.model_json_schema(mode="serialization", ref_template=_REF)
        models.update(schema.pop("$defs", {}) | {kind.__name__: schema})
        return {"$ref": _REF.format(model=kind.__name__)}

    found, structs = msgspec.json.schema_components(
        shapes, schema_hook=of_model, ref_template=_REF.format(model="{name}")
    )
    assert not structs.keys() & models.keys(), "a struct and a model have one name"
    # The defaults of fields are tuples, and JSON has none.
    schemas, of_structs, of_models = msgspec.json.decode(msgspec.json.encode((found, structs, models)))
    return schemas, _settled(of_structs) | of_models


def _settled(schema: Any) -> Any:
    """Return a schema as every release of msgspec makes it: one indents docstrings, one restricts names."""
    if isinstance(schema, list):
        return [_settled(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _settled(value) for name, value in schema.items() if name != "propertyNames"}
    if isinstance(described := kept.get("description"), str):
        kept["description"] = cleandoc(described)
    return kept


def _operation(endpoint: Endpoint, shape: Json) -> Json:
    content: Json = {media: {"schema": {"type": "string"}} for media in endpoint.media}
    if JSON in content:
        content[JSON] = {"schema": _granted(shape) if endpoint.beside else shape}
    responses: Json = {"200": {"description": "Done.", "content": content}}
    for problem in ERRORS:
        responses[str(problem.status)] = {"$ref": f"#/components/responses/{problem.name}"}
    if endpoint.beside:
        responses["409"] = _conflict(shape)
    operation: Json = {"operationId": endpoint.name, "summary": endpoint.help, "responses": responses}
    parameters = [url_parameter(one) for one in endpoint.url]
    if endpoint.method == "POST" and endpoint.keyed:
        parameters.append({"$ref": f"#/components/parameters/{KEY_HEADER}"})
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        needed = any(one.needed for one in endpoint.body)
        content = {JSON: {"schema": body_schema(endpoint.body)}}
        operation["requestBody"] = {"required": needed, "content": content}
    return operation


_REFUSAL: Final = {"$ref": _REF.format(model="Refusal")}


def _granted(shape: Json) -> Json:
    """Return the schema of a result of the engine other than a refusal, with the keys beside it."""
    result, *beside = shape["allOf"]
    kinds = [one for one in result["anyOf"] if one != _REFUSAL]
    mapping = {tag: to for tag, to in result["discriminator"]["mapping"].items() if to != _REFUSAL["$ref"]}
    return {
        "allOf": [{"anyOf": kinds, "discriminator": {"propertyName": "type", "mapping": mapping}}, *beside]
    }


def _conflict(shape: Json) -> Json:
    """Return the response of a verb that the engine refused, or that did not get there."""
    response = _response(next(one for one in ERRORS if one.status == 409))
    content = response["content"][JSON]
    content["schema"] = {"anyOf": [{"allOf": [_REFUSAL, *shape["allOf"][1:]]}, content["schema"]]}
    return response


def _response(problem: ErrorStatus) -> Json:
    codes = [f"`{code}`" for code in problem.codes] + ["codes of verbs and files"] * problem.others
    text = f"{problem.when[0].upper()}{problem.when[1:]}. Codes: {', '.join(codes)}."
    schema = {"$ref": _REF.format(model="Error")}
    return {"description": text, "content": {JSON: {"schema": schema}}}


# --- schemas of parameters ---------------------------------------------------------------------------
def body_schema(parameters: tuple[Parameter, ...]) -> Json:
    """Return the schema of a body with exactly these parameters."""
    schema: Json = {
        "type": "object",
        "properties": {one.name: schema_of(one) for one in parameters},
        "additionalProperties": False,
    }
    required = [one.name for one in parameters if one.needed]
    return {**schema, "required": required} if required else schema


def url_parameter(parameter: UrlParameter) -> Json:
    """Return a parameter of a URL in OpenAPI's form."""
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required or parameter.place == "path",
        "description": parameter.help,
        "schema": _of_url(parameter),
    }


def _of_url(parameter: UrlParameter) -> Json:
    schema: dict[str, Any] = {"type": "string"}
    if parameter.type == "number":
        schema = {"type": "integer", "minimum": 0, "maximum": MOST}
    elif parameter.type == "flag":
        schema["enum"] = ["1", "true", "0", "false", ""]
    elif parameter.choices:
        schema["enum"] = [*parameter.choices, ""]
    elif parameter.pattern:
        schema["pattern"] = parameter.pattern if parameter.required else f"^$|{parameter.pattern}"
    elif parameter.required or parameter.place == "path":
        schema["minLength"] = 1
    return schema if parameter.default is None else {**schema, "default": _shown(parameter.default)}


def _shown(default: object) -> object:
    return str(default).lower() if isinstance(default, bool) else default
