"""The verbs of the vocabulary as commands: `handoffd VERB [PROJECT] WHAT [--options]`.

Made from the table, so that the command line cannot say less or more than the socket does.
Required parameters are words, the others are options; the project comes first and may be left out.
"""

from __future__ import annotations

from typing import Any, Final

import click

from handoffd.cli.asking import NO_DAEMON, json_option, print_json
from handoffd.cli.verb_report import report
from handoffd.control.vocabulary import Parameter, VerbSpec
from handoffd.entrance.asking import give
from handoffd.entrance.place import Place


def verb_command(spec: VerbSpec) -> click.Command:
    """Return the command for a verb."""
    needed = [parameter for parameter in spec.parameters if parameter.required]
    words = " ".join(["[PROJECT]", *(parameter.name.upper() for parameter in needed)])

    def run(words: tuple[str, ...], as_json: bool, **options: Any) -> None:
        project, given = sorted_out(needed, words)
        given |= {name: _as_json_value(value) for name, value in options.items() if value}
        place = click.get_current_context().find_object(Place)
        assert place is not None
        _say(give(place, spec.name, place.project(project), given), as_json)

    command = click.Command(
        spec.name,
        callback=run,
        help=spec.help + "".join(f"\n\n{one.name.upper()}: {one.help}." for one in needed),
        params=[
            click.Argument(["words"], nargs=-1, metavar=words),
            *(_option(parameter) for parameter in spec.parameters if not parameter.required),
        ],
    )
    return json_option(command)


BY_HAND: Final = frozenset({"applied", "stale", "pending", "missing", "checked"})
"""Answers to those who do steps themselves: they need no daemon, and are not told of one."""

_METAVARS: Final = {"story": "STORY", "amount": "DOLLARS", "count": "NUMBER"}


def _option(parameter: Parameter) -> click.Option:
    name, help_ = (
        f"--{parameter.name.replace('_', '-')}",
        f"{parameter.help[:1].upper()}{parameter.help[1:]}.",
    )
    if parameter.type == "flag":
        return click.Option([name], is_flag=True, help=help_)
    if parameter.type == "stories":
        return click.Option([name], multiple=True, metavar="STORY", help=f"{help_} Can be repeated.")
    return click.Option([name], metavar=_METAVARS.get(parameter.type, "TEXT"), help=help_)


def sorted_out(needed: list[Parameter], words: tuple[str, ...]) -> tuple[str | None, dict[str, Any]]:
    """Return the project, if it was named, and the required parameters."""
    if len(words) < len(needed):
        missing = needed[len(words)]
        raise click.UsageError(f"{missing.name.upper()} is missing: {missing.help}")
    if len(words) > 1 and not needed:
        raise click.UsageError(f"too many words: {words[1]!r}; it takes a project, and options (see --help)")
    if len(words) > len(needed) + 1:
        raise click.UsageError(f"too many words; put a text of several words into quotes: {words[-1]!r}")
    project = words[0] if len(words) > len(needed) else None
    values = words[len(words) - len(needed) :]
    return project, {parameter.name: value for parameter, value in zip(needed, values, strict=True)}


def _as_json_value(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _say(answer: Any, as_json: bool) -> None:
    failed = answer.json["type"] == "error" or answer.json.get("passed") is False
    prompt = answer.json.get("prompt")
    if as_json:
        print_json(answer.json)
    else:
        by_hand = answer.json["type"] in BY_HAND or prompt is not None
        closing = [] if answer.daemon or failed or by_hand else [NO_DAEMON]
        click.echo("\n".join([*report(answer.json), *closing]), err=failed or prompt is not None)
        if prompt is not None:
            click.echo(prompt)
    if failed:
        click.get_current_context().exit(1)
