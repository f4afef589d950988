"""A look at all of a project that others may write, and what becomes of it.

Its own files go into force or are held, its STATE files and hand-offs become facts for its tracks, and what
is wrong becomes its condition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import structlog
from anyio import to_thread

from handoffd.engine.commands import command_for
from handoffd.engine.events import Restored
from handoffd.engine.requests import Resumed
from handoffd.errors import HandoffdError, Locked, StoreError
from handoffd.execute.orphans import end_member, is_member
from handoffd.files.atomic import sweep_temporaries
from handoffd.files.errors import PROJECT_GONE
from handoffd.files.locks import FileLock, acquire_project, has_stranger, project_lock_path
from handoffd.files.ownership import belongs, former_owner, own, owner_of
from handoffd.files.projection import MAIN, read_state, state_name
from handoffd.inspection.repository import unfinished_in
from handoffd.notify.notices import lockout_notice
from handoffd.supervise.health import Health
from handoffd.supervise.looking import Before, Look
from handoffd.supervise.project_files import ProjectFiles
from handoffd.supervise.visit import Found, visit
from handoffd.track.inbox import Lock
from handoffd.track.reach import Reach
from handoffd.track.services import Claims, Services
from handoffd.track.track import TrackSupervisor


# --- folder ------------------------------------------------------------------------------------
class Folder:
    """The folder of one project. `lock` paths tell folders apart, by device and inode."""

    def __init__(self, root: str, state_dir: Path, claims: Claims | None = None) -> None:
        self._root = Path(root)
        self._state_dir = state_dir
        self._claims = claims or Claims()
        self._claimed: str | None = None
        self._lock: FileLock | None = None
        self._ours: Path | None = None

    @property
    def held(self) -> bool:
        """Whether its lock is ours."""
        return self._lock is not None

    @property
    def name(self) -> str | None:
        """The name of the lock of the folder that was worked on; None while that is any."""
        return self._ours.name if self._ours is not None else None

    def remember(self, name: str) -> None:
        """Know the folder again that was worked on before a rest."""
        self._ours, self._claimed = self._state_dir / "locks" / name, name

    def claim(self, path: Path, *, bare: bool) -> Callable[[], FileLock] | None:
        """Claim the folder at `path`, which is the root now; return what locks it, None if it is locked.

        That call blocks on the disk and raises Locked; what it returns goes to `hold`. This one raises
        Locked when another root has the folder, and StoreError for another folder than before that is
        `bare`: it lacks the STATE.json there should be.
        """
        if self._ours not in {None, path} and bare:
            self.let_go()
            raise self._another()
        if self._lock is not None and self._lock.path == path:
            self._ours = path
            return None
        self.let_go()
        self._claims.take(path.name, str(self._root))
        self._claimed = path.name
        return partial(acquire_project, path, self._root)

    def hold(self, lock: FileLock) -> None:
        """Keep the lock of the folder that was claimed."""
        self._lock, self._ours = lock, lock.path

    def _another(self) -> StoreError:
        trust = command_for(str(self._root), "trust")
        why = (
            f"another folder lies at {self._root} than the one that was worked on, without its STATE.json:"
            f" move that one back, or go on in this one with `{trust}`"
        )
        return StoreError(why, code=PROJECT_GONE, hint=trust)

    def is_there(self) -> bool:
        """Return whether the project's folder lies at its root; blocks on the disk."""
        try:
            path = project_lock_path(self._state_dir, self._root)
        except StoreError:
            return False
        return self._ours in {None, path} or (self._root / state_name("main")).exists()

    def accept(self) -> None:
        """Take whatever folder lies there now for the project's: a person says so."""
        self._ours = None

    def rest(self) -> None:
        """Release the lock and keep the claim."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def let_go(self) -> None:
        """Release the lock."""
        self.rest()
        self._claims.drop(self._claimed, str(self._root))
        self._claimed = None


# --- reconciling -------------------------------------------------------------------------------
log = structlog.get_logger(__name__)

_Held = tuple[FileLock, str | None]

_LOCKOUTS = 8
"""So many processes of agents that have the project locked are ended at one look."""


class Reconciler:
    """Looks around in one project; `again` asks for another look."""

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
        self._look = Look(root, files, services, again)
        self._reach, self._git = Reach(root, services.asking), Reach(root, services.asking)
        self._asking_git = Lock()
        self.folder = Folder(root, services.settings.state_dir, services.claims)
        self.health = Health(root, services)
        self.edited = False
        """Whether an `inspect` found a STATE.json that nobody has taken up yet."""
        self._one_at_a_time = Lock()
        self._surveyed: Found | None = None
        self._looked = False
        self._rests = False
        self._former: str | None = None
        """The state directory of the daemon that has had the project since, until that is recorded."""
        self.over = False
        """Whether it looks no more: whoever comes next has the project's lock."""

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

        A project that cannot be had is marked.
        """
        async with self._one_at_a_time:
            if self.over:
                return
            try:
                await self._look_around()
            except HandoffdError as error:
                if not self.over:
                    self.health.mark_error(error)
        for track in self._tracks.values():
            track.wake()

    async def _look_around(self) -> None:
        self._looked = True
        before = {name: Before.of(track) for name, track in self._tracks.items()}
        found = await self._found()
        if self.over:  # meanwhile: a lock that is taken now would be released by nobody
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
        if self._former is not None and self._files.loaded:
            await self._come_back(self._former, found)
            await self._look_around()
            return
        for name, seen in found.states.items():
            await self._look.at(self._tracks[name], seen, before[name])
        if found.error is not None:
            raise found.error
        await self._mark_as_found()

    async def lock(self, *, take: bool) -> None:
        """Lock the project if its folder can be looked at. Raises Locked when another process has it.

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
        """Return the project's lock. An agent of ours that has it is ended: it would lock us out for good."""
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
        """Have nothing go on from before another daemon had the project: what that did, only its files tell.

        The folder is marked as ours when that is recorded: a crash before changes nothing.
        """
        event = Restored(overtaken=True, by="another handoffd", owner=former)
        for name, track in self._tracks.items():
            ledger, seen, ours = track.track.ledger, found.states.get(name), track.standing.digest
            if track.track.state is None:
                continue
            if ledger.dispatch is not None or ledger.automatic:
                await track.give(event)
            if seen is not None and seen.digest != ours:
                await self._look.take_edit(track, seen)
                there = await to_thread.run_sync(read_state, Path(self._root), name)
                track.standing.saw(None if there is None else there.digest)  # the event may be there by now
                await track.standing.project()
        await self._reach.asked(partial(own, self._root, self._services.settings.state_dir))
        self._former = None

    async def inspect(self) -> None:
        """Find out how the project stands without its lock, changing nothing: for whoever only looks."""
        try:
            found = await self._found()
            if self.unsound is not None:
                raise self.unsound
            if found.owner is not None:
                raise belongs(self._root, found.owner)
            await self._take_files(found)
            for name, seen in found.states.items():
                self.edited |= await self._look.inspect(self._tracks[name], seen)
            if found.error is not None:
                raise found.error
            await self._mark_as_found()
        except HandoffdError as error:
            self.health.mark_error(error)

    @property
    def unsound(self) -> StoreError | None:
        """Why nothing is decided in the project, and nothing in its folder is looked at."""
        return next((one.standing.unsound for one in self._tracks.values() if one.standing.unsound), None)

    # --- what lies there -------------------------------------------------------------------------
    def visit(self) -> Callable[[], Found]:
        """Return what finds everything that the next look needs, in a thread that may hang."""
        state_dir, root, first = self._services.settings.state_dir, Path(self._root), not self.folder.held
        return partial(visit, state_dir, root, tuple(self._tracks), texts=self._may_change, first=first)

    def survey(self, found: Found | None) -> None:
        """Take what was found before there was a loop, for the first look; too late if that has begun."""
        if not self._looked:
            self._surveyed = found

    async def _found(self) -> Found:
        """Return what lies in the folder now, or what the first visit of all found there."""
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
        return self._tracks[MAIN].track.state is not None and found.states.get(MAIN, found) is None

    # --- what becomes of it ----------------------------------------------------------------------
    async def _take_files(self, found: Found) -> None:
        if found.texts is not None:
            await self._files.take(found.texts)
            self._services.own_schedules.learn(self._root, self._files.settings.schedule)

    async def _become_automatic(self) -> None:
        """Take the project to Level 2 if its settings say so (`auto: true`)."""
        main = self._tracks[MAIN]
        if self._files.settings.auto and main.track.state is not None and not main.track.ledger.automatic:
            await main.give(Resumed(by="auto: true"))

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
        if trouble := [track.standing.trouble for track in self._tracks.values() if track.standing.trouble]:
            self.health.mark("io_error", trouble[0])
        elif self.health.condition == "unfinished_git" and await self.has_unfinished_git():
            return
        elif problems := self._files.problems:
            self.health.mark("invalid_rules", *map(str, problems))
        else:
            self.health.mark("ok")
