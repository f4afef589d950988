"""`handoffd token`: what opens the loopback port (`control.tcp`), for the header of a request."""

from __future__ import annotations

import click

from handoffd.cli.asking import json_option, print_json
from handoffd.entrance.place import Place
from handoffd.errors import Refused


@click.command()
@click.option("--rotate", is_flag=True, help="Make a new one; the old one opens nothing from now on.")
@json_option
@click.pass_obj
def token(place: Place, rotate: bool, as_json: bool) -> None:
    """Print the token that opens the loopback port; it is made when it is first asked for.

    Whoever has it can do over TCP what you can, but for the verbs that are for people (control.tcp.gates).
    """
    from handoffd.api.http.auth import ensured, rotated

    settings = place.settings()
    if settings.control.tcp is not None and settings.control.tcp.token is not None:
        raise Refused("the settings give the token (control.tcp.token)", hint="handoffd config show")
    path = settings.control_token
    text = rotated(path) if rotate else ensured(path)
    if as_json:
        print_json({"token": text, "file": str(path)})
    else:
        click.echo(text)
