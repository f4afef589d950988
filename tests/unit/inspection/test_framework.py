"""How much of the protocol a project has, what its memory says, and which stories were done before."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.inspection.making import WHOLE, write, write_state

from handoffd.errors import StoreError
from handoffd.inspection.framework import (
    MAX_BYTES,
    MOST_ISSUES,
    described_in_memory,
    detect_framework,
    finished_before,
    memory_summary,
    named_in_history,
    named_in_memory,
    open_issues,
    read_memory,
    story_facts,
)
from handoffd.inspection.project_status import state_of
from handoffd.protocol.story import next_id


def test_the_level_tells_whether_none_some_or_all_of_the_five_files_exist(tmp_path: Path) -> None:
    """The hand-off and the history are reported and do not count."""
    write(tmp_path, ".ai/HANDOFF.md")
    write(tmp_path, ".ai/history.md")
    assert 0 == detect_framework(str(tmp_path)).level

    write_state(tmp_path)
    assert 1 == detect_framework(str(tmp_path)).level

    for name in WHOLE:
        write(tmp_path, name)
    found = detect_framework(str(tmp_path))
    assert (2, True, True) == (found.level, found.has_handoff, found.has_history)


@pytest.mark.parametrize("name", WHOLE)
def test_each_of_the_five_files_counts(tmp_path: Path, name: str) -> None:
    """Without one of them the level is 1."""
    write_state(tmp_path)
    for one in WHOLE:
        write(tmp_path, one)
    (tmp_path / name).unlink()

    assert 1 == detect_framework(str(tmp_path)).level


def test_a_folder_counts_as_a_file_only_in_place_of_the_state(tmp_path: Path) -> None:
    """The state's reader reports what is wrong with it."""
    (tmp_path / "PROJECT_MEMORY.md").mkdir()
    (tmp_path / ".ai/STATE.json").mkdir(parents=True)

    found = detect_framework(str(tmp_path))

    assert (False, True) == (found.has_memory, found.has_state)


def test_a_missing_folder_has_level_0(tmp_path: Path) -> None:
    """It is not created."""
    assert 0 == detect_framework(str(tmp_path / "gone")).level
    assert [] == list(tmp_path.iterdir())


MEMORY = """\
# Shop

## NOW
- US-005

## NEXT
- US-006: refunds
### Later
- US-007

## ISSUES (known)
- [ ] the total is rounded twice
* [ ] no index on `orders`
- [x] solved
- a remark
### Payment
  - [ ] retries are not limited
```
# not a heading
- [ ] still an item
```
## LOG
- [ ] not an issue
"""


def test_the_next_section_is_the_summary() -> None:
    """With its heading, up to the next section."""
    assert "## NEXT\n- US-006: refunds\n### Later\n- US-007" == memory_summary(MEMORY)


def test_a_summary_is_short() -> None:
    """At most 500 characters; there is none without such a section."""
    assert 500 == len(memory_summary("## NEXT\n" + "x" * 10_000) or "")
    assert memory_summary("") is None
    assert memory_summary("see ## NEXT\n## NEXTCLOUD\n- files") is None


def test_open_issues_are_the_unticked_items_of_their_section() -> None:
    """Subsections and code blocks belong to it."""
    assert (
        "the total is rounded twice", "no index on `orders`", "retries are not limited", "still an item",
    ) == open_issues(MEMORY)  # fmt: skip


@pytest.mark.parametrize("heading", ["# issues", "#### ISSUES", "Issues:", "ISSUES：open"])
def test_the_section_has_many_spellings(heading: str) -> None:
    """A heading of any depth, or a bare label; a heading ends it."""
    assert ("one",) == open_issues(f"{heading}\n- [ ] one\n- [ ]\n# Log\n- [ ] two\n")


def test_a_flood_of_issues_is_cut() -> None:
    """An agent sorts no more in one session."""
    assert MOST_ISSUES == len(open_issues("## ISSUES\n" + "- [ ] x\n" * 10_000))


def test_a_memory_is_read_as_far_as_it_is_utf8(tmp_path: Path) -> None:
    """A missing one reads as None."""
    assert read_memory(str(tmp_path)) is None

    write(tmp_path, "PROJECT_MEMORY.md", b"## NEXT\n\xff\n")

    assert "## NEXT\n�\n" == read_memory(str(tmp_path))


MANY = """\
## NOW
US-009 is mentioned here, and not described.
## NEXT
- [ ] **US-001**: A discount code
  lowers the total.
  - Never below 0.
- US-002 Dark mode
not below it
### US-003 – Refunds

Pay back.
- within a day
## US-004
* US-005
- US-006: \x07
"""


@pytest.mark.parametrize(
    ("story", "title", "text"),
    [
        ("US-001", "A discount code", "A discount code\n  lowers the total.\n  - Never below 0."),
        ("001", "A discount code", "A discount code\n  lowers the total.\n  - Never below 0."),
        ("US-002", "Dark mode", "Dark mode"),
        ("US-003", "Refunds", "Refunds\n\nPay back.\n- within a day"),
        ("US-004", None, None),
        ("US-005", None, None),
        ("US-006", None, None),
        ("US-009", None, None),
        ("US-1", None, None),
    ],
)
def test_a_story_is_described_where_a_heading_or_an_item_begins_with_its_id(
    tmp_path: Path, story: str, title: str | None, text: str | None
) -> None:
    """Together with the lines below it. An id alone describes nothing, nor do control characters."""
    assert described_in_memory(str(tmp_path), story) is None
    write(tmp_path, "PROJECT_MEMORY.md", MANY)
    found = described_in_memory(str(tmp_path), story)
    assert (title, text) == ((found.title, found.text) if found is not None else (None, None))
    assert found is None or "PROJECT_MEMORY.md" == found.source


def test_a_long_description_is_cut(tmp_path: Path) -> None:
    """It is for a screen."""
    write(tmp_path, "PROJECT_MEMORY.md", "# US-1 Long\n" + "more\n" * 1000)
    found = described_in_memory(str(tmp_path), "US-1")
    assert found is not None
    assert 41 == len(found.text.splitlines())


@pytest.mark.parametrize("kind", ["folder", "link", "large"])
def test_a_folder_a_link_and_a_huge_file_are_refused(tmp_path: Path, kind: str) -> None:
    """A link could lead anywhere."""
    path = tmp_path / "PROJECT_MEMORY.md"
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/etc/hostname")
    else:
        path.write_bytes(b"x" * (MAX_BYTES + 1))

    with pytest.raises(StoreError):
        read_memory(str(tmp_path))


HISTORY = """\
## NOW
- US-009 is nearly done
## DONE
- US-001: prices
- [x] **US-002** returns
- [ ] US-003 receipts
- US-004: not finished
- the total of US-005
## NEXT
- US-006
"""


def test_the_done_section_of_the_memory_lists_them() -> None:
    """By items that begin with an id; not by unticked or negated ones."""
    assert ("US-001", "US-002") == named_in_memory(HISTORY)


def test_the_history_has_ends_of_stories() -> None:
    """A finished step, a plan and a denial are none; a reopening takes the end back."""
    history = """\
# History
## DONE
- US-010: prices
## LOG
- US-001 done: 3 pass
- US-002 impl done
- US-003 is not done
- US-004 when US-001 is done
- US-005 已完成
### US-006 completed
### Reopen — US-006 → impl
- US-007 begun
"""
    assert {"US-010": True, "US-001": True, "US-005": True, "US-006": False} == named_in_history(history)


def test_all_sources_count_except_for_the_current_story(tmp_path: Path) -> None:
    """STATE.json wins over the files that agents wrote."""
    write(tmp_path, "PROJECT_MEMORY.md", "## DONE\n- US-001\n- US-005\n")
    write(tmp_path, ".ai/history.md", "- US-002 done\n- US-001 done\n")
    state = '{"project": "shop", "story": "US-003", "step": "done", "status": "pass"}'
    write(tmp_path, ".ai/states/US-003.json", state)
    write(tmp_path, ".ai/states/US-004.json", "{")
    write_state(tmp_path)

    found = finished_before(str(tmp_path), state_of(str(tmp_path)))

    assert {"US-001", "US-002", "US-003"} == set(found)
    assert () == finished_before(str(tmp_path / "gone"))


# --- stories that the files describe ------------------------------------------------------------------
def test_a_story_is_described_by_the_memory_or_by_its_scenarios(tmp_path: Path) -> None:
    """In either form of its id; a longer number is another story."""
    write(
        tmp_path, "PROJECT_MEMORY.md", "## NEXT\n- **US-004** returns, then US-0055\n- [ ] US-013: vouchers\n"
    )
    write(tmp_path, "docs/bdd/US-006.md", "Feature: x")
    write(tmp_path, "docs/bdd/US-008-login.md", "Feature: x")
    asked = ("US-004", "004", "013", "US-006", "006", "US-008", "US-005", "US-00", "US-0", "dark-mode")

    assert ("US-005", "US-00", "US-0", "dark-mode") == story_facts(str(tmp_path), asked).undescribed


def test_a_project_without_papers_describes_nothing_and_one_that_cannot_be_read_everything(
    tmp_path: Path,
) -> None:
    """What cannot be known holds no start up."""
    assert ("US-1",) == story_facts(str(tmp_path), ("US-1",)).undescribed
    (tmp_path / "PROJECT_MEMORY.md").mkdir()
    assert () == story_facts(str(tmp_path), ("US-1",)).undescribed
    assert () == story_facts(str(tmp_path / "gone"), ()).numbers


def test_the_numbering_is_that_of_the_files(tmp_path: Path) -> None:
    """Items and headings of the memory, specifications and the history name stories; other words may not."""
    memory = (
        "# Shop\n\nUTF-8 and SHA-256, see ISO-8601.\n\n## DONE\n- SHOP-3 cart, before SHOP-21\n### SHOP-4\n"
    )
    write(tmp_path, "PROJECT_MEMORY.md", memory)
    write(tmp_path, "docs/deltas/SHOP-009-tax.md", "x")
    write(tmp_path, ".ai/history.md", "- SHOP-5 done\n")

    numbers = {one.prefix: one for one in story_facts(str(tmp_path), ()).numbers}

    assert (21, 3, 4) == (numbers["SHOP-"].last, numbers["SHOP-"].digits, numbers["SHOP-"].stories)
    assert (0, 0) == (numbers["UTF-"].stories, numbers["SHA-"].stories)
    assert "SHOP-022" == next_id(numbers.values(), ())


def test_a_memory_full_of_prefixes_is_bounded(tmp_path: Path) -> None:
    """They are a part of the event."""
    write(tmp_path, "PROJECT_MEMORY.md", " ".join(f"P{number}-1" for number in range(5000)) + "\n- US-7 x")
    numbers = story_facts(str(tmp_path), ()).numbers
    assert len(numbers) <= 50
    assert "US-8" == next_id(numbers, ())
