"""Which work is merged, who writes a tree, and what a visit that is opened again begins with."""

from __future__ import annotations

from tests.unit.engine.flow.playbook import Play

from handoffd.engine.flow.events import Merge, OpenTask


def test_a_merge_takes_the_accepted_work_of_its_needs_in_the_order_of_acceptance() -> None:
    """Also of what its needs need; what was left out, or only read, is not merged."""
    play = Play("""
    tasks:
      a: {agent: w, isolation: clone}
      b: {agent: w, isolation: clone}
      c: {agent: w, isolation: clone, needs: [a], outcomes: {pass: ok, none: drop}}
      d: {agent: w, isolation: clone, needs: [a]}
      reader: {agent: w, needs: [b]}
      land: {run: git.merge, needs: [reader, d], outcomes: {merged: ok}}
    """)
    play.ends("b")
    play.ends("reader")
    play.ends("a")
    play.ends("c", "none")
    play.ends("d")

    assert ("b", "a", "d") == play.order(Merge).of


def test_a_merge_takes_the_items_of_a_list_that_were_accepted() -> None:
    """Each has a tree of its own."""
    play = Play("""
    tasks:
      work: {agent: w, isolation: clone, each: [a, b, c], outcomes: {pass: ok, none: drop}}
      land: {run: git.merge, needs: [work], outcomes: {merged: ok}}
    """)
    play.ends("work[c]")
    play.ends("work[b]", "none")
    play.ends("work[a]")

    assert ("work[c]", "work[a]") == play.order(Merge).of


def test_writers_in_clones_of_their_own_are_at_work_at_once() -> None:
    """So are readers."""
    play = Play("""
    tasks:
      a: {agent: w, isolation: clone}
      b: {agent: w, isolation: clone}
      c: {agent: w}
    """)

    assert ["a", "b", "c"] == play.opened


def test_a_superseded_visit_is_handed_over_as_it_was() -> None:
    """With all that it accepted; the node itself is new, and its visits go on counting."""
    play = Play("""
    tasks:
      a: {agent: w, out: {text: t.md}}
      b: {run: x, needs: [a], outcomes: {pass: ok, bad: {back_to: a}}}
    """)
    play.ends("a", out=["text"])
    play.ends("b", "bad")

    assert {("a", 1, "accepted"), ("b", 1, "sent_back")} == {
        (node.id, node.visit, node.state.value) for node in play.last.past
    }
    assert 2 == play.visit("a")


def test_a_conflict_of_the_tree_is_an_outcome() -> None:
    """A person is asked where the task does not say what follows."""
    play = Play("tasks: {a: {agent: w, isolation: tree}}")
    play.ends("a", status="conflict")

    assert ["a"] == play.asking
    assert "conflict" == play.node("a").outcome


INSTANCES = """
tasks:
  g: {each: [p, q], tasks: {
    a: {agent: w, isolation: clone},
    b: {agent: w, isolation: tree},
    m: {run: git.merge, needs: [a, b], outcomes: {merged: ok}}}}
"""


def test_the_tasks_of_one_instance_write_its_tree_one_after_the_other() -> None:
    """A group with a task in a clone has a tree for each instance; the instances are at work at once."""
    play = Play(INSTANCES)
    assert ["g[p]/a", "g[q]/a"] == play.opened

    play.ends("g[p]/a")

    assert ["g[p]/b", "g[q]/a"] == play.opened


def test_two_instances_are_merged_one_after_the_other() -> None:
    """Both merges write the tree around them."""
    play = Play(INSTANCES)
    for task in ("a", "b"):
        play.ends(f"g[p]/{task}")
        play.ends(f"g[q]/{task}")
    assert ["g[p]/m"] == play.opened

    play.ends("g[p]/m", "merged")

    assert ["g[q]/m"] == play.opened


def test_what_was_merged_is_not_merged_again_after_a_conflict_of_what_was_not() -> None:
    """The work that came in conflict is merged at its new visit."""
    play = Play("""
    tasks:
      a: {agent: w, isolation: clone}
      m: {run: git.merge, needs: [a], outcomes: {merged: ok, conflict: {back_to: a}}}
    """)
    play.ends("a")
    play.ends("m", "conflict", "failing")
    assert ["a"] == play.opened

    play.ends("a")

    assert ("a",) == play.order(Merge).of


def test_of_two_ways_back_to_one_task_one_is_enough_to_begin_anew() -> None:
    """Whichever of them said `fresh`."""
    for first, second in (("bad", "awful"), ("awful", "bad")):
        play = Play("""
        shapes: {s: {run: x, outcomes: {pass: ok, bad: {back_to: a}, awful: {back_to: a, fresh: true}}}}
        tasks:
          a: {agent: w}
          b: {like: s, needs: [a]}
          c: {like: s, needs: [a]}
        """)
        play.ends("a")
        play.ends("b", first)
        play.ends("c", second)

        assert play.order(OpenTask).fresh
