"""`handoffd rules`: a project's step table as its files say, without a daemon."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from typing import Any

import click

from handoffd.cli.asking import json_option, print_json, project_argument
from handoffd.cli.wording import plain, table
from handoffd.entrance.place import Place
from handoffd.errors import NotFound, remedies


@click.group()
def rules() -> None:
    """Check or show a project's step table: the shipped one, a preset, and .ai/step-rules.yaml over it.

    It is what the files say. An edit that needs trust is in force only after `handoffd trust`.
    """


@rules.command()
@project_argument
@json_option
@click.pass_obj
def check(place: Place, project: str | None, as_json: bool) -> None:
    """Say whether the table can be used; every problem with file, line and key, if not."""
    from handoffd.inspection.own_files import table_of

    root = _root(place, project)
    with remedies(root):
        book = table_of(root)
    paths = {name: book.path(name) for name in book.pipelines}
    if as_json:
        print_json(
            {
                "type": "valid",
                "project": root,
                "pipelines": {name: list(path) for name, path in paths.items()},
            }
        )
        return
    click.echo(
        "\n".join(["The step table can be used.", *(_path(name, path) for name, path in paths.items())])
    )


@rules.command()
@project_argument
@json_option
@click.pass_obj
def show(place: Place, project: str | None, as_json: bool) -> None:
    """Show every value of the table with the file and line that set it."""
    from handoffd.inspection.own_files import layers_of
    from handoffd.protocol.rulebook import explain

    root = _root(place, project)
    with remedies(root):
        settings = explain(layers_of(root))
    if as_json:
        listed = [
            {"key": one.dotted, "value": one.value, "file": one.file, "line": one.line} for one in settings
        ]
        print_json({"project": root, "rules": listed})
        return
    rows = [[plain(one.dotted), _text(one.value), _source(one)] for one in settings]
    click.echo("\n".join(table(("RULE", "VALUE", "FROM"), rows)))


def _root(place: Place, project: str | None) -> str:
    """Return the folder; a name is looked up among the supervised projects."""
    named = place.project(project)
    if named.startswith("/"):
        if not Path(named).is_dir():
            raise NotFound(f"{named} is no folder", hint=f"ls {quote(os.path.dirname(named))}")
        return named
    from handoffd.cli.status import ask_status

    root: str = ask_status(place, named).json["projects"][0]["project"]
    return root


def _path(name: str, path: tuple[str, ...]) -> str:
    return f"  {plain(name)}: {' → '.join(map(plain, path))}"


def _source(setting: Any) -> str:
    if setting.file is None:
        return "default"
    return plain(setting.file if setting.line is None else f"{setting.file}:{setting.line}")


def _text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return plain(text if len(text) <= 80 else text[:79] + "…")
