"""`report`: what a flow found and did, for a person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.kit.boards import board, given, row

from handoffd.kit.reporting import report


def _report(tmp_path: Path, rows: list[dict[str, Any]], files: dict[str, object], **rest: Any) -> str:
    one = board(tmp_path / "b", rows, files)
    return report(given(tmp_path / "w", board=one, **rest)).out["report.md"].decode()


def test_findings_come_with_the_gravest_first(tmp_path: Path) -> None:
    """The list of the whole counts; the reviewers' own lists are in it."""
    low = {"id": "F2", "file": "a.py", "line": 3, "severity": "low", "title": "Name", "reason": "short"}
    high = {"id": "F1", "file": "b.py", "severity": "high", "title": "Leak", "reason": "open"}
    text = _report(
        tmp_path,
        [row("dims[security]", "findings.json"), row("aggregate", "findings.json", outcome="grave")],
        {
            "dims[security]/findings.json": {"findings": [low]},
            "aggregate/findings.json": {"findings": [low, high]},
        },
        pipeline="review-cycle",
        flow="review-cycle-1a2b",
    )

    assert text.startswith("# review-cycle\n\nFlow review-cycle-1a2b.\n")
    assert text.index("| F1 | high | b.py | Leak | open |") < text.index(
        "| F2 | low | a.py:3 | Name | short |"
    )
    assert 1 == text.count("| F2 |")


def test_items_say_how_they_ended(tmp_path: Path) -> None:
    """Also the ones that were left out, and the ones that were not begun."""
    queue = [{"id": f"D{n}", "title": f"Debt {n}", "reason": "old"} for n in (1, 2, 3)]
    text = _report(
        tmp_path,
        [
            row("discover", "debt.json", outcome="ready"),
            row("debt[D1]/merge", outcome="merged"),
            row("debt[D2]/validate", outcome="regression", state="dropped", summary="two tests"),
            row("debt[D2]/merge", state="skipped"),
        ],
        {"discover/debt.json": {"queue": queue}},
    )

    assert "| D1 | Debt 1 | old | merged |" in text
    assert "| D2 | Debt 2 | old | left out: regression |" in text
    assert "| D3 | Debt 3 | old | not begun |" in text
    assert "Left out or failed: 1." in text
    assert "(regression, two tests)" in text


def test_tests_and_closer_looks_have_tables(tmp_path: Path) -> None:
    """A kind of file that the flow does not have leaves no heading."""
    text = _report(
        tmp_path,
        [row("baseline", "tests.json"), row("dive[F1]", "analysis.json")],
        {
            "baseline/tests.json": {"passed": 9, "failed": 1, "skipped": 0, "pass_rate": 0.9},
            "dive[F1]/analysis.json": {"cause": "no check", "fix": "check"},
        },
    )

    assert "| baseline | 9 | 1 | 0 | 0.9 |" in text
    assert "| F1 | no check | check |  |" in text
    assert "## Findings" not in text


def test_what_an_agent_wrote_cannot_break_the_report(tmp_path: Path) -> None:
    """Lines, bars and signs of Markdown are text."""
    evil = {
        "file": "a",
        "severity": "low",
        "title": "x | y\n# Heading",
        "reason": "[a](http://b) `c`" + "z" * 900,
    }
    text = _report(tmp_path, [row("a", "findings.json")], {"a/findings.json": {"findings": [evil]}})

    assert "\n# Heading" not in text
    assert r"x \| y \# Heading" in text
    assert r"\[a\](http://b) \`c\`z" in text
    assert max(map(len, text.splitlines())) < 500


def test_a_report_of_nothing_says_so(tmp_path: Path) -> None:
    """It is still a file that can be read."""
    assert "# Report\n\nTasks that ended well: 0.\n" == _report(tmp_path, [], {})
