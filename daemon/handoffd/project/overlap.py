"""Stories of one project that change the same files: one of them waits for the other, or a person is warned.

Looked at before a story's first attempt at code: by then its papers name the files that it means. It waits
for a story that is at code already, and for an earlier one that is not; so two never wait for each other.
What it has waited for is what its agent takes in first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from handoffd.capacity.machine import Shortage
from handoffd.engine.beside import is_at_code
from handoffd.engine.decision import to_land, waits_at_gate
from handoffd.engine.events import Noted
from handoffd.engine.track import Track
from handoffd.engine.wording import command_for, first_few
from handoffd.errors import HandoffdError
from handoffd.git.clones import Clones
from handoffd.git.landing import LIMIT_S, Landing
from handoffd.project.files import ProjectFiles
from handoffd.track.reach import Reach
from handoffd.track.services import Services
from handoffd.track.track import TrackSupervisor

_Found = tuple[str, tuple[str, ...]]
"""A story, and the files that it has in common with another."""


class Overlaps:
    """What the stories of one project have in common. `tracks` are the project's, also later ones."""

    def __init__(
        self, root: str, files: ProjectFiles, tracks: Mapping[str, TrackSupervisor], services: Services
    ) -> None:
        self._root = root
        self._files = files
        self._tracks = tracks
        self._git = Landing(root, services.settings.state_dir, services.environment)
        self._clones = Clones(root, services.settings.state_dir, services.environment)
        self._reach = Reach(root, services.asking)
        self._known: dict[str, tuple[object, _Found | None]] = {}
        """What was found last for a track, and how all tracks were then."""
        self.warnings: dict[str, str] = {}
        """Of the tracks that do not wait, what is in common, in words."""
        self._one_at_a_time = asyncio.Lock()
        self._let_go: set[str] = set()
        """The tracks that need not wait: they are about to be at code, if they are not yet."""
        self._waits: dict[str, tuple[str | None, str]] = {}
        """The tracks that wait: with which story, and for which one."""
        self._notes: dict[str, str] = {}
        """What was noted for an agent, until its track has it."""

    async def shortage(self, name: str) -> Shortage | None:
        """Return that the story of a track, which is about to begin with code, waits for another one."""
        async with self._one_at_a_time:
            self.warnings.pop(name, None)
            self._let_go.discard(name)
            several = self._files.settings.stories.parallel > 1 and bool(self._done())
            why = await self._to_wait_for(name) if several or len(self._tracks) > 1 else None
            if why is None:
                self._let_go.add(name)
                return None
            return Shortage(why=why, action=self._ending(self._waits.get(name, ("", None))[1]))

    def _ending(self, story: str | None) -> str:
        """Return the command that ends the wait for a story, or shows what keeps it."""
        for track in (one.track for one in self._tracks.values()):
            if story is None or track.state is None or track.state.story != story:
                continue
            if to_land(track) is not None:
                return command_for(self._root, "land", "--story", story)
            if waits_at_gate(track, self._files.rules):
                return command_for(self._root, "gate", "--story", story)
            return command_for(self._root, "log", "--follow", "--story", story)
        if story is not None and story in self._done():
            return command_for(self._root, "land", "--story", story)
        return command_for(self._root, "status")

    async def _to_wait_for(self, name: str) -> str | None:
        found = await self._looked(name)
        if found is None:
            return await self._to_take_in(name)
        story, paths = found
        why = f"{story} means {first_few(paths)}, too (stories.overlap)"
        if self._files.settings.stories.overlap == "warn":
            self.warnings[name] = f"{name}: {why}"
            return None
        state = self._tracks[name].track.state
        self._waits[name] = None if state is None else state.story, story
        return why

    async def _looked(self, name: str) -> _Found | None:
        """Return what was found before, unless any track has moved since: waiting costs no git."""
        now = (frozenset(self._let_go), *(one.track for one in self._tracks.values()))
        before = self._known.get(name)
        if before is None or before[0] != now:
            found: _Found | None = None
            with suppress(HandoffdError):  # the landing finds a conflict, too
                found = await self._found(name)
            before = self._known[name] = (now, found)
        return before[1]

    async def _found(self, name: str) -> _Found | None:
        """Return the first story to wait for, and the files that both mean."""
        mine = await self._code_of(self._tracks[name].track)
        for other in self._ahead(name):
            common = mine & await self._code_of(other) if mine else frozenset()
            if common and other.state is not None and other.state.story is not None:
                return other.state.story, tuple(sorted(common))
        for story in self._done() if mine else ():
            if common := mine & await self._reach.asked(partial(self._code_of_done, story), LIMIT_S + 10):
                return story, tuple(sorted(common))
        return None

    def _done(self) -> tuple[str, ...]:
        """Return the stories that are done, not landed, and whose tracks work on others by now."""
        tracks = [one.track for one in self._tracks.values()]
        at_hand = {track.state.story for track in tracks if track.state is not None}
        return tuple(story for track in tracks for story in track.ledger.to_land if story not in at_hand)

    def _code_of_done(self, story: str) -> frozenset[str]:
        trail = self._clones.trail(story)
        if trail is None or trail.base is None:
            return frozenset()
        return self._git.code_of(story, trail.base, trail.onto)

    def _ahead(self, name: str) -> tuple[Track, ...]:
        """Return the tracks whose stories are at code, or come before, and are not over."""
        ahead, before = [], True
        for key, one in self._tracks.items():
            before = before and key != name
            over = one.track.ledger.landed or one.track.ledger.closed
            at_code = key in self._let_go or is_at_code(one.track, self._files.rules)
            if key != name and not over and (before or at_code):
                ahead.append(one.track)
        return tuple(ahead)

    async def _code_of(self, track: Track) -> frozenset[str]:
        where, state = track.ledger.workspace, track.state
        if state is None or state.story is None or where is None or where.base is None:
            return frozenset()
        look = partial(self._git.code_of, state.story, where.base, where.onto)
        return await self._reach.asked(look, LIMIT_S + 10)

    async def _to_take_in(self, name: str) -> str | None:
        """Note what the agent of a story that has waited takes in first; no turn goes before that note."""
        track, (waiting, story) = self._tracks[name], self._waits.pop(name, (None, ""))
        state = track.track.state
        if state is not None and state.story is not None and state.story == waiting:
            with suppress(HandoffdError):
                look = partial(self._git.news, state.story, track.workspace.onto)
                news = await self._reach.asked(look, LIMIT_S + 10)
                if news.subjects:
                    self._notes[name] = f"{story} has changed files that this story means.\n{news.to_take_in}"
                    track.post(Noted(text=self._notes[name], by="stories.overlap"))
        note = self._notes.get(name)
        if note is None or state is None or note in (state.human_note or ""):
            self._notes.pop(name, None)
            return None
        return "its agent is about to learn what has landed since"
