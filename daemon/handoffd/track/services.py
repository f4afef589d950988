"""What every supervised track shares: built once by `app`, handed down, never global."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import anyio

from handoffd.capacity.accounts import Accounts
from handoffd.capacity.budgets import Budgets
from handoffd.capacity.machine import Descriptors
from handoffd.capacity.meters import Meters
from handoffd.capacity.slots import Slots
from handoffd.clock import Clock
from handoffd.engine.wording import command_for
from handoffd.errors import Locked
from handoffd.execute.meter import PriceTable
from handoffd.execute.process import Launcher
from handoffd.execute.registry import ExecutorBook
from handoffd.journal.journal import Journal
from handoffd.metrics.recorder import Recorder, Uncounted
from handoffd.notify.notifier import Notifier
from handoffd.settings.model import Settings
from handoffd.settings.schedule import ScheduledStart
from handoffd.track.reach import FEW


class Claims:
    """Which root a folder belongs to, by its lock's name: two paths to one folder are one project.

    A project at rest holds no lock, but keeps its claim.
    """

    def __init__(self) -> None:
        self._roots: dict[str, str] = {}

    def take(self, name: str, root: str) -> None:
        """Have the folder belong to `root`. Raises Locked when it belongs to another one."""
        owner = self._roots.setdefault(name, root)
        if owner != root:
            why = f"the project {root} is in use: {owner} is the same folder"
            raise Locked(why, hint=command_for(owner, "status"))

    def drop(self, name: str | None, root: str) -> None:
        """End the claim of `root` on the folder, if it has it."""
        if name is not None and self._roots.get(name) == root:
            del self._roots[name]


class OwnSchedules:
    """What the projects' own settings say, as far as they were read and trusted."""

    def __init__(self) -> None:
        self.starts: dict[str, tuple[ScheduledStart, ...]] = {}
        self.revision = 0
        """Rises with every change."""

    def learn(self, root: str, starts: tuple[ScheduledStart, ...]) -> None:
        """Take over what a project's settings say now."""
        if self.starts.get(root, ()) == starts:
            return
        self.starts.pop(root, None)
        if starts:
            self.starts[root] = starts
        self.revision += 1


@dataclass(slots=True, kw_only=True)
class Services:
    """The daemon's adapters. `environment` is the daemon's own, read once at start.

    `settings`, `executors` and `prices` are those in force: only `Reloading` puts others
    in their place, so they are read when they are needed.
    """

    settings: Settings
    journal: Journal
    launcher: Launcher
    executors: ExecutorBook
    notifier: Notifier
    slots: Slots
    budgets: Budgets
    clock: Clock
    environment: dict[str, str] = field(repr=False)
    meters: Meters = field(default_factory=Meters)
    """Reads along what running executors print."""
    asking: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(FEW))
    """Bounds how many projects are asked for their folder at once: after a sweep that may be hundreds."""
    prices: PriceTable = field(default_factory=PriceTable)
    """What tokens cost of which no agent tells the cost."""
    descriptors: Descriptors = field(default_factory=Descriptors)
    """Whether this process may open enough files for one more executor."""
    accounts: Accounts = field(default_factory=Accounts)
    """Which accounts must not be asked now."""
    recorder: Recorder = field(default_factory=Uncounted)
    """Counts what happens, for Prometheus."""
    claims: Claims = field(default_factory=Claims)
    """Which folder belongs to which project."""
    own_schedules: OwnSchedules = field(default_factory=OwnSchedules)
    """What projects want started by the clock."""
    told_of_disks: set[int] = field(default_factory=set)
    """The devices that people were told of as short of room, until there is plenty."""

    def run_dir(self, run_id: str) -> Path:
        """Return where the records of a run are kept."""
        return self.settings.runs_dir / run_id
