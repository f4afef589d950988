"""The memory says what was done, in the sections a person knows."""

from __future__ import annotations

import pytest
from tests.support.rehearsal import Rehearsal

from handoffd.rehearsal.assignment import Assignment, Counts, Report, hand_over
from handoffd.rehearsal.documents import update_memory
from handoffd.rehearsal.workspace import Workspace

ELEVEN = Counts(11)


def done(rehearsal: Rehearsal, story: str, tests: Counts = ELEVEN, commit: str | None = None) -> Report:
    """Hand over as the step before would, and update the memory."""
    workspace = Workspace(str(rehearsal.root))
    before = Assignment("verify", story, 1, "d-1", "")
    hand_over(workspace, before, Report(summary="it works", tests=tests, commit=commit))
    return update_memory(workspace, before._replace(step="update-memory"))


def test_a_story_moves_from_now_to_done(shop: Rehearsal) -> None:
    """NOW is cleared, TESTS and LOG have the facts of the step before, everything else stays."""
    report = done(shop, "US-001", Counts(11, 0, 2), "abc123")

    assert (Counts(11, 0, 2), "abc123") == (report.tests, report.commit)
    assert """# Project memory

## NOW
- Nothing in progress

## NEXT
- US-002 Bottle deposit: a deposit is added for each bottle

## ISSUES
- [ ] The receipt has no date

## TESTS
- 11 pass, 0 fail, 2 skip

## DONE
- Baskets, totals and receipts
- US-001 Discount codes

## LOG
- The till adds up and prints
- US-001 done: 11 pass, 0 fail, 2 skip
""" == shop.text("PROJECT_MEMORY.md")
    assert "### US-001 Discount codes\n- tests: 11 pass, 0 fail, 2 skip\n- commit: abc123\n" in shop.text(
        ".ai/history.md"
    )


def test_missing_sections_are_added_and_similar_stories_kept(foreign: Rehearsal) -> None:
    """US-0099 is not US-009."""
    done(foreign, "US-009")

    text = foreign.text("PROJECT_MEMORY.md")
    assert "## DONE\n- US-0099 Another\n- US-009 Sort the list\n" in text
    assert ["## NOW", "## DONE", "## NEXT", "## TESTS", "## LOG"] == [
        x for x in text.splitlines() if x[:2] == "##"
    ]


def test_a_reopened_story_gets_another_entry(shop: Rehearsal) -> None:
    """The history is appended to: repeating adds nothing, doing it again after a reopening does."""
    done(shop, "US-001")
    done(shop, "US-001")
    assert 1 == shop.text(".ai/history.md").count("### US-001")
    with (shop.root / ".ai/history.md").open("a") as history:
        history.write("\n### Reopen\n- US-001 at impl\n")

    done(shop, "US-001")

    assert 2 == shop.text(".ai/history.md").count("### US-001")


@pytest.mark.parametrize(
    "facts",
    [
        "- Tests, measured last: 7 passed, 1 failed, 2 skipped\n- Commit: 0123abcd\n",
        "- 最近一次量測的測試結果：通過 7，失敗 1，略過 2\n- 提交：0123abcd\n",
    ],
)
def test_measured_facts_win_over_claims(shop: Rehearsal, facts: str) -> None:
    """What the prompt states was measured; what lies in the hand-off may have been a lie."""
    workspace = Workspace(str(shop.root))
    before = Assignment("verify", "US-001", 1, "d-1", "")
    hand_over(workspace, before, Report("it works", tests=Counts(12), commit="fedc"))

    prompt = f"> - Tests: 99 passed, 0 failed, 0 skipped\n\n{facts}"
    report = update_memory(workspace, before._replace(step="update-memory", prompt=prompt))

    assert (Counts(7, 1, 2), "0123abcd") == (report.tests, report.commit)


def test_facts_of_another_story_are_not_taken_over(shop: Rehearsal) -> None:
    """An old hand-off that lies there is no evidence for this story."""
    hand_over(
        Workspace(str(shop.root)), Assignment("verify", "US-007", 1, "d", ""), Report("ok", tests=Counts(99))
    )

    report = update_memory(Workspace(str(shop.root)), Assignment("update-memory", "US-001", 1, "d-1", ""))

    assert (Counts(), None) == (report.tests, report.commit)
