"""`handoffd pipeline list` and `show`; the other subcommands are beside this file."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
from msgspec import to_builtins

from handoffd.cli.asking import json_option, print_json, print_lines
from handoffd.cli.pipelines.checking import check, simulate
from handoffd.cli.pipelines.counting import bounds
from handoffd.cli.pipelines.lookup import (
    Shelf,
    hidden,
    judged_shelf,
    name_argument,
    project_option,
    replaced,
    typed,
)
from handoffd.cli.wording import fitting, plain, screen_width, shorten, shorten_path, terminal_text
from handoffd.engine.wording import counted
from handoffd.entrance.place import Place
from handoffd.errors import InvalidFile, Json
from handoffd.forecast.flows import everything
from handoffd.inspection.pipelines import Found, all_loaded
from handoffd.protocol.pipelines.drawing import mermaid, svg
from handoffd.protocol.pipelines.loading import Loaded
from handoffd.protocol.pipelines.schema import json_schema

_TITLE_WIDTH: Final = 60
"""Also in a pipe: a title can be as long as an agent likes, and every row is as wide as the longest."""


@click.group()
def pipeline() -> None:
    """List, show, check or simulate pipelines: the shipped ones, yours, and a project's.

    They are files: config/pipelines of handoffd, `pipelines` beside your settings file, .ai/pipelines of a
    project. Where several have one name, the last of these counts. No daemon is needed.
    """


for _command in (check, bounds, simulate):
    pipeline.add_command(_command)


# --- list ----------------------------------------------------------------------------------------------
@pipeline.command("list")
@project_option
@json_option
@click.pass_obj
def list_pipelines(place: Place, project: str | None, as_json: bool) -> None:
    """List the pipelines that apply here, with their tasks and where each comes from.

    A broken file is listed with its first problem.
    """
    shelf = judged_shelf(place, project)
    language = place.settings().language
    plans = _plans(shelf)
    entries = [entry(one, shelf, plans[one.name]) for one in shelf.found.values()]
    if as_json:
        passed_over = [one.as_json() for one in shelf.passed_over]
        head = {"project": shelf.root, "pipelines": entries, "deleted": shelf.deleted}
        print_json({**head, "passed_over": passed_over})
    else:
        gone = [f"{plain(one)} was deleted; to do without it: {shelf.trust}" for one in shelf.deleted]
        unread = [f"{_place(one.file)}: {plain(one.message)}" for one in shelf.passed_over]
        print_lines([*shelf.upwards, *listed(entries, language, screen_width()), *unread, *gone])


def _plans(shelf: Shelf) -> Mapping[str, Loaded | InvalidFile]:
    """Return the plan of each pipeline, or what is wrong with it; of the story, that of its step table."""
    plans = dict(all_loaded(shelf.found, shelf.schemas))
    for name, found in shelf.found.items():
        try:
            if (tabled := shelf.of_table(found)) is not found:
                plans[name] = shelf.loaded(tabled)
        except InvalidFile as invalid:
            plans[name] = invalid
    return plans


def entry(found: Found, shelf: Shelf, loaded: Loaded | InvalidFile) -> Json:
    """Return what the list has of a pipeline, as JSON."""
    told: Json = {"name": found.name, "title": {}, "tasks": None, "origin": found.origin, "file": found.file}
    told |= {"hides": hidden(found), "problems": [], "next": None}
    if isinstance(loaded, InvalidFile):
        told |= {"trusted": found.trusted, "doubt": shelf.doubt(found)}
        if found.unread is None:
            told["next"] = f"handoffd pipeline check {typed(found.name)}"
        return {**told, "problems": [one.as_json() for one in loaded.problems]}
    plan, doubt = loaded.plan, shelf.doubt(found, loaded.others)
    told |= {"trusted": found.trusted and doubt is None, "doubt": doubt}
    return {**told, "title": dict(plan.title), "tasks": sum(1 for _ in everything(plan.root))}


def listed(entries: Sequence[Json], language: str, width: int | None = None) -> list[str]:
    """Return the lines of the list: a row for each pipeline, and remarks below it."""
    rows = [
        [
            plain(one["name"]),
            shorten(title(one["title"], language), _TITLE_WIDTH),
            "–" if one["tasks"] is None else str(one["tasks"]),
            "shipped" if one["origin"] == "shipped" else plain(one["file"]),
        ]
        for one in entries
    ]
    head, *lines = fitting(("NAME", "TITLE", "TASKS", "FROM"), rows, (), width, ("TITLE", "FROM"))
    below = [remarks(one) for one in entries]
    return [head, *(part for line, more in zip(lines, below, strict=True) for part in (line, *more))]


def title(texts: Mapping[str, str], language: str) -> str:
    """Return a title in a language; in English where there is none, and a dash without any."""
    return texts.get(language) or texts.get("en") or next(iter(texts.values()), "–")


def remarks(one: Json) -> list[str]:
    """Return the lines below a row of the list."""
    lines = replaced(one["hides"])
    lines += [f"  {plain(one['doubt'])}"] if one["doubt"] else []
    if one["problems"]:
        count = len(one["problems"])
        first = _problem(one["problems"][0])
        lines.append(f"  broken, {counted(count, 'problem')}: {plain(first)}")
        lines += [f"  next: {one['next']}"] if one["next"] else []
    return lines


def _place(file: str) -> str:
    """Return the name of a file; an agent chooses the ones in a project, of any length."""
    return plain(file) if file.startswith("/") else shorten_path(file, 80)


def _problem(told: Json) -> str:
    place = told["file"] if told["line"] is None else f"{told['file']}:{told['line']}"
    return f"{place}: {told['key']}: {told['message']}" if told["key"] else f"{place}: {told['message']}"


# --- show ----------------------------------------------------------------------------------------------
@pipeline.command()
@name_argument
@click.option("--mermaid", "as_mermaid", is_flag=True, help="Draw it, in the language of Mermaid.")
@click.option("--svg", "as_svg", is_flag=True, help="Draw it, as an SVG file.")
@project_option
@json_option
@click.pass_obj
def show(place: Place, name: str, as_mermaid: bool, as_svg: bool, project: str | None, as_json: bool) -> None:
    """Print the text of the pipeline NAME, or draw it; with --json also what it compiles to.

    NAME can be the path of a file. `story` is the project's step table, said in the language of pipelines.
    """
    ways = {"--mermaid": as_mermaid, "--svg": as_svg, "--json": as_json}
    if sum(ways.values()) > 1:
        chosen = " and ".join(way for way, given in ways.items() if given)
        raise click.UsageError(f"{chosen} exclude each other.")
    shelf = judged_shelf(place, project)
    found = shelf.chosen(name)
    if not as_json and (doubt := shelf.doubt(found, shelf.started(found))) is not None:
        click.echo(f"handoffd: {plain(found.file)}: {plain(doubt)}", err=True)
    if as_json:
        print_json(shown(found, shelf))
    elif as_mermaid or as_svg:
        plan = shelf.loaded(found).plan
        click.echo((mermaid if as_mermaid else svg)(plan).rstrip("\n"))
    else:
        if found.unread is not None:
            shelf.loaded(found)
        _print(found.text)


def shown(found: Found, shelf: Shelf) -> dict[str, Any]:
    """Return a pipeline as JSON: where it is, its text, and what it compiles to."""
    loaded = shelf.loaded(found)
    doubt = shelf.doubt(found, loaded.others)
    return {
        "name": found.name, "file": found.file, "origin": found.origin, "hides": hidden(found),
        "trusted": found.trusted and doubt is None, "doubt": doubt,
        "warnings": [one.as_json() for one in loaded.warnings], "text": found.text,
        "plan": to_builtins(loaded.plan),
    }  # fmt: skip


@pipeline.command()
def schema() -> None:
    """Print the JSON Schema of pipelines, with which editors complete them."""
    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))


def _print(text: str) -> None:
    """Print a text as it is, so that it can be redirected into a file; on a terminal without its controls."""
    safe = terminal_text(text.encode()) if sys.stdout.isatty() else text
    click.echo(safe, nl=not text.endswith("\n"))
