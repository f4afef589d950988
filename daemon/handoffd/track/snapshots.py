"""Keeps the files of a track before something else is written over them, and brings them back.

It happens before the decision is committed that calls for it, so that the next executor never begins before
what the last one has left is kept. A snapshot that cannot be made holds nothing up: `status` warns, and the
story goes on. Bringing files back is a person's order, and refused unless it can be done whole.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import structlog
from msgspec.structs import replace

from handoffd.engine.decision import Decision, Refusal
from handoffd.engine.events import BroughtBack, Event, RolledBack
from handoffd.engine.track import Track, TrackKey
from handoffd.engine.wording import command_for
from handoffd.errors import Refused, StoreError
from handoffd.failpoints import reached
from handoffd.git.command import LIMIT_S
from handoffd.git.labels import KEPT, Label, Snapshot, before_step, label_of, left_last, of_this_life
from handoffd.git.repository import NO_REPOSITORY
from handoffd.git.snapshots import Snapshots
from handoffd.track.reach import Reach
from handoffd.track.services import Files, Services

log = structlog.get_logger(__name__)

_T = TypeVar("_T")


class TrackSnapshots:
    """The snapshots of one track's stories."""

    def __init__(self, key: TrackKey, files: Files, services: Services) -> None:
        self._key = key
        self._files = files
        self._services = services
        self._reach = Reach(key.project, services.asking)
        self.trouble: str | None = None
        """Why the last one was not made, in words; a project without a repository has none to make."""

    async def keep(self, before: Track, event: Event, decision: Decision) -> None:
        """Keep the files as they are if a decision that is about to be committed calls for that."""
        if not self._files.settings.snapshots:
            return
        label = label_of(before, event, decision, self._services.clock.now())
        if label is None:
            return
        reached("before_snapshot")
        try:
            made = await self._asked(before, lambda snapshots: snapshots.take(label))
        except StoreError as error:
            self.trouble = None if error.code == NO_REPOSITORY else f"{label.name} was not kept: {error}"
            if self.trouble is not None:
                log.warning("no snapshot", project=self._key.project, name=label.name, error=error.message)
        else:
            self.trouble = None
            log.debug("snapshot", project=self._key.project, ref=made.ref, commit=made.commit)
        reached("after_snapshot")

    async def bring_back(self, before: Track, event: RolledBack, decision: Decision) -> RolledBack:
        """Bring the files back as they were before a step, if a roll back asks for it and is accepted.

        Returns the event with the result. Raises HandoffdError when that cannot be done whole.
        """
        if not event.files or isinstance(decision.result, Refusal) or before.state is None:
            return event
        state, at = before.state, self._services.clock.now()
        kept = Label(story=state.story, step=state.step, result=KEPT, by=event.by, at=at)
        return replace(event, brought=await self._asked(before, partial(self._brought, event.step, kept)))

    def _brought(self, step: str, kept: Label, snapshots: Snapshots) -> BroughtBack:
        ours = of_this_life(snapshots.all(kept.story or ""))
        to, left = before_step(ours, step), left_last(ours)
        if to is None or left is None:
            hint = command_for(self._key.project, "snapshots")
            raise Refused(f"the files from before {step} were not kept", code="NO_SNAPSHOT", hint=hint)
        present, paths = snapshots.restore(to, left, kept)
        return BroughtBack(snapshot=to.ref, kept=present.ref, files=len(paths))

    async def all(self, track: Track) -> tuple[Snapshot, ...]:
        """Return the snapshots of the story in flight, by age. Raises StoreError where there are none."""
        story = track.state.story if track.state is not None else None

        def listed(snapshots: Snapshots) -> tuple[Snapshot, ...]:
            return snapshots.counted(of_this_life(snapshots.all(story)))

        return await self._asked(track, listed)

    async def _asked(self, track: Track, work: Callable[[Snapshots], _T]) -> _T:
        folder = track.works_in(self._key.project).folder
        state_dir, environment = self._services.settings.state_dir, self._services.environment
        return await self._reach.asked(lambda: work(Snapshots(folder, state_dir, environment)), LIMIT_S + 5)
