"""What makes work go on because of a message: a start, or a `continue`.

At level 2 handoffd dispatches by itself, so a start is all there is to do. At level 1 the prompt of the
step is handed to whoever sent the message. Starting this way never changes a project's level.
"""

from __future__ import annotations

from handoffd.control.history import Json
from handoffd.control.service import Caller, Service
from handoffd.errors import NotFound

Outcome = tuple[str, Json]
"""What became of it in a word, and the result."""


class Progress:
    """Starts and continues for one message."""

    def __init__(self, service: Service, caller: Caller) -> None:
        self._service = service
        self._caller = caller

    async def start(self, project: str, verb: str, arguments: Json) -> Outcome:
        """Start a story or custom task; at level 1, take its first prompt. Raises HandoffdError."""
        level = await self._level(project)
        given = {**arguments, "manual": True} if level < 2 else arguments
        result = await self._service.call(verb, project, given, self._caller)
        if result["type"] == "error" and result["code"] == "STORY_IN_PROGRESS":
            return await self._queue(project, verb, given)
        if result["type"] == "error":
            return "error", result
        return ("started", result) if level == 2 else await self._take(result["project"])

    async def _queue(self, project: str, verb: str, given: Json) -> Outcome:
        """Have it wait behind what is in flight: nothing that somebody asked for is lost."""
        result = await self._service.call(verb, project, {**given, "queue": True}, self._caller)
        if result["type"] == "error":
            return "error", result
        [track, *_] = (await self._service.project(result["project"]))["tracks"]
        return "queued", {**result, "story": next(iter(track["backlog"][-1:]), None)}

    async def go_on(self, root: str) -> Outcome:
        """Take the next step, or tell why there is none to take. Raises HandoffdError."""
        view = await self._service.project(root)
        if view["level"] < 2:
            return await self._by_hand(root, view)
        coming = (await self._service.peek(root))["result"]
        if not view["paused_by"] and _may_start(view):
            return await self._continue(root)
        if view["paused_by"] or coming["type"] in {"dispatched", "accepted"}:
            result = await self._service.call("resume", root, {}, self._caller)
            return ("error" if result["type"] == "error" else "resumed"), result
        return coming["type"], coming

    async def _by_hand(self, root: str, view: Json) -> Outcome:
        """Hear the hand-off of the step that was taken, if there is one, and take the next."""
        running = bool(view["tracks"]) and view["tracks"][0]["status"] == "running"
        applied = await self._service.call("apply", root, {}, self._caller) if running else None
        if applied is not None and applied["type"] == "error":
            return "error", applied
        action, result = await self._next(root, await self._take(root))
        heard = applied is not None and applied["type"] == "applied" and not applied["checking"]
        return action, {**result, "applied": applied} if heard else result

    async def _next(self, root: str, outcome: Outcome) -> Outcome:
        """Start the next story of the backlog where the one in hand is done."""
        action, result = outcome
        if action != "done" or not result.get("next_story"):
            return outcome
        action, result = await self._continue(root)
        return (action, result) if action == "error" else await self._take(root)

    async def _continue(self, root: str) -> Outcome:
        result = await self._service.call("continue", root, {}, self._caller)
        return ("error" if result["type"] == "error" else "resumed"), result

    async def _take(self, root: str) -> Outcome:
        """Return the prompt of the next step, with what a caller wants to know of it."""
        result = await self._service.call("dispatch", root, {}, self._caller)
        if result["type"] == "dispatched":
            result["next_step"] = (await self._service.query(root))["next_step"]
        return result["type"], result

    async def _level(self, project: str) -> int:
        try:
            root = self._service.root_of(project)
        except NotFound:
            return 0
        assert root is not None
        return int((await self._service.project(root))["level"])


def _may_start(view: Json) -> bool:
    """Return whether a story waits that could start now, because none is in flight."""
    track = view["tracks"][0] if view["tracks"] else None
    if track is None or track["next_story"] is None:
        return False
    return track["story"] is None or track["step"] == "done"
