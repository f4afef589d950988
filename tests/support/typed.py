"""Typing the next command for a person: does it exist, with these options and words?"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from handoffd.api.verbs import VERBS
from handoffd.cli.main import cli
from handoffd.cli.stories.start import meant
from handoffd.cli.verbs import sorted_out


@dataclass(frozen=True, slots=True)
class Typed:
    """A command as it was understood: `status`, `rules check`, `rollback`; and what it was given.

    Of a verb, `given` holds its arguments by name, and its project.
    """

    name: str
    given: Mapping[str, Any]


def typed(line: str) -> Typed:
    """Return what the command line makes of `line`, as a shell would hand it over.

    Raises AssertionError unless it is a complete handoffd command that names its project, and click's
    UsageError where an option or a word does not fit.
    """
    words = shlex.split(line, comments=True)
    assert words[0] == "handoffd", line
    try:
        return _understood(line, words)
    except click.exceptions.Exit:
        return Typed("--help", {})


def _understood(line: str, words: list[str]) -> Typed:
    command: click.Command = cli
    context = cli.make_context("handoffd", words[1:])
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        if not rest and command.invoke_without_command:
            break  # a group that does something by itself
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None, line
        command, context = found, found.make_context(name, rest, parent=context)
    path = context.command_path.removeprefix("handoffd ").split("[")[0].strip()
    verb = path.replace(" ", "_")
    return Typed(verb, _arguments(verb, context.params)) if verb in VERBS else Typed(path, context.params)


def _arguments(verb: str, params: Mapping[str, Any]) -> dict[str, Any]:
    if verb == "start":
        return _started(params)
    if VERBS[verb].of_flow:  # the flow tells its project
        return {name: value for name, value in params.items() if name != "as_json" and value}
    parameters = VERBS[verb].parameters
    needed = [parameter for parameter in parameters if parameter.required and not parameter.trailing]
    trailing = next((parameter for parameter in parameters if parameter.trailing), None)
    project, words = sorted_out(needed, params["words"], trailing)
    assert project is not None, f"{verb} without a project"
    options = {name: value for name, value in params.items() if name not in {"words", "as_json"} and value}
    lists = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
    return {"project": project, **words, **lists}


def _started(params: Mapping[str, Any]) -> dict[str, Any]:
    said = meant(params["words"], lambda _: False, described=bool(params["edit"]))
    assert said.project is not None, "start without a project"
    text = [*said.texts, *(["What it shall bring."] if params["edit"] else [])]
    options = {name: value for name, value in params.items() if name not in _NOT_TOLD and value}
    lists = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
    words = {"story": said.stories[0] if said.stories else None, "then": list(said.stories[1:])}
    return {"project": said.project, **words, "text": text[0] if text else None, **lists}


_NOT_TOLD = frozenset({"words", "as_json", "file", "edit", "story"})
