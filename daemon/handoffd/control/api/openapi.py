"""The OpenAPI document, made from the table of endpoints: nothing in it is written twice.

`make schema` writes it to docs/openapi.json, and a daemon answers it at `/v1/openapi.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter

import handoffd
from handoffd.control.api.endpoint import Endpoint
from handoffd.control.api.idempotency import HEADER, MOST_KEY
from handoffd.control.api.problems import PROBLEMS, Problem
from handoffd.control.api.schemas import body_schema, url_parameter
from handoffd.control.api.shapes import Error
from handoffd.control.history import Json

JSON: Final = "application/json"
_REF: Final = "#/components/schemas/{model}"
_INFO: Final = {
    "title": "handoffd control API",
    "version": handoffd.__version__,
    "description": "Every verb and every question of handoffd. Over the Unix socket no token is needed.",
    "license": {"name": "MIT", "identifier": "MIT"},
}
_KEY: Final = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "carried out once: repeated within 24 hours, the request gets the answer of then",
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
            "parameters": {HEADER: _KEY},
            "responses": {one.name: _response(one) for one in PROBLEMS},
            "schemas": schemas,
        },
    }


def _shapes(endpoints: Sequence[Endpoint]) -> tuple[Mapping[str, Json], Json]:
    """Return the schema of each endpoint's answer, by name, and all that those refer to."""
    adapters = {one.name: _adapter(one.shape) for one in endpoints}
    adapters["error"] = _adapter(Error)
    found, together = TypeAdapter.json_schemas(
        [(name, "serialization", adapter) for name, adapter in adapters.items()], ref_template=_REF
    )
    return {name: schema for (name, _), schema in found.items()}, together["$defs"]


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def _operation(endpoint: Endpoint, shape: Json) -> Json:
    content: Json = {media: {"schema": {"type": "string"}} for media in endpoint.media}
    if JSON in content:
        content[JSON] = {"schema": shape}
    responses: Json = {"200": {"description": "Done.", "content": content}}
    for problem in PROBLEMS:
        responses[str(problem.status)] = {"$ref": f"#/components/responses/{problem.name}"}
    operation: Json = {"operationId": endpoint.name, "summary": endpoint.help, "responses": responses}
    parameters = [url_parameter(one) for one in endpoint.url]
    if endpoint.method == "POST" and endpoint.keyed:
        parameters.append({"$ref": f"#/components/parameters/{HEADER}"})
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        needed = any(one.required for one in endpoint.body)
        content = {JSON: {"schema": body_schema(endpoint.body)}}
        operation["requestBody"] = {"required": needed, "content": content}
    return operation


def _response(problem: Problem) -> Json:
    codes = [f"`{code}`" for code in problem.codes] + ["those of verbs and files"] * problem.others
    text = f"{problem.when[0].upper()}{problem.when[1:]}. Codes: {', '.join(codes)}."
    schema = {"$ref": _REF.format(model="Error")}
    return {"description": text, "content": {JSON: {"schema": schema}}}
