"""What Prometheus asks: how things stand, and what has been counted since the daemon's start."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from handoffd.control.api.endpoint import Asked, Endpoint
from handoffd.metrics.exposition import MEDIA


async def _metrics(asked: Asked) -> Response:
    return Response(await asked.service.metrics(), headers={"Content-Type": MEDIA})


METRICS: Final = (
    Endpoint(
        name="metrics", path="/metrics", help="The series of this daemon in the text format of Prometheus.",
        answer=_metrics, shape=str, media=("text/plain",), hint="handoffd metrics",
    ),
)  # fmt: skip
