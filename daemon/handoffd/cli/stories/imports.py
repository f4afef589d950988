"""`handoffd backlog import`: stories of a file or a folder into the backlog.

All of them are read and checked before the first is added, and every problem is listed at once. The engine
adds them in one decision, and recognises the ones that it knows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from handoffd.cli.asking import json_option, print_json, print_lines
from handoffd.cli.stories.sources import STDIN, read_text
from handoffd.cli.wording import fitting, no_daemon, plain, screen_width, shorten
from handoffd.engine.wording import command_for
from handoffd.entrance.place import Place, by_name
from handoffd.entrance.requests import give
from handoffd.errors import HandoffdError, InvalidFile, Json, NotFound, Problem, with_remedy
from handoffd.protocol.story_text import WrittenStory, stories_in

_ENDINGS: Final = (".md", ".markdown")
_OUTCOMES: Final = {"added": "added", "changed": "new text", "known": "known already"}


@click.command("import")
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
        lines = report(answer.json, dry_run=words[-1] if dry_run else None, width=screen_width())
        print_lines([*lines, *closing], err=failed)
    if failed:
        click.get_current_context().exit(1)


def report(answer: Json, *, dry_run: str | None = None, width: int | None = None) -> list[str]:
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


# --- reading ---------------------------------------------------------------------------------------------
def found_in(name: str) -> list[WrittenStory]:
    """Return the stories of a file, a folder, or standard input for `-`.

    Raises InvalidFile with every problem of every file, NotFound where there is no story.
    """
    stories: list[tuple[str, WrittenStory]] = []
    problems: list[Problem] = []
    for file, one in _all_in(name):
        if isinstance(one, Problem):
            problems.append(one)
        else:
            stories.append((file, one))
    problems += _twice(stories)
    if problems:
        fix = with_remedy(InvalidFile(tuple(problems)), os.getcwd()).hint
        raise InvalidFile(tuple(problems), hint=f"{fix}  # then import again; nothing was added")
    if not stories:
        raise NotFound(f"there is no story in {name}", hint="handoffd backlog import --help")
    return [story for _, story in stories]


def _all_in(name: str) -> Iterator[tuple[str, WrittenStory | Problem]]:
    if name == STDIN or not os.path.isdir(name):
        shown = "standard input" if name == STDIN else name
        yield from ((shown, one) for one in stories_in(shown, read_text(name)))
        return
    paths = sorted(path for path in Path(name).iterdir() if path.suffix.lower() in _ENDINGS)
    for path in paths:
        if path.name.startswith(".") or not path.is_file():
            continue
        try:
            text = read_text(str(path))
        except HandoffdError as error:
            yield str(path), Problem(file=str(path), message=error.message)
        else:
            yield from ((str(path), one) for one in stories_in(str(path), text, name=path.stem))


def _twice(stories: list[tuple[str, WrittenStory]]) -> Iterator[Problem]:
    """Yield what two stories have in common that each must have alone."""
    seen: dict[str, str] = {}
    for file, one in stories:
        name = one.id or one.described.source or one.described.title
        folded = " ".join(name.casefold().split())
        if folded in seen:
            message = f"{name[:80]!r} is another story, too, in {seen[folded]}"
            yield Problem(file=file, line=one.line, key=one.key, message=message)
        seen.setdefault(folded, f"{file}:{one.line}" if one.line else file)


def _argument(one: WrittenStory) -> dict[str, Any]:
    told = {
        "story": one.id, "text": one.described.text, "title": one.described.title,
        "source": one.described.source, "blocked_by": list(one.blocked_by), "priority": one.priority,
    }  # fmt: skip
    return {name: value for name, value in told.items() if value not in (None, [])}
