"""`handoffd limits`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.support.commands import Commands
from tests.support.controlled import Controlled

from handoffd.cli.wording import moment
from handoffd.engine.views import AccountView

SINCE = datetime(2026, 1, 31, 22, tzinfo=UTC)
FAR = datetime(2126, 1, 31, 23, tzinfo=UTC)


def view(**more: Any) -> AccountView:
    """Return an account that is limited for long."""
    values: dict[str, Any] = {
        "account": "claude", "kind": "limit", "since": SINCE, "until": FAR, "why": "no \x1b[31mmore",
        "executors": ("claude",), "tried_by": None, "waiting": 12,
    }  # fmt: skip
    return AccountView(**values | more)


def test_a_line_for_each_account(control: Controlled, handoffd: Commands) -> None:
    """When it is tried again, or by whom it is; an agent's words do not drive the terminal."""
    control.supervision.limited = (
        view(),
        view(account="codex", kind="overload", until=SINCE, tried_by="/srv/shop", waiting=0, why=""),
        view(account="gemini", until=SINCE, waiting=0),
    )
    since = moment(SINCE.isoformat())
    [head, *rows] = handoffd("limits").lines
    cells = [[cell for cell in row.split("  ") if cell.strip()] for row in rows]
    assert ["ACCOUNT", "WHAT", "SINCE", "NEXT TRY", "WAITING", "WHY"] == [
        word.strip() for word in head.split("  ") if word
    ]
    assert [
        ["claude", "usage limit", since, moment(FAR.isoformat()), "12", "no \\x1b[31mmore"],
        ["codex", "overloaded", since, "now, by /srv/shop", "0", "–"],
        ["gemini", "usage limit", since, "with the next attempt", "0", "no \\x1b[31mmore"],
    ] == [[cell.strip() for cell in row] for row in cells]


def test_without_limits_there_is_nothing_to_wait_for(control: Controlled, handoffd: Commands) -> None:
    """Said in so many words."""
    assert ["No account is at a limit."] == handoffd("limits").lines
    assert [] == handoffd("limits", "--json").json["limits"]


def test_a_limit_is_lifted_by_a_person(control: Controlled, handoffd: Commands) -> None:
    """Whose name is recorded."""
    control.supervision.limited = (view(),)
    said = handoffd("limits", "lift", "claude")
    assert (0, "claude: the next attempt that needs this account tries it\n") == (said.code, said.out)
    [(account, by)] = control.supervision.lifted
    assert "claude" == account
    assert by
    assert "lifted" == handoffd("limits", "lift", "claude", "--json").json["type"]


def test_where_a_lifted_limit_could_not_be_recorded_is_said(control: Controlled, handoffd: Commands) -> None:
    """It is lifted all the same; the words of a broken file do not drive the terminal."""
    control.supervision.limited, control.supervision.unlifted = (view(),), ("/srv/bad: no \x1b[31mJSON",)
    said = handoffd("limits", "lift", "claude")
    assert (0, "claude: the next attempt that needs this account tries it\n") == (said.code, said.out)
    assert "but after a restart the daemon waits for it again: /srv/bad: no \\x1b[31mJSON" in said.err
    assert ["/srv/bad: no \x1b[31mJSON"] == handoffd("limits", "lift", "claude", "--json").json["problems"]


def test_what_is_not_limited_cannot_be_lifted(control: Controlled, handoffd: Commands) -> None:
    """The hint shows what is."""
    said = handoffd("limits", "lift", "codex")
    assert (4, "") == (said.code, said.out)
    assert "next: handoffd limits" in said.err
