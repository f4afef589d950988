"""A request: asked of the daemon, or, while none runs, answered in this process.

While no daemon runs, verbs take the daemon's lock and the same code, and nothing is dispatched; reads look
at the journal without a lock. Should a daemon start in between, it is asked. Questions about folders need
not even a journal, and create none: they read only the folder's files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from handoffd.api.client import Client, question_path
from handoffd.entrance.place import Place
from handoffd.errors import Foreign, InvalidFile, Json, Locked, NoDaemon, NotFound

# --- asking ------------------------------------------------------------------------------------
_LOCKED_S = 30.0
"""How long a daemon that is just starting (or another verb) is waited for."""
_PAUSE_S = 0.1
_CHECKING_S = 86_400.0
"""How long the answer to `check` is waited for: its commands have limits of their own."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, and whether a daemon gave it."""

    json: Json
    daemon: bool


def give(
    place: Place,
    verb: str,
    project: str,
    arguments: dict[str, Any],
    by: str | None = None,
    *,
    adds: Callable[[str], bool] | None = None,
) -> Answer:
    """Give a verb and return its answer; recorded as given by `by`, or else by the account.

    A project that is not supervised is added first, at level 1, if `adds` agrees. Raises HandoffdError for
    what cannot even be asked.
    """
    by = by or asker()

    def ask(client: Client) -> Json:
        client = place.client(_CHECKING_S) if verb == "check" else client
        try:
            return client.post(f"/v1/verbs/{verb}", body)
        except NotFound:
            if adds is None or not adds(project):
                raise
        client.post("/v1/verbs/add", {"project": project, "by": by})
        return client.post(f"/v1/verbs/{verb}", body)

    def without() -> Json:
        from handoffd.entrance import offline

        return offline.give(place.settings(), verb, project, arguments, by, adds)

    body = {**arguments, "project": project, "by": by}
    while True:
        answer = either(place, ask, without)
        if not answer.json.get("checking"):  # else the daemon let us go before its checks had ended
            return answer


def peek(place: Place, project: str, *, aside: Callable[[str], bool], story: str | None = None) -> Answer:
    """Return what the next turn of a project would do, of its `story` if it is named. Raises HandoffdError.

    The files of a project that is not supervised decide, if `aside` agrees.
    """

    try:
        return ask(place, "peek", project=project, story=story)
    except NotFound:
        if not aside(project):
            raise
    from handoffd.entrance import offline

    return Answer(offline.peek(project, place.settings().language), daemon=False)


def either(place: Place, ask: Callable[[Client], Json], without: Callable[[], Json]) -> Answer:
    """Return what the daemon answers, or, while none runs, what `without` returns."""
    give_up_at = time.monotonic() + _LOCKED_S
    while True:
        try:
            return Answer(ask(place.client()), daemon=True)
        except NoDaemon:
            try:
                return Answer(without(), daemon=False)
            except Foreign:
                raise
            except InvalidFile as invalid:
                raise _of_service(invalid, place) from None
            except Locked:
                if time.monotonic() > give_up_at:
                    raise
        time.sleep(_PAUSE_S)


def asker() -> str:
    """Return the name under which verbs are recorded: the account, and its terminal if there is one."""
    for fd in (0, 2):
        try:
            return f"{account()} on {os.ttyname(fd).removeprefix('/dev/')}"
        except OSError:
            continue
    return account()


def account() -> str:
    """Return the name of the account."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


# --- messages ----------------------------------------------------------------------------------
def say(
    place: Place,
    project: str | None,
    text: str,
    language: str | None = None,
    *,
    here: str | None = None,
    by: str | None = None,
    supervised_only: bool = False,
) -> Answer:
    """Return what a message meant, the result, and a report in words.

    `project` None: the one that the message names, else the one that the folder `here` belongs to.
    `language` None: the message's own. Recorded as said by `by`, or else by the account. `supervised_only`:
    no work starts in an unsupervised folder. Raises HandoffdError only for what cannot be asked at all.
    """
    by = by or asker()

    def without() -> Json:
        from handoffd.api.chat import Messages, only_reads
        from handoffd.api.places import Spoken
        from handoffd.api.service import Caller
        from handoffd.entrance import offline
        from handoffd.protocol.state import plain

        caller = Caller(pid=os.getpid(), by=by)
        meant = Spoken(project=project, here=here, supervised_only=supervised_only)
        work = offline.look if only_reads(text) else offline.alone
        answer = work(
            place.settings(), lambda service: Messages(service).answer(meant, text, caller, language)
        )
        return plain(answer)

    given = {
        "text": text, "by": by, "language": language, "project": project, "here": here,
        "supervised_only": supervised_only or None,
    }  # fmt: skip
    body = {name: value for name, value in given.items() if value is not None}
    return either(place, lambda client: client.post("/v1/messages", body), without)


# --- questions ---------------------------------------------------------------------------------
def ask(place: Place, question: str, **given: object) -> Answer:
    """Return the answer to a question of `api/questions.py`; what is None counts as left out.

    Raises HandoffdError for what cannot be answered.
    """
    given = {name: value for name, value in given.items() if value is not None}

    def without() -> Json:
        from handoffd.api.questions import QUESTIONS
        from handoffd.protocol.state import plain

        row, settings = QUESTIONS[question], place.settings()
        answer, known = partial(row.ask, **row.arguments(given)), settings.journal.exists()
        if known or not row.any_folder:
            from handoffd.entrance import offline

            work = offline.alone if known and row.after_edits else offline.look
            return plain(work(settings, answer))
        import anyio

        from handoffd.api.folders import Inspecting

        return plain(anyio.run(answer, Inspecting(None, settings.language)))

    return either(place, lambda client: client.get(question_path(question), **given), without)


def _of_service(invalid: InvalidFile, place: Place) -> InvalidFile:
    """Return the error for a file; if the service failed because of it, with the command that restarts it."""
    from handoffd.doctor.service import installed, units_of

    units = units_of(installed(place.environ, place.config), place.environ)
    if units is None or not units[0].refuses_settings:
        return invalid
    daemon = units[0]
    fixed = f"{invalid.hint or 'handoffd config check'}  # then: {daemon.start}"
    told = InvalidFile(invalid.problems, hint=fixed)
    told.message += f"\n{daemon.name} failed because of its settings; it starts once they are valid"
    return told
