"""How things look on a terminal."""

from __future__ import annotations

import click
import pytest

from handoffd.cli.wording import (
    called,
    fitting,
    folded,
    minutes,
    moment,
    plain,
    shorten,
    shorten_path,
    styled,
    table,
    terminal_text,
    unstyled,
)
from handoffd.engine.wording import columns


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("all is well", "all is well"),
        ("two\nlines\tand a tab", "two lines and a tab"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("right\u202eleft", "right\\u202eleft"),
        ("半 of \ud800", "半 of \\ud800"),
    ],
)
def test_text_of_strangers_is_one_harmless_line(text: str, shown: str) -> None:
    """Nothing in it drives the terminal, and nothing in it cannot be printed."""
    assert shown == plain(text)


def test_line_breaks_stay_where_they_are_meant() -> None:
    """Errors that list problems, prompts."""
    assert "one\ntwo\\x07" == plain("one\ntwo\x07", lines=True)


def test_output_of_agents_keeps_its_shape_only() -> None:
    """Lines and tabs; a return without a new line cannot hide what was before it."""
    assert "a\tb\nc\\rd\\x1b]0;t\\x07" == terminal_text(b"a\tb\r\nc\rd\x1b]0;t\x07")


def test_long_text_is_cut_visibly() -> None:
    """Never longer than asked for."""
    assert ("12345", "1234…") == (shorten("12345", 5), shorten("123456", 5))


def test_text_is_measured_in_columns_of_the_terminal() -> None:
    """A Chinese character takes two, an accent of its own none; half a character is not shown."""
    assert [4, 8, 4] == [columns(text) for text in ("shop", "網路商店", "cafe\u0301")]
    assert ("網路…", "網路…", "網路商店") == tuple(shorten("網路商店", width) for width in (5, 6, 8))
    assert ("…路商店", "…a/shop", "x/shop") == (
        shorten_path("/網路商店", 7), shorten_path("/srv/a/shop", 7), shorten_path("x/shop", 7),
    )  # fmt: skip


def test_columns_line_up_whatever_their_colour() -> None:
    """Colours have no width; blanks at the end are left out."""
    lines = table(("A", "STATUS", "C"), [("x", styled("pass"), "1"), ("long one", styled("failing"), "")])

    assert ["A         STATUS   C", "x         pass     1", "long one  failing"] == [
        click.unstyle(line) for line in lines
    ]


def test_numbers_and_times() -> None:
    """Few digits; no time is a dash."""
    assert ["0.4", "3", "3.5", "12"] == [minutes(value) for value in (0.42, 3.0, 3.5, 12.3)]
    assert "–" == moment(None)
    assert moment("2026-01-31T22:15:09.123Z").endswith(":15:09")


def test_a_name_fits_into_its_column() -> None:
    """A root, where several projects share a name, gets more room; an older daemon tells no names."""
    assert "corner" == called({"project": "/srv/shop", "name": "corner"})
    assert "shop" == called({"project": "/srv/shop"})
    assert 24 == len(called({"project": "/srv/shop", "name": "x" * 50}))
    assert "/srv/teams/payments/one/shop" == called({"project": "x", "name": "/srv/teams/payments/one/shop"})


def test_colours_are_those_of_click_and_come_off_again() -> None:
    """Which is not asked for them, because it takes so long to import."""
    assert click.style("running", fg="green") == styled("running")
    assert click.style("failing (2)", fg="red") == styled("failing (2)")
    assert "running at \\x1b" == unstyled(styled("running") + " at \\x1b")


# --- narrow terminals ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("    short enough", ["    short enough"]),
        ("  warning: a text that goes on", ["  warning: a text that", "    goes on"]),
        ("x" * 40, ["x" * 40]),
        ("  next: handoffd start shop US-001", ["  next: handoffd start shop US-001"]),
        ("to go on: handoffd resume shop --story US-1", ["to go on: handoffd resume shop --story US-1"]),
        ("tests: python3 -m pytest -q   (change it)", ["tests: python3 -m pytest -q   (change it)"]),
        ("root: /srv/a/long/path/of/shop (level 2)", ["root: /srv/a/long/path/of/shop (level 2)"]),
        (
            "it stopped; to go on: handoffd resume shop 'a; b' [PAUSED]",
            ["it stopped; to go on:", "  handoffd resume shop 'a; b'", "  [PAUSED]"],
        ),
        ("It waits for `handoffd approve shop`.", ["It waits for", "  `handoffd approve shop`."]),
        ("\x1b[31mred\x1b[0m and a bit wider than it", ["\x1b[31mred\x1b[0m and a bit wider than", "  it"]),
        ("漢字漢字漢字 漢字漢字漢字", ["漢字漢字漢字", "  漢字漢字漢字"]),
        ("theirs: line one\nand line two as it is", ["theirs: line one\nand line two as it is"]),
    ],
)
def test_a_line_is_folded_between_words_and_a_command_stays_whole(line: str, shown: list[str]) -> None:
    """So does a path; a pipe gets the line as it is."""
    assert shown == folded([line], 24)
    assert [line] == folded([line], None)


def test_a_table_is_narrowed_at_its_texts_first() -> None:
    """Then columns are left out, and then the texts are shortened further."""
    head, row = ("STORY", "BY", "TITLE"), ("US-001", "mei", "t" * 60)
    whole = fitting(head, [row], ("BY",), None, text=("TITLE",))
    assert whole == fitting(head, [row], ("BY",), 80, text=("TITLE",))
    assert ["US-001", "mei", f"{'t' * 26}…"] == fitting(head, [row], ("BY",), 40, text=("TITLE",))[1].split()
    narrow = fitting(head, [row], ("BY",), 32, text=("TITLE",))
    assert ["STORY   TITLE", f"US-001  {'t' * 23}…", "Not on this screen: BY"] == narrow
    assert f"US-001  {'t' * 13}…" == fitting(head, [row], ("BY",), 22, text=("TITLE",))[1]
    path = fitting(("ROOT",), [("/srv/projects/of/mine/shop",)], (), 12, text=("ROOT",))
    assert ["ROOT", "…f/mine/shop"] == path
