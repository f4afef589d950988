"""The landing of a story: its branch becomes part of the one that people work on, once the tests pass.

One at a time in a project. The tests run on the merged files in a clone of their own, so that no branch ever
ends at a commit that was not tested; a branch that was moved meanwhile is merged and tested again. A caller
that asks again while a landing goes on waits for the same one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from shlex import quote
from typing import NamedTuple, TypeVar

import anyio
import structlog
from anyio import to_thread
from msgspec.structs import replace

from handoffd.engine.beside import may_land
from handoffd.engine.decision import is_unlanded
from handoffd.engine.events import Discarded, Landed, LandingRefused, TestEvidence
from handoffd.engine.judging import green_problem
from handoffd.engine.track import Track, Workspace
from handoffd.engine.views import LandedView, LandingRequest, Whereabouts
from handoffd.engine.wording import bringing_back, command_for, first_few
from handoffd.errors import HandoffdError, Refused, StoreError
from handoffd.git.branches import HEADS, LEFT, UNPUBLISHED, StoryBranch, branch_of
from handoffd.git.checkout import BUSY, IN_THE_WAY
from handoffd.git.clones import Clone, Clones
from handoffd.git.command import TOO_SLOW
from handoffd.git.landing import CONFLICT, FOR_LANDING, LIMIT_S, MOVED, Landing, Merge
from handoffd.git.repository import NO_REPOSITORY, end_of, repository_at
from handoffd.project.landing_command import LandingCommand
from handoffd.project.whereabouts import StoryPlaces, Yard, is_closed, put_right
from handoffd.protocol.rules import DONE
from handoffd.protocol.state import TestCounts
from handoffd.protocol.story_text import StoryText
from handoffd.track.checks import Checks
from handoffd.track.prompts import dispatch_id
from handoffd.track.reach import Reach
from handoffd.track.services import Services
from handoffd.track.snapshots import keep_snapshots
from handoffd.track.workspace import set_up

log = structlog.get_logger(__name__)

_T = TypeVar("_T")

ITSELF = "handoffd"
"""In the place of a person's name: the daemon lands by itself."""
NOT_GREEN = "NOT_GREEN"
RED_BRANCH = "RED_BRANCH"
"""The branch to land on fails its own tests, whatever is landed."""
_FOR_AN_AGENT = frozenset({CONFLICT, NOT_GREEN})

_OF_BRANCHES = {"NO_BRANCH", "BRANCH_BEHIND", "BRANCH_CHECKED_OUT", "BRANCH_DIVERGED", "PROTECTED_BRANCH"}
_FOR_PEOPLE = frozenset({IN_THE_WAY, BUSY, *_OF_BRANCHES})
"""What a person puts right, often without a new commit."""
_PASSING = frozenset({MOVED, TOO_SLOW, BUSY})
_MOST_TEXTS, _TEXT = 3, 2000
"""Of how many other stories an agent gets the texts, and how many characters of each."""
AGAIN_S = 60.0
"""After this many seconds a landing is tried again that failed for a reason which passes by itself."""
MOST_PUT_OFF = 10
"""How often that is so before a person has to look: a git that was killed leaves its lock."""
MOST_TRIES = 3
"""How often a branch may move while it is merged and tested."""


class GivenUp(NamedTuple):
    """A landing that the daemon could not do, and how things were then."""

    error: HandoffdError
    tips: tuple[str, str]
    """Where the story's branch and the other one ended."""
    again_s: float
    """From when on, by the monotonic clock, the daemon tries again."""

    def is_like(self, error: HandoffdError) -> bool:
        """Return whether another try has failed for the same reason, which people know by now."""
        same = self.error.message == error.message
        return self.error.code == error.code and (error.code in _FOR_PEOPLE or same)


class Landings:
    """The landings of one project."""

    def __init__(self, project: Yard, services: Services) -> None:
        self.project = project
        self._services = services
        self._git = Landing(project.root, services.settings.state_dir, services.environment)
        self._clones = Clones(project.root, services.settings.state_dir, services.environment)
        self._command = LandingCommand(project.root, services)
        self._reach = Reach(project.root, services.asking)
        self.places = StoryPlaces(project, self._git, services)
        self._request: LandingRequest | None = None
        """The one that goes on, or went on last and was not answered."""
        self._over = asyncio.Event()
        self._not_before_s = 0.0
        """When the next one may begin by itself, by the monotonic clock."""
        self._put_off: Counter[str] = Counter()
        """How often a story was not landed for a reason which passes by itself."""
        self._given_up: dict[str, GivenUp] = {}
        self._tips_then = ("", "")
        """Where the branches ended when the landing that goes on by itself began."""
        self._red: dict[str, TestEvidence] = {}
        """The commit of a branch whose own tests fail, and how: only the last one that was met."""
        self._result: LandedView | HandoffdError | None = None

    async def land(self, request: LandingRequest, within_s: float | None) -> LandedView:
        """Land a story; after `within_s` seconds answer that it goes on. Raises HandoffdError."""
        if self._request is None or (self._over.is_set() and self._request != request):
            self._ask(request)
            if not self.project.main.lasting:
                await self._carry_out()
        elif not _is_same(self._request, request):
            why = f"{self._request.story or 'a story'} is being landed"
            raise Refused(why, code="LANDING", hint=command_for(self.project.root, "land"))
        over = self._over
        with anyio.move_on_after(within_s):
            await over.wait()
        result = self._result
        if not over.is_set() or result is None:
            return LandedView(story=request.story or self._story(None), going_on=True)
        self._request = None
        if isinstance(result, HandoffdError):
            raise result
        return result

    def _ask(self, request: LandingRequest) -> None:
        self._request, self._result, self._over = request, None, asyncio.Event()
        if self.project.main.lasting:
            self.project.main.begin("landing", self._carry_out)

    @property
    def goes_on(self) -> bool:
        """Whether a story is being landed."""
        return self._request is not None and not self._over.is_set()

    def begin(self) -> None:
        """Land the next story that is done, where the settings want that and no other landing goes on."""
        waits = self._services.clock.monotonic() < self._not_before_s
        if not waits and not self.goes_on and (ready := self._ready() or self._due()):
            self._not_before_s = 0.0
            self._ask(LandingRequest(story=ready[0], by=ITSELF))

    @property
    def tries_again(self) -> bool:
        """Whether a landing has failed, and is tried again when its reason has passed or a person acts."""
        return (self._not_before_s > 0 and bool(self._ready())) or bool(self._given_up_for_now())

    def _ready(self) -> list[str | None]:
        """Return the stories that the daemon lands by itself as soon as it can."""
        tracks, desk = [one.track for one in self.project.tracks.values()], self.project.main.track.ledger
        ready = [one.state.story for one in tracks if one.state and self.project.lands_first(one)]
        if self.project.lands_by_itself and desk.automatic and not desk.project_paused_by:
            ready += [story for story in desk.to_land if story not in self._given_up]
        return ready

    def _given_up_for_now(self) -> list[str]:
        """Return the stories that the daemon could not land, and lands once that has changed."""
        tracks, desk = [one.track for one in self.project.tracks.values()], self.project.main.track.ledger
        if not self.project.lands_by_itself or not desk.automatic or desk.project_paused_by:
            return []
        left = [one.state for one in tracks if is_unlanded(one) and may_land(one, again=True)]
        own = [state.story for state in left if state is not None and state.story is not None]
        return [*own, *(story for story in desk.to_land if story in self._given_up)]

    def _due(self) -> list[str]:
        """Return which of them the daemon tries again now; after a restart, all."""
        now, known = self._services.clock.monotonic(), self._given_up
        return [one for one in self._given_up_for_now() if one not in known or known[one].again_s <= now]

    def refusal_of(self, story: str) -> str | None:
        """Return why the daemon could not land a story; None where it could, or has not tried."""
        track, known = self.project.track_of(story).track, self._given_up.get(story)
        own = track.state is not None and track.state.story == story
        if own and track.ledger.unlanded is None:
            return None
        return known.error.message if known is not None else track.ledger.unlanded if own else None

    async def whereabouts(self, story: str) -> Whereabouts | None:
        """Return where the work of a story is that is over, None where it is nowhere. Raises StoreError."""
        return await self.places.of(story, self.refusal_of(story))

    async def discard(self, story: str, by: str) -> str:
        """Throw away what a story has done; return the ref that keeps it. Raises HandoffdError."""
        if self.goes_on:
            hint = command_for(self.project.root, "land")
            raise Refused("a story is being landed", code="LANDING", hint=hint)
        if any(story in stories_at_work(one.track) for one in self.project.tracks.values()):
            hint = command_for(self.project.root, "abort", "--story", story)
            raise Refused(f"{story} is not over", code="STORY_IN_PROGRESS", hint=hint)
        with self.project.track_of(story).place.taken(story):  # who starts it meanwhile gets a new one
            kept = await self._asked(partial(self.thrown_away, story))
        await self.project.track_of(story).give(Discarded(story=story, kept=kept, notes_ref=True, by=by))
        return kept

    def thrown_away(self, story: str) -> str:
        """Remove the clone and the branch of a story, and return the ref that keeps what it did; blocks."""
        root, clone = self.project.root, self._clones.of(story)
        project = repository_at(root)
        where = Workspace(folder=root, branch=branch_of(project, story)) if clone is None else clone.workspace
        if clone is None and not project.value_of(f"{HEADS}{where.branch}"):
            hint = command_for(root, "workspaces")
            raise Refused(f"{story} has neither a clone nor a branch", code="NO_BRANCH", hint=hint)
        state_dir, environment = self._services.settings.state_dir, self._services.environment
        kept = StoryBranch(root, where, state_dir, environment).discard(self._services.clock.now())
        if clone is not None:
            try:
                keep_snapshots(clone, self._services)
            except StoreError as error:  # what the story did is kept all the same
                log.warning("snapshots not kept", project=root, story=story, error=error.message)
            self._clones.remove(clone)
            self._services.clone_space.forget()
        return kept

    async def _carry_out(self) -> None:
        assert self._request is not None
        request, over = self._request, self._over
        story = request.story
        self._result = Refused("the landing was cut off; type it again", code="CUT_OFF")
        try:
            story = self._meant(request)
            self._result = await self._landed(request, story)
        except HandoffdError as error:
            self._result = await self._explained(error, story)
            if request.by == ITSELF and request.story is not None and error.code != "NOT_DONE":
                await self._refused(request.story, error)
        finally:
            over.set()
            self.project.stirred()

    async def _explained(self, error: HandoffdError, story: str | None) -> HandoffdError:
        """Return why there is nothing to land: it was discarded, aborted, or is in the project's folder."""
        if story is None or error.code not in {"NO_BRANCH", "NOT_DONE", NO_REPOSITORY}:
            return error
        end = await self.places.end(story)
        kept = end.kept if end is not None else None
        if kept is None and end is not None and end.kind == "aborted":
            again = command_for(self.project.root, "start", story, "--go-on")
            return Refused(f"{story} was aborted", code=error.code, hint=again)
        if kept is None:
            where = await self.places.in_folder(story, git=error.code != NO_REPOSITORY)
            if where is None:
                return error
            why = f"{story} has nothing to land: it worked {where.says}"
            return Refused(why, code="NOT_IN_CLONE", hint=where.command)
        hint = bringing_back(self.project.root, kept)
        return Refused(f"{story} was discarded, and {kept} keeps what it did", code=error.code, hint=hint)

    async def _refused(self, story: str, error: HandoffdError) -> None:
        """Report that the daemon could not land a story, and to an agent how it can help.

        What passes by itself is tried again later, without a word, for a limited number of times; and what
        people have to change, when they have.
        """
        known = self._given_up.get(story)
        if known is not None and known.is_like(error) and self.refusal_of(story) is not None:
            await self._give_up(story, error)
            return
        self._put_off[story] += 1
        if error.code in _PASSING and self._put_off[story] <= MOST_PUT_OFF:
            log.warning("not landed yet", project=self.project.root, story=story, error=error.message)
            self._not_before_s = self._services.clock.monotonic() + AGAIN_S
            return
        del self._put_off[story]
        note = None
        if error.code in _FOR_AN_AGENT:
            with suppress(HandoffdError):
                news = await self._asked(partial(self._git.news, story, self.places.onto(story)))
                note = f"This story could not be landed: {error.message}.\n{news.to_take_in}"
                note += self._asked_for(news.stories)
        if self.refusal_of(story) != error.message:  # else it was reported before this daemon's life
            refused = LandingRefused(story=story, why=error.message, note=note, remedy=error.hint, stays=True)
            await self.project.track_of(story).give(refused)
        await self._give_up(story, error)

    def _asked_for(self, stories: Sequence[str]) -> str:
        """Return what stories that have landed meanwhile were asked to bring: that has to stay."""
        texts = self.project.main.track.ledger.texts
        known = [(name, texts[name].text or texts[name].title) for name in stories if name in texts]
        return "".join(
            f"\n\n{name}, which has landed, was asked to bring this, and still has to:\n{text[:_TEXT]}"
            for name, text in known[:_MOST_TEXTS]
        )

    async def _give_up(self, story: str, error: HandoffdError) -> None:
        """Remember how things were when a landing failed, unless an agent has taken its story up again."""
        self._given_up.pop(story, None)
        if story in self.places.unlanded():
            again_s = self._services.clock.monotonic() + AGAIN_S
            self._given_up[story] = GivenUp(error, self._tips_then, again_s)

    def _tips(self, story: str) -> tuple[str, str]:
        try:
            return self._git.tips(story, self.places.onto(story))
        except StoreError:
            return "", ""

    async def _must_have_changed(self, story: str) -> None:
        """Raise Refused, as before, where nothing has changed since a landing failed."""
        self._tips_then = await to_thread.run_sync(self._tips, story)
        known = self._given_up.get(story)
        if known is None or known.error.code in _FOR_PEOPLE:  # which is seen before any test is run
            return
        if self._tips_then == known.tips:
            raise known.error.with_traceback(None)

    def _meant(self, request: LandingRequest) -> str:
        """Return the story to land: all of one that is done, or part of any. Raises Refused."""
        if request.to is None:
            return self._story(request.story)
        if self.project.files.settings.stories.land == "command":
            why = "stories.land: command takes whole stories, not up to a step"
            raise Refused(why, code="WHOLE_STORIES", hint=command_for(self.project.root, "land"))
        tracks = [one.track for one in self.project.tracks.values()]
        known = [one.state.story for one in tracks if one.state is not None and one.state.story is not None]
        if request.story is None and len(known) > 1:
            raise self._unsaid(known, "are in hand")
        return request.story or (known[0] if known else self._story(None))

    def _story(self, story: str | None) -> str:
        """Return the story to land. Raises Refused (NOT_DONE) for one that is not done."""
        tracks = [one.track for one in self.project.tracks.values()]
        ended = [one.state.story for one in tracks if one.state and one.state.step == DONE]
        unlanded = self.places.unlanded()
        if story is None and len(unlanded or ended) == 1:
            story = (unlanded or ended)[0]
        if story is not None and (story in ended or story in self.project.stories_done()):
            return story
        named = [name for name in unlanded if name is not None]
        raise self._unsaid(named, "are done") if named and story is None else self._not_done(story)

    def _unsaid(self, stories: Sequence[str], are: str) -> Refused:
        """Return the refusal of a landing that could mean several stories."""
        hint = command_for(self.project.root, "land", "--story", stories[0])
        return Refused(
            f"{first_few(tuple(stories))} {are}: say which story to land", code="NOT_DONE", hint=hint
        )

    def _not_done(self, story: str | None) -> Refused:
        """Return the refusal to land a story before its end, or any while none has come to it."""
        state = self.project.track_of(story).track.state
        flying = state.story if state is not None and state.step != DONE else None
        how = "was aborted" if self.project.track_of(story).track.ledger.closed else "is in flight"
        where = f"{flying} {how}, at {state.step}" if state is not None and flying is not None else None
        if story is None:
            why = f"no story is done: {where}" if where else "no story is done"
        else:
            why = where if where and flying == story else f"{story} is not done"
        return Refused(why, code="NOT_DONE", hint=command_for(self.project.root, "status"))

    async def _landed(self, request: LandingRequest, story: str) -> LandedView:
        settings = self.project.files.settings.stories
        if request.by == ITSELF:
            await self._must_have_changed(story)
        if settings.land == "branch" and request.by == ITSELF:
            return await self._left(story)
        without = None
        if request.to is None:
            work = partial(self._must_be_whole, story, leave_out=request.leave_out)
            without = await self._asked(work)
        up_to = await to_thread.run_sync(self._end_of_step, story, request.to)
        for _ in range(MOST_TRIES):
            merge = await self._asked(partial(self._prepared, request, story, up_to))
            try:
                view = await self._carried(request, story, merge)
                beside = await self._asked(partial(self.places.left_beside, story))
                return replace(view, left=tuple(filter(None, (without, beside))))
            except Refused as refused:
                if refused.code != MOVED:
                    raise
            log.info("branch moved while it was tested", project=self.project.root, branch=merge.onto)
        branch = request.onto or self.places.onto(story) or "the branch"
        raise Refused(f"{branch} moved {MOST_TRIES} times while {story} was tested", code=MOVED)

    async def _left(self, story: str) -> LandedView:
        """Take note that the branch of a story is all that was wanted, once it is whole."""
        await self._asked(partial(self._must_be_whole, story))
        branch, commit = await self._asked(partial(self._branch_of, story))
        return await self._recorded(LandedView(story=story, onto=branch, commit=commit, how="branch"), ITSELF)

    async def _carried(self, request: LandingRequest, story: str, merge: Merge) -> LandedView:
        """Move the branch to what was merged, once its tests have passed."""
        view = LandedView(story=story, onto=merge.onto, commit=merge.commit, to=request.to)
        if merge.commit == merge.was:
            return await self._recorded(replace(view, already=True), request.by)
        if self.project.files.settings.stories.land == "command":
            return await self._given(request, story, merge)
        self._must_be_open(merge, story)
        tests = None if request.untested else await self._tested(merge, story)
        self._must_be_wanted(request, story)
        await self._asked(partial(self._git.land, merge))
        return await self._recorded(replace(view, files=merge.files, tests=_counts(tests)), request.by)

    async def _given(self, request: LandingRequest, story: str, merge: Merge) -> LandedView:
        """Have the project's command take a story, once the tests have passed on the merged files."""
        settings, again = self.project.files.settings, request.by != ITSELF
        known = await to_thread.run_sync(partial(self._command.has, story, merge.end, again=again))
        tests = None if request.untested or known else await self._tested(merge, story)
        self._must_be_wanted(request, story)
        told = await self._command.take(story, self._text_of(story), merge, settings, again=again)
        view = LandedView(
            story=story, onto=merge.onto, commit=merge.end, files=merge.files, tests=_counts(tests),
            how="command", told=told,
        )  # fmt: skip
        return await self._recorded(view, request.by)

    async def _recorded(self, view: LandedView, by: str) -> LandedView:
        assert view.onto is not None
        assert view.commit is not None
        told = Landed(
            story=view.story, onto=view.onto, commit=view.commit, up_to=view.to, how=view.how, told=view.told,
            untested=view.tests is None and view.how == "merge" and not view.already, by=by,
        )  # fmt: skip
        await self.project.track_of(view.story).give(told)
        self._services.clone_space.forget()  # its clone may go now
        del self._put_off[view.story]
        self._given_up.pop(view.story, None)
        return view

    def _must_be_open(self, merge: Merge, story: str) -> None:
        """Raise Refused for a branch that no landing may move."""
        if is_closed(self.project.files.settings.stories, merge.onto):
            hint = command_for(self.project.root, "land", "--story", story, "--onto", "BRANCH")
            why = f"{merge.onto} is not moved by a landing (stories.protected); {story} is on {merge.branch}"
            raise Refused(why, code="PROTECTED_BRANCH", hint=hint)

    def _must_be_wanted(self, request: LandingRequest, story: str) -> None:
        """Raise Refused for a story that was taken up again, or paused, while it was tested."""
        if request.to is None:
            self._story(story)
        if request.by == ITSELF and story not in {*self._ready(), *self._given_up_for_now()}:
            hint = command_for(self.project.root, "land", "--story", story)
            raise Refused(f"{story} is not landed for now", code="NOT_DONE", hint=hint)

    def _must_be_whole(self, story: str, *, leave_out: bool = False) -> str | None:
        """Bring all of a story into the project's repository. Raises HandoffdError where that fails.

        `leave_out`: return instead what is in its clone, and in no commit.
        """
        track = self.project.track_of(story).track
        state, where = track.state, track.ledger.workspace
        here = where is not None and where.kind == "root" and where.branch is not None
        if here and state is not None and state.story == story:
            why = f"{story} worked in {self.project.root} itself: its files are there"
            raise Refused(why, code="NOT_IN_CLONE", hint=f"git -C {quote(self.project.root)} status")
        clone = self._clones.of(story)
        if clone is None:
            return None
        branch, folder = self.places.branch(clone), clone.workspace.folder
        branch.publish()
        branch.keep_others()
        unkept = branch.unkept()
        if unkept is None or (leave_out and unkept not in {UNPUBLISHED, LEFT}):
            return None if unkept is None else f"it is without what is in {folder}: {unkept}"
        why = f"{story} is not all on {clone.workspace.branch}: {unkept}"
        if unkept in {UNPUBLISHED, LEFT}:
            raise Refused(why, code="BRANCH_BEHIND", hint=f"git -C {quote(folder)} log --all")
        without = command_for(self.project.root, "land", "--story", story, "--leave-out")
        raise Refused(put_right(why, folder), code="BRANCH_BEHIND", hint=without)

    def _end_of_step(self, story: str, step: str | None) -> str | None:
        """Return the commit with which a step has ended, None for no step. Raises Refused."""
        if step is None:
            return None
        trail, clone = self._clones.trail(story), self._clones.of(story)
        commit = None if trail is None else trail.end_of(step)
        if clone is not None:
            with suppress(StoreError):  # the next agent may have begun just now
                self.places.branch(clone).publish(ours=True)
        if commit is None:
            hint = f"git -C {quote(self.project.root)} log {quote(self._branch_of(story)[0])}"
            raise Refused(f"{story} has no commit of {step} in a clone", code="NO_STEP", hint=hint)
        state = self.places.state(story)
        if state is not None and not self.project.files.rules.is_behind(step, state.step, state.task_type):
            why = f"{story} is at {state.step}, so {step} is not behind it any more"
            raise Refused(why, code="NO_STEP", hint=command_for(self.project.root, "status"))
        return commit

    def _prepared(self, request: LandingRequest, story: str, up_to: str | None) -> Merge:
        text, onto = self._text_of(story), request.onto or self.places.onto(story)
        title = f": {text.title}" if text is not None else ""
        part = f" up to {request.to}" if request.to is not None else ""
        by = " ".join(request.by.split())
        message = f"Land {story}{part}{title}\n\nStory: {story}\nBy: {by}\n".encode(errors="replace")
        moves = self.project.files.settings.stories.land != "command"
        now = self._services.clock.now()
        base = self.places.base(story, onto)
        return self._git.prepare(story, onto, message, now, base=base, up_to=up_to, moves=moves)

    def _branch_of(self, story: str) -> tuple[str, str]:
        """Return the branch of a story, and where it ends; blocks. Raises StoreError."""
        project = repository_at(self.project.root)
        branch = branch_of(project, story)
        return branch, end_of(project, f"{HEADS}{branch}")

    def _text_of(self, story: str) -> StoryText | None:
        return self.project.track_of(story).track.ledger.texts.get(story)

    async def _asked(self, work: Callable[[], _T]) -> _T:
        return await self._reach.asked(work, LIMIT_S + 10)

    # --- the tests -------------------------------------------------------------------------------
    async def _tested(self, merge: Merge, story: str) -> TestEvidence | None:
        """Run the project's tests on the files that the branch will have. Raises Refused where they fail."""
        if self.project.files.settings.test.command is None:
            return None
        evidence = await self._tried(merge.commit, story)
        if (problem := _not_green(evidence)) is None:
            return evidence
        if (red := await self._red_without(merge, story, evidence)) is not None:
            why = f"{story} was not landed: {merge.onto} itself fails its tests: {red}"
            hint = f"git -C {quote(self.project.root)} log {quote(merge.onto)}"
            raise Refused(why, code=RED_BRANCH, hint=hint)
        why = f"{story} was not landed: with {merge.onto}, {problem}"
        raise Refused(why, code=NOT_GREEN, hint=self._way_back(story, f"with {merge.onto}, {problem}"))

    async def _red_without(self, merge: Merge, story: str, evidence: TestEvidence) -> str | None:
        """Return how the branch fails its tests as it is, if the story makes none of them fail besides."""
        if merge.was not in self._red:
            found = await self._tried(merge.was, story)
            if _not_green(found) is None:
                return None
            self._red = {merge.was: found}
        found = self._red[merge.was]
        return _not_green(found) if {*evidence.failing} <= {*found.failing} else None

    async def _tried(self, commit: str, story: str) -> TestEvidence:
        """Run the project's tests on the files of a commit; what failed before the story does not count."""
        settings = self.project.files.settings
        clone = await to_thread.run_sync(self._checkout, commit)
        try:
            place = clone.workspace
            track = self.project.track_of(story)
            checks = Checks(track.key, self.project, self._services, track.attempts.live, lambda: place)
            await set_up(clone, self._clones, checks, settings.workspace, self._services)
            rule = self.project.files.rules.steps.get("verify")
            limit_s = (rule.check_timeout_min if rule is not None else 10) * 60
            name = f"{dispatch_id(self._services.clock)}.landing"
            clone = self._clones.note(replace(clone, setup=name))
            return await checks.trial(name, limit_s, story)
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._clones.remove, clone)

    def _way_back(self, story: str, note: str) -> str:
        """Return the command that has an agent make a story fit the branch as it is by now."""
        state, rules, root = (
            self.project.track_of(story).track.state,
            self.project.files.rules,
            self.project.root,
        )
        if state is None or state.story != story:
            others = ("--queue",) if state is not None and state.step != DONE else ()
            return command_for(root, "start", story, "--force", *others)
        path = rules.path(state.task_type)
        step = next((one for one in path if rules.steps[one].tests == "green"), path[0])
        return command_for(root, "reopen", step, "--note", note)

    def _checkout(self, commit: str) -> Clone:
        """Make the clone that is tested: in a place of its own, as a set-up may have outlived its daemon."""
        settings, name = self.project.files.settings, dispatch_id(self._services.clock)
        where = Workspace(folder="", kind="clone", branch=f"handoffd/@landing/{name}", base=commit)
        return self._clones.make(
            f"{FOR_LANDING}{name}", settings.workspace.link, where, self._services.clock.now()
        )


def _is_same(goes_on: LandingRequest, asked: LandingRequest) -> bool:
    """Return whether a landing that goes on is what is asked for again, by anyone."""
    return replace(asked, story=asked.story or goes_on.story, by=goes_on.by) == goes_on


def stories_at_work(track: Track) -> frozenset[str | None]:
    """Return the stories of a track that are in flight or set aside; one that was aborted is neither."""
    aside = [parked.state.story for parked in track.ledger.parked]
    state = track.state
    over = state is None or state.step == DONE or (track.ledger.closed and track.ledger.dispatch is None)
    return frozenset(aside if state is None or over else [*aside, state.story])


def _counts(tests: TestEvidence | None) -> TestCounts | None:
    return None if tests is None else tests.counts


def _not_green(evidence: TestEvidence) -> str | None:
    if evidence.timed_out:
        return f"the tests did not end within {evidence.seconds:.0f} s"
    return evidence.fault or green_problem(evidence)
