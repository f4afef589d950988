"""Applies changed settings while the daemon runs, completely or not at all, and updates what depends on them.

An unusable edit is reported with all its problems, and the last good settings stay in effect. An edit that
goes beyond what a person has trusted (a command, an executor, a looser guard: `beyond`) waits as a whole
until a person trusts it, over restarts, too. What the first daemon of a state directory finds is trusted.
Changes that need a restart are listed until then; the others apply at once. A signal or a verb reads again
everything that people write: the settings, the folders they name, the projects' own files. A change of the
settings file alone reads only what depends on it.

The settings file and its secret files are polled by path, not watched: a path may lead through links that
are swapped, appear later, or be replaced by an editor in any way, and a poll costs a few microseconds.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import structlog
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from handoffd.clock import Clock
from handoffd.errors import ConfigurationError, InvalidFile, NotFound, Problem, Refused, StoreError
from handoffd.execute.meter import PriceTable, load_prices
from handoffd.execute.registry import ExecutorBook, Layer, load_book, shipped_layer
from handoffd.files.atomic import digest_of, replace_text
from handoffd.fleet.enrolment import Enrolment
from handoffd.fleet.name_checks import misfits
from handoffd.fleet.roster import Roster
from handoffd.journal.journal import Journal
from handoffd.notify.notices import settings_notice, settings_trust_notice
from handoffd.settings.loading import (
    Given,
    HeldEdit,
    HeldSetting,
    Loaded,
    Renewed,
    SettingsView,
    beyond,
    differing,
    held_settings,
)
from handoffd.settings.model import Settings
from handoffd.track.services import Services

log = structlog.get_logger(__name__)


# --- the settings file --------------------------------------------------------------------------------
LOOK_S = 1.0
"""How often to poll the file. It must be the same at two polls: writing it takes a moment."""

RESTART = ("state_dir", "runtime_dir", "control.", "watch.backend")
"""Keys, and prefixes of keys, that only a restart changes."""

Mark = tuple[tuple[str, int, int, int], ...]


class InForce(Struct, frozen=True, kw_only=True):
    """Usable settings, with the executors and prices that they define."""

    settings: Settings
    executors: ExecutorBook
    prices: PriceTable


def usable(loaded: Loaded) -> InForce:
    """Return settings ready to apply. Raises InvalidFile for unusable executors."""
    own = Layer(
        file=str(loaded.file or "the settings"),
        definitions=loaded.settings.executors,
        line_of=loaded.line_of,
    )
    executors = load_book(shipped_layer(), own)
    return InForce(settings=loaded.settings, executors=executors, prices=load_prices(loaded.settings.prices))


def needs_restart(key: str) -> bool:
    """Return whether a change of the key needs a restart."""
    return key.startswith(RESTART)


def live_part(wanted: Settings, running: Settings) -> Settings:
    """Return `wanted` with every value that needs a restart taken from `running`."""
    watch = wanted.watch.model_copy(update={"backend": running.watch.backend})
    kept = {
        "state_dir": running.state_dir, "runtime_dir": running.runtime_dir, "control": running.control,
        "watch": watch,
    }  # fmt: skip
    return wanted.model_copy(update=kept)


def marks(files: Sequence[Path]) -> Mark:
    """Return inode, time and size of the files, which change with their content; blocks briefly."""
    found = []
    for file in files:
        try:
            seen = os.stat(file)
        except OSError:
            continue
        found.append((str(file), seen.st_ino, seen.st_mtime_ns, seen.st_size))
    return tuple(found)


class Reloading:
    """Reads and applies the settings; `view` is the result of the last reading."""

    def __init__(
        self,
        services: Services,
        given: Given | None,
        loaded_from: Path | None = None,
        look_s: float = LOOK_S,
        trusted: Trusted | None = None,
    ) -> None:
        self._look_s = look_s
        self._services = services
        self._given = given
        self._trusted = trusted or trusted_of(services, given)
        self._seen: Mark | None = None  # a change while the daemon starts is an edit, too
        self._secrets: tuple[Path, ...] = () if given is None else given.secret_files()
        self._one = anyio.Lock()
        self._told: tuple[Problem, ...] = ()
        self.followers: list[Callable[[Settings], None]] = []
        """Called with every settings object that is applied."""
        self.view = SettingsView(file=None if loaded_from is None else str(loaded_from))
        self._hide()

    def _hide(self) -> None:
        """Keep the files of the settings, and of the secrets that they name, out of agents' sight."""
        files = () if self._given is None else self._files(self._given)
        self._services.secret_files = tuple(os.path.abspath(file) for file in files)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the last reading, and about the settings in effect."""
        settings = self._services.settings
        return (*self.view.warnings, *settings.notify.warnings, *settings.sandbox.warnings)

    async def watch(self, changed: Callable[[SettingsView], object]) -> None:
        """Read the settings again after each change of their files, until cancelled, and call `changed`."""
        if self._given is None or await to_thread.run_sync(_flows_away, self.view.file):
            return
        latest: Mark | None = None
        while True:
            await anyio.sleep(self._look_s)
            before, latest = latest, await to_thread.run_sync(marks, self._files(self._given))
            if latest == before and latest != self._seen:
                changed(await self.reload())

    async def reload(self) -> SettingsView:
        """Read the settings again, apply them if they are usable, and return the result."""
        if self._given is None:
            return self.view
        async with self._one:
            try:
                self._secrets = await to_thread.run_sync(self._given.secret_files)
                self._hide()
                self._seen = await to_thread.run_sync(marks, self._files(self._given))
                running = self._services.settings
                read = await to_thread.run_sync(_read, self._given, self.view.file, running, self._known)
                await self._judge(read)
            except InvalidFile as invalid:
                self._refuse(invalid.problems)
            except Exception as error:  # a bug here must not end the daemon
                log.exception("settings not applied")
                self._refuse((self._unforeseen(error),))
            return self.view

    def _unforeseen(self, error: Exception) -> Problem:
        """Return the problem of an edit that is valid but could not be applied."""
        message = f"cannot be applied ({type(error).__name__}; the log of the daemon says more)"
        return Problem(file=self.view.file or "the settings", message=message)

    def _files(self, given: Given) -> tuple[Path, ...]:
        return (*given.files(), *self._secrets)

    def _refuse(self, problems: tuple[Problem, ...]) -> None:
        for problem in problems:
            log.warning("settings refused, the last good ones stay in effect", problem=str(problem))
        self.view = replace(self.view, problems=problems, changed=(), held=())
        if problems != self._told:
            self._told = problems
            place = str(self._services.settings.state_dir)
            self._services.notifier.send(settings_notice(place, problems, self._services.clock))

    @property
    def _known(self) -> Trusted:
        if self._trusted is None:
            raise NotFound("this daemon was started without a settings file", hint="handoffd config show")
        return self._trusted

    async def edit(self) -> HeldEdit:
        """Return what of the settings file waits for a person. Raises InvalidFile, Refused."""
        return (await to_thread.run_sync(self._known.edit))[0]

    async def trust(self, sign: str) -> HeldEdit:
        """Accept the settings file for a person who has seen it with this `sign`. Raises Refused."""
        async with self._one:
            edit = await self._known.accept(sign)
        await self.reload()
        return edit

    async def _judge(self, read: _Read) -> None:
        """Take what asks for no trust, and keep its text; hold anything else for a person."""
        if read.held:
            self._hold(read)
            return
        self._take(read.loaded, read.wanted)
        try:
            await self._known.keep(read.loaded.text)
        except StoreError as error:  # then a later edit is compared with an older one
            log.warning("trusted settings not kept", problem=str(error))

    def _hold(self, read: _Read) -> None:
        keys, told = tuple(one.key for one in read.held if one.guarded), self.view.held
        self.view = SettingsView(file=str(read.loaded.file), held=read.held)
        if read.held == told:
            return
        log.warning("settings wait for a person's trust, the last trusted ones stay in effect", keys=keys)
        place = str(self._services.settings.state_dir)
        self._services.notifier.send(
            settings_trust_notice(place, keys, digest_of(read.loaded.text), self._services.clock)
        )

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
        """Apply new settings; on an error restore the former ones."""
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


class _Read(Struct, frozen=True, kw_only=True):
    """The settings as they are now, and what of them goes beyond what a person has trusted."""

    loaded: Loaded
    wanted: InForce
    held: tuple[HeldSetting, ...]


def _read(given: Given, before: str | None, running: Settings, trusted: Trusted) -> _Read:
    """Return the settings as they are now.

    Raises InvalidFile, also for a missing or emptied file: an editor on a full disk leaves one.
    """
    if before is not None and _flows_away(before):
        message = "is a pipe, which cannot be read a second time; restart the daemon"
        raise InvalidFile((Problem(file=before, message=message),))
    loaded = given.load(misfits)
    if before is not None and not os.path.lexists(
        before
    ):  # another file of the search path must not replace it
        message = "is gone; bring it back, or restart the daemon to do without it"
        raise InvalidFile((Problem(file=before, message=message),))
    if loaded.blank and differing(running, loaded.settings):
        message = "is empty; write what shall hold, or `{}` for the defaults"
        raise InvalidFile((Problem(file=str(loaded.file), message=message),))
    return _Read(loaded=loaded, wanted=usable(loaded), held=trusted.held(loaded))


# --- what a person has trusted --------------------------------------------------------------------------
TRUST = "handoffd trust --daemon"
_FILE = "handoffd.yaml"
_KEPT = "handoffd.trusted-"


class Trusted:
    """The text of the settings file that a person has trusted last, or that the first daemon began with.

    A daemon keeps it in memory. For the next one it is in the state directory, and its digest in the journal:
    a text that was put in its place is not what was trusted. Secrets that it only names are not in it.
    """

    def __init__(self, given: Given, journal: Journal, place: Path, clock: Clock) -> None:
        self._given, self._journal, self._place, self._clock = given, journal, place, clock
        self.text: bytes | None = None
        """None: nothing was trusted yet."""
        self._lost = False
        """Whether something was trusted, and the text is gone or another one."""

    async def begin(self, loaded: Loaded) -> Settings:
        """Return the settings that a daemon begins with: as they are, or as they were trusted last.

        Raises ConfigurationError when they go beyond these, and these cannot be used.
        """
        if await to_thread.run_sync(_flows_away, str(loaded.file or "")):
            return loaded.settings  # only who starts the daemon writes into its pipe
        await self.recall()
        try:
            before = await to_thread.run_sync(self.settings, loaded)
        except InvalidFile:
            before = await to_thread.run_sync(self.defaults)
            if held := beyond(loaded.settings, before):
                message = f"what you trusted last cannot be used, and now the settings have {', '.join(held)}"
                raise ConfigurationError(message, code="HELD", hint=TRUST) from None
        if beyond(loaded.settings, before):  # commands find its socket by the file
            return before.model_copy(update={"runtime_dir": loaded.settings.runtime_dir})
        await self.keep(loaded.text)
        return loaded.settings

    async def recall(self) -> None:
        """Read what an earlier daemon has kept."""
        place = str(self._place)
        digest = (await self._journal.trusted(place)).get(place, {}).get(_FILE)
        if digest is None:
            return
        self.text = await to_thread.run_sync(_bytes_of, self._place / f"{_KEPT}{digest}.yaml")
        self._lost = digest_of(self.text) != digest
        if self._lost:
            log.warning("trusted settings are gone or were changed", place=place)

    async def keep(self, text: bytes) -> None:
        """Trust a text from now on, over restarts, too. Raises StoreError."""
        if text == self.text and not self._lost:
            return
        digest, place = digest_of(text), str(self._place)
        await to_thread.run_sync(_write, self._place / f"{_KEPT}{digest}.yaml", text)
        await self._journal.trust(place, _FILE, digest, self._clock.now())
        self.text, self._lost = text, False
        await to_thread.run_sync(_remove_others, self._place, f"{_KEPT}{digest}.yaml")

    def settings(self, now: Loaded) -> Settings:
        """Return the settings as they were trusted; `now`, if nothing was. Blocks. Raises InvalidFile."""
        if self._lost:
            raise InvalidFile((Problem(file=str(self._place), message="the trusted settings are gone"),))
        if self.text is None or self.text == now.text:
            return now.settings
        return self._given.load(text=self.text).settings

    def defaults(self) -> Settings:
        """Return the settings without a file. Blocks."""
        return self._given.load(text=b"").settings

    def held(self, now: Loaded) -> tuple[HeldSetting, ...]:
        """Return which settings wait for a person, compared with the defaults if need be. Blocks."""
        try:
            before = self.settings(now)
        except InvalidFile:
            before = self.defaults()
        return held_settings(now.settings, before)

    def edit(self) -> tuple[HeldEdit, bytes]:
        """Return what of the settings file waits, and its text. Blocks. Raises InvalidFile, Refused."""
        now = self._given.load(misfits)
        file = None if now.file is None else str(now.file)
        if _flows_away(file):
            message = "the settings came through a pipe, and are trusted as they came"
            raise Refused(message, hint="handoffd config show")
        return HeldEdit(file=file, held=self.held(now), sign=digest_of(now.text)), now.text

    async def accept(self, sign: str) -> HeldEdit:
        """Trust the settings file as a person has seen it. Raises Refused if it was edited since."""
        edit, text = await to_thread.run_sync(self.edit)
        if edit.sign != sign:
            raise Refused("the settings were edited again meanwhile", code="FILES_EDITED", hint=TRUST)
        await self.keep(text)
        return edit


def trusted_of(services: Services, given: Given | None) -> Trusted | None:
    """Return what is trusted of the settings as they were `given`."""
    if given is None:
        return None
    return Trusted(given, services.journal, services.settings.state_dir, services.clock)


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _write(path: Path, text: bytes) -> None:
    replace_text(path, text)
    path.chmod(0o600)


def _remove_others(place: Path, kept: str) -> None:
    for other in place.glob(f"{_KEPT}*.yaml"):
        if other.name != kept:
            with suppress(OSError):
                other.unlink()


def _flows_away(file: str | None) -> bool:
    """Return whether settings came through a pipe (`--config <(...)`), which can be read only once."""
    try:
        return file is not None and not stat.S_ISREG(os.stat(file).st_mode)
    except OSError:
        return False


# --- reloading everything -----------------------------------------------------------------------------
PLACES_LIMIT_S = 10.0
"""How long a `reload` waits for the scan of the folders in the settings."""

_PLACES = ("projects", "workspaces", "roster.")
"""Keys that locate projects."""
_OF_NO_PROJECT = (*_PLACES, "log.", "notify.")
"""Keys whose change affects no project that is already supervised."""


class Renewal:
    """Implements `reload`, and lists the problems of the settings (`warnings`)."""

    def __init__(self, reloading: Reloading, enrolling: Enrolment, roster: Roster) -> None:
        self._reloading = reloading
        self._enrolling = enrolling
        self._roster = roster

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems of the settings, and entries that cannot be followed, as messages."""
        return (*self._reloading.warnings, *self._enrolling.notes)

    @property
    def trouble(self) -> str | None:
        """What is wrong with the settings file, and the next command; None if nothing is."""
        if self._reloading.view.held:
            return f"an edit of the settings waits for your trust ({TRUST})"
        problems = len(self._reloading.view.problems)
        if not problems:
            return None
        return f"{problems} problem{'s' * (problems > 1)} (handoffd config check)"

    async def renew(self) -> Renewed:
        """Read everything again; return the result."""
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

    async def edit(self) -> HeldEdit:
        """Return what of the settings file waits for a person."""
        return await self._reloading.edit()

    async def trust(self, sign: str) -> HeldEdit:
        """Trust the settings file as a person has seen it, and return what has waited for that."""
        edit = await self._reloading.trust(sign)
        await self._tell_of(self._reloading.view)
        return edit

    async def follow(self) -> None:
        """Follow the settings file until cancelled."""
        async with anyio.create_task_group() as tasks:
            await self._reloading.watch(lambda view: tasks.start_soon(self._follow, view))

    async def _follow(self, view: SettingsView) -> None:
        try:
            await self._tell_of(view)
        except Exception:  # projects poll again by themselves, but only while the daemon runs
            log.exception("settings applied, but projects not reloaded")

    async def _tell_of(self, view: SettingsView) -> None:
        if any(key.startswith(_PLACES) for key in view.changed):
            await self._enrolling.look_now(PLACES_LIMIT_S)
        if not all(key.startswith(_OF_NO_PROJECT) for key in view.changed):
            await self._roster.reload()  # a higher cap or more slots may let waiting tracks start
