"""What is read in PROJECT_MEMORY.md, whatever it looks like."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.inspection.making import write

from handoffd.errors import StoreError
from handoffd.inspection.framework import MAX_BYTES, MOST_ISSUES, memory_summary, open_issues, read_memory

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
    """With its heading and what is below it, up to the next section."""
    assert "## NEXT\n- US-006: refunds\n### Later\n- US-007" == memory_summary(MEMORY)


def test_a_summary_is_short() -> None:
    """At most 500 characters of it; none of an empty text, or of one that only speaks of what is next."""
    assert 500 == len(memory_summary("## NEXT\n" + "x" * 10_000) or "")
    assert memory_summary("") is None
    assert memory_summary("see ## NEXT\n## NEXTCLOUD\n- files") is None


def test_open_issues_are_the_unticked_items_of_their_section() -> None:
    """Subsections and code blocks are part of it."""
    assert (
        "the total is rounded twice", "no index on `orders`", "retries are not limited", "still an item",
    ) == open_issues(MEMORY)  # fmt: skip


@pytest.mark.parametrize("heading", ["# issues", "#### ISSUES", "Issues:", "ISSUES：open"])
def test_the_section_has_many_spellings(heading: str) -> None:
    """A heading of any depth, or a bare label; a heading ends it."""
    assert ("one",) == open_issues(f"{heading}\n- [ ] one\n- [ ]\n# Log\n- [ ] two\n")


def test_a_flood_of_issues_is_cut() -> None:
    """Nobody sorts more of them in one session."""
    assert MOST_ISSUES == len(open_issues("## ISSUES\n" + "- [ ] x\n" * 10_000))


def test_a_memory_is_read_whatever_its_bytes(tmp_path: Path) -> None:
    """A missing one is none; one that is no UTF-8 is read as far as it can be."""
    assert read_memory(str(tmp_path)) is None

    write(tmp_path, "PROJECT_MEMORY.md", b"## NEXT\n\xff\n")

    assert "## NEXT\n�\n" == read_memory(str(tmp_path))


@pytest.mark.parametrize("kind", ["folder", "link", "large"])
def test_what_is_no_plain_file_is_refused(tmp_path: Path, kind: str) -> None:
    """A link could lead anywhere, a file could have no end."""
    path = tmp_path / "PROJECT_MEMORY.md"
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/etc/hostname")
    else:
        path.write_bytes(b"x" * (MAX_BYTES + 1))

    with pytest.raises(StoreError):
        read_memory(str(tmp_path))
