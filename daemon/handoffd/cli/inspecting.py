"""Commands about any folder: `detect`, `query`, `list-projects`, `check-prereqs`, `review`, `triage`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click

from handoffd.api.client import Json
from handoffd.cli import inspection_report as report
from handoffd.cli.asking import json_option, print_json, project_argument
from handoffd.entrance.place import Place
from handoffd.entrance.requests import inspect

_language = click.option(
    "--language", type=click.Choice(("en", "zh-TW")), help="Of the prompt; else as the settings say."
)


@click.command()
@project_argument
@json_option
@click.pass_obj
def detect(place: Place, project: str | None, as_json: bool) -> None:
    """Say which files of the protocol PROJECT has, and the level of adoption: 0 none, 1 some, 2 all."""
    named = place.project(project)
    answer = inspect(place, "/v1/detect", {"project": named}, lambda asked: asked.detect(named))
    _show(answer.json, as_json, report.detected)


@click.command()
@project_argument
@json_option
@click.pass_obj
def query(place: Place, project: str | None, as_json: bool) -> None:
    """Say where PROJECT stands by its files, supervised or not; and what it waits for, if it is."""
    named = place.project(project)
    answer = inspect(place, "/v1/query", {"project": named}, lambda asked: asked.query(named))
    _show(answer.json, as_json, report.queried)


@click.command("list-projects")
@click.argument("folder", required=False)
@json_option
@click.pass_obj
def list_projects(place: Place, folder: str | None, as_json: bool) -> None:
    """List the projects that lie in FOLDER, supervised or not; left out, it is the current folder."""
    named = os.path.abspath(os.path.expanduser(folder or "."))
    answer = inspect(place, "/v1/list-projects", {"folder": named}, lambda asked: asked.list_projects(named))
    _show(answer.json, as_json, report.listed)


@click.command("check-prereqs")
@project_argument
@json_option
@click.pass_obj
def check_prereqs(place: Place, project: str | None, as_json: bool) -> None:
    """Name the files that the step in hand reads and that are missing. Blocks nothing."""
    named = place.project(project)
    answer = inspect(place, "/v1/check-prereqs", {"project": named}, lambda asked: asked.check_prereqs(named))
    _show(answer.json, as_json, report.checked)


@click.command()
@project_argument
@_language
@json_option
@click.pass_obj
def review(place: Place, project: str | None, language: str | None, as_json: bool) -> None:
    """Print the prompt for a session that examines PROJECT and changes nothing; pipe it to an agent."""
    named = place.project(project)
    given = {"project": named, "language": language}
    answer = inspect(place, "/v1/review", given, lambda asked: asked.review(named, language))
    _show(answer.json, as_json, report.prompted)


@click.command()
@project_argument
@_language
@json_option
@click.pass_obj
def triage(place: Place, project: str | None, language: str | None, as_json: bool) -> None:
    """Print the prompt for a session that sorts the open issues in PROJECT's memory; pipe it to an agent."""
    named = place.project(project)
    given = {"project": named, "language": language}
    answer = inspect(place, "/v1/triage", given, lambda asked: asked.triage(named, language))
    _show(answer.json, as_json, report.prompted)


def _show(answer: Json, as_json: bool, lines_of: Callable[[dict[str, Any]], list[str]]) -> None:
    if as_json:
        print_json(answer)
    else:
        click.echo("\n".join(lines_of(answer)))
