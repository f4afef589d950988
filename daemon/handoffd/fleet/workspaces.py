"""The clones in which stories work: which there are, how large they are, and which of them may go.

One goes when nothing of it would be lost: its story is over, all of it is on the story's branch in the
project's repository, and that is merged, or the clone has been there for long. It is made anew when it is
needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TypeVar

from anyio import to_thread

from handoffd.engine.views import WorkspaceView
from handoffd.errors import HandoffdError, StoreError
from handoffd.git.branches import StoryBranch
from handoffd.git.clones import APART, Clone, Clones, clones_in
from handoffd.journal.retention import Doomed
from handoffd.project.landing import stories_at_work
from handoffd.track.reach import Reach
from handoffd.track.services import Services

_T = TypeVar("_T")

_LIMIT_S = 120.0
"""How long git may take to tell what of one clone is kept elsewhere."""


class Workspaces:
    """The clones of all projects of one daemon."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def views(self, root: str | None = None) -> tuple[WorkspaceView, ...]:
        """Return the clones of one project or of all. Raises StoreError when the journal cannot be read."""
        wanted = [one for one in await self._of_stories() if root in {None, one.root}]
        stories = await self._busy([one.root for one in wanted])
        return tuple([await self._view(one, one.story in stories[one.root]) for one in wanted])

    async def clean(self, problems: list[str], *, dry_run: bool) -> list[Doomed]:
        """Remove the clones that may go, unless it is a dry run; return them."""
        doomed = []
        for clone in await self._of_stories():
            stories = await self._busy([clone.root])
            view = await self._view(clone, clone.story in stories[clone.root], publish=not dry_run)
            if view.kept is not None:
                continue
            if clone.story in (await self._busy([clone.root]))[clone.root]:
                continue  # it was taken up again meanwhile
            if not dry_run:
                try:
                    await self._asked(clone, partial(self._clones(clone).remove, clone))
                except HandoffdError as error:
                    problems.append(f"the clone {view.folder} stays: {error.message}")
                    continue
            doomed.append(_doomed(view))
        return doomed

    async def _of_stories(self) -> list[Clone]:
        """Return the clones of stories; landings and trials look after their own."""
        found = await to_thread.run_sync(clones_in, self._services.settings.state_dir)
        return [one for one in found if not one.story.startswith(APART)]

    async def _busy(self, roots: Sequence[str]) -> dict[str, set[str]]:
        """Return the stories in flight or set aside, by project."""
        busy: dict[str, set[str]] = {root: set() for root in roots}
        for stored in await self._services.journal.tracks(sorted(busy)) if busy else ():
            busy[stored.key.project] |= {
                story for story in stories_at_work(stored.track) if story is not None
            }
        return busy

    async def _view(self, clone: Clone, busy: bool, *, publish: bool = False) -> WorkspaceView:
        """Return what is known of a clone; `publish`: after its branch is in the project's repository."""
        where = clone.workspace
        try:
            size, why = await self._asked(clone, partial(self._found, clone, busy, publish))
        except HandoffdError as error:  # one that does not answer does not hide the others
            size, why = 0, error.message
        return WorkspaceView(
            project=clone.root, story=clone.story, folder=where.folder, branch=where.branch, base=where.base,
            made_at=clone.made_at, bytes=size, ready=clone.ready, kept=why,
        )  # fmt: skip

    async def _asked(self, clone: Clone, look: Callable[[], _T]) -> _T:
        return await Reach(clone.workspace.folder, self._services.asking).asked(look, _LIMIT_S)

    def _found(self, clone: Clone, busy: bool, publish: bool) -> tuple[int, str | None]:
        """Return how large a clone is, and why it stays; blocks."""
        size = self._clones(clone).size_of(clone)
        if busy:
            return size, "its story is in flight"
        try:
            return size, self._why_kept(clone, publish)
        except StoreError as error:
            return size, error.message

    def _why_kept(self, clone: Clone, publish: bool) -> str | None:
        settings, services = self._services.settings, self._services
        branch = StoryBranch(clone.root, clone.workspace, settings.state_dir, services.environment)
        if publish:
            with suppress(StoreError):
                branch.publish()
        if (unkept := branch.unkept()) is not None:
            return unkept
        days = settings.retention.workspaces_days
        if branch.is_landed():
            return None
        if days is not None and services.clock.now() - clone.made_at > timedelta(days=days):
            return None
        return f"{clone.workspace.branch} is not merged"

    def _clones(self, clone: Clone) -> Clones:
        return Clones(clone.root, self._services.settings.state_dir, self._services.environment)


def _doomed(view: WorkspaceView) -> Doomed:
    why = f"its story is over, and all of it is on {view.branch} (retention.workspaces_days)"
    return Doomed(kind="workspace", what=view.folder, project=view.project, bytes=view.bytes, why=why)
