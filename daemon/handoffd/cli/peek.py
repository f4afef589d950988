"""`handoffd peek`: a dispatch before it happens."""

from __future__ import annotations

from typing import Any

import click

from handoffd.cli.asking import json_option, print_json, project_argument
from handoffd.cli.wording import no_daemon, plain
from handoffd.entrance.place import Place
from handoffd.entrance.requests import either


@click.command()
@project_argument
@json_option
@click.pass_obj
def peek(place: Place, project: str | None, as_json: bool) -> None:
    """Show what the next turn of PROJECT would do, with the prompt it would give. Changes nothing."""
    named = place.project(project)

    def without() -> dict[str, object]:
        from handoffd.entrance import offline

        return offline.alone(place.settings(), lambda service: service.peek(named))

    answer = either(place, lambda client: client.get("/v1/peek", project=named), without)
    if as_json:
        print_json(answer.json)
        return
    closing = [] if answer.daemon else [no_daemon()]
    click.echo("\n".join([*report(answer.json), *closing]))


def report(shown: dict[str, Any]) -> list[str]:
    """Return the lines for an answer of `GET /v1/peek`."""
    step, why, prompt = plain(shown["step"]), plain(shown["why"]), shown["prompt"]
    warnings = [f"  warning: {plain(warning)}" for warning in shown["warnings"]]
    if prompt is None:
        following = shown["result"].get("next_command")
        advice = [f"  next: {plain(following)}"] if following else []
        return [f"nothing is dispatched at {step}: {why}", *warnings, *advice]
    head = f"{step}, attempt {shown['attempt']}: {why}"
    return [head, *warnings, f"  executor: {plain(shown['executor'])}", "", plain(prompt, lines=True)]
