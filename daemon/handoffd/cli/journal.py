"""`handoffd journal`: is it what it says, a copy of it, and that copy put back."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from handoffd.cli.asking import json_option, print_json, project_argument
from handoffd.entrance.place import Place
from handoffd.entrance.requests import account
from handoffd.errors import Locked, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handoffd.engine.track import TrackKey


@click.group()
def journal() -> None:
    """Verify, repair, back up or restore the journal: the one file that knows what has happened."""


@journal.command()
@project_argument
@click.option("--project", "-p", "named", metavar="PROJECT", help="The same as PROJECT.")
@json_option
@click.pass_obj
def verify(place: Place, project: str | None, named: str | None, as_json: bool) -> None:
    """Decide everything again that was ever decided, and report what comes out differently.

    Of PROJECT, or of all projects. The daemon may run. Exit code 1 when anything is not as it should be.
    """
    from handoffd.api.verification import Verification
    from handoffd.cli.journal_report import verified
    from handoffd.journal.replay import Recordings

    word = project or named
    with closing(Recordings(place.settings().journal)) as source, _progress("verifying") as tell:
        root = None if word is None else _root(place.project(word), source.roots())
        report = Verification(source, root).run(tell)
    if as_json:
        print_json(report.as_json())
    else:
        click.echo("\n".join(verified(report)))
    if not report.clean:
        click.get_current_context().exit(1)


@journal.command()
@click.argument("project", required=False)
@json_option
@click.pass_obj
def repair(place: Place, project: str | None, as_json: bool) -> None:
    """Make what was changed by hand again from its events, while no daemon runs.

    Of PROJECT, or of all projects. Exit code 1 when something cannot be made again.
    """
    import anyio

    from handoffd.api.verification import Verification
    from handoffd.cli.journal_report import repaired
    from handoffd.clock import SystemClock
    from handoffd.files.locks import acquire, daemon_lock_path
    from handoffd.journal.backup import repair as repair_journal
    from handoffd.journal.replay import Recordings
    from handoffd.supervise import restoring

    settings = place.settings()
    try:
        lock = acquire(daemon_lock_path(settings.state_dir), f"the state directory {settings.state_dir}")
    except Locked as locked:
        raise Locked(locked.message, hint="handoffd stop  # executors go on") from locked
    with lock, closing(Recordings(settings.journal)) as source, _progress("deciding again") as tell:
        root = None if project is None else _root(place.project(project), source.roots())
        verification = Verification(source, root)
        verification.run(tell)
        made = verification.made()
        done = repair_journal(settings.journal, made, root)
        restored = max((int(one["after"]) for one in source.restored()), default=0)
        late = {key for key in done.made if made[key].seq <= restored}
        _quiet()
        paused = anyio.run(restoring.catch_up, settings, late, account(), SystemClock()) if late else ()
    if as_json:
        told = {"made": _by_track(done.made), "left": _by_track(done.left), "paused": paused}
        print_json({"type": "repaired", **told})
    else:
        click.echo("\n".join(repaired(done, paused)))
    if done.left:
        click.get_current_context().exit(1)


def _by_track(tracks: Mapping[TrackKey, str]) -> list[dict[str, str]]:
    return [{"project": key.project, "track": key.track, "why": why} for key, why in tracks.items()]


@journal.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@json_option
@click.pass_obj
def backup(place: Place, file: Path, force: bool, as_json: bool) -> None:
    """Copy the journal to FILE as it is at this instant; the daemon may run.

    FILE is checked before it gets its name, and is there whole or not at all.
    """
    from handoffd.cli.journal_report import backed_up
    from handoffd.journal.backup import back_up

    with _progress("copying") as tell:
        copy = back_up(place.settings().journal, file.absolute(), force=force, progress=tell)
    if as_json:
        print_json({"type": "backed_up", **asdict(copy)})
    else:
        click.echo("\n".join(backed_up(copy)))


@journal.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--end-executors", is_flag=True, help="End executors of which FILE knows nothing.")
@json_option
@click.pass_obj
def restore(place: Place, file: Path, end_executors: bool, as_json: bool) -> None:
    """Put a backup in the journal's place, while no daemon runs; the replaced one is kept.

    Every project then waits for `handoffd resume`: what has happened since the backup, only its
    STATE.json and its files tell. A project whose record in FILE was changed outside handoffd is left out;
    exit code 1 says so.
    """
    import anyio

    from handoffd.cli.journal_report import restored
    from handoffd.clock import SystemClock
    from handoffd.supervise import restoring

    _quiet()
    request = restoring.Request(file=file.absolute(), by=account(), end_executors=end_executors)
    with _progress("copying") as tell:
        done = anyio.run(restoring.restore, place.settings(), request, SystemClock(), tell)
    if as_json:
        print_json({"type": "restored", **asdict(done)})
    else:
        click.echo("\n".join(restored(done)))
    if done.left_out:
        click.get_current_context().exit(1)


def _quiet() -> None:
    """Leave the daemon's own log out: what matters is in the answer."""
    from handoffd.app.logs import configure_logging
    from handoffd.settings.model import LogSettings

    configure_logging(LogSettings(format="text", level="error"), stream=sys.stderr, environment={})


def _root(name: str, known: Mapping[str, str]) -> str:
    """Return the root of the project called, or lying at or above, `name`; of removed ones, too."""
    path = Path(name)
    for folder in (path, *path.parents) if path.is_absolute() else ():
        if str(folder) in known:
            return str(folder)
    called = [root for root, title in known.items() if title == name]
    if len(called) == 1:
        return called[0]
    if called:
        message = f"{name} is the name of several projects; give a path: {', '.join(called)}"
        raise NotFound(message, hint="handoffd projects")
    raise NotFound(f"the journal knows no project {name}", hint="handoffd projects")


class _Bar:
    """One line on the terminal that says how far it is."""

    def __init__(self, what: str, shown: bool) -> None:
        self._what = what
        self._shown = shown
        self._said = ""

    def __call__(self, done: int, of: int) -> None:
        said = f"{self._what}: {100 * done // max(of, 1)} %"
        if self._shown and said != self._said:
            click.echo(f"\r{said}", err=True, nl=False)
            self._said = said

    def clear(self) -> None:
        if self._said:
            click.echo("\r" + " " * len(self._said) + "\r", err=True, nl=False)


@contextmanager
def _progress(what: str) -> Iterator[_Bar]:
    """Lend a progress line, on a terminal only."""
    bar = _Bar(what, sys.stderr.isatty())
    try:
        yield bar
    finally:
        bar.clear()
