"""`handoffd status` on a terminal: who needs the user, works, waits or rests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click
import pytest
from msgspec.structs import replace
from tests.support.commands import environment
from tests.support.controlled import Controlled
from tests.support.supervision import project_view, track_view, whereabouts
from tests.support.terminals import at_terminal

from handoffd.cli.status_report import report, screen
from handoffd.engine.views import ProjectView, TrackView
from handoffd.engine.wording import columns
from handoffd.protocol.state import plain

AT = "2026-01-31T22:15:09Z"
RUNNING = track_view(
    step="impl", status="running", phase="executing", dispatch="d1", pid=4711, attempt=2, max_attempts=5,
    elapsed_min=3.24, timeout_min=10.0, activity="calls Bash: pytest -q", waits_for=None, next_command=None,
)  # fmt: skip
QUEUED = track_view(step="impl", status="pending", waits_for="3rd for a slot", next_command=None, gate=False)
DONE = track_view(
    step="done", status="pass", waits_for=None, next_command="handoffd start /srv/done STORY", gate=False
)


def _project(name: str, *tracks: TrackView, **changes: Any) -> ProjectView:
    return project_view(f"/srv/{name}", *tracks, **{"called": name, **changes})


def _status(*views: ProjectView, **changes: Any) -> dict[str, Any]:
    return {"daemon": True, "at": AT, "projects": [plain(view) for view in views], **changes}


def _lines(*views: ProjectView, width: int = 80, height: int | None = 24, **changes: Any) -> list[str]:
    return [click.unstyle(line) for line in screen(_status(*views, **changes), width=width, height=height)]


def test_a_story_that_is_done_is_there_until_it_is_landed() -> None:
    """Also once the next one is at work in its track."""
    view = _project("shop", replace(RUNNING, story="US-002", unlanded=("US-001",)))
    lines = _lines(view)
    assert "1 needs you:" == lines[0]
    assert lines[1].split() == ["shop", "US-001", "done", "not", "merged", "yet"]
    assert "handoffd land shop --story US-001" == lines[2].strip()
    assert "1 at work:" == lines[3]
    whole = [click.unstyle(line).strip() for line in report(_status(view), whole=True)]
    assert "not merged yet: US-001: handoffd land shop --story US-001" in whole


def test_what_needs_the_user_comes_first_with_the_command_to_type() -> None:
    """Then running stories, then waiting ones; those at rest are a number."""
    decided = datetime(2026, 1, 31, 20, 15, 9, tzinfo=UTC)
    stuck = track_view(
        step="impl", gate=False, waits_for="impl failed: test_timeout, no attempt left",
        next_command="handoffd retry /srv/site", look_command="handoffd log /srv/site",
    )  # fmt: skip

    assert [
        "2 need you:",
        "  blog   US-001  review 2/4  for 2 h: your review",
        "         handoffd gate blog",
        "  site   US-001  impl 3/4    impl failed: test_timeout, no attempt left",
        "         handoffd log site",
        "1 at work:",
        "  api    US-001  impl 3/4    3.2 of 10 min · attempt 2 of 5 · calls Bash: pytest -q",
        "1 waiting:",
        "  queue  US-001  impl 3/4    3rd for a slot",
        "37 at rest: handoffd status --all",
    ] == _lines(
        _project("queue", QUEUED),
        _project("api", RUNNING),
        *(_project(f"done{number}", DONE) for number in range(37)),
        _project("blog", track_view(completed_at=decided)),
        _project("site", stuck),
        width=84,
    )


def test_a_user_with_few_projects_sees_those_at_rest() -> None:
    """And what starts a story there; a command is never cut."""
    idle = track_view(
        story=None, status="pending", step="bootstrap", gate=False, waits_for="a start",
        next_command="handoffd start /srv/shop STORY", backlog=("US-2", "US-3"), next_story="US-2",
    )  # fmt: skip
    views = (_project("shop", idle), _project("new"), _project("done", DONE))

    assert [
        "Nothing needs you.",
        "3 at rest:",
        "  shop  no story · backlog: 2 stories, next US-2; US-3 · handoffd start shop STORY",
        "  new   not initialized · handoffd init new",
        "  done  US-001  done  handoffd start done STORY",
    ] == _lines(*views, width=100)
    assert "  shop  no story · backlog: 2 stories, next US-2; US-3" in _lines(*views, width=60)


def test_each_story_in_flight_has_a_line() -> None:
    """The project's own track, where it has no story, has none among them; a review is named."""
    view = _project(
        "pool",
        track_view(story=None, status="pending", gate=False, waits_for="a start"),
        track_view(track="US-002", story="US-002"),
        replace(RUNNING, track="US-003", story="US-003"),
    )

    lines = _lines(view)

    assert ["1 needs you:", "1 at work:"] == [line for line in lines if line.endswith(":")]
    assert "        handoffd gate pool --story US-002" in lines
    assert not any("at rest" in line for line in lines)


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({"waits_for": "a question", "next_command": "note SHOP TEXT"}, "1 needs you:"),
        ({"step": "done", "to_land": True, "next_command": "land SHOP --story US-1"}, "1 needs you:"),
        ({"waits_for": "paused by handoffd: no disk", "next_command": "resume SHOP"}, "1 needs you:"),
        (
            {"waits_for": "paused by eve", "next_command": "resume SHOP", "needs_you": False},
            "1 waiting:",
        ),
        ({"waits_for": "blocked by US-0", "next_command": "start SHOP US-0 --force"}, "1 needs you:"),
        (
            {"waits_for": "aborted by eve", "next_command": "start SHOP STORY", "needs_you": False},
            "1 at rest:",
        ),
        ({"step": "done", "next_command": "continue SHOP"}, "1 at rest:"),
    ],
)
def test_who_has_to_act(changes: dict[str, Any], title: str) -> None:
    """A person's own pause and an aborted story ask for nothing; a question to a person does."""
    command = f"handoffd {changes['next_command'].replace('SHOP', '/srv/shop')}"
    track = track_view(gate=False, **{**changes, "next_command": command})

    assert title in _lines(_project("shop", track))


def test_at_level_1_a_step_waits_for_a_person_or_another_tool() -> None:
    """handoffd was asked for nothing there."""
    track = track_view(
        step="impl", status="pending", gate=False, needs_you=False,
        waits_for="you or another tool to dispatch it: the project is at level 1",
        next_command="handoffd dispatch /srv/shop",
    )  # fmt: skip

    assert "1 waiting:" in _lines(_project("shop", track, level=1))


@pytest.mark.parametrize(
    ("changes", "entry"),
    [
        (
            {"condition": "missing", "detail": "/srv/shop is gone"},
            ["  shop  /srv/shop is gone", "        ls -ld /srv/shop"],
        ),
        (
            {"warnings": ("edits wait for `handoffd trust /srv/shop`: test",), "held": ("test",)},
            ["  shop  edits wait for `handoffd trust /srv/shop`: test", "        handoffd trust shop"],
        ),
        (
            {"warnings": ("a file cannot be written",)},
            ["  shop  a file cannot be written", "        handoffd status shop"],
        ),
        (
            {"condition": "invalid_rules", "detail": "line 3: no"},
            ["  shop  line 3: no", "        handoffd rules check shop"],
        ),
    ],
)
def test_what_is_wrong_with_a_project_is_an_entry_of_its_own(
    changes: dict[str, Any], entry: list[str]
) -> None:
    """Its stories have their own, unless nothing of it can go on."""
    lines = _lines(_project("shop", RUNNING, **changes))

    assert ["1 needs you:", *entry] == lines[:3]
    assert ("1 at work:" in lines) == (changes.get("condition") != "missing")


def test_a_story_that_cannot_be_landed_names_the_conflict() -> None:
    """The command is the one that leads on, whole."""
    merge = "git -C /srv/shop merge handoffd/US-001"
    where = whereabouts("/srv/shop", would="conflict", conflicts=("basket.py",), command=merge)
    ended = replace(DONE, needs_you=True, to_land=True, whereabouts=where, next_command=merge)

    told = ["  shop  US-001  done  conflicts with main in basket.py", f"        {merge}"]
    assert ["1 needs you:", *told] == _lines(_project("shop", ended))


def test_a_title_is_shown_where_a_line_has_room() -> None:
    """Whole words before it; a title that has no room for its beginning is left out."""
    short = _project("a", track_view(title="A \x1b[2Jdark mode for people who read at night, and more"))
    long = _project("b", track_view(title="Dark", gate=False, waits_for="w" * 50))

    lines = _lines(short, long)

    assert any("your review · A \\x1b[2Jdark mode" in line and line.endswith("…") for line in lines)
    assert not any("Dark" in line for line in lines)
    assert all(len(line) <= 80 for line in lines)


def test_what_a_dead_daemon_left_is_not_at_work() -> None:
    """Unless its process lives; the last line says that no daemon runs."""
    views = (_project("a", replace(RUNNING, pid=None)), _project("b", RUNNING))

    lines = _lines(*views, daemon=False, height=None)

    assert "  b  US-001  impl 3/4  running (process alive, no daemon)" in lines
    assert "  a  US-001  impl 3/4  ended; the next daemon will judge it" in lines
    assert "No daemon runs: `handoffd run` goes on from here." == lines[-1]


# --- width -------------------------------------------------------------------------------------------
WIDE = [
    _project("網路商店", track_view(story="故事-001"), project="/srv/網路商店"),
    _project("b", replace(RUNNING, activity="執行測試" * 20)),
    _project(
        "a/very/long/way/to/a/project", track_view(story="US-" + "9" * 60, step="資料庫遷移步驟一二三四")
    ),
    _project("cafe\u0301", QUEUED),
    _project("x" * 70, condition="io_error", detail="讀不到" * 40),
]


@pytest.mark.parametrize("width", [30, 40, 60, 80, 132])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """But for commands, of which a part would be another one. A Chinese character takes two columns."""
    lines = _lines(*WIDE, width=width, height=None)

    wide = [line for line in lines if columns(line) > width]
    assert [] == [line for line in wide if not line.strip().startswith(("handoffd ", "ls "))]


def test_columns_line_up_under_wide_characters() -> None:
    """In the table for pipes, too."""
    views = (_project("網路商店", QUEUED), _project("cafe\u0301", QUEUED), _project("b", QUEUED))
    shown = [line for line in _lines(*views) if "US-001" in line]
    table = [line for line in report(_status(*views), whole=False) if "US-001" in line]

    assert [12] * 3 == [columns(line.split("US-001")[0]) for line in shown]
    assert [10] * 3 == [columns(line.split("US-001")[0]) for line in table]
    assert [20] * 3 == [columns(line.split("impl")[0]) for line in shown]


def test_a_long_path_keeps_its_end() -> None:
    """Projects that share a name are called by their paths, which begin alike."""
    views = [
        _project(f"a/long/way/to/{end}/shop", QUEUED, called=f"/srv/a/long/way/to/{end}/shop") for end in "xy"
    ]

    assert ["…long/way/to/x/shop", "…long/way/to/y/shop"] == [
        line.split()[0] for line in _lines(*views, width=79)[2:]
    ]


def test_names_of_projects_cannot_drive_the_terminal() -> None:
    """Nor can what agents wrote."""
    evil = track_view(
        gate=False, waits_for="\x1b[2Jboom\nblog US-9 done", next_command="handoffd retry /srv/x"
    )

    lines = _lines(_project("sh\x1b[2Jop", evil))

    assert not any("\x1b" in line for line in lines)
    assert 3 == len(lines)


# --- height ------------------------------------------------------------------------------------------
MANY = [
    *(_project(f"gate{number}", track_view()) for number in range(8)),
    *(_project(f"busy{number}", RUNNING) for number in range(8)),
    *(_project(f"done{number}", DONE) for number in range(40)),
]


@pytest.mark.parametrize("height", range(1, 60))
def test_no_screen_is_higher_than_the_terminal(height: int) -> None:
    """The warnings take at most a third of it; each group that does not fit is counted."""
    lines = _lines(*MANY, height=height, warnings=[f"warning {number}" for number in range(50)])

    assert len(lines) <= height
    if height >= 7:
        counts = ("8 need you:", "8 at work:", "40 at rest:")
        assert list(counts) == [next(count for count in counts if line.startswith(count))
                                for line in lines if line[:1].isdigit()]  # fmt: skip


def test_what_does_not_fit_is_counted_where_it_is_missing() -> None:
    """The most urgent group gets the room."""
    assert [
        "8 need you:",
        "  gate0  US-001  review 2/4  your review",
        "         handoffd gate gate0",
        "  gate1  US-001  review 2/4  your review",
        "         handoffd gate gate1",
        "  and 6 more: handoffd status --all",
        "8 at work: handoffd status --all",
        "40 at rest: handoffd status --all",
    ] == _lines(*MANY, height=9)


def test_everything_is_shown_when_it_is_asked_for() -> None:
    """A line each, and one for the command of what needs the user."""
    lines = _lines(*MANY, height=None)

    assert 3 + 8 * 2 + 8 + 40 == len(lines)
    assert not any("more:" in line for line in lines)


# --- terminals ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "env", "coloured"),
    [
        ((), {}, True),
        ((), {"NO_COLOR": "1"}, False),
        (("--color", "never"), {}, False),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
    ],
)
def test_a_terminal_gets_the_screen_in_colours_unless_they_are_refused(
    control: Controlled, words: tuple[str, ...], env: dict[str, str], coloured: bool
) -> None:
    """What is typed is stronger than the environment. Only the project that waits is shown in full."""
    with at_terminal("status", *words, env=environment(control.runtime, **env)) as terminal:
        code = terminal.end()

    assert 0 == code
    assert ["1 needs you:", "  shop   US-001  review 2/4  your review"] == click.unstyle(
        terminal.shown
    ).splitlines()[:2]
    assert coloured == ("\x1b[" in terminal.shown)


@pytest.mark.parametrize("words", [(), ("--all",), ("shop",)])
def test_both_ways_print_the_same_on_a_terminal(control: Controlled, words: tuple[str, ...]) -> None:
    """The quick one, and the whole command line, which answers what has another option."""
    shown = []
    for more in ((), ("--color", "auto")):
        with at_terminal("status", *words, *more, env=environment(control.runtime)) as terminal:
            assert 0 == terminal.end()
        shown.append(terminal.shown)

    assert shown[0] == shown[1]
