"""A message instead of a verb: passed to the daemon, or, while none runs, understood here."""

from __future__ import annotations

import os

from handoffd.control.client import Json
from handoffd.entrance.asking import Answer, account, either
from handoffd.entrance.place import Place


def say(place: Place, project: str | None, text: str, language: str | None = None) -> Answer:
    """Return what a message meant, what became of it, and a report in words.

    `project` None: the one that the message names, if one has to be named. `language` None: the message's
    own. Raises HandoffdError only for what cannot be asked at all.
    """
    by = account()

    def without() -> Json:
        from handoffd.control.messages import Messages, only_reads
        from handoffd.control.service import Caller
        from handoffd.entrance import offline

        caller = Caller(pid=os.getpid(), by=by)
        work = offline.look if only_reads(text) else offline.alone
        return work(
            place.settings(), lambda service: Messages(service).answer(project, text, caller, language)
        )

    body = {"text": text, "by": by, "language": language}
    if project is not None:
        body["project"] = project
    return either(place, lambda client: client.post("/v1/messages", body), without)
