"""The views of all projects for `status`, without waking projects at rest.

The views of projects at rest are built from the journal and the files in the folder, many at a time. The row
caches its view: while a project rests, nothing in the view can change. `project/status.py` builds one view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from handoffd.engine.views import ProjectView
from handoffd.engine.wording import command_for
from handoffd.errors import HandoffdError, NotFound
from handoffd.execute.sandbox.kernel import landlock_version
from handoffd.execute.sandbox.planning import combined, in_words
from handoffd.fleet.loops import Loops
from handoffd.fleet.membership import Membership
from handoffd.fleet.register import Register, by_project
from handoffd.forecast.snapshot import ProjectNow
from handoffd.inspection.own_files import Texts, read_texts
from handoffd.project.project import Project
from handoffd.project.rest import Row
from handoffd.project.status import view_of
from handoffd.track.services import Services
from handoffd.track.turns import goes_on_by_itself

_TOLD_AT_ONCE = 100
"""How many views are built before other tasks run."""


class Views:
    """Builds views of projects that are up, and of projects at rest without waking them."""

    def __init__(self, services: Services, register: Register, loops: Loops, membership: Membership) -> None:
        self._services = services
        self._register = register
        self._loops = loops
        self._membership = membership

    async def all(self) -> tuple[ProjectView, ...]:
        """Return every project, by root. Raises StoreError."""
        roots = sorted(self._register)
        views: list[ProjectView] = []
        for begin in range(0, len(roots), _TOLD_AT_ONCE):
            views += await self._of(roots[begin : begin + _TOLD_AT_ONCE])
            await checkpoint()
        return tuple(views)

    async def now(self, roots: Sequence[str]) -> tuple[ProjectNow, ...]:
        """Return projects with ledgers, rules and settings, without waking them; others are left out."""
        found: list[ProjectNow] = []
        for begin in range(0, len(roots), _TOLD_AT_ONCE):
            some = [root for root in roots[begin : begin + _TOLD_AT_ONCE] if root in self._register]
            views = {view.project: view for view in await self._of(some)}
            projects = await self._rebuilt(some)
            found += [_now(projects[root], views[root], self._services) for root in some if root in projects]
            await checkpoint()
        return tuple(found)

    async def _rebuilt(self, roots: Sequence[str]) -> dict[str, Project]:
        resting = self._register.resting
        rows = {root: resting[root] for root in roots if root in resting}
        projects = await _projects(rows, self._services)
        return projects | {root: up for root in roots if (up := self._register.awake.get(root)) is not None}

    def forget(self) -> None:
        """Forget the views of projects at rest."""
        for row in self._register.resting.values():
            row.forget_view()

    async def one(self, root: str) -> ProjectView:
        """Return one project. Raises NotFound, StoreError."""
        if found := await self._of([root]):
            return found[0]
        raise NotFound(f"{root} is not supervised", hint=command_for(root, "add"))

    async def _of(self, roots: Sequence[str]) -> list[ProjectView]:
        views: dict[str, ProjectView] = {}
        # A project may wake or go to rest while others are read.
        while missing := [root for root in roots if root in self._register and root not in views]:
            views |= await glimpse(missing, self._register, self._services)
            for root in missing:
                if (up := self._register.awake.get(root)) is not None:
                    views[root] = await _view(up, self._services)
        names = self._register.names()
        return [self._told(views[root], names.get(root)) for root in roots if root in views]

    def _told(self, view: ProjectView, called: str | None) -> ProjectView:
        """Add to a view the project's name in commands, its origin, and how it is watched."""
        view = replace(view, called=called, brought_by=self._membership.brought_by.get(view.project))
        unwatched = self._loops.unwatched(view.project)
        if not unwatched:
            return view
        swept = self._loops.swept(view.project)
        return replace(view, warnings=(*view.warnings, unwatched), swept=swept)


async def _view(project: Project, services: Services) -> ProjectView:
    view = await view_of(project, services.slots)
    held = combined(services.settings.sandbox, project.files.settings.sandbox)
    return replace(view, sandbox=in_words(held, _landlock()))


@cache
def _landlock() -> int:
    return landlock_version()


# --- projects at rest ---------------------------------------------------------------------------------
_READ_AT_ONCE = 20
"""How many projects are read before other tasks run."""
LIMIT_S = 0.5
"""How long reading the files of one batch may take; after that its views come from the journal alone."""


async def glimpse(roots: Sequence[str], register: Register, services: Services) -> Mapping[str, ProjectView]:
    """Return the views of the resting projects among `roots`. Raises StoreError."""
    views: dict[str, ProjectView] = {}
    unseen: list[str] = []
    for root in roots:
        row = register.resting.get(root)
        if row is not None and row.view is not None:
            views[root] = row.view
        elif row is not None:
            unseen.append(root)
    for begin in range(0, len(unseen), _READ_AT_ONCE):
        some = unseen[begin : begin + _READ_AT_ONCE]
        views |= await _glimpse(
            {root: register.resting[root] for root in some if root in register.resting}, services
        )
    return views


async def _glimpse(rows: Mapping[str, Row], services: Services) -> Mapping[str, ProjectView]:
    hints = {root: row.hints for root, row in rows.items()}
    views = {}
    for root, project in (await _projects(rows, services)).items():
        views[root] = await _view(project, services)
        if rows[root].hints == hints[root]:  # after a hint, the files that were read may be out of date
            rows[root].view = views[root]
    await checkpoint()
    return views


async def _projects(rows: Mapping[str, Row], services: Services) -> dict[str, Project]:
    """Return projects at rest as the journal and their files have them; they stay at rest."""
    stored = by_project(await services.journal.tracks(tuple(rows))) if rows else {}
    trusted = await services.journal.trusted(*rows) if rows else {}
    texts = await _texts_of(tuple(rows))
    projects = {}
    for root in rows:
        projects[root] = Project(root, services, stored.get(root, ()), trusted.get(root, {}))
        if root in texts:
            await projects[root].files.take(texts[root])
    return projects


def _now(project: Project, view: ProjectView, services: Services) -> ProjectNow:
    files = project.files
    tracks = {name: one.track for name, one in project.tracks.items()}
    continues = goes_on_by_itself(project.main.track.ledger, files.settings, services.settings)
    return ProjectNow(
        view=view, tracks=tracks, rules=files.rules, settings=files.settings, continues=continues
    )


async def _texts_of(roots: Sequence[str]) -> Mapping[str, Texts]:
    with anyio.move_on_after(LIMIT_S):
        alone = anyio.CapacityLimiter(1)
        return await to_thread.run_sync(_read, roots, abandon_on_cancel=True, limiter=alone)
    return {}


def _read(roots: Sequence[str]) -> Mapping[str, Texts]:
    found = {}
    for root in roots:
        try:
            found[root] = read_texts(Path(root))
        except HandoffdError:  # the project's own look reports the error
            continue
    return found
