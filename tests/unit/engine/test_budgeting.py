"""What caps mean for a track: bookings, ends, waits, and who lifts them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.playbook import Playbook, dispatched, found, handoff, track_at

from handoffd.engine.decision import StopTree
from handoffd.engine.dispatching import wants_turn
from handoffd.engine.events import Aborted, BudgetRaised, CapReached, Retried, RolledBack, Started
from handoffd.engine.limits import news_of, spend
from handoffd.engine.run import SHARED, Cap, Finding, Scope, Usage
from handoffd.engine.track import Facts, Ledger, Phase, StopReason
from handoffd.protocol.handoff import Absent
from handoffd.protocol.state import Status

RUN = Usage(input_tokens=900, output_tokens=100, cost_usd=0.5, priced="provider")


def over(scope: Scope = "story", **fields: Any) -> Finding:
    """Return a cap of four dollars that is reached."""
    return replace(Finding(scope=scope, unit="usd", spent=4.1, cap=4), **fields)


def capped_run(scope: Scope = "attempt") -> Playbook:
    """Return a script in which a run has just been ordered to end for a cap."""
    play = Playbook(dispatched("impl", attempt=2))
    return play.given(CapReached(dispatch=play.dispatch.id, finding=over(scope)))


# --- what is booked --------------------------------------------------------------------------------
def test_every_attempt_is_booked_on_its_story_and_on_the_track() -> None:
    """Also one that failed, was aborted, or ended for a cap: it was paid for. Without usage nothing is."""
    play = Playbook(track_at("impl")).turn().runs().exits(code=1, usage=RUN).turn().runs()
    play.exits(found(handoff()), usage=RUN)
    assert RUN + RUN == play.ledger.facts.usage == play.ledger.spent
    assert RUN == capped_run().exits(Absent(), by="stop", usage=RUN).ledger.spent
    aborted = Playbook(dispatched("impl")).given(Aborted()).exits(by="stop", signal=15, usage=RUN)
    assert RUN == aborted.ledger.spent
    track = track_at("impl")
    assert track is spend(track, None)


def test_a_new_story_begins_at_nothing_and_the_track_goes_on_counting() -> None:
    """A grant for the last story is not one for the next."""
    granted: dict[Scope, Cap] = {"story": Cap(usd=8), "attempt": Cap(usd=1), "project": Cap(usd=80)}
    ledger = Ledger(automatic=True, spent=RUN, facts=Facts(usage=RUN), granted=granted, capped=over())
    play = Playbook(track_at("impl", ledger=ledger)).given(Started(story="US-2", force=True))
    assert (RUN, Usage(), None) == (play.ledger.spent, play.ledger.facts.usage, play.ledger.capped)
    assert {"project": Cap(usd=80)} == play.ledger.granted


def test_a_story_that_is_taken_up_again_has_spent_what_it_had() -> None:
    """The spending of the other one counts on the track, and a grant for the project stays."""
    ledger = Ledger(automatic=True, spent=RUN, facts=Facts(usage=RUN), granted={"story": Cap(usd=8)})
    play = Playbook(track_at("impl", ledger=ledger)).given(Started(story="US-2", force=True))
    play.turn().runs().exits(found(handoff()), usage=RUN)
    play.given(BudgetRaised(scope="project", usd=80)).given(Aborted()).given(Started(story="US-1"))
    play.expect(story="US-1", step="impl")
    assert (RUN + RUN, RUN) == (play.ledger.spent, play.ledger.facts.usage)
    assert {"story": Cap(usd=8), "project": Cap(usd=80)} == play.ledger.granted


def test_the_end_of_a_story_tells_what_it_took() -> None:
    """In the notice that it is done."""
    play = Playbook(track_at("update-memory")).turn().runs().exits(found(handoff()), usage=RUN).turn()
    assert "US-1 is done, 1.0k tokens, $0.50" == play.notices[0].text


# --- a cap that is reached while it runs ----------------------------------------------------------------
@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.EXECUTING])
def test_a_reached_cap_ends_the_run(phase: Phase) -> None:
    """By its stop ladder, and the journal says which cap it was."""
    play = Playbook(dispatched("impl", phase))
    play.given(CapReached(dispatch=play.dispatch.id, finding=over("attempt")))
    play.expect(orders="stop_tree", status=Status.RUNNING)
    assert (StopReason.CAP, over("attempt")) == (play.dispatch.stop, play.dispatch.cap)
    assert [StopTree(dispatch=play.dispatch.id, why=StopReason.CAP)] == list(play.decision.effects)
    assert ("settings.caps.attempt_usd", "$4.00") in [(g.rule, g.value) for g in play.decision.grounds]


@pytest.mark.parametrize("phase", [Phase.BASELINE, Phase.STOPPING, Phase.CHECKING])
def test_a_run_that_is_over_is_not_ended_for_a_cap(phase: Phase) -> None:
    """Nor one that is being ended already."""
    play = Playbook(dispatched("impl", phase))
    play.refused(CapReached(dispatch=play.dispatch.id, finding=over("attempt")), "STALE_FACT")


def test_a_run_that_its_cap_ended_costs_no_attempt_and_waits_for_a_person() -> None:
    """The next run would end the same way, so none is begun; the notice names the command."""
    play = capped_run().exits(by="stop", signal=15).expect(orders="notify", status=Status.PENDING, attempt=2)
    (notice,) = play.notices
    assert ("blocked", "handoffd budget {project} --attempt --usd 8") == (notice.notice, notice.action)
    play.turn(over=over("attempt")).expect(result="blocked", orders="")
    assert "handoffd budget {project} --attempt --usd 8" == play.decision.result.next_command
    assert play.ledger.free_repeats == 0


def test_a_run_that_its_cap_ended_goes_on_when_that_is_raised_in_the_settings() -> None:
    """A turn knows, as of every other cap."""
    play = capped_run().exits(by="stop", signal=15)
    assert wants_turn(play.track)
    play.turn().expect(result="dispatched", attempt=2)
    assert play.ledger.capped is None


def test_a_run_that_its_cap_ended_is_continued_in_its_session() -> None:
    """It was cut short; one that handed over was not."""
    cut = capped_run().exits(by="stop", signal=15, session="s1")
    assert cut.ledger.session is not None
    assert cut.ledger.session.unfinished
    cut.turn(resume=True)
    assert "s1" == cut.dispatch.session
    handed = capped_run().exits(found(handoff()), by="stop", signal=15, session="s1")
    assert handed.ledger.session is not None
    assert not handed.ledger.session.unfinished


def test_a_handoff_that_is_there_counts_although_the_cap_ended_the_run() -> None:
    """It is what the money was spent for."""
    play = capped_run().exits(found(handoff()), by="stop", signal=15)
    assert (Phase.CHECKING, None) == (play.dispatch.phase, play.ledger.capped)


@pytest.mark.parametrize("scope", ["story", "project", "day", "daemon"])
def test_after_a_wider_cap_the_next_turn_finds_out(scope: Scope) -> None:
    """A day ends by itself, and others may be raised: only a turn knows."""
    play = capped_run(scope).exits(by="stop", signal=15).expect(orders="", status=Status.PENDING, attempt=2)
    assert wants_turn(play.track)
    play.turn(over=over(scope)).expect(result="blocked")
    play.turn().expect(result="dispatched", attempt=2)


def test_an_abort_outranks_a_cap() -> None:
    """A person has ended it."""
    play = capped_run().given(Aborted()).exits(by="stop", signal=15)
    assert play.ledger.closed
    assert play.ledger.capped is None


@pytest.mark.parametrize(
    "verb", [BudgetRaised(scope="attempt", usd=8), Retried(), RolledBack(step="bdd")], ids=lambda v: v.kind
)
def test_what_a_person_does_about_it_lets_it_go_on(verb: Any) -> None:
    """Raised, retried, or sent back."""
    play = capped_run().exits(by="stop", signal=15).given(verb)
    assert wants_turn(play.track)
    play.turn().expect(result="dispatched")


def test_raising_another_budget_does_not_lift_the_cap_of_each_attempt() -> None:
    """It would end the same way."""
    play = capped_run().exits(by="stop", signal=15).given(BudgetRaised(scope="project", usd=80))
    assert over("attempt") == play.ledger.capped


@pytest.mark.parametrize(
    ("raised", "lifted"),
    [({"usd": 0.01}, False), ({"usd": 4}, False), ({"tokens": 10**9}, False), ({"usd": 4.2}, True)],
)
@pytest.mark.parametrize("scope", ["attempt", "story", "project"])
def test_only_more_of_what_was_used_up_lifts_a_cap(scope: Any, raised: Any, lifted: bool) -> None:
    """Less, or another unit, is kept for later, and makes no second notice."""
    play = Playbook(track_at("impl", ledger=Ledger(automatic=True, capped=over(scope))))
    play.given(BudgetRaised(scope=scope, **raised)).expect(result="accepted")
    assert lifted == (play.ledger.capped is None)
    if not lifted:
        play.turn(over=over(scope)).expect(result="blocked", orders="")


# --- a budget that is used up before a dispatch -------------------------------------------------------------
@pytest.mark.parametrize("scope", ["story", "project"])
def test_a_used_up_budget_is_waited_for_with_one_notice(scope: Scope) -> None:
    """The sum may still grow without another notice."""
    play = Playbook(track_at("impl")).turn(over=over(scope))
    play.expect(result="blocked", orders="notify", status=Status.PENDING)
    before = play.track
    play.turn(over=over(scope, spent=4.3)).expect(result="blocked", orders="")
    assert before == play.track
    play.turn(over=over(scope, cap=4.2, spent=4.3)).expect(orders="notify")


@pytest.mark.parametrize("scope", sorted(SHARED))
def test_a_budget_that_all_share_makes_no_notice_of_each_track(scope: Scope) -> None:
    """A thousand notices would say the same."""
    play = Playbook(track_at("impl")).turn(over=over(scope)).expect(result="blocked", orders="")
    assert over(scope) == play.ledger.capped
    advice = f"raise caps.{scope}_usd in the file it names, then restart the daemon"
    assert f"handoffd config show  # {advice}" == play.decision.result.next_command


def test_a_step_that_passed_is_left_before_the_budget_stops_the_next() -> None:
    """What was achieved is achieved; a gate opens all the same, for a person's time is not on the budget."""
    play = Playbook(track_at("bdd", Status.PASS)).turn(over=over())
    play.expect(result="blocked", step="sdd-delta", status=Status.PENDING)
    gate = Playbook(track_at("contract", Status.PASS)).turn(over=over())
    gate.expect(result="needs_human", step="review")


def test_a_dispatch_forgets_the_budget_it_waited_for() -> None:
    """The next wait has a notice again."""
    play = Playbook(track_at("impl")).turn(over=over()).turn()
    assert play.ledger.capped is None


def test_only_another_cap_is_news() -> None:
    """Not a greater sum."""
    assert news_of(over(), None)
    assert not news_of(over(spent=9), over())
    assert news_of(over(cap=5), over())
    assert news_of(over("project"), over("story"))


# --- raising ---------------------------------------------------------------------------------------------
def test_a_grant_is_kept_in_the_ledger_and_the_last_word_counts() -> None:
    """Dollars and tokens are granted apart."""
    play = Playbook(track_at("impl", ledger=Ledger(automatic=True, capped=over())))
    play.given(BudgetRaised(scope="story", story="US-1", usd=8, by="mei")).expect(result="accepted")
    assert "US-1 may use $8.00 in all, as mei granted" == play.decision.why
    assert play.ledger.capped is None
    play.given(BudgetRaised(scope="story", tokens=9000)).given(BudgetRaised(scope="story", usd=6))
    assert {"story": Cap(usd=6, tokens=9000)} == play.ledger.granted


def test_a_budget_is_raised_while_an_executor_runs() -> None:
    """It goes on beyond the old cap, if it was not reached before."""
    play = Playbook(dispatched("impl")).given(BudgetRaised(scope="attempt", usd=8))
    play.expect(result="accepted", status=Status.RUNNING)


def test_what_cannot_be_raised_is_refused_with_what_to_type() -> None:
    """Nothing said, another story meant, no story there."""
    play = Playbook(track_at("impl"))
    play.refused(BudgetRaised(scope="project"), "NO_AMOUNT")
    play.refused(BudgetRaised(scope="story", story="US-9", usd=8), "WRONG_STORY")
    assert "handoffd budget {project} --story US-1 --usd 10" == play.decision.result.next_command
    done = Playbook(track_at("done", Status.PASS))
    done.refused(BudgetRaised(scope="story", usd=8), "NO_STORY")
    done.given(BudgetRaised(scope="project", usd=8)).expect(result="accepted")
