"""Findings, for a tired person."""

from __future__ import annotations

import click

from handoffd.cli.doctor import report
from handoffd.doctor.finding import fault, fine, warning


def test_a_line_for_what_is_fine_and_three_for_what_is_not() -> None:
    """In the order in which they were found."""
    findings = [
        fine("settings", "the defaults hold"),
        warning("watches", "few", "too many editors", "sysctl fs.inotify"),
        fault("descriptors", "none", None, None),
    ]

    assert [
        "ok       settings     the defaults hold",
        "warning  watches      few",
        "    why:  too many editors",
        "    next: sysctl fs.inotify",
        "fault    descriptors  none",
        "",
        "1 fault, 1 warning.",
    ] == [click.unstyle(line) for line in report(findings)]


def test_the_last_line_says_how_bad_it_is() -> None:
    """Nothing, warnings only, or faults."""
    warned = warning("a", "x", None, None)
    broken = fault("a", "x", None, None)
    assert "No problems found." == report([fine("a", "x")])[-1]
    assert "0 faults, 2 warnings; nothing keeps handoffd from working." == report([warned, warned])[-1]
    assert "2 faults, 0 warnings." == report([broken, broken])[-1]


def test_severities_have_colours() -> None:
    """As everywhere."""
    assert report([fault("a", "x", None, None)])[0].startswith(click.style("fault  ", fg="red"))


def test_strangers_cannot_write_on_the_terminal() -> None:
    """Neither colours nor lines."""
    (line, *_) = report([fine("a", "\x1b[31mred\nline")])
    assert "\\x1b[31mred line" in line
