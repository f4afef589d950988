"""The supervised projects: objects for projects that are up, rows for projects at rest.

A root is always in exactly one of the two: moving it happens without an await.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

import anyio
from anyio import to_thread

from handoffd.engine.flow.flow import FLOWS
from handoffd.engine.track import Ledger, Track, TrackKey
from handoffd.errors import StoreError
from handoffd.files.state_file import MAIN
from handoffd.project.folder import Found
from handoffd.project.project import Project
from handoffd.project.rest import Outline, Row, outline_of
from handoffd.track.services import Services


class Register:
    """Every supervised project, by root."""

    def __init__(self) -> None:
        self.awake: dict[str, Project] = {}
        self._resting: dict[str, Row] = {}
        self._called: dict[str, str | set[str]] = {}
        """The roots of projects at rest by name; usually one per name."""
        self._guests: Counter[str] = Counter()

    def __contains__(self, root: object) -> bool:
        return root in self.awake or root in self._resting

    def __len__(self) -> int:
        return len(self.awake) + len(self._resting)

    def __iter__(self) -> Iterator[str]:
        yield from self.awake
        yield from self._resting

    @property
    def resting(self) -> Mapping[str, Row]:
        """The projects at rest."""
        return self._resting

    # --- moving ----------------------------------------------------------------------------------
    def lay_down(self, root: str, row: Row) -> None:
        """Put a project to rest, as a row."""
        self.awake.pop(root, None)
        self._resting[root] = row
        known = self._called.setdefault(row.name, root)
        if isinstance(known, set):
            known.add(root)
        elif known != root:
            self._called[row.name] = {known, root}

    def get_up(self, root: str, project: Project) -> None:
        """Replace the row of a resting project with its object."""
        self.forget(root)
        self.awake[root] = project

    def forget(self, root: str) -> None:
        """Remove a project from both."""
        self.awake.pop(root, None)
        row = self._resting.pop(root, None)
        if row is None:
            return
        known = self._called[row.name]
        if isinstance(known, set):
            known.discard(root)
        if not known or known == root:
            del self._called[row.name]

    # --- guests ----------------------------------------------------------------------------------
    @contextmanager
    def guest(self, root: str) -> Iterator[None]:
        """Keep a project up while a verb or a question is being answered."""
        self._guests[root] += 1
        try:
            yield
        finally:
            self._guests[root] -= 1
            if not self._guests[root]:
                del self._guests[root]

    def guests(self, root: str) -> int:
        """Return how many requests it is answering."""
        return self._guests[root]

    # --- names -----------------------------------------------------------------------------------
    def name_of(self, root: str) -> str:
        """Return a project's name in STATE.json, else its folder's name. KeyError for an unknown root."""
        row = self._resting.get(root)
        return row.name if row is not None else name_of(self.awake[root])

    def called(self, name: str) -> list[str]:
        """Return the roots of all projects with this name, projects that are up first."""
        up = [root for root, project in self.awake.items() if name_of(project) == name]
        known = self._called.get(name, ())
        return [*up, *([known] if isinstance(known, str) else sorted(known))]

    def names(self) -> Mapping[str, str]:
        """Return, by root, how commands name each project: its name, or its root if several share it.

        It holds until the next await, in which a project may get up, rest, or be renamed.
        """
        return _Names(self)


class _Names(Mapping[str, str]):
    """Looks names up on demand: most requests are about a few projects."""

    def __init__(self, register: Register) -> None:
        self._register = register
        self._awake = Counter(name_of(project) for project in register.awake.values())

    def __getitem__(self, root: str) -> str:
        name = self._register.name_of(root)
        known = self._register._called.get(name, ())  # noqa: SLF001  (its other half)
        resting = 1 if isinstance(known, str) else len(known)
        return name if self._awake[name] + resting == 1 else root

    def __iter__(self) -> Iterator[str]:
        return iter(self._register)

    def __len__(self) -> int:
        return len(self._register)


def name_of(project: Project) -> str:
    """Return a project's name in STATE.json, else its folder's name."""
    state = project.main.track.state
    return state.project if state is not None else Path(project.root).name


# --- loading at the start of a daemon -----------------------------------------------------------------
# Most projects are rows, at rest, and a row needs little of its tracks: one pass over the journal is enough.
# Then one thread visits all folders, before any project has its loop. One thread per folder would take
# several times longer for a thousand of them: the threads wait for the interpreter, not for the disk. When a
# folder does not answer at once, every project of its batch looks for itself, as it does later.
_READ_AT_ONCE = 200
"""How many projects are read completely from the journal at once."""


async def load(register: Register, services: Services) -> None:
    """Enter every project of the journal; restore the spending and the limits of earlier daemons."""
    journal = services.journal
    outlines = await journal.outlines(outline_of)
    await services.budgets.load(journal, (one.spent for one in outlines))
    now = services.clock.now()
    for one in outlines:
        if one.limited:
            services.accounts.learn(one.key, Track(ledger=Ledger(limited=one.limited)), now)
    roots = [project.root for project in await journal.projects()]
    owed = {order.key.project for order in await journal.pending_effects()}
    owed |= {flow.key.project for flow in await journal.unfinished_flows()}
    await make(_enter(roots, by_project(outlines), owed, register), register, services)


async def enter(roots: Sequence[str], register: Register, services: Services) -> Sequence[str]:
    """Enter new projects, which the journal may already know; return the ones that are up."""
    outlines = await services.journal.outlines(outline_of, roots)
    busy = _enter(roots, by_project(outlines), (), register)
    await make(busy, register, services)
    return busy


def _enter(
    roots: Sequence[str],
    tracks: Mapping[str, Sequence[Outline]],
    owed: Container[str],
    register: Register,
) -> Sequence[str]:
    """Enter projects at rest as rows; return the others."""
    busy = []
    for root in roots:
        mine = tracks.get(root, ())
        if root in owed or not all(one.quiet for one in mine):
            busy.append(root)
        else:
            register.lay_down(root, row_of(root, mine))
    return busy


def row_of(root: str, outlines: Sequence[Outline]) -> Row:
    """Return the row of a project whose folder was not visited yet."""
    by_name = {one.key.track: one for one in outlines if not one.key.track.startswith(FLOWS)}
    main = by_name.get(MAIN)
    states = {MAIN: None} | {name: one.digest for name, one in by_name.items()}
    return Row(
        name=main.name if main is not None and main.name is not None else Path(root).name,
        automatic=main is None or main.automatic,
        tracks=tuple(states) if len(states) > 1 else _ONE_TRACK,
        states=states,
        faults=tuple((name, fault) for name, one in by_name.items() for fault in one.faults),
    )


_ONE_TRACK = (MAIN,)


async def make(roots: Sequence[str], register: Register, services: Services) -> None:
    """Build projects from the journal, whether they are at rest or new."""
    for begin in range(0, len(roots), _READ_AT_ONCE):
        some = roots[begin : begin + _READ_AT_ONCE]
        trusted = await services.journal.trusted(*some)
        stored = by_project(await services.journal.tracks(some))
        flows = by_project(await services.journal.unfinished_flows(some))
        for root in some:
            texts = trusted.get(root, {})
            known, going = stored.get(root, ()), flows.get(root, ())
            register.get_up(root, Project(root, services, known, texts, going))


class _OfTrack(Protocol):
    @property
    def key(self) -> TrackKey:
        """The track that the entry is about."""


_T = TypeVar("_T", bound=_OfTrack)


def by_project(entries: Iterable[_T]) -> dict[str, tuple[_T, ...]]:
    """Group entries about tracks by the root of their project."""
    grouped: defaultdict[str, list[_T]] = defaultdict(list)
    for entry in entries:
        grouped[entry.key.project].append(entry)
    return {root: tuple(found) for root, found in grouped.items()}


# --- the first visit of all ---------------------------------------------------------------------------
LIMIT_S = 0.5
"""How long one visit of many projects may take."""
_VISITED_AT_ONCE = 50
_MOST_SILENT = 4
"""After this number of silent batches, the remaining projects look for themselves."""


async def survey(projects: Sequence[Project], limit_s: float = LIMIT_S) -> None:
    """Give every project the contents of its folder for its first look; hints report later changes."""
    rest, silent = iter(projects), 0
    while silent < _MOST_SILENT and (some := tuple(islice(rest, _VISITED_AT_ONCE))):
        with anyio.move_on_after(limit_s) as limit:
            visits = [project.reconciler.visit() for project in some]
            found = await to_thread.run_sync(_all_of, visits, abandon_on_cancel=True)
            for project, one in zip(some, found, strict=True):
                project.reconciler.survey(one)
        silent += limit.cancelled_caught


def _all_of(visits: Sequence[Callable[[], Found]]) -> list[Found | None]:
    return [_found(visit) for visit in visits]


def _found(visit: Callable[[], Found]) -> Found | None:
    try:
        return visit()
    except StoreError:
        return None  # the project's own look reports the error
