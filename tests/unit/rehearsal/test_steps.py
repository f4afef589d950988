"""The whole story, step by step, with the real tests run in between."""

from __future__ import annotations

from tests.support.rehearsal import Rehearsal

from handoffd.rehearsal import coding, documents, programs
from handoffd.rehearsal.__main__ import work_of

WRITES: dict[str, set[str]] = {
    "bootstrap": set(),
    "bdd": {"docs/bdd/US-001.md"},
    "sdd-delta": {"docs/deltas/US-001.md"},
    "contract": {"docs/api/openapi.yaml"},
    "scaffold": {"tests/test_discounts.py"},
    "impl": {"shop/pricing.py", "shop/receipt.py"},
    "verify": {"docs/sdd.md"},
    "commit": set(),
    "update-memory": {".ai/history.md", "PROJECT_MEMORY.md"},
}
HANDED_OVER = {".ai/HANDOFF.md", ".ai/executor-result"}


def test_a_story_goes_from_green_over_red_to_green(shop: Rehearsal) -> None:
    """Each step in its own process: the tests pass before, fail after scaffold, and pass after impl."""
    assert (5, 0) == shop.tests()
    shop.passes("bootstrap", "bdd", "sdd-delta", "contract", "scaffold")
    assert (5, 6) == shop.tests()
    shop.passes("impl")
    assert (11, 0) == shop.tests()
    shop.passes("verify", "commit", "update-memory")


def test_a_story_that_the_sample_does_not_know_works_as_well(shop: Rehearsal) -> None:
    """It gets small tests and code of its own, red and green, beside everything else."""
    shop.performs("bdd", "sdd-delta", "contract", "scaffold", story="US-002")
    assert (5, 2) == shop.tests()
    shop.performs("impl", story="US-002")
    shop.passes("verify", story="US-002")
    assert 7 == shop.handoff()["tests_pass"]
    assert "# US-002 Bottle deposit" in shop.text("docs/bdd/US-002.md")


def test_a_step_reports_what_it_writes_and_writes_it_once(shop: Rehearsal) -> None:
    """The hand-off lists the changed files, within the write scope; repeating changes nothing."""
    for step, writes in WRITES.items():
        before = shop.files()
        shop.performs(step)
        after = shop.files()
        changed = {name for name in after if before.get(name) != after[name]} - HANDED_OVER
        assert (writes, writes) == (changed, set(shop.handoff()["files_changed"])), step
        shop.performs(step)
        assert after == shop.files(), step


def test_any_project_can_be_rehearsed_twice(foreign: Rehearsal) -> None:
    """Every step passes, a repetition changes nothing, and a person's code stays."""
    code = foreign.text("main.rb")
    for step in WRITES:
        foreign.performs(step)
        before = foreign.files()
        foreign.performs(step)
        assert before == foreign.files(), step
    assert code == foreign.text("main.rb")


def test_an_unknown_step_passes_without_work(shop: Rehearsal) -> None:
    """The hand-off of a step of the user's own table says that nothing was done."""
    before = shop.files()

    shop.performs("threat-model")

    assert "knows no work for the step threat-model" in shop.handoff()["summary"]
    assert HANDED_OVER == shop.files().keys() - before.keys()


def test_every_step_of_the_default_table_has_its_work() -> None:
    """The table leads to the function that does the step's work."""
    documented = ("bootstrap", "bdd", "sdd-delta", "contract", "update-memory", "custom")
    expected = {step: getattr(documents, step.replace("-", "_")) for step in documented}
    expected |= {"scaffold": coding.scaffold, "impl": coding.impl}
    expected |= {"verify": programs.measured, "commit": programs.commit}

    assert expected == {step: work_of(step) for step in expected}
    assert programs.claimed == work_of("verify", run_tests=False)
