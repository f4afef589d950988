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
    from handoffd.settings import Settings


@click.command()
@json_option
@click.pass_obj
def doctor(place: Place, as_json: bool) -> None:
    """Say what will go wrong on this machine, why, and what to type about it. Changes nothing.

    The daemon may run or not. Exit code 1 when something keeps handoffd from working.
    """
    from handoffd.cli.doctor_report import report
    from handoffd.doctor.examination import examine
    from handoffd.doctor.finding import as_json as told
    from handoffd.doctor.finding import is_sound

    findings = examine(_subject(place))
    if as_json:
        print_json(told(findings))
    else:
        click.echo("\n".join(report(findings)))
    if not is_sound(findings):
        click.get_current_context().exit(1)


def _subject(place: Place) -> Subject:
    from handoffd.configure import Given
    from handoffd.doctor.examination import Subject
    from handoffd.mending import remedies

    loaded, invalid = None, None
    given = Given(flags={"config": place.config}, environ=place.environ)
    try:
        with remedies("/"):  # what is not a variable or a flag is named in full
            loaded = given.load(daemon=False)
    except InvalidFile as error:
        invalid = error
    return Subject(
        settings=None if loaded is None else loaded.settings,
        file=None if loaded is None else loaded.file,
        invalid=invalid,
        socket=_socket(place),
        environ=place.environ,
        look=_look,
        secret_files=given.secret_files(),
    )


def _socket(place: Place) -> Path | None:
    try:
        return place.socket()
    except InvalidFile:
        return None


def _look(settings: Settings, silent: frozenset[str]) -> dict[str, Any]:
    from handoffd.entrance import offline

    return offline.look(settings, lambda service: service.status(), silent)
