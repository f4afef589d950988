"""`handoffd config`: the settings and where each comes from; `handoffd rules`: a project's step table."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from handoffd.cli.asking import json_option, print_json, project_argument
from handoffd.cli.wording import plain, shorten, table
from handoffd.entrance.place import Place
from handoffd.errors import HandoffdError, NotFound, remedies

if TYPE_CHECKING:
    from handoffd.protocol.rules import Gate, Gates


# --- config --------------------------------------------------------------------------------------------
@click.group()
def config() -> None:
    """Check the settings, or show them with the source of each."""


@config.command()
@click.argument("given", metavar="[FILE]", required=False)
@json_option
@click.pass_obj
def check(place: Place, given: str | None, as_json: bool) -> None:
    """Check the settings, or FILE, and print every problem with its file, line and key.

    Settings that are valid but have no effect, or a surprising one, are warnings.
    """
    from handoffd.engine.wording import command_for
    from handoffd.errors import Refused
    from handoffd.fleet.name_checks import misfits
    from handoffd.inspection.own_files import SETTINGS

    if given is not None and os.path.abspath(given).endswith(f"/{SETTINGS}"):
        root = os.path.abspath(given).removesuffix(f"/{SETTINGS}")
        message = f"{given} has the settings of a project, not of the daemon"
        raise Refused(message, hint=command_for(root, "rules check"))
    loaded = _load(place if given is None else Place(config=given, environ=place.environ), misfits)
    file = str(loaded.file) if loaded.file is not None else None
    warnings = (*loaded.settings.notify.warnings, *(_waiting(place) if given is None else ()))
    if as_json:
        print_json({"type": "valid", "file": file, "warnings": list(warnings)})
        return
    click.echo(f"{plain(file)} is valid." if file else "There is no settings file; the defaults apply.")
    for warning in warnings:
        click.echo(f"warning: {plain(warning)}")


@config.command()
@json_option
@click.pass_obj
def show(place: Place, as_json: bool) -> None:
    """Show every setting with its value and its source: a file, a variable, a flag or the default."""
    from handoffd.settings.paths import default_files

    loaded = _load(place)
    settings = loaded.explain()
    if as_json:
        listed = [{"key": one.key, "value": one.value, "source": str(one.source)} for one in settings]
        print_json({"file": str(loaded.file) if loaded.file else None, "settings": listed})
        return
    file = loaded.file or f"none; it would be {default_files(place.environ)[0]}"
    click.echo(f"Settings file: {plain(str(file))}\n")
    rows = [[plain(one.key), shorten(_text(one.value), 60), plain(str(one.source))] for one in settings]
    click.echo("\n".join(table(("SETTING", "VALUE", "FROM"), rows)))
    for warning in _waiting(place):
        click.echo(f"\nwarning: {plain(warning)}")


def _waiting(place: Place) -> tuple[str, ...]:
    """Return that the running daemon does not obey the file yet; nothing if it does, or none runs."""
    try:
        held = place.client().post("/v1/settings/trust", {})["held"]
    except HandoffdError:
        return ()
    keys = ", ".join(one["key"] for one in held if one["guarded"])
    return (f"the daemon waits for your trust in {keys} (handoffd trust --daemon)",) if held else ()


def _load(place: Place, further: Any = None) -> Any:
    from handoffd.settings.loading import load

    with remedies("/"):  # variables and flags keep their names; files get their whole path
        return load({"config": place.config}, place.environ, further=further)


def _text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_text(one)}" for name, one in value.items()) + "}"
    return ", ".join(map(_text, value)) if isinstance(value, list | tuple) else str(value)


# --- rules ---------------------------------------------------------------------------------------------
@click.group()
def rules() -> None:
    """Check or show a project's step table: the shipped table, the preset, and .ai/step-rules.yaml.

    The table is read from the files. The daemon uses an edit that needs trust only after `handoffd trust`.
    """


@rules.command("check")
@project_argument
@json_option
@click.pass_obj
def check_rules(place: Place, project: str | None, as_json: bool) -> None:
    """Check the step table of PROJECT and print every problem with file, line and key."""
    from handoffd.inspection.own_files import table_of
    from handoffd.protocol.rules import next_gate

    root = _root(place, project)
    with remedies(root):
        book = table_of(root)
    paths = {name: book.path(name) for name in book.pipelines}
    gate = next_gate(book)
    if as_json:
        print_json(
            {
                "type": "valid",
                "project": root,
                "pipelines": {name: list(path) for name, path in paths.items()},
                "gates": book.gates,
                "first_gate": gate and {"step": gate.step, "before_code": gate.before_code},
            }
        )
        return
    lines = [_path(name, path) for name, path in paths.items()]
    click.echo("\n".join(["The step table is valid.", *lines, _stop(gate, book.gates)]))


@rules.command("show")
@project_argument
@json_option
@click.pass_obj
def show_rules(place: Place, project: str | None, as_json: bool) -> None:
    """Show every value of the step table with the file and line that set it."""
    from handoffd.inspection.own_files import layers_of, settings_of
    from handoffd.protocol.rulebook import explain

    root = _root(place, project)
    with remedies(root):
        settings = explain(layers_of(root), gates=settings_of(root).gates)
    if as_json:
        listed = [
            {"key": one.dotted, "value": one.value, "file": one.file, "line": one.line} for one in settings
        ]
        print_json({"project": root, "rules": listed})
        return
    rows = [[plain(one.dotted), _rules_text(one.value), _source(one)] for one in settings]
    click.echo("\n".join(table(("RULE", "VALUE", "FROM"), rows)))


def _root(place: Place, project: str | None) -> str:
    """Return the folder of `named`: a path, or the name of a supervised project."""
    named = place.project(project)
    if named.startswith("/"):
        if not Path(named).is_dir():
            raise NotFound(f"{named} is not a folder", hint=f"ls {quote(os.path.dirname(named))}")
        return named
    from handoffd.cli.status import ask_status

    root: str = ask_status(place, named).json["projects"][0]["project"]
    return root


def _path(name: str, path: tuple[str, ...]) -> str:
    return f"  {plain(name)}: {' → '.join(map(plain, path))}"


def _stop(gate: Gate | None, gates: Gates) -> str:
    if gate is None:
        return f"  a story waits for you at no step (gates: {gates}), so it does not land by itself"
    where = "before" if gate.before_code else "after"
    return f"  a story waits for you first at {plain(gate.step)}, {where} its code (gates: {gates})"


def _source(setting: Any) -> str:
    if setting.file is None:
        return "default"
    return plain(setting.file if setting.line is None else f"{setting.file}:{setting.line}")


def _rules_text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return plain(text if len(text) <= 80 else text[:79] + "…")
