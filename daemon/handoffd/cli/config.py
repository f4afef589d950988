"""`handoffd config`: what the settings are, and who said so."""

from __future__ import annotations

from typing import Any

import click

from handoffd.cli.asking import json_option, print_json
from handoffd.cli.wording import plain, shorten, table
from handoffd.entrance.place import Place
from handoffd.errors import remedies


@click.group()
def config() -> None:
    """Check or show the settings, and where each comes from."""


@config.command()
@click.argument("given", metavar="[FILE]", required=False)
@json_option
@click.pass_obj
def check(place: Place, given: str | None, as_json: bool) -> None:
    """Say whether the settings, or those in FILE, can be used; every problem with its place, if not.

    What can be used and does not do what it seems to is a warning.
    """
    from handoffd.supervise.mentioned import misfits

    loaded = _load(place if given is None else Place(config=given, environ=place.environ), misfits)
    file = str(loaded.file) if loaded.file is not None else None
    warnings = loaded.settings.notify.warnings
    if as_json:
        print_json({"type": "valid", "file": file, "warnings": list(warnings)})
        return
    click.echo(f"{plain(file)} can be used." if file else "There is no settings file; the defaults hold.")
    for warning in warnings:
        click.echo(f"warning: {plain(warning)}")


@config.command()
@json_option
@click.pass_obj
def show(place: Place, as_json: bool) -> None:
    """Show every setting with its value and the file, variable or default it comes from."""
    loaded = _load(place)
    settings = loaded.explain()
    if as_json:
        listed = [{"key": one.key, "value": one.value, "source": str(one.source)} for one in settings]
        print_json({"file": str(loaded.file) if loaded.file else None, "settings": listed})
        return
    rows = [[plain(one.key), shorten(_text(one.value), 60), plain(str(one.source))] for one in settings]
    click.echo("\n".join(table(("SETTING", "VALUE", "FROM"), rows)))


def _load(place: Place, further: Any = None) -> Any:
    from handoffd.settings.loading import load

    with remedies("/"):  # what is not a variable or a flag is named in full
        return load({"config": place.config}, place.environ, further=further)


def _text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_text(one)}" for name, one in value.items()) + "}"
    return ", ".join(map(_text, value)) if isinstance(value, list | tuple) else str(value)
