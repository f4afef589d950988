"""What is made from the table of endpoints for the documentation."""

from __future__ import annotations

from tests.support.markdown import table

from handoffd.api.http.application import ENDPOINTS
from handoffd.api.http.endpoint import ERRORS, Endpoint, ErrorStatus


def endpoints() -> str:
    """Return every endpoint in one table."""
    rows = [
        (f"`{one.method} {one.path.replace(':path', '')}`", _meaning(one), _parameters(one))
        for one in ENDPOINTS
    ]
    return table(("Request", "What it does", "Query, or keys of the body"), rows)


def _meaning(endpoint: Endpoint) -> str:
    return "[verb](protocol/verbs.md)" if endpoint.path.startswith("/v1/verbs/") else endpoint.help


def problems() -> str:
    """Return every error status, with its codes."""
    rows = [(str(one.status), _codes(one), one.when) for one in ERRORS]
    return table(("Status", "Codes", "When"), rows)


def _codes(problem: ErrorStatus) -> str:
    return ", ".join([f"`{code}`" for code in problem.codes] + ["any other"] * problem.others)


def _parameters(endpoint: Endpoint) -> str:
    named = [(one.name, one.required) for one in endpoint.url if one.place == "query"]
    named += [(one.name, one.needed) for one in endpoint.body or ()]
    return ", ".join(f"**`{name}`**" if required else f"`{name}`" for name, required in named) or "–"
