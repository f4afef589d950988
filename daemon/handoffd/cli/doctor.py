"""`handoffd doctor`: what will go wrong on this machine, and what to type about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from handoffd.cli.asking import json_option, print_json
from handoffd.entrance.place import Place
from handoffd.errors import InvalidFile

if TYPE_CHECKING:
    from handoffd.doctor.examination import Subject
    from handoffd.settings.loading import Given
    from handoffd.settings.model import Settings


@click.command()
@click.argument("projects", nargs=-1, metavar="[PROJECT]...")
@json_option
@click.pass_obj
def doctor(place: Place, projects: tuple[str, ...], as_json: bool) -> None:
    """Say what will go wrong on this machine, why, and what to type about it. Changes nothing.

    The daemon may run or not. Exit code 1 when something keeps handoffd from working. The tests of
    each PROJECT are run once as the daemon would run them, for at most 40 seconds.
    """
    from handoffd.cli.doctor_report import report
    from handoffd.cli.trial import try_tests
    from handoffd.doctor.examination import examine
    from handoffd.doctor.finding import as_json as told
    from handoffd.doctor.finding import is_sound

    findings = (*examine(_subject(place)), *(try_tests(place, place.project(one)) for one in projects))
    if as_json:
        print_json(told(findings))
    else:
        click.echo("\n".join(report(findings)))
    if not is_sound(findings):
        click.get_current_context().exit(1)


def _subject(place: Place) -> Subject:
    from handoffd.doctor.examination import Subject
    from handoffd.settings.loading import Given
    from handoffd.supervise.mentioned import misfits

    given = Given(flags={"config": place.config}, environ=place.environ)
    # With one that names nobody, much can be looked at.
    loaded, judged = _loaded(given), _loaded(given, misfits)
    usable = not isinstance(loaded, InvalidFile)
    return Subject(
        settings=loaded.settings if usable else None,
        file=loaded.file if usable else None,
        invalid=judged if isinstance(judged, InvalidFile) else None,
        socket=_socket(place),
        environ=place.environ,
        look=_look,
        config=place.config,
        secret_files=given.secret_files(),
    )


def _loaded(given: Given, further: Any = None) -> Any:
    """Return the settings, or what is wrong with them."""
    from handoffd.errors import remedies

    try:
        with remedies("/"):  # what is not a variable or a flag is named in full
            return given.load(further, daemon=False)
    except InvalidFile as invalid:
        return invalid


def _socket(place: Place) -> Path | None:
    try:
        return place.socket()
    except InvalidFile:
        return None


def _look(settings: Settings, silent: frozenset[str]) -> dict[str, Any]:
    from handoffd.entrance import offline

    return offline.look(settings, lambda service: service.status(), silent)
