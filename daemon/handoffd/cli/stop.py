"""`handoffd stop`: asks the daemon to end, and waits until it is gone."""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress

import click

from handoffd.api.client import Client
from handoffd.cli.asking import json_option, print_json
from handoffd.cli.wording import start_command
from handoffd.engine.usage import counted
from handoffd.entrance.place import Place
from handoffd.errors import HandoffdError

LIMIT_S = 20.0
EXECUTORS_LIMIT_S = 90.0
"""Executors are ended by their ladders, which give each rung some seconds."""
_TELL_EVERY_S = 2.0


@click.command()
@click.option("--executors", is_flag=True, help="End the executors first; their attempts are repeated.")
@json_option
@click.pass_obj
def stop(place: Place, executors: bool, as_json: bool) -> None:
    """End the daemon. Executors go on, and the next daemon adopts them."""
    client = place.client()
    # Before asking: afterwards the number may belong to somebody else.
    daemon = os.pidfd_open(client.daemon_pid())
    try:
        answer = client.post("/v1/stop", {"executors": executors})
        limit_s = EXECUTORS_LIMIT_S if executors else LIMIT_S
        gone = _wait(daemon, client, limit_s, tell=not as_json)
    finally:
        os.close(daemon)
    if not gone:
        raise HandoffdError(
            f"the daemon still winds down after {limit_s:.0f} s",
            hint="handoffd status",
            code="STILL_STOPPING",
        )
    if as_json:
        print_json({**answer, "type": "stopped"})
    else:
        rest = "its executors were ended, too" if executors else "executors that run go on"
        click.echo(f"The daemon has stopped; {rest}.\n  next: {start_command()}")


def _wait(daemon: int, client: Client, limit_s: float, *, tell: bool) -> bool:
    """Return whether the process ended within the limit, saying now and then what it is busy with."""
    ended = select.poll()
    ended.register(daemon, select.POLLIN)
    give_up_at = time.monotonic() + limit_s
    while time.monotonic() < give_up_at:
        if ended.poll(_TELL_EVERY_S * 1000):
            return True
        if tell:
            click.echo(f"waiting: {_running(client)}", err=True)
    return False


def _running(client: Client) -> str:
    with suppress(HandoffdError):
        projects = client.get("/v1/status")["projects"]
        count = sum(track["pid"] is not None for project in projects for track in project["tracks"])
        return (
            counted(count, "executor still runs", "executors still run") if count else "the daemon winds down"
        )
    return "the daemon winds down"
