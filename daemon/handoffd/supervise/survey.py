"""The first visit of all projects, made by one thread in one go before any of them has its loop.

A daemon that starts looks at every project. Visited one by one, from as many threads, a thousand of
them take several times longer: the threads wait for the interpreter, not for the disk. Where one does
not answer at once, it and those that were asked with it look for themselves, as at any other time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import anyio
from anyio import to_thread

from handoffd.errors import StoreError
from handoffd.project.folder import Found
from handoffd.project.project import Project

LIMIT_S = 0.5
"""How long those that are asked at once may take."""
_AT_ONCE = 50
_MOST_SILENT = 4
"""So many times it is waited for them; then all that are left look for themselves."""


async def survey(projects: Sequence[Project], limit_s: float = LIMIT_S) -> None:
    """Give every project what lies in its folder, for its first look; later changes are hinted of."""
    rest, silent = iter(projects), 0
    while silent < _MOST_SILENT and (some := tuple(islice(rest, _AT_ONCE))):
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
