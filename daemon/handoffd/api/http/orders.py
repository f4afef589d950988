"""Endpoints that change something: every verb, orders to the daemon itself, and chat messages.

The types of their answers come first, except the results of the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Literal

from msgspec import Struct

from handoffd.api.arguments import usage, values
from handoffd.api.chat import Messages, Spoken
from handoffd.api.http.answers import Tested
from handoffd.api.http.endpoint import BY, Asked, Endpoint
from handoffd.api.verbs import TAKE, VERBS, Parameter, VerbSpec
from handoffd.chat.wording import LANGUAGES
from handoffd.engine.decision import Result
from handoffd.engine.views import ProjectView
from handoffd.errors import Json, Refused
from handoffd.journal.retention import Doomed, Size


# --- answers -----------------------------------------------------------------------------------------
class Lifted(Struct, frozen=True, kw_only=True):
    """The outcome of lifting a limit."""

    type: Literal["lifted"]
    account: str
    projects: list[str]
    problems: list[str]


class FileProblem(Struct, frozen=True, kw_only=True):
    """One problem in a file: its position, the message, and the allowed values."""

    file: str
    line: int | None
    key: str | None
    message: str
    allowed: list[str]


class SettingsRead(Struct, frozen=True, kw_only=True):
    """The daemon's settings: the keys that took effect, those that need a restart, and problems."""

    file: str | None
    taken: bool
    changed: list[str]
    restart: list[str]
    problems: list[FileProblem]


class Reloaded(Struct, frozen=True, kw_only=True):
    """The outcome of reading settings, folders of projects and projects' files again."""

    type: Literal["reloaded"]
    settings: SettingsRead
    brought: int
    let_go: int
    problems: list[str]
    warnings: list[str]


class NotAdded(Struct, frozen=True, kw_only=True):
    """A project that is not supervised, and why."""

    project: str
    code: str
    message: str
    hint: str | None


class AddedMany(Struct, frozen=True, kw_only=True):
    """The roots that were added, and the refused ones."""

    type: Literal["added_many"]
    added: list[str]
    refused: list[NotAdded]


class Stopping(Struct, frozen=True, kw_only=True):
    """The daemon is about to end."""

    type: Literal["stopping"]
    executors: bool


class Cleaned(Struct, frozen=True, kw_only=True):
    """What was removed, or in a dry run would be; the sizes before; the number of kept runs by reason."""

    type: Literal["cleaned"]
    dry_run: bool
    freed_bytes: int
    doomed: list[Doomed]
    sizes: list[Size]
    kept: dict[str, int]
    problems: list[str]


class Tried(Struct, frozen=True, kw_only=True):
    """The outcome of one run of a project's tests; `fault` says why they could not run."""

    type: Literal["tried"]
    project: str
    command: list[str] | None
    path: str
    passed: bool | None
    verified: bool
    timed_out: bool
    fault: str | None
    tests: dict[str, int] | None
    failing: list[str]
    line: str | None
    tail: str
    seconds: float


class OtherTests(Struct, frozen=True, kw_only=True):
    """Tests that were found and that the project does not run: their folder and command."""

    folder: str
    command: list[str]


class Initialised(Struct, frozen=True, kw_only=True):
    """A project was prepared."""

    type: Literal["initialised"]
    project: str
    name: str
    called: str | None
    level: int
    created: list[str]
    missing: list[str]
    test_command: list[str] | None
    other_tests: list[OtherTests]
    warnings: list[str]


class Added(ProjectView, frozen=True, kw_only=True):
    """A project was added."""

    type: Literal["added"]


class Removed(Struct, frozen=True, kw_only=True):
    """A project was removed from supervision."""

    type: Literal["removed"]
    project: str
    name: str


class Trusted(Struct, frozen=True, kw_only=True):
    """The accepted keys of settings and rules."""

    type: Literal["trusted"]
    project: str
    trusted: list[str]


# --- verbs, and orders to the daemon itself ----------------------------------------------------------
_PROJECT: Final = Parameter(name="project", type="text", required=True, help="a project's name, or its path")

_SHAPES: Final[Mapping[str, Any]] = {
    **{name: Result for name, spec in VERBS.items() if spec.event is not None},
    "init": Initialised, "add": Added, "remove": Removed, "trust": Trusted,
}  # fmt: skip
"""Types of the answers of verbs; the other verbs have no declared type."""


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
        one_event=spec.event is not None, shape=_SHAPES.get(spec.name, dict[str, Any]),
    )  # fmt: skip


ORDERS: Final = (
    *(_verb(spec) for spec in VERBS.values()),
    Endpoint(
        name="lift_limit", path="/v1/limits/lift", method="POST",
        help="Stop waiting for an account: as `limits lift --json`.",
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
            Parameter(name="projects", type="paths", required=True, help="their absolute paths"),
            TAKE,
            BY,
        ),
        answer=_add_many, shape=AddedMany, hint="handoffd scan DIR --add",
    ),
    Endpoint(
        name="test_notices", path="/v1/notices/test", method="POST",
        help="Send a sample through each sink, or one: as `notify test --json`.",
        body=(Parameter(name="sink", type="text", help="the name of one sink; all without it"),),
        keyed=False, answer=_test_notices, shape=Tested, hint="handoffd notify test",
    ),
    Endpoint(
        name="try_tests", path="/v1/tests/try", method="POST",
        help="Run a project's tests once as the daemon does, for at most 40 s.",
        body=(_PROJECT, BY),
        keyed=False, answer=_try_tests, shape=Tried, hint="handoffd doctor PROJECT",
    ),
    Endpoint(
        name="reload", path="/v1/reload", method="POST",
        help="Read the settings, the projects and their files again: as `reload --json`.",
        body=(), answer=_reload, shape=Reloaded,
    ),
    Endpoint(
        name="gc", path="/v1/gc", method="POST",
        help="Remove what is no longer needed, or say what would be removed: as `gc --json`.",
        body=(Parameter(name="dry_run", type="flag", help="only report"), BY),
        answer=_gc, shape=Cleaned,
    ),
    Endpoint(
        name="stop", path="/v1/stop", method="POST",
        help="End the daemon; executors continue unless `executors` is true.",
        body=(Parameter(name="executors", type="flag", help="end the executors first"),),
        keyed=False, answer=_stop, shape=Stopping,
    ),
)  # fmt: skip


# --- messages from a chat ----------------------------------------------------------------------------
class MessageAnswer(Struct, frozen=True, kw_only=True):
    """The meaning of a message, its outcome, and a report for the sender."""

    type: Literal["message"]
    project: str | None
    intent: dict[str, Any]
    action: str
    result: dict[str, Any] | None
    report: str
    language: str
    caller_instruction: str


async def _answer(asked: Asked) -> Json:
    given = asked.given
    messages = Messages(asked.service)
    spoken = Spoken(project=given["project"], here=given["here"], supervised_only=given["supervised_only"])
    return await messages.answer(spoken, given["text"], asked.caller, given["language"])


MESSAGES: Final = (
    Endpoint(
        name="message", path="/v1/messages", method="POST",
        help="Do what a message means: as `auto --json`. 200 also if refused.",
        body=(
            Parameter(name="text", type="text", required=True, help="what a person wrote"),
            Parameter(name="project", type="text", help="the project that the message is about"),
            Parameter(
                name="here", type="text",
                help="the absolute path of the sender's folder: read if the message names no project, never "
                "changed",
            ),
            Parameter(
                name="supervised_only", type="flag",
                help="start no work in an unsupervised folder, even if the message names it",
            ),
            Parameter(name="language", type="text", choices=LANGUAGES, help="of the report: en or zh-TW"),
            BY,
        ),
        answer=_answer, shape=MessageAnswer, hint="handoffd auto PROJECT TEXT",
    ),
)  # fmt: skip
