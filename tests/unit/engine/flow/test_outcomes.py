"""What an expression reads, and which outcome the end of work is: of an attempt, a list or another flow."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.flow.playbook import Play

from handoffd.engine.flow.events import Ask, OpenFlow, OpenTask, Revised

CHILD = {"child": "language: 1\npipeline: child\ntasks: {a: {run: x}}\n"}
OTHER = {"other": "language: 1\npipeline: other\ntasks: {a: {run: x}}\n"}


# --- the whole of a list -----------------------------------------------------------------------------
JOINED = """
tasks:
  work: {run: x, each: [a, b, c], outcomes: {pass: ok, none: drop, bad: stop}, join: {min: 1}}
"""


@pytest.mark.parametrize(
    ("ends", "outcome", "state"),
    [
        (("pass", "pass", "pass"), "all", "accepted"),
        (("pass", "none", "bad"), "some", "accepted"),
        (("bad", "bad", "none"), "none", "dead"),
        (("none", "none", "none"), None, "dropped"),
    ],
)
def test_the_outcome_of_a_whole_is_all_some_or_none(
    ends: tuple[str, ...], outcome: str | None, state: str
) -> None:
    """Below the least it is dead; where every item was left out, it is left out."""
    play = Play(JOINED)
    for item, end in zip("abc", ends, strict=True):
        play.ends(f"work[{item}]", end)

    assert state == play.state("work")
    if state == "accepted":
        assert outcome == play.node("work").outcome


def test_a_dead_item_is_a_dead_whole_where_no_least_is_said() -> None:
    """All that were not left out must be accepted."""
    play = Play("tasks: {work: {run: x, each: [a, b, c], outcomes: {pass: ok, none: drop, bad: stop}}}")
    for item, end in zip("abc", ("pass", "none", "bad"), strict=True):
        play.ends(f"work[{item}]", end)

    assert "dead" == play.state("work")
    assert "failed" == play.ended


@pytest.mark.parametrize(("risk", "outcome"), [(4.0, "high"), (2.0, "low")])
def test_the_verdict_of_a_join_judges_the_accepted_items(risk: float, outcome: str) -> None:
    """The verdict of the task itself judges one item."""
    play = Play("""
    tasks:
      seat:
        agent: w
        each: [a, b, c]
        fields: {risk: {}}
        verdict: [{if: "fields.risk > 9", then: mad}, {else: rated}]
        outcomes: {rated: ok, mad: drop}
        join:
          verdict: [{if: "items.exists(i, i.risk > 3)", then: high}, {else: low}]
          outcomes: {high: warn, low: ok}
    """)
    play.ends("seat[a]", fields={"risk": 1.0})
    play.ends("seat[b]", fields={"risk": 10.0})
    play.ends("seat[c]", fields={"risk": risk})

    assert "dropped" == play.state("seat[b]")
    assert outcome == play.node("seat").outcome
    assert (outcome == "high") == play.node("seat").warned


def test_a_join_counts_accepted_lost_and_all_items() -> None:
    """Whole numbers in its verdict."""
    play = Play("""
    tasks:
      work:
        run: x
        each: [a, b, c]
        outcomes: {pass: ok, bad: stop}
        join: {min: 1, verdict: [{if: "accepted == 2 && lost == 1 && total == 3", then: known}, {else: odd}],
          outcomes: {known: ok, odd: stop}}
    """)
    for item, end in zip("abc", ("pass", "pass", "bad"), strict=True):
        play.ends(f"work[{item}]", end)

    assert "known" == play.node("work").outcome


def test_a_join_whose_least_is_reached_waits_for_all_items() -> None:
    """None that is at work is cut off, and none that waits is left out."""
    play = Play("""
    limits: {parallel: 1}
    tasks:
      work: {run: x, each: [a, b, c], join: {min: 1}}
      next: {run: x, needs: [work]}
    """)
    play.ends("work[a]")
    assert ["work[b]"] == play.opened
    play.ends("work[b]")
    assert ["work[c]"] == play.opened
    play.ends("work[c]")

    assert ["next"] == play.opened
    assert "all" == play.node("work").outcome


def test_an_outcome_of_the_whole_can_send_a_task_back() -> None:
    """All items are made anew."""
    play = Play("""
    tasks:
      plan: {run: x}
      work: {run: x, needs: [plan], each: [a, b], outcomes: {pass: ok, none: drop},
        join: {outcomes: {all: ok, some: {back_to: plan, at_most: 1}}}}
    """)
    play.ends("plan")
    play.ends("work[a]")
    play.ends("work[b]", "none")
    assert ["plan"] == play.opened

    play.ends("plan")

    assert ["work[a]", "work[b]"] == play.opened


# --- what expressions read ----------------------------------------------------------------------------
def test_a_condition_reads_the_facts_that_the_flow_was_started_with() -> None:
    """The project is a record of the start, so the same events give the same flow."""
    play = Play(
        """
    tasks:
      first: {run: x, when: "!project.bootstrapped"}
      next: {run: x, needs: [first]}
    """,
        project={"name": "demo", "bootstrapped": True, "has_code": False},
    )

    assert "skipped" == play.state("first")
    assert ["next"] == play.opened


def test_parameters_that_were_not_given_have_their_default() -> None:
    """What was given wins."""
    text = """
    params: {dry: {type: boolean, default: true}}
    tasks: {a: {run: x, when: "params.dry"}}
    """

    assert ["a"] == Play(text).opened
    assert "skipped" == Play(text, {"dry": False}).state("a")


def test_whole_numbers_are_compared_with_fields() -> None:
    """Numbers are doubles, whatever they look like."""
    play = Play("""
    tasks:
      a: {run: x, fields: {high: {}, low: {}},
        outcomes: {fine: ok, bad: warn},
        verdict: [{if: "fields.high + fields.low > 3", then: bad}, {else: fine}]}
    """)
    play.ends("a", fields={"high": 2, "low": 1.5})

    assert "bad" == play.node("a").outcome


def test_an_expression_without_a_value_holds_the_task_with_its_words() -> None:
    """It never counts as true or false; the person reads the expression, what it read, and why."""
    play = Play(
        """
    params: {names: {type: array}}
    tasks:
      a: {run: x, when: "params.names[3] == 'x'"}
    """,
        {"names": ["one"]},
    )

    why = play.order(Ask, "a").why
    assert ["a"] == play.asking
    assert "params.names[3] == 'x'" in why
    assert "['one']" in why
    assert "there is no element [3]" in why


def test_rounds_count_how_often_a_way_back_opened_the_task() -> None:
    """Also by the outcome that took it."""
    play = Play("""
    tasks:
      a: {run: x}
      b:
        run: x
        needs: [a]
        fields: {n: {}}
        verdict:
          - {if: "rounds == 0", then: bad}
          - {if: "rounds.bad == 1 && rounds.worse == 0", then: worse}
          - {else: pass}
        outcomes: {pass: ok, bad: {back_to: a}, worse: {back_to: a}}
    """)
    for _ in range(3):
        play.ends("a")
        play.ends("b", fields={"n": 1.0})

    assert "succeeded" == play.ended
    assert 3 == play.visit("b")


@pytest.mark.parametrize("who", ["retry", "revised"])
def test_what_a_person_opens_again_is_no_round(who: str) -> None:
    """A round is a way back that an outcome took."""
    play = Play("""
    tasks:
      a: {run: x, fields: {n: {}}, verdict: [{if: "rounds > 0", then: later}, {else: first}],
        outcomes: {first: ok, later: ok}}
      b: {run: x, needs: [a]}
    """)
    if who == "retry":
        play.ends("a", status="failed")
        play.answers("a", "retry")
    else:
        play.ends("a", fields={"n": 1.0})
        play.give(Revised(node="a"))
        play.ends("b")
    play.ends("a", fields={"n": 1.0})

    assert (2, "first") == (play.visit("a"), play.node("a").outcome)


SPRINTS = """
tasks:
  g: {outcomes: {done: ok}, tasks: {
    work: {run: x, fields: {velocity: {}}},
    slow: {needs: [work], when: "!scope.first && scope.last.work.velocity >= 2", run: x}}}
  more: {run: x, needs: [g], outcomes: {pass: ok, again: {back_to: g}}}
"""


def test_a_group_that_is_opened_anew_reads_what_the_instance_before_had_accepted() -> None:
    """At first there is none, and its numbers are 0."""
    play = Play(SPRINTS)
    play.ends("g/work", fields={"velocity": 2.0})
    assert "skipped" == play.state("g/slow")
    play.ends("more", "again")

    play.ends("g/work", fields={"velocity": 1.0})

    assert ["g/slow"] == play.opened


def test_a_caller_is_known_to_the_callee() -> None:
    """By name, outcome and fields."""
    play = Play("""
    tasks:
      a: {run: x, fields: {n: {}}, outcomes: {pass: ok, bad: {call: fix}}}
      fix: {on_demand: true, agent: w, outcomes: {done: ok},
        with: {who: caller, what: caller.outcome, n: caller.n}}
    """)
    play.ends("a", "bad", fields={"n": 7.0})

    assert {"who": "a", "what": "bad", "n": 7.0} == play.order(OpenTask).extras


# --- pipelines in pipelines ---------------------------------------------------------------------------
def test_another_pipeline_takes_no_room() -> None:
    """With room for one process, the flow goes on beside the one that it started."""
    play = Play(
        """
    limits: {parallel: 1}
    tasks:
      a: {pipeline: child}
      b: {run: x}
    """,
        others=CHILD,
    )

    assert ["a", "b"] == play.opened


def test_a_parameter_chooses_the_pipeline() -> None:
    """What it is given are values of this flow."""
    play = Play(
        """
    params: {kind: {type: string, enum: [child, other]}}
    tasks:
      a: {pipeline: "params.kind"}
    """,
        {"kind": "other"},
        others={**CHILD, **OTHER},
    )

    assert "other" == play.order(OpenFlow).pipeline


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_a_pipeline_that_does_not_succeed_asks_a_person(how: str) -> None:
    """Where the task does not say what follows."""
    play = Play("tasks: {a: {pipeline: child}}", others=CHILD)
    play.ends("a", how)

    assert ["a"] == play.asking
    assert how == play.node("a").outcome


# --- from a status to an outcome ----------------------------------------------------------------------
OUTCOMES = """
tasks:
  a: {agent: w, outcomes: {pass: ok, late: warn, asks: drop, %s}}
  b: {run: x}
"""


@pytest.mark.parametrize(
    ("declared", "end", "outcome"),
    [
        ("more: ok", {"status": "pass"}, "pass"),
        ("more: ok", {"status": "pass", "outcome": "late"}, "late"),
        ("more: ok", {"status": "pass", "question": "Which?"}, "asks"),
        ("more: ok", {"status": "needs_human"}, "asks"),
        ("more: ok", {"status": "needs_human", "outcome": "late"}, "asks"),
        ("more: ok", {"status": "failing", "outcome": "late"}, "late"),
        ("failing: warn", {"status": "failing"}, "failing"),
        ("failing: warn", {"status": "failing", "outcome": "late"}, "late"),
        ("failed: warn", {"status": "failed"}, "failed"),
        ("failed: warn", {"status": "failing"}, "failed"),
    ],
)
def test_a_status_is_an_outcome(declared: str, end: dict[str, Any], outcome: str) -> None:
    """A question first, then what the hand-off names, then the status."""
    play = Play(OUTCOMES % declared)
    play.ends("a", **end)

    assert outcome == play.node("a").outcome


def test_a_verdict_judges_an_attempt_that_passed_and_none_that_failed() -> None:
    """What a failed attempt measured counts for nothing."""
    text = """
    tasks:
      a: {agent: w, fields: {n: {}}, verdict: [{if: "fields.n > 1", then: big}, {else: small}],
        outcomes: {big: ok, small: warn}}
    """
    play, other = Play(text), Play(text)
    play.ends("a", "small", fields={"n": 5.0})
    other.ends("a", status="failed", fields={"n": 5.0})

    assert "big" == play.node("a").outcome
    assert "failed" == other.node("a").outcome
    assert ["a"] == other.asking


@pytest.mark.parametrize(
    ("exit_", "said", "outcome"),
    [(0, None, "pass"), (0, "odd", "odd"), (1, None, "failed"), (1, "odd", "odd"), (2, "unknown", "failed")],
)
def test_a_command_ends_by_its_report_or_its_exit_code(exit_: int, said: str | None, outcome: str) -> None:
    """A report that names a declared outcome counts, whatever the exit code."""
    play = Play("tasks: {a: {run: x, outcomes: {pass: ok, odd: warn, failed: drop}}, b: {run: x}}")
    play.ends("a", said, "failed" if exit_ else "pass")

    assert outcome == play.node("a").outcome
