"""`handoffd mcp`: the MCP server, for the client that starts it."""

from __future__ import annotations

import sys
from shlex import quote
from typing import Final

import click

from handoffd.entrance.place import Place
from handoffd.errors import HandoffdError
from handoffd.protocol.rules import Language

REQUIREMENT: Final = "mcp>=2,<3"
"""What the extra of the same name installs."""


@click.command()
@click.option(
    "--allow-approvals",
    is_flag=True,
    help="Also offer what is for people: approve, retry, trust and the like.",
)
@click.option(
    "--language", type=click.Choice(["en", "zh-TW"]), help="Of reports (default: that of the settings)."
)
@click.pass_obj
def mcp(place: Place, allow_approvals: bool, language: Language | None) -> None:
    """Be an MCP server on standard input and output, for a chat agent.

    Tools are the reads and verbs of this command line. Without --allow-approvals none of them opens a
    gate, lifts a limit or trusts anything. docs/mcp.md tells how clients are configured.
    """
    try:
        from handoffd.mcp.server import serve
    except ImportError as error:
        hint = f"{quote(sys.executable)} -m pip install {quote(REQUIREMENT)}"
        message = f"the MCP server needs the package mcp, version 2 ({error})"
        raise HandoffdError(message, code="MCP_MISSING", hint=hint) from error
    if sys.stdin.isatty():
        click.echo("Waiting for an MCP client on standard input; Ctrl-C ends it.", err=True)
        click.echo("  next: claude mcp add handoffd -- handoffd mcp", err=True)
    from handoffd.cli.log import last_lines

    serve(place, last_lines, language or _language(place), approvals=allow_approvals)


def _language(place: Place) -> Language:
    """Return the language of the settings; settings that are wrong are no reason not to answer."""
    try:
        return place.settings().language
    except HandoffdError:
        return "en"
