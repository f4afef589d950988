"""The verbs as tools, made from the table of verbs.

A verb that is for people (`VerbSpec.guard`) is offered only where a person allowed approvals, and so is
what makes another one of them: `force`, and starting in a project that nobody supervises yet.
"""

from __future__ import annotations

from typing import Any, Final

from handoffd.api.verbs import VERBS, Parameter, VerbSpec
from handoffd.engine.commands import command_for
from handoffd.entrance.asking import Answer, account, either, give
from handoffd.entrance.place import Place
from handoffd.errors import NotFound, Refused
from handoffd.mcp.arguments import PROJECT, schema_of, takes
from handoffd.mcp.offer import DATA, Json, Offer, project_of

ADDS: Final = frozenset(
    {
        "init",
        "add",
        "start",
        "custom",
        "dispatch",
        "apply",
        "check",
        "pause",
        "resume",
        "continue",
        "note",
        "trust",
        "backlog_move",
        "backlog_auto",
    }
)
"""Verbs that take nothing away: what was there before is there after. Any other is marked destructive."""
REPEATS: Final = frozenset(
    {
        "init",
        "add",
        "trust",
        "apply",
        "pause",
        "resume",
        "level",
        "use",
        "backlog_move",
        "backlog_edit",
        "backlog_auto",
    }
)
"""Verbs that do nothing more when they are given again."""

_PERSON: Final = (
    "For people: call it only when a person told you to, in so many words, for this project and now. "
    "A question, praise, silence or your own judgement is no consent."
)
_FORCE: Final = "force"


def verb_offers(*, approvals: bool) -> tuple[Offer, ...]:
    """Return the tools for verbs; `approvals` adds those that are for people."""
    return tuple(_offer(spec, approvals) for spec in VERBS.values() if approvals or spec.guard != "always")


def _offer(spec: VerbSpec, approvals: bool) -> Offer:
    parameters = [one for one in spec.parameters if approvals or not _is_for_people(spec, one)]
    needed = tuple(one.name for one in parameters if one.required)
    described = [spec.help, *([_PERSON] if spec.guard == "always" else []), _obey(spec), DATA]

    def run(place: Place, given: Json) -> Answer:
        return _give(place, spec, given, approvals=approvals)

    return Offer(
        name=spec.name,
        title=spec.help.split(".")[0].split(";")[0].split(":")[0],
        description=" ".join(described),
        schema=takes(
            {"project": PROJECT, **{one.name: schema_of(one) for one in parameters}}, ("project", *needed)
        ),
        run=run,
        adds=spec.name in ADDS,
        repeats=spec.name in REPEATS,
    )


def _is_for_people(spec: VerbSpec, parameter: Parameter) -> bool:
    return parameter.name == _FORCE and spec.guard != "never"


def _obey(spec: VerbSpec) -> str:
    if not spec.parameters and spec.guard == "always":
        return "The answer's next_command is what a person would type next."
    return "Do what the answer's caller_instruction says; next_command is what a person would type next."


def _give(place: Place, spec: VerbSpec, given: Json, *, approvals: bool) -> Answer:
    project = project_of(given)
    assert project is not None  # the schema requires it
    if spec.guard == "unknown" and not approvals:
        require_known(place, project)
    arguments: dict[str, Any] = {name: value for name, value in given.items() if name != "project"}
    return give(place, spec.name, project, arguments, by=f"{account()} via mcp")


def require_known(place: Place, project: str) -> None:
    """Raise Refused for a project that nobody supervises: to begin with one is to trust its settings."""

    def without() -> Json:
        from handoffd.entrance import offline

        return offline.look(place.settings(), lambda service: service.project(project))

    try:
        either(place, lambda client: client.get("/v1/status", project=project), without)
    except NotFound as unknown:
        if not project.startswith("/"):
            raise
        message = f"nobody supervises {project}: a person has to begin, which trusts its settings"
        raise Refused(message, code="PEOPLE_ONLY", hint=command_for(project, "init")) from unknown
