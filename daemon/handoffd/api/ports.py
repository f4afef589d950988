"""The protocols through which the API reaches the fleet, so that this package does not import it.

`app` passes an object that fits: the roster of the running daemon or, for a command without a daemon, the
same roster without its loops.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from handoffd.capacity.accounts import AccountView, Lifted
from handoffd.capacity.slots import SlotsView
from handoffd.engine.decision import Result
from handoffd.engine.events import Verb
from handoffd.engine.flow.events import Verb as FlowVerb
from handoffd.engine.flow.views import NewFlow
from handoffd.engine.run import Caps, PostCheck, Usage
from handoffd.engine.views import (
    Applied,
    BacklogView,
    GateView,
    LandedView,
    LandingRequest,
    Peek,
    ProjectView,
    SnapshotsView,
    StoryView,
    Tried,
    Whereabouts,
    WorkspaceTrial,
    WorkspaceView,
)
from handoffd.errors import HandoffdError, Json
from handoffd.forecast.snapshot import FleetNow
from handoffd.journal.retention import Cleaned
from handoffd.protocol.rules import Commands, Gates
from handoffd.settings.loading import HeldEdit, Renewed


class Renewing(Protocol):
    """Reloads the settings of a running daemon."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the current settings, in words."""

    async def renew(self) -> Renewed:
        """Read the settings, the folders of projects, and every project's files again."""

    async def edit(self) -> HeldEdit:
        """Return what of the settings file waits for a person. Raises InvalidFile."""

    async def trust(self, sign: str) -> HeldEdit:
        """Trust the settings file as a person has seen it; return what has waited for that.

        Raises Refused (FILES_EDITED) for another `sign`.
        """


class Cleaner(Protocol):
    """Removes records that are no longer needed."""

    async def clean(self, *, dry_run: bool) -> Cleaned:
        """Return what was removed, or in a dry run would be."""


class Supervision(Protocol):
    """The supervised projects. `project` arguments are absolute roots; see `find`."""

    def find(self, name: str) -> str:
        """Return the root of the project named, or located at, `name`.

        A path wins over a name; a path inside a project finds the project. Raises `NotFound`,
        with the known names in the message, and `Refused` when several projects share the name.
        """

    def names(self) -> Mapping[str, str]:
        """Return the name of each project by root: its root again where several projects share the name."""

    def usage(self) -> Mapping[str, Usage]:
        """Return the usage so far of each run that this process follows."""

    async def views(self) -> tuple[ProjectView, ...]:
        """Return every project, sorted by name."""

    async def view(self, project: str) -> ProjectView:
        """Return one project."""

    async def add(self, root: str, *, take: bool = False) -> ProjectView:
        """Supervise one more project; adding it again changes nothing. Dispatches nothing.

        Raises Locked while it belongs to another daemon, unless a person asks to `take` it.
        """

    async def add_many(
        self, roots: Sequence[str], *, take: bool = False
    ) -> Mapping[str, str | HandoffdError]:
        """Supervise projects as `add` does; return the root of each, or why it was not added."""

    async def remove(self, project: str) -> ProjectView:
        """Stop supervising a project; its files and its journal stay. Refused while it runs."""

    async def give(
        self, project: str, verb: Verb, request: str | None = None, story: str | None = None
    ) -> Result:
        """Give a verb to the engine and return the result.

        `request` is its idempotency key, committed together with the event; `story` names the one meant.
        """

    async def start_flow(self, project: str, wanted: NewFlow, by: str, request: str | None) -> str:
        """Start a flow and return its id. Raises HandoffdError; `request` is as of `give`."""

    async def give_flow(self, project: str, flow: str, event: FlowVerb, request: str | None) -> None:
        """Let a flow decide on what a person asks for. Raises NotFound, and Refused where it refuses."""

    async def meant(self, project: str, verb: Verb, story: str | None) -> str | None:
        """Return the story with a track of its own that a verb is for; None: it is for another track.

        Raises Refused (AMBIGUOUS) where it could be for several, and `story` names none.
        """

    async def hand_out(
        self, project: str, by: str, story: str | None
    ) -> tuple[Result, str | None, str | None]:
        """Hand the next attempt to a person or another tool; return its prompt if there is one.

        `story` is the one meant, of several. The last is the story in whose own track that is; None: in the
        project's first. This, `apply`, `post_check` and `peek` raise Refused (AMBIGUOUS, WRONG_STORY).
        """

    async def apply(self, project: str, within_s: float | None, story: str | None) -> Applied:
        """Apply the hand-off of an attempt that a person or another tool carried out.

        After `within_s` seconds the answer returns, and the daemon continues the checks.
        """

    async def post_check(
        self, project: str, by: str, story: str | None
    ) -> tuple[Commands | None, tuple[PostCheck, ...]]:
        """Run the current step's post_check; return its commands and how each ended, if it has any."""

    async def land(self, project: str, request: LandingRequest, within_s: float | None) -> LandedView:
        """Land a story; after `within_s` seconds answer that it goes on. Raises HandoffdError."""

    async def begin_anew(
        self, project: str, stories: Collection[str], start: Callable[[], Awaitable[Json]]
    ) -> tuple[Json, Mapping[str, str]]:
        """Give a start; return its answer, and the refs that keep what aborted starts of its stories did.

        A start that is refused changes nothing of these.
        """

    async def discard(self, project: str, story: str, by: str) -> str:
        """Remove the clone and the branch of a story; return the ref that keeps them."""

    async def try_tests(self, project: str) -> Tried:
        """Run the project's tests once, for no story; Refused while an attempt is in flight."""

    async def try_workspace(
        self,
        project: str,
        wanted: str,
        within_s: float | None,
        *,
        again: bool = False,
        tell: Callable[[str], None] = lambda _: None,
    ) -> WorkspaceTrial:
        """Find out whether stories of a project can work in clones, and note what follows in its settings.

        `wanted` is `auto`, `clone`, `root`, or `stop`, which ends a trial.
        After `within_s` seconds answer what goes on; ask `again` then. Raises HandoffdError.
        """

    def executors(self) -> tuple[str, ...]:
        """Return the names that can be chosen as an executor."""

    async def installed(self) -> tuple[str, ...]:
        """Return the executors whose programs are installed."""

    def limits(self) -> tuple[AccountView, ...]:
        """Return the accounts that are limited."""

    def caps(self) -> Caps:
        """Return the caps that all projects share."""

    def slots(self) -> SlotsView:
        """Return the slots, and the running and waiting tracks."""

    async def now(self, projects: Sequence[str]) -> FleetNow:
        """Return what a plan of the night needs of these projects, and what the settings allow."""

    async def lift_limit(self, account: str, by: str) -> Lifted:
        """End the wait for a limited account; return the projects that had hit its limit."""

    async def peek(self, project: str, story: str | None, *, bootstrapped: bool) -> Peek:
        """Return what the next turn would do; `bootstrapped` has the meaning of `Started`."""

    async def backlog(self, project: str) -> BacklogView:
        """Return the queued stories of a project."""

    async def story(self, project: str, story: str | None) -> StoryView:
        """Return a story with its text; None: the one in flight, or that ended last. Raises NotFound."""

    async def gate(self, project: str, *, story: str | None, since_last: bool) -> GateView:
        """Return the screen of the gate that a story waits at. Raises Refused (NO_GATE, AMBIGUOUS)."""

    async def whereabouts(self, project: str, story: str) -> Whereabouts | None:
        """Return where the work of a story is that is over; None where it is nowhere, or git fails."""

    async def uncommitted(self, project: str) -> tuple[str, ...]:
        """Return the files that a story which begins in a clone is without; none where git fails."""

    async def snapshots(self, project: str, story: str | None) -> SnapshotsView:
        """Return the snapshots of a project's story. Raises NotFound, and StoreError if there can be none."""

    async def workspaces(self, project: str | None) -> tuple[WorkspaceView, ...]:
        """Return the clones in which stories of one project, or of all, work."""

    async def trust(self, project: str, written: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """Accept pending edits of settings and rules; return the changed keys, dotted."""

    async def choose_gates(self, project: str, gates: Gates) -> None:
        """Write when a person decides about its stories into a project's settings, and trust that."""


class Desk(Protocol):
    """What the notifier of a running daemon will do next."""

    def next_tries(self) -> Mapping[str, float]:
        """Return the seconds until the next try of each resting sink."""

    def releases(self) -> Mapping[tuple[str, str], datetime]:
        """Return when held-back notices are sent, by sink and reason."""

    def reminders(self) -> Mapping[str, datetime | None]:
        """Return the time of the next reminder by notice id; None: no further reminder."""


Try = Callable[[str | None], Awaitable[Sequence[tuple[str, str, str | None, float]]]]
"""Sends a sample through one sink, or all; of each its name, form, error (None: it worked) and seconds."""
