"""Endpoints that change something: every verb of the vocabulary, and what concerns the daemon itself."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from handoffd.control.api.endpoint import BY, Asked, Endpoint
from handoffd.control.api.order_shapes import (
    Added,
    AddedMany,
    Cleaned,
    Initialised,
    Lifted,
    Reloaded,
    Removed,
    Stopping,
    Tried,
    Trusted,
)
from handoffd.control.api.shapes import ResultOfVerb, Tested
from handoffd.control.history import Json
from handoffd.control.verbs import EVENTS, usage, values
from handoffd.control.vocabulary import TAKE, VERBS, Parameter, VerbSpec
from handoffd.errors import Refused

_PROJECT: Final = Parameter(name="project", type="text", required=True, help="a project's name, or its path")
_EVENTS: Final = frozenset({"start", "custom", *EVENTS})

_SHAPES: Final[Mapping[str, Any]] = {
    **dict.fromkeys(_EVENTS, ResultOfVerb),
    "init": Initialised, "add": Added, "remove": Removed, "trust": Trusted,
}  # fmt: skip
"""What verbs answer; an object of its own that is not described here, for any other."""


async def _give(asked: Asked, spec: VerbSpec) -> Json:
    given = {name: value for name, value in asked.body.items() if name != "by"}
    try:
        project = values((_PROJECT,), {"project": given.pop("project", None)})["project"]
    except Refused as refused:
        refused.hint = usage(spec, "PROJECT")
        raise
    return await asked.service.call(spec.name, project, given, asked.caller)


async def _lift_limit(asked: Asked) -> Json:
    return await asked.service.lift_limit(asked.given["account"], asked.caller)


async def _add_many(asked: Asked) -> Json:
    given = asked.given
    return await asked.service.add_many(given["projects"], asked.caller, take=given["take"])


async def _test_notices(asked: Asked) -> Json:
    return await asked.service.test_notices(asked.given["sink"], asked.caller)


async def _try_tests(asked: Asked) -> Json:
    return await asked.service.try_tests(asked.given["project"], asked.caller)


async def _reload(asked: Asked) -> Json:
    return await asked.service.reload()


async def _gc(asked: Asked) -> Json:
    return await asked.service.gc(asked.caller, dry_run=asked.given["dry_run"])


async def _stop(asked: Asked) -> Json:
    return await asked.service.stop(asked.caller, executors=asked.given["executors"])


def _verb(spec: VerbSpec) -> Endpoint:
    return Endpoint(
        name=spec.name, path=f"/v1/verbs/{spec.name}", method="POST", help=spec.help,
        body=(_PROJECT, *spec.parameters, BY), raw=True, answer=partial(_give, spec=spec),
        one_event=spec.name in _EVENTS, shape=_SHAPES.get(spec.name, dict[str, Any]),
    )  # fmt: skip


ORDERS: Final = (
    *(_verb(spec) for spec in VERBS.values()),
    Endpoint(
        name="lift_limit", path="/v1/limits/lift", method="POST",
        help="Have nobody wait for an account any more: as `limits lift --json`.",
        body=(
            Parameter(name="account", type="text", required=True, help="name one that is limited"),
            BY,
        ),
        answer=_lift_limit, shape=Lifted, hint="handoffd limits lift ACCOUNT",
    ),
    Endpoint(
        name="add_many", path="/v1/projects", method="POST",
        help="Supervise many projects at once, as `scan --add`; dispatches as `add` does.",
        body=(
            Parameter(name="projects", type="paths", required=True, help="their paths, whole ones"),
            TAKE,
            BY,
        ),
        answer=_add_many, shape=AddedMany, hint="handoffd scan DIR --add",
    ),
    Endpoint(
        name="test_notices", path="/v1/notices/test", method="POST",
        help="Tell people a sample by each sink, or by one, and say how it went: as `notify test --json`.",
        body=(Parameter(name="sink", type="text", help="the name of one sink; all without it"),),
        keyed=False, answer=_test_notices, shape=Tested, hint="handoffd notify test",
    ),
    Endpoint(
        name="try_tests", path="/v1/tests/try", method="POST",
        help="Run a project's tests once as the daemon measures them, for no story and at most 40 s.",
        body=(_PROJECT, BY),
        keyed=False, answer=_try_tests, shape=Tried, hint="handoffd doctor PROJECT",
    ),
    Endpoint(
        name="reload", path="/v1/reload", method="POST",
        help="Read the settings, where projects lie, and every project's files again; tells what came of it.",
        body=(), answer=_reload, shape=Reloaded,
    ),
    Endpoint(
        name="gc", path="/v1/gc", method="POST",
        help="Remove what nobody needs any more, or say what would be removed: as `gc --json`.",
        body=(Parameter(name="dry_run", type="flag", help="only say it"), BY),
        answer=_gc, shape=Cleaned,
    ),
    Endpoint(
        name="stop", path="/v1/stop", method="POST",
        help="End the daemon; executors go on unless told otherwise.",
        body=(Parameter(name="executors", type="flag", help="end the executors first"),),
        keyed=False, answer=_stop, shape=Stopping,
    ),
)  # fmt: skip
