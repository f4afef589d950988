"""Why something does not run now: `handoffd slots`, `limits` of accounts, and the `schedule`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import click

from handoffd.cli.asking import json_option, print_json, print_lines, project_argument
from handoffd.cli.wording import fitting, moment, no_daemon, plain, screen_width, shorten, table
from handoffd.entrance.place import Place
from handoffd.entrance.requests import account as person
from handoffd.entrance.requests import ask, either
from handoffd.errors import Json

# --- slots ---------------------------------------------------------------------------------------------
_LIMITS = ("SLOTS", "LIMIT", "IN USE", "WAITING", "RUNNING")
_WAITING = ("NEXT", "TRACK", "PRIORITY", "SINCE", "WHY")
_WIDTH = 60
_SHOWN = 20
"""Most waiting tracks that are shown; `--json` has more."""


@click.command()
@json_option
@click.pass_obj
def slots(place: Place, as_json: bool) -> None:
    """Show the slots in use, the tracks that run, and why each of the others waits."""
    answer = ask(place, "slots")
    if as_json:
        print_json(answer.json)
    else:
        click.echo("\n".join(slots_report(answer.json)))


def slots_report(answer: Json) -> list[str]:
    """Return the lines for an answer of `GET /v1/slots`."""
    lines = table(_LIMITS, [_limit(one) for one in answer["limits"]])
    if answer["closed"]:
        lines += ["", f"the daemon starts nothing for now: {plain(answer['closed'])}"]
    if answer["waiting"]:
        lines += ["", *table(_WAITING, [_wait(one) for one in answer["waiting"][:_SHOWN]]), *_rest(answer)]
    if not answer["daemon"]:
        lines += ["", no_daemon()]
    return lines


def _rest(answer: Json) -> Iterator[str]:
    more = answer["waiting_in_all"] - len(answer["waiting"][:_SHOWN])
    if more > 0:
        yield f"and {more:,} more; for one of them: handoffd status PROJECT"


def _limit(one: Json) -> list[str]:
    return [
        "all" if one["kind"] == "all" else f"{one['kind']} {shorten(one['name'], 40)}",
        "–" if one["limit"] is None else str(one["limit"]),
        str(one["in_use"]),
        str(one["waiting"]),
        shorten(", ".join(one["holders"]) or "–", _WIDTH),
    ]


def _wait(one: Json) -> list[str]:
    return [
        str(one["place"]),
        shorten(one["what"], 40),
        str(one["priority"]),
        _span(one["waited_s"]),
        shorten(one["why"], _WIDTH),
    ]


def _span(seconds: float) -> str:
    """Return a duration in its largest fitting unit."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


# --- limits --------------------------------------------------------------------------------------------
_LIMITS_HEAD = ("ACCOUNT", "WHAT", "SINCE", "NEXT TRY", "WAITING", "WHY")
_WHY_WIDTH = 60
_KINDS = {"limit": "usage limit", "overload": "overloaded", "refusal": "refused"}


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def limits(context: click.Context, as_json: bool) -> None:
    """List the accounts that reported a usage limit, and when the daemon tries them again."""
    if context.invoked_subcommand is not None:
        return
    place = context.find_object(Place)
    assert place is not None

    answer = ask(place, "limits")
    if as_json:
        print_json(answer.json)
        return
    found = answer.json["limits"]
    print_lines(limits_report(answer.json, screen_width()) if found else ["No account is at a limit."])


@limits.command()
@click.argument("account")
@json_option
@click.pass_obj
def lift(place: Place, account: str, as_json: bool) -> None:
    """Use ACCOUNT again now, for example after you paid for it."""
    by = person()

    def without() -> dict[str, Any]:
        from handoffd.entrance import offline

        return offline.lift_limit(place.settings(), account, by)

    body = {"account": account, "by": by}
    answer = either(place, lambda client: client.post("/v1/limits/lift", body), without)
    if as_json:
        print_json(answer.json)
        return
    click.echo(f"{plain(account)}: the next attempt that needs this account tries it")
    for problem in answer.json["problems"]:
        click.echo(f"but after a restart the daemon waits for it again: {plain(problem)}", err=True)


def limits_report(answer: dict[str, Any], width: int | None = None) -> list[str]:
    """Return the table for an answer of `GET /v1/limits`, of at most `width` columns."""
    rows = [_limits_row(view, answer["at"]) for view in answer["limits"]]
    return fitting(_LIMITS_HEAD, rows, ("SINCE", "WAITING"), width, text=("WHY", "NEXT TRY", "ACCOUNT"))


def _limits_row(view: dict[str, Any], at: str) -> list[str]:
    return [
        plain(view["account"]),
        _KINDS.get(view["kind"], plain(view["kind"])),
        moment(view["since"]),
        _next_try(view, at),
        str(view["waiting"]),
        shorten(view["why"] or "–", _WHY_WIDTH),
    ]


def _next_try(view: dict[str, Any], at: str) -> str:
    if view["tried_by"]:
        return f"now, by {shorten(view['tried_by'], 40)}"
    if datetime.fromisoformat(view["until"]) <= datetime.fromisoformat(at):
        return "with the next attempt"
    return moment(view["until"])


# --- schedule ------------------------------------------------------------------------------------------

_SCHEDULE_HEAD: Final = ("PROJECT", "SCHEDULE", "CRON", "NEXT", "STARTS", "LAST")
_LAST_WIDTH: Final = 100


@click.command()
@project_argument
@json_option
@click.pass_obj
def schedule(place: Place, project: str | None, as_json: bool) -> None:
    """Show the schedules of PROJECT or of all: when each starts next, and the last result."""
    root = None if project is None else place.project(project)

    answer = ask(place, "schedules", project=root)
    if as_json:
        print_json(answer.json)
    else:
        print_lines(schedule_report(answer.json, screen_width()))


def schedule_report(answer: Json, width: int | None = None) -> list[str]:
    """Return the lines for an answer of `GET /v1/schedules`; its table has at most `width` columns."""
    found = answer["schedules"]
    idle = [_idle(one) for one in answer["idle"]]
    if not found and not idle:
        return ["No schedule is configured: see `schedule` in the settings (handoffd config show)."]
    rows = [_schedule_row(one) for one in found]
    text = ("LAST", "NEXT", "SCHEDULE", "PROJECT")
    lines = fitting(_SCHEDULE_HEAD, rows, ("CRON", "LAST"), width, text=text) if found else []
    lines += ["", *idle] if lines and idle else idle
    return lines if answer["daemon"] else [*lines, "", no_daemon()]


def _schedule_row(one: Json) -> list[str]:
    waits = f" (waits: {one['waits_for']})" if one["waits_for"] else ""
    return [
        shorten(one["name"], 40),
        plain(one["schedule"]),
        plain(f"{one['cron']} {one['timezone']}"),
        shorten((moment(one["next_at"]) if one["next_at"] else "never") + waits, _LAST_WIDTH),
        plain(one["story"] or "–"),
        shorten(_last(one), _LAST_WIDTH),
    ]


def _idle(one: Json) -> str:
    return plain(
        f"{one['schedule']} matches no project: none is named or located at {', '.join(one['projects'])}"
        " (handoffd projects)"
    )


def _last(one: Json) -> str:
    """Return the result of the last start: `started REVIEW-7, due …`."""
    if one["last_outcome"] is None:
        return "–"
    story = f" {one['last_story']}" if one["last_story"] else ""
    why = f": {one['last_why']}" if one["last_why"] else ""
    return f"{one['last_outcome']}{story}, due {moment(one['last_due'])}{why}"
