"""Reads, below the socket: status, runs and their output, events, usage, and undelivered notices."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from tests.support.notices import NOTICE, MemoryDesk
from tests.support.recorded import spoil
from tests.support.runs import run_spec
from tests.support.supervision import MemorySupervision, project_view, track_view, whereabouts
from tests.unit.journal.making import KEY, NOW, dispatch, parcel, record, track

from handoffd.api.answers import HeldBack, HistoryGap, SinkBacklog, WaitingMatter
from handoffd.api.reads import (
    MOST_WAITING,
    Reads,
    RunLog,
    Tail,
    find_log,
    has_log,
    pieces,
    tried_sinks,
)
from handoffd.clock import SystemClock
from handoffd.engine.events import Aborted, Advanced, ExecutorExited, ExecutorStarted
from handoffd.engine.notice import Opening, Parcel
from handoffd.engine.run import Exit, Footprint, Usage
from handoffd.engine.track import Phase, TrackKey
from handoffd.errors import NotFound, Refused, StoreError
from handoffd.execute.runner import capture
from handoffd.journal.journal import Journal
from handoffd.protocol.handoff import Absent
from handoffd.protocol.state import Status

RUNS = Path("/nowhere/runs")


def reads(supervision: MemorySupervision, journal: Journal, *, daemon: bool = True, **more: Any) -> Reads:
    """Return what a daemon answers, or a command without one."""
    return Reads(supervision, journal, SystemClock(), RUNS, daemon=daemon, **more)


@pytest.fixture
def asked(supervision: MemorySupervision, journal: Journal) -> Reads:
    """What a daemon answers about two projects."""
    return reads(supervision, journal)


@pytest.fixture
def offline(supervision: MemorySupervision, journal: Journal) -> Reads:
    """What a command answers without a daemon."""
    return reads(supervision, journal, daemon=False)


async def began(journal: Journal, run: str = "d1", phase: Phase = Phase.STARTING) -> None:
    """Commit the beginning of a run."""
    begun = track(status=Status.RUNNING, dispatch=dispatch(run, phase=phase))
    await journal.commit(record(Advanced(dispatch=run, executor="claude"), after=begun))


async def test_status_is_of_all_or_of_one(asked: Reads, offline: Reads) -> None:
    """With whether a daemon answers."""
    assert ["/srv/shop", "/srv/empty"] == [one.project for one in (await asked.status()).projects]
    assert ["/srv/shop"] == [one.project for one in (await asked.status("shop")).projects]
    assert [True, False] == [(await one.status()).daemon for one in (asked, offline)]


async def test_status_has_undelivered_notices(
    supervision: MemorySupervision, journal: Journal, offline: Reads
) -> None:
    """And, from a daemon, the time of the next try."""
    asked = reads(supervision, journal, desk=MemoryDesk({"web": 4.25}))
    assert [] == (await asked.status()).notices

    await journal.outbox.keep([parcel("a")], 1)
    (waiting,) = await journal.outbox.waiting("web", 0, 1)
    await journal.outbox.failed(waiting.number, "no route", 2)

    untold = SinkBacklog(
        sink="web", undelivered=1, oldest=NOW, failed_tries=1, last_error="no route", next_try_s=4.2,
        given_up=0,
    )  # fmt: skip
    assert [untold] == (await asked.status()).notices
    assert [replace(untold, next_try_s=None)] == (await offline.status("shop")).notices


async def test_without_a_daemon_a_dead_process_is_not_shown_as_running(journal: Journal) -> None:
    """The records say running; the process id is there only if a process is."""
    running = track_view(status="running", dispatch="20260131T221509-00000000", pid=1)
    supervision = MemorySupervision(project_view("/srv/shop", running))

    told = await reads(supervision, journal, daemon=False).status()

    assert told.projects[0].tracks[0].pid is None


async def test_the_status_of_one_project_has_the_screen_of_its_gate(
    supervision: MemorySupervision, asked: Reads
) -> None:
    """That of all has none, nor has a track that waits for something else."""
    told = (await asked.status("shop")).projects[0].tracks[0].review
    assert told is not None
    assert "approve review?" == told.asked
    assert [None] == [track.review for one in (await asked.status()).projects for track in one.tracks]
    supervision.projects["/srv/shop"] = project_view("/srv/shop", track_view(gate=False))
    assert (await asked.status("shop")).projects[0].tracks[0].review is None


async def test_where_a_finished_story_is_is_in_its_status_and_in_its_story(
    supervision: MemorySupervision, asked: Reads
) -> None:
    """Of one in flight nothing is asked; nor of one that is landed, where all projects are shown."""
    where = whereabouts("/srv/shop")
    supervision.where = where
    ended = track_view(step="done", status="pass", gate=False, workspace="/state/US-001")
    supervision.projects["/srv/shop"] = project_view("/srv/shop", ended)

    assert where == (await asked.status("shop")).projects[0].tracks[0].whereabouts
    assert (await asked.status()).projects[0].tracks[0].whereabouts is None
    assert (await asked.story("shop")).whereabouts is None
    in_root = track_view(step="done", status="pass", gate=False, branch="handoffd/US-001")
    supervision.projects["/srv/shop"] = project_view("/srv/shop", in_root)
    assert (await asked.status("shop")).projects[0].tracks[0].whereabouts is None


async def test_an_aborted_story_is_in_the_report_with_its_branch(
    supervision: MemorySupervision, asked: Reads, journal: Journal
) -> None:
    """Also once the track has forgotten it: the journal has it."""
    begun = replace(dispatch("d-1"), story="US-3")
    running = track("bdd", Status.RUNNING, story="US-3", dispatch=begun)
    at = SystemClock().now()
    await journal.commit(record(Advanced(dispatch="d-1", executor="claude"), after=running, at=at))
    await journal.commit(record(Aborted(by="mei"), after=track("bdd", story="US-3"), at=at))
    supervision.where = whereabouts("/srv/shop", branch="handoffd/US-3")
    supervision.unknown = frozenset({"US-3", "US-4"})

    (told,) = (await asked.report("shop")).dropped

    assert ("US-3", "aborted", "mei", "handoffd/US-3") == (told.story, told.outcome, told.by, told.branch)
    story = await asked.story("shop", "US-3")
    assert ("closed", supervision.where) == (story.standing, story.whereabouts)
    with pytest.raises(NotFound):
        await asked.story("shop", "US-4")


async def test_no_landing_is_offered_that_must_fail(supervision: MemorySupervision, asked: Reads) -> None:
    """Wherever a story waits to be landed: the conflict is named, and the merge is what to type."""
    merge = "git -C /srv/shop merge handoffd/US-001"
    supervision.where = whereabouts("/srv/shop", would="conflict", says="conflicts in a.py", command=merge)
    ended = track_view(
        step="done", status="pass", gate=False, workspace="/state/US-001", to_land=True,
        next_command="handoffd land /srv/shop --story US-001",
    )  # fmt: skip
    supervision.projects["/srv/shop"] = project_view("/srv/shop", ended)

    for told in (await asked.status(), await asked.status("shop")):
        track = told.projects[0].tracks[0]
        assert (merge, supervision.where) == (track.next_command, track.whereabouts)
    (waiting,) = (await asked.report("shop")).waiting
    assert (merge, "done, conflicts in a.py") == (waiting.command, waiting.why)


async def test_a_gate_can_be_seen_as_it_was_and_since(asked: Reads, offline: Reads) -> None:
    """By the project's name; with whether a daemon answers."""
    gate = await asked.gate("shop", since_last=True)
    assert ("shop", True, "approve review again?") == (gate.name, gate.daemon, gate.asked)
    assert not (await offline.gate("/srv/shop")).daemon


async def test_open_gates_are_listed_with_the_one_first_that_waits_longest(
    supervision: MemorySupervision, journal: Journal
) -> None:
    """A gate without a notice comes last; a track elsewhere is left out."""
    supervision.projects = {
        root: project_view(root, track_view(title="Dark mode", gate=root != "/srv/d"))
        for root in ("/srv/a", "/srv/b", "/srv/c", "/srv/d")
    }
    asked = reads(supervision, journal)
    for seconds, root in enumerate(("/srv/c", "/srv/b")):
        notice = replace(parcel(root).notice, project=root, at=NOW + timedelta(seconds=seconds))
        opening = Opening(lane=(root, "main"))
        await journal.outbox.keep([replace(parcel(root), notice=notice, opens=opening)], 1)

    gates = (await asked.gates()).gates

    assert ["/srv/c", "/srv/b", "/srv/a"] == [one.project for one in gates]
    assert ("c", "US-001", "Dark mode", "review", "handoffd gate /srv/c") == (
        gates[0].name, gates[0].story, gates[0].title, gates[0].step, gates[0].command,
    )  # fmt: skip
    assert gates[2].since is None


async def test_runs_have_their_usage_so_far(
    supervision: MemorySupervision, journal: Journal, asked: Reads, offline: Reads
) -> None:
    """From a daemon as of now; without one, the recorded usage, if any."""
    await began(journal, phase=Phase.EXECUTING)
    supervision.used["d1"] = Usage(output_tokens=7)

    assert [7] == [run.usage and run.usage.tokens for run in (await asked.runs()).runs]
    assert [None] == [run.usage for run in (await offline.runs()).runs]


async def test_the_status_of_one_project_has_the_footprint_of_its_last_attempt(
    journal: Journal, asked: Reads
) -> None:
    """Also while the next one runs; the status of all projects omits it."""
    assert [None] == [one.tracks[0].footprint for one in (await asked.status("shop")).projects]
    await began(journal, phase=Phase.EXECUTING)
    took = Footprint(memory_peak=7, memory_max=9, tasks_peak=2)
    ended = ExecutorExited(dispatch="d1", exit=Exit(code=0, seconds=1.5, footprint=took), reading=Absent())
    await journal.commit(record(ended, after=track(status=Status.PASS)))
    await began(journal, "d2")

    (run, last) = (await asked.runs("shop")).runs
    (told,) = (await asked.status("shop")).projects
    assert [None] == [run.exit]
    assert took == told.tracks[0].footprint == (last.exit and last.exit.footprint)
    assert told.tracks == (await asked.project_in_full("shop")).tracks
    assert [None] == [one.footprint for one in (await asked.status()).projects[0].tracks]


async def test_projects_are_listed_in_short(asked: Reads) -> None:
    """One with a story, one without a STATE."""
    listed = (await asked.projects()).projects

    assert [("shop", "review", "needs_human"), ("empty", None, None)] == [
        (one.name, one.step, one.status) for one in listed
    ]
    assert [[("US-001", "review", "needs_human")], []] == [
        [(story.story, story.step, story.status) for story in one.stories] for one in listed
    ]


async def test_events_are_the_last_ones_or_those_after_a_number(journal: Journal, asked: Reads) -> None:
    """Both orders are oldest first."""
    for why in ("one", "two", "three"):
        await journal.commit(record(why=why))

    async def whys(*of: Any) -> list[str]:
        return [event.why for event in (await asked.events(*of)).events]

    assert ["two", "three"] == await whys("shop", None, 2)
    assert ["one", "two"] == await whys(None, 0, 2)
    assert [] == await whys("empty", 0, 10)


async def test_removed_events_are_a_gap_in_their_place(journal: Journal, asked: Reads) -> None:
    """For a reader before it or inside it, unless its page ends before."""
    for why in ("one", "two", "three", "four"):
        await journal.commit(record(why=why))
    await journal.pruning.cover(KEY, 3, track())
    await journal.pruning.drop(KEY, 3, NOW)
    whole = HistoryGap(after=0, next=3, why="older events are not kept")

    async def told(after: int | None, limit: int) -> tuple[list[str], list[HistoryGap]]:
        found = await asked.events(None, after, limit)
        return [event.why for event in found.events], found.gaps

    assert (["three", "four"], [whole]) == await told(None, 50) == await told(0, 50)
    assert (["three"], [whole]) == await told(0, 1)
    assert (["three", "four"], [replace(whole, after=1)]) == await told(1, 50)
    assert (["four"], []) == await told(None, 1)
    assert (["three", "four"], []) == await told(2, 50)
    assert (["four"], []) == await told(3, 50)
    assert ([], []) == await told(None, 0) == await told(0, 0)


async def test_a_log_is_asked_for_by_project_or_run(journal: Journal, asked: Reads) -> None:
    """Without either, or in a project without runs, the error has the next command."""
    await began(journal)

    with pytest.raises(Refused):
        await asked.log_of(None, None)
    with pytest.raises(NotFound, match="no executor has run in /srv/shop yet"):
        await asked.log_of("shop", None)
    begun = track(status=Status.RUNNING, dispatch=dispatch())
    await journal.commit(record(ExecutorStarted(dispatch="d1", pid=7), after=begun))
    with pytest.raises(NotFound, match="no longer kept"):
        await asked.log_of("shop", None)


# --- notices -----------------------------------------------------------------------------------------
@pytest.fixture
async def waiting(journal: Journal) -> Journal:
    """A journal with one project, whose track needs a person at bdd."""
    await journal.add_project(KEY.project, "shop", NOW)
    before = track()
    assert before.state is not None
    await journal.commit(replace(record(), track=before.with_state(status=Status.NEEDS_HUMAN)))
    return journal


def gate(name: str = "gate", key: TrackKey = KEY, *, opens: TrackKey | None = KEY, **more: Any) -> Parcel:
    """Return a notice about that track's gate."""
    sent = parcel(name, key, opens=opens, **more)
    return replace(sent, notice=replace(sent.notice, story="US-1", step="bdd"))


async def test_an_open_matter_has_the_time_of_its_next_reminder(
    supervision: MemorySupervision, waiting: Journal
) -> None:
    """With the command to type; without a daemon the time is unknown."""
    await waiting.outbox.keep([gate()], 1)
    await waiting.outbox.keep([gate("r", opens=None, climbed=("gate", 60.0))], 2)
    desk = MemoryDesk(again={"gate": NOW + timedelta(hours=1)})

    asked = reads(supervision, waiting, desk=desk)
    found = await asked.notices()
    shown = WaitingMatter(
        project="/srv/shop", track="main", name="shop", story="US-1", kind="needs_human", text=NOTICE.text,
        next=NOTICE.action, since=NOW, reminded_min=60.0, again_at=NOW + timedelta(hours=1),
    )  # fmt: skip
    assert ([shown], 0) == (found.waiting, found.more_waiting)
    elsewhere = await asked.notices("empty")
    assert ([], 0) == (elsewhere.waiting, elsewhere.more_waiting)
    assert [shown] == (await asked.notices(KEY.project)).waiting
    offline = await reads(supervision, waiting, daemon=False).notices()
    assert [replace(shown, again_at=None)] == offline.waiting
    assert ["web"] == [one.sink for one in offline.sinks]


async def test_an_open_matter_has_the_command_of_status(
    supervision: MemorySupervision, waiting: Journal
) -> None:
    """What to look at first, or a merge by hand; of another story, that of its notice."""
    await waiting.outbox.keep([gate()], 1)
    root, asked, shown = KEY.project, reads(supervision, waiting), []
    by_hand = whereabouts(root, command=f"git -C {root} merge handoffd/US-1")
    for seen, where in (
        (track_view(story="US-1", next_command="handoffd retry", look_command="handoffd log"), None),
        (track_view(story="US-1", step="done", to_land=True, next_command="handoffd land"), by_hand),
        (track_view(story="US-2", look_command="handoffd log"), None),
    ):
        supervision.projects[root], supervision.where = project_view(root, seen), where
        shown += [one.next for one in (await asked.notices()).waiting]
    assert ["handoffd log", by_hand.command, NOTICE.action] == shown


async def test_a_matter_that_is_over_is_not_listed(asked: Reads, waiting: Journal, tmp_path: Path) -> None:
    """Although no daemon has run since; neither is one that is damaged or of a removed project."""
    await waiting.outbox.keep([gate()], 1)
    await waiting.commit(record())
    assert [] == (await asked.notices()).waiting

    itself = KEY._replace(track="")
    await waiting.outbox.keep([gate("odd", itself, opens=itself)], 1)
    spoil(tmp_path / "journal.db", "UPDATE notices SET body = '{' WHERE id = 'odd'")
    assert [] == (await asked.notices()).waiting
    await waiting.outbox.keep([gate("trust", itself, opens=itself)], 1)
    assert 1 == len((await asked.notices()).waiting)
    await waiting.remove_project(KEY.project, NOW)
    assert [] == (await asked.notices()).waiting


async def test_a_notice_that_is_held_back_has_an_end_and_a_reason(
    supervision: MemorySupervision, waiting: Journal
) -> None:
    """With its sink."""
    await waiting.outbox.keep([gate(held={"web": "quiet"}, opens=None)], 1)
    desk = MemoryDesk(held={("web", "quiet"): NOW})

    found = await reads(supervision, waiting, desk=desk).notices()
    held = HeldBack(sink="web", reason="quiet", count=1, since=NOW, until=NOW)
    assert ([held], []) == (found.held, found.sinks)


async def test_of_many_matters_the_oldest_are_shown(asked: Reads, waiting: Journal) -> None:
    """The answer counts the others."""
    many = [gate(str(number), opens=KEY._replace(track=str(number))) for number in range(MOST_WAITING + 3)]
    await waiting.outbox.keep(many, 1)

    assert 3 == (await asked.notices()).more_waiting


async def test_a_matter_without_reminders_is_listed_too(asked: Reads, waiting: Journal) -> None:
    """JSON has no infinite numbers."""
    itself, condition = KEY._replace(track=""), KEY._replace(track="~condition")
    await waiting.outbox.keep([gate("trouble", itself, opens=condition, reached_min=math.inf)], 1)

    (shown,) = (await asked.notices()).waiting
    assert ("", None, None) == (shown.track, shown.reminded_min, shown.again_at)


def test_a_trial_succeeds_if_every_sink_took_it() -> None:
    """Each sink has its own result."""
    both = tried_sinks([("a", "ntfy", None, 0.1), ("b", "command", "exit code 1", 0.2)])

    assert (False, [True, False]) == (both.ok, [one.ok for one in both.sinks])
    assert tried_sinks([("a", "ntfy", None, 0.1)]).ok


# --- the output of a run -----------------------------------------------------------------------------
RUN = "20260131T221509-0a1b2c3d"


class Written:
    """A run that writes as its shim would."""

    def __init__(self, root: Path, *, head: int = 1000, tail: int = 800) -> None:
        self.runs_dir = root / "state"
        self.run_dir = self.runs_dir / RUN
        self.run_dir.mkdir(parents=True)
        spec = run_spec(root, RUN, "true")
        (self.run_dir / "spec.json").write_text(spec.to_json(), encoding="utf-8")
        position = os.open(self.run_dir / "output.pos", os.O_WRONLY | os.O_CREAT, 0o600)
        self.ring = capture.Ring(
            capture.open_output(spec.output, str(root)), position, head, tail, remember=10
        )

    def write(self, text: bytes) -> None:
        """Write some output."""
        self.ring.write(memoryview(text))

    def end(self) -> None:
        """End the run."""
        self.ring.close()
        (self.run_dir / "exit.json").write_text("{}", encoding="utf-8")

    @property
    def log(self) -> RunLog:
        """The log of the run."""
        return find_log(self.runs_dir, RUN)


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    """A run without output so far."""
    written = Written(tmp_path)
    yield written
    written.ring.close()


async def test_without_following_the_output_ends_here(written: Written) -> None:
    """A run that goes on is shown as far as it has come."""
    written.write(b"so far\n")

    with anyio.fail_after(60):
        shown = [one async for one in pieces(written.log, follow=False, closing=anyio.Event())]
    assert [b"so far\n"] == shown


async def test_following_ends_with_the_run_and_misses_nothing(written: Written) -> None:
    """Also the output just before the end."""
    written.write(b"first\n")
    seen = []

    with anyio.fail_after(60):
        async for piece in pieces(written.log, follow=True, closing=anyio.Event()):
            seen.append(piece)
            if len(seen) == 1:
                written.write(b"last\n")
                written.end()

    assert b"first\nlast\n" == b"".join(seen)


async def test_following_ends_with_the_server(written: Written) -> None:
    """A daemon that stops does not wait for runs that go on."""
    closing, seen = anyio.Event(), []
    written.write(b"so far\n")

    with anyio.fail_after(60):
        async for piece in pieces(written.log, follow=True, closing=closing):
            seen.append(piece)
            closing.set()

    assert [b"so far\n"] == seen


def test_a_line_replaces_output_that_was_not_kept(tmp_path: Path) -> None:
    """The middle of a flood."""
    written = Written(tmp_path, head=10, tail=80)
    written.write(b"0123456789" + b"x" * 500)
    written.end()
    tail = Tail(written.log)

    text = b"".join(iter(tail.read, b""))

    assert text.startswith(b"0123456789")
    assert b"[handoffd: 420 bytes left out here]" in text
    assert text.endswith(b"x" * 80)


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "a/b", ".", "x" * 200, "d1.tests.more"])
def test_only_ids_are_looked_up(tmp_path: Path, name: str) -> None:
    """No name leads out of the folder of runs."""
    with pytest.raises(NotFound):
        find_log(tmp_path, name)


def test_a_missing_run_is_not_found(written: Written) -> None:
    """The hint lists the runs; a damaged record is an error of the store instead."""
    with pytest.raises(NotFound) as caught:
        find_log(written.runs_dir, "20260131T000000-ffffffff")

    assert "handoffd runs" == caught.value.hint
    assert [True, False] == [has_log(written.runs_dir, RUN), has_log(written.runs_dir, "d2")]
    (written.run_dir / "spec.json").write_text("{", encoding="utf-8")
    with pytest.raises(StoreError):
        find_log(written.runs_dir, RUN)
