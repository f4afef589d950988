"""`handoffd run`: the daemon in the foreground. The one command that imports all of it."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import sys
import warnings
from functools import partial
from typing import Any

import click

from handoffd.entrance.place import Place
from handoffd.errors import ConfigurationError, HandoffdError, InvalidFile, with_remedy


@click.command()
@click.option("--config", metavar="FILE", help="The settings file to read.")
@click.option("--state-dir", metavar="FOLDER", help="Where the journal and the runs are kept.")
@click.option("--runtime-dir", metavar="FOLDER", help="Where the sockets are.")
@click.option("--log-format", type=click.Choice(["auto", "text", "json"]), help="How log lines look.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="What is logged at all."
)
@click.pass_obj
def run(place: Place, /, config: str | None, **flags: str | None) -> None:
    """Be the daemon until a signal or `handoffd stop` ends it.

    Executors are no children of it: they go on when it ends, and are adopted by the next one. Exit
    code 78 means that the settings cannot be used.
    """
    faulthandler.enable()  # a service manager whose watchdog is not fed sends SIGABRT: then the log says why
    gc.disable()  # all that is made at first stays; `Daemon` turns it on once it is there
    try:
        code = _serve(Place(config=config or place.config, environ=place.environ), flags)
    finally:
        gc.enable()
    sys.exit(code)


def _serve(place: Place, flags: dict[str, str | None]) -> int:
    given, loaded = _loaded(place, flags)
    settings = loaded.settings
    import anyio

    from handoffd.app.daemon import serve
    from handoffd.app.logs import configure_logging

    configure_logging(settings.log, stream=sys.stderr, environment=place.environ)
    _reap_without_threads()
    try:
        return anyio.run(partial(serve, settings, given, loaded.file))
    except BaseExceptionGroup as group:
        raise told(group) from group


def _loaded(place: Place, flags: dict[str, str | None]) -> tuple[Any, Any]:
    """Return what the settings are read by, and what was read. Raises ConfigurationError."""
    from handoffd.settings.loading import Given
    from handoffd.supervise.mentioned import misfits

    dotted = {name.replace("log_", "log."): value for name, value in flags.items()}
    given = Given(flags={"config": place.config, **dotted}, environ=place.environ)
    try:
        loaded = given.load(misfits)
    except InvalidFile as invalid:
        hint = with_remedy(invalid).hint
        raise ConfigurationError(invalid.message, hint=hint, code=invalid.code) from invalid
    return given, loaded


def told(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return what ended the daemon: what a person can act on rather than the group it came in."""
    matching = group.subgroup(HandoffdError)
    found: BaseException = matching if matching is not None else group
    while isinstance(found, BaseExceptionGroup) and len(found.exceptions) == 1:
        found = found.exceptions[0]
    return found


def _reap_without_threads() -> None:
    """Wait for children by pidfd: before 3.12, asyncio would start a thread for each."""
    if sys.version_info < (3, 12) and hasattr(os, "pidfd_open"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            asyncio.get_event_loop_policy().set_child_watcher(asyncio.PidfdChildWatcher())
