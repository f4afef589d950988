"""Every endpoint there is. Routes, docs/api.md and the OpenAPI document are made from this."""

from __future__ import annotations

from functools import cache
from typing import Final

from handoffd.control.api.endpoint import Asked, Endpoint
from handoffd.control.api.inspections import INSPECTIONS
from handoffd.control.api.messages import MESSAGES
from handoffd.control.api.metrics import METRICS
from handoffd.control.api.openapi import document
from handoffd.control.api.orders import ORDERS
from handoffd.control.api.reads import READS
from handoffd.control.api.streams import STREAMS
from handoffd.control.history import Json


async def _openapi(_: Asked) -> Json:
    return described()


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *READS,
    *INSPECTIONS,
    *STREAMS,
    *METRICS,
    *ORDERS,
    *MESSAGES,
    Endpoint(
        name="openapi", path="/v1/openapi.json", help="This API as an OpenAPI document.", answer=_openapi
    ),
)


@cache
def described() -> Json:
    """Return the OpenAPI document of all of them."""
    return document(ENDPOINTS)
