"""Projects with their loops, and STATE.json as other tools read and change it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from tests.support.eventually import eventually
from tests.support.house import House, at

from handoffd.engine.events import Initialised, Started
from handoffd.journal.records import StoredTrack
from handoffd.project.project import Project


@asynccontextmanager
async def living(here: House, root: str, stored: tuple[StoredTrack, ...] = ()) -> AsyncIterator[Project]:
    """Lend a project with its loop."""
    project = Project(root, here.services, stored)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(here.services.notifier.run)
        tasks.start_soon(project.run, ())
        await eventually(lambda: project.main.lasting or not project.workable)
        yield project
        tasks.cancel_scope.cancel()
    project.dismiss()


@asynccontextmanager
async def at_level_1(here: House, root: str) -> AsyncIterator[Project]:
    """Lend a project with a story that only a person or another tool dispatches."""
    async with living(here, root) as project:
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001", automatic=False))
        yield project


def shown(project: Project | str) -> dict[str, object]:
    """Return the content of STATE.json; a project may be given by its root."""
    root = project if isinstance(project, str) else project.root
    found: dict[str, object] = json.loads(at(root, ".ai/STATE.json").read_text())
    return found


def edit(project: Project | str, **changes: object) -> None:
    """Change STATE.json like another tool."""
    root = project if isinstance(project, str) else project.root
    at(root, ".ai/STATE.json").write_text(json.dumps(shown(root) | changes))
