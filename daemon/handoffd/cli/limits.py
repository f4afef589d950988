"""`handoffd limits`: the accounts that must not be asked now, and how to ask them all the same."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from handoffd.cli.asking import json_option, print_json
from handoffd.cli.wording import moment, plain, shorten, table
from handoffd.entrance.place import Place
from handoffd.entrance.requests import account as person
from handoffd.entrance.requests import either

_HEAD = ("ACCOUNT", "WHAT", "SINCE", "NEXT TRY", "WAITING", "WHY")
_WHY_WIDTH = 60
_KINDS = {"limit": "usage limit", "overload": "overloaded", "refusal": "refused"}


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def limits(context: click.Context, as_json: bool) -> None:
    """List the accounts that answered with a usage limit, and when they are asked again."""
    if context.invoked_subcommand is not None:
        return
    place = context.find_object(Place)
    assert place is not None

    def without() -> dict[str, Any]:
        from handoffd.entrance import offline

        return offline.look(place.settings(), lambda service: service.limits())

    answer = either(place, lambda client: client.get("/v1/limits"), without)
    if as_json:
        print_json(answer.json)
        return
    found = answer.json["limits"]
    click.echo("\n".join(report(answer.json)) if found else "No account is limited.")


@limits.command()
@click.argument("account")
@json_option
@click.pass_obj
def lift(place: Place, account: str, as_json: bool) -> None:
    """Ask ACCOUNT again now: it was paid for, or its limit was lifted elsewhere."""
    by = person()

    def without() -> dict[str, Any]:
        from handoffd.entrance import offline

        return offline.lift_limit(place.settings(), account, by)

    body = {"account": account, "by": by}
    answer = either(place, lambda client: client.post("/v1/limits/lift", body), without)
    if as_json:
        print_json(answer.json)
        return
    click.echo(f"{plain(account)} is asked again with the next attempt that wants it")
    for problem in answer.json["problems"]:
        click.echo(f"but a restart of the daemon waits for it again: {plain(problem)}", err=True)


def report(answer: dict[str, Any]) -> list[str]:
    """Return the lines for an answer of `GET /v1/limits`."""
    return table(_HEAD, [_row(view, answer["at"]) for view in answer["limits"]])


def _row(view: dict[str, Any], at: str) -> list[str]:
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
