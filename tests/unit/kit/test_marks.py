"""`remove-tagged`: marked lines go, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.kit.boards import given

from handoffd.errors import InvalidFile, Refused
from handoffd.kit.sources import remove_tagged, without

TAG = "debug-instrumentation"
CODE = b"""a = 1
log(a)  # handoffd:debug-instrumentation
# handoffd:debug-instrumentation begin
for one in a:
    log(one)
# handoffd:debug-instrumentation end
b = 2  # handoffd:debug-instrumentation-other
"""


def test_marked_lines_and_passages_go(tmp_path: Path) -> None:
    """A longer tag is another one."""
    (tmp_path / "a.py").write_bytes(CODE)
    (tmp_path / "b.py").write_text("log('handoffd')\n")

    done = remove_tagged(given(tmp_path, words={"tag": TAG}))

    assert {"a.py": b"a = 1\nb = 2  # handoffd:debug-instrumentation-other\n"} == done.writes
    assert {"removed": 5, "files": 1} == done.fields


def test_what_has_no_marks_is_not_written(tmp_path: Path) -> None:
    """Nor is a file without the last line end, or of bytes."""
    (tmp_path / "a.bin").write_bytes(b"\xff\x00handoffd:other")

    assert {} == remove_tagged(given(tmp_path, words={"tag": TAG})).writes
    assert (b"x", 1) == without(f"handoffd:{TAG}\r\nx".encode(), TAG, "a")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("handoffd:t begin\ncode", "this passage has no 'handoffd:t end'"),
        ("code\nhandoffd:t end", "no passage is open here"),
        ("handoffd:t begin\nhandoffd:t begin\nhandoffd:t end", "a passage is open since line 1"),
    ],
)
def test_a_passage_without_both_ends_is_refused(text: str, why: str) -> None:
    """No line is guessed to be the end."""
    with pytest.raises(InvalidFile, match=why):
        without(text.encode(), "t", "a.py")


def test_nothing_is_written_when_one_file_is_refused(tmp_path: Path) -> None:
    """All or nothing."""
    (tmp_path / "a.py").write_bytes(CODE)
    (tmp_path / "b.py").write_text(f"handoffd:{TAG} begin\n")

    with pytest.raises(InvalidFile, match=r"b\.py: line 1"):
        remove_tagged(given(tmp_path, words={"tag": TAG}))


def test_a_tag_is_a_word(tmp_path: Path) -> None:
    """No pattern."""
    with pytest.raises(Refused, match="cannot be a tag"):
        remove_tagged(given(tmp_path, words={"tag": ".*"}))
