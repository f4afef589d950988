"""`handoffd auto`: a message instead of a command, as a chat layer would send it."""

from __future__ import annotations

import os
from pathlib import Path

import click

from handoffd.api.client import Json
from handoffd.cli.asking import json_option, print_json
from handoffd.cli.wording import plain
from handoffd.entrance.place import Place
from handoffd.entrance.requests import either, say
from handoffd.errors import NotFound


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[PROJECT] TEXT...")
@click.option("--language", type=click.Choice(["en", "zh-TW"]), help="Of the report; else the message's own.")
@json_option
@click.pass_obj
def auto(place: Place, words: tuple[str, ...], language: str | None, as_json: bool) -> None:
    """Do what TEXT means, in English or Chinese, and say what became of it.

    A question is answered, a command is done, what CC is told to do is started; what is unclear changes
    nothing. With --json also what was understood, and the prompt of a step that was taken.
    """
    project, text = _sorted_out(place, words)
    answer = say(place, project, text, language, here=None if project is not None else str(Path.cwd()))
    if as_json:
        print_json(answer.json)
    else:
        _show(answer.json)
    if answer.json["action"] == "error":
        click.get_current_context().exit(1)


def _sorted_out(place: Place, words: tuple[str, ...]) -> tuple[str | None, str]:
    """Return the project, and the message: a first word that is a path or a known name is no part of it.

    Without one, None: the message may name its project, and where the person is (`here`) is looked at, and
    never begun with. Raises NotFound for a word in the place of a name before a text in quotes.
    """
    first, rest = words[0], words[1:]
    if rest and (_is_path(first) or _is_folder(first, alone=len(rest) == 1)):
        return place.project(first), " ".join(rest)
    known = _known(place)
    if rest and first in {project["name"] for project in known}:
        return place.project(first), " ".join(rest)
    if len(words) == 2 and len(rest[0].split()) > 1 and len(first.split()) == 1:
        message = f"no supervised project is called {first[:80]!r}, and no folder is"
        raise NotFound(message, hint="handoffd projects")
    return None, " ".join(words)


def _is_path(word: str) -> bool:
    return word in {".", ".."} or word.startswith(("/", "./", "../", "~"))


def _is_folder(word: str, *, alone: bool) -> bool:
    """Return whether a word is a folder that is meant as one: before one text, or because it is a project."""
    if not os.path.isdir(word):
        return False
    from handoffd.inspection.workspace import looks_like_project

    return alone or looks_like_project(word)


def _known(place: Place) -> list[Json]:
    """Return the supervised projects, each with its name and root."""

    def without() -> Json:
        from handoffd.entrance import offline

        return offline.look(place.settings(), lambda service: service.projects())

    known = either(place, lambda client: client.get("/v1/projects"), without)
    projects: list[Json] = known.json["projects"]
    return projects


def _show(answer: Json) -> None:
    """Print the report; of a step that was taken, the prompt behind it, for it is to be carried out."""
    click.echo(plain(answer["report"], lines=True), err=answer["action"] == "error")
    prompt = (answer["result"] or {}).get("prompt")
    if prompt:
        click.echo(f"\n{plain(prompt, lines=True)}")
