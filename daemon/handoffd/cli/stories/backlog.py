"""`handoffd backlog`: the queued stories, and more from files; `auto`: what a message in plain words asks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from handoffd.api.verbs import VERBS
from handoffd.cli.asking import json_option, print_json, print_lines, project_argument
from handoffd.cli.stories.sources import STDIN, found_in
from handoffd.cli.verbs import verb_command
from handoffd.cli.wording import fitting, moment, no_daemon, plain, screen_width, shorten
from handoffd.engine.wording import command_for
from handoffd.entrance.place import Place, by_name
from handoffd.entrance.requests import ask, give, say
from handoffd.errors import Json, NotFound
from handoffd.protocol.story_text import WrittenStory

# --- for people ----------------------------------------------------------------------------------------

_HEAD: Final = ("", "STORY", "PRIORITY", "SIZE", "ASKED FOR", "BY", "STARTS", "TITLE")
_TEXT: Final = ("TITLE", "STARTS", "STORY")
_SPARE: Final = ("ASKED FOR", "BY", "SIZE")
"""Columns to shorten and to leave out on a narrow screen, the least important first."""
_WIDTH: Final = 100


def report(answer: Json, width: int | None = None) -> list[str]:
    """Return the lines for an answer of `GET /v1/backlog`, at most `width` columns wide (None: any)."""
    lines, named = [f"{plain(answer['name'])}: {_now(answer)}"], answer | {"called": answer["name"]}
    stories = answer["stories"]
    if stories:
        rows = [_row(one, answer["next_story"]) for one in stories]
        shown = len(_HEAD) if any(row[-1] for row in rows) else len(_HEAD) - 1
        lines += fitting(_HEAD[:shown], [row[:shown] for row in rows], _SPARE, width, text=_TEXT)
    else:
        adding = by_name(command_for(answer["project"], "start", "STORY", "STORY"), named)
        lines.append(f"No story waits: {plain(adding)}")
    lines += [*_besides(named), "", *_what_follows(named)]
    return lines if answer["daemon"] else [*lines, no_daemon()]


def _now(answer: Json) -> str:
    stories = [*([answer["story"]] if answer["story"] else []), *answer.get("beside", ())]  # none of old ones
    if not stories:
        return "no story is in flight"
    return f"{', '.join(map(plain, stories))} {'is' if len(stories) == 1 else 'are'} in flight"


def _besides(answer: Json) -> Iterator[str]:
    """Yield the stories that are neither in flight nor queued, and the commands for them."""
    queued = {one["story"] for one in answer["stories"]}
    for story in answer.get("set_aside", ()):  # older daemons send none
        again = by_name(command_for(answer["project"], "start", story, "--queue"), answer)
        yield f"Set aside: {plain(story)}{'' if story in queued else f': {plain(again)}'}"
    for story in answer.get("to_land", ()):
        yield f"Not landed yet: {plain(story)}: {plain(by_name(_landing(answer, story), answer))}"


def _landing(project: Json, story: str) -> str:
    """Return the command that lands a story, as a template."""
    return command_for(project["project"], "land", "--story", story)


def _row(one: Json, upcoming: str | None) -> list[str]:
    starts = one["waits_for"] or ("next" if one["story"] == upcoming else "when its turn comes")
    who = f"schedule {one['schedule']}" if one["schedule"] else one["by"]
    return [
        str(one["place"]),
        shorten(one["story"], 40),
        str(one["priority"]),
        one["complexity"] or "–",
        moment(one["at"]) if one["at"] else "–",
        shorten(who or "–", 24),
        shorten(starts, _WIDTH),
        shorten(one.get("title") or "", 60),  # older daemons send none
    ]


def _what_follows(answer: Json) -> list[str]:
    """Return whether the next story starts by itself, who decided that, and the command that changes it."""
    on, chosen = answer["auto_continue"], answer["chosen"] is not None
    said = "as chosen by `backlog auto`" if chosen else "the default of the settings"
    other = by_name(command_for(answer["project"], "backlog auto", "off" if on else "on"), answer)
    how = "starts by itself" if on else "waits for `continue`"
    by_itself = answer.get("next_by_itself", False)
    if by_itself and not on:
        upcoming = plain(answer["next_story"])
        lines = [
            f"{upcoming} starts by itself: {_who_asked(answer)}.",
            f"Any other {how}, {said} ({plain(other)}).",
        ]
    elif (answer["next_command"] or "").startswith("handoffd start ") and answer["stories"]:
        lines = [f"The first story waits for `start`. A later one {how}, {said} ({plain(other)})."]
    else:
        lines = [f"The next story {how}, {said} ({plain(other)})."]
    if answer.get("next_waits"):
        lines.append(f"{plain(answer['next_story'])} does not start now: {plain(answer['next_waits'])}.")
    if answer["paused_by"]:
        lines.append(f"No story starts: the project was paused by {plain(answer['paused_by'])}.")
    if answer["next_command"] and not (by_itself and answer["story"] is None):
        lines.append(f"  next: {plain(by_name(answer['next_command'], answer))}")
    return lines


def _who_asked(answer: Json) -> str:
    """Return why a story starts by itself where others do not."""
    entry = next((one for one in answer["stories"] if one["story"] == answer["next_story"]), None)
    return (
        "a schedule queued it" if entry is None or entry["schedule"] else f"{plain(entry['by'])} started it"
    )


# --- backlog -------------------------------------------------------------------------------------------
_SHOW: Final = "show"


class _Showing(click.Group):
    """A group that shows the backlog unless the first word is one of its commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `show` when the first word is the name of a project."""
        named = bool(args) and (args[0] in self.commands or args[0] in {"-h", "--help"})
        return super().parse_args(ctx, args if named else [_SHOW, *args])


@click.group(cls=_Showing)
def backlog() -> None:
    """Show the queued stories of a project: handoffd backlog [PROJECT] [--json].

    `start PROJECT STORY STORY...`, `start PROJECT STORY --queue` and `backlog import FILE` queue stories. The
    first story that does not wait for another one starts next: with `continue`, or by itself after `backlog
    auto PROJECT on`.
    """


@backlog.command(name=_SHOW, hidden=True)
@project_argument
@json_option
@click.pass_obj
def show(place: Place, project: str | None, as_json: bool) -> None:
    """List the queued stories of PROJECT in the order in which they start, and what each one waits for."""
    root = place.project(project)

    answer = ask(place, "backlog", project=root)
    if as_json:
        print_json(answer.json)
    else:
        print_lines(report(answer.json, screen_width()))


for _verb in ("backlog_move", "backlog_edit", "backlog_remove", "backlog_auto"):
    backlog.add_command(verb_command(VERBS[_verb]))


# --- import ---------------------------------------------------------------------------------------------
_OUTCOMES: Final = {"added": "added", "changed": "new text", "known": "known already"}


@backlog.command("import")
@click.argument("words", nargs=-1, required=True, metavar="[PROJECT] FILE|FOLDER")
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be added.")
@json_option
@click.pass_obj
def import_(place: Place, words: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Queue stories with their texts.

    FOLDER: each .md file is a story. FILE: Markdown, of which each `## ` heading begins a story, or the JSON
    of issues (gh issue list --json number,title,body,url). `-` is standard input. A story that is known is
    not added again: by its id if the file gives one, an issue by its address, others by their title.
    """
    if len(words) > 2:
        raise click.UsageError(f"too many words: {words[2]!r}; it takes a project, and a file or a folder")
    root = place.project(words[0] if len(words) == 2 else None)
    stories = [_argument(one) for one in found_in(words[-1])]
    arguments = {"stories": stories, **({"dry_run": True} if dry_run else {})}
    answer = give(place, "backlog_import", root, arguments)
    failed = answer.json["type"] == "error"
    if as_json:
        print_json(answer.json)
    else:
        closing = [] if answer.daemon or failed else [no_daemon()]
        lines = import_report(answer.json, dry_run=words[-1] if dry_run else None, width=screen_width())
        print_lines([*lines, *closing], err=failed)
    if failed:
        click.get_current_context().exit(1)


def import_report(answer: Json, *, dry_run: str | None = None, width: int | None = None) -> list[str]:
    """Return the lines for an answer of `POST /v1/verbs/backlog_import`; `dry_run`: only of that file.

    The table has at most `width` columns (None: any).
    """
    following = answer.get("next_command")
    if answer["type"] == "error":
        lines = [f"handoffd: {plain(answer['message'])} [{answer['code']}]"]
    else:
        stories = answer["stories"]
        rows = [
            [_OUTCOMES[one["outcome"]], plain(one["story"]), shorten(one["title"], 80)] for one in stories
        ]
        lines = [*fitting(("", "STORY", "TITLE"), rows, (), width, text=("TITLE",)), plain(answer["message"])]
        lines += [f"  warning: {plain(one)}" for one in answer.get("warnings", ())]  # older daemons send none
        following = command_for(answer["project"], "backlog")
        if dry_run:
            following = (
                None if dry_run == STDIN else command_for(answer["project"], "backlog import", dry_run)
            )
    return [*lines, f"  next: {plain(by_name(following, answer))}"] if following else lines


def _argument(one: WrittenStory) -> dict[str, Any]:
    told = {
        "story": one.id, "text": one.described.text, "title": one.described.title,
        "source": one.described.source, "blocked_by": list(one.blocked_by), "priority": one.priority,
    }  # fmt: skip
    return {name: value for name, value in told.items() if value not in (None, [])}


# --- auto ----------------------------------------------------------------------------------------------
@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[PROJECT] TEXT...")
@click.option(
    "--language", type=click.Choice(["en", "zh-TW"]), help="Language of the report (default: of TEXT)."
)
@json_option
@click.pass_obj
def auto(place: Place, words: tuple[str, ...], language: str | None, as_json: bool) -> None:
    """Do what TEXT asks for, in English or Chinese, and report the result.

    handoffd answers a question, carries out a command, and starts work that TEXT gives to CC. If TEXT is
    unclear, nothing changes. --json adds how TEXT was understood and the prompt of a dispatched step.
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
    """Return the project and the message, without a first word that is a path or the name of a project.

    Without such a word the project is None: the message may name one, or the current folder (`here`) is
    one; the current folder is never initialised. Raises NotFound if one word before a quoted text looks
    like a project's name and is unknown.
    """
    first, rest = words[0], words[1:]
    if rest and (_is_path(first) or _is_folder(first, alone=len(rest) == 1)):
        return place.project(first), " ".join(rest)
    known = _known(place)
    if rest and first in {project["name"] for project in known}:
        return place.project(first), " ".join(rest)
    if len(words) == 2 and len(rest[0].split()) > 1 and len(first.split()) == 1:
        message = f"no supervised project or folder is named {first[:80]!r}"
        raise NotFound(message, hint="handoffd projects")
    return None, " ".join(words)


def _is_path(word: str) -> bool:
    return word in {".", ".."} or word.startswith(("/", "./", "../", "~"))


def _is_folder(word: str, *, alone: bool) -> bool:
    """Return whether a word means a folder: it precedes a single text, or contains a project."""
    if not os.path.isdir(word):
        return False
    from handoffd.inspection.discovery import looks_like_project

    return alone or looks_like_project(word)


def _known(place: Place) -> list[Json]:
    """Return the supervised projects, each with its name and root."""

    projects: list[Json] = ask(place, "projects").json["projects"]
    return projects


def _show(answer: Json) -> None:
    """Print the report, and the prompt of a step that the caller dispatched and now carries out."""
    click.echo(plain(answer["report"], lines=True), err=answer["action"] == "error")
    prompt = (answer["result"] or {}).get("prompt")
    if prompt:
        click.echo(f"\n{plain(prompt, lines=True)}")
