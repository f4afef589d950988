"""Who decides at a human step of the demo: the one word that approves, and what is shown before."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from handoffd.cli.story.reviewer import Answer, Changes, approve_by_itself, ask_at_terminal
from handoffd.errors import HandoffdError
from handoffd.protocol.state import Reason

REVIEW = {"step": "review", "story": "US-001"}


def answered(monkeypatch: pytest.MonkeyPatch, folder: Path, *typed: str) -> Answer:
    """Return what is decided by a person who types these lines, and then ends the input."""
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in typed)))
    return ask_at_terminal(Console(stderr=True), Changes(str(folder)), "handoffd demo --yes")(REVIEW)


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (("approve",), Answer(approve=True)),
        (("Approve",), Answer(approve=True)),
        (("", "y", "yes", "ok", "approved", "approve all of it", " approve "), Answer(approve=True)),
        (
            ("REJECT scope_warning", "Too much."),
            Answer(approve=False, reason=Reason.SCOPE_WARNING, note="Too much."),
        ),
        (
            ("reject", "because", "needs clarification", ""),
            Answer(approve=False, reason=Reason.NEEDS_CLARIFICATION),
        ),
    ],
)
def test_only_the_two_words_decide(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, typed: tuple[str, ...], answer: Answer
) -> None:
    """After any other input the question comes again; a rejection needs a reason."""
    assert answer == answered(monkeypatch, tmp_path, *typed)


def test_the_end_of_the_input_does_not_approve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It ends the demo; the hint says how to continue."""
    with pytest.raises(HandoffdError, match="nothing is approved by that") as ended:
        answered(monkeypatch, tmp_path, "", "yes")

    assert ("NOT_DECIDED", "handoffd demo --yes") == (ended.value.code, ended.value.hint)


def test_questions_are_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Standard output is for programs."""
    answered(monkeypatch, tmp_path, "approve")

    out, err = capsys.readouterr()
    assert "" == out
    assert "waits for you" in err


def test_a_reviewer_sees_what_has_changed(tmp_path: Path) -> None:
    """New files, what a changed file got and lost, nothing else; an agent's text cannot steer a terminal."""
    (tmp_path / "api.yaml").write_text("old: 1\nkept: 2\n", "utf-8")
    (tmp_path / "same.py").write_text("same\n", "utf-8")
    changes = Changes(str(tmp_path))
    (tmp_path / "api.yaml").write_text("new: 1\nkept: 2\n", "utf-8")
    (tmp_path / "story.md").write_text("# Story\n\x1b[2JGiven a cart\n", "utf-8")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff")
    (tmp_path / "way out").symlink_to("/etc/passwd")

    shown = changes.told()

    assert ["api.yaml (changed)", "  -old: 1", "  +new: 1", "story.md (new)", "  # Story"] == shown[:5]
    assert "Given a cart" in shown[5]
    assert "\x1b" not in "".join(shown)
    assert 6 == len(shown)


def test_long_changes_are_cut_and_counted(tmp_path: Path) -> None:
    """A review fits on a screen; the rest is in the files."""
    changes = Changes(str(tmp_path))
    (tmp_path / "a.txt").write_text("line\n" * 20, "utf-8")
    for number in range(9):
        (tmp_path / f"b{number}.txt").write_text("x\n", "utf-8")

    shown = changes.told()

    assert "  … 6 more lines" in shown
    assert "… and 2 more files" == shown[-1]


def test_an_automatic_approval_gives_its_reason(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """And shows what it approved."""
    changes = Changes(str(tmp_path))
    (tmp_path / "story.md").write_text("Given a cart\n", "utf-8")

    assert Answer(approve=True) == approve_by_itself(Console(stderr=True), changes, "--yes was given")(REVIEW)

    err = capsys.readouterr().err
    assert "Given a cart" in err
    assert "review is approved automatically: --yes was given" in err
