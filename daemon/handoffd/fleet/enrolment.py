"""Adds and removes projects as the settings change: paths, patterns and workspaces.

It scans at the start, on a reload, and every `roster.scan_s`. Each entry has its own thread: a disk that
hangs delays neither the daemon nor the other entries, and gets no second request before it answers.

A project that the settings brought leaves when no entry covers it any longer. A missing folder is still
covered, and while the base of an entry is missing, no project of this entry leaves: unmounting a disk does
not edit the settings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

import anyio
import structlog
from anyio import to_thread
from msgspec import Struct

from handoffd.engine.wording import command_for, counted, first_few
from handoffd.errors import HandoffdError, StoreError
from handoffd.fleet.membership import LetGo
from handoffd.inspection.discovery import Discovered, Wanted, discover, resolved_base, wanted_of
from handoffd.track.reach import Reach
from handoffd.track.services import Services

log = structlog.get_logger(__name__)

WALK_S = 60.0
"""How long a scan waits for a walk below one folder; later finds count at the next scan."""
LEAVING_S = 1.0
"""How often to check whether the last run of a leaving project has ended."""
_NAMED = 3
"""How many projects one line names at most."""


class Members(Protocol):
    """The origin of each project, and how to add and remove projects; implemented by `Membership`."""

    brought_by: dict[str, str]
    kept_out: set[str]

    async def bring(self, found: Mapping[str, str]) -> tuple[str, ...]:
        """Supervise found projects without trusting them; return the new ones."""

    async def let_go(self, roots: frozenset[str]) -> LetGo:
        """Stop supervising projects that the settings brought."""

    def refused(self, root: str) -> str | None:
        """Return why a found folder cannot be supervised; None if it can."""

    def keep(self, roots: frozenset[str]) -> None:
        """Cancel pending removals."""


class Projects(Protocol):
    """The part of the roster that this module needs."""

    @property
    def membership(self) -> Members:
        """Which projects came by the settings."""

    def roots(self) -> frozenset[str]:
        """Return the roots of all projects."""

    async def enrol(self, root: str, entry: str) -> str | None:
        """Supervise a project listed by path; None if it already is, or if a person removed it."""


class _Entry(Struct):
    """One entry of the settings between two scans."""

    wanted: Wanted
    place: Reach
    walk: Reach
    base: str | None = None
    misplaced: tuple[str, ...] = ()
    """Messages that explain a missing base."""
    notes: tuple[str, ...] = ()
    """Problems of the latest finished scan below its base."""
    offered: tuple[str, ...] = ()
    """Found projects that the daemon only suggests to add."""
    folders: int = 0
    """How many folders the current walk has seen."""
    late: Discovered | None = None
    """The result of a walk that exceeded its time limit."""


class Enrolment:
    """Adds new projects and removes projects that no entry covers. `notes` lists the problems."""

    def __init__(self, services: Services, projects: Projects, walk_s: float = WALK_S) -> None:
        self._services = services
        self._projects = projects
        self._walk_s = walk_s
        self._entries: dict[Wanted, _Entry] = {}
        self._judged_by: tuple[Placed, ...] = ()
        self._meant: set[str] = set()
        """Roots that these entries are known to cover."""
        self._leaving: frozenset[str] = frozenset()
        self._asked = anyio.Event()
        self._looked = anyio.Event()
        self._begun = self._done = 0
        """Numbers of the latest scan of `run` that began, and of the latest that ended."""
        self._one_look = anyio.Lock()
        self.brought = 0
        """How many projects the settings have brought since the daemon started."""
        self.gone = 0
        """How many of them have left."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Entries of the settings that cannot be followed, as messages."""
        return tuple(note for entry in self._entries.values() for note in self._notes_of(entry))

    def _notes_of(self, entry: _Entry) -> Iterator[str]:
        yield from (*entry.misplaced, *entry.notes)
        members = self._projects.membership
        if entry.offered and (new := arrivals(entry.offered, self._projects.roots(), members.kept_out)):
            waits = "waits" if len(new) == 1 else "wait"
            yield f"workspaces: {first_few(new, _NAMED)} {waits} to be added: `{entry.wanted.scan('--add')}`"

    async def run(self) -> None:
        """Look for new projects until cancelled."""
        while True:
            self._asked = anyio.Event()
            self._begun += 1
            await self._contained()
            self._done = self._begun
            self._looked.set()
            self._looked = anyio.Event()
            await self._rest()

    async def look_now(self, within_s: float) -> bool:
        """Have `run` scan at once; return whether it finished within `within_s`."""
        wanted = self._begun + 1  # a scan that has begun may have missed the latest change
        self._asked.set()
        with anyio.move_on_after(within_s):
            while self._done < wanted:
                await self._looked.wait()
        return self._done >= wanted

    async def named(self) -> None:
        """Do what needs no walk: enrol listed roots, and remove projects that no entry covers."""
        async with self._one_look:
            await self._place()
            await self._depart()
            known = self._projects.roots()
            async with anyio.create_task_group() as tasks:  # a silent disk must not delay the others
                for entry in self._entries.values():
                    if entry.wanted.kind != "path":
                        continue
                    if entry.base in known:
                        entry.notes = ()
                    else:
                        tasks.start_soon(self._enrol, entry)

    async def _contained(self) -> None:
        try:
            await self.named()
            async with self._one_look, anyio.create_task_group() as tasks:
                for entry in self._entries.values():
                    if entry.wanted.kind != "path" and entry.base is not None:
                        tasks.start_soon(self._find, entry, entry.base)
        except Exception:
            log.exception("projects not looked for")

    async def _rest(self) -> None:
        """Wait for the next scan; meanwhile remove leaving projects whose run has ended."""
        with anyio.move_on_after(self._services.settings.roster.scan_s):
            while not self._asked.is_set():
                with anyio.move_on_after(LEAVING_S if self._leaving else None):
                    await self._asked.wait()
                if self._leaving:
                    await self._part(self._leaving)

    # --- the base of each entry --------------------------------------------------------------------
    async def _place(self) -> None:
        wanted = wanted_of(self._services.settings)
        self._entries = {one: self._entries.get(one) or self._entry(one) for one in wanted}
        async with anyio.create_task_group() as tasks:
            for entry in self._entries.values():
                if entry.wanted.kind == "path" and entry.wanted.text in self._projects.membership.brought_by:
                    # Its project reports a missing folder itself.
                    entry.base, entry.misplaced = entry.wanted.text, ()
                else:
                    tasks.start_soon(self._look_up, entry)

    def _entry(self, wanted: Wanted) -> _Entry:
        base = wanted.base
        asking = self._services.asking
        return _Entry(wanted, Reach(base, asking), Reach(base, asking))

    async def _look_up(self, entry: _Entry) -> None:
        wanted = entry.wanted
        try:
            entry.base = await entry.place.asked(partial(resolved_base, wanted))
        except HandoffdError as error:
            entry.base, why = None, error.message
        else:
            why = f"{wanted.base} is not a folder; the daemon will look for it again"
        entry.misplaced = () if entry.base is not None else (f"{wanted.section}: {why}",)
        if entry.base is None:
            entry.notes = entry.offered = ()

    # --- projects that leave -----------------------------------------------------------------------
    async def _depart(self) -> None:
        brought = self._projects.membership.brought_by
        placed = tuple(Placed(wanted=one.wanted, base=one.base) for one in self._entries.values())
        if placed != self._judged_by:
            self._judged_by, self._meant = placed, set()
        # Judge only new projects: with ten thousand others, unchanged entries still cover the rest.
        new = {root: entry for root, entry in brought.items() if root not in self._meant}
        leaving = await to_thread.run_sync(departures, new, placed) if new else frozenset()
        self._meant.update(new.keys() - leaving)
        self._projects.membership.keep(self._leaving - leaving)
        self._leaving = leaving
        if leaving:
            await self._part(leaving)

    async def _part(self, leaving: frozenset[str]) -> None:
        try:
            parted = await self._projects.membership.let_go(leaving)
        except HandoffdError as error:
            log.warning("projects not let go", count=len(leaving), error=error.message)
            self._leaving = leaving
            return
        if parted.gone:
            self.gone += len(parted.gone)
            log.info(
                "projects let go", count=len(parted.gone), projects=first_few(sorted(parted.gone), _NAMED)
            )
        self._leaving = parted.busy

    # --- projects that come ------------------------------------------------------------------------
    async def _enrol(self, entry: _Entry) -> None:
        wanted, note = entry.wanted, None
        if entry.base is None:
            return
        if entry.base in self._projects.membership.kept_out:
            note = f"was removed by a person; to have it back: `{command_for(entry.base, 'add')}`"
        else:
            try:
                root = await self._projects.enrol(entry.base, wanted.text)
            except HandoffdError as error:  # the other projects of the settings can still be added
                log.warning("project not added", project=wanted.text, error=error.message)
                note = f"is not supervised: {error.message}"
            else:
                self._tell_of(() if root is None else (root,), wanted)
        entry.notes = () if note is None else (f"projects: {wanted.text} {note}",)

    async def _find(self, entry: _Entry, base: str) -> None:
        try:
            found = await self._walked(entry, base)
            if found is None:
                return
            entry.offered = tuple(found.roots) if entry.wanted.ask else ()
            brought = await self._bring(() if entry.wanted.ask else found.roots, entry.wanted)
        except HandoffdError as error:
            entry.notes = (f"{entry.wanted.section}: {error.message}",)
            return
        entry.notes = _noted(entry.wanted, found, self._projects.membership.refused)
        self._tell_of(brought, entry.wanted)

    async def _walked(self, entry: _Entry, base: str) -> Discovered | None:
        """Return the projects below a base; None, with a note, while a long walk continues."""
        found, entry.late = entry.late, None
        if found is not None and found.base == base:
            return found
        try:
            found = await entry.walk.asked(partial(_walk, entry, base, self._projects.roots()), self._walk_s)
        except StoreError:  # the base existed a moment ago, so the walk is only slow
            so_far = f"{counted(entry.folders, 'folder')} so far"
            entry.notes = (f"{entry.wanted.section}: {base} is still being looked through ({so_far})",)
            return None
        entry.late = None
        return found

    async def _bring(self, found: Sequence[str], wanted: Wanted) -> tuple[str, ...]:
        members = self._projects.membership
        new = arrivals(found, self._projects.roots(), members.kept_out)
        return await members.bring(dict.fromkeys(new, wanted.text))

    def _tell_of(self, brought: Sequence[str], wanted: Wanted) -> None:
        if brought:
            self.brought += len(brought)
            log.info(
                "projects found", count=len(brought), projects=first_few(brought, _NAMED), entry=wanted.text
            )


def _walk(entry: _Entry, base: str, known: frozenset[str]) -> Discovered:
    """Return what a walk finds, and keep it for the next scan in case this one has given up."""

    def progress(found: Discovered) -> None:
        entry.folders = found.folders

    entry.folders = 0
    entry.late = found = discover(entry.wanted, base, known, progress)
    return found


def _noted(wanted: Wanted, found: Discovered, refused: Callable[[str], str | None]) -> tuple[str, ...]:
    """Return messages about folders that the walk could not read, or projects it had to refuse."""
    notes = []
    if found.unread:
        notes.append(f"{wanted.section}: {first_few(found.unread, _NAMED)} cannot be listed")
    if found.stopped:
        notes.append(
            f"{wanted.section}: {wanted.text} holds more folders than are looked through; be narrower"
        )
    for root in found.roots:
        if (why := refused(root)) is not None:
            notes.append(
                f"{wanted.section}: {root if root.isprintable() else ascii(root)} is not supervised: {why}"
            )
            break
    return tuple(notes)


# --- which projects arrive and which leave ------------------------------------------------------------
class Placed(Struct, frozen=True, kw_only=True):
    """An entry of the settings with its current base; None if the base is missing or does not answer."""

    wanted: Wanted
    base: str | None

    @property
    def bases(self) -> frozenset[str]:
        """Its base as written, and with links resolved."""
        return frozenset((self.wanted.base, self.base or self.wanted.base))

    def covers(self, root: str) -> bool:
        """Return whether it means `root`, below the base as written or as resolved."""
        return self.wanted.covers(root, self.bases)


def departures(brought_by: Mapping[str, str], placed: Sequence[Placed]) -> frozenset[str]:
    """Return the roots that the settings brought and no longer cover."""
    lost = {entry.wanted.text for entry in placed if entry.base is None}
    # The settings may list thousands of paths: look a root up among them, and match patterns only.
    written = {base for entry in placed if entry.wanted.kind == "path" for base in entry.bases}
    wide = [entry for entry in placed if entry.wanted.kind != "path"]
    return frozenset(
        root
        for root, text in brought_by.items()
        if text not in lost and root not in written and not any(entry.covers(root) for entry in wide)
    )


def arrivals(found: Iterable[str], known: Collection[str], kept_out: Collection[str]) -> tuple[str, ...]:
    """Return the new roots of `found`, in order, without roots that a person has removed."""
    return tuple(root for root in found if root not in known and root not in kept_out)
