"""The daemon itself: `handoffd run`, `stop`, `reload`, `trust --daemon`, `token` of its port, `metrics`."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import json
import os
import select
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import click

from handoffd.api.client import Client
from handoffd.cli.asking import json_option, print_json
from handoffd.cli.wording import plain, start_command
from handoffd.engine.wording import counted
from handoffd.entrance.place import Place
from handoffd.entrance.requests import either
from handoffd.errors import ConfigurationError, HandoffdError, InvalidFile, Json, Refused, with_remedy


# --- run ---------------------------------------------------------------------------------------
@click.command()
@click.option("--config", metavar="FILE", help="The settings file to read.")
@click.option("--state-dir", metavar="FOLDER", help="Folder of the journal and the runs.")
@click.option("--runtime-dir", metavar="FOLDER", help="Folder of the sockets.")
@click.option("--log-format", type=click.Choice(["auto", "text", "json"]), help="Format of log lines.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Lowest level that is logged.",
)
@click.pass_obj
def run(place: Place, /, config: str | None, **flags: str | None) -> None:
    """Run the daemon in the foreground until a signal or `handoffd stop` ends it.

    Executors are not its children: they keep running when it ends, and the next daemon adopts them.
    Exit code 78: the settings are invalid.
    """
    faulthandler.enable()  # systemd's watchdog sends SIGABRT to a hung daemon: this logs where it hung
    gc.disable()  # objects made at startup live on; `Daemon` enables the collector later
    try:
        code = _serve(Place(config=config or place.config, environ=place.environ), flags)
    finally:
        gc.enable()
    sys.exit(code)


def _serve(place: Place, flags: dict[str, str | None]) -> int:
    given, loaded = _loaded(place, flags)
    import anyio

    from handoffd.app.daemon import serve
    from handoffd.app.logs import configure_logging

    configure_logging(loaded.settings.log, stream=sys.stderr, environment=place.environ)
    _reap_without_threads()
    try:
        return anyio.run(partial(serve, loaded, given))
    except BaseExceptionGroup as group:
        raise cause_of(group) from group


def _loaded(place: Place, flags: dict[str, str | None]) -> tuple[Any, Any]:
    """Return the settings loader and the settings that it loaded. Raises ConfigurationError."""
    from handoffd.fleet.name_checks import misfits
    from handoffd.settings.loading import Given

    dotted = {name.replace("log_", "log."): value for name, value in flags.items()}
    given = Given(flags={"config": place.config, **dotted}, environ=place.environ, base=os.getcwd())
    os.chdir("/")  # someone may delete or unmount the folder that the daemon was started in
    try:
        loaded = given.load(misfits)
    except InvalidFile as invalid:
        hint = with_remedy(invalid).hint
        raise ConfigurationError(invalid.message, hint=hint, code=invalid.code) from invalid
    return given, loaded


def cause_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that ended the daemon: the first one that a user can act on, not its group."""
    matching = group.subgroup(HandoffdError)
    found: BaseException = matching if matching is not None else group
    while isinstance(found, BaseExceptionGroup) and len(found.exceptions) == 1:
        found = found.exceptions[0]
    return found


def _reap_without_threads() -> None:
    """Wait for children by pidfd: before Python 3.12, asyncio would start a thread per child."""
    if sys.version_info < (3, 12) and hasattr(os, "pidfd_open"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            asyncio.get_event_loop_policy().set_child_watcher(asyncio.PidfdChildWatcher())


# --- stop --------------------------------------------------------------------------------------
STOP_S = 20.0
EXECUTORS_LIMIT_S = 90.0
"""`stop --executors` ends them with TERM, then KILL, with some seconds between."""
_TELL_EVERY_S = 2.0


@click.command()
@click.option(
    "--executors", is_flag=True, help="Also end the executors; the next daemon repeats their attempts."
)
@json_option
@click.pass_obj
def stop(place: Place, executors: bool, as_json: bool) -> None:
    """Stop the daemon. Executors keep running, and the next daemon adopts them."""
    client = place.client()
    # Before asking: later another process may have this pid.
    daemon = os.pidfd_open(client.daemon_pid())
    try:
        answer = client.post("/v1/stop", {"executors": executors})
        limit_s = EXECUTORS_LIMIT_S if executors else STOP_S
        gone = _wait(daemon, client, limit_s, tell=not as_json)
    finally:
        os.close(daemon)
    if not gone:
        raise HandoffdError(
            f"the daemon is still shutting down after {limit_s:.0f} s",
            hint="handoffd status",
            code="STILL_STOPPING",
        )
    if as_json:
        print_json({**answer, "type": "stopped"})
    else:
        rest = "its executors have ended, too" if executors else "running executors go on"
        click.echo(f"The daemon has stopped; {rest}.\n  next: {start_command()}")


def _wait(daemon: int, client: Client, limit_s: float, *, tell: bool) -> bool:
    """Return whether the process ended within the limit; print now and then what it is busy with."""
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
            counted(count, "executor still runs", "executors still run")
            if count
            else "the daemon is shutting down"
        )
    return "the daemon is shutting down"


# --- reload ------------------------------------------------------------------------------------
RELOAD_S = 120.0
"""Longer than the longest scan: the configured folders and every project."""


@click.command()
@json_option
@click.pass_obj
def reload(place: Place, as_json: bool) -> None:
    """Make the daemon reread its settings, look for projects and reread their files now.

    The daemon also does this by itself when files change; this command reports the result. Exit code 1:
    the new settings are invalid, and the daemon keeps the last valid ones.
    """
    answer = place.client(RELOAD_S).post("/v1/reload", {})
    taken = answer["settings"]["taken"]
    if as_json:
        print_json(answer)
    else:
        click.echo("\n".join(report(answer)), err=not taken)
    if not taken:
        click.get_current_context().exit(1)


def report(answer: dict[str, Any]) -> Iterator[str]:
    """Yield the lines for an answer of `POST /v1/reload`."""
    settings = answer["settings"]
    if settings["taken"]:
        yield _taken(settings)
    elif settings["held"]:
        yield "The settings wait for your trust; the daemon keeps the last trusted ones:"
        yield from _differences(settings["held"])
    else:
        yield "The settings are invalid; the daemon keeps the last valid ones:"
    yield from (f"  {plain(problem, lines=True)}" for problem in answer["problems"])
    if settings["restart"]:
        yield f"Needs a restart of the daemon: {plain(', '.join(settings['restart']))}"
    for count, what in ((answer["brought"], "found"), (answer["let_go"], "let go")):
        if count:
            yield f"{count} project{'s' * (count > 1)} {what}"
    listed = {*answer["problems"]}
    others = [one for one in answer["warnings"] if not any(problem in one for problem in listed)]
    said = ("after a restart", "wait for your trust")
    yield from (f"warning: {plain(one)}" for one in others if not any(word in one for word in said))
    if not settings["taken"]:
        yield f"  next: handoffd {'trust --daemon' if settings['held'] else 'config check'}"


def _taken(settings: dict[str, Any]) -> str:
    if not settings["changed"]:
        return "The file says what is already in effect."
    return f"Now in effect: {plain(', '.join(settings['changed']))}"


# --- trust ---------------------------------------------------------------------------------------------
def trust_settings(place: Place, *, yes: bool, may_ask: bool, as_json: bool) -> None:
    """Show an edit of the settings that waits for a person, and trust it if the person agrees."""
    seen = asked_to_trust(place, None)
    if seen["held"] and not as_json:
        click.echo(f"This edit of {plain(seen['file'] or 'the settings')} waits for you (* for these):")
        click.echo("\n".join(_differences(seen["held"])))
    agreed = yes or (may_ask and not as_json and bool(seen["held"]) and click.confirm("Trust it?"))
    answer = asked_to_trust(place, seen["sign"]) if seen["held"] and agreed else seen
    if as_json:
        print_json(answer)
    elif not seen["held"]:
        click.echo("No edit of the daemon's settings waits for you.")
    else:
        click.echo(_trusted(seen["held"]) if agreed else "  next: handoffd trust --daemon --yes")
    if seen["held"] and not agreed:
        click.get_current_context().exit(1)


def _trusted(held: Sequence[Json]) -> str:
    later = any(one["key"].startswith("control.") for one in held)
    return f"Trusted: it applies to a running daemon now{', `control` after its restart' if later else ''}."


def asked_to_trust(place: Place, sign: str | None) -> Json:
    """Return which edit of the settings waits; with its sign, trust it."""

    def without() -> Json:
        from handoffd.entrance import offline
        from handoffd.settings.loading import Given

        given = Given(flags={"config": place.config}, environ=place.environ, base=os.getcwd(), daemon=False)
        return offline.trust_settings(place.settings(), given, sign)

    body = {} if sign is None else {"sign": sign}
    return either(place, lambda client: client.post("/v1/settings/trust", body), without).json


def _differences(held: Sequence[Json]) -> Iterator[str]:
    """Yield a line for each setting of the edit: the value that a person has trusted, and the new one."""
    for one in held:
        before, now = (json.dumps(one[when], ensure_ascii=False) for when in ("before", "now"))
        yield f"{'*' if one['guarded'] else ' '} {plain(one['key'])}: {plain(before)} -> {plain(now)}"


# --- token -------------------------------------------------------------------------------------
@click.command()
@click.option("--rotate", is_flag=True, help="Make a new token; the old one stops working now.")
@json_option
@click.pass_obj
def token(place: Place, rotate: bool, as_json: bool) -> None:
    """Print the token of the loopback port; the first call creates it.

    It lets a client do over TCP all that you can, except verbs reserved for people (control.tcp.gates).
    """
    from handoffd.api.http.auth import ensured, rotated
    from handoffd.execute.witness import inside_executor, kept_out

    if inside_executor(os.getpid()):
        raise kept_out("the token is for people", "handoffd token  # in a terminal of your own")
    settings = place.settings()
    if settings.control.tcp is not None and settings.control.tcp.token is not None:
        raise Refused("the token comes from the settings (control.tcp.token)", hint="handoffd config show")
    path = settings.control_token
    text = rotated(path) if rotate else ensured(path)
    if as_json:
        print_json({"token": text, "file": str(path)})
    else:
        click.echo(text)


# --- metrics -----------------------------------------------------------------------------------
@click.command()
@click.option("--dashboard", is_flag=True, help="Print a dashboard to import into Grafana instead.")
@click.option("--alerts", is_flag=True, help="Print alert rules for Prometheus instead.")
@click.pass_obj
def metrics(place: Place, dashboard: bool, alerts: bool) -> None:
    """Print the daemon's metrics in the text format of Prometheus.

    Prometheus can scrape the loopback port (`control.tcp`), or a timer can write a file for node_exporter.
    """
    if dashboard or alerts:
        from handoffd.settings.paths import shared

        name = "dashboard.json" if dashboard else "alerts.yaml"
        click.echo(shared("config", "prometheus", name).read_text(encoding="utf-8"), nl=False)
        return
    with place.client().stream("/metrics") as stream:
        for piece in stream.pieces():
            click.echo(piece, nl=False)
