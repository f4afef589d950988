"""The checker itself: silent about a sound journal, loud about each way in which one can be broken."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.branches import Branches, Commit
from tests.chaos.checker import RULES, check
from tests.chaos.evidence import Dispatch, Event, Evidence, Order, Track, gather
from tests.chaos.projects import Project
from tests.chaos.stories import Attempt, Story, Verb

from handoffd.journal.schema import migrate

ROOT = "/srv/shop"
STATE = json.dumps({"story": "US-001", "step": "done", "status": "pass"}).encode()
STORY = Story(
    name="US-001",
    script={"bdd": ("crash", "pass")},
    attempts=(Attempt("bdd", 1, "crash", "failing"), Attempt("bdd", 2, "pass", "pass")),
    verbs=(Verb("review", "approve", "approved"),),
)
EXIT = {"code": 0, "signal": None, "by": "itself"}
LOST = {**EXIT, "code": None, "by": "lost"}
NOTICE: dict[str, Any] = {
    "format": 1,
    "id": "20260131T221509.123456-7",
    "project": ROOT,
    "kind": "needs_human",
    "story": "US-001",
    "step": "review",
    "text": "review of US-001 waits",
    "why": None,
}
ORDER = Order(
    NOTICE["id"],
    9,
    ROOT,
    {
        "kind": "notify",
        "notice": "needs_human",
        "story": "US-001",
        "step": "review",
        "text": "review of US-001 waits",
    },
)
CRASH = {"code": None, "signal": 9, "by": "itself"}

OF_BDD = Commit(
    "c1", "t1", ("c0",), "US-001 bdd: pass", {"Story": "US-001", "Step": "bdd", "Run": "d2", "By": "cli"}
)
OF_REVIEW = Commit("c2", "t2", ("c1",), "US-001 review: pass", {"Story": "US-001", "Step": "review"})
OF_PERSON = Commit("c3", "t3", ("c0",), "person: a note")
LANDING = Commit("c4", "t4", ("c3", "c2"), "Land US-001", {"Story": "US-001", "By": "cli"})
LOG = ["bdd d1", "bdd d2"]
BRANCHES = Branches(
    each_step=True,
    commits=[OF_BDD, OF_REVIEW, OF_PERSON, LANDING],
    base=[LANDING],
    logs={"US-001": LOG},
    landed={"US-001": LOG},
    tested=frozenset({"t4"}),
)

Standing = tuple[str | None, str | None]


def history() -> list[tuple[str, str | None, Standing]]:
    """Return a short story: each event, its dispatch, and the step and status after it."""
    return [
        ("started", None, ("bdd", "pending")),
        ("advanced", "d1", ("bdd", "running")),
        ("executor_started", "d1", ("bdd", "running")),
        ("executor_exited", "d1", ("bdd", "failing")),
        ("advanced", "d2", ("bdd", "running")),
        ("executor_started", "d2", ("bdd", "running")),
        ("executor_exited", "d2", ("bdd", "running")),
        ("checks_finished", "d2", ("bdd", "pass")),
        ("advanced", "d3", ("review", "needs_human")),
        ("approved", None, ("review", "pass")),
        ("advanced", "d4", ("done", "pass")),
    ]


def events(rows: list[tuple[str, str | None, Standing]]) -> list[Event]:
    """Return rows as a chain of events."""
    found: list[Event] = []
    before: Standing = (None, None)
    for seq, (kind, dispatch, after) in enumerate(rows, 1):
        told: dict[str, Any] = {"story": "US-001"} if kind == "started" else {}
        if dispatch:
            told["dispatch"] = dispatch
        found.append(Event(seq, ROOT, "main", kind, told, before, after))
        before = after
    return found


def sound(**changes: Any) -> Evidence:
    """Return the evidence of a story that went as scripted, with `changes`."""
    dispatches = [
        Dispatch("d1", 2, ROOT, "US-001", "bdd", 1, CRASH, "failing"),
        Dispatch("d2", 5, ROOT, "US-001", "bdd", 2, EXIT, "pass"),
    ]
    whole = Evidence(
        events=events(history()),
        dispatches=dispatches,
        tracks=[Track(ROOT, "main", 11, hashlib.sha256(STATE).hexdigest(), ("done", "pass"))],
        open_effects=[],
        starts=[start(dispatch) for dispatch in dispatches],
        checks=["d2.tests"],
        exits={"d1": CRASH, "d2": EXIT},
        states={ROOT: STATE},
        stories={ROOT: [STORY]},
        orders=[ORDER],
        recorded={NOTICE["id"]: NOTICE},
        told=[NOTICE, NOTICE],
        kept={ROOT: frozenset({"d2"})},
        branches={ROOT: BRANCHES},
    )
    return replace(whole, **changes)


def branched(**changes: Any) -> Evidence:
    """Return the sound evidence with another repository."""
    return sound(branches={ROOT: replace(BRANCHES, **changes)})


def committed(*more: Commit) -> Evidence:
    """Return the sound evidence with further commits."""
    return branched(commits=[*BRANCHES.commits, *more])


def start(dispatch: Dispatch) -> dict[str, Any]:
    """Return the line that an executor leaves when it starts."""
    told = ("story", "step", "attempt")
    return {"dispatch": dispatch.id, **{name: getattr(dispatch, name) for name in told}}


def rewritten(place: int, **changes: Any) -> list[Event]:
    """Return the sound history with one event changed, the others as they were."""
    whole = list(sound().events)
    whole[place] = replace(whole[place], **changes)
    return whole


def without(place: int) -> list[Event]:
    """Return the sound history with one event gone, and the numbers closed up."""
    left = [event for number, event in enumerate(sound().events) if number != place]
    return [replace(event, seq=seq) for seq, event in enumerate(left, 1)]


def twice(place: int) -> list[Event]:
    """Return the sound history with one event repeated right after it, without a change."""
    whole = list(sound().events)
    again = replace(whole[place], before=whole[place].after)
    whole.insert(place + 1, again)
    return [replace(event, seq=seq) for seq, event in enumerate(whole, 1)]


def judged(place: int, **changes: Any) -> list[Dispatch]:
    """Return the sound dispatches with one changed."""
    whole = list(sound().dispatches)
    whole[place] = replace(whole[place], **changes)
    return whole


def moved(track: Track, **changes: Any) -> list[Track]:
    """Return one track with changes."""
    return [replace(track, **changes)]


def test_a_sound_journal_is_not_complained_of() -> None:
    """A checker that always complains proves as little as one that never does."""
    assert [] == check(sound())


BROKEN: dict[str, tuple[str, Callable[[], Evidence]]] = {
    "an executor started twice": (
        "started twice",
        lambda: sound(starts=[*sound().starts, sound().starts[0]]),
    ),
    "a check run twice": ("started twice", lambda: sound(checks=["d2.tests", "d2.tests"])),
    "an executor without an order": (
        "started unordered",
        lambda: sound(starts=[*sound().starts, {**sound().starts[0], "dispatch": "d9"}]),
    ),
    "a verdict on an executor that never ran": ("judged unstarted", lambda: sound(starts=sound().starts[1:])),
    "an executor told another attempt": (
        "started as another",
        lambda: sound(starts=[sound().starts[0], {**sound().starts[1], "attempt": 1}]),
    ),
    "a dispatch that is still open": ("result lost", lambda: sound(dispatches=judged(1, result=None))),
    "an end that was not recorded": ("result lost", lambda: sound(events=without(3))),
    "an end recorded twice": ("result applied twice", lambda: sound(events=twice(3))),
    "a measurement applied twice": ("result applied twice", lambda: sound(events=twice(7))),
    "a turn taken twice": ("result applied twice", lambda: sound(events=twice(1))),
    "a verdict other than the record": (
        "result changed",
        lambda: sound(dispatches=judged(1, result="needs_human")),
    ),
    "an attempt whose files are in no snapshot": (
        "files not kept",
        lambda: sound(kept={ROOT: frozenset({"d1"})}),
    ),
    "a commit that names no story": (
        "commit of no passed step",
        lambda: committed(Commit("c9", "t9", (), "hm")),
    ),
    "a commit of a run that failed": (
        "commit of no passed step",
        lambda: committed(replace(OF_BDD, said={**OF_BDD.said, "Run": "d1"})),
    ),
    "a commit of a run of another step": (
        "commit of no passed step",
        lambda: committed(replace(OF_BDD, said={**OF_BDD.said, "Step": "impl"})),
    ),
    "a commit of a step that was never passed": (
        "commit of no passed step",
        lambda: committed(replace(OF_REVIEW, said={**OF_REVIEW.said, "Step": "verify"})),
    ),
    "a landing of a story that has no branch": (
        "commit of no passed step",
        lambda: committed(replace(LANDING, subject="Land US-009")),
    ),
    "a step without a commit": (
        "step not committed",
        lambda: branched(commits=[OF_REVIEW, OF_PERSON, LANDING]),
    ),
    "two commits of one run": ("committed twice", lambda: committed(replace(OF_BDD, id="c5"))),
    "a branch without its last step": ("branch behind", lambda: branched(logs={"US-001": LOG[:1]})),
    "a branch whose steps are in another order": (
        "branch behind",
        lambda: branched(logs={"US-001": LOG[::-1]}),
    ),
    "a branch with the work of another": (
        "branch behind",
        lambda: branched(logs={"US-001": [*LOG, "impl d9"]}),
    ),
    "a landing of files that were not tested": ("landed untested", lambda: branched(tested=frozenset())),
    "a story landed twice": (
        "landed more or less than once",
        lambda: branched(base=[LANDING, replace(LANDING, id="c6")]),
    ),
    "a story not landed": ("landed more or less than once", lambda: branched(base=[])),
    "half of a story landed": ("landed in part", lambda: branched(landed={"US-001": LOG[:1]})),
    "a repository that is damaged": (
        "repository left unsound",
        lambda: branched(trouble=["git fsck: missing blob"]),
    ),
    "an exit record from nowhere": ("exit lost", lambda: sound(exits={"d1": CRASH})),
    "another exit code in the journal": ("exit changed", lambda: sound(dispatches=judged(1, exit=CRASH))),
    "a number that is missing": (
        "transition missing or duplicated",
        lambda: sound(events=rewritten(10, seq=12)),
    ),
    "a transition that is missing": ("transition missing or duplicated", lambda: sound(events=without(9))),
    "a track that is elsewhere": (
        "transition missing or duplicated",
        lambda: sound(tracks=moved(sound().tracks[0], standing=("bdd", "pass"))),
    ),
    "a track behind its last event": (
        "transition missing or duplicated",
        lambda: sound(tracks=moved(sound().tracks[0], seq=10)),
    ),
    "an order not carried out": ("order not carried out", lambda: sound(open_effects=["effect 1"])),
    "half a STATE.json": ("STATE.json differs", lambda: sound(states={ROOT: STATE[:20]})),
    "no STATE.json": ("STATE.json differs", lambda: sound(states={ROOT: None})),
    "an older STATE.json": (
        "STATE.json differs",
        lambda: sound(states={ROOT: STATE.replace(b"done", b"impl")}),
    ),
    "a notice that did not arrive": ("notice lost", lambda: sound(told=[])),
    "an order that was done and never recorded": ("notice lost", lambda: sound(told=[], recorded={})),
    "a notice without an order": ("notice unordered", lambda: sound(orders=[])),
    "a notice of another order": (
        "notice unordered",
        lambda: sound(told=[NOTICE, {**NOTICE, "id": "20260131T221509.123456-8"}]),
    ),
    "a notice sent before it was recorded": ("notice unrecorded", lambda: sound(recorded={})),
    "a notice that is another when it comes again": (
        "notice changed",
        lambda: sound(told=[NOTICE, {**NOTICE, "at": "later"}]),
    ),
    "a notice that is not what was ordered": (
        "notice changed",
        lambda: sound(orders=[replace(ORDER, effect={**ORDER.effect, "text": "something else"})]),
    ),
    "a process left behind": ("left behind", lambda: sound(left=["4711 handoffd-shim"])),
    "a story that did not begin": ("story lost or twice", lambda: sound(stories={ROOT: [STORY, STORY]})),
    "a story that did not end": (
        "story unfinished",
        lambda: sound(events=list(sound().events)[:9]),
    ),
    "an attempt spent by a kill": (
        "not as scripted",
        lambda: sound(dispatches=judged(1, attempt=3)),
    ),
    "an attempt too many": (
        "not as scripted",
        lambda: sound(dispatches=[*sound().dispatches, judged(1, id="d5")[1]]),
    ),
    "an attempt too few": ("not as scripted", lambda: sound(dispatches=sound().dispatches[:1])),
    "an interruption without a kill": (
        "attempt interrupted",
        lambda: sound(dispatches=judged(0, result="interrupted", exit=LOST)),
    ),
    "a verb that was lost": ("verb lost or applied twice", lambda: sound(events=without(9))),
    "a verb applied twice": ("verb lost or applied twice", lambda: sound(events=twice(9))),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_journal_is_complained_of(name: str) -> None:
    """With the rule that it breaks."""
    rule, evidence = BROKEN[name]

    assert rule in {violation.rule for violation in check(evidence())}


def test_every_rule_has_complained() -> None:
    """A rule that no broken journal sets off might be checking nothing."""
    silent = [rule.__name__ for rule in RULES if not any(list(rule(make())) for _, make in BROKEN.values())]

    assert [] == silent


def test_a_repetition_after_a_killed_shim_is_no_attempt() -> None:
    """In a story that may lose its shims at any time; and only if it did."""
    lost = Dispatch("d0", 1, ROOT, "US-001", "bdd", 1, LOST, "interrupted")
    wild = replace(STORY, wild=True)
    whole = sound(
        dispatches=[lost, *sound().dispatches],
        stories={ROOT: [wild]},
        events=events(
            [
                history()[0],
                ("advanced", "d0", ("bdd", "running")),
                ("executor_exited", "d0", ("bdd", "pending")),
                *history()[1:],
            ]
        ),
        tracks=moved(sound().tracks[0], seq=13),
    )

    assert [] == check(replace(whole, shims_hit=frozenset({"d0"})))
    assert {"attempt interrupted", "exit lost"} == {violation.rule for violation in check(whole)}


def test_evidence_is_read_from_sqlite_and_files(tmp_path: Path) -> None:
    """From SQLite and files; a line of each."""
    (tmp_path / "state/runs/d1").mkdir(parents=True)
    (tmp_path / "state/runs/d1/exit.json").write_text(json.dumps(CRASH))
    (tmp_path / "starts.jsonl").write_text('{"dispatch": "d1"}\n')
    (tmp_path / "checks.log").write_text("d1.tests\n")
    (tmp_path / "people").mkdir()
    (tmp_path / "people/told.jsonl").write_text('\n{"id": "half of\n{"id": "whole"}\n\n{"id": "cut')
    root = tmp_path / "shop"
    (root / ".ai").mkdir(parents=True)
    (root / ".ai/STATE.json").write_bytes(STATE)
    (root / ".ai/.STATE.json.0123456789abcdef.tmp").touch()
    journal(tmp_path / "state/journal.db", str(root))

    project = Project(root, naps=False, wild=False, stories=[STORY])
    found = gather(tmp_path, [project], frozenset({"d1"}), ["a process"])

    assert [("started", {"story": "US-001"}, (None, None), ("bdd", "pending"))] == [
        (event.kind, event.event, event.before, event.after) for event in found.events
    ]
    assert [("d1", 1, CRASH, "failing")] == [
        (one.id, one.attempt, one.exit, one.result) for one in found.dispatches
    ]
    assert [("bdd", "pending")] == [track.standing for track in found.tracks]
    assert ({"d1": CRASH}, ["d1.tests"], {str(root): STATE}) == (found.exits, found.checks, found.states)
    assert (2, 2) == (len(found.open_effects), len(found.left))
    assert [("20260131T221509.123456-2", "blocked")] == [
        (order.id, order.effect["notice"]) for order in found.orders
    ]
    assert ({"n1": {"id": "n1"}}, [{"id": "whole"}]) == (found.recorded, found.told)


def journal(path: Path, root: str) -> None:
    """Write a journal with one row in each table that the checker reads."""
    db = sqlite3.connect(path, isolation_level=None)
    migrate(db, str(path))
    db.execute(
        """INSERT INTO events (at, project, track, kind, event, result, why, step_after, status_after)
        VALUES (?, ?, 'main', 'started', '{"story": "US-001"}', '{}', '', 'bdd', 'pending')""",
        ("2026-01-31T22:15:09.123456+00:00", root),
    )
    db.execute(
        """INSERT INTO dispatches (id, seq, project, track, story, step, attempt, executor, decided_at, exit,
        result) VALUES ('d1', 1, ?, 'main', 'US-001', 'bdd', 1, 'x', '', ?, 'failing')""",
        (root, json.dumps(CRASH)),
    )
    db.execute(
        """INSERT INTO tracks (project, track, seq, body, step, status)
        VALUES (?, 'main', 1, '', 'bdd', 'pending')""",
        (root,),
    )
    for effect in ("{}", '{"kind": "notify", "notice": "blocked"}'):
        db.execute(
            "INSERT INTO effects (seq, project, track, effect) VALUES (1, ?, 'main', ?)", (root, effect)
        )
    db.execute(
        "INSERT INTO notices (id, project, track, at, body) VALUES ('n1', '', '', '', '{\"id\": \"n1\"}')"
    )
    db.close()
