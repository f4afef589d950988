"""A look at what others may have written for one track: STATE.json and the hand-off files.

It compares the files with the journal, and differences become facts for the track. What cannot be read or
understood is raised, and becomes the project's condition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path

import anyio
import structlog
from anyio import to_thread
from msgspec import Struct

from handoffd.clock import Clock
from handoffd.engine.beside import on_desk
from handoffd.engine.events import HandoffArrived, StateEdited
from handoffd.engine.track import Dispatch, Track, own_story
from handoffd.errors import HandoffdError, InvalidFile
from handoffd.files.atomic import digest_of
from handoffd.files.rooted import visiting
from handoffd.files.state_file import MAIN, Seen, read_state, write_state
from handoffd.inspection.framework import finished_before
from handoffd.project.files import ProjectFiles
from handoffd.protocol.handoff import Found, HandoffMark, Reading
from handoffd.protocol.reading import Expected
from handoffd.protocol.rules import DONE
from handoffd.protocol.state import ParsedState, Status, parse_state
from handoffd.track.ai_folder import HandoffFiles
from handoffd.track.prompts import dispatch_id
from handoffd.track.services import Services
from handoffd.track.track import TrackSupervisor

log = structlog.get_logger(__name__)

AT_ONCE = 20
"""Most edits in `_STORM_S` that are taken at once; more come from the loop of some tool."""
_STORM_S = 60.0
PACE_S = 5.0
"""How long the next edit of a storm waits: the file as it is then is one edit, whatever came before."""


class Before(Struct, frozen=True, kw_only=True):
    """A track's state before its files were read: it may have gone on since.

    What an agent wrote is its own, even if it has ended when that is decided on.
    """

    dispatch: Dispatch | None
    digest: str | None
    behind: bool

    @classmethod
    def of(cls, track: TrackSupervisor) -> Before:
        """Return the state of a track now."""
        committed = track.committed
        return cls(dispatch=committed.track.ledger.dispatch, digest=committed.digest, behind=committed.behind)


class ExternalChanges:
    """Looks at the tracks of one project; `again` asks for another look."""

    def __init__(
        self,
        root: str,
        files: ProjectFiles,
        services: Services,
        again: Callable[[], None],
        pace_s: float = PACE_S,
    ) -> None:
        self._root = root
        self._files = files
        self._services = services
        self._again = again
        self._settling: HandoffMark | None = None
        """A level-1 hand-off that may still be written on (not yet stable)."""
        self._pace_s = pace_s
        self._edits: deque[float] = deque(maxlen=AT_ONCE)
        """When the latest edits were taken, by the clock that only goes forward."""
        self._calming = False
        self.desk: str | None = None
        """The digest of the STATE.json that several tracks share, as it was shown last; None once the only
        track that is left has shown its own."""

    async def at(self, track: TrackSupervisor, seen: Seen | None, before: Before) -> None:
        """Tell a track what others have written: `seen` is its STATE.json, read after `before`.

        Raises InvalidFile and StoreError.
        """
        await self._at_state(track, seen, before)
        state, dispatch = track.track.state, track.track.ledger.dispatch
        if dispatch is not None:
            track.hint()
        elif state is not None and state.status is Status.RUNNING:
            await self._for_external(track)

    async def inspect(self, track: TrackSupervisor, seen: Seen | None) -> bool:
        """Return whether STATE.json differs from the journal's; change nothing. Raises InvalidFile."""
        if seen is None or seen.digest == track.committed.digest:
            return False
        await to_thread.run_sync(parse_state, seen.text)
        return True

    async def _at_state(self, track: TrackSupervisor, seen: Seen | None, before: Before) -> None:
        """Compare STATE.json with the journal's version."""
        committed = track.committed
        if seen is None:
            if track.track.state is not None:
                if not committed.beside:
                    await self._files.bring_back()  # deleted: the journal has it
                committed.saw(None)
                await committed.project()
            return
        if seen.digest == committed.digest:
            committed.saw(seen.digest)
            committed.inherited_at = None  # an earlier life has shown its last decision
            if self._is_alone(track):
                self.desk = None
            return
        if before.behind:
            await self._later(track)
            return
        ours = await self._services.journal.projected_before(track.key, seen.digest)
        shared = await self._was_shared(track, seen.digest, ours=ours)
        if committed.behind or committed.digest != before.digest:
            await self._later(track)
            return
        unshown = committed.failed_over(seen.digest) or committed.overtook(seen.mtime_ns)
        if ((ours and unshown) or shared) and track.track.state is not None:
            committed.saw(seen.digest)
            await committed.project()  # but old: it was not written over, or a crash came before that
            return
        if self._is_calm(track):
            overtaken = committed.overtook(seen.mtime_ns)
            await self.take_edit(track, seen, before.dispatch, overtaken=overtaken)

    async def _was_shared(self, track: TrackSupervisor, digest: str, *, ours: bool) -> bool:
        """Return whether STATE.json is what it showed of several tracks, of which this one is left.

        That may be an older text of this track: `ours`.
        """
        if not self._is_alone(track):
            return False
        return digest == self.desk or (
            not ours and await self._services.journal.projected_by_any(self._root, digest)
        )

    def _is_alone(self, track: TrackSupervisor) -> bool:
        """Return whether STATE.json is the file of this track."""
        return track.key.track == MAIN and not track.committed.beside

    def _is_calm(self, track: TrackSupervisor) -> bool:
        """Return whether an edit may be taken now, and count it; if not, another look follows."""
        if track.lasting and (wait_s := self._storm()) > 0:
            if not self._calming:
                self._calming = True
                track.begin(f"calm down at {track.key.track}", lambda: self._calm(wait_s))
            return False
        self._edits.append(self._services.clock.monotonic())
        return True

    def _storm(self) -> float:
        """Return for how many seconds edits are ignored, after too many recent ones."""
        now = self._services.clock.monotonic()
        if len(self._edits) < AT_ONCE or now - self._edits[0] >= _STORM_S:
            return 0
        return max(0.0, self._edits[-1] + self._pace_s - now)

    async def _calm(self, wait_s: float) -> None:
        log.warning("STATE.json is edited over and over", project=self._root, next_look_s=round(wait_s, 1))
        try:
            await anyio.sleep(wait_s)
        finally:
            self._calming = False
            self._again()

    async def _later(self, track: TrackSupervisor) -> None:
        """Look again when nothing is being written: what was read may be of before the latest commit."""
        await track.committed.caught_up()
        self._again()

    async def take_edit(
        self, track: TrackSupervisor, seen: Seen, dispatch: Dispatch | None = None, *, overtaken: bool = False
    ) -> None:
        """Tell a track of a STATE.json that others have written, while `dispatch` was in flight.

        `overtaken`: our latest decision is younger than it. Raises InvalidFile.
        """
        try:
            parsed = await to_thread.run_sync(parse_state, seen.text)
        except InvalidFile:
            if track.track.ledger.dispatch is not None:
                await track.committed.project()  # while an executor runs, edits are undone
            raise  # at rest it stays for a person to fix, and the project is marked
        track.committed.saw(seen.digest)
        await self._tell(track, parsed, dispatch, overtaken=overtaken)
        read = partial(read_state, Path(self._root), track.key.track, beside=track.committed.beside)
        latest = await to_thread.run_sync(read)
        if latest is None or latest.digest == seen.digest != track.committed.digest:
            await track.committed.project()
        elif latest.digest != track.committed.digest:
            self._again()  # edited again meanwhile

    async def _tell(
        self, track: TrackSupervisor, parsed: ParsedState, dispatch: Dispatch | None, *, overtaken: bool
    ) -> None:
        for warning in parsed.warnings:
            log.warning("STATE.json normalised", project=self._root, what=warning)
        if track.track.state is None:
            done = await to_thread.run_sync(finished_before, self._root, parsed.state)
        else:
            done = (parsed.state.story,) if parsed.state.story and parsed.state.step == DONE else ()
        await track.give(
            StateEdited(
                state=parsed.state,
                policy=self._files.settings.external_edits,
                dispatch=dispatch.id if dispatch is not None else None,
                overtaken=overtaken,
                done=done,
                tells=True,
                own=own_story(track.key),
            )
        )

    # --- the STATE.json of several tracks --------------------------------------------------------
    async def at_desk(
        self, tracks: Mapping[str, TrackSupervisor], seen: Seen | None, before: Mapping[str, Before]
    ) -> None:
        """Have STATE.json show the track that comes first, by `on_desk`, once an edit of it is taken.

        Raises InvalidFile and StoreError.
        """
        if seen is None:
            await self._files.bring_back()
        elif not await self._is_known(seen) and not await self._took_from_desk(tracks, seen, before):
            return  # it stays until the storm is over
        now = self._services.clock.now()
        text = tracks[on_desk({name: one.track for name, one in tracks.items()})].committed.text
        if seen is not None and seen.digest == digest_of(text):
            self.desk = seen.digest
        else:
            await self._show(text, now, over=() if seen is None else (seen.digest,))

    async def _show(self, text: str, decided_at: datetime, *, over: tuple[str, ...]) -> None:
        """Write STATE.json for all tracks, unless it was edited meanwhile. Raises StoreError."""

        def write() -> str | None:
            root = Path(self._root)
            with visiting(root):
                return write_state(root, MAIN, text, over, decided_at)

        self.desk = await to_thread.run_sync(write)
        if self.desk is None:
            self._again()

    async def _is_known(self, seen: Seen) -> bool:
        """Return whether STATE.json is a text of ours, of whatever track, and however old."""
        return seen.digest == self.desk or await self._services.journal.projected_by_any(
            self._root, seen.digest
        )

    async def _took_from_desk(
        self, tracks: Mapping[str, TrackSupervisor], seen: Seen, before: Mapping[str, Before]
    ) -> bool:
        """Take an edit of STATE.json for the story that it names, for `main` where no other track has it.

        Returns False where that has to wait. Raises InvalidFile.
        """
        try:
            parsed = await to_thread.run_sync(parse_state, seen.text)
        except InvalidFile as error:
            if all(one.track.ledger.dispatch is None for one in tracks.values()):
                raise  # it stays for a person to fix
            log.warning("edit of STATE.json undone", project=self._root, why=str(error))
            return True
        track = tracks.get(parsed.state.story or MAIN, tracks[MAIN])
        known = before.get(track.key.track)
        if not self._is_calm(track):
            return False
        await self._tell(track, parsed, known.dispatch if known is not None else None, overtaken=False)
        return True

    async def differs(self, seen: Seen | None) -> bool:
        """Return whether STATE.json was edited; change nothing. Raises InvalidFile."""
        if seen is None or await self._is_known(seen):
            return False
        await to_thread.run_sync(parse_state, seen.text)
        return True

    async def _for_external(self, track: TrackSupervisor) -> None:
        """Begin to take in a hand-off for an attempt that a person or another tool started (Level 1)."""
        if not track.lasting:
            self._again()  # for when there is a loop; given without one, `apply` hears it
            return
        handoffs = HandoffFiles(track.workspace.folder)
        reading, mark = await to_thread.run_sync(handoffs.read_for, expected_of(track.track))
        if isinstance(reading, Found) and mark != self._settling:
            self._settling, before = mark, track.track
            track.begin(f"settle hand-off of {track.key.track}", lambda: self._settle(track, before, mark))

    async def _settle(self, track: TrackSupervisor, before: Track, mark: HandoffMark) -> None:
        """Apply a hand-off of others once it has been left alone for a moment; a person may do so before."""
        try:
            await anyio.sleep(self._services.settings.execute.settle_s)
            handoffs = HandoffFiles(track.workspace.folder)
            reading, same = await to_thread.run_sync(handoffs.read_for, expected_of(before))
            if same == mark and isinstance(reading, Found):
                await track.give(arrived(before, reading, same, self._services.clock))
        except HandoffdError as error:
            log.warning("hand-off not heard", project=self._root, error=str(error))
        finally:
            self._settling = None
            self._again()


def expected_of(track: Track) -> Expected:
    """Return what a hand-off must be to count for the attempt that others make of a track."""
    state, handed_out = track.state, track.ledger.handed_out
    assert state is not None
    return Expected(
        mark=track.ledger.last_mark, story=state.story, step=state.step, since=state.dispatched_at,
        attempt=state.attempt if handed_out else None, dispatch=handed_out,
    )  # fmt: skip


def arrived(track: Track, reading: Reading, mark: HandoffMark, clock: Clock) -> HandoffArrived:
    """Return the fact that a hand-off is there for the attempt that others make of a track."""
    state = track.state
    assert state is not None
    return HandoffArrived(
        dispatch=track.ledger.handed_out or dispatch_id(clock),
        reading=reading,
        mark=mark,
        step=state.step,
        attempt=state.attempt,
        keeps_gate=True,
    )
