"""What a project's own files say: its settings and its step table.

They are re-read when they change. An invalid edit keeps the last valid version in force; an edit
that touches a command, a human step, a target, a limit or a write scope waits until a person trusts
it, because agents can write these files. `problems` and `held` say so wherever the project is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import anyio
import structlog
from anyio import to_thread

from handoffd.clock import Clock
from handoffd.configure import load_project, sensitive
from handoffd.errors import InvalidFile, Problem
from handoffd.protocol.rulebook import Layer, build_rulebook, merge_trusted
from handoffd.protocol.rules import RuleBook
from handoffd.resources import shared
from handoffd.settings import ProjectSettings
from handoffd.store.journal import Journal
from handoffd.store.projection import read_project_file
from handoffd.supervise.prompting import templates_for

log = structlog.get_logger(__name__)

RULES = ".ai/step-rules.yaml"
SETTINGS = ".ai/handoffd.yaml"
MAX_BYTES = 64 * 1024

Texts = Mapping[str, str | None]
"""The project's own files by name; None where one is missing."""

Taken = tuple[ProjectSettings, RuleBook, tuple[Problem, ...], tuple[str, ...]]


class ProjectFiles:
    """The configuration of one project, always usable: `rules` and `settings` are the last valid."""

    def __init__(self, root: str, journal: Journal, clock: Clock) -> None:
        self._root = Path(root)
        self._journal = journal
        self._clock = clock
        self._texts: Texts | None = None
        self._turn = anyio.Lock()
        """Else what was judged before a person trusted it could be put in force after that."""
        self.settings = ProjectSettings()
        self._instructed: frozenset[str] = frozenset()
        self.rules: RuleBook = _shipped_book(None)
        self.problems: tuple[Problem, ...] = ()
        self.held: tuple[str, ...] = ()
        """Dotted keys of edits that wait for `handoffd trust`."""

    @property
    def loaded(self) -> bool:
        """Whether the files have been read at all: an adopted executor is judged by them, too."""
        return self._texts is not None

    async def refresh(self) -> bool:
        """Take over what changed on the disk; return whether anything did.

        Raises StoreError when the files cannot be read at all.
        """
        async with self._turn:
            return await self._refresh()

    async def _refresh(self) -> bool:
        texts = await to_thread.run_sync(self._read)
        if texts == self._texts:
            return False
        if texts[RULES] is not None:
            templates = await to_thread.run_sync(templates_for, str(self._root))
            self._instructed = templates.instructed()
        trusted = {name: await self._journal.trusted(str(self._root), name) for name in texts}
        # In a thread, too: a table takes 20 ms, a hostile one half a second, and there are many projects.
        taken = await to_thread.run_sync(self._judged, texts, trusted)
        self._texts = texts
        self.settings, self.rules, self.problems, self.held = taken
        for problem in self.problems:
            log.warning("project file refused", project=str(self._root), problem=str(problem))
        return True

    async def trust(self) -> tuple[str, ...]:
        """Put what the files say now into force, all of it; return the dotted keys that were held.

        Raises InvalidFile when they cannot be used: nobody can trust what means nothing.
        """
        async with self._turn:
            texts = await to_thread.run_sync(self._read)
            await to_thread.run_sync(lambda: self._book(self._settings_of(texts), texts))
            for name, text in texts.items():
                await self._journal.trust(str(self._root), name, text or "", self._clock.now())
            before, self._texts = self.held, {}
            await self._refresh()
            return before

    async def is_known(self) -> bool:
        """Return whether a person has ever trusted this project's files."""
        return await self._journal.trusted(str(self._root), SETTINGS) is not None

    def _read(self) -> Texts:
        return {name: self._text(name) for name in (SETTINGS, RULES)}

    def _text(self, name: str) -> str | None:
        seen = read_project_file(self._root, name, MAX_BYTES)
        if seen is None:
            return None
        return seen.content.decode("utf-8", errors="replace")

    def _judged(self, texts: Texts, trusted: Texts) -> Taken:
        """Return what is in force now, what is wrong with the files, and what is held of them."""
        settings, rules = self.settings, self.rules
        problems: list[Problem] = []
        held: list[str] = []
        try:
            settings, keys = self._hold_settings(self._settings_of(texts), trusted)
            held += keys
        except InvalidFile as invalid:
            problems += invalid.problems
        try:
            rules, keys = self._hold_rules(settings, texts, trusted)
            held += keys
        except InvalidFile as invalid:
            problems += invalid.problems
        return settings, rules, tuple(problems), tuple(held)

    def _settings_of(self, texts: Texts) -> ProjectSettings:
        return load_project(texts[SETTINGS], SETTINGS)

    def _book(self, settings: ProjectSettings, texts: Texts) -> RuleBook:
        """Return the step table of the shipped layers and the project's own. Raises InvalidFile."""
        own = texts[RULES]
        layers = shipped_layers(settings.preset)
        if own is None or not own.strip():
            return _shipped_book(settings.preset)
        return build_rulebook((*layers, Layer(RULES, own)), instructed=self._instructed)

    def _hold_settings(self, new: ProjectSettings, trusted: Texts) -> tuple[ProjectSettings, tuple[str, ...]]:
        if trusted[SETTINGS] is None:
            return new, ()
        old = load_project(trusted[SETTINGS], SETTINGS)
        wanted, granted = sensitive(new), sensitive(old)
        keys = tuple(sorted(key for key in wanted if wanted[key] != granted[key]))
        tops = {key.split(".")[0] for key in keys}
        return new.model_copy(update={name: getattr(old, name) for name in tops}), keys

    def _hold_rules(
        self, settings: ProjectSettings, texts: Texts, trusted: Texts
    ) -> tuple[RuleBook, tuple[str, ...]]:
        new = self._book(settings, texts)
        # A table that is trusted as it stands is not merged with itself: then all projects without
        # one of their own share the shipped one, and a thousand of them cost no more than one.
        if trusted[RULES] in {None, texts[RULES] or ""}:
            return new, ()
        return merge_trusted(new, self._book(settings, trusted))


@lru_cache(maxsize=8)
def _shipped_book(preset: str | None) -> RuleBook:
    return build_rulebook(shipped_layers(preset))


@lru_cache(maxsize=8)
def shipped_layers(preset: str | None) -> tuple[Layer, ...]:
    """Return the shipped step table, with a preset above it. Raises InvalidFile for an unknown one."""
    table = shared("config", "step-rules.yaml")
    layers = (Layer("config/step-rules.yaml", table.read_text("utf-8")),)
    if preset is None:
        return layers
    known = sorted(path.stem for path in shared("config", "presets").glob("*.yaml"))
    if preset not in known:
        message = f"there is no preset {preset!r}"
        raise InvalidFile((Problem(file=SETTINGS, key="preset", message=message, allowed=tuple(known)),))
    text = shared("config", "presets", f"{preset}.yaml").read_text("utf-8")
    return (*layers, Layer(f"config/presets/{preset}.yaml", text))
