"""`.ai/runs`: copies for people, kept out of version control."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from handoffd.errors import StoreError
from handoffd.supervise.runfolders import output_path, prepare


def test_a_check_lies_beside_its_dispatch() -> None:
    """One folder a dispatch, one file for each of its runs."""
    assert ["/p/.ai/runs/d1/output.log", "/p/.ai/runs/d1/tests.log"] == [
        output_path("/p", run) for run in ("d1", "d1.tests")
    ]  # fmt: skip


def test_runs_are_invisible_to_git(tmp_path: Path) -> None:
    """Prompts and outputs are nobody's commit."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)

    prepare(str(tmp_path), "d1", "Do it.")

    assert "Do it." == (tmp_path / ".ai/runs/d1/prompt.md").read_text()
    status = subprocess.run(
        ["git", "-C", tmp_path, "status", "--porcelain"], capture_output=True, check=True, text=True
    )
    assert "" == status.stdout


def test_a_gitignore_of_the_projects_own_stays(tmp_path: Path) -> None:
    """Whoever wants their runs in version control has a reason."""
    (tmp_path / ".ai/runs").mkdir(parents=True)
    (tmp_path / ".ai/runs/.gitignore").write_text("*.log\n")

    prepare(str(tmp_path), "d1", "Do it.")

    assert "*.log\n" == (tmp_path / ".ai/runs/.gitignore").read_text()


def test_a_link_in_the_way_is_refused(tmp_path: Path) -> None:
    """A prompt is not written to wherever an agent points."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".ai").mkdir()
    (tmp_path / ".ai/runs").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StoreError):
        prepare(str(tmp_path), "d1", "Do it.")
    assert [] == list((tmp_path / "elsewhere").iterdir())
