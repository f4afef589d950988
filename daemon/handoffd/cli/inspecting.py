"""Questions about a folder: `detect`, `query`, `list-projects`, `check-prereqs`, `review`, and others."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from shlex import quote
from typing import Any, Final

import click

from handoffd.chat.status_text import FILES
from handoffd.cli.asking import is_numbered, json_option, print_json, project_argument
from handoffd.cli.stories.standing import located, ways
from handoffd.cli.wording import moment, no_daemon, plain, size_of, styled, table
from handoffd.engine.wording import command_for, counted
from handoffd.entrance.place import Place, by_name, in_utf8
from handoffd.entrance.requests import ask
from handoffd.errors import HandoffdError, Json

# --- for people ----------------------------------------------------------------------------------------
_LEVELS = ("no file of the protocol is there", "some of its files are there", "all are there")


def detected(answer: dict[str, Any]) -> list[str]:
    """Return the lines for an answer of `GET /v1/detect`."""
    level = answer["level"]
    present = [name for key, name in FILES.items() if answer[key]]
    absent = [name for key, name in FILES.items() if not answer[key]]
    lines = [f"Framework level {level} of 2: {_LEVELS[level]}"]
    lines += [f"  there:   {', '.join(present)}"] if present else []
    return lines + ([f"  missing: {', '.join(absent)}"] if absent else [])


def queried(answer: dict[str, Any]) -> list[str]:
    """Return the lines for an answer of `GET /v1/query`."""
    name, status = plain(answer["project"]), styled(plain(answer["status"]))
    if answer["step"] == "none":
        lines = [f"{name}: {status}"]
    else:
        attempt = f"attempt {answer['attempt']} of {answer['max_attempts']}"
        story = plain(answer["story"] or "no story")
        lines = [f"{name}: {story} at {plain(answer['step'])}, {attempt}, {status}"]
    lines += [f"  {label}: {plain(value)}" for label, value in _facts(answer) if value]
    summary = answer["memory_summary"]
    return [*lines, "", plain(summary, lines=True)] if summary else lines


def _facts(answer: dict[str, Any]) -> list[tuple[str, str | None]]:
    tests, changed = answer["tests"], len(answer["files_changed"])
    counts = tests and f"{tests['pass']} passed, {tests['fail']} failed, {tests['skip']} skipped"
    passed = answer["lint_pass"]
    return [
        ("next step", answer["next_step"]),
        ("reason", answer["reason"]),
        ("tests", counts),
        ("post_check", None if passed is None else "passed" if passed else "failed"),
        ("files changed", str(changed) if changed else None),
        ("blocked by", ", ".join(answer["blocked_by"])),
        ("note", answer["human_note"]),
        ("last error", answer["last_error"]),
        *(("warning", warning) for warning in answer["warnings"]),
        ("level", f"{answer['level']}{'' if answer['supervised'] else ', not supervised'}"),
        ("waits for", answer["waits_for"]),
        ("next", _following(answer)),
    ]


def _following(answer: dict[str, Any]) -> str | None:
    named = {"project": answer["root"], "called": answer.get("called")}  # an older daemon tells no name
    return answer["next_command"] and by_name(answer["next_command"], named)


def listed(answer: dict[str, Any]) -> list[str]:
    """Return the lines for an answer of `GET /v1/list-projects`."""
    rows = [
        [
            plain(one["name"]),
            plain(one["dir"]),
            plain(one["story"] or "–"),
            plain(one["step"]) if one["step"] != "none" else "–",
            styled(plain(one["status"])),
        ]
        for one in answer["projects"]
    ]
    if not rows:
        return [f"There is no project in {plain(answer['folder'])}."]
    return table(("PROJECT", "FOLDER", "STORY", "STEP", "STATUS"), rows)


def checked(answer: dict[str, Any]) -> list[str]:
    """Return the lines for an answer of `GET /v1/check-prereqs`."""
    if answer["ok"]:
        return ["No file that the current step reads is missing."]
    lines = [f"  {plain(warning)}" for warning in answer["warnings"]]
    following = answer["next_command"]
    advice = [f"  next: {plain(following)}"] if following else []
    return ["The current step reads files that are missing; this does not block it.", *lines, *advice]


def prompted(answer: dict[str, Any]) -> list[str]:
    """Return the lines of a prompt and nothing else, so that the user can pipe them to an agent."""
    return [plain(answer["prompt"].rstrip("\n"), lines=True)]


# --- commands ------------------------------------------------------------------------------------------
_language = click.option(
    "--language",
    type=click.Choice(("en", "zh-TW")),
    help="Language of the prompt (default: of the settings).",
)


@click.command()
@project_argument
@json_option
@click.pass_obj
def detect(place: Place, project: str | None, as_json: bool) -> None:
    """Report which files of the protocol PROJECT has, and its level of adoption: 0 none, 1 some, 2 all."""
    answer = ask(place, "detect", project=place.project(project))
    _show(answer.json, as_json, detected)


@click.command()
@project_argument
@json_option
@click.pass_obj
def query(place: Place, project: str | None, as_json: bool) -> None:
    """Report story, step and status from the files of PROJECT; if supervised, also what it waits for."""
    answer = ask(place, "query", project=place.project(project))
    _show(answer.json, as_json, queried)


@click.command("list-projects")
@click.argument("folder", required=False)
@json_option
@click.pass_obj
def list_projects(place: Place, folder: str | None, as_json: bool) -> None:
    """List the projects in FOLDER (default: the current folder), supervised or not."""
    named = in_utf8(os.path.abspath(os.path.expanduser(folder or ".")))
    answer = ask(place, "list_projects", folder=named)
    _show(answer.json, as_json, listed)


@click.command("check-prereqs")
@project_argument
@json_option
@click.pass_obj
def check_prereqs(place: Place, project: str | None, as_json: bool) -> None:
    """List the missing files that the current step reads. They do not block it."""
    answer = ask(place, "check_prereqs", project=place.project(project))
    _show(answer.json, as_json, checked)


@click.command()
@project_argument
@_language
@json_option
@click.pass_obj
def review(place: Place, project: str | None, language: str | None, as_json: bool) -> None:
    """Print a prompt for a read-only review session of PROJECT; pipe it to an agent."""
    named = place.project(project)
    _show(ask(place, "review", project=named, language=language).json, as_json, prompted)
    if sys.stdout.isatty() and (hint := _open_gate(place, named)) is not None:
        click.echo(hint, err=True)


def _open_gate(place: Place, project: str) -> str | None:
    """Return where to decide the review that a project waits at; None where it waits at none."""
    try:
        found = ask(place, "status", project=project).json["projects"][0]
    except HandoffdError:  # it need not be supervised
        return None
    waiting = [track for track in found["tracks"] if track["gate"]]
    command = by_name(command_for(found["project"], "gate"), found)
    return f"An open review waits for your decision: {plain(command)}" if waiting else None


@click.command()
@project_argument
@_language
@json_option
@click.pass_obj
def triage(place: Place, project: str | None, language: str | None, as_json: bool) -> None:
    """Print a prompt for a session that sorts the open issues in PROJECT's memory; pipe it to an agent."""
    answer = ask(place, "triage", project=place.project(project), language=language)
    _show(answer.json, as_json, prompted)


def _show(answer: Json, as_json: bool, lines_of: Callable[[dict[str, Any]], list[str]]) -> None:
    if as_json:
        print_json(answer)
    else:
        click.echo("\n".join(lines_of(answer)))


# --- peek ----------------------------------------------------------------------------------------------
@click.command()
@project_argument
@click.option("--story", help="The story that is meant, where several are in flight.")
@json_option
@click.pass_obj
def peek(place: Place, project: str | None, story: str | None, as_json: bool) -> None:
    """Show what the next turn of PROJECT would do, with the prompt it would use. Changes nothing."""
    answer = ask(place, "peek", project=place.project(project), story=story)
    if as_json:
        print_json(answer.json)
        return
    closing = [] if answer.daemon else [no_daemon()]
    click.echo("\n".join([*report(answer.json), *closing]))


def report(shown: dict[str, Any]) -> list[str]:
    """Return the lines for an answer of `GET /v1/peek`."""
    step, why, prompt = plain(shown["step"]), plain(shown["why"]), shown["prompt"]
    warnings = [f"  warning: {plain(warning)}" for warning in shown["warnings"]]
    if prompt is None:
        following = shown["result"].get("next_command")
        advice = [f"  next: {plain(by_name(following, shown))}"] if following else []
        return [f"{step} would dispatch nothing: {why}", *warnings, *advice]
    head = f"{step}, attempt {shown['attempt']}: {why}"
    return [head, *warnings, f"  executor: {plain(shown['executor'])}", "", plain(prompt, lines=True)]


# --- a story ------------------------------------------------------------------------------------------
_STANDINGS: Final = {
    "in_flight": "is in flight", "queued": "waits in the backlog", "set_aside": "is set aside",
    "done": "is done", "closed": "was aborted",
    "discarded": "was discarded",
}  # fmt: skip


@click.command()
@project_argument
@click.argument("story", required=False)
@json_option
@click.pass_obj
def story(place: Place, project: str | None, story: str | None, as_json: bool) -> None:
    """Print what STORY of PROJECT shall bring, in the words of the person who asked for it.

    Without STORY: the story in flight, or the one that ended last.
    """
    if project is not None and story is None and is_numbered(project):
        project, story = None, project
    answer = ask(place, "story", project=place.project(project), story=story)
    _show(answer.json, as_json, told)


def told(answer: dict[str, Any]) -> list[str]:
    """Return the lines for an answer of `GET /v1/story`."""
    head = f"{plain(answer['story'])} {_STANDINGS[answer['standing']]}"
    lines = [f"{head}: {plain(answer['title'])}" if answer["title"] else head]
    lines += [f"  source: {plain(answer['source'])}"] if answer["source"] else []
    lines += [f"  kept as {plain(answer['kept'])}"] if answer.get("kept") else []
    if where := answer.get("whereabouts"):  # older daemons send none
        project = {**answer, "called": answer["name"]}
        lines += [f"  {line}" for line in (located(where), *ways(where, project, answer["story"]))]
    if answer["text"] is None:
        gone = "its text is no longer kept; see `handoffd events --json`"
        return [*lines, f"  {gone if answer['title'] else 'it has no text'}"]
    return [*lines, "", plain(answer["text"], lines=True)]


# --- snapshots -----------------------------------------------------------------------------------------
@click.command()
@project_argument
@click.option("--story", metavar="STORY", help="The story that is meant, where several are in flight.")
@json_option
@click.pass_obj
def snapshots(place: Place, project: str | None, story: str | None, as_json: bool) -> None:
    """List the files of PROJECT's story as they were kept: before its first step, after each attempt.

    Each is a ref of the project's git repository, on no branch. `rollback PROJECT STEP --files` goes back.
    """
    answer = ask(place, "snapshots", project=place.project(project), story=story)
    _show(answer.json, as_json, kept)


def kept(answer: dict[str, Any]) -> list[str]:
    """Return the lines for an answer of `GET /v1/snapshots`."""
    name, story, found = plain(answer["name"]), answer["story"], answer["snapshots"]
    if story is None and not found:
        return [f"{name}: no story was started, so there is no snapshot"]
    if not found:
        return [f"{name}: there is no snapshot of {plain(story)}; the first comes with its first attempt"]
    rows = [
        [
            plain(one["name"]),
            moment(one["at"]),
            styled(plain(one["result"])),
            "not kept" if one["ref"] is None else _change(one["files"]),
            plain(one["by"] or ""),
        ]
        for one in found
    ]
    lines = table(("SNAPSHOT", "AT", "RESULT", "CHANGED", "BY"), rows)
    refs = [one["ref"] for one in found if one["ref"] is not None] or ["HEAD"]
    compare = f"git -C {quote(answer.get('folder') or answer['project'])} diff {refs[0]} {refs[-1]}"
    return [f"{name}: {plain(story or 'no story')}", *lines, f"  compare: {plain(compare)}"]


# --- workspaces ----------------------------------------------------------------------------------------
@click.command()
@project_argument
@json_option
@click.pass_obj
def workspaces(place: Place, project: str | None, as_json: bool) -> None:
    """List the clones in which stories work, of PROJECT or of all: size, branch, and why each is kept.

    `gc` removes the others; a clone is made again when its story goes on.
    """
    answer = ask(place, "workspaces", project=None if project is None else place.project(project))
    limit = place.settings().retention.workspaces_gb if project is None and not as_json else None
    _show(answer.json, as_json, partial(clones, limit=limit))


def clones(answer: dict[str, Any], limit: float | None = None) -> list[str]:
    """Return the lines for an answer of `GET /v1/workspaces`; `limit` in GiB is of all clones together."""
    if not answer["workspaces"]:
        return ["There is no clone: stories work in their project's folder unless it says `workspace: clone`"]
    lines = []
    for one in answer["workspaces"]:
        kept = f"kept: {plain(one['kept'])}" if one["kept"] else "not needed: `handoffd gc` removes it"
        since = f"since {moment(one['made_at'])}"
        lines += [
            f"{plain(one['name'])} {plain(one['story'])}, {size_of(one['bytes'])}, {since}",
            f"    {plain(one['branch'] or 'on no branch: it is only read')}",
            f"    {plain(one['folder'])}",
            f"    {kept if one['ready'] else f'{kept}; not set up yet'}",
        ]
    if limit is not None:
        taken = f"together {size_of(answer['bytes'])} of {limit:g} GiB (retention.workspaces_gb)"
        instead = "no story gets a new clone until some are gone: handoffd land, handoffd discard"
        lines.append(f"{taken}; {instead}" if answer["bytes"] > limit * 1024**3 else taken)
    return lines


def _change(files: int | None) -> str:
    return "" if files is None else counted(files, "file")
