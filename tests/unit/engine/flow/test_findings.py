"""What went wrong in the first machine that was tried, each as the smallest pipeline that shows it."""

from __future__ import annotations

import pytest
from tests.unit.engine.flow.playbook import Play

from handoffd.engine.flow.events import ClaimsChanged, OpenTask, Withdraw

# --- counters -----------------------------------------------------------------------------------------
CRITIC = """
tasks:
  draft: {agent: w}
  critique:
    agent: w
    needs: [draft]
    outcomes: {good: ok, revise: {back_to: draft, at_most: 1, then: {call: person, at_most: 1, then: warn}}}
  person: {on_demand: true, ask: "Again?", timeout: 1h, default: take_it, outcomes: {
    once_more: {back_to: draft, at_most: 1, then: warn}, take_it: warn}}
  edit: {agent: w, needs: [critique]}
"""


def revised_until_the_person_is_asked() -> Play:
    """Return a flow whose critic has used up its own way back and called the person."""
    play = Play(CRITIC)
    for _ in range(2):
        play.ends("draft")
        play.ends("critique", "revise")
    return play


def test_a_callees_way_back_has_a_counter_of_its_own() -> None:
    """A critic that used up its way back does not use up that of the person it calls."""
    play = revised_until_the_person_is_asked()
    assert ["critique/person"] == play.asking

    play.answers("critique/person", "once_more")

    assert ["draft"] == play.opened
    assert 3 == play.visit("draft")


def test_a_producer_runs_once_and_as_often_as_its_ways_back_say() -> None:
    """One way back of the critic and one of the person: three drafts, and no fourth."""
    play = revised_until_the_person_is_asked()
    play.answers("critique/person", "once_more")
    play.ends("draft")
    play.ends("critique", "revise")

    assert ["edit"] == play.opened
    assert play.node("critique").warned
    assert 3 == play.visit("draft")


def test_each_rung_of_a_ladder_counts_for_itself() -> None:
    """Two ways back of one outcome to one task are taken one after the other, each as often as it says."""
    play = Play("""
    tasks:
      a: {run: x}
      b: {run: x, needs: [a], outcomes: {pass: ok, bad: {back_to: a, at_most: 1, then: {
        back_to: a, at_most: 2, then: stop}}}}
    """)
    for _ in range(4):
        play.ends("a")
        play.ends("b", "bad")

    assert 4 == play.visit("a")
    assert "dead" == play.state("b")
    assert "failed" == play.ended


def test_the_ways_back_of_a_callee_are_counted_for_each_caller() -> None:
    """What one caller has used up another still has."""
    play = Play("""
    tasks:
      a: {run: x}
      b: {run: x, needs: [a], outcomes: {pass: ok, bad: {call: fix}}}
      c: {run: x, needs: [b], outcomes: {pass: ok, bad: {call: fix}}}
      fix: {on_demand: true, run: x, outcomes: {pass: ok, redo: {back_to: a, at_most: 1, then: stop}}}
    """)
    play.ends("a")
    play.ends("b", "bad")
    play.ends("b/fix", "redo")
    play.ends("a")
    play.ends("b")
    play.ends("c", "bad")

    play.ends("c/fix", "redo")

    assert ["a"] == play.opened


def test_an_item_that_sends_back_the_list_maker_counts_for_the_task() -> None:
    """New ids in each list bring no new counters."""
    play = Play("""
    tasks:
      plan: {agent: w, out: {tasks: t.json}}
      work: {agent: w, needs: [plan], each: plan.out.tasks, outcomes: {
        done: ok, replan: {back_to: plan, at_most: 1, then: stop}}}
    """)
    for round_ in range(2):
        play.ends("plan", out=["tasks"])
        play.reads("work", [f"r{round_}"])
        play.ends(f"work[r{round_}]", "replan")

    assert 2 == play.visit("plan")
    assert "dead" == play.state("work[r1]")


def test_six_items_share_one_way_back_to_the_list_maker() -> None:
    """With ids that stay the same, too: the plan is made twice, not seven times."""
    play = Play("""
    limits: {parallel: 6}
    tasks:
      plan: {agent: w, out: {tasks: t.json}}
      work: {agent: w, needs: [plan], each: plan.out.tasks, outcomes: {
        done: ok, replan: {back_to: plan, at_most: 1, then: stop}}}
    """)
    names = ["a", "b", "c", "d", "e", "f"]
    for turn in range(2):
        play.ends("plan", out=["tasks"])
        play.reads("work", names)
        for name in names:
            play.ends(f"work[{name}]", "replan" if turn or name == "a" else "done")

    assert 2 == play.visit("plan")
    assert {"dead"} == {play.state(f"work[{name}]") for name in names}


def test_a_persons_answer_renews_no_counter() -> None:
    """A review that says no for ever comes to its end."""
    play = Play("""
    tasks:
      a: {run: x}
      review: {needs: [a], ask: "Fine?", timeout: 1h, default: no, outcomes: {
        yes: ok, no: {back_to: a, at_most: 2, then: stop}}}
    """)
    for _ in range(3):
        play.ends("a")
        play.answers("review", "no")

    assert 3 == play.visit("a")
    assert "failed" == play.ended


# --- what is over -------------------------------------------------------------------------------------
def test_an_always_task_does_not_keep_its_scope_open() -> None:
    """It begins when all others are over, and the flow ends after it."""
    play = Play("""
    tasks:
      a: {run: x}
      tidy: {always: true, run: x}
    """)
    assert ["a"] == play.opened

    play.ends("a")
    assert ["tidy"] == play.opened

    play.ends("tidy")
    assert "succeeded" == play.ended


def test_an_always_task_that_fails_warns() -> None:
    """Nothing waits for a person at the very end."""
    play = Play("""
    tasks:
      a: {run: x}
      tidy: {always: true, run: x}
    """)
    play.ends("a")
    play.ends("tidy", status="failed")

    assert "succeeded" == play.ended
    assert play.node("tidy").warned


def test_a_join_that_is_satisfied_takes_a_dead_item_upon_itself() -> None:
    """The flow succeeds, and the report lists the item as lost."""
    play = Play("""
    tasks:
      work: {run: x, each: [a, b], outcomes: {pass: ok, bad: stop}, join: {min: 1}}
      next: {run: x, needs: [work]}
    """)
    play.ends("work[a]", "bad")
    play.ends("work[b]")
    assert "some" == play.node("work").outcome

    play.ends("next")

    assert "succeeded" == play.ended
    assert ("work[a]",) == play.report.lost


def test_a_group_that_takes_its_failure_as_fine_succeeds_and_tells_what_was_lost() -> None:
    """The dead task inside is in the report."""
    play = Play("""
    tasks:
      g: {tasks: {a: {run: x, outcomes: {pass: ok, bad: stop}}}, outcomes: {done: ok, failed: warn}}
    """)
    play.ends("g/a", "bad")

    assert "succeeded" == play.ended
    assert play.node("g").warned
    assert ("g/a",) == play.report.lost


def test_a_good_end_beside_a_dead_task_is_a_failure() -> None:
    """Whatever the task that ends the flow says."""
    play = Play("""
    tasks:
      a: {run: x, outcomes: {pass: ok, bad: stop}}
      b: {run: x, outcomes: {pass: ok, enough: {end: succeeded}}}
    """)
    play.ends("a", "bad")
    play.ends("b", "enough")

    assert "failed" == play.ended


def test_after_an_end_the_rest_is_skipped_and_not_unreached() -> None:
    """What was never opened does not count as a failure."""
    play = Play("""
    tasks:
      a: {run: x, outcomes: {pass: ok, enough: {end: succeeded}}}
      b: {run: x, needs: [a]}
    """)
    play.ends("a", "enough")

    assert ["accepted", "skipped"] == [play.state("a"), play.state("b")]
    assert "ended" in play.node("b").why
    assert "succeeded" == play.ended
    assert () == play.report.lost


def test_too_few_accepted_items_are_a_failure_also_when_the_others_were_left_out() -> None:
    """A dropped item is not bad, and yet it does not count."""
    play = Play("""
    tasks:
      work: {run: x, each: [a, b, c], outcomes: {pass: ok, none: drop}, join: {min: 3}}
      next: {run: x, needs: [work]}
    """)
    play.ends("work[a]")
    play.ends("work[b]")
    play.ends("work[c]", "none")

    assert "dead" == play.state("work")
    assert "unreached" == play.state("next")
    assert "failed" == play.ended


def test_a_list_that_is_shorter_than_its_least_is_refused() -> None:
    """A person is asked, with the words."""
    play = Play("""
    tasks:
      plan: {agent: w, out: {tasks: t.json}}
      work: {run: x, needs: [plan], each: plan.out.tasks, join: {min: 3}}
    """)
    play.ends("plan", out=["tasks"])
    play.reads("work", ["a", "b"])

    assert ["work"] == play.asking
    assert "3" in play.node("work").why


def test_a_task_whose_items_were_all_left_out_is_left_out_with_its_dependents() -> None:
    """Nothing runs on nothing."""
    play = Play("""
    tasks:
      first: {run: x}
      work: {run: x, each: [a, b], outcomes: {pass: ok, none: drop}}
      bind: {run: x, needs: [work]}
    """)
    play.ends("first")
    play.ends("work[a]", "none")
    play.ends("work[b]", "none")

    assert "dropped" == play.state("work")
    assert "dropped" == play.state("bind")
    assert "succeeded" == play.ended


def test_an_empty_list_is_skipped() -> None:
    """It does not count as accepted."""
    play = Play("""
    tasks:
      plan: {agent: w, out: {tasks: t.json}}
      work: {run: x, needs: [plan], each: plan.out.tasks}
    """)
    play.ends("plan", out=["tasks"])
    play.reads("work", [])

    assert "skipped" == play.state("work")
    assert "succeeded" == play.ended


def test_a_flow_of_which_all_was_left_out_is_cancelled() -> None:
    """It does not count as a success."""
    play = Play("""
    tasks:
      a: {run: x, outcomes: {pass: ok, none: drop}}
      b: {run: x, needs: [a]}
    """)
    play.ends("a", "none")

    assert "cancelled" == play.ended


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_a_dead_task_is_not_hidden_by_one_that_was_left_out(order: tuple[str, str]) -> None:
    """The group is dead, whichever of them ended first."""
    play = Play("""
    tasks:
      g: {outcomes: {done: ok, failed: stop}, tasks: {
        a: {run: x, outcomes: {pass: ok, bad: stop}}, b: {run: x, outcomes: {pass: ok, none: drop}}}}
    """)
    for task in order:
        play.ends(f"g/{task}", {"a": "bad", "b": "none"}[task])

    assert "dead" == play.state("g")
    assert "failed" == play.ended


# --- calls and room -----------------------------------------------------------------------------------
SIBLINGS = """
tasks:
  a: {agent: w}
  b: {run: x, needs: [a], outcomes: {pass: ok, bad: {back_to: a}}}
  c: {run: x, needs: [a], outcomes: {pass: ok, bad: {call: fix}}}
  d: {run: x, needs: [a]}
  fix: {on_demand: true, run: x, claims: ["name:x"], outcomes: {pass: ok}}
"""


def test_no_callee_is_opened_for_a_caller_that_is_taken_away() -> None:
    """A sibling that ends while a way back over it is pending makes no call; what it found goes along."""
    play = Play(SIBLINGS)
    play.ends("a")
    play.ends("b", "bad", summary="b found this")
    play.ends("c", "bad", summary="c found that")
    assert ["d"] == play.opened

    play.ends("d")

    assert ["a"] == play.opened
    assert {"b found this", "c found that"} <= {one.text for one in play.order(OpenTask).feedback}


def test_a_callee_that_waits_is_not_opened_once_its_caller_is_taken_away() -> None:
    """Also when what it waits for becomes free before the way back is taken."""
    play = Play(SIBLINGS)
    play.give(ClaimsChanged(taken=("name:x",)))
    play.ends("a")
    play.ends("c", "bad")
    play.ends("b", "bad")

    play.give(ClaimsChanged(taken=()))

    assert ["d"] == play.opened


def test_no_callee_is_opened_after_the_end() -> None:
    """What still runs then makes no call."""
    play = Play("""
    tasks:
      a: {run: x, outcomes: {pass: ok, enough: {end: succeeded}}}
      c: {run: x, outcomes: {pass: ok, bad: {call: fix}}}
      fix: {on_demand: true, run: x, outcomes: {pass: ok}}
    """)
    play.ends("a", "enough")
    assert ["c"] == play.opened

    play.ends("c", "bad")

    assert "absent" == play.state("c/fix")
    assert play.ended is not None


def test_a_callee_waits_for_room() -> None:
    """Callees count against the limit of what runs at once."""
    play = Play("""
    limits: {parallel: 1}
    tasks:
      q: {ask: "Fine?", timeout: 1h, default: yes, outcomes: {yes: ok, no: {call: fix}}}
      a: {run: x}
      fix: {on_demand: true, run: x, outcomes: {pass: ok}}
    """)
    play.answers("q", "no")
    assert ["a"] == play.opened

    play.ends("a")

    assert ["q/fix"] == play.opened


def test_a_question_takes_no_room() -> None:
    """With room for one, it is asked beside a process, and a process begins beside it."""
    play = Play("""
    limits: {parallel: 1}
    tasks:
      q: {ask: "Fine?", timeout: 1h, default: yes, outcomes: {yes: ok}}
      a: {run: x}
      r: {ask: "Fine?", timeout: 1h, default: yes, outcomes: {yes: ok}}
    """)

    assert ["q", "r"] == play.asking
    assert ["a"] == play.opened


def test_a_review_that_a_person_tries_again_is_opened_again() -> None:
    """It does not vanish, and the flow does not succeed without it."""
    play = Play("""
    tasks:
      work: {run: x}
      review: {agent: w, needs: [work], outcomes: {fine: ok, critical: hold}}
    """)
    play.ends("work")
    play.ends("review", "critical")

    play.answers("review", "retry")

    assert ["review"] == play.opened
    assert 2 == play.visit("review")


def test_a_review_is_renewed_by_a_way_back() -> None:
    """What it said of the work before does not count for the work after."""
    play = Play("""
    tasks:
      work: {run: x}
      review: {agent: w, needs: [work], outcomes: {fine: ok}}
      test: {run: x, needs: [review], outcomes: {pass: ok, red: {back_to: work}}}
    """)
    play.ends("work")
    play.ends("review", "fine")
    play.ends("test", "red")
    assert "absent" == play.state("review")

    play.ends("work")

    assert ["review"] == play.opened


# --- the end, inside groups ---------------------------------------------------------------------------
def test_after_an_end_the_always_tasks_of_open_groups_run_too() -> None:
    """The one of the group first, then the one around it."""
    play = Play("""
    tasks:
      g: {tasks: {a: {run: x, outcomes: {pass: ok, enough: {end: succeeded}}}, tidy: {always: true, run: x}}}
      last: {always: true, run: x}
    """)
    play.ends("g/a", "enough")
    assert "g/tidy" in play.opened

    for node in play.opened:
        play.ends(node)
    for node in play.opened:
        play.ends(node)

    assert 1 == play.visit("last")
    assert "succeeded" == play.ended


def test_at_an_end_questions_and_holds_are_withdrawn() -> None:
    """Their answers would change nothing any more."""
    play = Play("""
    tasks:
      q: {ask: "Fine?", timeout: 1h, default: yes, outcomes: {yes: ok}}
      h: {run: x}
      a: {run: x, outcomes: {pass: ok, enough: {end: succeeded}}}
    """)
    play.ends("h", status="failed")
    assert ["h", "q"] == play.asking

    play.ends("a", "enough")

    assert {"q", "h"} == {order.node for order in play.ordered(Withdraw)}
    assert [] == play.asking
    assert play.ended is not None


# --- feedback and answers -----------------------------------------------------------------------------
NESTED = """
tasks:
  plan: {agent: w}
  g: {needs: [plan], tasks: {
    a: {run: x}, b: {run: x, needs: [a], outcomes: {pass: ok, bad: {back_to: a}}}, c: {run: x, needs: [a]}}}
  d: {run: x, needs: [plan], outcomes: {pass: ok, bad: {back_to: plan}}}
"""


def test_feedback_of_a_way_back_inside_a_group_goes_along_with_one_around_it() -> None:
    """The group is opened anew, and the task that is sent back reads both."""
    play = Play(NESTED)
    play.ends("plan")
    play.ends("g/a")
    play.ends("g/b", "bad", summary="b found this")
    play.ends("d", "bad", summary="d found that")
    assert ["g/c"] == play.opened

    play.ends("g/c", summary="c was fine")

    [order] = play.ordered(OpenTask)
    assert "plan" == order.node
    assert {"g/b", "d"} <= {one.by for one in order.feedback}


def test_a_task_that_is_sent_back_runs_though_its_condition_would_be_false_now() -> None:
    """A condition is asked once for an instance of its scope."""
    play = Play("""
    tasks:
      a: {agent: w, when: "rounds < 1"}
      b: {run: x, needs: [a], outcomes: {pass: ok, bad: {back_to: a}}}
    """)
    play.ends("a")
    play.ends("b", "bad", summary="too short")

    assert ["a"] == play.opened
    assert ["too short"] == [one.text for one in play.order(OpenTask).feedback]


def test_feedback_for_a_list_that_is_empty_now_is_in_the_report() -> None:
    """It reached no agent, and is not lost."""
    play = Play("""
    tasks:
      plan: {agent: w, out: {tasks: t.json}}
      work: {agent: w, needs: [plan], each: plan.out.tasks}
      test: {run: x, needs: [work], outcomes: {pass: ok, red: {back_to: work, at_most: 1, then: stop}}}
    """)
    play.ends("plan", out=["tasks"])
    play.reads("work", ["a"])
    play.ends("work[a]")
    play.ends("test", "red", summary="it is red")
    play.reads("work", [])
    play.ends("test")

    assert "succeeded" == play.ended
    assert ["it is red"] == [one.text for one in play.report.unread]


def test_what_needs_an_outcome_of_a_task_that_was_skipped_is_skipped() -> None:
    """Nothing is done without the choice that it needs."""
    play = Play("""
    params: {dry: {type: boolean, default: true}}
    tasks:
      first: {run: x}
      next: {when: "!params.dry", ask: "Go?", timeout: 1h, default: go, outcomes: {go: ok, no: ok}}
      execute: {run: x, needs: {next: [go]}}
      after: {run: x, needs: [execute]}
    """)

    assert "skipped" == play.state("next")
    assert "skipped" == play.state("execute")
    assert ["after", "first"] == sorted(play.opened)


def test_a_need_of_an_outcome_of_a_list_means_the_outcome_of_the_whole() -> None:
    """It is not skipped in silence."""
    play = Play("""
    tasks:
      work: {run: x, each: [a, b], outcomes: {pass: ok, none: drop}}
      full: {run: x, needs: {work: [all]}}
      part: {run: x, needs: {work: [some]}}
    """)
    play.ends("work[a]")
    play.ends("work[b]")

    assert ["full"] == play.opened
    assert "skipped" == play.state("part")


def test_an_answer_to_the_hold_of_another_visit_answers_nothing() -> None:
    """It is refused with the question that is asked now."""
    play = Play("tasks: {a: {run: x}}")
    play.ends("a", status="failed")
    late = play.answer("a", "leave_out")
    play.answers("a", "retry")
    play.ends("a", status="failed")

    refusal = play.refuses(late)

    assert "STALE_QUESTION" == refusal.code
    assert "visit 2" in refusal.message
    assert ["a"] == play.asking
