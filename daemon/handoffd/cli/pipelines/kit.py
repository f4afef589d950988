"""`handoffd kit`: the programs that pipelines run as commands; `kit list` names them.

Each is a command with its own help, made from its description; its code is imported when it runs.
"""

from __future__ import annotations

from typing import Any

import click

from handoffd.cli.asking import json_option, print_json, print_lines
from handoffd.cli.wording import plain
from handoffd.kit.programs import PROGRAMS, Program, Word

_NAME_WIDTH = max(map(len, PROGRAMS)) + 2


class KitGroup(click.Group):
    """The programs as commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return `list`, then every program."""
        return [*super().list_commands(ctx), *PROGRAMS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; a program's is made now."""
        if cmd_name in PROGRAMS:
            return command_of(PROGRAMS[cmd_name])
        return super().get_command(ctx, cmd_name)


@click.group(cls=KitGroup)
def kit() -> None:
    """Run one of the small programs that pipelines use as commands.

    They read what other tasks handed over, and need no daemon. In a task of a flow the environment says
    what they get; by hand, files are read from the current folder, and handed over in .ai/out.
    """


@kit.command("list")
@json_option
def list_programs(as_json: bool) -> None:
    """List the programs."""
    if as_json:
        rows = [{"name": one.name, "about": one.about, "usage": usage(one)} for one in PROGRAMS.values()]
        print_json({"type": "programs", "programs": rows})
        return
    print_lines([f"{name:{_NAME_WIDTH}}{one.about}" for name, one in PROGRAMS.items()])


def usage(program: Program) -> str:
    """Return the command line of a program, with the names of its words."""
    return " ".join(["handoffd kit", program.name, *map(_shown, program.words)])


def _shown(word: Word) -> str:
    if not word.name.startswith("--"):
        return word.name.upper() if word.default is None else f"[{word.name.upper()}]"
    return f"[{word.name}]" if word.flag else f"[{word.name} {word.key.upper()}]"


def command_of(program: Program) -> click.Command:
    """Return a program as a command."""

    def act(as_json: bool, **words: Any) -> None:
        _run(program, words, as_json)

    params: list[click.Parameter] = [_parameter(word) for word in program.words]
    arguments = "".join(
        f"  {word.name.upper()}: {word.about}\n" for word in program.words if _positional(word)
    )
    text = "\n\n".join(filter(None, (program.about, program.more, arguments and f"\b\n{arguments}")))
    example = program.example or " ".join(
        [program.name, *(w.name.upper() for w in program.words if _positional(w))]
    )
    command = click.Command(
        program.name, callback=act, params=params, help=text, short_help=program.about,
        epilog=f"\b\nExample: handoffd kit {example}",
    )  # fmt: skip
    return json_option(command)


def _positional(word: Word) -> bool:
    return not word.name.startswith("--")


def _parameter(word: Word) -> click.Parameter:
    kind: click.ParamType[Any] | None = None
    if word.choices:
        kind = click.Choice(word.choices)
    elif word.number is not None:
        kind = click.IntRange(*word.number)
    if _positional(word):
        return click.Argument([word.key], type=kind, required=word.default is None, default=word.default)
    if word.flag:
        return click.Option([word.name, word.key], is_flag=True, help=word.about)
    return click.Option(
        [word.name, word.key], type=kind, default=word.default, help=word.about, show_default=True
    )


def _run(program: Program, words: dict[str, Any], as_json: bool) -> None:
    from handoffd.kit.shell import as_data, current, given_by, run

    root, environ = current()
    done = run(program, given_by(environ, root, words), environ)
    if as_json:
        print_json({"type": "done", **as_data(done), "files": sorted({*done.out, *done.writes})})
        return
    fields = ", ".join(f"{name} {value}" for name, value in done.fields.items())
    print_lines(
        [plain(line) for line in (*done.summary.splitlines(), f"outcome: {done.outcome}", fields) if line]
    )
