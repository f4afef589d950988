"""Every endpoint there is. Routes, docs/api.md and the OpenAPI document are made from this."""

from __future__ import annotations

from typing import Final

from handoffd.control.api.endpoint import Endpoint
from handoffd.control.api.orders import ORDERS
from handoffd.control.api.reads import READS
from handoffd.control.api.streams import STREAMS

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *READS,
    *STREAMS,
    *ORDERS,
)
