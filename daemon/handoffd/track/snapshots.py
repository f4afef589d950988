"""Keeps the files of a track before something else is written over them, and brings them back.

It happens before the decision is committed that calls for it, so that the next executor never begins before
what the last one has left is kept. A snapshot that cannot be made holds nothing up: `status` warns, and the
story goes on. Bringing files back is a person's order, and refused unless it can be done whole.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

import structlog
from msgspec.structs import replace

from handoffd.engine.decision import Decision, Refusal
from handoffd.engine.events import Event, RolledBack
from handoffd.engine.track import BroughtBack, Track, TrackKey
from handoffd.engine.wording import command_for, first_few
from handoffd.errors import Refused, StoreError
from handoffd.failpoints import reached
from handoffd.git.command import TOO_SLOW
from handoffd.git.labels import (
    BEGUN,
    KEPT,
    STARTED,
    Label,
    Snapshot,
    label_of,
    of_this_life,
    since_decision,
    since_step,
)
from handoffd.git.repository import NO_REPOSITORY, repository_at
from handoffd.git.snapshots import RESTORE_LIMIT_S, Comparison, Snapshots
from handoffd.git.worktree import FIRST_LIMIT_S, LIMIT_S
from handoffd.track.reach import Reach
from handoffd.track.services import Files, Services

log = structlog.get_logger(__name__)

AT_ONCE_S = 2.0
"""How soon after a snapshot an attempt is begun without another: only a wait gives others the time."""
REST_S = 1800.0
"""How long no snapshot is made after one that took too long: each would hold the story up."""


class TrackSnapshots:
    """The snapshots of one track's stories."""

    def __init__(self, key: TrackKey, files: Files, services: Services) -> None:
        self._key = key
        self._files = files
        self._services = services
        # A look must not keep a snapshot from being made: they do not wait for each other.
        self._making, self._looking = Reach(key.project, services.asking), Reach(key.project, services.asking)
        self._rests_until = 0.0
        """Until when (monotonic seconds) none is made, as the last ones took too long."""
        self._made_at = -AT_ONCE_S
        """When (monotonic seconds) the last one was made here."""
        self._comparing = asyncio.Lock()
        self._compared: tuple[tuple[Snapshot, ...], Comparison] | None = None
        """The last comparison, and of what: commits do not change, and a screen asks again and again."""
        self.trouble: str | None = None
        """Why the last one was not made, in words; a project without a repository has none to make."""

    async def keep(self, before: Track, event: Event, decision: Decision) -> None:
        """Keep the files as they are if a decision that is about to be committed calls for that."""
        label = label_of(before, event, decision, self._services.clock.now())
        now = self._services.clock.monotonic()
        if label is None or (label.result == STARTED and now - self._made_at < AT_ONCE_S):
            return
        if label.result in {BEGUN, STARTED}:
            before = decision.track  # where the attempt begins: a story may have got its place just now
        if not self._files.settings.snapshots or now < self._rests_until:
            with suppress(StoreError):
                await self._making.asked(partial(self._snapshots(before).miss, label))
            return
        reached("before_snapshot")
        self.trouble = await self._kept(before, label)
        self._made_at = self._services.clock.monotonic()
        reached("after_snapshot")

    async def _kept(self, track: Track, label: Label) -> str | None:
        """Make a snapshot; return what is wrong with it, if something is."""
        snapshots = self._snapshots(track)
        what = f"the files that {label.step} left" if label.numbered else "the present files"
        try:
            made = await self._making.asked(partial(snapshots.take, label), FIRST_LIMIT_S + 5)
        except StoreError as error:
            if error.code == NO_REPOSITORY:
                return None
            log.warning("no snapshot", project=self._key.project, step=label.step, error=error.message)
            if error.code != TOO_SLOW:
                return f"{what} were not kept: {error.message}"
            self._rests_until = self._services.clock.monotonic() + REST_S
            return f"{what} were not kept: {error.message}; none is made for {REST_S / 60:.0f} min"
        log.debug("snapshot", project=self._key.project, ref=made.ref, commit=made.commit)
        return f"{made.name} is without {first_few(snapshots.left_out)}" if snapshots.left_out else None

    async def bring_back(self, before: Track, event: RolledBack, decision: Decision) -> RolledBack:
        """Bring the files back as they were before a step, if a roll back asks for it and is accepted.

        Return the event with the result. Raises HandoffdError when that cannot be done whole.
        """
        if not event.files or isinstance(decision.result, Refusal) or before.state is None:
            return event
        state, at = before.state, self._services.clock.now()
        kept = Label(story=state.story, step=state.step, result=KEPT, by=event.by, at=at)
        work = partial(self._brought, event, kept, state.task_type, self._snapshots(before))
        return replace(event, brought=await self._making.asked(work, RESTORE_LIMIT_S + 5))

    def _brought(self, event: RolledBack, kept: Label, task: str, snapshots: Snapshots) -> BroughtBack:
        path = self._files.rules.path(task)
        earlier = path[: path.index(event.step)] if event.step in path else ()
        since = since_step(of_this_life(snapshots.all(kept.story)), event.step, earlier)
        if not since:
            why = f"the files from before {event.step} were not kept, or not all since then"
            hint = command_for(self._key.project, "snapshots")
            raise Refused(why, code="NO_SNAPSHOT", hint=hint)
        present, paths = snapshots.restore(since, kept, over=event.over)
        return BroughtBack(snapshot=since[0].ref, kept=present.ref, files=len(paths))

    async def all(self, track: Track) -> tuple[Snapshot, ...]:
        """Return the snapshots of the story in flight, by age. Raises StoreError where there are none."""
        story, snapshots = track.state.story if track.state is not None else None, self._snapshots(track)

        def listed() -> tuple[Snapshot, ...]:
            return snapshots.counted(of_this_life(snapshots.all(story)))

        return await self._looking.asked(listed, LIMIT_S + 5)

    async def compared(self, track: Track, *, since_decided: bool) -> Comparison | None:
        """Return what the story has changed so far; None where there is no snapshot to compare with.

        `since_decided`: only since a person decided the step that the track is at; None where none has.
        Raises StoreError where nothing can be kept.
        """
        folder = track.works_in(self._key.project).folder
        state, snapshots = track.state, self._snapshots(track)
        if state is None:
            return None

        def found() -> Comparison | None:
            life = of_this_life(snapshots.all(state.story))
            if since_decided:
                life = since_decision(life, state.step)
            elif life and life[0].label.result != BEGUN:
                life = ()
            if not any(one.commit is not None for one in life):
                repository_at(folder)  # without one, that is why
                return None
            if self._compared is None or self._compared[0] != life:
                self._compared = life, snapshots.compared(life)
            return self._compared[1]

        async with self._comparing:
            return await self._looking.asked(found, LIMIT_S + 5)

    def _snapshots(self, track: Track) -> Snapshots:
        folder = track.works_in(self._key.project).folder
        return Snapshots(folder, self._services.settings.state_dir, self._services.environment)
