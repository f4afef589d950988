"""A look at all of a project that others may write, and what follows from it.

The project's lock is taken first. Its own files are accepted or held, its STATE files and hand-offs
become facts for its tracks, and what is wrong becomes its condition, which is logged once and told to people
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path

import structlog
from anyio import to_thread
from msgspec.structs import replace

from handoffd.engine.events import Restored, Resumed
from handoffd.engine.notice import Notice, sign_of
from handoffd.engine.track import TrackKey
from handoffd.engine.views import WORKABLE, Condition
from handoffd.errors import Foreign, HandoffdError, InvalidFile, Locked, StoreError
from handoffd.execute.run import end_member, is_member
from handoffd.files.atomic import sweep_temporaries
from handoffd.files.errors import PROJECT_GONE, UNSOUND
from handoffd.files.locks import FileLock, has_stranger
from handoffd.files.ownership import belongs, former_owner, own, owner_of
from handoffd.files.rooted import remove_project_file
from handoffd.files.state_file import MAIN, read_state, set_state_aside, state_name
from handoffd.git.repository import unfinished_in
from handoffd.notify.notices import CONDITION, condition_notice, lockout_notice, trust_notice
from handoffd.project.external_changes import Before, ExternalChanges
from handoffd.project.files import ProjectFiles
from handoffd.project.folder import Folder, Found, visit
from handoffd.track.reach import Reach
from handoffd.track.services import Services
from handoffd.track.track import TrackSupervisor

log = structlog.get_logger(__name__)

_Held = tuple[FileLock, str | None]

_LOCKOUTS = 8
"""Most agents' processes holding the project's lock that one pass ends."""


class Reconciler:
    """Looks at one project; `again` asks for another look."""

    def __init__(
        self,
        root: str,
        services: Services,
        files: ProjectFiles,
        tracks: Mapping[str, TrackSupervisor],
        again: Callable[[], None],
    ) -> None:
        self._root = root
        self._services = services
        self._files = files
        self._tracks = tracks
        self._changes = ExternalChanges(root, files, services, again)
        self._again = again
        self._reach, self._git = Reach(root, services.asking), Reach(root, services.asking)
        self._asking_git = asyncio.Lock()
        self.folder = Folder(root, services.settings.state_dir, services.claims)
        self.health = Health(root, services)
        self.edited = False
        """Whether an `inspect` found a STATE.json that was not taken up yet."""
        self._one_at_a_time = asyncio.Lock()
        self._surveyed: Found | None = None
        self._looked = False
        self._rests = False
        self._former: str | None = None
        """The state directory of the daemon that has had the project since, until that is recorded."""
        self.over = False
        """Whether it has stopped looking: its successor has the project's lock."""

    def rest(self) -> str:
        """Keep the claim on the project's folder from now on, and nothing else; return the folder's name."""
        name = self.folder.name
        assert name is not None
        self._rests = True
        return name

    def let_go(self) -> None:
        """Let go of the folder; a project that rests keeps its claim on it."""
        if self._rests:
            self.folder.rest()
        else:
            self.folder.let_go()

    async def look(self) -> None:
        """Take the project's lock if need be, and look at everything that others may have written.

        A project that is unavailable is marked.
        """
        async with self._one_at_a_time:
            if self.over:
                return
            try:
                await self._look_around()
            except HandoffdError as error:
                if not self.over:
                    self.health.mark_error(error)
        for track in tuple(self._tracks.values()):
            track.wake()

    async def _look_around(self) -> None:
        self._looked = True
        before = {name: Before.of(track) for name, track in self._tracks.items()}
        found = await self._found()
        if self.over:  # meanwhile: nothing would release a lock that is taken now
            return
        if found.beside != self._tracks[MAIN].committed.beside:
            self._again()  # a track has begun or ended meanwhile
            return
        if not await self._hold(found):
            return
        if self.unsound is not None:  # after the lock: what may still run there is ours
            raise self.unsound
        if found.halves:
            await to_thread.run_sync(sweep_temporaries, Path(self._root, ".ai"))
        if found.texts is not None and self._may_change:
            await self._take_files(found)
            await self._become_automatic()
        if found.strays and self._files.settings.workspace.kind == "clone":
            await self._clear(found.strays)
        if self._former is not None and self._files.loaded:
            await self._come_back(self._former, found)
            await self._look_around()
            return
        for name, seen in found.states.items():
            if (track := self._tracks.get(name)) is not None and name in before:
                await self._changes.at(track, seen, before[name])
        if found.beside and found.error is None:
            await self._changes.at_desk(self._tracks, found.desk, before)
        if found.error is not None:
            raise found.error
        await self._mark_as_found()

    async def lock(self, *, take: bool) -> None:
        """Lock the project if its folder can be read. Raises Locked when another process has it.

        Also when it belongs to another daemon, unless a person says to `take` it.
        """
        async with self._one_at_a_time:
            with suppress(StoreError):  # its first look says why
                await self._hold(await self._found(), take=take)

    async def _hold(self, found: Found, *, take: bool = False) -> bool:
        """Return whether the lock of the folder that was found is ours now; False once this is over."""
        flying = any(track.track.ledger.dispatch is not None for track in self._tracks.values())
        if found.owner is not None and not (take or flying or self.folder.held):
            raise belongs(self._root, found.owner)
        if (lock := self.folder.claim(found.lock, bare=self._is_bare(found))) is not None:
            held, former = await self._locked(partial(self._alone, lock, take=take))
            if self.over:  # meanwhile: nothing would release it
                held.release()
                return False
            self.folder.hold(held)
            self._former = former
        return True

    async def _locked(self, lock: Callable[[], _Held]) -> _Held:
        """Return the project's lock. End an agent of ours that holds it: it would lock us out."""
        for _ in range(_LOCKOUTS):
            try:
                return await self._reach.asked(lock)
            except Locked as locked:
                pid, settings = locked.details.get("pid"), self._services.settings
                if not isinstance(pid, int):
                    raise
                end = partial(end_member, pid, settings.runs_dir, settings.launcher_socket)
                if not await to_thread.run_sync(end):
                    raise
                log.warning("agent ended that had locked its project", project=self._root, pid=pid)
                notice = lockout_notice(self._root, locked.message, self._services.clock)
                self._services.notifier.send(notice)
        return await self._reach.asked(lock)

    def _alone(self, acquire: Callable[[], FileLock], *, take: bool) -> _Held:
        """Return the project's lock, and who has had the project meanwhile.

        Raises Locked while another daemon owns it, but for `take`, or has an agent there: that daemon may be
        dead, and will ask for the agent's result when it is back.
        """
        held, state_dir = acquire(), self._services.settings.state_dir
        try:
            # While an agent of ours works there, no other daemon can have had it, whatever the mark says.
            former = None
            if not self._is_at_work(held):
                if not take and (owner := owner_of(self._root, state_dir)) is not None:
                    raise belongs(self._root, owner)  # noqa: TRY301  (the lock is released below)
                former = former_owner(self._root, state_dir)
            if former is None:
                own(self._root, state_dir)
        except BaseException:
            held.release()
            raise
        return held, former

    def _is_at_work(self, held: FileLock) -> bool:
        """Return whether an agent of ours works in the project. Raises Locked for one of another daemon."""
        worker, settings = held.worker(), self._services.settings
        if worker is not None and not is_member(worker, settings.runs_dir, settings.launcher_socket):
            raise has_stranger(Path(self._root), worker)
        return worker is not None

    async def _come_back(self, former: str, found: Found) -> None:
        """Drop what was going on before another daemon had the project: only its files show what that did.

        The folder is marked as ours when that is recorded: a crash before changes nothing.
        """
        event = Restored(overtaken=True, by="another handoffd", owner=former)
        for name, track in tuple(self._tracks.items()):
            ledger, seen, ours = track.track.ledger, found.states.get(name), track.committed.digest
            if track.track.state is None:
                continue
            if ledger.dispatch is not None or ledger.automatic:
                await track.give(event)
            if seen is not None and seen.digest != ours:
                await self._changes.take_edit(track, seen)
                there = await to_thread.run_sync(
                    partial(read_state, Path(self._root), name, beside=found.beside)
                )
                track.committed.saw(None if there is None else there.digest)  # the event may be there by now
                await track.committed.project()
        await self._reach.asked(partial(own, self._root, self._services.settings.state_dir))
        self._former = None

    async def inspect(self) -> None:
        """Determine the project's status without its lock, changing nothing: for verbs that only read."""
        try:
            found = await self._found()
            if self.unsound is not None:
                raise self.unsound
            if found.owner is not None:
                raise belongs(self._root, found.owner)
            await self._take_files(found)
            for name, seen in found.states.items():
                self.edited |= await self._changes.inspect(self._tracks[name], seen)
            self.edited |= found.beside and await self._changes.differs(found.desk)
            if found.error is not None:
                raise found.error
            await self._mark_as_found()
        except HandoffdError as error:
            self.health.mark_error(error)

    @property
    def desk(self) -> str | None:
        """The digest of the STATE.json that several tracks share."""
        return self._changes.desk

    @property
    def unsound(self) -> StoreError | None:
        """Why nothing is decided in the project, and its folder is not read."""
        return next((one.committed.unsound for one in self._tracks.values() if one.committed.unsound), None)

    # --- what is there ---------------------------------------------------------------------------
    def visit(self) -> Callable[[], Found]:
        """Return what finds everything that the next look needs, in a thread that may hang."""
        state_dir, root, first = self._services.settings.state_dir, Path(self._root), not self.folder.held
        return partial(visit, state_dir, root, tuple(self._tracks), texts=self._may_change, first=first)

    def survey(self, found: Found | None) -> None:
        """Take what was found before there was a loop, for the first look; too late if that has begun."""
        if not self._looked:
            self._surveyed = found

    async def _found(self) -> Found:
        """Return what is in the folder now, or what the first visit of all found there."""
        found, self._surveyed = self._surveyed, None
        if found is not None:
            return found
        try:
            return await self._reach.asked(self.visit())
        except StoreError:
            self.let_go()  # it may be added again from where it was moved to
            raise

    @property
    def _may_change(self) -> bool:
        """Whether what its own files say now may take effect: between two runs, and at first."""
        running = any(track.track.ledger.dispatch is not None for track in self._tracks.values())
        return not running or not self._files.loaded

    def _is_bare(self, found: Found) -> bool:
        """Return whether the STATE.json is missing that the journal says was written there."""
        there = found.desk or found.error if found.beside else found.states.get(MAIN, found)
        return self._tracks[MAIN].track.state is not None and there is None

    # --- changes of the project itself ----------------------------------------------------------
    async def _take_files(self, found: Found) -> None:
        if found.texts is not None:
            await self._files.take(found.texts)
            self._services.own_schedules.learn(self._root, self._files.settings.schedule)

    async def _become_automatic(self) -> None:
        """Take the project to Level 2 if its settings ask for it (`auto: true`)."""
        main = self._tracks[MAIN]
        if self._files.settings.auto and main.track.state is not None and not main.track.ledger.automatic:
            await main.give(Resumed(by="auto: true"))

    async def remove_state(self, *tracks: str) -> None:
        """Remove the STATE files of tracks that have ended; one that stays says nothing any more."""
        for track in tracks:
            with suppress(StoreError):
                name = state_name(track, beside=True)
                await self._reach.asked(partial(remove_project_file, Path(self._root), name))

    async def _clear(self, strays: tuple[str, ...]) -> None:
        """Remove the STATE files of no track; one that the journal does not know is kept aside.

        A restored journal may be of before a track began.
        """
        root = Path(self._root)
        for name in strays:
            with suppress(HandoffdError):  # it says nothing, and the next daemon tries again
                seen = await self._reach.asked(partial(read_state, root, name, beside=True))
                key = TrackKey(self._root, name)
                if seen is not None and await self._services.journal.projected_before(key, seen.digest):
                    await self.remove_state(name)
                else:
                    await self._reach.asked(partial(set_state_aside, root, name))
                    log.warning("STATE file of no track kept aside", project=self._root, track=name)

    async def has_unfinished_git(self) -> bool:
        """Return whether the repository is in the middle of a merge or the like, and mark that.

        Asked before a dispatch. What an agent does to the repository while it runs is its own business.
        """
        async with self._asking_git:  # a look and a dispatch may both want to know
            what = await self._git.asked(partial(unfinished_in, self._root))
        if what is not None:
            self.health.mark("unfinished_git", f"its repository is in the middle of a {what}")
        return what is not None

    async def _mark_as_found(self) -> None:
        self.health.mark_held(self._files)
        if trouble := [track.committed.trouble for track in self._tracks.values() if track.committed.trouble]:
            self.health.mark("io_error", trouble[0])
        elif self.health.condition == "unfinished_git" and await self.has_unfinished_git():
            return
        elif problems := self._files.problems:
            self.health.mark("invalid_rules", *map(str, problems))
        else:
            self.health.mark("ok")


# --- what is wrong with the project -------------------------------------------------------------------
LASTING_S = 120.0
"""How long a condition must last before a notice: a mount may be gone for a minute."""
_LASTING_POLLS = 4
"""After this many polls a condition counts as lasting, however short the interval."""
_MOST = 10
"""Most problems listed in one notice: an agent may have written the file."""


class Health:
    """The condition of one project, logged and told to people when it changes."""

    def __init__(self, root: str, services: Services) -> None:
        self._root = root
        self._services = services
        self.condition: Condition = "ok"
        self.detail: str | None = None
        self.foreign = False
        """Whether it is locked because it belongs to another daemon: no waiting helps."""
        self._why: str | None = None
        self._since: datetime | None = None
        self._sign = ""
        """Identity of the notice about the condition; empty if there is none."""
        self._untold: Notice | None = None
        """The notice to send as soon as the condition has lasted."""
        self._stuck_s: float | None = None
        """Since when nothing can be dispatched, by the monotonic clock; None while something can."""
        self._edit: str | None = None
        """The edit that waits for trust, if one does."""

    @property
    def since(self) -> datetime | None:
        """Since when its condition is not good: also in earlier lives, if a notice was sent."""
        known = self._services.notifier.stands_since(self._root, CONDITION, self._sign)
        return self._since if self._since is None or known is None else min(self._since, known)

    def mark(self, condition: Condition, *details: str) -> None:
        """Set the condition; log a new one, and send a notice unless it is good or soon over.

        `details`: all that is wrong, in words, the first of them where there is room for one.
        """
        more = (f"and {len(details) - _MOST} more",) if len(details) > _MOST else ()
        why = "; ".join((*details[:_MOST], *more)) or None
        if (condition, why) != (self.condition, self._why):
            write = log.info if condition == "ok" else log.warning
            write("project condition", project=self._root, condition=condition, detail=why)
            self._untold = self._notice_of(condition, why)
            self._sign = sign_of(self._untold.id) if self._untold is not None else ""
        if condition == "ok":
            self._services.notifier.settle(self._root, CONDITION)  # also a notice of an earlier daemon
            self._since = None
        elif condition != self.condition:
            self._since = self._services.clock.now()
        self.condition, self.detail, self._why = condition, next(iter(details), None), why
        if self._has_lasted() and self._untold is not None:
            told, self._untold = replace(self._untold, at=self._services.clock.now()), None
            self._services.notifier.stand(told, CONDITION)

    def _notice_of(self, condition: Condition, detail: str | None) -> Notice | None:
        """Return the notice about a new condition; None if it needs none."""
        if condition == "ok" or self._is_the_machines(condition):
            return None
        return condition_notice(self._root, condition, detail, self._services.clock)

    def _has_lasted(self) -> bool:
        """Return whether a notice may be sent now: a condition that stops everything may end in a moment."""
        now_s = self._services.clock.monotonic()
        if self.condition == "invalid_journal":
            return True  # it does not pass by itself
        if self.condition in WORKABLE:
            self._stuck_s = None
            return True
        if self._stuck_s is None:
            self._stuck_s = now_s
        poll_s = self._services.settings.schedule.poll_s
        return now_s - self._stuck_s >= min(LASTING_S, _LASTING_POLLS * poll_s)

    def mark_held(self, files: ProjectFiles) -> None:
        """Record whether edits wait for trust; each such edit gets a notice, repeated while it waits."""
        before, self._edit = self._edit, files.edit if files.held else None
        if self._edit is None:
            self._services.notifier.settle(self._root)
        elif self._edit != before:
            notice = trust_notice(self._root, files.held, files.edit, self._services.clock)
            self._services.notifier.send(notice, waits=True)

    def mark_error(self, error: HandoffdError) -> None:
        """Set the condition that belongs to an error met while reading the project."""
        if isinstance(error, InvalidFile):
            self.mark("invalid_state", str(error))
        elif isinstance(error, Locked):
            self.mark("locked", error.message)
            self.foreign = isinstance(error, Foreign)
        elif error.code == UNSOUND:
            self.mark("invalid_journal", error.message)
        else:
            self.mark("missing" if error.code == PROJECT_GONE else "io_error", error.message)

    def _is_the_machines(self, condition: Condition) -> bool:
        """Return whether the cause has a notice of its own, one for all projects."""
        return condition == "io_error" and (
            self._services.journal.outage is not None or self._services.descriptors.short()
        )
