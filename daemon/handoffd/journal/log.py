"""What others see of a journal: a log of operations, and a few questions about what they made.

An operation is a frozen value about one project, and has a form as text. The same operations, written into an
empty log in the same order, make the same journal, with the same numbers of events and orders. So another log
can take them first and hand them on. All that a running daemon keeps about projects is written by operations;
notices on their way to people, keys of requests and housekeeping are its own, and a restore or a repair works
on the file itself.

`Journal` is the log in SQLite; it has further questions, for reports. The contract of every log is
`tests/unit/journal/test_log.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from handoffd.engine.track import TrackKey
from handoffd.journal.codec import decode
from handoffd.journal.records import (
    Committed,
    EndedFlow,
    Fire,
    FlowRecord,
    Newcomer,
    Origins,
    PendingEffect,
    Record,
    StoredEvent,
    StoredFlow,
    StoredNode,
    StoredProject,
    StoredSchedule,
    StoredTrack,
)


# --- operations ---------------------------------------------------------------------------------------
class _Operation(Struct, frozen=True, kw_only=True, tag_field="operation", tag=True):
    """An operation is known by its name, also in text."""

    project: str
    """Its root, absolute."""


class OrderDone(_Operation, frozen=True, kw_only=True):
    """An order of a decision was carried out; the first outcome stays."""

    id: int
    outcome: str = "done"


class ProjectAdded(_Operation, frozen=True, kw_only=True):
    """handoffd looks after the project from now on; a known one gets its new name.

    `brought_by` is the entry of the settings that means it; None: a person added it. `untrusted` names the
    files of its that hold nothing a person has trusted, unless one did before.
    """

    name: str
    at: datetime
    brought_by: str | None = None
    untrusted: tuple[str, ...] = ()


class ProjectLetGo(_Operation, frozen=True, kw_only=True):
    """The settings, which brought the project, name it no more; they may bring it back."""

    at: datetime


class ProjectRemoved(_Operation, frozen=True, kw_only=True):
    """A person removed the project: no entry of the settings brings it back. NotFound for an unknown one."""

    at: datetime


class FileTrusted(_Operation, frozen=True, kw_only=True):
    """A person trusts this text of one of the project's own files."""

    file: str
    text: str
    at: datetime


class BaselineKept(_Operation, frozen=True, kw_only=True):
    """The results of the tests before a story, which replace earlier ones."""

    track: str
    story: str
    body: bytes


class ScheduleArmed(_Operation, frozen=True, kw_only=True):
    """A schedule is known from now on; one with another fingerprint, or of a time to come, begins anew."""

    schedule: str
    fingerprint: str
    at: datetime


class ScheduleForgotten(_Operation, frozen=True, kw_only=True):
    """A schedule is in no settings any more."""

    schedule: str


Operation = (
    Record
    | FlowRecord
    | OrderDone
    | ProjectAdded
    | ProjectLetGo
    | ProjectRemoved
    | FileTrusted
    | BaselineKept
    | ScheduleArmed
    | ScheduleForgotten
    | Fire
)


def decode_operation(text: str) -> Operation:
    """Return the operation that `encode` wrote; ValueError when it is none."""
    kinds: Any = Operation
    operation: Operation = decode(kinds, text)
    return operation


_ACTIVITIES: Final = {
    "Record": "record {0.event.kind} of {0.project} ({0.key.track})",
    "FlowRecord": "record {0.event.kind} of {0.project} ({0.key.track})",
    "OrderDone": "mark order {0.id} of {0.project} done",
    "ProjectAdded": "add {0.project}",
    "ProjectLetGo": "let go of {0.project}",
    "ProjectRemoved": "remove {0.project}",
    "FileTrusted": "trust {0.file} of {0.project}",
    "BaselineKept": "keep a baseline of {0.project}",
    "ScheduleArmed": "arm {0.schedule} of {0.project}",
    "ScheduleForgotten": "forget {0.schedule} of {0.project}",
    "Fire": "settle {0.schedule} of {0.project}",
}


def activity(operations: Sequence[Operation]) -> str:
    """Return what is being done in words, for an error: `add /srv/shop and 2 more`."""
    first = operations[0]
    text = _ACTIVITIES[type(first).__name__].format(first)
    return f"{text} and {len(operations) - 1} more" if len(operations) > 1 else text


# --- the log ------------------------------------------------------------------------------------------
class Log(ABC):
    """A durable, ordered log of operations. All methods raise StoreError when it fails them."""

    @abstractmethod
    async def write(self, *operations: Operation) -> tuple[Any, ...]:
        """Make operations durable, all or none of them, and return the outcome of each.

        That is `Committed` for a record of a track or a flow, else None.
        """

    # --- questions -------------------------------------------------------------------------------
    @abstractmethod
    async def tracks(self, roots: Sequence[str] | None = None) -> tuple[StoredTrack, ...]:
        """Return every track as committed last; of these roots (a few hundred at most) or of all."""

    @abstractmethod
    async def flows(self, roots: Sequence[str] | None = None) -> tuple[StoredFlow, ...]:
        """Return every flow that has not ended, as committed last; of these roots or of all."""

    @abstractmethod
    async def flow(self, key: TrackKey) -> StoredFlow | None:
        """Return one flow, also one that has ended; None when there is none."""

    @abstractmethod
    async def ended_flows(self, root: str, limit: int = 100) -> tuple[EndedFlow, ...]:
        """Return at most `limit` flows of a project that have ended, the latest first."""

    @abstractmethod
    async def past_nodes(self, root: str, flow: str) -> tuple[StoredNode, ...]:
        """Return the nodes of a flow at visits that are superseded, in the order in which they became so."""

    @abstractmethod
    async def pending_effects(self, root: str | None = None) -> tuple[PendingEffect, ...]:
        """Return the effects that are committed and not done, oldest first; of one root or of all."""

    @abstractmethod
    async def projected_before(self, key: TrackKey, digest: str) -> bool:
        """Return whether a text with this `digest_of` was one of our latest 200 projections of the track."""

    @abstractmethod
    async def projected_by_any(self, root: str, digest: str) -> bool:
        """Return the same of any track of a project."""

    @abstractmethod
    async def events(
        self, after: int = 0, project: str | None = None, limit: int = 500
    ) -> tuple[StoredEvent, ...]:
        """Return at most `limit` events with a number above `after`, in order; of one root or of all."""

    @abstractmethod
    async def projects(self) -> tuple[StoredProject, ...]:
        """Return the projects that are looked after, by root."""

    @abstractmethod
    async def origins(self) -> Origins:
        """Return which projects the settings have brought, and which ones a person has removed."""

    @abstractmethod
    async def trusted(self, *roots: str) -> Mapping[str, Mapping[str, str]]:
        """Return the texts that a person has trusted last, by root and file; of these roots, or of all."""

    @abstractmethod
    async def load_baseline(self, key: TrackKey, story: str | None) -> bytes | None:
        """Return the results kept for a story, or None."""

    @abstractmethod
    async def armed(self) -> tuple[StoredSchedule, ...]:
        """Return every schedule that is known, by project and name."""

    # --- operations, by name ---------------------------------------------------------------------
    async def commit(self, record: Record) -> Committed:
        """Return the place of `record` in the order, and its effects with ids, once it is durable."""
        (committed,) = await self.write(record)
        assert isinstance(committed, Committed)
        return committed

    async def commit_flow(self, record: FlowRecord) -> Committed:
        """Return the place of a flow's `record` in the order, and its orders with ids, once it is durable."""
        (committed,) = await self.write(record)
        assert isinstance(committed, Committed)
        return committed

    async def effect_done(self, project: str, effect_id: int, outcome: str = "done") -> None:
        """Mark an effect as performed; the first `outcome` stays when it is marked again."""
        await self.write(OrderDone(project=project, id=effect_id, outcome=outcome))

    async def add_project(self, root: str, name: str, at: datetime) -> None:
        """Look after the project at `root` from now on, as a person wishes; a known one gets its new name."""
        await self.write(ProjectAdded(project=root, name=name, at=at))

    async def add_projects(
        self, newcomers: Sequence[Newcomer], at: datetime, untrusted: Sequence[str] = ()
    ) -> None:
        """Look after many projects from now on, all or none of them.

        `untrusted` names the files of theirs that hold nothing a person has trusted, unless one did before.
        """
        await self.write(
            *(
                ProjectAdded(
                    project=one.root,
                    name=one.name,
                    at=at,
                    brought_by=one.brought_by,
                    untrusted=tuple(untrusted),
                )
                for one in newcomers
            )
        )

    async def let_go(self, roots: Sequence[str], at: datetime) -> None:
        """Look no longer after projects that the settings have brought and name no more."""
        await self.write(*(ProjectLetGo(project=root, at=at) for root in roots))

    async def remove_project(self, root: str, at: datetime) -> None:
        """Look after `root` no longer, as a person wishes. NotFound when it is not looked after."""
        await self.write(ProjectRemoved(project=root, at=at))

    async def save_baseline(self, key: TrackKey, story: str | None, body: bytes) -> None:
        """Keep the results of a story's baseline run, replacing earlier ones."""
        await self.write(BaselineKept(project=key.project, track=key.track, story=story or "", body=body))

    async def trust(self, root: str, file: str, text: str, at: datetime) -> None:
        """Keep the text of a project's own file that a person has trusted, replacing the earlier one."""
        await self.write(FileTrusted(project=root, file=file, text=text, at=at))

    async def arm(self, schedules: Iterable[tuple[str, str, str]], at: datetime) -> None:
        """Know these schedules (project, name, fingerprint) from now on.

        One with another fingerprint begins anew, and so does one that is known since a time to come: the
        clock was wrong then.
        """
        await self.write(
            *(
                ScheduleArmed(project=project, schedule=name, fingerprint=fingerprint, at=at)
                for project, name, fingerprint in schedules
            )
        )

    async def forget(self, schedules: Iterable[tuple[str, str]]) -> None:
        """Forget these schedules (project, name): they are in no settings any more."""
        await self.write(*(ScheduleForgotten(project=project, schedule=name) for project, name in schedules))

    async def settle(self, fire: Fire) -> None:
        """Keep the outcome of a schedule that started nothing; it is dealt with up to then."""
        await self.write(fire)
