"""The way to the engine: through the daemon, or, while none runs, alone.

The reference works on any folder that has a STATE.json. Here a verb first adds the project, at level 1, so
that the daemon supervises it and still dispatches nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from handoffd.entrance.place import Place
from handoffd.entrance.requests import Answer, ask, give, peek
from handoffd.errors import Json, NotFound, Refused
from handoffd.orchestrator.reads import BadState, NoState, read_state


class Door:
    """Gives verbs to one project at `root`. A refusal is an answer of type `error`."""

    def __init__(self, root: str, environ: Mapping[str, str]) -> None:
        self.root = root
        self._place = Place(config=environ.get("HANDOFFD_CONFIG") or None, environ=environ)

    def give(self, verb: str, **arguments: Any) -> Json:
        """Return the answer to a verb, with the outcome of its checks. Raises HandoffdError."""
        return _or_error(lambda: give(self._place, verb, self.root, arguments, adds=_always))

    def peek(self) -> Json:
        """Return what the next turn would do. This does not start supervising the project."""
        return _or_error(lambda: peek(self._place, self.root, aside=_always))

    def at_gate(self) -> bool:
        """Return whether a supervised project waits for a person's decision."""
        try:
            shown = ask(self._place, "status", project=self.root).json
        except NotFound:
            return False
        return any(track["gate"] for project in shown["projects"] for track in project["tracks"])


def _always(_: str) -> bool:
    """Return True: what needs a STATE.json has looked for one before."""
    return True


def _or_error(ask: Callable[[], Answer]) -> Json:
    try:
        return ask().json
    except (Refused, NotFound) as error:
        told = {"type": "error", "code": error.code, "message": error.message, "recoverable": False}
        return {**told, "next_command": error.hint}


def without_state(root: str) -> Json | None:
    """Return the error for a project without a usable STATE.json; None if it has one."""
    try:
        read_state(root)
    except (NoState, BadState) as error:
        return {"type": "error", "code": "STATE_NOT_FOUND", "message": str(error), "recoverable": False}
    return None
