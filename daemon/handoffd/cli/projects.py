"""`handoffd projects`: the list."""

from __future__ import annotations

import click

from handoffd.cli.asking import json_option, print_json
from handoffd.cli.wording import plain, styled, table
from handoffd.entrance.place import Place
from handoffd.entrance.requests import either


@click.command()
@json_option
@click.pass_obj
def projects(place: Place, as_json: bool) -> None:
    """List the supervised projects."""

    def without() -> dict[str, object]:
        from handoffd.entrance import offline

        return offline.look(place.settings(), lambda service: service.projects())

    answer = either(place, lambda client: client.get("/v1/projects"), without)
    if as_json:
        print_json(answer.json)
        return
    rows = [
        [
            plain(one["name"]),
            str(one["level"]),
            styled(one["status"] or one["condition"]),
            plain(one["project"]),
        ]
        for one in answer.json["projects"]
    ]
    lines = (
        table(("PROJECT", "LEVEL", "STATUS", "ROOT"), rows)
        if rows
        else ["No project is supervised: handoffd add PROJECT"]
    )
    click.echo("\n".join(lines))
