"""Typing what a person is told to type next: does the command exist, with those options and words?"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from handoffd.cli.main import cli
from handoffd.cli.verbs import sorted_out
from handoffd.control.vocabulary import VERBS


@dataclass(frozen=True, slots=True)
class Typed:
    """A command as it was understood: `status`, `rules check`, `rollback`; and what it was given.

    Of a verb, `given` holds its arguments by name, and its project.
    """

    name: str
    given: Mapping[str, Any]


def typed(line: str) -> Typed:
    """Return what the command line makes of `line`, as a shell would hand it over.

    Raises AssertionError where it is no whole command of ours that names its project, and click's
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
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None, line
        command, context = found, found.make_context(name, rest, parent=context)
    path = context.command_path.removeprefix("handoffd ").split("[")[0].strip()
    return Typed(path, _arguments(path, context.params) if path in VERBS else context.params)


def _arguments(verb: str, params: Mapping[str, Any]) -> dict[str, Any]:
    needed = [parameter for parameter in VERBS[verb].parameters if parameter.required]
    project, words = sorted_out(needed, params["words"])
    assert project is not None, f"{verb} without a project"
    options = {name: value for name, value in params.items() if name not in {"words", "as_json"} and value}
    lists = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
    return {"project": project, **words, **lists}
