"""The verbs as tools, made from the table of verbs; and a person's message, passed on word for word.

The server offers a verb for people (`VerbSpec.guard`) only where a person allowed approvals. The same holds
for what turns another verb into one for people: `force`, and starting in a project that is not supervised.

Rules, not the model, find out what a message means. Where approvals are off, this module applies the same
rules first, so that words do not open what no tool opens. Free text opens nothing in any case.
"""

from __future__ import annotations

from shlex import join
from typing import Any, Final

from handoffd.api.verbs import VERBS, Parameter, VerbSpec
from handoffd.chat.addressing import directed
from handoffd.chat.intents import READING
from handoffd.engine.wording import command_for
from handoffd.entrance.place import Place
from handoffd.entrance.requests import Answer, account, ask, give, say
from handoffd.errors import Json, NotFound, Refused
from handoffd.mcp.reads import roster
from handoffd.mcp.tool import DATA, PROJECT, Offer, project_of, schema_of, takes

_PERSON: Final = (
    "For people: call it only when a person explicitly told you to, for this project and now. "
    "A question, praise, silence or your own judgement does not count as consent."
)


def verb_offers(*, approvals: bool) -> tuple[Offer, ...]:
    """Return the tools for verbs; `approvals` adds the verbs for people."""
    return tuple(_offer(spec, approvals) for spec in VERBS.values() if approvals or spec.guard != "always")


def _offer(spec: VerbSpec, approvals: bool) -> Offer:
    parameters = [one for one in spec.parameters if approvals or not _is_for_people(spec, one)]
    needed = tuple(one.name for one in parameters if one.needed)
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
        adds=spec.adds,
        repeats=spec.repeats,
    )


def _is_for_people(spec: VerbSpec, parameter: Parameter) -> bool:
    return parameter.forces and spec.guard != "never"


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
    return give(place, spec.name, project, arguments, by=_by())


def _by() -> str:
    return f"{account()} via mcp"


def require_known(place: Place, project: str) -> None:
    """Raise Refused for a project that is not supervised: starting there trusts its settings."""

    try:
        ask(place, "status", project=project)
    except NotFound as unknown:
        if not project.startswith("/"):
            raise
        message = f"{project} is not supervised: a person must begin, because that trusts its settings"
        raise Refused(message, code="PEOPLE_ONLY", hint=command_for(project, "init")) from unknown


# --- a person's message ------------------------------------------------------------------------------
_BEGINNING: Final = frozenset({"start_story", "start_custom"})
UNGUARDED: Final = READING | _BEGINNING | {"note", "pause", "abort"}
"""What a message may mean where approvals are off: only what the offered tools do."""


def message_offer(*, approvals: bool) -> Offer:
    """Return the tool; its reports are in the language of each message."""

    def run(place: Place, given: Json) -> Answer:
        if not approvals:
            _require_unguarded(place, given)
        return say(place, project_of(given), given["text"], by=_by(), supervised_only=not approvals)

    return Offer(
        name="message",
        title="Pass on a message",
        description="Pass on what a person wrote, word for word, in English or Chinese: a question is "
        "answered, a command is given, and work (anything else, and always work for CC) is handed to "
        "an agent. Tell the person the report in the answer, and obey its caller_instruction. Only for words "
        f"that a person wrote, never for your own. {DATA}",
        schema=takes(
            {
                "text": {"type": "string", "minLength": 1, "description": "The message, unchanged."},
                "project": {
                    "type": "string",
                    "minLength": 1,
                    "description": "The project that the message is about: its name or absolute path. The "
                    "message may name another.",
                },
            },
            ("text",),
        ),
        run=run,
    )


def _require_unguarded(place: Place, given: Json) -> None:
    """Raise Refused (PEOPLE_ONLY) for a message that only a person may send."""
    spoken_of, text = project_of(given), given["text"]
    meant = directed(text, [project["name"] for project in roster(place)])
    project = meant.project if meant.firm else spoken_of or meant.project
    if meant.intent.kind not in UNGUARDED:
        words = ("handoffd", "auto", *([project] if project else []), text)
        message = f"{meant.intent.kind} is for people, and this server was started without --allow-approvals"
        raise Refused(message, code="PEOPLE_ONLY", hint=join(words))
    if meant.intent.kind in _BEGINNING and project is not None:
        require_known(place, project)
