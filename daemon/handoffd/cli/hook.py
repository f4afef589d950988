"""`handoffd hook`, as the help has it; `cli/start.py` answers hooks before any of this is imported."""

from __future__ import annotations

import click

from handoffd.entrance.hook import answer_hook
from handoffd.entrance.place import Place


@click.command()
@click.pass_obj
def hook(place: Place) -> None:
    """Answer a hook of Claude Code: apply the hand-off it left. Reads the event on standard input.

    Exit codes: 0 all is well, 2 the agent shall go on and is told why, 1 anything else; that stops nobody.
    """
    click.get_current_context().exit(answer_hook(place.config, place.environ))
