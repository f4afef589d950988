"""`handoffd auto`: a message instead of a command, as a chat layer would send it."""

from __future__ import annotations

import os
from pathlib import Path

import click

from handoffd.cli.asking import json_option, print_json
from handoffd.cli.wording import plain
from handoffd.control.client import Json
from handoffd.entrance.asking import either
from handoffd.entrance.messages import say
from handoffd.entrance.place import Place
from handoffd.errors import NotFound

STATE_FILE = ".ai/STATE.json"


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
    answer = say(place, project, text, language)
    if as_json:
        print_json(answer.json)
    else:
        _show(answer.json)
    if answer.json["action"] == "error":
        click.get_current_context().exit(1)


def _sorted_out(place: Place, words: tuple[str, ...]) -> tuple[str | None, str]:
    """Return the project, and the message: a first word that is a path or a known name is no part of it.

    Without one it is the project that the current folder is in, or, for a text in quotes, the folder
    itself. So a name that is misspelt starts nothing in whatever folder somebody happens to be. Raises
    NotFound for what stands where a name would before a text in quotes.
    """
    first, rest = words[0], words[1:]
    if rest and _is_path(first):
        return place.project(first), " ".join(rest)
    known = _known(place)
    if rest and first in {project["name"] for project in known}:
        return place.project(first), " ".join(rest)
    if len(words) == 2 and len(rest[0].split()) > 1 and len(first.split()) == 1:
        message = f"no supervised project is called {first[:80]!r}, and no folder is"
        raise NotFound(message, hint="handoffd projects")
    here = Path.cwd()
    above = [str(folder) for folder in (here, *here.parents)]
    supervised = any(project["project"] in above for project in known)
    meant = supervised or len(words) == 1 or os.path.lexists(STATE_FILE)
    return (str(here) if meant else None), " ".join(words)


def _is_path(word: str) -> bool:
    return word in {".", ".."} or word.startswith(("/", "./", "../", "~")) or os.path.isdir(word)


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
