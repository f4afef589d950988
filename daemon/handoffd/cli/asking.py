"""What all commands that ask the daemon share: options, printing the answer, shell completion.

The shell starts this program on every Tab, so completing a name imports nothing heavy.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import click

from handoffd.api.client import Client
from handoffd.cli.wording import folded, screen_width
from handoffd.entrance.place import Place, called
from handoffd.errors import HandoffdError, Json, StoreError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_Found = TypeVar("_Found")

_CROWDED: Final = frozenset({"TOO_MANY_CONNECTIONS", "TOO_MANY_STREAMS"})
_LONGEST_PAUSE_S: Final = 30.0


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def narrowing(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose a part of the history."""
    options = (
        click.option("--story", metavar="ID", help="Only of this story."),
        click.option("--step", metavar="STEP", help="Only of this step."),
        click.option("--flow", metavar="FLOW", help="Only of this flow, and of what works for it."),
        click.option("--since", metavar="WHEN", help=f"Only since then: {WHEN}."),
        click.option("--until", metavar="WHEN", help="Only before then."),
    )
    for option in reversed(options):
        command = option(command)
    return command


WHEN: Final = "12h, 7d, yesterday, 2026-01-31, or 2026-01-31T07:00 by the local clock"


def print_json(answer: Json) -> None:
    """Print an answer for programs: indented, one object."""
    click.echo(json.dumps(answer, indent=2, ensure_ascii=False))


def print_lines(lines: Sequence[str], *, err: bool = False) -> None:
    """Print lines for people, folded to the width of a terminal; with `err` as errors."""
    click.echo("\n".join(folded(lines, screen_width(err=err))), err=err)


def insisted(ask: Callable[[], _Found], sleep: Callable[[float], None] = time.sleep) -> _Found:
    """Return what `ask` returns, retrying after growing pauses while the daemon has no free connection."""
    pause_s = 1.0
    while True:
        try:
            return ask()
        except StoreError as full:
            if full.code not in _CROWDED:
                raise
            shown = f"; see: {full.hint}" if full.hint else ""
            click.echo(f"handoffd: {full.message}{shown}; trying again in {pause_s:g} s", err=True)
        sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


# --- completion -----------------------------------------------------------------------------------
SHELLS: Final = ("bash", "zsh", "fish")
INSTALL: Final = {
    "bash": 'eval "$(handoffd completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(handoffd completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "handoffd completion fish > ~/.config/fish/completions/handoffd.fish",
}
ANSWER_S: Final = 1.0
"""A user waits for Tab: names are left out when the daemon needs longer than this."""


def project_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the projects whose names begin with `incomplete`; none when no daemon answers."""
    place = context.find_object(Place)
    if place is None:  # completion creates contexts without calling a command
        place = Place(config=context.find_root().params.get("config"), environ=os.environ)
    try:
        answer = Client(place.socket(), ANSWER_S).get("/v1/projects")
    except HandoffdError:
        return []
    from click.shell_completion import CompletionItem

    names = [str(one["name"]) for one in answer["projects"]]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def flow_ids(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the open flows whose ids begin with `incomplete`; none when no daemon answers."""
    place = context.find_object(Place)
    if place is None:
        place = Place(config=context.find_root().params.get("config"), environ=os.environ)
    try:
        answer = Client(place.socket(), ANSWER_S).get("/v1/flows")
    except HandoffdError:
        return []
    from click.shell_completion import CompletionItem

    found = [(str(one["flow"]), one["label"] or one["waits_for"]) for one in answer["flows"]]
    return [CompletionItem(name, help=about) for name, about in found if name.startswith(incomplete)]


def words_of_verb(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return candidates for the next word of a verb: a project first, then the reason of a rejection."""
    from click.shell_completion import CompletionItem

    from handoffd.api.verbs import VERBS
    from handoffd.protocol.state import Reason

    given = context.params.get(parameter.name or "") or ()
    if not given:
        return project_names(context, parameter, incomplete)
    spec = next((spec for spec in VERBS.values() if spec.typed.split()[-1] == context.info_name), None)
    if spec is None or not any(one.type == "reason" for one in spec.parameters):
        return []
    return [CompletionItem(reason) for reason in Reason if reason.startswith(incomplete)]


_NUMBERED: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*[-_][0-9]+")


def is_numbered(word: str) -> bool:
    """Return whether a word that could name a project looks like the id of a story, and not a folder."""
    return _NUMBERED.fullmatch(word) is not None and called(word) == word


project_argument = click.argument("project", required=False, shell_complete=project_names)


@click.command(epilog="\n\n".join(["Examples:", *(f"\b\n  {line}" for line in INSTALL.values())]))
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes verbs, options and project names in a shell."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, "click has completion for each of SHELLS"
    program = "handoffd"
    click.echo(found(context.find_root().command, {}, program, f"_{program.upper()}_COMPLETE").source())
