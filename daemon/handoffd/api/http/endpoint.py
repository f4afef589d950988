"""What an endpoint of the API is: one declaration, from which its route and its description come.

To add one: an `Endpoint` in `reads.py`, `orders.py` or `streams.py`. Its parameters are checked before its
function is called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import anyio
from starlette.requests import Request
from starlette.responses import Response

from handoffd.api.events import Json
from handoffd.api.service import Caller, Service
from handoffd.api.verbs import Parameter

MOST: Final = 2**53
"""The largest number that every reader of JSON takes for the same one."""

KEY_HEADER: Final = "Idempotency-Key"
MOST_KEY: Final = 128
"""Characters of a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlParameter:
    """A value in the URL, or in a header.

    `number` is a whole one from 0; above `most` it counts as `most`. `flag` is 1, true, 0 or false, and
    true when only its name is there. One that is left out, and a text that is empty, is `default`.
    """

    name: str
    help: str
    type: Literal["text", "number", "flag"] = "text"
    place: Literal["query", "path", "header"] = "query"
    required: bool = False
    default: Any = None
    most: int = MOST
    choices: tuple[str, ...] = ()
    pattern: str | None = None
    """What its text looks like, for the description; whoever answers checks it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request, checked: `given` has a value for every parameter of the endpoint, by name.

    Streams end when `closing` is set. Of an endpoint that is `raw`, `body` is the JSON object as it came.
    """

    service: Service
    given: Mapping[str, Any]
    body: Json
    caller: Caller
    closing: anyio.Event
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one path.

    `answer` turns a request into a JSON object (409 when its `type` is `error`), or into a response of
    its own. `shape` is the type of that object, anything pydantic can describe, `media` what it comes as.
    `body` None: nothing can be sent along. `raw`: `answer` checks the body itself. `keyed`: it may come
    with an idempotency key. `one_event`: what comes of it is one event at most, whose result is the answer.
    `long` names a list in the answer that may have thousands of entries. `hint`: how a person would ask,
    after a bad request.
    """

    name: str
    path: str
    help: str
    answer: Callable[[Asked], Awaitable[Json | Response]]
    method: Literal["GET", "POST"] = "GET"
    url: tuple[UrlParameter, ...] = ()
    body: tuple[Parameter, ...] | None = None
    raw: bool = False
    keyed: bool = True
    one_event: bool = False
    shape: Any = dict[str, Any]
    media: tuple[str, ...] = ("application/json",)
    long: str | None = None
    hint: str | None = None


PROJECT: Final = UrlParameter(name="project", help="a project's name, or its path; all without it")
ONE_PROJECT: Final = UrlParameter(name="project", help="a project's name, or its path", required=True)
BY: Final = Parameter(name="by", type="text", help="the name to record; `api` without it")
