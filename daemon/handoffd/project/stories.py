"""The stories of one project that have tracks of their own: opening, closing, finding the one meant.

What there must be is in the ledger of `main`, so that each look can make it so, whatever a crash has cut off.
Nothing here waits for a track that waits for another one: it is the project's loop that opens and closes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Protocol

import msgspec
import structlog
from msgspec.structs import replace

from handoffd.engine.beside import Room, Standing, all_wait, next_beside, standing_of, too_many_wait
from handoffd.engine.decision import Refusal, Result
from handoffd.engine.events import (
    Aborted,
    Approved,
    BudgetRaised,
    Continued,
    Discarded,
    EditConfirmed,
    ExecutorChosen,
    Landed,
    LevelChosen,
    Noted,
    Paused,
    Rejected,
    Reopened,
    Resumed,
    Retried,
    RolledBack,
    Skipped,
    Started,
    StoryClosed,
    StoryOpened,
    TrackClosed,
    TrackOpened,
    Undone,
    Verb,
)
from handoffd.engine.track import Queued, Track, Workspace, granted_to_project, is_beside, own_story, text_of
from handoffd.engine.wording import command_for, first_few
from handoffd.errors import Json, Refused, StoreError
from handoffd.failpoints import reached
from handoffd.files.state_file import MAIN
from handoffd.git.branches import HEADS, StoryBranch, branch_of
from handoffd.git.clones import Clones
from handoffd.git.landing import LIMIT_S
from handoffd.git.repository import repository_at
from handoffd.project.gate import hold_unanswered
from handoffd.project.landing import Landings, stories_at_work
from handoffd.project.whereabouts import Yard
from handoffd.protocol.rules import DONE
from handoffd.protocol.story import same_story
from handoffd.track.reach import Reach
from handoffd.track.services import Files, Services
from handoffd.track.track import TrackSupervisor

log = structlog.get_logger(__name__)

_OF_ONE_STORY = (
    Approved | Undone | Rejected | Retried | Skipped | Aborted | Noted | ExecutorChosen | RolledBack
    | Reopened | EditConfirmed | Landed | Discarded
)  # fmt: skip
"""What people ask of one story; anything else is asked of the project, and of its backlog."""
_OF_EVERY_TRACK = Paused | Resumed | LevelChosen
_RESULT: Any = Result


class Tracks(Protocol):
    """The project, as far as its stories go."""

    root: str
    files: Files
    tracks: dict[str, TrackSupervisor]

    @property
    def workable(self) -> bool:
        """Whether anything may be dispatched in it."""

    def lands_first(self, track: Track) -> bool:
        """Return whether the daemon lands the story of a track, which is done, before another one begins."""

    async def open_track(self, name: str, first: TrackOpened) -> None:
        """Begin a track with its first event."""

    async def close_track(self, name: str, last: TrackClosed) -> None:
        """End a track with its last event."""


class Stories:
    """Gives stories of the backlog tracks of their own, and ends a track when its story is over."""

    def __init__(self, project: Tracks, services: Services) -> None:
        self._project = project
        self._services = services
        self._beginning: set[str] = set()
        """The tracks of which an attempt is about to begin."""

    @property
    def _desk(self) -> TrackSupervisor:
        return self._project.tracks[MAIN]

    @property
    def _others(self) -> tuple[TrackSupervisor, ...]:
        return tuple(track for name, track in self._project.tracks.items() if name != MAIN)

    @property
    def in_play(self) -> bool:
        """Whether more than one story of the project can be in flight."""
        return bool(self._others) or self.beside

    @property
    def beside(self) -> bool:
        """Whether stories of the project may have tracks of their own: each needs a clone."""
        desk = self._desk.track
        in_clones = self._project.files.settings.workspace.kind == "clone"
        return in_clones and desk.state is not None and desk.ledger.automatic

    async def tend(self) -> None:
        """Close the tracks of stories that are over, and open those for which there is room now.

        Raises HandoffdError where the journal cannot be written: the next look tries again.
        """
        if not self.in_play and not self._desk.track.ledger.beside:
            return
        for track in self._others:
            if (why := self._over(track)) is not None:
                await self._close(track, why)
        for opened in self._desk.track.ledger.beside:
            if opened.story not in self._project.tracks:  # a crash came between its two events
                await self._begin(opened)
        while (entry := self._next()) is not None:
            parallel = self._project.files.settings.stories.parallel
            decision = await self._desk.give(StoryOpened(story=entry.story, parallel=parallel))
            if isinstance(decision.result, Refusal):
                return
            await self._begin(entry)

    # --- opening ---------------------------------------------------------------------------------
    def _next(self) -> Queued | None:
        desk = self._desk
        if not self._project.workable or not self.beside:
            return None
        if any(all_wait(track.track) for track in (desk, *self._others)):
            return None
        standings = [self._standing(track) for track in (desk, *self._others)]
        return next_beside(desk.track, standings, self._room, auto_continue=desk.continues)

    @property
    def _room(self) -> Room:
        stories = self._project.files.settings.stories
        return Room(parallel=stories.parallel, waiting=stories.waiting)

    def full(self) -> str | None:
        """Return that too many stories wait for another one to begin, in words; None while they do not."""
        tracks = (self._desk, *self._others)
        standings = {track: self._standing(track) for track in tracks}
        free = standings[self._desk] in {"free", "over"}  # its track takes the next one
        if not self.beside or free or not too_many_wait([*standings.values()], self._room):
            return None
        waiting = [track.track.state for track, standing in standings.items() if standing == "waits"]
        stories = first_few(tuple(state.story or "" for state in waiting if state is not None))
        most = self._room.waiting
        return f"of {stories}, no more than {most} may wait while another one begins (stories.waiting)"

    def _standing(self, track: TrackSupervisor) -> Standing:
        return standing_of(track.track, held_up=track.held_up)

    async def _begin(self, entry: Queued) -> None:
        desk = self._desk.track
        assert desk.state is not None
        ledger, text = desk.ledger, text_of(desk.ledger, entry.story)
        first = TrackOpened(
            project=desk.state.project, entry=entry, described=text, granted=granted_to_project(ledger)
        )
        reached("before_opening")
        await self._project.open_track(entry.story, first)
        reached("after_opening")

    @contextmanager
    def room_for(self, name: str) -> Iterator[str | None]:
        """Have room for an attempt of a track that is about to begin; in words, why there is none."""
        if (crowd := self._crowd(name)) is not None:
            yield crowd
            return
        self._beginning.add(name)
        try:
            yield None
        finally:
            self._beginning.discard(name)

    def _crowd(self, name: str) -> str | None:
        """Return which other stories leave a track no room, in words; None while there is some."""
        others = [track for key, track in self._project.tracks.items() if key != name]
        busy = [one for one in others if one.track.ledger.dispatch or one.key.track in self._beginning]
        if not others or len(busy) < self._project.files.settings.stories.parallel:
            return None
        stories = tuple(one.track.state.story or "" for one in busy if one.track.state is not None)
        are = "is" if len(stories) == 1 else "are"
        return f"{first_few(stories)} {are} worked on, and no more at once (stories.parallel)"

    # --- closing ---------------------------------------------------------------------------------
    def _over(self, track: TrackSupervisor) -> str | None:
        """Return why the track of a story has come to its end, in words; None while it has not."""
        if not is_beside(self._desk.track.ledger, track.key.track):
            return "nothing is known of its story"
        return "its story is landed, or was given up" if standing_of(track.track) == "free" else None

    async def _close(self, track: TrackSupervisor, why: str) -> None:
        state, name = track.track.state, track.key.track
        if is_beside(self._desk.track.ledger, name):
            done = state is not None and state.step == DONE
            spent = track.track.ledger.spent
            await self._desk.give(StoryClosed(story=name, done=done, spent=spent))
        reached("before_closing")
        await self._project.close_track(name, TrackClosed(why=why))
        reached("after_closing")

    # --- finding the one meant -------------------------------------------------------------------
    async def give(self, verb: Verb, request: str | None, story: str | None) -> Result:
        """Let the tracks that a verb is meant for decide it; return the answer to show.

        `story` names the one that is meant. Raises Refused where more than one could be.
        """
        if isinstance(verb, Started | Continued):
            verb = self._leaving_room(verb)
        if isinstance(verb, Paused | Resumed):
            verb = replace(verb, alone=story is not None and self.in_play and self.of(story) is self._desk)
        meant = self._meant(verb, story)
        if isinstance(verb, Approved):
            await hold_unanswered(self._project, self._services, meant[0], verb)
        if request is None or len(meant) == 1:
            return _to_show([(await track.give(verb, request)).result for track in meant])
        return _to_show([await self._given_once(track, verb, request) for track in meant])

    def _leaving_room(self, verb: Started | Continued) -> Verb:
        """Return a start as what it is where the story may have a track of its own."""
        beside = self.beside
        landing = beside and self._project.lands_first(self._desk.track)
        if isinstance(verb, Continued):
            return replace(verb, keeps_unlanded=beside, awaits_landing=landing)
        several = self._project.files.settings.stories.parallel > 1  # one at a time is as it always was
        asked = beside and several and verb.schedule is None
        continues = asked or (beside and self._desk.continues)
        return replace(verb, beside=continues, at_once=asked, keeps_unlanded=beside, awaits_landing=landing)

    async def _given_once(self, track: TrackSupervisor, verb: Verb, request: str) -> Result:
        """Let one of several tracks decide a verb, if it has not done so for the same request before.

        A crash may have come between them, and people may have gone on since.
        """
        journal, key = self._services.journal, f"{request} {verb.kind} {track.key.track}"
        known = await journal.requests.claim(key, "", self._services.clock.now())
        if known is None or known.seq is None:
            return (await track.give(verb, key)).result
        (before,) = await journal.events(known.seq - 1, None, 1)
        result: Result = msgspec.convert(before.result, _RESULT)
        return result

    def meant(self, verb: Verb, story: str | None) -> str | None:
        """Return the story with a track of its own that a verb is for; None: it is for another track.

        Raises Refused where it could be for several.
        """
        found = self._meant(verb, story)
        return own_story(found[0].key) if len(found) == 1 else None

    def _meant(self, verb: Verb, story: str | None) -> tuple[TrackSupervisor, ...]:
        told = _story_of(verb)
        if told is None and story is not None and isinstance(verb, _OF_ONE_STORY | _OF_EVERY_TRACK):
            return (self._working_on(story),)
        if not self._others:
            return (self._desk,)
        if told is not None:
            return (self.of(told),)  # the engine refuses one that is not in flight
        if isinstance(verb, _OF_EVERY_TRACK) or (isinstance(verb, BudgetRaised) and verb.scope == "project"):
            return (self._desk, *self._others)
        if isinstance(verb, _OF_ONE_STORY | BudgetRaised):
            return (self._only(verb),)
        return (self._desk,)

    def of(self, story: str | None) -> TrackSupervisor:
        """Return the track that works on a story; `main` where none does."""
        return self._project.tracks.get(story or MAIN, self._desk)

    def _working_on(self, story: str) -> TrackSupervisor:
        """Return the track that works on a story, or has done so last. Raises Refused where none does."""
        track = self.of(story)
        state = track.track.state
        here = state.story if state is not None else None
        if here is not None and same_story(here, story):
            return track
        hint = command_for(self._project.root, "status")
        raise Refused(f"{story} is not in flight, {here or 'no story'} is", code="WRONG_STORY", hint=hint)

    def _only(self, verb: Verb) -> TrackSupervisor:
        """Return the only track that a verb could be meant for. Raises Refused where there are several."""
        return self._one_of([one for one in (self._desk, *self._others) if _may_be_meant(one.track, verb)])

    def by_hand(self, story: str | None, ready: Callable[[Track], bool]) -> TrackSupervisor:
        """Return the track for what people do themselves: of `story`, else of the only one in flight.

        Stories that are `ready` for it come first. Raises Refused where there are several.
        """
        if story is not None:
            return self._working_on(story)
        flying = [one for one in (self._desk, *self._others) if _is_in_flight(one.track)]
        return self._one_of([one for one in flying if ready(one.track)] or flying)

    def _one_of(self, fits: Sequence[TrackSupervisor]) -> TrackSupervisor:
        if len(fits) > 1:
            stories = [track.track.state.story or "" for track in fits if track.track.state is not None]
            raise Refused(
                f"{first_few(tuple(stories))} are in flight: say which one is meant",
                code="AMBIGUOUS",
                hint=f"{command_for(self._project.root, 'status')}  # then again, with --story {stories[0]}",
            )  # fmt: skip
        return fits[0] if fits else self._desk


def _story_of(verb: Verb) -> str | None:
    return (
        verb.story
        if isinstance(verb, Approved | Undone | Rejected | Landed | Discarded | BudgetRaised)
        else None
    )


def _may_be_meant(track: Track, verb: Verb) -> bool:
    """Return whether a verb for one story could be for the one of a track."""
    state, ledger = track.state, track.ledger
    if state is None or state.story is None:
        return False
    match verb:
        case EditConfirmed():
            return ledger.held_edit is not None
        case Reopened() | Landed() | Discarded():
            return state.step == DONE
        case Approved() | Rejected():
            return ledger.gate is not None
        case Undone():
            return ledger.approval is not None
        case _:
            return _is_in_flight(track)


def _is_in_flight(track: Track) -> bool:
    state = track.state
    return state is not None and bool(state.story) and state.step != DONE and not track.ledger.closed


def _to_show(results: Sequence[Result]) -> Result:
    """Return the first result that is not a refusal, else the first."""
    return next((result for result in results if not isinstance(result, Refusal)), results[0])


# --- stories that are started again -------------------------------------------------------------------
class Restarts:
    """The start of a story that was aborted: it begins anew, and a ref keeps what it did before.

    On its old branch the tests are there already: its first steps would be paid again, and none of its tests
    would fail at first.
    """

    def __init__(self, project: Yard, landings: Landings, services: Services) -> None:
        self._project = project
        self._landings = landings
        self._services = services
        self._clones = Clones(project.root, services.settings.state_dir, services.environment)
        self._reach = Reach(project.root, services.asking)

    async def begun(
        self, stories: Iterable[str], start: Callable[[], Awaitable[Json]]
    ) -> tuple[Json, dict[str, str]]:
        """Give a start, and return its answer with the refs that keep what was aborted, by story.

        Nothing is put there for a start that is refused, and no attempt begins before. What git cannot put
        there stays where it is.
        """
        left = [story for story in self._aborted(stories) if await self._has_left(story)]
        with ExitStack() as held:
            for story in left:
                held.enter_context(self._project.track_of(story).place.taken(story))
            answer = await start()
            refused = answer["type"] == "error" or self._landings.goes_on
            kept = {} if refused else await self._kept_of(left)
        for track in tuple(self._project.tracks.values()):
            track.wake()
        return answer, kept

    async def _has_left(self, story: str) -> bool:
        try:
            return await self._reach.asked(partial(self._left_by, story), LIMIT_S) is not None
        except StoreError:  # no repository, for one
            return False

    async def _kept_of(self, stories: Iterable[str]) -> dict[str, str]:
        """Put away what stories have left, and return the refs by story, where there was anything."""
        kept: dict[str, str] = {}
        for story in stories:
            try:
                ref = await self._reach.asked(partial(self._put_away, story), LIMIT_S + 10)
            except (Refused, StoreError) as error:
                log.warning("not begun anew", project=self._project.root, story=story, why=error.message)
            else:
                kept |= {} if ref is None else {story: ref}
        return kept

    def _aborted(self, stories: Iterable[str]) -> list[str]:
        """Return the stories that are neither at work nor done, nor wait in the backlog."""
        tracks = [one.track for one in self._project.tracks.values()]
        known = {*self._project.stories_done()}.union(*map(stories_at_work, tracks))
        known |= {entry.story for track in tracks for entry in track.ledger.backlog}
        known |= {one.state.story for one in tracks if one.state is not None and not one.ledger.closed}
        return [story for story in stories if story not in known]

    def _left_by(self, story: str) -> Workspace | None:
        """Return where a story has worked; None: it has left nothing."""
        root, clone = self._project.root, self._clones.of(story)
        if clone is not None:
            return clone.workspace
        project = repository_at(root)
        branch = branch_of(project, story)
        apart = self._project.files.settings.workspace.kind == "clone"  # else its files are a person's own
        there = apart and project.value_of(f"{HEADS}{branch}")
        return Workspace(folder=root, branch=branch) if there else None

    def _put_away(self, story: str) -> str | None:
        """Return the ref that keeps what a story has left; None: all of that has landed."""
        where = self._left_by(story)
        state_dir, environment = self._services.settings.state_dir, self._services.environment
        assert where is not None
        left = StoryBranch(self._project.root, where, state_dir, environment)
        if left.is_landed() and (where.kind != "clone" or left.unkept() is None):
            return None
        return self._landings.thrown_away(story)
