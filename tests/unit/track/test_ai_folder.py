"""Reading a project's hand-off files: identity, content, and what must not be read."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.support.house import dispatch_of

from handoffd.errors import StoreError
from handoffd.execute.base import CLAIM, EXIT, START, Claim, ExitRecord
from handoffd.execute.runner import records
from handoffd.protocol.handoff import Absent, Found, HandoffMark, Malformed, Stale
from handoffd.protocol.state import Status
from handoffd.track.ai_folder import (
    HandoffFiles,
    append_history,
    bring_home,
    output_path,
    prepare,
    reopenings,
    started_ns,
    take_along,
)

PASS = "---\nstep: bdd\nstatus: pass\n---\n"


def write(root: str, text: str, name: str = "HANDOFF.md") -> Path:
    """Write one of the hand-off files."""
    file = Path(root, ".ai", name)
    file.write_text(text)
    return file


def test_without_files_there_is_no_mark_and_no_handoff(root: str) -> None:
    """That is not an error."""
    files = HandoffFiles(root)

    assert HandoffMark() == files.mark()
    assert (Absent(), HandoffMark()) == files.read(dispatch_of())


def test_an_unchanged_handoff_is_stale(root: str) -> None:
    """Rewritten with the same bytes, it counts."""
    file, files = write(root, PASS), HandoffFiles(root)
    dispatch = dispatch_of(mark=files.mark())

    assert isinstance(files.read(dispatch)[0], Stale)
    os.utime(file, ns=(1, file.stat().st_mtime_ns + 1))
    reading, mark = files.read(dispatch)

    assert isinstance(reading, Found)
    assert Status.PASS is reading.handoff.status
    assert mark == files.mark() != dispatch.mark


def test_both_files_are_read(root: str) -> None:
    """executor-result alone is a hand-off; of two the worse counts."""
    files = HandoffFiles(root)
    write(root, "status: failing\nreason: scope_warning\n", "executor-result")
    write(root, PASS)

    reading, _ = files.read(dispatch_of())

    assert isinstance(reading, Found)
    assert (Status.FAILING, "scope_warning") == (reading.handoff.status, reading.handoff.reason)


def test_a_link_is_a_malformed_handoff(root: str, tmp_path: Path) -> None:
    """It is not followed, and the problem has the reason."""
    secret = tmp_path / "secret"
    secret.write_text(PASS)
    Path(root, ".ai/HANDOFF.md").symlink_to(secret)
    files = HandoffFiles(root)

    reading, mark = files.read(dispatch_of())

    assert isinstance(reading, Malformed)
    assert "symbolic link" in str(reading.problem)
    assert HandoffMark() == mark


def test_judged_handoffs_are_copied(root: str, tmp_path: Path) -> None:
    """To a place where later attempts cannot change them."""
    write(root, PASS)
    folder = tmp_path / "state"
    folder.mkdir()

    HandoffFiles(root).read(dispatch_of(), folder)

    assert {"HANDOFF.md": PASS} == {file.name: file.read_text() for file in folder.iterdir()}
    HandoffFiles(root).read(dispatch_of(), tmp_path / "gone")  # nothing relies on a copy


# --- history.md, to which the daemon adds only reopened stories -----------------------------------
@pytest.mark.parametrize(
    ("before", "entry", "after"),
    [
        ("# History\n", "\n### Reopen US-1\n", "# History\n\n### Reopen US-1\n"),
        ("- US-1 done", "### Reopen\n", "- US-1 done\n### Reopen\n"),
    ],
)
def test_an_entry_is_appended_once(root: str, before: str, entry: str, after: str) -> None:
    """On its own line, even if an agent left its last line without an end; a repeated one is not added."""
    file = Path(root, ".ai/history.md")
    file.write_text(before)

    append_history(root, entry)
    append_history(root, entry)

    assert after == file.read_text()


def test_all_forms_of_reopenings_are_counted(root: str) -> None:
    """As headings only; a text about one does not count."""
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


def test_a_link_out_of_the_project_is_not_followed(root: str, tmp_path: Path) -> None:
    """An agent could make the daemon write anywhere."""
    outside, elsewhere = tmp_path / "outside", tmp_path / "elsewhere"
    outside.write_text("untouched")
    elsewhere.mkdir()
    Path(root, ".ai/history.md").symlink_to(outside)
    Path(root, ".ai/runs").symlink_to(elsewhere)

    with pytest.raises(StoreError):
        append_history(root, "text")
    with pytest.raises(StoreError):
        prepare(root, "d1", "Do it.")
    assert ("untouched", []) == (outside.read_text(), list(elsewhere.iterdir()))


# --- `.ai/runs` -----------------------------------------------------------------------------------
def test_an_output_is_beside_its_prompt() -> None:
    """One folder per dispatch."""
    assert "/p/.ai/runs/d1/output.log" == output_path("/p", "d1")


def test_runs_are_invisible_to_git(tmp_path: Path) -> None:
    """Prompts and outputs must not be committed."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)

    prepare(str(tmp_path), "d1", "Do it.")

    assert "Do it." == (tmp_path / ".ai/runs/d1/prompt.md").read_text()
    status = subprocess.run(
        ["git", "-C", tmp_path, "status", "--porcelain"], capture_output=True, check=True, text=True
    )
    assert "" == status.stdout


def test_an_own_gitignore_stays(tmp_path: Path) -> None:
    """A project may want its runs in version control."""
    (tmp_path / ".ai/runs").mkdir(parents=True)
    (tmp_path / ".ai/runs/.gitignore").write_text("*.log\n")

    prepare(str(tmp_path), "d1", "Do it.")

    assert "*.log\n" == (tmp_path / ".ai/runs/.gitignore").read_text()


def run_over(base: Path, *, seconds: float, wall_s: float) -> Path:
    """Return the folder of a run of `seconds`, during which the wall clock moved by `wall_s`."""
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
    """Its later writes must still count as after its start."""
    run_dir = run_over(tmp_path / "d1", seconds=60, wall_s=wall_s)

    assert BEGAN_NS - earlier_s * SECOND_NS == started_ns(run_dir)


def test_a_running_or_unknown_run_has_its_written_start_or_none(tmp_path: Path) -> None:
    """Without an end there is nothing to correct."""
    run_dir = run_over(tmp_path / "d1", seconds=60, wall_s=60)
    (run_dir / EXIT).unlink()

    assert (BEGAN_NS, 0) == (started_ns(run_dir), started_ns(tmp_path / "d2"))


# --- the papers of a clone --------------------------------------------------------------------------
def test_a_clone_gets_the_papers_that_git_does_not_keep(tmp_path: Path) -> None:
    """Settings and rules, too, for agents that read them; what the clone has already stays."""
    root, clone = tmp_path / "shop", tmp_path / "clone"
    for folder in (root, clone):
        (folder / ".ai").mkdir(parents=True)
    for name in ("CHECKLIST.md", "history.md", "handoffd.yaml", "step-rules.yaml"):
        (root / ".ai" / name).write_text(f"{name} of the project\n")
    (clone / ".ai/step-rules.yaml").write_text("committed\n")
    known = take_along(root, clone)

    assert known == len("history.md of the project\n")
    assert "handoffd.yaml of the project\n" == (clone / ".ai/handoffd.yaml").read_text()
    assert "committed\n" == (clone / ".ai/step-rules.yaml").read_text()
    assert "CHECKLIST.md of the project\n" == (clone / ".ai/CHECKLIST.md").read_text()


def test_what_a_clone_wrote_comes_home_once(tmp_path: Path) -> None:
    """A history that git keeps comes with the commits instead."""
    root, clone = tmp_path / "shop", tmp_path / "clone"
    for folder in (root, clone):
        (folder / ".ai").mkdir(parents=True)
    (root / ".ai/history.md").write_text("before\n")
    known = take_along(root, clone)
    (clone / ".ai/history.md").write_text("before\nbdd\n")
    known = bring_home(clone, root, known, ticked=True)
    known = bring_home(clone, root, known, ticked=True)
    (clone / ".ai/history.md").write_text("before\nbdd\nimpl\n")
    bring_home(clone, root, known, ticked=True)

    assert "before\nbdd\nimpl\n" == (root / ".ai/history.md").read_text()
    assert take_along(root, clone) is None
    assert bring_home(clone, root, None, ticked=True) is None
