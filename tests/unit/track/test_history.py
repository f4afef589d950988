"""history.md, in which the daemon has a say only when it reopens a story."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.house import make_project

from handoffd.errors import StoreError
from handoffd.track.ai_folder import append_history, reopenings


def test_history_is_appended_to_once(tmp_path: Path) -> None:
    """What executors wrote stays; the same entry is not added twice in a row."""
    root = make_project(tmp_path)
    file = Path(root, ".ai/history.md")
    file.write_text("# History\n")

    append_history(root, "\n### Reopen US-1\n")
    append_history(root, "\n### Reopen US-1\n")

    assert "# History\n\n### Reopen US-1\n" == file.read_text()


def test_an_entry_begins_a_line_of_its_own(tmp_path: Path) -> None:
    """Else a heading would not be one, where an agent left its last line without an end."""
    root = make_project(tmp_path)
    file = Path(root, ".ai/history.md")
    file.write_text("- US-1 done")

    append_history(root, "### Reopen\n")
    append_history(root, "### Reopen\n")

    assert "- US-1 done\n### Reopen\n" == file.read_text()


def test_reopenings_are_counted_whoever_wrote_them(tmp_path: Path) -> None:
    """Both forms of ours and that of the reference are headings; what only speaks of one is none."""
    root = make_project(tmp_path)
    assert 0 == reopenings(root)
    file = Path(root, ".ai/history.md")
    file.write_text(
        "### Reopen — US-1 → impl\n- **Note**: N/A\n### Reopen US-2 at bdd (2026-01-31)\n"
        "no ### Reopen\n### Reopened\n"
    )
    assert 2 == reopenings(root)
    file.unlink()
    file.mkdir()
    assert 0 == reopenings(root)


def test_a_link_out_of_the_project_is_not_followed(tmp_path: Path) -> None:
    """Somebody could have us write anywhere."""
    root = make_project(tmp_path)
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    Path(root, ".ai/history.md").symlink_to(outside)

    with pytest.raises(StoreError):
        append_history(root, "text")
    assert "untouched" == outside.read_text()
