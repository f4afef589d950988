"""Corners of the machine: what two rules mean together, and what a first version of it got wrong."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.unit.engine.flow.playbook import NOON, Play

from handoffd.engine.flow.events import (
    Ask,
    AskTimedOut,
    CapReached,
    ClaimsChanged,
    CloseTask,
    Execute,
    FlowAborted,
    FlowPaused,
    FlowResumed,
    LimitsRaised,
    Merge,
    OpenTask,
    Proceed,
    Suspend,
    Withdraw,
)


def test_a_new_visit_goes_on_with_the_work_of_before_unless_it_is_said() -> None:
    """`fresh` lets its tree begin anew."""
    play = Play("""
    tasks:
      a: {agent: w}
      b: {run: x, needs: [a], outcomes: {pass: ok, bad: {back_to: a}, awful: {back_to: a, fresh: true}}}
    """)
    play.ends("a")
    play.ends("b", "bad")
    assert not play.order(OpenTask).fresh

    play.ends("a")
    play.ends("b", "awful")

    assert play.order(OpenTask).fresh


def test_two_writers_of_one_tree_are_at_work_one_after_the_other() -> None:
    """A flow's own tree has one writer at a time."""
    play = Play("""
    tasks:
      a: {agent: w, isolation: tree, writes: [src/**]}
      b: {agent: w, isolation: tree, writes: [docs/**]}
    """)
    assert ["a"] == play.opened

    play.ends("a")

    assert ["b"] == play.opened


def test_a_merge_takes_nothing_that_was_merged_before() -> None:
    """The second one takes what has come since."""
    play = Play("""
    order: chain
    tasks:
      a: {agent: w, isolation: clone}
      first: {run: git.merge, outcomes: {merged: ok}}
      b: {agent: w, isolation: clone}
      second: {run: git.merge, outcomes: {merged: ok}}
    """)
    play.ends("a")
    assert ("a",) == play.order(Merge).of
    play.ends("first", "merged")
    play.ends("b")

    assert ("b",) == play.order(Merge).of


def test_a_task_left_out_inside_a_group_leaves_out_the_group_when_its_siblings_have_ended() -> None:
    """They are drained, and nothing more begins in it."""
    play = Play("""
    tasks:
      first: {run: x}
      g: {each: [p, q], tasks: {a: {run: x, outcomes: {pass: ok, none: drop}}, b: {run: x},
        c: {run: x, needs: [b]}}}
    """)
    play.ends("g[p]/a", "none")
    assert "open" == play.state("g[p]")
    assert [] == play.ordered(CloseTask)

    play.ends("g[p]/b")

    assert "dropped" == play.state("g[p]")
    assert 0 == play.visit("g[p]/c")
    assert "open" == play.state("g[q]")


def test_a_hold_says_that_a_way_back_is_used_up() -> None:
    """A person sees why the work does not go back once again."""
    play = Play("""
    tasks:
      plan: {run: x}
      test: {run: x, needs: [plan], outcomes: {pass: ok, red: {back_to: plan, at_most: 1}}}
    """)
    for _ in range(2):
        play.ends("plan")
        play.ends("test", "red")

    assert "used up" in play.order(Ask, "test").why


@pytest.mark.parametrize(("reaction", "state"), [("warn", "accepted"), ("again", "open"), ("stop", "dead")])
def test_a_called_question_that_answers_itself_acts_on_its_caller(reaction: str, state: str) -> None:
    """The answer is taken at once, as any other would be."""
    play = Play(
        f"""
    tasks:
      a: {{agent: w, outcomes: {{pass: ok, many: {{call: pick}}}}}}
      b: {{run: x}}
      pick: {{on_demand: true, ask: "Which?", timeout: 1h, default: new, auto: new,
              outcomes: {{new: {reaction}, old: warn}}}}
    """,
        automatic=True,
    )
    play.ends("a", "many")

    assert state == play.state("a")


def test_a_flow_that_ends_by_itself_under_a_cap_withdraws_the_question() -> None:
    """At the end no question is left."""
    play = Play("tasks: {a: {run: x}}")
    play.give(CapReached(what="usd", words="5 USD"))
    play.ends("a")

    assert "" == play.order(Withdraw).node


def test_an_end_under_a_cap_withdraws_the_question() -> None:
    """Also where an outcome ends it."""
    play = Play("tasks: {a: {run: x, outcomes: {pass: ok, enough: {end: succeeded}}}, b: {run: x}}")
    play.give(CapReached(what="usd", words="5 USD"))
    play.ends("a", "enough")

    assert "" == play.order(Withdraw).node


def test_a_pause_moves_the_time_to_answer_for_the_question_of_the_flow() -> None:
    """It does not run while the flow is paused."""
    play = Play("tasks: {a: {run: x}}")
    play.give(CapReached(what="usd", words="5 USD"))
    play.give(FlowPaused())
    play.passes(hours=10)
    play.give(FlowResumed())

    assert NOON + timedelta(hours=82) == play.order(Ask, "").deadline


def test_a_pause_moves_a_deadline_by_as_much_as_the_question_was_paused() -> None:
    """A question of the pause itself loses nothing by it."""
    play = Play("tasks: {a: {run: x}}")
    play.give(FlowPaused())
    play.passes(hours=10)
    play.ends("a", status="failed")
    play.passes(hours=1)
    play.give(FlowResumed())

    assert play.now + timedelta(hours=72) == play.order(Ask, "a").deadline


def test_a_timer_of_before_the_pause_does_not_answer_after_it() -> None:
    """The question has got more time meanwhile."""
    play = Play('tasks: {q: {ask: "Fine?", timeout: 1h, default: y, outcomes: {y: ok}}}')
    play.give(FlowPaused())
    play.passes(hours=2)
    play.give(FlowResumed())

    assert "STALE_FACT" == play.refuses(AskTimedOut(node="q", visit=1)).code


def test_an_always_task_that_was_paused_goes_on_at_an_abort() -> None:
    """It runs at the end."""
    play = Play("tasks: {a: {run: x}, tidy: {always: true, agent: w}}")
    play.ends("a")
    play.give(FlowPaused())
    assert "tidy" == play.order(Suspend).node
    play.give(FlowAborted())

    assert "tidy" == play.order(Proceed).node


def test_the_second_abort_waits_for_the_process_that_it_stops() -> None:
    """The end is reported when the last process is gone."""
    play = Play("tasks: {a: {run: x}, tidy: {always: true, run: x}}")
    play.ends("a")
    play.give(FlowAborted())
    play.give(FlowAborted())
    assert "tidy" == play.order(CloseTask).node
    assert play.ended is None
    play.ends("tidy", status="failed")

    assert "cancelled" == play.ended


def test_a_limit_where_there_was_none_is_no_higher_one() -> None:
    """No limit is higher than any."""
    assert "ONLY_UPWARDS" == Play("tasks: {a: {run: x}}").refuses(LimitsRaised(usd=5.0)).code


@pytest.mark.parametrize("choice", ["leave_out", "retry", "accept", "stop"])
def test_the_second_answer_of_a_hold_is_told_who_was_first(choice: str) -> None:
    """Whatever the answer was."""
    play = Play("tasks: {a: {run: x}, b: {run: x}}")
    play.ends("a", status="failed")
    late = play.answer("a", "stop", by="bob")
    play.answers("a", choice, by="anna")

    assert "anna" in play.refuses(late).message


def test_the_second_answer_of_a_question_that_sent_back_is_told_who_was_first() -> None:
    """Also where the question is gone."""
    play = Play(
        "tasks: {a: {run: x}, q: {needs: [a], ask: x, timeout: never, outcomes: {y: ok, n: {back_to: a}}}}"
    )
    play.ends("a")
    late = play.answer("q", "y", by="bob")
    play.answers("q", "n", by="anna")

    assert "anna" in play.refuses(late).message


def test_a_chain_of_sessions_goes_on_for_the_roles_of_items() -> None:
    """The next item of the same role takes it up."""
    play = Play(
        """
    params: {l: {type: array}}
    tasks:
      a: {agent: item.role, each: "params.l", item: {id: id, role: role}, parallel: 1, session: chain}
    """,
        {"l": [{"id": "x", "role": "w"}, {"id": "y", "role": "w"}]},
    )
    play.ends("a[x]", session="s1")

    assert "s1" == play.order(OpenTask).session


def test_feedback_for_a_command_reaches_it_or_is_in_the_report() -> None:
    """No word of it is lost."""
    play = Play("tasks: {a: {run: x}, b: {agent: w, needs: [a], outcomes: {pass: ok, bad: {back_to: a}}}}")
    play.ends("a")
    play.ends("b", "bad", summary="too short")
    order = play.order(Execute)
    play.ends("a")
    play.ends("b")

    got = [one.text for one in (*getattr(order, "feedback", ()), *play.report.unread)]
    assert ["too short"] == got


def test_a_task_that_was_cancelled_is_not_accepted() -> None:
    """It did not pass, and the flow did not stop it."""
    play = Play("tasks: {a: {agent: w}, b: {agent: w}}")
    play.ends("a", status="cancelled")

    assert "accepted" != play.state("a")


def test_a_verdict_that_reads_a_field_that_is_missing_holds_the_task() -> None:
    """The words name the field."""
    play = Play("""
    tasks:
      a: {run: x, fields: {n: {}}, verdict: [{if: "fields.n > 1", then: big}, {else: small}],
          outcomes: {big: ok, small: ok}}
    """)
    play.ends("a")

    assert ["a"] == play.asking
    assert "fields.n" in play.order(Ask, "a").why


def test_a_person_accepts_a_whole_list() -> None:
    """The whole has the outcomes of its join."""
    play = Play("""
    tasks:
      work: {run: x, each: [a, b], outcomes: {pass: ok, none: drop}, join: {outcomes: {all: ok, some: hold}}}
      next: {run: x, needs: {work: [all, some]}}
    """)
    play.ends("work[a]")
    play.ends("work[b]", "none")
    play.answers("work", "accept")

    assert play.node("work").outcome in {"all", "some"}
    assert ["next"] == play.opened


def test_a_whole_list_whose_items_handed_over_their_files_can_be_accepted() -> None:
    """The items have handed over the files."""
    play = Play("""
    tasks:
      work: {agent: w, each: [a, b], out: {x: x.md}, outcomes: {pass: ok, none: drop},
             join: {outcomes: {all: ok, some: hold}}}
    """)
    play.ends("work[a]", out=["x"])
    play.ends("work[b]", "none", out=["x"])

    assert "accept" in play.order(Ask, "work").choices


def test_a_flow_of_which_all_but_the_tidying_was_left_out_is_cancelled() -> None:
    """What is done in any case makes no success."""
    play = Play("tasks: {a: {run: x, outcomes: {pass: ok, none: drop}}, tidy: {always: true, run: x}}")
    play.ends("a", "none")
    play.ends("tidy")

    assert "cancelled" == play.ended


def test_a_list_that_may_lose_all_its_items_has_an_outcome_for_that() -> None:
    """The outcome is `none`."""
    play = Play("""
    tasks:
      work: {run: x, each: [a, b], outcomes: {pass: ok, bad: stop}, join: {min: 0}}
      n: {run: x, needs: {work: [none]}}
    """)
    play.ends("work[a]", "bad")
    play.ends("work[b]", "bad")
    assert ["n"] == play.opened


def test_ids_of_items_that_cannot_be_names_are_refused() -> None:
    """Ids are unique case-folded and match the rule of story ids, or the list is refused."""
    for ids in (["A", "a"], ["foo.lock:x"], ["ü"], ["." * 70]):
        play = Play('params: {l: {type: array}}\ntasks: {a: {run: x, each: "params.l"}}', {"l": ids})
        assert ["a"] == play.asking, ids


def test_an_item_without_an_id_is_refused() -> None:
    """Nothing of the list is begun."""
    play = Play(
        'params: {l: {type: array}}\ntasks: {a: {run: x, each: "params.l", item: {id: id}}}',
        {"l": [{"x": 1}]},
    )
    assert ["a"] == play.asking


def test_a_flow_that_ends_waits_for_a_called_task() -> None:
    """What it called may end first."""
    play = Play("""
    tasks:
      a: {run: x, outcomes: {pass: ok, bad: {call: fix}}}
      fix: {on_demand: true, run: x}
      b: {run: x, outcomes: {pass: ok, e: {end: succeeded}}}
    """)
    play.ends("a", "bad")
    play.ends("b", "e")
    assert ["a/fix"] == play.opened
    play.ends("a/fix")
    assert play.ended == "succeeded"


def test_a_question_inside_a_group_that_was_left_out_is_withdrawn() -> None:
    """Its answer would change nothing."""
    play = Play("""
    tasks:
      g: {tasks: {
        a: {run: x, outcomes: {pass: ok, none: drop}},
        q: {ask: "Fine?", timeout: 1h, default: yes, outcomes: {yes: ok}}}}
      h: {run: x}
    """)
    play.ends("g/a", "none")

    assert ["g/q"] == [order.node for order in play.ordered(Withdraw)]
    assert "dropped" == play.state("g")


def test_a_hold_inside_a_group_that_was_left_out_is_withdrawn() -> None:
    """Also if it was asked before."""
    play = Play("""
    tasks:
      g: {tasks: {a: {run: x, outcomes: {pass: ok, none: drop}}, b: {run: x}}}
      h: {run: x}
    """)
    play.ends("g/b", status="failed")
    play.ends("g/a", "none")

    assert "dropped" == play.state("g")


def test_a_callee_that_waits_in_a_group_that_was_left_out_is_not_opened() -> None:
    """Also when its claim becomes free."""
    play = Play("""
    tasks:
      g: {tasks: {
        a: {run: x, outcomes: {pass: ok, none: drop}},
        b: {run: x, outcomes: {pass: ok, bad: {call: fix}}},
        fix: {on_demand: true, run: x, claims: ["name:x"]}}}
      h: {run: x}
    """)
    play.give(ClaimsChanged(taken=("name:x",)))
    play.ends("g/b", "bad")
    play.ends("g/a", "none")
    play.give(ClaimsChanged(taken=()))

    assert ["h"] == play.opened
    assert "dropped" == play.state("g")


def test_a_pause_moves_the_deadline_of_the_flow_by_as_much_as_it_was_paused() -> None:
    """A cap that was reached in the pause has its whole time."""
    play = Play("tasks: {a: {run: x}, b: {run: x, needs: [a]}}")
    play.give(FlowPaused())
    play.passes(hours=5)
    play.give(CapReached(what="usd", words="5 USD"))
    play.passes(hours=1)
    play.give(FlowResumed())

    assert play.now + timedelta(hours=72) == play.order(Ask, "").deadline


def test_a_default_that_cannot_be_taken_does_not_become_retry() -> None:
    """Unanswered, the task would be tried again for ever."""
    play = Play("""
    tasks:
      a: {agent: w, out: {x: x.md}, hold: {timeout: 1h, default: accept, choices: [accept, retry]}}
      b: {run: x}
    """)
    play.ends("a", status="failed")

    assert "retry" != play.order(Ask).default


@pytest.mark.parametrize(
    "said", ["agent: w", "ask: 'What now?', timeout: 1h, default: pass, outcomes: {pass: ok}"]
)
def test_a_callee_reads_why_it_was_called(said: str) -> None:
    """The words of its caller come as feedback."""
    play = Play(f"""
    tasks:
      a: {{agent: w, outcomes: {{pass: ok, bad: {{call: fix}}}}}}
      fix: {{on_demand: true, {said}}}
    """)
    play.ends("a", "bad", summary="the port is taken")

    [order] = [one for one in play.orders if isinstance(one, OpenTask | Ask)]
    assert "the port is taken" in str(order)
