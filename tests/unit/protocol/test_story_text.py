"""A story's text in its one form, and the stories of files."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from handoffd.errors import InvalidFile, Problem, Refused
from handoffd.protocol.prompt import quoted
from handoffd.protocol.story_text import (
    INVALID_TEXT,
    MAX_BYTES,
    QUOTE_BYTES,
    WrittenStory,
    decoded,
    stories_in,
    story_in,
    story_text,
    title_of,
)


def refused(work: Callable[[], object], code: str) -> Refused:
    """Return the refusal of what is not a text."""
    with pytest.raises(Refused) as caught:
        work()
    assert code == caught.value.code
    return caught.value


# --- one text ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Dark mode", "Dark mode"),
        ("\ufeff\r\n\r\nDark mode\r\nfor the night  \n\n", "Dark mode\nfor the night"),
        ("a\u2028b\x0cc\rd", "a\nb\nc\nd"),
        ("  indented\n    more", "  indented\n    more"),
    ],
)
def test_a_text_has_one_form(text: str, clean: str) -> None:
    """Whatever the editor and the machine made of its line ends."""
    assert clean == story_text(text).text
    assert clean == story_text(clean).text


@pytest.mark.parametrize("text", ["", " \n\t\n", "\ufeff", "\r\n"])
def test_a_text_that_says_nothing_is_refused(text: str) -> None:
    """Neither an unset variable of a script nor an empty file starts a story."""
    told = refused(lambda: story_text(text), INVALID_TEXT)
    assert "it is empty" in told.message


@pytest.mark.parametrize(
    ("text", "said"),
    [("one\ntwo\0", "line 2 holds a NUL"), ("one\n\ud800", "line 2 holds half of a character")],
)
def test_what_is_not_text_is_refused_with_its_line(text: str, said: str) -> None:
    """Such a file is a program or a picture."""
    assert said in refused(lambda: story_text(text), INVALID_TEXT).message


def test_bytes_that_are_not_utf_8_are_refused_with_their_line() -> None:
    """Replaced by question marks, half of a text would be lost without a word."""
    assert "line 3 is not UTF-8" in refused(lambda: decoded(b"a\nb\n\xe4"), INVALID_TEXT).message
    assert "ä" == decoded("ä".encode())


@pytest.mark.parametrize("line", ["x" * 79, "x", "字" * 30, ""])
def test_a_text_that_is_taken_is_quoted_whole(line: str) -> None:
    """The limit counts what the quotation adds, so no prompt cuts it; one line more is refused."""
    cost = len(line.encode()) + 1 + QUOTE_BYTES
    lines = ["x", *[line] * ((MAX_BYTES - QUOTE_BYTES - 1) // cost - 2), "x"]
    longest = "\n".join(lines)
    assert longest == story_text(longest).text

    quotation = quoted(longest, limit=MAX_BYTES, language="en")

    assert quotation is not None
    assert [f"> {one}".rstrip() for one in lines] == quotation.split("\n")
    too_long = "\n".join([*lines, *["x" * 79] * 4])
    assert "64 KiB is the most" in refused(lambda: story_text(too_long), INVALID_TEXT).message


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Dark mode #\n\nNight.", "Dark mode"),
        ("\n  Dark   mode\nNight.", "Dark mode"),
        ("Plain words\n# A heading", "Plain words"),
        ("\x1b[31mred\x1b[0m\x07 \u202ealert", "red alert"),
        ("x" * 300, "x" * 119 + "…"),
        ("#", "#"),
    ],
)
def test_a_title_is_the_first_line_without_marks(text: str, title: str) -> None:
    """One line that can drive no terminal."""
    assert title == title_of(text)


def test_a_title_and_a_source_are_lines_too() -> None:
    """And an empty title is refused."""
    told = story_text("Night.", "Dark\nmode", "https://example.org/1\n2")
    assert ("Dark mode", "https://example.org/1 2") == (told.title, told.source)
    assert "title is empty" in refused(lambda: story_text("Night.", " "), INVALID_TEXT).message


# --- one story in a file -------------------------------------------------------------------------------
ISSUE: dict[str, Any] = {
    "number": 12,
    "title": "Dark mode",
    "body": "At night.\r\n",
    "url": "https://x.org/12",
}


def test_an_issue_is_its_title_and_body_and_names_its_source() -> None:
    """As `gh issue view --json` prints it, with its keys in any order; an empty body is null or empty."""
    told = story_in("-", json.dumps(ISSUE)).described
    assert ("Dark mode", "https://x.org/12") == (told.title, told.source)
    assert "Dark mode\n\nAt night.\n\nSource: https://x.org/12" == told.text

    bare = story_in("-", json.dumps({"number": 12, "title": "Dark mode", "body": None})).described
    assert ("Dark mode\n\nSource: issue #12", None) == (bare.text, bare.source)


@pytest.mark.parametrize(
    "issue", [{"number": 1}, {"title": "", "body": "x"}, {"title": "x", "body": ["x"]}, {}]
)
def test_json_without_title_and_body_names_the_command_that_prints_them(issue: dict[str, Any]) -> None:
    """It would be a text that no person wrote."""
    told = refused(lambda: story_in("-", json.dumps(issue)), INVALID_TEXT)
    assert "gh issue view N --json number,title,body,url" in told.message


def test_a_list_of_issues_is_not_one_story() -> None:
    """The next command takes it."""
    told = refused(lambda: story_in("-", json.dumps([ISSUE, ISSUE])), INVALID_TEXT)
    assert "handoffd backlog import FILE" == told.hint


@pytest.mark.parametrize(
    ("file", "text", "where"),
    [
        (
            "standard input",
            '{"number":1\n',
            "standard input:1: this should be JSON of issues, and is broken: column 12",
        ),
        (
            "br.md",
            '[\n{"number": 1},\n{"tit',
            "br.md:3: this should be JSON of issues, and is broken: column 2",
        ),
        ("standard input", "{", "standard input:1: this should be JSON of issues, and is broken: column 2"),
        ("br.json", "Dark mode", "br.json:1: this should be JSON of issues, and is broken: column 1"),
        ("BR.JSON", '["a", 1]', "BR.JSON:1: this should be JSON of issues, and is broken: it is neither"),
        (
            "x",
            '{"a":' * 100_000,
            "x:1: this should be JSON of issues, and is broken: it is nested too deeply",
        ),
    ],
)
def test_broken_json_is_no_story(file: str, text: str, where: str) -> None:
    """Agents would be paid for a pipe that was cut off."""
    with pytest.raises(InvalidFile) as caught:
        story_in(file, text)
    (problem,) = stories_in(file, text)
    assert str(caught.value).startswith(where)
    assert str(problem) == str(caught.value)
    assert (file == "standard input") == (caught.value.hint is not None)


@pytest.mark.parametrize(
    "text",
    [
        "{ not json", "[x] tick this", "[ ] tick this", "[link](https://x.org) is dead", '["a", 1]',
        "{" * 2000, "{{ name }} is not replaced", "[[wiki]] links", "{a: 1} is YAML",
    ],
)  # fmt: skip
def test_a_text_that_only_begins_like_json_is_a_text(text: str) -> None:
    """People write lists and templates."""
    assert text == story_in("-", text).described.text


FRONT = "---\nid: US-012\ntitle: Dark mode\nblocked_by: [US-011]\npriority: 5\n---\nAt night.\n"


def test_front_matter_says_what_the_options_say() -> None:
    """The text begins below it then."""
    told = story_in("dark.md", FRONT)
    assert ("US-012", ("US-011",), 5) == (told.id, told.blocked_by, told.priority)
    assert ("Dark mode", "At night.") == (told.described.title, told.described.text)


@pytest.mark.parametrize(
    "text",
    [
        "---\nstatus: pass\nstep: review\n---\nApproved.",
        "---\nid: US-1\nstatus: pass\n---\nx",
        "---\nnever closed",
        "--- a rule\n---\nx",
        "---\n- a\n---\nx",
        "---\na: &x [*x]\n---\nx",
    ],
)
def test_any_other_front_matter_is_text(text: str) -> None:
    """A hand-off among it, too: nothing of it is obeyed."""
    told = story_in("x.md", text)
    assert (text, None) == (told.described.text, told.id)


# --- several stories in a file --------------------------------------------------------------------------
def found(content: str, **more: Any) -> list[WrittenStory | Problem]:
    """Return what a file holds."""
    return list(stories_in("plan.md", content, **more))


def stories(content: str, **more: Any) -> list[WrittenStory]:
    """Return the stories of a file without a problem."""
    told = found(content, **more)
    assert [] == [one for one in told if isinstance(one, Problem)]
    return [one for one in told if isinstance(one, WrittenStory)]


PLAN = """# The plan

Words before the first story.

## US-008: Gift cards

Give them.

```
## no heading
```

### Details

More.

## Refunds

Pay back.

# Appendix

Not a story.
"""


def test_each_heading_of_the_second_level_begins_a_story() -> None:
    """With its id, if it names one; other headings belong to it, and code is code."""
    cards, refunds = stories(PLAN)
    assert ("US-008", "Gift cards", 5) == (cards.id, cards.described.title, cards.line)
    assert "## no heading" in cards.described.text
    assert cards.described.text.endswith("More.")
    assert (None, "Refunds", "## Refunds\n\nPay back.") == (
        refunds.id, refunds.described.title, refunds.described.text,
    )  # fmt: skip


@pytest.mark.parametrize("heading", ["UTF-8 in exports", "Support UTF-8: now", "us-1: x"])
def test_a_heading_is_an_id_only_in_the_form_of_one(heading: str) -> None:
    """Capitals, a number, a colon."""
    assert [None] == [one.id for one in stories(f"## {heading}\n\nx")]


def test_a_file_of_a_folder_is_one_story() -> None:
    """Called by its first heading, else by the file; front matter goes before both."""
    assert ["The plan"] == [one.described.title for one in stories(PLAN, name="plan")]
    assert ["dark-mode"] == [one.described.title for one in stories("At night.", name="dark-mode")]
    assert ["Dark mode"] == [one.described.title for one in stories(FRONT, name="x")]
    assert ["US-012"] == [one.id for one in stories(FRONT + "\n## Not a story\n")]


def test_a_list_of_issues_is_that_many_stories() -> None:
    """Each with its address."""
    both = [ISSUE, {**ISSUE, "title": "Refunds", "url": "https://x.org/13"}]
    assert ["https://x.org/12", "https://x.org/13"] == [
        one.described.source for one in stories(json.dumps(both))
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "---\nblocked-by: US-1\n---\nx",
            "plan.md:2: blocked-by: unknown key (allowed: id, title, blocked_by",
        ),
        ("---\nid: ../etc\n---\nx", "plan.md:2: id: '../etc' cannot be a story id"),
        ("---\ntitle: [a]\n---\nx", "plan.md:2: title: must be a text"),
        ("---\n\nblocked_by: [a, 1]\n---\nx", "plan.md:3: blocked_by: must be story ids"),
        ("---\npriority: 5000\n---\nx", "plan.md:2: priority: must be a whole number from -1000 to 1000"),
        ("---\npriority: true\n---\nx", "plan.md:2: priority: must be a whole number"),
        ("---\nid: [\n---\nx", "plan.md:"),
        ("", "plan.md:1: the text of the story cannot be used: it is empty"),
        (json.dumps([ISSUE, {"title": 1}]), "plan.md: 1: the text of the story cannot be used: as JSON"),
    ],
)
def test_every_problem_has_its_place(content: str, said: str) -> None:
    """File, line and key; the other stories of the file are there all the same."""
    (problem,) = (one for one in found(content) if isinstance(one, Problem))
    assert said in str(problem)
