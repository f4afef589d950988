"""What the control layer needs of the supervisor, declared on its own side.

`app` hands over something that fits: the roster of the running daemon, or the same roster without
its loops when a verb is given while no daemon runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from handoffd.engine.decision import Result
from handoffd.engine.events import Verb
from handoffd.engine.run import PostCheck, Usage
from handoffd.engine.views import (
    AccountView,
    Applied,
    BacklogView,
    Lifted,
    Peek,
    ProjectView,
    Renewed,
    SlotsView,
    Tried,
)
from handoffd.errors import HandoffdError
from handoffd.journal.retention import Cleaned


class Renewing(Protocol):
    """What reads the settings of a running daemon again."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What people should know of the settings in force, in words."""

    async def renew(self) -> Renewed:
        """Read the settings, where projects lie, and every project's files again."""


class Cleaner(Protocol):
    """What removes what nobody needs any more."""

    async def clean(self, *, dry_run: bool) -> Cleaned:
        """Return what went, or would."""


class Supervision(Protocol):
    """The supervised projects. `project` arguments are absolute roots; see `find`."""

    def find(self, name: str) -> str:
        """Return the root of the project called (or lying at) `name`.

        A path wins over a name; a path inside a project finds the project. Raises `NotFound`,
        with the names there are in the message, and `Refused` when a name fits several.
        """

    def names(self) -> Mapping[str, str]:
        """Return, by root, what `find` finds it by: its name, or its root where several share that."""

    def usage(self) -> Mapping[str, Usage]:
        """Return what each run that is followed here has used so far."""

    async def views(self) -> tuple[ProjectView, ...]:
        """Return every project, by name."""

    async def view(self, project: str) -> ProjectView:
        """Return one project."""

    async def add(self, root: str, *, take: bool = False) -> ProjectView:
        """Supervise one more project; adding it again changes nothing. Dispatches nothing.

        Raises Locked while it belongs to another daemon, unless a person says to `take` it.
        """

    async def add_many(
        self, roots: Sequence[str], *, take: bool = False
    ) -> Mapping[str, str | HandoffdError]:
        """Supervise projects as `add` does; return where each lies, or why it is not supervised."""

    async def remove(self, project: str) -> ProjectView:
        """Stop supervising a project; its files and its journal stay. Refused while it runs."""

    async def give(self, project: str, verb: Verb, request: str | None = None) -> Result:
        """Put a verb before the engine and return what it said.

        `request` is the key it came with, recorded together with what follows from it.
        """

    async def hand_out(self, project: str, by: str) -> tuple[Result, str | None]:
        """Give the next attempt away, to a person or another tool; return its prompt if there is one."""

    async def apply(self, project: str, within_s: float | None) -> Applied:
        """Hear the hand-off that lies there for an attempt of others.

        After `within_s` seconds a daemon goes on with its checks without being waited for.
        """

    async def post_check(self, project: str, by: str) -> tuple[str | None, PostCheck | None]:
        """Run the current step's post_check; return its command and how it ended, if it has one."""

    async def try_tests(self, project: str) -> Tried:
        """Run the project's tests once, for no story; Refused while an attempt is in flight."""

    def executors(self) -> tuple[str, ...]:
        """Return what may be chosen as an executor."""

    async def installed(self) -> tuple[str, ...]:
        """Return those of them whose programs are there."""

    def limits(self) -> tuple[AccountView, ...]:
        """Return the accounts that are limited."""

    def slots(self) -> SlotsView:
        """Return who may run, who does, and who waits."""

    async def lift_limit(self, account: str, by: str) -> Lifted:
        """Have nobody wait for an account any more; return the projects that had met its limit."""

    async def peek(self, project: str, *, bootstrapped: bool) -> Peek:
        """Return what the next turn would do; `bootstrapped` as in `Started`."""

    async def backlog(self, project: str) -> BacklogView:
        """Return the stories that wait in a project."""

    async def trust(self, project: str) -> tuple[str, ...]:
        """Put held settings and rules into force; return what changed, as dotted keys."""

    async def reload(self) -> tuple[str, ...]:
        """Read every project's files again; return what is wrong."""


class Desk(Protocol):
    """What the notifier of a running daemon knows of what will be."""

    def next_tries(self) -> Mapping[str, float]:
        """Return in how many seconds each sink that rests is tried again."""

    def releases(self) -> Mapping[tuple[str, str], datetime]:
        """Return when each sink is told of what is held back, by sink and reason."""

    def reminders(self) -> Mapping[str, datetime | None]:
        """Return when people are told again of what waits, by the id of its notice; None: not again."""


Try = Callable[[str | None], Awaitable[Sequence[tuple[str, str, str | None, float]]]]
"""Sends a sample through one sink, or all: name, form, why it failed (None: it did not), seconds of each."""
