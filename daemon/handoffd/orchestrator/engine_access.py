"""The way to the engine: through the daemon, or, while none runs, alone.

The reference works on any folder that has a STATE.json. Here a verb first adds the project, at level 1, so
that the daemon supervises it and still dispatches nothing.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from handoffd.api.client import Client
from handoffd.entrance.place import Place
from handoffd.entrance.requests import account, either
from handoffd.errors import HandoffdError, Json, NotFound, Refused
from handoffd.orchestrator.reads import BadState, NoState, read_state

if TYPE_CHECKING:
    from handoffd.api.service import Service


class Door:
    """Gives verbs to one project at `root`. A refusal is an answer of type `error`."""

    def __init__(self, root: str, environ: Mapping[str, str]) -> None:
        self.root = root
        self._place = Place(config=environ.get("HANDOFFD_CONFIG") or None, environ=environ)
        self._by = account()

    def give(self, verb: str, **arguments: Any) -> Json:
        """Return the answer to a verb, with the outcome of its checks. Raises HandoffdError."""
        body = {**arguments, "project": self.root, "by": self._by}
        answer: Json = {"checking": True}
        while answer.get("checking"):  # a daemon answers callers before long checks have ended
            answer = self._answer(
                lambda client: client.post(f"/v1/verbs/{verb}", body),
                lambda service: service.call(verb, self.root, arguments, self._caller()),
            )
        return answer

    def peek(self) -> Json:
        """Return what the next turn would do. This does not start supervising the project."""

        def known() -> Json:
            return either(
                self._place,
                lambda client: client.get("/v1/peek", project=self.root),
                lambda: self._alone(lambda service: service.peek(self.root)),
            ).json

        try:
            return known()
        except NotFound:
            return _or_error(self._aside)
        except Refused as error:
            return _as_answer(error)

    def at_gate(self) -> bool:
        """Return whether a supervised project waits for a person's decision."""
        from handoffd.entrance import offline

        try:
            shown = either(
                self._place,
                lambda client: client.get("/v1/status", project=self.root),
                lambda: offline.look(self._place.settings(), lambda service: service.status(self.root)),
            ).json
        except NotFound:
            return False
        return any(track["gate"] for project in shown["projects"] for track in project["tracks"])

    def _aside(self) -> Json:
        from handoffd.entrance import offline

        return offline.peek(self.root, self._place.settings().language)

    def _answer(self, ask: Callable[[Client], Json], call: Callable[[Service], Awaitable[Json]]) -> Json:
        def through(client: Client) -> Json:
            try:
                return ask(client)
            except NotFound:
                client.post("/v1/verbs/add", {"project": self.root, "by": self._by})
                return ask(client)

        return _or_error(lambda: either(self._place, through, lambda: self._alone(self._known(call))).json)

    def _known(self, call: Callable[[Service], Awaitable[Json]]) -> Callable[[Service], Awaitable[Json]]:
        async def supervised(service: Service) -> Json:
            try:
                return await call(service)
            except NotFound:
                await service.call("add", self.root, {}, self._caller())
                return await call(service)

        return supervised

    def _alone(self, work: Callable[[Service], Awaitable[Json]]) -> Json:
        from handoffd.entrance import offline

        return offline.alone(self._place.settings(), work)

    def _caller(self) -> Any:
        from handoffd.api.service import Caller

        return Caller(pid=os.getpid(), by=self._by)


def _or_error(give: Callable[[], Json]) -> Json:
    try:
        return give()
    except (Refused, NotFound) as error:
        return _as_answer(error)


def _as_answer(error: HandoffdError) -> Json:
    told = {"type": "error", "code": error.code, "message": error.message, "recoverable": False}
    return {**told, "next_command": error.hint}


def without_state(root: str) -> Json | None:
    """Return the error for a project without a usable STATE.json; None if it has one."""
    try:
        read_state(root)
    except (NoState, BadState) as error:
        return {"type": "error", "code": "STATE_NOT_FOUND", "message": str(error), "recoverable": False}
    return None
