"""What a project's own files say: its settings, its step table, and its pipelines.

They are re-read when they change. After an invalid edit the last valid version still applies; an edit
that touches a command, a human step, a target, a limit or a write scope waits until a person trusts
it, because agents can write these files. A pipeline waits whole, also a new one: it may start agents.
`problems` and `held` appear wherever the project is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import quote

import structlog
from anyio import to_thread

from handoffd.clock import Clock
from handoffd.engine.wording import command_for
from handoffd.errors import InvalidFile, Problem, Refused
from handoffd.files.atomic import digest_of
from handoffd.files.rooted import write_project_file
from handoffd.inspection.own_files import (
    MOST_PIPELINES,
    RULES,
    SETTINGS,
    Texts,
    book_of,
    is_pipeline,
    is_there,
    read_texts,
    settings_in,
    shipped_layers,
    templates_for,
    too_many,
    with_gates,
    with_trusted,
    with_workspace,
)
from handoffd.journal.log import Log
from handoffd.protocol.rule_merge import Layer
from handoffd.protocol.rulebook import merge_trusted
from handoffd.protocol.rules import Gates, RuleBook
from handoffd.settings.loading import held
from handoffd.settings.model import ProjectSettings, StoryWorkspace

log = structlog.get_logger(__name__)

Trusted = Mapping[str, str]
"""The texts that a person has trusted last, by name."""

_Odd = tuple[frozenset[str], str | None]

Taken = tuple[ProjectSettings, RuleBook, tuple[Problem, ...], tuple[str, ...]]


class ProjectFiles:
    """The configuration of one project, always usable: `rules` and `settings` are the last valid."""

    def __init__(self, root: str, journal: Log, clock: Clock, trusted: Trusted | None = None) -> None:
        self._root = Path(root)
        self._journal = journal
        self._clock = clock
        self._trusted = trusted
        """As the journal has it; None until it was asked. Only this object changes that."""
        self._texts: Texts | None = None
        self._turn = asyncio.Lock()
        """Serialises reading and trusting, so that an older judgement cannot replace a person's trust."""
        self.settings = ProjectSettings()
        self.rules: RuleBook = book_of(shipped_layers(None))
        self.problems: tuple[Problem, ...] = ()
        self.held: tuple[str, ...] = ()
        """Dotted keys of edits, and pipelines, that wait for `handoffd trust`."""
        self.unread: frozenset[str] = frozenset()
        """Pipelines of `gone` that are there, but cannot be read."""
        self.crowd: str | None = None
        """That it has more pipelines than count, if it has."""

    @property
    def loaded(self) -> bool:
        """Whether the files have been read at all: an adopted executor is judged by them, too."""
        return self._texts is not None

    @property
    def texts(self) -> Texts:
        """The files as they were taken last."""
        return self._texts or {}

    @property
    def gone(self) -> tuple[str, ...]:
        """The files that a person trusted and that were deleted: their contents still apply."""
        texts, trusted = self._texts or {}, self._trusted or {}
        return tuple(name for name, text in texts.items() if text is None and trusted.get(name))

    @property
    def pipelines(self) -> Mapping[str, str]:
        """The texts of its pipelines that apply, by file: as a person has trusted them last."""
        known = (self._trusted or {}).items()
        return {name: text for name, text in known if is_pipeline(name) and text.strip()}

    @property
    def edit(self) -> str:
        """What tells this version of the files from others."""
        texts = self._texts or {}
        return digest_of("\0".join(f"{name}\0{text}" for name, text in sorted(texts.items())).encode())

    async def refresh(self) -> bool:
        """Take over what changed on the disk; return whether anything did.

        Raises StoreError when the files cannot be read at all.
        """
        return await self.take(await to_thread.run_sync(read_texts, self._root))

    async def take(self, texts: Texts) -> bool:
        """Take over what the files say, read a moment ago; return whether that is anything new."""
        async with self._turn:
            return await self._take(texts)

    async def _take(self, texts: Texts) -> bool:
        trusted = await self._known()
        texts, odd = await self._completed(texts, trusted)
        if texts == self._texts and odd == (self.unread, self.crowd):
            return False
        self.unread, self.crowd = odd
        if any(texts.values()) or any(trusted.values()):
            # In a thread: a table takes 5 ms, a hostile one half a second, and there are many projects.
            taken = await to_thread.run_sync(self.judged, texts, trusted)
        else:
            taken = self.judged(texts, trusted)
        # Nearly always they say what is trusted: one text is kept then, not two.
        self._texts = {name: _same(text, trusted.get(name)) for name, text in texts.items()}
        self.settings, self.rules, self.problems, self.held = taken
        for problem in self.problems:
            log.warning("project file refused", project=str(self._root), problem=str(problem))
        return True

    async def _completed(self, texts: Texts, trusted: Trusted) -> tuple[Texts, _Odd]:
        """Return the texts with all trusted pipelines; which of these are unread; and the crowd.

        Nearly always nothing has to be read for that.
        """
        missing = any(text and is_pipeline(name) and not texts.get(name) for name, text in trusted.items())
        if missing or sum(map(is_pipeline, texts)) >= MOST_PIPELINES:
            return await to_thread.run_sync(_looked_again, self._root, texts, trusted)
        return _without_unreadable(texts, trusted), (frozenset(), None)

    async def trust(self, written: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """Accept the current contents of all files; return the dotted keys that were pending.

        `written`: accept these texts alone, and only in place of files that held nothing a person trusted;
        what else is in the files still waits.
        Raises InvalidFile when the files to trust cannot be used: then there is nothing to trust.
        """
        async with self._turn:
            texts = await to_thread.run_sync(read_texts, self._root)
            if written is None:
                await to_thread.run_sync(lambda: self._book(self._settings_of(texts), texts))
            await self._take(texts)  # of a project that was at rest it is not known what is held
            known = await self._known()
            texts, _ = await self._completed(texts, known)
            fresh = {name: text for name, text in (written or {}).items() if not known.get(name)}
            self._trusted = None
            for name, text in (texts if written is None else fresh).items():
                await self._journal.trust(str(self._root), name, text or "", self._clock.now())
            before, self._texts = self.held, {}
            await self._take(texts)
            return tuple(key for key in before if key not in self.held)

    async def place_stories(self, place: StoryWorkspace) -> None:
        """Write where stories work into the project's settings, as `choose_gates` writes gates."""
        await self._write(f"workspace: {place.kind}", lambda text: with_workspace(text, place))

    async def choose_gates(self, gates: Gates) -> None:
        """Write when a person decides into the project's settings, for that person, and trust it.

        Raises Refused, StoreError, and InvalidFile also where the project's step table contradicts it.
        """
        await self._write(f"gates: {gates}", lambda text: with_gates(text, gates))

    async def _write(self, line: str, written: Callable[[str], str | None]) -> None:
        """Change a key of the project's settings, and trust that.

        Raises Refused while an edit of the files waits for a person, or where handoffd cannot write into the
        settings without a change of what else is there; InvalidFile, StoreError.
        """
        async with self._turn:
            texts = await to_thread.run_sync(read_texts, self._root)
            await self._take(texts)
            trust, root = command_for(str(self._root), "trust"), str(self._root)
            if self.problems:
                raise InvalidFile(self.problems)
            if any(not is_pipeline(name) for name in self.held):
                raise Refused(f"an edit of the files in {root}/.ai waits for you", code="HELD", hint=trust)
            changed = written(texts[SETTINGS] or "")
            if changed is None:
                hint = f"${{EDITOR:-vi}} {quote(f'{root}/{SETTINGS}')} && {trust}"
                why = f"handoffd cannot write `{line}` into {root}/{SETTINGS}: write it there"
                raise Refused(why, code="NOT_WRITTEN", hint=hint)
            await to_thread.run_sync(self._book, settings_in(changed), texts)
            await to_thread.run_sync(write_project_file, self._root, SETTINGS, changed)
            self._trusted = None
            await self._journal.trust(root, SETTINGS, changed, self._clock.now())
            await self._take({**texts, SETTINGS: changed})

    async def bring_back(self) -> None:
        """Write what a person has trusted where nothing of it is left: the whole `.ai` was deleted.

        Raises StoreError when it cannot be written.
        """
        trusted = {name: text for name, text in (await self._known()).items() if text}
        if trusted:
            await to_thread.run_sync(_write_where_none_is, self._root, trusted)

    async def _known(self) -> Trusted:
        if self._trusted is None:
            root = str(self._root)
            self._trusted = (await self._journal.trusted(root)).get(root, {})
        return self._trusted

    def judged(self, texts: Texts, trusted: Trusted) -> Taken:
        """Return the rules that apply with them, the files' problems, and the pending edits."""
        settings, rules = self.settings, self.rules
        problems: list[Problem] = []
        held: list[str] = []
        try:
            settings, keys = self._hold_settings(self._settings_of(texts), texts, trusted)
            held += keys
        except InvalidFile as invalid:
            problems += invalid.problems
        try:
            rules, keys = self._hold_rules(settings, texts, trusted)
            held += keys
        except InvalidFile as invalid:
            problems += invalid.problems
        held += [
            name for name, text in texts.items() if is_pipeline(name) and _waits(text, trusted.get(name))
        ]
        return settings, rules, tuple(problems), tuple(held)

    def _settings_of(self, texts: Texts) -> ProjectSettings:
        return settings_in(texts[SETTINGS])

    def _book(self, settings: ProjectSettings, texts: Texts) -> RuleBook:
        """Return the step table of the shipped layers and the project's own. Raises InvalidFile."""
        own, layers, instructed = texts[RULES], shipped_layers(settings.preset), frozenset[str]()
        if own is not None and own.strip():
            layers, instructed = (*layers, Layer(RULES, own)), templates_for(str(self._root)).instructed()
        return book_of(layers, instructed, settings.gates, settings.identical_ends)

    def _hold_settings(
        self, new: ProjectSettings, texts: Texts, trusted: Trusted
    ) -> tuple[ProjectSettings, tuple[str, ...]]:
        if trusted.get(SETTINGS) in {None, texts[SETTINGS] or ""}:
            return new, ()
        old = settings_in(trusted[SETTINGS])
        keys = held(new, old)
        tops = {key.split(".")[0] for key in keys}
        return new.model_copy(update={name: getattr(old, name) for name in tops}), keys

    def _hold_rules(
        self, settings: ProjectSettings, texts: Texts, trusted: Trusted
    ) -> tuple[RuleBook, tuple[str, ...]]:
        new = self._book(settings, texts)
        # A trusted table without edits is not merged with itself: then all projects without
        # one of their own share the shipped one, and a thousand of them cost no more than one.
        if trusted.get(RULES) in {None, texts[RULES] or ""}:
            return new, ()
        return merge_trusted(new, self._book(settings, trusted))


def _looked_again(root: Path, texts: Texts, trusted: Trusted) -> tuple[Texts, _Odd]:
    crowd, texts = too_many(root, texts), with_trusted(root, texts, trusted)
    unread = frozenset(name for name, text in texts.items() if text is None and is_pipeline(name))
    there = frozenset(name for name in unread if trusted.get(name) and is_there(root, name))
    return _without_unreadable(texts, trusted), (there, crowd)


def _without_unreadable(texts: Texts, trusted: Trusted) -> Texts:
    """Return the texts without pipelines that cannot be read, unless a person trusted them."""
    return {
        name: text
        for name, text in texts.items()
        if text is not None or not is_pipeline(name) or trusted.get(name)
    }


def _waits(text: str | None, trusted: str | None) -> bool:
    """Return whether a pipeline is new or was edited; one that was deleted is among `gone`.

    A new one without a text is none.
    """
    return text is not None and text != trusted and bool(trusted or text.strip())


def _same(text: str | None, trusted: str | None) -> str | None:
    return trusted if trusted == text else text


def _write_where_none_is(root: Path, trusted: Trusted) -> None:
    if any(text is not None for text in read_texts(root).values()):
        return
    for name, text in trusted.items():
        write_project_file(root, name, text)
        log.warning("deleted file written again as it was trusted", project=str(root), file=name)
