"""What is told of projects, whether they are up or at rest; a view is what `status` shows of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anyio.lowlevel import checkpoint

from handoffd.engine.commands import command_for
from handoffd.engine.views import ProjectView
from handoffd.errors import NotFound
from handoffd.project.status import view_of
from handoffd.supervise.glimpse import glimpse
from handoffd.supervise.loops import Loops
from handoffd.supervise.membership import Membership
from handoffd.supervise.register import Register
from handoffd.track.services import Services

AT_ONCE = 100
"""After so many others have their turn."""


class Viewing:
    """Makes views: of projects that are up as they are now, of those at rest without making them get up."""

    def __init__(self, services: Services, register: Register, loops: Loops, membership: Membership) -> None:
        self._services = services
        self._register = register
        self._loops = loops
        self._membership = membership

    async def all(self) -> tuple[ProjectView, ...]:
        """Return every project, by root. Raises StoreError."""
        roots = sorted(self._register)
        views: list[ProjectView] = []
        for begin in range(0, len(roots), AT_ONCE):
            views += await self._of(roots[begin : begin + AT_ONCE])
            await checkpoint()
        return tuple(views)

    def forget(self) -> None:
        """Forget what is kept of those at rest."""
        for row in self._register.resting.values():
            row.forget_view()

    async def one(self, root: str) -> ProjectView:
        """Return one project. Raises NotFound, StoreError."""
        if found := await self._of([root]):
            return found[0]
        raise NotFound(f"{root} is not supervised", hint=command_for(root, "add"))

    async def _of(self, roots: Sequence[str]) -> list[ProjectView]:
        views: dict[str, ProjectView] = {}
        # One may get up or lie down while others are read.
        while missing := [root for root in roots if root in self._register and root not in views]:
            views |= await glimpse(missing, self._register, self._services)
            for root in missing:
                if (up := self._register.awake.get(root)) is not None:
                    views[root] = await view_of(up, self._services.slots)
        names = self._register.names()
        return [self._told(views[root], names.get(root)) for root in roots if root in views]

    def _told(self, view: ProjectView, called: str | None) -> ProjectView:
        """Return a view with what is known beside it: its name in commands, its origin, how it is watched."""
        view = replace(view, called=called, brought_by=self._membership.brought_by.get(view.project))
        unwatched = self._loops.unwatched(view.project)
        if not unwatched:
            return view
        swept = self._loops.swept(view.project)
        return replace(view, warnings=(*view.warnings, unwatched), swept=swept)
