"""`handoffd backlog`: the stories that wait in a project, and what a person does about them."""

from __future__ import annotations

from typing import Any, Final

import click

from handoffd.api.verbs import VERBS
from handoffd.cli.asking import json_option, print_json, project_argument
from handoffd.cli.backlog_report import report
from handoffd.cli.verbs import verb_command
from handoffd.entrance.place import Place
from handoffd.entrance.requests import either

_SHOW: Final = "show"


class _Showing(click.Group):
    """A group that shows the backlog where no other word of it is given first."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the command in that a project's name stands for."""
        named = bool(args) and (args[0] in self.commands or args[0] in {"-h", "--help"})
        return super().parse_args(ctx, args if named else [_SHOW, *args])


@click.group(cls=_Showing)
def backlog() -> None:
    """Show the stories that wait in a project: handoffd backlog [PROJECT] [--json].

    `start PROJECT STORY STORY...` and `start PROJECT STORY --queue` put stories there. The first one that
    waits for no other is started next: by `continue`, or by itself (`backlog auto PROJECT on`).
    """


@backlog.command(name=_SHOW, hidden=True)
@project_argument
@json_option
@click.pass_obj
def show(place: Place, project: str | None, as_json: bool) -> None:
    """Show the stories that wait in PROJECT, in the order in which they are started, and what keeps each."""
    root = place.project(project)

    def without() -> dict[str, Any]:
        from handoffd.entrance import offline

        return offline.look(place.settings(), lambda service: service.backlog(root))

    answer = either(place, lambda client: client.get("/v1/backlog", project=root), without)
    if as_json:
        print_json(answer.json)
    else:
        click.echo("\n".join(report(answer.json)))


for _verb in ("backlog_move", "backlog_edit", "backlog_remove", "backlog_auto"):
    backlog.add_command(verb_command(VERBS[_verb]))
