"""The first visit of all projects, made by one thread in one go before any of them has its loop.

A daemon that starts looks at every project. Visited one by one, from as many threads, a thousand of
them take several times longer: the threads wait for the interpreter, not for the disk. Whatever does
not answer at once is left out, and looked at like at any other time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import anyio
from anyio import to_thread

from handoffd.errors import StoreError
from handoffd.supervise.project import Project
from handoffd.supervise.visit import Found

LIMIT_S = 1.0
"""How long so many projects may keep the others waiting; then all that are left look for themselves."""
_AT_ONCE = 100


async def survey(projects: Sequence[Project], limit_s: float = LIMIT_S) -> None:
    """Give every project what lies in its folder, for its first look; later changes are hinted of."""
    rest = iter(projects)
    while some := tuple(islice(rest, _AT_ONCE)):
        with anyio.move_on_after(limit_s):
            visits = [project.visit() for project in some]
            found = await to_thread.run_sync(_all_of, visits, abandon_on_cancel=True)
            for project, one in zip(some, found, strict=True):
                project.surveyed = one
            continue
        return


def _all_of(visits: Sequence[Callable[[], Found]]) -> list[Found | None]:
    return [_found(visit) for visit in visits]


def _found(visit: Callable[[], Found]) -> Found | None:
    try:
        return visit()
    except StoreError:
        return None  # its own look says why
