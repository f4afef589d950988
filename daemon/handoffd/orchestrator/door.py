"""The way to the engine: through the daemon, or, while none runs, alone.

The reference works on any folder that has a STATE.json. Here a project is supervised first; that
happens by itself, at level 1: nothing is dispatched because of it.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from handoffd.control.client import Client
from handoffd.entrance.asking import account, either
from handoffd.entrance.place import Place
from handoffd.errors import NotFound, Refused

if TYPE_CHECKING:
    from handoffd.control.service import Service

Json = dict[str, Any]

_T = TypeVar("_T")


class Door:
    """Gives verbs to one project at `root`. What is refused is an answer of type `error`, too."""

    def __init__(self, root: str, environ: Mapping[str, str]) -> None:
        self.root = root
        self._place = Place(config=environ.get("HANDOFFD_CONFIG") or None, environ=environ)
        self._by = account()

    def give(self, verb: str, **arguments: Any) -> Json:
        """Return what became of a verb, and of the checks it led to. Raises HandoffdError if nobody can say."""
        body = {**arguments, "project": self.root, "by": self._by}
        answer: Json = {"checking": True}
        while answer.get("checking"):  # a daemon lets its callers go before long checks have ended
            answer = self._answer(
                lambda client: client.post(f"/v1/verbs/{verb}", body),
                lambda service: service.call(verb, self.root, arguments, self._caller()),
            )
        return answer

    def peek(self) -> Json:
        """Return what the next turn would do."""
        return self._answer(
            lambda client: client.get("/v1/peek", project=self.root), lambda service: service.peek(self.root)
        )

    def _answer(self, ask: Callable[[Client], Json], call: Callable[[Service], Awaitable[Json]]) -> Json:
        def through(client: Client) -> Json:
            try:
                return ask(client)
            except NotFound:
                client.post("/v1/verbs/add", {"project": self.root, "by": self._by})
                return ask(client)

        async def supervised(service: Service) -> Json:
            try:
                return await call(service)
            except NotFound:
                await service.call("add", self.root, {}, self._caller())
                return await call(service)

        try:
            return either(self._place, through, lambda: self._alone(supervised)).json
        except (Refused, NotFound) as error:
            told = {"type": "error", "code": error.code, "message": error.message, "recoverable": False}
            return {**told, "next_command": error.hint}

    def _alone(self, work: Callable[[Service], Awaitable[_T]]) -> _T:
        from handoffd.entrance import offline

        return offline.alone(self._place.settings(), work)

    def _caller(self) -> Any:
        from handoffd.control.service import Caller

        return Caller(pid=os.getpid(), by=self._by)


def no_state(message: str) -> Json:
    """Return the error for a project without a STATE.json that could be used."""
    return {"type": "error", "code": "STATE_NOT_FOUND", "message": message, "recoverable": False}
