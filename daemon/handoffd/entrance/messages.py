"""A message instead of a verb: passed to the daemon, or, while none runs, understood here."""

from __future__ import annotations

import os

from handoffd.api.client import Json
from handoffd.entrance.asking import Answer, account, either
from handoffd.entrance.place import Place


def say(
    place: Place, project: str | None, text: str, language: str | None = None, *, here: str | None = None
) -> Answer:
    """Return what a message meant, what became of it, and a report in words.

    `project` None: the one that the message names, else the one that the folder `here` belongs to.
    `language` None: the message's own. Raises HandoffdError only for what cannot be asked at all.
    """
    by = account()

    def without() -> Json:
        from handoffd.api.chat import Messages, only_reads
        from handoffd.api.chat_target import Spoken
        from handoffd.api.service import Caller
        from handoffd.entrance import offline

        caller, spoken = Caller(pid=os.getpid(), by=by), Spoken(project=project, here=here)
        work = offline.look if only_reads(text) else offline.alone
        return work(
            place.settings(), lambda service: Messages(service).answer(spoken, text, caller, language)
        )

    given = {"text": text, "by": by, "language": language, "project": project, "here": here}
    body = {name: value for name, value in given.items() if value is not None}
    return either(place, lambda client: client.post("/v1/messages", body), without)
