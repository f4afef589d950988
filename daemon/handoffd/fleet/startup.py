"""The projects that are there when a daemon starts: most as rows, at rest, and those with something to do.

The journal's tracks are gone through once, one at a time: what a row needs of them is little. The folders
are then visited by one thread in one go, before any project has its loop. Visited one by one, from as many
threads, a thousand of them take several times longer: the threads wait for the interpreter, not for the
disk. Where one does not answer at once, it and those that were asked with it look for themselves, as at any
other time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

import anyio
from anyio import to_thread

from handoffd.engine.track import Ledger, Track, TrackKey
from handoffd.errors import StoreError
from handoffd.files.projection import MAIN
from handoffd.fleet.register import Register
from handoffd.project.folder import Found
from handoffd.project.project import Project
from handoffd.project.rest import Outline, Row, outline_of
from handoffd.track.services import Services

_READ_AT_ONCE = 200
"""Projects of which everything is read from the journal at once."""


async def load(register: Register, services: Services) -> None:
    """Enter every project of the journal; take over what earlier lives spent and which limits they met."""
    journal = services.journal
    outlines = await journal.outlines(outline_of)
    await services.budgets.load(journal, (one.spent for one in outlines))
    now = services.clock.now()
    for one in outlines:
        if one.limited:
            services.accounts.learn(one.key, Track(ledger=Ledger(limited=one.limited)), now)
    roots = [project.root for project in await journal.projects()]
    owed = {order.key.project for order in await journal.pending_effects()}
    await make(_enter(roots, by_project(outlines), owed, register), register, services)


async def enter(roots: Sequence[str], register: Register, services: Services) -> Sequence[str]:
    """Enter projects that are new here, though the journal may know them; return those that are up."""
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
    """Return a project at rest whose folder was not looked at yet."""
    by_name = {one.key.track: one for one in outlines}
    main = by_name.get(MAIN)
    states = {MAIN: None} | {name: one.digest for name, one in by_name.items()}
    return Row(
        name=main.name if main is not None and main.name is not None else Path(root).name,
        automatic=main is None or main.automatic,
        tracks=tuple(states) if len(states) > 1 else _ONE_TRACK,
        states=states,
        faults=tuple((one.key.track, fault) for one in outlines for fault in one.faults),
    )


_ONE_TRACK = (MAIN,)


async def make(roots: Sequence[str], register: Register, services: Services) -> None:
    """Make projects as the journal knows them, whether they are at rest or not known yet."""
    for begin in range(0, len(roots), _READ_AT_ONCE):
        some = roots[begin : begin + _READ_AT_ONCE]
        trusted = await services.journal.trusted(*some)
        stored = by_project(await services.journal.tracks(some))
        for root in some:
            texts = trusted.get(root, {})
            register.get_up(root, Project(root, services, stored.get(root, ()), texts))


class _OfTrack(Protocol):
    @property
    def key(self) -> TrackKey:
        """The track that it is about."""


_T = TypeVar("_T", bound=_OfTrack)


def by_project(entries: Iterable[_T]) -> dict[str, tuple[_T, ...]]:
    """Return what is about tracks by the root of their project."""
    grouped: defaultdict[str, list[_T]] = defaultdict(list)
    for entry in entries:
        grouped[entry.key.project].append(entry)
    return {root: tuple(found) for root, found in grouped.items()}


# --- the first visit of all ---------------------------------------------------------------------------
LIMIT_S = 0.5
"""How long one visit of many projects may take."""
_VISITED_AT_ONCE = 50
_MOST_SILENT = 4
"""After so many silent visits, all projects that are left look for themselves."""


async def survey(projects: Sequence[Project], limit_s: float = LIMIT_S) -> None:
    """Give every project what is in its folder, for its first look; later changes are hinted of."""
    rest, silent = iter(projects), 0
    while silent < _MOST_SILENT and (some := tuple(islice(rest, _VISITED_AT_ONCE))):
        with anyio.move_on_after(limit_s) as limit:
            visits = [project.visit() for project in some]
            found = await to_thread.run_sync(_all_of, visits, abandon_on_cancel=True)
            for project, one in zip(some, found, strict=True):
                project.survey(one)
        silent += limit.cancelled_caught


def _all_of(visits: Sequence[Callable[[], Found]]) -> list[Found | None]:
    return [_found(visit) for visit in visits]


def _found(visit: Callable[[], Found]) -> Found | None:
    try:
        return visit()
    except StoreError:
        return None  # its own look says why
