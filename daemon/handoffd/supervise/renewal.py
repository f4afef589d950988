"""Reading everything again that people write: the settings, where projects lie, the projects' own files.

By a signal or a verb all of it; by itself when the settings file changes, what follows from that.
"""

from __future__ import annotations

import anyio
import structlog

from handoffd.engine.views import Renewed, SettingsView
from handoffd.supervise.enrolling import Enrolling
from handoffd.supervise.reloading import Reloading
from handoffd.supervise.roster import Roster

log = structlog.get_logger(__name__)

PLACES_LIMIT_S = 10.0
"""How long whoever asks waits for the folders of the settings to be looked through."""

_PLACES = ("projects", "workspaces", "roster.")
"""Keys that say where projects lie."""
_OF_NO_PROJECT = (*_PLACES, "log.", "notify.")
"""Keys after whose change no project does anything else than before."""


class Renewal:
    """What `reload` does, and what people should know of the settings in force (`warnings`)."""

    def __init__(self, reloading: Reloading, enrolling: Enrolling, roster: Roster) -> None:
        self._reloading = reloading
        self._enrolling = enrolling
        self._roster = roster

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the settings, or not as they would have it, in words."""
        return (*self._reloading.warnings, *self._enrolling.notes)

    @property
    def trouble(self) -> str | None:
        """The same of the settings file in a few words; None when it is in force."""
        problems = len(self._reloading.view.problems)
        if not problems:
            return None
        return f"{problems} problem{'s' * (problems > 1)} (handoffd config check)"

    async def renew(self) -> Renewed:
        """Read it all again; return what came of it."""
        brought, gone = self._enrolling.brought, self._enrolling.gone
        view = await self._reloading.reload()
        await self._enrolling.look_now(PLACES_LIMIT_S)
        problems = await self._roster.reload()
        return Renewed(
            settings=view,
            brought=self._enrolling.brought - brought,
            let_go=self._enrolling.gone - gone,
            problems=problems,
        )

    async def follow(self) -> None:
        """Keep up with the settings file until cancelled."""
        async with anyio.create_task_group() as tasks:
            await self._reloading.watch(lambda view: tasks.start_soon(self._follow, view))

    async def _follow(self, view: SettingsView) -> None:
        try:
            await self._tell_of(view)
        except Exception:  # everybody looks again by and by; a daemon that ends looks at nothing
            log.exception("settings in force, but not everybody was told")

    async def _tell_of(self, view: SettingsView) -> None:
        if any(key.startswith(_PLACES) for key in view.changed):
            await self._enrolling.look_now(PLACES_LIMIT_S)
        if not all(key.startswith(_OF_NO_PROJECT) for key in view.changed):
            await self._roster.reload()  # what waits for a higher cap, or a slot, need wait no more
