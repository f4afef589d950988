"""`handoffd slots`, `handoffd limits` and `handoffd schedule`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.support.commands import Commands, cells
from tests.support.controlled import Controlled

from handoffd.capacity.accounts import AccountView
from handoffd.capacity.slots import SlotLimitView, SlotsView, SlotWaitView
from handoffd.cli.slots import limits_report, schedule_report
from handoffd.cli.wording import moment, no_daemon
from handoffd.engine.wording import columns


# --- slots ------------------------------------------------------------------------------------------
def wait(place: int = 1, **more: Any) -> SlotWaitView:
    """Return a track in the queue."""
    values: dict[str, Any] = {
        "project": "/srv/blog", "track": "main", "what": "blog US-2 bdd", "executor": "claude",
        "account": "claude", "group": None, "priority": 0, "place": place, "waited_s": 42.0,
        "why": "1st for a claude slot (2 of 2 in use: shop US-1 impl, \x1b[31m)",
    }  # fmt: skip
    return SlotWaitView(**values | more)


LIMITS = (
    SlotLimitView(kind="all", name="", limit=4, in_use=2, waiting=1, holders=("shop US-1 impl", "b")),
    SlotLimitView(kind="account", name="work", limit=None, in_use=0, waiting=0, holders=()),
)


def test_slots_lists_limits_and_waiting_tracks(control: Controlled, handoffd: Commands) -> None:
    """A line for each; an agent's words do not drive the terminal."""
    control.supervision.line = SlotsView(
        closed="memory: 1 MiB free, 512 wanted", limits=LIMITS, waiting_in_all=3,
        waiting=(wait(), wait(2, waited_s=7200.0), wait(3, waited_s=120.0)),
    )  # fmt: skip
    lines = [cells(line) for line in handoffd("slots").lines]
    why = "1st for a claude slot (2 of 2 in use: shop US-1 impl, \\x1b[…"
    assert [
        ["SLOTS", "LIMIT", "IN USE", "WAITING", "RUNNING"],
        ["all", "4", "2", "1", "shop US-1 impl, b"],
        ["account work", "–", "0", "0", "–"],
        [],
        ["the daemon starts nothing for now: memory: 1 MiB free, 512 wanted"],
        [],
        ["NEXT", "TRACK", "PRIORITY", "SINCE", "WHY"],
        ["1", "blog US-2 bdd", "0", "42 s", why],
        ["2", "blog US-2 bdd", "0", "2 h", why],
        ["3", "blog US-2 bdd", "0", "2 min", why],
    ] == lines


def test_of_many_waiting_tracks_the_first_are_shown(control: Controlled, handoffd: Commands) -> None:
    """And how many there are; JSON has more of them."""
    waiting = tuple(wait(number) for number in range(1, 31))
    control.supervision.line = SlotsView(closed=None, limits=LIMITS, waiting=waiting, waiting_in_all=1030)
    lines = handoffd("slots").lines
    assert "and 1,010 more; for one of them: handoffd status PROJECT" == lines[-1]
    assert "20" == cells(lines[-2])[0]
    answer = handoffd("slots", "--json").json
    assert (True, 30) == (answer["daemon"], len(answer["waiting"]))
    assert "blog US-2 bdd" == answer["waiting"][0]["what"]


def test_without_a_daemon_no_track_runs_or_waits(handoffd: Commands) -> None:
    """The limits are shown all the same."""
    said = handoffd("slots")
    assert ["all", "4", "0", "0", "–"] == cells(said.lines[1])
    assert "No daemon runs" in said.lines[-1]


# --- limits -----------------------------------------------------------------------------------------
SINCE = datetime(2026, 1, 31, 22, tzinfo=UTC)
FAR = datetime(2126, 1, 31, 23, tzinfo=UTC)


def limited(**more: Any) -> AccountView:
    """Return an account that is limited for long."""
    values: dict[str, Any] = {
        "account": "claude", "kind": "limit", "since": SINCE, "until": FAR, "why": "no \x1b[31mmore",
        "executors": ("claude",), "tried_by": None, "waiting": 12,
    }  # fmt: skip
    return AccountView(**values | more)


def test_limits_has_a_line_for_each_account(control: Controlled, handoffd: Commands) -> None:
    """When it is tried again, or which project tries it; an agent's words do not drive the terminal."""
    control.supervision.limited = (
        limited(),
        limited(account="codex", kind="overload", until=SINCE, tried_by="/srv/shop", waiting=0, why=""),
        limited(account="gemini", until=SINCE, waiting=0),
    )
    since = moment(SINCE.isoformat())
    [head, *rows] = handoffd("limits").lines
    assert ["ACCOUNT", "WHAT", "SINCE", "NEXT TRY", "WAITING", "WHY"] == cells(head)
    assert [
        ["claude", "usage limit", since, moment(FAR.isoformat()), "12", "no \\x1b[31mmore"],
        ["codex", "overloaded", since, "now, by /srv/shop", "0", "–"],
        ["gemini", "usage limit", since, "with the next attempt", "0", "no \\x1b[31mmore"],
    ] == [cells(row) for row in rows]


def test_without_limits_it_is_one_sentence(control: Controlled, handoffd: Commands) -> None:
    """And an empty list in JSON."""
    assert ["No account is at a limit."] == handoffd("limits").lines
    assert [] == handoffd("limits", "--json").json["limits"]


def test_a_limit_is_lifted_by_a_person(control: Controlled, handoffd: Commands) -> None:
    """Whose name is recorded. Where that fails, it is lifted all the same, until the daemon restarts."""
    control.supervision.limited = (limited(),)
    lifted = (0, "claude: the next attempt that needs this account tries it\n")
    said = handoffd("limits", "lift", "claude")
    assert lifted == (said.code, said.out)
    [(account, by)] = control.supervision.lifted
    assert ("claude", True) == (account, bool(by))
    assert "lifted" == handoffd("limits", "lift", "claude", "--json").json["type"]

    control.supervision.unlifted = ("/srv/bad: no \x1b[31mJSON",)
    said = handoffd("limits", "lift", "claude")
    assert lifted == (said.code, said.out)
    assert "but after a restart the daemon waits for it again: /srv/bad: no \\x1b[31mJSON" in said.err
    assert ["/srv/bad: no \x1b[31mJSON"] == handoffd("limits", "lift", "claude", "--json").json["problems"]


def test_an_account_without_a_limit_is_not_found(control: Controlled, handoffd: Commands) -> None:
    """The hint lists those with one."""
    said = handoffd("limits", "lift", "codex")
    assert (4, "") == (said.code, said.out)
    assert "next: handoffd limits" in said.err


# --- schedule ---------------------------------------------------------------------------------------
AT = datetime(2026, 1, 31, 3, tzinfo=UTC).isoformat()


def scheduled(**changes: Any) -> dict[str, Any]:
    """Return a schedule as the API has it, with `changes`."""
    values = {
        "project": "/srv/shop", "name": "shop", "schedule": "nightly", "own": False, "cron": "0 3 * * *",
        "timezone": "UTC", "story": "R-1", "custom": None, "overlap": "skip", "catch_up": "none",
        "next_at": AT, "waits_for": None, "last_due": None, "last_outcome": None, "last_story": None,
        "last_why": None,
    }  # fmt: skip
    return {**values, **changes}


def test_each_schedule_has_its_line() -> None:
    """When it is due next, what it starts, and how the last start went."""
    done = scheduled(last_due=AT, last_outcome="skipped", last_story="R-0", last_why="US-1 is in flight")
    late = scheduled(waits_for="locked", next_at=AT, story=None)
    answer = {"at": AT, "daemon": True, "idle": [], "schedules": [scheduled(), done, late]}

    head, *lines = schedule_report(answer)

    assert ["PROJECT", "SCHEDULE", "CRON", "NEXT", "STARTS", "LAST"] == head.split()
    assert f"0 3 * * * UTC  {moment(AT)}  " in lines[0]
    assert lines[1].endswith(f"skipped R-0, due {moment(AT)}: US-1 is in flight")
    assert "(waits: locked)" in lines[2]


def test_without_a_daemon_no_schedule_starts_anything() -> None:
    """The last line reports that."""
    assert (
        no_daemon()
        == schedule_report({"at": AT, "daemon": False, "schedules": [scheduled()], "idle": []})[-1]
    )


def test_a_schedule_without_a_project_is_reported() -> None:
    """With a slip in a name, it would never start anything and the user would not know."""
    idle = [{"schedule": "tidy", "projects": ["shpo", "/srv/*"]}]
    line = "tidy matches no project: none is named or located at shpo, /srv/* (handoffd projects)"
    answer = {"at": AT, "daemon": True, "idle": idle}
    assert [line] == schedule_report({**answer, "schedules": []})
    assert ["", line] == schedule_report({**answer, "schedules": [scheduled()]})[-2:]


def test_without_schedules_it_is_one_sentence(control: Controlled, handoffd: Commands) -> None:
    """For a project and for all."""
    for words in (["schedule"], ["schedule", "shop"]):
        said = handoffd(*words)
        assert (0, "") == (said.code, said.err)
        assert "No schedule is configured" in said.out
    assert [] == handoffd("schedule", "--json").json["schedules"]


# --- on a terminal ------------------------------------------------------------------------------------
def test_a_table_is_no_wider_than_the_terminal() -> None:
    """Reasons and names are shortened, and columns left out; a pipe gets all of it."""
    why = "You have used all of the five hours of this plan; it resets in the middle of the night"
    limited = {
        "account": "an-account-of-the-company", "kind": "limit", "since": AT, "until": AT, "tried_by": None,
        "waiting": 3, "why": why,
    }  # fmt: skip
    answer = {"at": AT, "limits": [limited]}
    planned = {"at": AT, "daemon": True, "schedules": [scheduled(waits_for=why, last_why=why)], "idle": []}
    for lines in (limits_report(answer, 80), schedule_report(planned, 80)):
        assert max(map(columns, lines)) <= 80, lines
    assert "an-account-of-the-company" in limits_report(answer)[1]
