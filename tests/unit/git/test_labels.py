"""When files are kept, and which of the snapshots a way back leads to."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace
from tests.support.house import NOW, dispatch_of, track_of

from handoffd.engine.decision import Decision, Refusal, Spawn, accept
from handoffd.engine.events import (
    Advanced,
    Approved,
    ExecutorExited,
    Noted,
    Rejected,
    Reopened,
    Retried,
    RolledBack,
    Skipped,
    Verb,
)
from handoffd.engine.run import Exit, Usage
from handoffd.engine.track import EXTERNAL, BroughtBack, Facts, Phase, Track
from handoffd.git.labels import (
    BEGUN,
    KEPT,
    RESTORED,
    STARTED,
    Label,
    Snapshot,
    expired,
    label_of,
    made_before,
    name_of,
    of_this_life,
    since_decision,
    since_entered,
    since_step,
)
from handoffd.protocol.handoff import Absent
from handoffd.protocol.state import Reason, Status

EXITED = ExecutorExited(dispatch="d1", exit=Exit(by="lost"), reading=Absent())
ADVANCED = Advanced(dispatch="d1", executor="agent")
SPAWN = Spawn(dispatch="d1", story="US-001", step="bdd", attempt=1, executor="agent", timeout_min=1)


def decided(track: Track, *effects: Spawn) -> Decision:
    """Return an accepted decision."""
    return (accept(track, "yes") if track.state is not None else refused(track)).also(*effects)


def refused(track: Track) -> Decision:
    """Return a refusal."""
    result = Refusal(code="X", message="no", caller_instruction="no")
    return Decision(track=track, result=result, why="no")


def judged(number: int, status: Status = Status.PASS) -> Track:
    """Return a track in which the attempts of bdd were judged; `number` says how many."""
    return track_of(status).with_ledger(facts=Facts(attempts={"bdd": number} if number else {}))


def running(number: int = 0, executor: str = "agent") -> Track:
    """Return a track with an attempt in flight, after `number` judged ones."""
    return judged(number, Status.RUNNING).with_ledger(dispatch=dispatch_of(executor=executor))


# --- when one is made ---------------------------------------------------------------------------------
@pytest.mark.parametrize("status", [Status.PASS, Status.FAILING, Status.NEEDS_HUMAN, Status.TIMEOUT])
def test_what_a_judged_attempt_has_left_is_kept(status: Status) -> None:
    """However it was judged."""
    label = label_of(running(1), EXITED, decided(judged(2, status)), NOW)

    assert label is not None
    assert ("bdd", str(status), "US-001", "d1") == (label.step, label.result, label.story, label.run)


def test_what_an_interrupted_attempt_has_left_is_kept_without_a_number() -> None:
    """No verdict is about it, and a person may want it all the same."""
    label = label_of(running(1), EXITED, decided(judged(1, Status.PENDING)), NOW)

    assert label is not None
    assert (KEPT, "d1", False) == (label.result, label.run, label.numbered)


@pytest.mark.parametrize("phase", [Phase.BASELINE, Phase.STARTING])
def test_an_attempt_that_never_ran_has_left_nothing(phase: Phase) -> None:
    """Its program may be missing."""
    begun = track_of(Status.RUNNING, dispatch=dispatch_of(phase=phase))

    assert label_of(begun, EXITED, decided(track_of()), NOW) is None


def test_an_attempt_that_goes_on_or_is_not_ours_keeps_nothing() -> None:
    """Its checks may still run; what people do by hand, they can keep by hand."""
    assert label_of(running(), EXITED, decided(running()), NOW) is None
    assert label_of(running(executor=EXTERNAL), EXITED, decided(judged(1)), NOW) is None


@pytest.mark.parametrize(
    "later",
    [
        {"facts": Facts(attempts={"bdd": 1})},
        {"facts": Facts(usage=Usage(input_tokens=1))},
        {"free_repeats": 1},
    ],
)
def test_what_was_there_before_the_first_attempt_is_kept(later: dict[str, object]) -> None:
    """Of a story, not of each of its steps; nor when its first attempt is repeated: then of that one."""
    label = label_of(track_of(), ADVANCED, decided(running(), SPAWN), NOW)

    assert label is not None
    assert ("bdd", BEGUN, None) == (label.step, label.result, label.run)
    again = label_of(track_of(), ADVANCED, decided(running().with_ledger(**later), SPAWN), NOW)
    assert again is not None
    assert (STARTED, False) == (again.result, again.numbered)
    assert label_of(track_of(), ADVANCED, decided(track_of()), NOW) is None


@pytest.mark.parametrize(
    ("verb", "status", "result"),
    [
        (Approved(by="mei"), Status.PASS, "pass"),
        (Rejected(reason=Reason.SCOPE_WARNING, by="mei"), Status.FAILING, "failing"),
        (Skipped(by="mei"), Status.PASS, "skipped"),
        (Retried(by="mei"), Status.PENDING, "kept"),
        (RolledBack(step="bdd", by="mei"), Status.PENDING, "kept"),
        (Reopened(step="bdd", by="mei"), Status.PENDING, "kept"),
    ],
)
def test_a_persons_decision_keeps_what_it_is_about(verb: Verb, status: Status, result: str) -> None:
    """With the person's name."""
    label = label_of(track_of(), verb, decided(track_of(status)), NOW)

    assert label is not None
    assert ("bdd", result, "mei") == (label.step, label.result, label.by)


def test_nothing_else_keeps_anything() -> None:
    """A note; a refusal; a way back that has kept the present already; a story that people dispatch."""
    brought = RolledBack(step="bdd", files=True, brought=BroughtBack(snapshot="a", kept="b", files=1))
    by_hand = track_of().with_ledger(automatic=False)

    assert label_of(track_of(), Noted(text="x"), decided(track_of()), NOW) is None
    assert label_of(track_of(), Retried(), refused(track_of()), NOW) is None
    assert label_of(track_of(), brought, decided(track_of()), NOW) is None
    assert label_of(by_hand, Retried(), decided(by_hand), NOW) is None
    assert label_of(Track(), Retried(), decided(Track()), NOW) is None


# --- which one to go back to --------------------------------------------------------------------------
def made(*names: str) -> list[Snapshot]:
    """Return snapshots by age: `bdd-0` is a beginning; `kept`, `cut` (short), `restored` have no number.

    One with a `!` could not be made, one with an `@` is a person's decision.
    """
    found = []
    for age, name in enumerate(names):
        step, _, number = name.rstrip("!@").partition("-")
        usual = BEGUN if number == "0" else "pass"
        result = {"kept": KEPT, "cut": KEPT, "restored": RESTORED}.get(step, usual)
        by_agent = step == "cut" or (number not in {"", "0"} and not name.endswith("@"))
        label = Label(
            story="US-1", step=step if number else "impl", result=result, run=name if by_agent else None,
            at=NOW + timedelta(days=age),
        )  # fmt: skip
        commit = None if name.endswith("!") else name
        found.append(Snapshot(label=label, name=name, ref=name, commit=commit))
    return found


STORY = made("bdd-0", "bdd-1", "review-1@", "kept", "impl-1", "cut", "impl-2", "kept", "verify-1")
PATH = ("bdd", "review", "impl", "verify", "commit")


def since(life: list[Snapshot], step: str) -> list[str]:
    """Return the refs of what a way back to a step is about."""
    return [one.ref for one in since_step(life, step, PATH[: PATH.index(step)])]


@pytest.mark.parametrize(
    ("step", "wanted"),
    [("bdd", "bdd-0"), ("review", "bdd-1"), ("impl", "kept"), ("verify", "kept"), ("commit", None)],
)
def test_a_way_back_leads_to_what_was_there_when_the_step_began(step: str, wanted: str | None) -> None:
    """Before its first attempt, with all attempts since; of a step that was never left, nowhere."""
    found = since(STORY, step)

    assert wanted == (found[0] if found else None)
    assert not found or "verify-1" == found[-1]


def test_what_was_discarded_is_not_gone_back_to() -> None:
    """After a way back, or a rejection, the earlier step was done again."""
    redone = made("bdd-0", "bdd-1", "impl-1", "kept", "restored", "bdd-2", "impl-2")
    rejected = made("bdd-0", "bdd-1", "review-1@", "bdd-2", "review-2@", "impl-1")

    assert ["bdd-2", "impl-2"] == since(redone, "impl")
    assert ["restored", "bdd-2", "impl-2"] == since(redone, "bdd")
    assert ["bdd-2", "review-2@", "impl-1"] == since(rejected, "review")


def test_a_step_is_not_gone_back_to_past_a_gap() -> None:
    """What is missing would be taken away, too, without a word; so would all before a beginning."""
    assert [] == since(made("bdd-0", "bdd-1!", "impl-1"), "impl")
    assert [] == since(made("bdd-0", "bdd-1", "impl-1!"), "impl")
    assert [] == since(made("review-1@", "impl-1"), "impl")
    assert [] == since(made("bdd-0!", "bdd-1"), "bdd")
    assert ["bdd-1", "impl-1"] == since(made("bdd-0", "bdd-1!", "bdd-1", "impl-1"), "impl")


def test_one_is_not_made_twice() -> None:
    """Of a beginning, before anything was judged; of an attempt, when it is judged again."""
    begun, first, cut = (one.label for one in made("bdd-0", "bdd-1", "cut"))

    assert made_before(begun, []) is None
    assert "bdd-0" == getattr(made_before(begun, made("bdd-0", "cut")), "ref", None)
    assert made_before(begun, made("bdd-0", "bdd-1")) is None
    assert "bdd-1" == getattr(made_before(first, made("bdd-0", "bdd-1")), "ref", None)
    assert made_before(first, made("bdd-0", "bdd-1!")) is None
    assert made_before(cut, made("bdd-0", "bdd-1")) is None


def test_an_earlier_start_of_the_story_does_not_count() -> None:
    """Its snapshots stay until they are replaced, or old."""
    again = made("bdd-0", "impl-1", "impl-2", "bdd-0", "impl-1")

    assert ["bdd-0", "impl-1"] == [one.ref for one in of_this_life(again)]
    assert ["kept"] == [one.ref for one in of_this_life(made("kept"))]


def test_names_count_how_often_a_step_was_left() -> None:
    """By an agent or a person."""
    life = made("bdd-0", "bdd-1", "impl-1", "impl-2@", "review-1@")
    impl, at = life[2].label, "20260131T221509Z"

    assert "bdd-0" == name_of(life[0].label, life)
    assert "impl-3" == name_of(impl, life)
    assert "verify-1" == name_of(replace(impl, step="verify"), life)
    kept = replace(impl, result=KEPT, at=NOW)
    taken = replace(life[0], name=f"kept-{at}")
    assert f"kept-{at}" == name_of(kept, life)
    assert [f"kept-{at}-2", f"kept-{at}-3"] == [
        name_of(kept, [taken]),
        name_of(kept, [taken, replace(taken, name=f"kept-{at}-2")]),
    ]


def test_since_a_decision_counts_the_last_one_of_that_step() -> None:
    """What an agent has left of a step does not count."""
    twice = [
        replace(one, label=replace(one.label, by="mei")) if one.ref.endswith("@") else one
        for one in made("bdd-0", "review-1@", "bdd-1", "review-2@", "bdd-2")
    ]

    assert ["review-2@", "bdd-2"] == [one.ref for one in since_decision(twice, "review")]
    assert () == since_decision(twice, "bdd")
    assert () == since_decision((), "review")


def test_old_ones_expire_unless_their_story_is_in_flight() -> None:
    """Age counts from when they were made."""
    now = NOW + timedelta(days=20)

    assert ["bdd-0", "bdd-1", "review-1@"] == [one.ref for one in expired(STORY, now, 17.5, {"US-2"})]
    assert () == expired(STORY, now, 1, {"US-1"})


# --- since a step was entered ----------------------------------------------------------------------
def kept(step: str, result: str, run: str | None = "d1", by: str | None = None) -> Snapshot:
    """Return a snapshot."""
    label = Label(story="US-001", step=step, result=result, run=run, by=by, at=NOW)
    return Snapshot(label=label, name=step, ref="", commit="c")


FIRST = kept("bdd", BEGUN, None)
FAILED, CUT_OFF, WAITED = kept("impl", "failing"), kept("impl", KEPT), kept("impl", STARTED, None)


@pytest.mark.parametrize(
    ("life", "since"),
    [
        ((FIRST,), (FIRST,)),
        ((FIRST, kept("bdd", "pass")), (kept("bdd", "pass"),)),
        (
            (FIRST, kept("bdd", "pass"), FAILED, CUT_OFF, WAITED),
            (kept("bdd", "pass"), FAILED, CUT_OFF, WAITED),
        ),
        ((FIRST, kept("impl", "pass"), kept("verify", "failing")), (kept("verify", "failing"),)),
        ((FIRST, FAILED, kept("impl", RESTORED, None)), (kept("impl", RESTORED, None),)),
        ((FIRST, replace(FAILED, commit=None)), ()),
        ((), ()),
    ],
)
def test_a_step_is_measured_since_it_was_entered(
    life: tuple[Snapshot, ...], since: tuple[Snapshot, ...]
) -> None:
    """Its attempts that have not passed are behind that; a missing snapshot says nothing."""
    assert since == since_entered(life, "impl")
