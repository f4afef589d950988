"""Restores a backup of the journal after projects, agents and their records have moved on.

A backup is unaware of everything after it. The worst outcome would be repeating an attempt of long ago, or
starting one beside a running one. So executors that the backup does not know must have ended, an attempt
that was in flight is dropped unless it plainly is still the project's latest, and every project is paused
until a person resumes it. At its next start the daemon reads STATE.json and the hand-offs of the projects,
and treats differences like any change from outside.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from shlex import quote

import anyio
from anyio import to_thread
from msgspec import Struct

from handoffd.clock import Clock
from handoffd.engine.decide import decide
from handoffd.engine.events import Restored
from handoffd.engine.flow.decide import decide_flow
from handoffd.engine.flow.events import FlowPaused
from handoffd.engine.track import TrackKey
from handoffd.engine.wording import first_few
from handoffd.errors import HandoffdError, Locked, Refused
from handoffd.execute.run import Run, living
from handoffd.files.errors import storage_error
from handoffd.files.locks import FileLock, acquire, daemon_lock_path
from handoffd.files.state_file import MAIN, read_state
from handoffd.inspection.own_files import shipped_layers
from handoffd.journal.backup import Progress, discard, exchange, inspect_backup, made_ready
from handoffd.journal.journal import Journal
from handoffd.journal.records import FlowRecord, Record, StoredFlow, StoredTrack
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.state import render_state
from handoffd.settings.model import Settings

EXECUTORS_RUN = "EXECUTORS_RUN"

_END_LIMIT_S = 60.0
"""How long executors may take to end by themselves before their shims are killed."""


class Request(Struct, frozen=True, kw_only=True):
    """What a person requests."""

    file: Path
    by: str
    end_executors: bool = False


class Omitted(Struct, frozen=True, kw_only=True):
    """A track that is not restored: its record in the backup differs from what its last event wrote."""

    project: str
    track: str
    why: str


class Restoration(Struct, frozen=True, kw_only=True):
    """The result of a restore. Runs are named by their ids, projects by their roots.

    `newest` is the number of the last event in the backup; `replaced` the new path of the old journal.
    """

    file: str
    journal: str
    newest: int
    replaced: str | None
    paused: tuple[str, ...]
    kept: tuple[str, ...]
    overtaken: tuple[str, ...]
    ended: tuple[str, ...]
    left_out: tuple[Omitted, ...] = ()


async def restore(
    settings: Settings, request: Request, clock: Clock, progress: Progress = lambda _, __: None
) -> Restoration:
    """Put a backup in the journal's place and return the consequences.

    Raises Locked while a daemon runs, Refused (EXECUTORS_RUN) while executors run that the backup
    does not know, and StoreError when it cannot be used; an error changes nothing.
    """
    with _alone(settings):
        found = await to_thread.run_sync(inspect_backup, request.file, settings.journal)
        at = clock.now()
        ready = await to_thread.run_sync(made_ready, request.file, settings.journal, at, progress)
        try:
            left_out, told = await _Restoring(settings, request.by, at).settle(ready, request)
            replaced = await to_thread.run_sync(exchange, ready, settings.journal, at)
        finally:
            await to_thread.run_sync(discard, ready)
    return Restoration(
        file=str(request.file), journal=str(settings.journal), newest=found.newest,
        replaced=None if replaced is None else str(replaced), left_out=left_out, **told,
    )  # fmt: skip


async def catch_up(settings: Settings, made: Collection[TrackKey], by: str, clock: Clock) -> tuple[str, ...]:
    """Hold repaired tracks that a restore had left out, and return their projects, paused for a person.

    The caller has the daemon's lock, and passes in `made` only tracks without an event since the restore.
    """
    journal = await Journal.open(settings.journal)
    try:
        late = [one for one in await journal.tracks() if one.key in made]
        flows = [one for one in await journal.flows() if one.key in made]
        restoring = _Restoring(settings, by, clock.now())
        kept = await to_thread.run_sync(lambda: {run for one in late for run in restoring.latest(one)})
        paused = [root for one in late for root in await restoring.hold(journal, one, kept)]
        paused += [root for one in flows for root in await restoring.pause(journal, one)]
        return tuple(dict.fromkeys(paused))
    finally:
        await journal.close()


def _alone(settings: Settings) -> FileLock:
    try:
        return acquire(daemon_lock_path(settings.state_dir), f"the state directory {settings.state_dir}")
    except Locked as locked:
        raise Locked(locked.message, hint="handoffd stop  # executors go on") from locked


class _Restoring:
    """One restore: what runs, and how each track of the backup continues."""

    def __init__(self, settings: Settings, by: str, at: datetime) -> None:
        self._settings = settings
        self._by = by
        self._at = at
        self._rules = build_rulebook(shipped_layers(None))

    async def settle(
        self, ready: Path, request: Request
    ) -> tuple[tuple[Omitted, ...], dict[str, tuple[str, ...]]]:
        """Pause the tracks of the backup; return the omitted ones, and the outcome of the others.

        A decision on a tampered record would hide the change: the record stays as it is, and its project
        waits for a repair.
        """
        journal = await Journal.open(ready)
        try:
            stored = await journal.tracks()
            flows = await journal.flows()
            tracks = [one for one in stored if one.unsound is None]
            kept = await to_thread.run_sync(lambda: {run for track in tracks for run in self.latest(track)})
            kept |= {run for flow in flows if flow.unsound is None for run in commands_of(flow)}
            ended = await self._end_strangers(kept, request)
            flying = {one.track.ledger.dispatch.id for one in tracks if one.track.ledger.dispatch is not None}
            paused = [root for one in tracks for root in await self.hold(journal, one, kept)]
            paused += [root for one in flows for root in await self.pause(journal, one)]
        finally:
            await journal.close()
        faults = {one.key: one.unsound for one in stored} | {one.key: one.unsound for one in flows}
        left_out = tuple(
            Omitted(project=key.project, track=key.track, why=why)
            for key, why in faults.items()
            if why is not None
        )
        return left_out, {
            "paused": tuple(dict.fromkeys(paused)),
            "kept": tuple(sorted(kept)),
            "overtaken": tuple(sorted(flying - kept)),
            "ended": ended,
        }

    def latest(self, one: StoredTrack) -> Iterator[str]:
        """Yield the attempt in flight in the backup if it plainly is still the project's latest.

        STATE.json says `running` from its start to its end: unchanged, nothing came after it.
        """
        dispatch = one.track.ledger.dispatch
        if dispatch is None or not Path(self._settings.runs_dir, dispatch.id).is_dir():
            return
        for beside in (True, False) if one.key.track == MAIN else (True,):
            with suppress(HandoffdError):  # an unreadable file proves nothing
                seen = read_state(Path(one.key.project), one.key.track, beside=beside)
                if seen is not None and seen.digest == one.digest:
                    yield dispatch.id
                    return

    async def _end_strangers(self, kept: set[str], request: Request) -> tuple[str, ...]:
        """End, or refuse, executors that the backup does not know."""
        running = await to_thread.run_sync(_running, self._settings.runs_dir)
        strangers = {name: run for name, run in running.items() if not {name, name.partition(".")[0]} & kept}
        if strangers and not request.end_executors:
            raise _executors_run(strangers, request.file)
        for run in strangers.values():
            run.stop()
        with anyio.move_on_after(_END_LIMIT_S):
            for run in strangers.values():
                await run.wait()
        for run in strangers.values():
            run.kill()  # its shim is gone, or it would not end
        return tuple(sorted(strangers))

    async def hold(self, journal: Journal, one: StoredTrack, kept: set[str]) -> list[str]:
        """Record the restore in a track; return its root if it now waits for a person."""
        ledger, dispatch = one.track.ledger, one.track.ledger.dispatch
        if one.track.state is None or (dispatch is None and not ledger.automatic):
            return []  # it starts nothing without a person
        overtaken = dispatch is not None and dispatch.id not in kept
        event = Restored(overtaken=overtaken, by=f"{self._by} (journal restore)")
        decision = decide(one.track, event, self._rules, self._at)
        state = decision.track.state
        assert state is not None
        if decision.track == one.track:
            return []
        await journal.commit(
            Record(
                key=one.key, at=self._at, event=event, track=decision.track, effects=decision.effects,
                result=decision.result, why=decision.why, state_text=render_state(state),
                rules=self._rules, grounds=decision.grounds,
            )
        )  # fmt: skip
        return [one.key.project]

    async def pause(self, journal: Journal, one: StoredFlow) -> list[str]:
        """Pause a flow, so that a person has to resume it; return its root if that is new."""
        if one.unsound is not None:
            return []
        event = FlowPaused(by=f"{self._by} (journal restore)")
        decision = decide_flow(one.flow, event, one.plan, self._at)
        if decision.refused is not None:
            return []  # it is paused already
        await journal.commit_flow(
            FlowRecord(
                project=one.key.project, id=one.flow.id, at=self._at, event=event, before=one.flow,
                after=decision.flow, orders=decision.orders, reasons=decision.reasons, past=decision.past,
                why="the journal was restored from a backup", story=one.story,
            )
        )  # fmt: skip
        return [one.key.project]


def commands_of(stored: StoredFlow) -> set[str]:
    """Return the runs that a flow has in flight as commands, by name."""
    flow = stored.flow
    return {f"{flow.id}.{flow.nodes[node].number}" for node in flow.busy}


def _running(runs_dir: Path) -> dict[str, Run]:
    """Return the runs with a living process, by name."""
    try:
        return {run.run_dir.name: run for run in living(runs_dir)}
    except (OSError, ValueError) as error:
        raise storage_error("look for runs", runs_dir, error) from error


def _executors_run(strangers: dict[str, Run], file: Path) -> Refused:
    shown = first_few([f"{name} (process {run.pid})" for name, run in sorted(strangers.items())])
    return Refused(
        f"executors run of which the backup knows nothing: {shown}",
        code=EXECUTORS_RUN,
        hint=f"handoffd journal restore {quote(str(file))} --end-executors  # or wait for their end",
    )
