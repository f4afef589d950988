"""What commands that ask something share: their options, and how they print an answer."""

from __future__ import annotations

import json

import click

from handoffd.control.client import Json

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
project_argument = click.argument("project", required=False)


def print_json(answer: Json) -> None:
    """Print an answer for programs: indented, one object."""
    click.echo(json.dumps(answer, indent=2, ensure_ascii=False))
