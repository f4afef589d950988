"""`.ai/runs`: copies for people, kept out of version control."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from handoffd.errors import StoreError
from handoffd.execute.base import CLAIM, EXIT, START, Claim, ExitRecord
from handoffd.execute.runner import records
from handoffd.track.ai_folder import output_path, prepare, started_ns


def test_an_output_lies_with_its_prompt() -> None:
    """In one folder a dispatch."""
    assert "/p/.ai/runs/d1/output.log" == output_path("/p", "d1")


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


def run_over(base: Path, *, seconds: float, wall_s: float) -> Path:
    """Return the folder of a run that took so long, while the wall clock moved by `wall_s`."""
    claim = Claim(pid=1, started=1, boot_id="an-earlier-boot")
    base.mkdir()
    records.claim(str(base), CLAIM, claim.to_text())
    (base / START).write_text("{}")
    (base / EXIT).write_text(ExitRecord(run_id=base.name, code=0, seconds=seconds).to_json())
    os.utime(base / START, ns=(BEGAN_NS, BEGAN_NS))
    ended_ns = BEGAN_NS + int(wall_s * SECOND_NS)
    os.utime(base / EXIT, ns=(ended_ns, ended_ns))
    return base


SECOND_NS = 1_000_000_000
DAY_S = 86_400.0
BEGAN_NS = 1_800_000_000 * SECOND_NS


@pytest.mark.parametrize(
    ("wall_s", "earlier_s"),
    [(60, 0), (59, 0), (60 + DAY_S, 0), (60 - DAY_S, DAY_S)],
    ids=["as usual", "steered", "put forward", "set back"],
)
def test_the_start_of_a_run_follows_a_clock_that_is_set_back(
    tmp_path: Path, wall_s: float, earlier_s: float
) -> None:
    """What it wrote afterwards was still written since its start."""
    run_dir = run_over(tmp_path / "d1", seconds=60, wall_s=wall_s)

    assert BEGAN_NS - earlier_s * SECOND_NS == started_ns(run_dir)


def test_a_run_that_goes_on_or_was_never_ours_has_a_start_or_none(tmp_path: Path) -> None:
    """Without its end, its start is what was written."""
    run_dir = run_over(tmp_path / "d1", seconds=60, wall_s=60)
    (run_dir / EXIT).unlink()

    assert (BEGAN_NS, 0) == (started_ns(run_dir), started_ns(tmp_path / "d2"))
