"""Which project a message from a chat is about, and whether it may start work there.

A message is about the project that it names, else about the current project (`project`), else about the
project that the sender is in (`here`), else about the only supervised one. A name is that of a supervised
project or of a folder beside one: people name a new project before it is supervised.

A message supervises or initialises a folder only if the message or `project` names it. `here` is only read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from shlex import join, quote
from typing import Final

from msgspec import Struct

from handoffd.api.service import Service
from handoffd.chat.addressing import Directed, directed, says_something
from handoffd.chat.intents import Intent, Kind
from handoffd.chat.text import cleaned
from handoffd.errors import NotFound, Refused

_BEGINNING: Final[frozenset[Kind]] = frozenset({"start_story", "start_custom", "init"})
"""The intents that supervise a new folder."""
_NAMES_TOLD: Final = 12
_WORDS: Final = re.compile(r"[A-Za-z0-9_][\w.-]*", re.ASCII)
_LOOKED_AT: Final = 400
_MOST_WORDS: Final = 120
_MOST_BASES: Final = 16


class Spoken(Struct, frozen=True, kw_only=True):
    """Where a message was sent from: the current project of the chat, and the folder of the sender.

    `project` is a name or an absolute path given beside the message, `here` an absolute path.
    `supervised_only`: no work starts in an unsupervised folder, even if the message names it.
    """

    project: str | None = None
    here: str | None = None
    supervised_only: bool = False


class Found(Struct, frozen=True, kw_only=True):
    """The intent of a message, and its project: the root, and whether it is supervised."""

    intent: Intent
    root: str | None = None
    supervised: bool = False
    compared: tuple[str, ...] | None = None
    """The roots of the projects that the message compares."""


class Places:
    """Finds the projects of messages: supervised ones, and folders beside them."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def found(self, text: str, spoken: Spoken) -> Found:
        """Return the intent of a message, and its project.

        Raises NotFound for an unknown project, Refused (PROJECT_MISSING, FOLDER_NOT_NAMED) without a name.
        """
        names = self._service.names()
        meant = directed(text, names.values())
        beside: Mapping[str, str] = {}
        if not self._settles(meant):
            beside = await self._beside(text, meant, spoken)
            meant = directed(text, [*names.values(), *beside]) if beside else meant
        if meant.compared is not None:
            return self._compared(meant, beside)
        if spoken.supervised_only and meant.project in beside:
            raise _for_people(beside[meant.project or ""], text)
        return await self._placed(meant, beside, spoken, text)

    async def bases(self, spoken: Spoken) -> tuple[str, ...]:
        """Return the folders in which to look for named projects: the parents of the known ones."""
        near = [place for place in (spoken.project, spoken.here) if place and place.startswith("/")]
        above = [os.path.dirname(place.rstrip("/")) for place in (*near, *self._service.names())]
        if spoken.here is not None and not await self._service.looks_like_project(spoken.here):
            above.insert(0, spoken.here)
        return tuple(dict.fromkeys(base for base in above if base not in {"", "/"}))[:_MOST_BASES]

    async def _beside(self, text: str, meant: Directed, spoken: Spoken) -> Mapping[str, str]:
        message = cleaned(text)
        ends = message if len(message) <= 2 * _LOOKED_AT else message[:_LOOKED_AT] + message[-_LOOKED_AT:]
        words = dict.fromkeys([*([meant.project] if meant.project else []), *_WORDS.findall(ends)])
        known = set(self._service.names().values())
        unknown = tuple(word.rstrip(".") for word in words if word not in known)[:_MOST_WORDS]
        # `tests` or `tonight` may be a folder, too; alone it is what it says, unless it is called a project.
        unknown = tuple(word for word in unknown if word == meant.project or not says_something(word))
        return await self._service.folders_called(unknown, await self.bases(spoken), meant.intent.project)

    def _settles(self, meant: Directed) -> bool:
        """Return whether the names of supervised projects decide what a message is about."""
        if meant.compared is not None:
            return len(meant.compared) > 1
        return meant.firm and self._knows(meant.project)

    def _compared(self, meant: Directed, beside: Mapping[str, str]) -> Found:
        called = meant.compared or ()
        if len(called) < 2:
            raise project_missing(list(self._service.names().values()))
        roots = dict.fromkeys(beside.get(name) or self._service.root_of(name) for name in called)
        return Found(intent=meant.intent, compared=tuple(root for root in roots if root is not None))

    async def _placed(self, meant: Directed, beside: Mapping[str, str], spoken: Spoken, text: str) -> Found:
        # An ordinary word may also be the name of a folder.
        unsure = not meant.firm and meant.project in beside
        maybe = None if unsure else meant.project
        name = meant.project if meant.firm else spoken.project or maybe
        if name is None:
            return await self._unnamed(meant.intent, spoken, text)
        place = beside.get(name, name) if meant.firm else name
        root, supervised = self._root(place, meant, await self.bases(spoken))
        if spoken.supervised_only and not supervised and meant.intent.kind in _BEGINNING:
            raise _for_people(root, text)
        return Found(intent=meant.intent, root=root, supervised=supervised)

    def _root(self, place: str, meant: Directed, bases: tuple[str, ...]) -> tuple[str, bool]:
        try:
            root = self._service.root_of(place)
        except NotFound:
            if place.startswith("/"):
                return place, False
            if not meant.firm:
                raise
            raise self._unknown(place, meant, bases) from None
        assert root is not None
        return root, True

    async def _unnamed(self, intent: Intent, spoken: Spoken, text: str) -> Found:
        """Return the project of a message when neither the message nor the chat names one."""
        if spoken.here is not None:
            if self._knows(spoken.here):
                return Found(intent=intent, root=self._service.root_of(spoken.here), supervised=True)
            if intent.kind == "detect" or await self._service.looks_like_project(spoken.here):
                if intent.kind in _BEGINNING:
                    raise _not_named(spoken.here, text)
                return Found(intent=intent, root=spoken.here)
        roots = list(self._service.names())
        if intent.kind == "init":
            raise _not_named(spoken.here, text)
        only = roots[0] if len(roots) == 1 else None
        return Found(intent=intent, root=only, supervised=only is not None)

    def _knows(self, name: str | None) -> bool:
        try:
            return name is not None and self._service.root_of(name) is not None
        except NotFound:
            return False

    def _unknown(self, name: str, meant: Directed, bases: tuple[str, ...]) -> NotFound:
        names = _told(list(self._service.names().values()))
        hint = "handoffd projects"
        if meant.intent.kind in {"init", "start_custom"} and meant.intent.project is not None and bases:
            place = quote(os.path.join(bases[0], name))
            hint = f"mkdir {place} && handoffd init {place}"
        message = f"no project is called {name[:80]!r}; there are: {names}"
        error = NotFound(message, code="PROJECT_UNKNOWN", hint=hint)
        error.details = {"given": name[:80], "names": names}
        return error


def project_missing(names: list[str]) -> Refused:
    """Return the error for a message without a project; it lists the projects."""
    names = sorted(names, key=lambda name: (name.startswith("/"), name))  # a path is the name of several
    told = _told(names)
    error = Refused(f"which project? There are: {told}", code="PROJECT_MISSING", hint="handoffd projects")
    error.details = {"names": told, "name": names[0]} if names else {"names": told}
    return error


def _told(names: list[str]) -> str:
    return ", ".join(names[:_NAMES_TOLD]) + (", …" if len(names) > _NAMES_TOLD else "") or "–"


def _not_named(here: str | None, text: str) -> Refused:
    where = f"{here} is not supervised, and" if here is not None else "nothing is set up, because"
    message = f"{where} a message starts no work in a folder that it does not name"
    return Refused(message, code="FOLDER_NOT_NAMED", hint=join(("handoffd", "auto", here or "FOLDER", text)))


def _for_people(root: str, text: str) -> Refused:
    message = f"{root} is not supervised: a person must start work there, which trusts its settings"
    return Refused(message, code="PEOPLE_ONLY", hint=join(("handoffd", "auto", root, text)))
