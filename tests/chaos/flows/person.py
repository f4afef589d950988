"""The person of a play, inside of its daemon: starts the flow, answers, pauses and aborts as the play says.

Each daemon has one, and none remembers anything: what was done already is read from the journal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from handoffd.api.http.server import ControlServer
from handoffd.app import daemon
from handoffd.engine.flow.events import Answered, FlowAborted, FlowPaused, FlowResumed
from handoffd.errors import HandoffdError
from handoffd.flow.supervisor import FlowSupervisor
from handoffd.project.project import Project

_LOOK_S = 0.02
_PAUSE_S = 0.5
"""How long a flow stays paused, at least."""
_NAME = "a person"

Work = Callable[[], Coroutine[Any, Any, object]]


def attend(script: str) -> None:
    """Have the daemon of this process attended by the person of a play; `script` is the path of its JSON."""
    told = json.loads(Path(script).read_text())

    class Attended(daemon.Daemon):
        """A daemon with a person in it."""

        def _lasting(self, server: ControlServer) -> list[tuple[str, Work]]:
            person = Person(self, told)
            return [*super()._lasting(server), ("person", person.live)]

    daemon.Daemon = Attended  # type: ignore[misc]


class Person:
    """Looks at the flows of one project, again and again."""

    def __init__(self, host: daemon.Daemon, script: dict[str, Any]) -> None:
        self._roster, self._journal = host._roster, host._services.journal
        self._root = script["root"]
        self._script = script

    async def live(self) -> None:
        """Do what the play says, until the flow is over."""
        project = await self._roster._begun(self._root)
        if not await self._given("flow_started"):
            await project.trust()
            await project.flows.start(self._script["pipeline"], self._script["params"], by=_NAME)
        while True:
            project = await self._roster._begun(self._root)
            for flow in tuple(project.flows.open.values()):
                with suppress(HandoffdError):  # it went on meanwhile
                    await self._look_at(flow)
            if await self._is_over(project):
                self._note_end()
            await anyio.sleep(_LOOK_S)

    async def _look_at(self, flow: FlowSupervisor) -> None:
        value = flow.flow
        for name in value.asking:
            node = value.nodes[name]
            choice = self._script["answers"].get(f"{name}/{node.visit}")
            if choice is not None and value.paused_by is None:
                await flow.give(Answered(node=name, visit=node.visit, choice=choice, by=_NAME))
        for verb, nodes in self._script["verbs"]:
            working = all(name in value.busy for name in nodes.split())
            if verb == "pause" and working and value.paused_by is None:
                if not await self._given("flow_paused"):
                    await flow.give(FlowPaused(by=_NAME))
            elif verb == "abort" and working and not value.aborts:
                await flow.give(FlowAborted(by=_NAME))
        if value.paused_by == _NAME and not value.nodes["one"].closing:
            await anyio.sleep(_PAUSE_S)
            await flow.give(FlowResumed(by=_NAME))

    async def _given(self, kind: str) -> bool:
        events = await self._journal.events(0, self._root, 100_000)
        return any(one.kind == kind for one in events)

    async def _is_over(self, project: Project) -> bool:
        return not project.flows.open and not await self._journal.pending_effects(self._root)

    def _note_end(self) -> None:
        Path(self._script["over"]).touch()
