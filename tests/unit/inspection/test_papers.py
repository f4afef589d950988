"""Quotes from a project's papers."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.inspection.making import write

from handoffd.inspection.papers import HISTORY_BYTES, LINE_CHARACTERS, MAX_BYTES, MOST_LINES, Subject, quoted

FILES = {
    "left": "PROJECT_MEMORY.md",
    "done": "PROJECT_MEMORY.md",
    "purpose": "PROJECT_CONTEXT.md",
    "rules": "docs/constitution.md",
    "last": ".ai/HANDOFF.md",
    "history": ".ai/history.md",
}
SUBJECTS: tuple[Subject, ...] = get_args(Subject)


def test_the_rest_of_the_work_is_the_sections_now_and_next(tmp_path: Path) -> None:
    """Ticked items and other sections are left out."""
    text = "# M\n\n## NOW\n- US-1\n\n## NEXT\n- [ ] US-2: refunds\n- [x] US-0\n\n## LOG\n- old\n"
    write(tmp_path, "PROJECT_MEMORY.md", text)

    assert [("NOW", ("US-1",)), ("NEXT", ("US-2: refunds",))] == [
        (quote.section, quote.lines) for quote in quoted(str(tmp_path), "left")
    ]


def test_a_hand_off_begins_with_its_step(tmp_path: Path) -> None:
    """Its text follows; without front matter it is text alone."""
    write(tmp_path, ".ai/HANDOFF.md", "---\nstory: US-1\nstep: impl\nstatus: pass\n---\n## Done\n- sums\n")
    assert ("US-1, impl, pass", "Done:", "sums") == quoted(str(tmp_path), "last")[0].lines

    write(tmp_path, ".ai/HANDOFF.md", "---\nnever closed\n")
    assert ("never closed",) == quoted(str(tmp_path), "last")[0].lines


def test_of_a_history_the_end_is_quoted(tmp_path: Path) -> None:
    """The history may be long."""
    write(tmp_path, ".ai/history.md", "\n".join(f"- entry {number}" for number in range(HISTORY_BYTES)))

    (quote,) = quoted(str(tmp_path), "history")

    assert f"entry {HISTORY_BYTES - 1}" == quote.lines[-1]
    assert MOST_LINES == len(quote.lines)
    assert quote.more > 0


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_missing_paper_is_reported_with_other_files(tmp_path: Path, subject: Subject) -> None:
    """Only files that exist are named."""
    write(tmp_path, "README.md", "A shop.\n")
    write(tmp_path, "CHANGELOG.md", "# 1.0\n")

    (quote,) = quoted(str(tmp_path), subject)

    assert (FILES[subject], True, ()) == (quote.file, quote.missing, quote.lines)
    assert quote.others in {("README.md",), ("CHANGELOG.md",)}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_link_and_a_huge_file_are_not_read(tmp_path: Path, subject: Subject) -> None:
    """Of the history only the end is read."""
    secret = tmp_path / "secret"
    secret.write_text("## NEXT\n- secret\n")
    root = tmp_path / "p"
    (root / FILES[subject]).parent.mkdir(parents=True)
    (root / FILES[subject]).symlink_to(secret)
    (quote,) = quoted(str(root), subject)
    assert ((), True) == (quote.lines, quote.problem is not None)

    (root / FILES[subject]).unlink()
    write(root, FILES[subject], "x" * (MAX_BYTES + 1))
    assert subject == "history" or quoted(str(root), subject)[0].problem is not None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.sampled_from(SUBJECTS), st.text(max_size=2000) | st.binary(max_size=2000))
def test_any_paper_is_quoted_with_few_short_lines(
    tmp_path: Path, subject: Subject, text: str | bytes
) -> None:
    """All of them can be printed."""
    content = text.encode("utf-8", errors="replace") if isinstance(text, str) else text
    write(tmp_path, FILES[subject], b"## NEXT\n" * (subject == "left") + content)

    for quote in quoted(str(tmp_path), subject):
        assert len(quote.lines) <= MOST_LINES
        assert all(line.isprintable() and 0 < len(line) <= LINE_CHARACTERS for line in quote.lines)
