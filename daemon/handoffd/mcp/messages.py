"""A person's message as a tool: passed on word for word, and understood by rules instead of by the model.

Where approvals are off, what the message means is found out here first, by the same rules, so that
words do not open what no tool opens. Free text opens nothing in any case.
"""

from __future__ import annotations

import os
from shlex import join
from typing import Final

from handoffd.api.service import Caller
from handoffd.entrance.asking import Answer, account, either
from handoffd.entrance.place import Place
from handoffd.errors import Refused
from handoffd.mcp.arguments import takes
from handoffd.mcp.offer import DATA, Json, Offer, project_of
from handoffd.mcp.resources import roster
from handoffd.mcp.verbs import require_known
from handoffd.protocol.addressing import directed
from handoffd.protocol.intents import READING

_BEGINNING: Final = frozenset({"start_story", "start_custom"})
UNGUARDED: Final = READING | _BEGINNING | {"note", "pause", "abort"}
"""What a message may mean where approvals are off: what the tools that are offered then do, too."""


def message_offer(*, approvals: bool) -> Offer:
    """Return the tool; its reports are in the language of each message."""

    def run(place: Place, given: Json) -> Answer:
        if not approvals:
            _require_unguarded(place, given)
        return _sent(place, given, supervised_only=not approvals)

    return Offer(
        name="message",
        title="Pass on a message",
        description="Pass on what a person wrote, word for word, in English or Chinese: a question is "
        "answered, a command is given, and work (anything else, and always what CC is to do) is handed to "
        "an agent. Tell the person the report in the answer, and obey its caller_instruction. Only for words "
        f"that a person wrote, never for your own. {DATA}",
        schema=takes(
            {
                "text": {"type": "string", "minLength": 1, "description": "The message, unchanged."},
                "project": {
                    "type": "string",
                    "minLength": 1,
                    "description": "The project that is talked of: its name or absolute path. The message "
                    "may name another.",
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


def _sent(place: Place, given: Json, *, supervised_only: bool) -> Answer:
    project, text, by = project_of(given), given["text"], f"{account()} via mcp"

    def without() -> Json:
        from handoffd.api.chat import Messages, only_reads
        from handoffd.api.chat_target import Spoken
        from handoffd.entrance import offline

        caller = Caller(pid=os.getpid(), by=by)
        work = offline.look if only_reads(text) else offline.alone
        spoken = Spoken(project=project, supervised_only=supervised_only)
        return work(place.settings(), lambda service: Messages(service).answer(spoken, text, caller))

    body = {"project": project, "text": text, "by": by, "supervised_only": supervised_only}
    return either(place, lambda client: client.post("/v1/messages", body), without)
