"""A small real house for tests: journal, launcher, project, and an agent.

The agent is a shell script that ends one attempt in the way a test needs; real processes run it under a real
launcher. `house` ends all of them.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio
from msgspec import Struct
from msgspec.structs import replace
from tests.support.runs import end_processes
from tests.support.sandboxes import is_possible

from handoffd import failpoints
from handoffd.capacity.budgets import Budgets
from handoffd.capacity.runqueue import Bid
from handoffd.capacity.slots import Slots
from handoffd.engine.events import Initialised, Started, Verb
from handoffd.engine.notice import Notice
from handoffd.engine.track import Dispatch, Ledger, Phase, Track, TrackKey
from handoffd.execute.process import Launcher
from handoffd.execute.registry import Layer, load_book, shipped_layer
from handoffd.fleet.loops import REST_AFTER_S
from handoffd.fleet.roster import RECORD_LIMIT_S, Roster
from handoffd.journal.journal import Journal
from handoffd.notify.notifier import Notifier, terms_of
from handoffd.protocol.handoff import HandoffMark
from handoffd.protocol.state import State, Status
from handoffd.settings.model import (
    CapSettings,
    ExecuteSettings,
    SandboxSettings,
    SchedulingSettings,
    Settings,
)
from handoffd.settings.notify import NotifySettings
from handoffd.track.services import Services

NOW = datetime(2026, 1, 31, 22, 15, 9, tzinfo=UTC)

HAND_OVER = """\
printf -- '---\\nstep: %s\\ndispatch: %s\\nstatus: pass\\n---\\n' "$HANDOFFD_STEP" "$HANDOFFD_RUN" > .ai/new
mv .ai/new .ai/HANDOFF.md
"""
"""An agent that did its work."""

LIMIT_S = 3600
AT_ITS_LIMIT = f"""\
if ! test -e $HOME/paid; then echo 'limit reached|{NOW.timestamp() + LIMIT_S:.0f}'; exit 1; fi
{HAND_OVER}"""
"""An agent whose account, `purse`, is at its limit for an hour, or until the file `paid` exists."""

SHORT = """\
steps:
  bdd: {next_on_pass: review, timeout_min: 1}
  review: {next_on_pass: update-memory}
"""
"""A pipeline of three steps, so that a story is over soon."""


Json = dict[str, Any]


class MovableClock:
    """The machine's clocks, which tests put forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self.jumped_s = 0.0
        """How far the wall clock was set forward or back."""

    def now(self) -> datetime:
        """Return the wall time, which begins at `NOW` and moves only when a test moves it."""
        return NOW + timedelta(seconds=self.ahead_s + self.jumped_s)

    def monotonic(self) -> float:
        """Return seconds since boot, as shims record them, plus `ahead_s`."""
        return time.monotonic() + self.ahead_s


@dataclass
class Told:
    """A sink that keeps the delivered notices."""

    name: str = "told"
    notices: list[Notice] = field(default_factory=list)

    async def deliver(self, notice: Notice) -> None:
        """Take a notice."""
        self.notices.append(notice)

    def close(self) -> None:
        """Hold nothing."""


class House(Struct, frozen=True):
    """The services, clock and sink of one test, below the folder `base`."""

    services: Services
    clock: MovableClock
    told: Told
    base: Path

    @property
    def journal(self) -> Journal:
        """The journal."""
        return self.services.journal


@asynccontextmanager
async def house(
    base: Path,
    agent: str = HAND_OVER,
    *,
    caps: Json | None = None,
    scheduling: Json | None = None,
    sandbox: Json | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
    **execute: Any,
) -> AsyncIterator[House]:
    """Lend services with an executor named `agent` that runs the shell commands `agent`, within `caps`.

    `environment` is what the daemon has beside a PATH and a HOME, or in place of them.
    """
    script = base / "agent.sh"
    script.write_text(f"cat > /dev/null\n{agent}", encoding="utf-8")
    settings = Settings(
        state_dir=base / "state",
        runtime_dir=base / "run",
        executor="agent",
        executors={"agent": {"extends": "command", "argv": ["/bin/sh", str(script)], **_AGENT}},
        caps=CapSettings.model_validate(caps or {}),
        scheduling=SchedulingSettings.model_validate({"min_free_memory_mb": 0} | (scheduling or {})),
        # The agent's home is below `base`: it keeps there what the test looks at.
        sandbox=SandboxSettings.model_validate(_SANDBOX | {"writable": [str(base)]} | (sandbox or {})),
        execute=ExecuteSettings(**{"handoff_grace_s": 0.2, "settle_s": 0.01, "min_free_mb": 0} | execute),
    )
    for folder in (settings.state_dir, settings.runs_dir):
        folder.mkdir(mode=0o700, exist_ok=True)
    clock, told = MovableClock(), Told()
    own = Layer(file="handoffd.yaml", definitions=settings.executors)
    journal = await Journal.open(settings.journal)
    notifier = Notifier(NotifySettings(), clock, journal.outbox, sinks=[told], terms=_TERMS)
    services = Services(
        settings=settings,
        journal=journal,
        launcher=Launcher(settings.launcher_socket),
        executors=load_book(shipped_layer(), own),
        notifier=notifier,
        slots=Slots(settings.execute.slots, settings.scheduling, clock),
        budgets=Budgets(settings.caps, clock, notifier.send, str(settings.state_dir)),
        clock=clock,
        environment={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(base),
            "SECRET": "s3cret",
            **environment,
        },
    )
    try:
        yield House(services, clock, told, base)
    finally:
        with anyio.CancelScope(shield=True):
            await journal.close()
        end_processes(base)


_SANDBOX: Json = {"level": "auto" if is_possible() else "off", "visible": [sys.prefix]}
_TERMS = replace(terms_of(NotifySettings()), box_retry_s=0.05)
_AGENT = {
    "account": "purse",
    "limits": [r"limit reached\|(?P<reset>\d{10})"],
    "ladder": [{"signal": "TERM", "grace_s": 0.2}, {"signal": "KILL", "grace_s": 1}],
}


def make_project(base: Path, *, rules: str | None = SHORT, settings: str | None = None) -> str:
    """Return the root of a project with a PROJECT_CONTEXT.md, and with these files in `.ai`."""
    root = base / "shop"
    (root / ".ai").mkdir(parents=True)
    (root / "PROJECT_CONTEXT.md").write_text("A shop.\n", encoding="utf-8")
    for name, text in (("step-rules.yaml", rules), ("handoffd.yaml", settings)):
        if text is not None:
            (root / ".ai" / name).write_text(text, encoding="utf-8")
    return str(root)


def at(root: str, name: str) -> Path:
    """Return a path in a project."""
    return Path(root, name)


@contextmanager
def unwritable(house: House, table: str = "events", operation: str = "INSERT") -> Iterator[None]:
    """Make the journal refuse writes to a table, like a full disk."""
    _execute(
        house,
        f"CREATE TRIGGER full BEFORE {operation} ON {table} BEGIN SELECT RAISE(ABORT, 'full'); END",
    )
    try:
        yield
    finally:
        _execute(house, "DROP TRIGGER full")


@contextmanager
def slow_disk() -> Iterator[Callable[[], None]]:
    """Keep all commits of this process waiting, until the function that is lent is called."""
    answers = threading.Event()
    failpoints.arm(lambda point, _: _wait(answers) if point == "before_commit" else None)
    try:
        yield answers.set
    finally:
        answers.set()
        failpoints.arm(None)


def _wait(answers: threading.Event) -> None:
    answers.wait(60)


def _execute(house: House, statement: str) -> None:
    with closing(sqlite3.connect(house.services.settings.journal, timeout=60)) as saboteur:
        saboteur.execute(statement)
        saboteur.commit()


class NoWatch:
    """Watches nothing; the tests give hints themselves."""

    degraded: Mapping[str, str] = MappingProxyType({})

    def add(self, root: str) -> None:
        """Hint about nothing."""

    def remove(self, root: str) -> None:
        """Hint about nothing."""


@asynccontextmanager
async def daemon(
    house: House, *, rest_after_s: float = REST_AFTER_S, record_limit_s: float = RECORD_LIMIT_S
) -> AsyncIterator[Roster]:
    """Lend a roster with running loops, for the projects in the house's journal."""
    roster = Roster(house.services, rest_after_s=rest_after_s, record_limit_s=record_limit_s)
    await roster.load()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(house.services.notifier.run, roster.notice_given_up)
        tasks.start_soon(roster.run, NoWatch())
        tasks.start_soon(house.services.slots.run)
        await anyio.wait_all_tasks_blocked()
        yield roster
        tasks.cancel_scope.cancel()


INITIALISED = Initialised(project="shop")
STARTED = Started(story="US-001")


async def begun(roster: Roster, root: str, *verbs: Verb) -> None:
    """Add a project, initialise it, and give it verbs."""
    await roster.add(root)
    for verb in (INITIALISED, *verbs):
        await roster.give(root, verb)


@asynccontextmanager
async def supervised(
    base: Path, *verbs: Verb, agent: str = HAND_OVER, settings: str | None = None, **options: Any
) -> AsyncIterator[tuple[House, Roster, str]]:
    """Lend a house, its daemon, and the root of one added project that was given `verbs`."""
    async with house(base, agent, **options) as here, daemon(here) as roster:
        root = make_project(base, settings=settings)
        await roster.add(root)
        for verb in verbs:
            await roster.give(root, verb)
        yield here, roster, root


def bid(root: str = "/srv/shop", executor: str = "claude", **more: Any) -> Bid:
    """Return the bid of a project's main track; its account has the executor's name."""
    values: dict[str, Any] = {
        "key": TrackKey(root), "executor": executor, "account": executor, "what": Path(root).name,
    }  # fmt: skip
    return Bid(**values | more)


def dispatch_of(run: str = "d1", *, phase: Phase = Phase.EXECUTING, **more: Any) -> Dispatch:
    """Return a dispatch of bdd without a request to stop it."""
    values: dict[str, Any] = {
        "id": run, "story": "US-001", "step": "bdd", "attempt": 1, "executor": "agent", "decided_at": NOW,
        "phase": phase, "mark": HandoffMark(),
    }  # fmt: skip
    return Dispatch(**values | more)


def track_of(status: Status = Status.PENDING, *, dispatch: Dispatch | None = None, **state: Any) -> Track:
    """Return a track of the story US-001 at bdd."""
    values: dict[str, Any] = {"project": "shop", "story": "US-001", "step": "bdd", "max_attempts": 3}
    return Track(
        state=State(**values | {"status": status} | state), ledger=Ledger(automatic=True, dispatch=dispatch)
    )
