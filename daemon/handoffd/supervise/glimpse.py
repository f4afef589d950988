"""What `status` tells of projects at rest, without making them get up.

Their tracks are read from the journal and their own files from the folder, many at a time. It stays
with the row: while a project rests, nothing that is told of it can change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint

from handoffd.engine.views import ProjectView
from handoffd.errors import HandoffdError
from handoffd.inspection.own_files import Texts, read_texts
from handoffd.project.project import Project
from handoffd.project.rest import Row
from handoffd.project.status import view_of
from handoffd.supervise.loading import by_project
from handoffd.supervise.register import Register
from handoffd.track.services import Services

AT_ONCE = 20
"""After so many others have their turn."""
LIMIT_S = 0.5
"""How long those that are read at once may take; then they are told of by the journal alone."""


async def glimpse(roots: Sequence[str], register: Register, services: Services) -> Mapping[str, ProjectView]:
    """Return the views of those of these projects that rest. Raises StoreError."""
    views: dict[str, ProjectView] = {}
    unseen: list[str] = []
    for root in roots:
        row = register.resting.get(root)
        if row is not None and row.view is not None:
            views[root] = row.view
        elif row is not None:
            unseen.append(root)
    for begin in range(0, len(unseen), AT_ONCE):
        some = unseen[begin : begin + AT_ONCE]
        views |= await _glimpse(
            {root: register.resting[root] for root in some if root in register.resting}, services
        )
    return views


async def _glimpse(rows: Mapping[str, Row], services: Services) -> Mapping[str, ProjectView]:
    hints = {root: row.hints for root, row in rows.items()}
    stored = by_project(await services.journal.tracks(tuple(rows)))
    trusted = await services.journal.trusted(*rows)
    texts = await _texts_of(tuple(rows))
    views = {}
    for root, row in rows.items():
        project = Project(root, services, stored.get(root, ()), trusted.get(root, {}))
        if root in texts:
            await project.files.take(texts[root])
        views[root] = await view_of(project, services.slots)
        if row.hints == hints[root]:  # else what was read may be of before that
            row.view = views[root]
    await checkpoint()
    return views


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
        except HandoffdError:  # its own look says why
            continue
    return found
