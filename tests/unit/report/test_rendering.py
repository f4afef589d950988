"""The report for people: on a screen, as Markdown, as a file for a browser."""

from __future__ import annotations

import json
import re
from datetime import UTC, timedelta
from html.parser import HTMLParser

import pytest
from msgspec import convert
from msgspec.structs import replace
from tests.unit.journal.making import NOW
from tests.unit.report.nights import WHOSE, report

from handoffd.engine.run import LandedBy
from handoffd.engine.wording import columns
from handoffd.protocol.state import encoded
from handoffd.report.rendering import as_html, as_lines, as_markdown, as_text, headline, moment
from handoffd.report.values import (
    Cost,
    Down,
    EndedStory,
    FailedStep,
    More,
    Report,
    TimeSpent,
)

EVIL = '<script>alert(1)</script> `rm -rf ~` [x](http://evil) *b* \x1b[2J\nline & "q"'


def test_a_screen_shows_all_of_it() -> None:
    """By the clock that is asked for; no line is longer than 80 columns."""
    assert """\
From 31 Jan 22:15 to 01 Feb 08:15: 4 runs ended, 1 project with news
No daemon ran from 23:15 to 02:15 (3 h): it was killed, or the machine was
switched off.

Landed or done (2)
  shop US-1             merged into main at c0ffeec0ffee
  shop US-1             done, on the branch handoffd/US-1

Waits for you (1)
  shop US-1             since 23:15, review: a person's decision
      handoffd approve shop --story US-1

Paused or set aside (1)
  shop US-1             impl: paused by mei since 23:15
      handoffd resume shop --story US-1

Aborted or discarded (1)
  shop US-1             aborted by mei at 23:15; on the branch handoffd/US-1: 6
                        commits
      handoffd start shop US-1
      handoffd discard shop US-1

Failed (1)
  shop US-1             impl, 3 attempts: 2 tests fail

Claimed, and not so (1)
  shop US-1             impl 2: said 5 pass, 0 fail; in fact 3 pass, 2 fail

Cost
  $4.50, 12,345 tokens in 4 runs; 1 still running
  today $4.50 of $20.00 (caps.day_usd)
  tokens and cost are not known: 1 run
  without a known price: 2 runs (`prices` in the settings)

Time
  agents 1 h 2 min, checks 90 s, for people 2 h, without a daemon 3 h

Goes on (1)
  shop US-1             at impl, waits for a slot; then US-2, US-3""" == as_text(report(), UTC)


@pytest.mark.parametrize(
    ("why", "told"),
    [("a usage limit", "waits for a usage limit"), ("3rd for a slot (1 of 1)", "3rd for a slot (1 of 1)")],
)
def test_a_place_in_line_is_told_as_it_is(why: str, told: str) -> None:
    """A story is 3rd for a slot, and does not wait for the 3rd of something."""
    (coming,) = report().next
    assert f"at impl, {told}; then US-2" in as_text(report(next=(replace(coming, waits_for=why),)), UTC)


@pytest.mark.parametrize(
    ("how", "told", "said"),
    [
        ("branch", None, "on its branch main at c0ffee"),
        ("command", None, "for main: taken by the project's command, at c0ffee"),
        ("command", "https://example.org/shop/pull/12", "for main: https://example.org/shop/pull/12"),
    ],
)
def test_a_story_may_have_landed_without_a_merge(how: LandedBy, told: str | None, said: str) -> None:
    """The last line of the command says where to look."""
    story = EndedStory(
        **WHOSE, outcome="landed", onto="main", commit="c0ffee", branch=None, at=NOW, how=how, told=told
    )
    assert said in " ".join(as_text(report(landed=(story,)), UTC).split())


def test_a_quiet_night_is_a_line() -> None:
    """Nothing else would say more."""
    quiet = report(
        events=0, projects=0, down=(), landed=(), waiting=(), failed=(), false=(), next=(),
        paused=(), dropped=(),
        time=TimeSpent(),
        cost=Cost(runs=0, unmeasured=0, unpriced=0, tokens=0, usd=0, running=0, caps=()),
    )  # fmt: skip
    head = "From 31 Jan 22:15 to 01 Feb 08:15: 0 runs ended, 0 projects with news"
    assert [head, "Nothing has happened."] == as_text(quiet, UTC).splitlines()
    assert "Nothing has happened." in as_markdown(quiet)
    assert "<p>Nothing has happened.</p>" in as_html(quiet)


def test_a_long_list_is_cut_on_a_screen_and_nowhere_else() -> None:
    """With the command for the rest."""
    failed = tuple(
        FailedStep(**{**WHOSE, "story": f"US-{number}"}, step="impl", attempts=1, why="w" * 300, passed=False)
        for number in range(20)
    )
    many = report(failed=failed, more=More(failed=7))
    text = as_text(many, UTC)
    assert "Failed (27)" in text
    assert "  and 21 more: handoffd report --markdown" in text
    assert [] == [line for line in text.splitlines() if len(line) > 80]
    for whole in (as_markdown(many), as_html(many)):
        assert all(f"US-{number}" in whole for number in range(20))
        assert "and 7 more" in whole


def test_what_waits_for_a_person_is_never_cut() -> None:
    """The last of many may be the only decision."""
    waiting = report().waiting
    many = report(waiting=tuple(replace(waiting[0], story=f"US-{number}") for number in range(20)))
    assert all(f"US-{number} " in as_text(many, UTC) for number in range(20))


def test_a_command_is_never_cut() -> None:
    """Half of it would be another command. A path matters at its end."""
    command = f"handoffd approve /srv/{'a' * 90} --story US-1"
    waiting = replace(report().waiting[0], command=command, name=f"/srv/{'a' * 90}/shop")
    text = as_text(report(waiting=(waiting,)), UTC)
    assert f"      {command}" in text.splitlines()
    assert "  …aaaaaaaaa/shop US-1  since" in text


def test_a_story_that_waits_to_be_landed_has_both_commands() -> None:
    """And a second line for what a person decides by, which no screen may cut off."""
    why = "done, 2 commits; landing on main would conflict in basket.py"
    merge, discard = "git -C /srv/shop merge handoffd/US-1", "handoffd discard shop US-1"
    waiting = replace(report().waiting[0], step=None, why=why, command=merge, instead=discard)
    told = report(waiting=(waiting,))

    lines = as_text(told, UTC).splitlines()
    at = lines.index("Waits for you (1)") + 1
    assert [
        "  shop US-1             since 23:15, done, 2 commits; landing on main would",
        "                        conflict in basket.py",
        f"      {merge}",
        f"      {discard}",
    ] == lines[at : at + 4]
    assert f": `{merge}` or `{discard}`" in as_markdown(told)
    assert f"<code>{discard}</code>" in as_html(told)


def test_a_title_stands_where_it_leaves_the_rest_whole() -> None:
    """On a screen; the other forms always have it."""
    whole = report()
    titled = {name: tuple(replace(one, title="Dark mode") for one in getattr(whole, name)) for name in LISTS}
    told = report(**titled)
    text = as_text(told, UTC)
    assert "  shop US-1             Dark mode: merged into main at c0ffeec0ffee" in text.splitlines()
    assert "  shop US-1             Dark mode: since 23:15, review: a person's decision" in text.splitlines()
    assert (
        "  shop US-1             Dark mode: at impl, waits for a slot; then US-2, US-3" in text.splitlines()
    )
    assert any(line.startswith("- shop US-1, Dark mode: since") for line in as_lines(told, UTC))
    assert "**shop US-1** Dark mode: " in as_markdown(told)
    assert "Dark mode: merged" in as_html(told)

    why = "w" * 40
    (failed,) = titled["failed"]
    cut = as_text(report(failed=(replace(failed, why=why),)), UTC)
    assert f"impl, 3 attempts: {why[:30]}" in cut
    assert all(len(line) <= 80 for line in cut.splitlines())


LISTS = ("landed", "waiting", "paused", "dropped", "failed", "false", "next")


def test_the_cause_of_a_failure_is_not_cut_off() -> None:
    """Up to four lines; more of it has its own screen."""
    cause = "post_check failed: /srv/shop/bin/check: line 12: eslint: not found (the same 3 times in a row)"
    waiting = replace(report().waiting[0], step="impl", why=cause)
    endless = replace(waiting, why="word " * 500)

    told = as_text(report(waiting=(waiting,)), UTC)
    long = as_text(report(waiting=(endless,)), UTC).splitlines()

    assert cause in " ".join(told.split())
    assert 4 == sum("word" in line for line in long)
    assert all(len(line) <= 80 for line in long)


def test_a_time_of_another_day_has_its_date() -> None:
    """Of a report over a week."""
    long_ago = NOW - timedelta(days=2)
    week = report(since=NOW - timedelta(days=7), down=(Down(since=long_ago, until=None, how="stopped"),))
    lines = as_text(week, UTC).splitlines()
    assert "From 24 Jan 22:15 to 01 Feb 08:15: 4 runs ended, 1 project with news" == lines[0]
    assert "No daemon runs since 29 Jan 22:15: it was stopped. Start it: handoffd run" == lines[1]


def test_a_time_without_its_date_is_of_the_last_day() -> None:
    """So `09:12` is never that of the day before; another year is named."""
    now = NOW + timedelta(days=1)
    assert ["23:15", "31 Jan 21:15", "31 Dec 2025 22:15"] == [
        moment(NOW + timedelta(hours=ago), UTC, now) for ago in (1, -1, -31 * 24)
    ]
    assert headline(report(since=NOW - timedelta(days=400)), UTC).startswith(
        "From 27 Dec 2024 22:15 to 01 Feb 2026"
    )


@pytest.mark.parametrize(
    "title", ["深色模式的開關，讓人在夜裡也能看清楚商店的每一件商品", "ダークモードの切り替えボタン" * 3]
)
def test_a_title_takes_as_many_columns_as_a_terminal_gives_it(title: str) -> None:
    """A Chinese sign takes two; in the names of projects, too."""
    whole = report()
    waiting = tuple(replace(one, title=title, name="網路商店" * 4, why=title * 4) for one in whole.waiting)
    landed = tuple(replace(one, title=title) for one in whole.landed)
    lines = as_text(replace(whole, waiting=waiting, landed=landed), UTC).splitlines()
    assert [] == [line for line in lines if columns(line) > 80 and not line.startswith("      ")]
    assert title[:6] in "".join(lines)


def test_the_headline_names_the_days_unless_all_is_of_today() -> None:
    """Of a whole day both times are the same."""
    day = report(until=NOW + timedelta(days=1), at=NOW + timedelta(days=1))
    today = report(since=NOW - timedelta(hours=1), until=NOW, at=NOW)
    yesterday = report(since=NOW - timedelta(hours=1), until=NOW, at=NOW + timedelta(days=1))

    assert headline(day, UTC).startswith("From 31 Jan 22:15 to 01 Feb 22:15: ")
    assert headline(today, UTC).startswith("From 21:15 to 22:15: ")
    assert headline(yesterday, UTC).startswith("From 31 Jan 21:15 to 31 Jan 22:15: ")


def test_what_is_missing_is_said() -> None:
    """First of all, since all numbers are too low."""
    assert "Some of it is missing: a backup was restored." in as_text(
        report(incomplete="a backup was restored")
    )


class Tags(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        """Note text."""
        self.text += data


@pytest.fixture
def evil() -> Report:
    """A report in which every word of a project or an agent is hostile."""
    whose = {"project": f"/srv/{EVIL}", "name": EVIL, "story": EVIL}
    fields = {"why": EVIL, "step": EVIL, "command": EVIL, "claimed": EVIL, "measured": EVIL, "onto": EVIL,
              "commit": EVIL, "branch": EVIL, "waits_for": EVIL, "then": (EVIL,)}  # fmt: skip
    whole = report(incomplete=EVIL)
    lists = {
        name: tuple(
            replace(one, **{key: value for key, value in {**whose, **fields}.items() if hasattr(one, key)})
            for one in getattr(whole, name)
        )
        for name in ("landed", "waiting", "failed", "false", "next")
    }
    return replace(whole, **lists)


def test_a_page_runs_nothing_and_loads_nothing(evil: Report) -> None:
    """Whatever a project is called and an agent says; all of it can be read."""
    page = as_html(evil, UTC)
    seen = Tags()
    seen.feed(page)
    known = {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "h1",
        "h2",
        "p",
        "section",
        "ul",
        "li",
        "strong",
        "code",
    }
    assert seen.tags <= known
    assert "<script>alert(1)</script>" in seen.text
    assert "default-src 'none'" in page
    assert "\x1b" not in page


def test_a_terminal_gets_no_control_characters(evil: Report) -> None:
    """They could hide what is written, or write something else."""
    assert "?[2J line" in as_text(evil, UTC)
    assert {"\n"} == {sign for sign in as_text(evil, UTC) + as_markdown(evil, UTC) if not sign.isprintable()}


def test_markdown_shows_what_was_written(evil: Report) -> None:
    """No link, no tag, no end of the code around a command."""
    text = as_markdown(evil, UTC)
    bare = re.sub(r"``.*?``", "", text)
    assert "<script>" not in bare.replace("\\<", "")
    assert not re.search(r"(?<!\\)\]\(", bare)
    assert "`` <script>" in text or "``<script>" in text
    assert "- **shop US-1** merged into main at c0ffeec0ffee" in as_markdown(report(), UTC)
    assert "since 23:15, review: a person's decision: `handoffd approve shop --story US-1`" in as_markdown(
        report(), UTC
    )


def test_an_answer_of_the_api_is_the_same_value() -> None:
    """The command line renders what a daemon has answered."""
    assert report() == convert(json.loads(encoded(report())), Report)
