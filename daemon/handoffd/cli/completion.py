"""`handoffd completion SHELL`: the shell completes verbs, options, values and the names of projects.

The shell starts us at each press of the key, so nothing is imported for a name: the verbs come from the
tables of the help, the projects from the daemon, where it answers at once.
"""

from __future__ import annotations

import os
from typing import Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from handoffd.api.client import Client
from handoffd.api.verbs import VERBS
from handoffd.entrance.place import Place
from handoffd.errors import HandoffdError
from handoffd.protocol.state import Reason

SHELLS: Final = ("bash", "zsh", "fish")
INSTALL: Final = {
    "bash": 'eval "$(handoffd completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(handoffd completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "handoffd completion fish > ~/.config/fish/completions/handoffd.fish",
}
ANSWER_S: Final = 1.0
"""A person waits for the key: a daemon that needs longer completes no names."""


@click.command(epilog="\n\n".join(["Examples:", *(f"\b\n  {line}" for line in INSTALL.values())]))
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what makes a shell complete verbs, options and the names of projects."""
    found = get_completion_class(shell)
    assert found is not None, "click has completion for each of SHELLS"
    program = "handoffd"
    click.echo(found(context.find_root().command, {}, program, f"_{program.upper()}_COMPLETE").source())


def project_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the projects whose names begin with `incomplete`; none while no daemon answers."""
    place = context.find_object(Place)
    if place is None:  # a shell that completes has contexts made, and no command called
        place = Place(config=context.find_root().params.get("config"), environ=os.environ)
    try:
        answer = Client(place.socket(), ANSWER_S).get("/v1/projects")
    except HandoffdError:
        return []
    names = [str(one["name"]) for one in answer["projects"]]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def words_of_verb(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return what the next word of a verb can be: a project first, then the reason of a rejection."""
    given = context.params.get(parameter.name or "") or ()
    if not given:
        return project_names(context, parameter, incomplete)
    spec = next((spec for spec in VERBS.values() if spec.typed.split()[-1] == context.info_name), None)
    if spec is None or not any(one.type == "reason" for one in spec.parameters):
        return []
    return [CompletionItem(reason) for reason in Reason if reason.startswith(incomplete)]
