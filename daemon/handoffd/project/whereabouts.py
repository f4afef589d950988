"""Where the work of a story is that is over: landed, on its branch, in the project's folder, or nowhere.

Every screen asks here, so that all say the same. Looking changes nothing.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import partial
from shlex import quote
from typing import Protocol

import anyio
from anyio import to_thread
from msgspec.structs import replace

from handoffd.engine.decision import to_land
from handoffd.engine.views import MOST_LISTED, Whereabouts
from handoffd.engine.wording import command_for, first_few, left_in_folder
from handoffd.errors import StoreError
from handoffd.git.branches import LEFT, UNCOMMITTED, UNPUBLISHED, StoryBranch, branch_of, refs_of_left
from handoffd.git.clones import Clone, Clones
from handoffd.git.landing import LIMIT_S, Landing, Outlook
from handoffd.git.repository import NO_REPOSITORY, repository_at
from handoffd.journal.history import StoryEnd, taken_in_words
from handoffd.journal.records import Part
from handoffd.project.files import ProjectFiles
from handoffd.protocol.state import State
from handoffd.settings.model import StoriesSettings
from handoffd.track.reach import Reach
from handoffd.track.services import Home, Services
from handoffd.track.track import TrackSupervisor

_OTHERS = "what its agent left on other branches, or in a stash"


def is_closed(stories: StoriesSettings, onto: str | None) -> bool:
    """Return whether no landing may move a branch: then `--onto` has to name another one."""
    merges = stories.land != "command" and onto is not None
    return merges and any(fnmatchcase(str(onto), pattern) for pattern in stories.protected)


def put_right(unkept: str | None, folder: str) -> str:
    """Return what of a clone is in no commit, and what a person can do about it, in words."""
    do = "commit that" if (unkept or "").endswith(UNCOMMITTED) else "commit that yourself or move it away"
    return f"{unkept}; {do} in {folder}, or land without it"


class Yard(Home, Protocol):
    """The project whose stories are over, and are landed."""

    root: str
    tracks: dict[str, TrackSupervisor]

    @property
    def files(self) -> ProjectFiles:
        """What its own files say."""

    @property
    def lands_by_itself(self) -> bool:
        """Whether the daemon lands stories that are done, as the settings say."""

    @property
    def main(self) -> TrackSupervisor:
        """The track that each project has."""

    def track_of(self, story: str | None) -> TrackSupervisor:
        """Return the track that works on a story; `main` where none does."""


class StoryPlaces:
    """Where the stories of one project are that are over."""

    def __init__(self, project: Yard, git: Landing, services: Services) -> None:
        self._project = project
        self._services = services
        self._git = git
        self._clones = Clones(project.root, services.settings.state_dir, services.environment)
        self._reach = Reach(project.root, services.asking)
        """Of its own: a look that goes on must not look like a folder that does not answer to a landing."""
        self._looking = anyio.Lock()

    def branch(self, clone: Clone) -> StoryBranch:
        """Return the branch of a story that has a clone."""
        state_dir, environment = self._services.settings.state_dir, self._services.environment
        return StoryBranch(self._project.root, clone.workspace, state_dir, environment)

    def onto(self, story: str) -> str | None:
        """Return the branch that a story lands on; None: what is checked out. Blocks."""
        track, clone = self._project.track_of(story).track, self._clones.of(story)
        state, where = track.state, track.ledger.workspace
        if clone is not None:
            return clone.workspace.onto
        if where is not None and state is not None and state.story == story:
            return where.onto
        trail = self._clones.trail(story)
        return None if trail is None else trail.onto

    def base(self, story: str, onto: str | None) -> str | None:
        """Return the commit that a story began at, if it lands on the branch that it began on. Blocks."""
        track, clone = self._project.track_of(story).track, self._clones.of(story)
        own = track.state is not None and track.state.story == story
        where = clone.workspace if clone is not None else track.ledger.workspace if own else None
        began = where if where is not None else self._clones.trail(story)
        return began.base if began is not None and began.onto == onto else None

    def state(self, story: str) -> State | None:
        """Return the state of a story that a track has, or has set aside."""
        tracks = [one.track for one in self._project.tracks.values()]
        aside = [one.state for track in tracks for one in track.ledger.parked]
        states = (*(track.state for track in tracks), *aside)
        return next((state for state in states if state is not None and state.story == story), None)

    def unlanded(self) -> list[str | None]:
        """Return the stories that are done, and not noted as landed."""
        tracks = [one.track for one in self._project.tracks.values()]
        done = [one.state.story for one in tracks if one.state and to_land(one) is not None]
        return [*done, *self._project.main.track.ledger.to_land]

    async def end(self, story: str) -> StoryEnd | None:
        """Return how the last life of a story has ended, None where it has not."""
        part = Part(project=self._project.root, story=story)
        return next((one.end for one in await self._services.journal.past.stories(part, 1)), None)

    async def uncommitted(self) -> tuple[str, ...]:
        """Return the files that a story which begins in a clone is without: no commit has them as they are.

        Empty where stories work in the project's folder. Raises StoreError where git cannot say.
        """
        settings = self._project.files.settings
        if settings.workspace.kind != "clone" and settings.stories.parallel == 1:
            return ()
        return await self._reach.asked(self._git.uncommitted, LIMIT_S + 10)

    async def of(self, story: str, refused: str | None) -> Whereabouts | None:
        """Return where the work of a story is; None where it is nowhere.

        `refused`: why the daemon could not land it, if it could not.

        Raises StoreError where git cannot say.
        """
        git, found, left = True, None, None
        async with self._looking:  # several screens may ask at once
            onto = await to_thread.run_sync(self.onto, story)
            known = self._services.outlooks.pop((self._project.root, story), None)
            try:
                found = await self._reach.asked(partial(self._foreseen, story, onto, known), LIMIT_S + 10)
                left = await to_thread.run_sync(self.left_beside, story)
            except StoreError as error:
                if error.code != NO_REPOSITORY:
                    raise
                git = False
        if found is None:
            return await self.in_folder(story, git=git)
        if found.would != "landed":  # a person is waited for
            self._services.outlooks[self._project.root, story] = found
        end = await self.end(story)
        aborted, taken = end is not None and end.kind == "aborted", taken_in_words(end)
        says = taken or found.in_words(aborted=aborted)
        closed = found.would != "landed" and is_closed(self._project.files.settings.stories, found.onto)
        if closed and not taken:
            says += "; no landing moves that branch (stories.protected)"
        if left is not None:
            says += f"; {left}"
        if refused and not taken and found.would not in {"conflict", "landed"}:
            says += f"; not landed: {refused}"
        again = command_for(self._project.root, "start", story, "--go-on")
        elsewhere = command_for(self._project.root, "land", "--story", story, "--onto", "BRANCH")
        to_type = again if aborted else elsewhere if closed else self._to_type(story, found)
        return Whereabouts(
            branch=found.branch, onto=found.onto, commits=found.commits, files=found.files,
            would="landed" if taken else found.would, conflicts=found.conflicts[:MOST_LISTED], says=says,
            command=None if taken else to_type, aborted=aborted,
        )  # fmt: skip

    def _foreseen(self, story: str, onto: str | None, known: Outlook | None) -> Outlook | None:
        """Return what a landing would do, and whether something of the clone would not be in it; blocks."""
        base, clone = self.base(story, onto), self._clones.of(story)
        found = self._git.foreseen(story, onto, known, base)
        if clone is None:
            return found
        try:
            unkept = self.branch(clone).unkept()
        except StoreError as error:  # an agent may have removed what makes it a clone
            unkept = f"its clone cannot be read: {error.message}"
        if found is None:  # nothing was accepted yet
            if unkept is None:
                return None
            found = Outlook(branch=clone.workspace.branch or "", onto=onto, commits=0, would="unknown")
        place = clone.workspace.folder if unkept not in {None, UNPUBLISHED, LEFT} else None
        return replace(found, unkept=unkept if place is None else put_right(unkept, place), place=place)

    def left_beside(self, story: str) -> str | None:
        """Return which refs keep what a story's agent has left beside its branch, in words; blocks."""
        project = repository_at(self._project.root)
        refs = refs_of_left(project, branch_of(project, story))
        return f"{first_few(refs)} {'keeps' if len(refs) == 1 else 'keep'} {_OTHERS}" if refs else None

    async def in_folder(self, story: str, *, git: bool) -> Whereabouts | None:
        """Return that a story without a branch has worked in the project's folder; None if it has not."""
        end, root, settings = await self.end(story), self._project.root, self._project.files.settings
        track, clones = self._project.track_of(story).track, settings.workspace.kind == "clone"
        own = track.state is not None and track.state.story == story  # of others, only the settings are known
        committed = track.works_in(root).branch is not None if own else settings.commits != "none"
        elsewhere = track.works_in(root).kind == "clone" if own else clones
        if end is None or end.kind not in {"done", "aborted"} or committed or elsewhere:
            return None
        return Whereabouts(
            branch=None, onto=None, commits=0, would="folder", files=0, conflicts=(),
            says=left_in_folder(git=git, more=not clones),
            command=f"git -C {quote(root)} status" if git else f"ls -lt {quote(root)}",
            aborted=end.kind == "aborted",
        )  # fmt: skip

    def _to_type(self, story: str, found: Outlook) -> str | None:
        root = self._project.root
        if found.place is not None:
            return command_for(root, "land", "--story", story, "--leave-out")
        if found.unkept is not None:
            return command_for(root, "land", "--story", story)  # which publishes it, or says why not
        match found.would:
            case "landed" if story not in self.unlanded():  # else a person has merged it: `land` notes it
                return command_for(root, "discard", story)
            case "conflict":
                return found.by_hand
            case "unknown":
                return command_for(root, "land", "--story", story, "--onto", "BRANCH")
        return command_for(root, "land", "--story", story)
