"""`handoffd peek`: a dispatch before it happens."""

from __future__ import annotations

import click

from handoffd.cli.asking import NO_DAEMON, either, json_option, print_json, project_argument
from handoffd.cli.place import Place
from handoffd.cli.wording import plain


@click.command()
@project_argument
@json_option
@click.pass_obj
def peek(place: Place, project: str | None, as_json: bool) -> None:
    """Show what the next turn of PROJECT would do, with the prompt it would give. Changes nothing."""
    named = place.project(project)

    def without() -> dict[str, object]:
        from handoffd.cli import offline

        return offline.alone(place.settings(), lambda service: service.peek(named))

    answer = either(place, lambda client: client.get("/v1/peek", project=named), without)
    if as_json:
        print_json(answer.json)
        return
    shown = answer.json
    click.echo(f"{plain(shown['step'])}, attempt {shown['attempt']}: {plain(shown['why'])}")
    for warning in shown["warnings"]:
        click.echo(f"  warning: {plain(warning)}")
    if shown["prompt"] is not None:
        click.echo(f"  executor: {plain(shown['executor'])}\n\n{plain(shown['prompt'], lines=True)}")
    if not answer.daemon:
        click.echo(NO_DAEMON)
