"""`handoffd status`: the one screen that tells the truth.

The common case (a daemon runs, nobody watches) imports nothing but click and the client.
"""

from __future__ import annotations

import click

from handoffd.cli.asking import json_option, print_json, project_argument
from handoffd.cli.status_report import report
from handoffd.entrance.place import Place
from handoffd.entrance.requests import Answer, either


@click.command()
@project_argument
@click.option("--watch", "-w", is_flag=True, help="Show it again whenever it changes, until Ctrl-C.")
@json_option
@click.pass_obj
def status(place: Place, project: str | None, watch: bool, as_json: bool) -> None:
    """Show every project, or one of them whole: where it stands and what it waits for.

    With --watch --json, one line of JSON for each change.
    """
    named = None if project is None else place.project(project)
    if watch:
        from handoffd.cli.watching import watch as keep_watching

        keep_watching(lambda: ask_status(place, named), whole=named is not None, as_json=as_json)
        return
    answer = ask_status(place, named)
    if as_json:
        print_json(answer.json)
    else:
        click.echo("\n".join(report(answer.json, whole=named is not None)))


def ask_status(place: Place, project: str | None) -> Answer:
    """Return the status of every project or of one, from the daemon or from the journal."""

    def without() -> dict[str, object]:
        from handoffd.entrance import offline

        return offline.look(place.settings(), lambda service: service.status(project))

    return either(place, lambda client: client.get("/v1/status", project=project), without)
