"""The screens of the pages: what counts as shown, how a terminal is recorded, and how it is drawn."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.recording import Shown, recorded
from tests.support.screens import DRAWN, drawn, pictured, texts_of
from tests.support.walks import is_like, screens


def test_a_page_is_split_into_commands_and_what_they_print() -> None:
    """A here-document belongs to its command; blocks of another language are none."""
    page = "```\n$ cat > a <<'END'\n$ no command\nEND\n$ cat a\nx\n```\n```yaml\n$ a\n```\n"

    assert [("cat > a <<'END'\n$ no command\nEND", []), ("cat a", ["x"])] == [
        (command, [line for line in lines if line]) for command, lines in screens(page)
    ]


@pytest.mark.parametrize(
    ("page", "like"),
    [
        ("a b c", True),
        ("a b", False),
        ("b c", False),
        ("a c", False),
        ("a ...", True),
        ("... c", True),
        ("a ... c", True),
        ("... b ...", True),
        ("... d", False),
        ("c ... a", False),
        ("...", True),
    ],
)
def test_a_gap_stands_for_lines_and_nothing_else_may_differ(page: str, like: bool) -> None:
    """In their order; empty lines do not count."""
    assert like == is_like(page.split(), ["a", "", "b", "c"])


def test_a_terminal_is_recorded_as_it_looks_in_the_end(tmp_path: Path) -> None:
    """Of a line that was written over its last state, colours, the keys that were hit; up to a failure."""
    commands = (
        "printf '\\033[31mred\\033[0m \\r\\033[Kgreen'",
        'tput cols 2> /dev/null || stty size; read -r answer; echo "<$answer>"',
        "false",
        "echo never",
    )

    seen = recorded(
        commands, env={"PATH": os.environ["PATH"], "TERM": "xterm"}, folder=tmp_path, keys={"80": "yes\n"}
    )

    assert [0, 0, 1] == [shown.code for shown in seen]
    assert ["green"] == seen[0].text
    assert "<yes>" == seen[1].text[-1]


def test_a_picture_holds_the_lines_in_their_colours() -> None:
    """Also ones that look like markup; a renderer reads it as XML."""
    lines = ["$ a < b", "\x1b[1;33m1 needs you:\x1b[0m <b>&amp;</b>", ""]

    picture = drawn(lines)

    assert ["$ a < b", "1 needs you: <b>&amp;</b>", ""] == texts_of(picture)
    assert '<tspan class="b y">1 needs you:</tspan>' in picture


def test_the_picture_shows_the_last_of_commands_that_are_alike() -> None:
    """A story is rejected in the tutorial, and looked at twice; screens that are cut end with dots."""
    seen = [Shown(command, tuple(f"{command} {line}" for line in range(20)), 0) for command, _ in DRAWN]
    early = [Shown(seen[1].command, ("too early",), 0)]

    lines = pictured([seen[0], *early, *seen[1:]])

    assert "too early" not in lines
    at = lines.index("$ handoffd approve .")
    assert ["handoffd approve . 0", "", "$ handoffd status"] == lines[at + 1 : at + 4]
    assert lines[lines.index("$ handoffd gate .") + 12] == "..."
