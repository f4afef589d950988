"""Interfaces for agents: `hooks` in Claude Code's settings, `hook` that they call, and `mcp`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Any, Final

import click

from handoffd.cli.asking import json_option, print_json
from handoffd.cli.wording import plain
from handoffd.entrance.hook import answer_hook
from handoffd.entrance.place import Place
from handoffd.errors import HandoffdError, NotFound
from handoffd.hooks.event import EVENTS
from handoffd.hooks.project import find_root
from handoffd.protocol.rules import Language
from handoffd.settings.paths import folders, home

if TYPE_CHECKING:
    from handoffd.hooks.claude_settings import SettingsFile


# --- hooks ---------------------------------------------------------------------------------------------
_WHERE: Final = (
    click.option("--user", is_flag=True, help="In ~/.claude/settings.json, for every project."),
    click.option(
        "--project",
        metavar="PATH",
        help="In .claude/settings.json of this project; default: the current folder's project.",
    ),
    click.option("--local", is_flag=True, help="In settings.local.json, which is not committed."),
)


def _where(command: Any) -> Any:
    for option in reversed(_WHERE):
        command = option(command)
    return command


@click.group()
def hooks() -> None:
    """Install, remove or show the hooks that apply hand-offs while you work with Claude Code yourself.

    The Stop hook applies the hand-off, runs the checks, and sends the agent back to work if they fail.
    """


@hooks.command()
@_where
@click.option(
    "--event", "events", multiple=True, type=click.Choice(EVENTS), help="Only at this event. Can be repeated."
)
@json_option
@click.pass_obj
def install(
    place: Place, user: bool, project: str | None, local: bool, events: tuple[str, ...], as_json: bool
) -> None:
    """Add handoffd's hooks to Claude Code's settings; the rest of the file stays unchanged."""
    file = _file(place, user, project, local)
    command = own_command(place.config)
    changed = file.install(command, events or EVENTS)
    lines = [
        f"hooks are {'installed' if changed else 'already installed'}: {file.path}",
        f"  command: {command}",
    ]
    lines.append("  next: start a new Claude Code session; a running one does not reload hooks")
    _say(file, lines, as_json, changed=changed)


@hooks.command()
@_where
@json_option
@click.pass_obj
def uninstall(place: Place, user: bool, project: str | None, local: bool, as_json: bool) -> None:
    """Remove handoffd's hooks; if no other program edited the file since, it is then as before `install`."""
    file = _file(place, user, project, local)
    changed = file.uninstall()
    _say(
        file,
        [f"{'hooks are removed' if changed else 'handoffd has no hooks there'}: {file.path}"],
        as_json,
        changed,
    )


@hooks.command()
@_where
@json_option
@click.pass_obj
def status(place: Place, user: bool, project: str | None, local: bool, as_json: bool) -> None:
    """Show which of handoffd's hooks are installed in which file."""
    if user or local or project is not None:
        files = [_file(place, user, project, local)]
    else:
        root = find_root(os.getcwd(), home(place.environ))
        both = [] if root is None else [_file(place, False, root, local) for local in (False, True)]
        files = [*both, _file(place, True, None, False), _file(place, True, None, True)]
    if as_json:
        print_json({"type": "hooks", "files": [_told(file) for file in files]})
        return
    for file in files:
        found = _told(file)["events"]
        click.echo(f"{plain(str(file.path))}: {', '.join(found) if found else 'none'}")


def own_command(config: str | None) -> str:
    """Return the command that Claude Code calls: absolute, so that it works with any folder and PATH."""
    program = Path(sys.executable).with_name("handoffd")
    # -I: a folder of the project must not shadow one of our modules.
    words = [str(program)] if os.access(program, os.X_OK) else [sys.executable, "-I", "-m", "handoffd"]
    return join([*words, *(() if config is None else ("--config", os.path.abspath(config))), "hook"])


def _file(place: Place, user: bool, project: str | None, local: bool) -> SettingsFile:
    from handoffd.hooks.claude_settings import LOCAL, SHARED, SettingsFile

    if user and project is not None:
        raise click.UsageError("--user and --project exclude each other")
    if user:
        root = home(place.environ)
    elif project is not None:
        root = os.path.abspath(os.path.expanduser(project))
    else:
        root = find_root(os.getcwd(), home(place.environ)) or ""
    if not os.path.isdir(root):
        raise NotFound(
            f"{project or 'the current folder'} is not a project",
            hint="handoffd hooks install --project PATH",
        )
    found = folders(place.config, place.environ)
    state_dir = found[0] if found is not None else str(place.settings().state_dir)
    return SettingsFile(Path(root), LOCAL if local else SHARED, Path(state_dir, "hooks"))


def _told(file: SettingsFile) -> dict[str, Any]:
    from handoffd.hooks.claude_settings import is_ours

    ours = [one for one in file.hooks() if is_ours(one.command)]
    return {
        "file": str(file.path),
        "events": [event for event in EVENTS if any(one.event == event for one in ours)],
        "commands": sorted({one.command for one in ours}),
    }


def _say(file: SettingsFile, lines: list[str], as_json: bool, changed: bool) -> None:
    if as_json:
        print_json({"type": "hooks", "changed": changed, **_told(file)})
    else:
        click.echo("\n".join(map(plain, lines)))


# --- hook ----------------------------------------------------------------------------------------------
@click.command()
@click.pass_obj
def hook(place: Place) -> None:
    """Answer a hook of Claude Code: apply the agent's hand-off. Reads the event from standard input.

    Exit codes: 0 the agent may stop, 2 it must go on and stderr says why, 1 an error that stops nothing.
    """
    click.get_current_context().exit(answer_hook(place.config, place.environ))


# --- mcp -----------------------------------------------------------------------------------------------
REQUIREMENT: Final = "mcp>=2,<3"
"""What handoffd's extra `mcp` installs."""


@click.command()
@click.option(
    "--allow-approvals",
    is_flag=True,
    help="Also offer verbs reserved for people: approve, retry, trust and others.",
)
@click.option(
    "--language",
    type=click.Choice(["en", "zh-TW"]),
    help="Language of reports; default: that of the settings.",
)
@click.pass_obj
def mcp(place: Place, allow_approvals: bool, language: Language | None) -> None:
    """Run an MCP server on standard input and output, for a chat agent.

    Its tools are the queries and verbs of this command line. Without --allow-approvals no tool opens a
    gate, lifts a limit or trusts a file. docs/reference/mcp.md shows how to configure clients.
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
    """Return the language of the settings, or the default if they are invalid."""
    try:
        return place.settings().language
    except HandoffdError:
        return "en"
