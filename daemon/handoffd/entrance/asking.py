"""Asking the daemon, and doing without one.

While no daemon runs, verbs take the daemon's lock and the same code, and nothing is dispatched;
reads look at the journal without a lock. Should a daemon start in between, it is asked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from handoffd.api.client import Client, Json
from handoffd.entrance.place import Place
from handoffd.errors import Foreign, Locked, NoDaemon

_LOCKED_S = 30.0
"""How long a daemon that is just starting (or another verb) is waited for."""
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a question, and whether a daemon answered it."""

    json: Json
    daemon: bool


def give(place: Place, verb: str, project: str, arguments: dict[str, Any], by: str | None = None) -> Answer:
    """Return what became of a verb, recorded as given `by` somebody; by the account, unless told otherwise.

    Raises HandoffdError for what cannot even be asked.
    """
    by = by or account()

    def without() -> Json:
        from handoffd.entrance import offline

        return offline.give(place.settings(), verb, project, arguments, by)

    body = {**arguments, "project": project, "by": by}
    while True:
        answer = either(place, lambda client: client.post(f"/v1/verbs/{verb}", body), without)
        if not answer.json.get("checking"):  # else the daemon let us go before its checks had ended
            return answer


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
            except Locked:
                if time.monotonic() > give_up_at:
                    raise
        time.sleep(_PAUSE_S)


def account() -> str:
    """Return the name under which verbs are recorded."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
