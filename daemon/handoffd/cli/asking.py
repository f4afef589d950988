"""What commands that ask something share: their options, and how they print an answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from handoffd.control.client import Json

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def _projects(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from handoffd.cli.completion import project_names

    return project_names(context, parameter, incomplete)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
project_argument = click.argument("project", required=False, shell_complete=_projects)


def print_json(answer: Json) -> None:
    """Print an answer for programs: indented, one object."""
    click.echo(json.dumps(answer, indent=2, ensure_ascii=False))
