"""Puts changed settings in force while the daemon runs, whole or not at all, and has the rest follow.

An edit that cannot be used is reported with everything that is wrong with it, and the last good settings
stay in force. What only a restart can change is named until then; the rest counts at once. A signal or a
verb has everything read again that people write: the settings, the folders they name, the projects' own
files. A change of the file alone has read again what follows from it.

The file, and those of secrets that it names, are looked at by their paths and not watched: they may be links
to links that are exchanged, appear later, or be replaced by an editor in any way there is, and a look at
them costs some microseconds.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import structlog
from anyio import to_thread

from handoffd.engine.views import Renewed, SettingsView
from handoffd.errors import InvalidFile, Problem
from handoffd.execute.meter import PriceTable, load_prices
from handoffd.execute.registry import ExecutorBook, Layer, load_book, shipped_layer
from handoffd.fleet.enrolment import Enrolment
from handoffd.fleet.name_checks import misfits
from handoffd.fleet.roster import Roster
from handoffd.notify.notices import settings_notice
from handoffd.settings.loading import Given, Loaded, differing
from handoffd.settings.model import Settings
from handoffd.track.services import Services

log = structlog.get_logger(__name__)


# --- the settings file --------------------------------------------------------------------------------
LOOK_S = 1.0
"""How often the file is looked at. It must have been the same at two looks: writing it takes a moment."""

RESTART = ("state_dir", "runtime_dir", "control.", "watch.backend")
"""Keys, and beginnings of keys, whose values a daemon keeps to its end."""

Mark = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """Settings with what is made of them, all of it usable."""

    settings: Settings
    executors: ExecutorBook
    prices: PriceTable


def usable(loaded: Loaded) -> InForce:
    """Return what is to be in force. Raises InvalidFile for executors that cannot be used."""
    own = Layer(
        file=str(loaded.file or "the settings"),
        definitions=loaded.settings.executors,
        line_of=loaded.line_of,
    )
    executors = load_book(shipped_layer(), own)
    return InForce(settings=loaded.settings, executors=executors, prices=load_prices(loaded.settings.prices))


def needs_restart(key: str) -> bool:
    """Return whether the value of a key only counts for a daemon that starts with it."""
    return key.startswith(RESTART)


def live_part(wanted: Settings, running: Settings) -> Settings:
    """Return what of `wanted` can be in force now; the rest is as in `running`."""
    watch = wanted.watch.model_copy(update={"backend": running.watch.backend})
    kept = {
        "state_dir": running.state_dir, "runtime_dir": running.runtime_dir, "control": running.control,
        "watch": watch,
    }  # fmt: skip
    return wanted.model_copy(update=kept)


def marks(files: Sequence[Path]) -> Mark:
    """Return what tells one state of the files from another; blocks on the disk, a little."""
    found = []
    for file in files:
        try:
            seen = os.stat(file)
        except OSError:
            continue
        found.append((str(file), seen.st_ino, seen.st_mtime_ns, seen.st_size))
    return tuple(found)


class Reloading:
    """The settings in force, and how the last reading of them went (`view`)."""

    def __init__(self, services: Services, given: Given | None, loaded_from: Path | None = None) -> None:
        self._services = services
        self._given = given
        self._seen: Mark | None = None  # what changes while the daemon starts is an edit, too
        self._secrets: tuple[Path, ...] = ()
        self._one = anyio.Lock()
        self._told: tuple[Problem, ...] = ()
        self.followers: list[Callable[[Settings], None]] = []
        """Called with the settings that come into force."""
        self.view = SettingsView(file=None if loaded_from is None else str(loaded_from))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What people should know of the settings, in words: of the last reading, and of those in force."""
        return (*self.view.warnings, *self._services.settings.notify.warnings)

    async def watch(self, changed: Callable[[SettingsView], object]) -> None:
        """Read the settings again whenever their file has changed, until cancelled; tell `changed` of it."""
        if self._given is None or await to_thread.run_sync(_flows_away, self.view.file):
            return
        latest: Mark | None = None
        while True:
            await anyio.sleep(LOOK_S)
            before, latest = latest, await to_thread.run_sync(marks, self._files(self._given))
            if latest == before and latest != self._seen:
                changed(await self.reload())

    async def reload(self) -> SettingsView:
        """Read the settings again and put them in force, if they can be used; return what came of it."""
        if self._given is None:
            return self.view
        async with self._one:
            try:
                self._secrets = await to_thread.run_sync(self._given.secret_files)
                self._seen = await to_thread.run_sync(marks, self._files(self._given))
                running = self._services.settings
                loaded, wanted = await to_thread.run_sync(_read, self._given, self.view.file, running)
                self._take(loaded, wanted)
            except InvalidFile as invalid:
                self._refuse(invalid.problems)
            except Exception as error:  # a fault of ours, and no reason to end what runs
                log.exception("settings not put in force")
                self._refuse((self._unforeseen(error),))
            return self.view

    def _unforeseen(self, error: Exception) -> Problem:
        """Return the problem that an edit is which nothing was found wrong with."""
        message = f"cannot be put in force ({type(error).__name__}; the log of the daemon says more)"
        return Problem(file=self.view.file or "the settings", message=message)

    def _files(self, given: Given) -> tuple[Path, ...]:
        return (*given.files(), *self._secrets)

    def _refuse(self, problems: tuple[Problem, ...]) -> None:
        for problem in problems:
            log.warning("settings refused, the last good ones stay in force", problem=str(problem))
        now = self._services.clock.now()
        self.view = replace(self.view, problems=problems, changed=(), since=self.view.since or now)
        if problems != self._told:
            self._told = problems
            place = str(self._services.settings.state_dir)
            self._services.notifier.send(settings_notice(place, problems, self._services.clock))

    def _take(self, loaded: Loaded, wanted: InForce) -> None:
        running = self._services.settings
        settings = live_part(wanted.settings, running)
        changed = differing(running, settings)
        restart = tuple(key for key in differing(running, wanted.settings) if needs_restart(key))
        if changed:
            self._change(replace(wanted, settings=settings))
        if self.view.problems:
            log.info("settings can be used again")
        self._told = ()
        self.view = SettingsView(
            file=None if loaded.file is None else str(loaded.file), changed=changed, restart=restart
        )
        if changed or restart:
            log.info("settings read again", in_force=list(changed), after_restart=list(restart))

    def _change(self, wanted: InForce) -> None:
        """Apply new settings; on an error put the former back."""
        services = self._services
        before = InForce(settings=services.settings, executors=services.executors, prices=services.prices)
        try:
            self._put_in_force(wanted)
        except BaseException:
            self._put_in_force(before)
            raise

    def _put_in_force(self, wanted: InForce) -> None:
        self._services.settings = wanted.settings
        self._services.executors, self._services.prices = wanted.executors, wanted.prices
        for follow in self.followers:
            follow(wanted.settings)


def _read(given: Given, before: str | None, running: Settings) -> tuple[Loaded, InForce]:
    """Return the settings as they are now.

    Raises InvalidFile, also for a file that is gone or was emptied: an editor on a full disk leaves one.
    """
    if before is not None and _flows_away(before):
        message = "is a pipe, which cannot be read a second time; restart the daemon"
        raise InvalidFile((Problem(file=before, message=message),))
    loaded = given.load(misfits)
    if before is not None and not os.path.lexists(before):  # though another may be there, it is not that one
        message = "is gone; bring it back, or restart the daemon to do without it"
        raise InvalidFile((Problem(file=before, message=message),))
    if loaded.blank and differing(running, loaded.settings):
        message = "is empty; write what shall hold, or `{}` for the defaults"
        raise InvalidFile((Problem(file=str(loaded.file), message=message),))
    return loaded, usable(loaded)


def _flows_away(file: str | None) -> bool:
    """Return whether settings came by a pipe (`--config <(...)`): what was read from it is gone."""
    try:
        return file is not None and not stat.S_ISREG(os.stat(file).st_mode)
    except OSError:
        return False


# --- everything that people write ---------------------------------------------------------------------
PLACES_LIMIT_S = 10.0
"""How long a `reload` waits for the folders of the settings to be looked through."""

_PLACES = ("projects", "workspaces", "roster.")
"""Keys that say where projects lie."""
_OF_NO_PROJECT = (*_PLACES, "log.", "notify.")
"""Keys after whose change no project does anything else than before."""


class Renewal:
    """What `reload` does, and what people should know of the settings in force (`warnings`)."""

    def __init__(self, reloading: Reloading, enrolling: Enrolment, roster: Roster) -> None:
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
        except Exception:  # the poll looks again; a daemon that ends looks at nothing
            log.exception("settings in force, but not everybody was told")

    async def _tell_of(self, view: SettingsView) -> None:
        if any(key.startswith(_PLACES) for key in view.changed):
            await self._enrolling.look_now(PLACES_LIMIT_S)
        if not all(key.startswith(_OF_NO_PROJECT) for key in view.changed):
            await self._roster.reload()  # what waits for a higher cap, or a slot, need wait no more
