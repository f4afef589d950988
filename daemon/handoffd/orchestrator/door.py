"""The way to the engine: through the daemon, or, while none runs, alone.

The reference works on any folder that has a STATE.json. Here a project is supervised first; that
happens by itself, at level 1: nothing is dispatched because of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handoffd.entrance.asking import Answer, either, give
from handoffd.entrance.place import Place
from handoffd.errors import NotFound, Refused

Json = dict[str, Any]


class Door:
    """Gives verbs to one project at `root`. What is refused is an answer of type `error`, too."""

    def __init__(self, root: str, environ: Mapping[str, str]) -> None:
        self.root = root
        self._place = Place(config=environ.get("HANDOFFD_CONFIG") or None, environ=environ)

    def give(self, verb: str, **arguments: Any) -> Json:
        """Return what became of a verb. Raises HandoffdError for what cannot even be asked."""
        return self._answer(lambda: give(self._place, verb, self.root, arguments))

    def peek(self) -> Json:
        """Return what the next turn would do."""

        def without() -> Json:
            from handoffd.entrance import offline

            return offline.alone(self._place.settings(), lambda service: service.peek(self.root))

        return self._answer(
            lambda: either(self._place, lambda client: client.get("/v1/peek", project=self.root), without)
        )

    def _answer(self, ask: Any) -> Json:
        try:
            return self._supervised(ask).json
        except (Refused, NotFound) as error:
            told = {"type": "error", "code": error.code, "message": error.message, "recoverable": False}
            return {**told, "next_command": error.hint}

    def _supervised(self, ask: Any) -> Answer:
        """Return the answer; a project that nobody knew is added and asked about again."""
        try:
            answer: Answer = ask()
        except NotFound:
            give(self._place, "add", self.root, {})
            answer = ask()
        return answer


def no_state(message: str) -> Json:
    """Return the error for a project without a STATE.json that could be used."""
    return {"type": "error", "code": "STATE_NOT_FOUND", "message": message, "recoverable": False}


