"""The verbs of the vocabulary as commands: `handoffd VERB [PROJECT] WHAT [--options]`.

Made from the table, so that the command line cannot say less or more than the socket does.
Required parameters are words, the others are options; the project comes first and may be left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from handoffd.api.verbs import Parameter, VerbSpec
from handoffd.cli.asking import json_option, print_json
from handoffd.cli.verb_report import report
from handoffd.cli.wording import no_daemon
from handoffd.entrance.place import Place
from handoffd.entrance.requests import give

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def verb_command(spec: VerbSpec) -> click.Command:
    """Return the command for a verb."""
    needed = [one for one in spec.parameters if one.required and not one.trailing]
    trailing = next((one for one in spec.parameters if one.trailing), None)
    words = " ".join(["[PROJECT]", *(one.name.upper() for one in needed), *_trailing_words(trailing)])

    def run(words: tuple[str, ...], as_json: bool, no_tests: bool = False, **options: Any) -> None:
        project, given = sorted_out(needed, words, trailing)
        given |= {name: _as_json_value(value) for name, value in options.items() if _is_given(value)}
        place = click.get_current_context().find_object(Place)
        assert place is not None
        answer = give(place, spec.name, place.project(project), given)
        if answer.json["type"] == "initialised":
            answer.json["tried"] = None if no_tests else _tried(place, answer.json, as_json)
        _say(answer, as_json)

    command = click.Command(
        spec.typed.split()[-1],
        callback=run,
        help=spec.help + "".join(f"\n\n{one.name.upper()}: {one.help}." for one in _words_of(spec)),
        params=[
            click.Argument(["words"], nargs=-1, metavar=words, shell_complete=_complete),
            *(_option(one) for one in spec.parameters if not one.required and not one.trailing),
            *([_NO_TESTS] if spec.name == "init" else []),
        ],
    )
    return json_option(command)


BY_HAND: Final = frozenset({"applied", "taken", "stale", "pending", "missing", "checked"})
"""Answers to those who do steps themselves: they need no daemon, and are not told of one."""

_NO_TESTS: Final = click.Option(
    ["--no-tests"],
    is_flag=True,
    help="Do not run the tests once: in a clone whose code you have not read yet.",
)
_METAVARS: Final = {"story": "STORY", "amount": "DOLLARS", "count": "NUMBER", "priority": "NUMBER"}


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from handoffd.cli.completion import words_of_verb

    return words_of_verb(context, parameter, incomplete)


def _option(parameter: Parameter) -> click.Option:
    name, help_ = (
        f"--{parameter.name.replace('_', '-')}",
        f"{parameter.help[:1].upper()}{parameter.help[1:]}.",
    )
    if parameter.type == "flag":
        return click.Option([name], is_flag=True, help=help_)
    if parameter.type == "stories":
        return click.Option([name], multiple=True, metavar="STORY", help=f"{help_} Can be repeated.")
    if parameter.type == "executors":
        help_ = f"{help_} Can be repeated."
        return click.Option([name], multiple=True, metavar="NAME", help=help_, callback=_in_order)
    shown = "|".join(parameter.choices) or _METAVARS.get(parameter.type, "TEXT")
    return click.Option([name], metavar=shown, help=help_)


def _in_order(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> str | None:
    """Return executors as one list: none that was typed is dropped."""
    return ",".join(given) if given else None


def _words_of(spec: VerbSpec) -> list[Parameter]:
    return [one for one in spec.parameters if one.required or one.trailing]


def _trailing_words(trailing: Parameter | None) -> list[str]:
    if trailing is None:
        return []
    return ["STORY..."] if trailing.required else [f"[{trailing.name.upper()}...]"]


def sorted_out(
    needed: list[Parameter], words: tuple[str, ...], trailing: Parameter | None = None
) -> tuple[str | None, dict[str, Any]]:
    """Return the project, if it was named, and the parameters that are words.

    `trailing` takes all behind them; the project is named where there are more words than there must be.
    """
    if trailing is not None:
        least = len(needed) + trailing.required
        first = len(needed) + (len(words) > least)
        if len(words) < least and not words[first:] and len(words) >= len(needed):
            raise click.UsageError(f"{trailing.name.upper()} is missing: {trailing.help}")
        project, given = sorted_out(needed, words[:first])
        return project, given | ({trailing.name: list(words[first:])} if words[first:] else {})
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


def _is_given(value: object) -> bool:
    """Return whether an option was typed; an empty text was, and may have to be refused."""
    return value is not None and value is not False and value != ()


def _as_json_value(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _tried(place: Place, initialised: dict[str, Any], as_json: bool) -> dict[str, Any] | None:
    """Run the tests of a new project once, as the daemon would; return what came of it."""
    from dataclasses import asdict

    from handoffd.cli.trial import try_tests

    if initialised["test_command"] is None:
        return None
    if not as_json:
        click.echo("Running the tests once as the daemon would, for at most 40 s ...", err=True)
    told = asdict(try_tests(place, initialised["project"]))
    return {key: told[key] for key in ("severity", "what", "why", "action")}


def _say(answer: Any, as_json: bool) -> None:
    failed = answer.json["type"] == "error" or answer.json.get("passed") is False
    prompt = answer.json.get("prompt")
    if as_json:
        print_json(answer.json)
    else:
        by_hand = answer.json["type"] in BY_HAND or prompt is not None
        closing = [] if answer.daemon or failed or by_hand else [no_daemon()]
        click.echo("\n".join([*report(answer.json), *closing]), err=failed or prompt is not None)
        if prompt is not None:
            click.echo(prompt)
    if failed:
        click.get_current_context().exit(1)
