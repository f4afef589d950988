"""What has happened: `handoffd report` on a night, `runs`, `stories`; `usage`: tokens and cost summed up."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any, Final

import click

from handoffd.cli.asking import (
    WHEN,
    json_option,
    narrowing,
    print_json,
    print_lines,
    project_argument,
    project_names,
)
from handoffd.cli.status_report import placed, ways
from handoffd.cli.wording import (
    called,
    fitting,
    moment,
    no_daemon,
    plain,
    screen_width,
    shorten,
    styled,
    used,
)
from handoffd.engine.wording import counted
from handoffd.entrance.place import Place
from handoffd.entrance.requests import ask

# --- runs ----------------------------------------------------------------------------------------------
_RUNS_HEAD = ("DECIDED", "PROJECT", "STORY", "STEP", "ATTEMPT", "RESULT", "TOKENS", "COST", "RUN")
_TOOK = ("MEMORY", "TASKS")
"""Columns shown if the machine measures memory and tasks of runs."""
_RUNS_SPARE = ("TASKS", "MEMORY", "COST", "TOKENS", "DECIDED", "ATTEMPT")
"""Columns to drop on a narrow screen, least important first: a run's name begins with its time."""


@click.command()
@project_argument
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Most runs to list."
)
@narrowing
@json_option
@click.pass_obj
def runs(place: Place, /, project: str | None, limit: int, as_json: bool, **part: str | None) -> None:
    """List the latest dispatches, newest first; of PROJECT, or of all."""
    named = None if project is None else place.project(project)
    answer = ask(place, "runs", project=named, limit=limit, **part)
    if as_json:
        print_json(answer.json)
        return
    found = answer.json["runs"]
    nothing = "Nothing of that has run." if any(part.values()) else "Nothing has run yet."
    click.echo("\n".join(runs_report(found, screen_width())) if found else nothing)


def runs_report(found: list[dict[str, Any]], width: int | None = None) -> list[str]:
    """Return the lines for an answer of `GET /v1/runs`, at most `width` columns wide (None: any)."""
    counted = any(run.get("memory_peak") is not None or run.get("tasks_peak") is not None for run in found)
    head = (*_RUNS_HEAD[:-1], *_TOOK, _RUNS_HEAD[-1]) if counted else _RUNS_HEAD
    return fitting(head, [_row(run, counted=counted) for run in found], _RUNS_SPARE, width)


def _row(run: dict[str, Any], *, counted: bool) -> list[str]:
    return [
        moment(run["decided_at"]),
        called(run),
        plain(run["story"] or "–"),
        plain(run["step"]),
        str(run["attempt"]),
        styled(run["result"] or "running"),
        *used(run.get("usage")),
        *(_took(run) if counted else ()),
        run["run"],
    ]


def _took(run: dict[str, Any]) -> tuple[str, str]:
    """Return a run's peak memory and tasks; a dash if unknown."""
    from handoffd.engine.run import size_in_words

    memory, tasks = run.get("memory_peak"), run.get("tasks_peak")
    return "–" if memory is None else size_in_words(memory), "–" if tasks is None else str(tasks)


# --- report ------------------------------------------------------------------------------------------
@click.command()
@project_argument
@click.option("--project", "-p", "named", metavar="PROJECT", help="Same as PROJECT.")
@click.option("--since", metavar="WHEN", default="12h", show_default=True, help=f"Since then: {WHEN}.")
@click.option("--until", metavar="WHEN", help="Only what happened before then.")
@click.option("--markdown", "form", flag_value="markdown", help="Print Markdown, with every entry.")
@click.option("--html", "form", flag_value="html", help="Print one HTML file that needs no other.")
@json_option
@click.pass_obj
def report(place: Place, /, project: str | None, named: str | None, form: str | None, **asked: Any) -> None:
    """Report on PROJECT or all projects: what landed, what needs you, what failed, what goes on.

    Each line that needs you has the command to type. What an agent claimed and the daemon measured otherwise
    is listed, too; then what the runs cost, and what the time was spent on.
    """
    word = project or named
    root = None if word is None else place.project(word)
    answer = ask(place, "report", project=root, since=asked["since"], until=asked["until"])
    if asked["as_json"]:
        print_json(answer.json)
        return
    from msgspec import convert

    from handoffd.report.rendering import as_html, as_markdown, as_text
    from handoffd.report.values import Report

    shown = {"html": as_html, "markdown": as_markdown}.get(form or "", as_text)
    click.echo(shown(convert(answer.json, Report)))
    if not answer.daemon and form is None:
        print_lines(["", no_daemon()])


# --- tonight -----------------------------------------------------------------------------------------
@click.command()
@click.argument("projects", metavar="[PROJECT]...", nargs=-1, shell_complete=project_names)
@click.option("--until", metavar="WHEN", help="Until then: 07:30, 8h, or an RFC 3339 time; 08:00 without it.")
@click.option("--dry-run", is_flag=True, help="Changes nothing, as this command never does.")
@json_option
@click.pass_obj
def tonight(place: Place, projects: tuple[str, ...], until: str | None, dry_run: bool, as_json: bool) -> None:
    """Show what would happen until morning in each PROJECT, or in all: it looks, and starts nothing.

    Each story takes as long, and costs as much, as its steps did before in its project. What stops a story
    is listed with the command to type. --json has up to 100 stories, and each step.
    """
    del dry_run
    named = "\n".join(place.project(project) for project in projects)
    answer = ask(place, "tonight", projects=named or None, until=until)
    if as_json:
        print_json(answer.json)
        return
    from msgspec import convert

    from handoffd.forecast.plan import Tonight
    from handoffd.forecast.rendering import as_text

    click.echo(as_text(convert(answer.json, Tonight)))


# --- stories -------------------------------------------------------------------------------------------
_STORIES_HEAD: Final = ("LATEST", "PROJECT", "STORY", "OUTCOME", "RUNS", "TOKENS", "COST", "COMMIT", "TITLE")
_STORIES_SPARE: Final = ("RUNS", "TOKENS", "COMMIT", "LATEST", "TITLE")
_MOST_TITLE: Final = 24


@click.command()
@project_argument
@click.option("--story", metavar="ID", help="Only this story.")
@click.option("--since", metavar="WHEN", help=f"Only what something happened to since then: {WHEN}.")
@click.option("--until", metavar="WHEN", help="Only what had begun by then.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Most stories to list."
)
@json_option
@click.pass_obj
def stories(place: Place, /, project: str | None, as_json: bool, **part: Any) -> None:
    """List stories, the latest first: their outcome, their cost, and where they landed.

    A story of PROJECT, or of all projects, is listed once something of it has run.
    """
    named = None if project is None else place.project(project)
    found = ask(place, "stories", project=named, **part).json
    if as_json:
        print_json(found)
    elif found["stories"]:
        print_lines([*stories_report(found["stories"], screen_width()), *_unlanded(found["stories"])])
    else:
        click.echo("Nothing of such a story has run." if part["story"] else "No story has run yet.")


def stories_report(found: list[dict[str, Any]], width: int | None = None) -> list[str]:
    """Return the lines for an answer of `GET /v1/stories`, at most `width` columns wide (None: any)."""
    titled = any(story.get("title") for story in found)  # older daemons send none
    rows = [
        [
            moment(story["latest_at"]),
            called(story),
            shorten(story["story"], 24),
            _outcome(story),
            str(story["runs"]),
            *used(story),
            f"{story['onto']} {story['commit'][:12]}" if story["commit"] else "–",
            *([shorten(story["title"] or "", _MOST_TITLE)] if titled else []),
        ]
        for story in found
    ]
    head = _STORIES_HEAD if titled else _STORIES_HEAD[:-1]
    return fitting(head, rows, _STORIES_SPARE, width, text=("TITLE", "PROJECT", "STORY"))


def _unlanded(found: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield where the finished stories are that have not landed, with the commands for each."""
    for story in found:
        if where := story.get("whereabouts"):  # older daemons send none
            project = {"project": story["project"], "called": story["name"]}
            yield f"{called(story)} {plain(story['story'])}: {placed(where)}"
            yield from (f"    {line}" for line in ways(where, project, story["story"]))


def _outcome(story: dict[str, Any]) -> str:
    """Return what a story has come to; of an open one, where it is: `impl failing`."""
    if story["outcome"] != "open":
        return styled(story["outcome"])
    return f"{plain(story['step'])} {styled(story['status'] or 'running')}"


# --- usage ---------------------------------------------------------------------------------------------
GROUPINGS: Final = ("step", "story", "project", "day", "executor")
_TOKENS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_USAGE_HEAD: Final = ("RUNS", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "TOKENS", "COST")
_USAGE_SPARE: Final = ("CACHE WRITE", "CACHE READ", "OUTPUT", "INPUT", "REFERENCE", "NEW PER RUN", "NEW")
"""Columns to drop on a narrow screen, least important first: TOKENS has the sum."""
_BESIDE: Final = {"step": ("NEW PER RUN", "REFERENCE", ""), "story": ("NEW", "REFERENCE", "")}


@click.command()
@project_argument
@click.option(
    "--by", type=click.Choice(GROUPINGS), default="step", show_default=True, help="What to sum up by."
)
@click.option(
    "--since",
    metavar="WHEN",
    help="Only runs that ended since then: 7d, 30m, 12h, or a date like 2026-01-31.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@json_option
@click.pass_obj
def usage(place: Place, project: str | None, by: str, since: str | None, as_csv: bool, as_json: bool) -> None:
    """Sum up tokens and cost of all ended runs, of PROJECT or of all projects."""
    named = None if project is None else place.project(project)
    found = ask(place, "usage", project=named, by=by, since=since).json
    if as_json:
        print_json(found)
    elif as_csv:
        click.echo(_csv(found), nl=False)
    elif found["rows"]:
        click.echo("\n".join(usage_report(found, screen_width())))
    else:
        click.echo("No run has ended yet." if since is None else "No run has ended since then.")


def usage_report(found: dict[str, Any], width: int | None = None) -> list[str]:
    """Return the lines for an answer of `GET /v1/usage`, at most `width` columns wide (None: any)."""
    by, rows = found["by"], found["rows"]
    labels = _labels(by)
    beside = _BESIDE.get(by, ())
    lines = [[*(_cell(row[label]) for label in labels), *_numbers(row), *_compared(row)] for row in rows]
    total = ["all", *("" for _ in labels[1:]), *_numbers(found["total"]), *("" for _ in beside)]
    head = (*("PROJECT" if label == "name" else label.upper() for label in labels), *_USAGE_HEAD, *beside)
    return [*fitting(head, [*lines, total], _USAGE_SPARE, width), *_remarks(found)]


def _labels(by: str) -> tuple[str, ...]:
    return {"story": ("name", "story"), "project": ("name",)}.get(by, (by,))


def _cell(value: str | None) -> str:
    return "–" if value is None else shorten(value, 40)


def _numbers(row: dict[str, Any]) -> list[str]:
    return [str(row["runs"]), *(f"{row[name]:,}" for name in _TOKENS), *used(row)]


def _compared(row: dict[str, Any]) -> list[str]:
    """Return the input tokens that were not cached, and the expected number; marked where above it."""
    if "reference" not in row:
        return []
    new, reference = row["new_tokens"], row["reference"]
    expected = "–" if reference is None else f"{reference[0]:,}–{reference[1]:,}"
    return [
        "–" if new is None else f"{new:,}",
        expected,
        click.style("above", fg="yellow") if row["above"] else "",
    ]


def _remarks(found: dict[str, Any]) -> list[str]:
    total = found["total"]
    unmeasured = total["runs"] - total["measured"]
    remarks = []
    if unmeasured:
        remarks.append(f"{unmeasured} of {counted(total['runs'], 'run')} did not report their usage.")
    if total["unpriced"]:
        of = f"{total['unpriced']} of {counted(total['runs'], 'run')}"
        remarks.append(f"The cost of {of} is unknown: see `prices` in the settings.")
    return remarks


def _csv(found: dict[str, Any]) -> str:
    rows = [{name: value for name, value in row.items() if name != "reference"} for row in found["rows"]]
    for row, whole in zip(rows, found["rows"], strict=True):
        if "reference" in whole:
            low, high = whole["reference"] or (None, None)
            row |= {"reference_low": low, "reference_high": high}
    written = io.StringIO()
    if rows:
        writer = csv.DictWriter(written, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _harmless(value) for name, value in row.items()} for row in rows)
    return written.getvalue()


def _harmless(value: object) -> object:
    """Return a cell that no spreadsheet takes for a formula: projects choose their names."""
    if not isinstance(value, str):
        return value
    text = plain(value)
    return f"'{text}" if text[:1] in {"=", "+", "-", "@"} else text
