"""`handoffd log`: what an agent printed, whole or as it comes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import click

from handoffd.cli.asking import project_argument
from handoffd.cli.place import Place
from handoffd.cli.wording import terminal_text
from handoffd.errors import NoDaemon


@click.command()
@project_argument
@click.option("--run", "run_id", metavar="RUN", help="The run to show; `handoffd runs` lists them.")
@click.option("--follow", "-f", is_flag=True, help="Go on while it runs.")
@click.pass_obj
def log(place: Place, project: str | None, run_id: str | None, follow: bool) -> None:
    """Print the output of PROJECT's latest run, or of the run named.

    A check of a run is a run, too: RUN.tests, RUN.baseline, RUN.post. On a terminal, control
    sequences are shown instead of obeyed.
    """
    named = place.project(project) if project is not None or run_id is None else None
    for piece in _pieces(place, named, run_id, follow=follow):
        if sys.stdout.isatty():
            click.echo(terminal_text(piece), nl=False)
        else:
            sys.stdout.buffer.write(piece)
        sys.stdout.flush()


def _pieces(place: Place, project: str | None, run: str | None, *, follow: bool) -> Iterator[bytes]:
    with ExitStack() as open_streams:
        query = {"project": project, "run": run, "follow": int(follow)}
        try:
            stream = open_streams.enter_context(place.client().stream("/v1/log", **query))
        except NoDaemon:
            yield from _kept(place, project, run, follow=follow)
            return
        yield from stream.pieces()


def _kept(place: Place, project: str | None, run: str | None, *, follow: bool) -> Iterator[bytes]:
    """Yield the output as it lies on the disk: agents go on writing without a daemon."""
    from handoffd.cli import offline
    from handoffd.control.runlog import LOOK_S, Tail

    found = offline.look(place.settings(), lambda service: service.log_of(project, run))
    tail = Tail(found)
    while True:
        over = not follow or found.is_over()
        piece = tail.read()
        if piece:
            yield piece
        elif over:
            return
        else:
            time.sleep(LOOK_S)  # until Ctrl-C, or until the run is over
