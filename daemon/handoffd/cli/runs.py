"""What has happened: `handoffd report` on a night, `runs`, `show` one, `stories`, `claims`, `usage`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from shlex import quote
from typing import Any, Final

import click
from msgspec import convert

from handoffd.cli.asking import (
    WHEN,
    json_option,
    narrowing,
    print_json,
    print_lines,
    project_argument,
    project_names,
)
from handoffd.cli.stories.standing import placed, ways
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
from handoffd.engine.run import PostCheck
from handoffd.engine.wording import checks_in_words, counted, counts_in_words
from handoffd.entrance.place import Place
from handoffd.entrance.requests import ask
from handoffd.errors import Json

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


# --- one attempt --------------------------------------------------------------------------------------
_COMMANDS_HEAD: Final = ("RAN", "ENDED", "SECONDS", "COMMAND")
_MOST_NAMED: Final = 10


@click.command()
@click.argument("run")
@json_option
@click.pass_obj
def show(place: Place, /, run: str, as_json: bool) -> None:
    """Show all that is kept of one attempt: what it claimed, what was measured, and what followed.

    RUN is its id, as `handoffd runs` lists it.
    """
    answer = ask(place, "run", run=run)
    if as_json:
        print_json(answer.json)
        return
    print_lines(list(run_report(answer.json)))


def run_report(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines for an answer of `GET /v1/run`."""
    run = found["run"]
    ended = styled(run["result"] or "running")
    whose = f"{called(run)} {plain(run['story'] or '–')}"
    yield f"{whose}, {plain(run['step'])}, attempt {run['attempt']}: {ended}"
    if run["why"]:
        yield f"why: {plain(run['why'])}"
    yield from _executed(found)
    yield from _refused(found["commands"])
    yield from _claimed(found)
    yield from _measured(found)
    if found["commands"]:
        rows = [
            [one["what"], _end_of(one), _seconds(one["seconds"]), plain(" ".join(one["argv"]))]
            for one in found["commands"]
        ]
        yield from ("", *fitting(_COMMANDS_HEAD, rows, (), screen_width(), text=("COMMAND",)))
    if found["events"]:
        yield ""
        told = ((event["at"], event["what"].replace(run["run"], "it")) for event in found["events"])
        yield from (f"{moment(at)}  {plain(what)}" for at, what in told)
    yield f"next: handoffd log --run {run['run']}"


def _executed(found: dict[str, Any]) -> Iterator[str]:
    """Yield who made the attempt, when, in which sandbox, and for how much."""
    run = found["run"]
    model = f" ({plain(run['model'])})" if run["model"] else ""
    ends = f" to {moment(run['ended_at'])}" if run["ended_at"] else ""
    when = f", {moment(run['started_at'])}{ends}" if run["started_at"] else ""
    held = next((one["sandbox"] for one in found["commands"] if one["what"] == "executor"), None)
    yield f"executor: {plain(run['executor'])}{model}{when}; sandbox: {held or 'unknown'}"
    if run["usage"]:
        tokens, cost = used(run["usage"])
        yield f"used: {tokens} tokens, cost {cost}"
    elif run["result"] is not None:
        yield "used: not known, as its agent did not say"


def _refused(commands: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield what the sandbox has kept from its programs."""
    paths = tuple(dict.fromkeys(path for one in commands for path in one.get("refused", ())))
    if paths:
        yield f"out of reach, as its output says: {_named(paths)}"
        yield "  its sandbox keeps a run to its project; `sandbox` in the settings lets in more"


def _claimed(found: dict[str, Any]) -> Iterator[str]:
    """Yield what the hand-off said, and which of it is not so."""
    said = found["handoff"]
    if said is None:
        return
    reason = f" ({plain(said['reason'])})" if said.get("reason") else ""
    tests = f"; tests: {counts_in_words(said['tests'])}" if said.get("tests") else ""
    yield f"claimed: {plain(said.get('status') or 'nothing')}{reason}{tests}"
    if said.get("summary"):
        yield f"  {plain(said['summary'])}"
    if found["untouched"]:
        yield f"  it did not change: {_named(found['untouched'])}"


def _measured(found: dict[str, Any]) -> Iterator[str]:
    """Yield what the daemon has found: tests, checks, and which files were changed."""
    tests, check, changed = found["run"]["tests"], found["post_check"], found["changed"]
    named = [convert(one, PostCheck) for one in found.get("post_checks", ())]
    before = f"; before the story: {counts_in_words(found['before'])}" if found["before"] else ""
    if tests:
        told = counts_in_words(tests) if tests["verified"] else "only an exit code is known"
        yield f"measured: {plain(tests['fault'] or told)}{before}"
        yield from (f"  {word}: {_named(tests[key])}" for key, word in _LISTED if tests[key])
        yield from (f"  {plain(tests[key])}" for key in ("unproven", "note") if tests.get(key))
    elif not check and not named and found["run"]["result"]:
        yield f"measured: nothing, no check was run{before}"
    if check:
        ended = "did not end in time" if check["timed_out"] else "passed" if check["passed"] else "failed"
        code = f" (exit code {check['code']})" if check.get("code") is not None else ""
        yield f"post_check: {plain(check['fault'] or ended)}{code}"
    yield from (f"post_check: {plain(checks_in_words([one]))}" for one in named)
    if changed:
        strays = (
            f", {changed['strays']} of them outside of what the step may write" if changed["strays"] else ""
        )
        came, went = changed.get("added_lines") or 0, changed.get("removed_lines") or 0
        lines = f" (+{came:,} -{went:,} lines)" if came or went else ""
        yield f"changed: {plain(changed['unknown'] or counted(changed['count'], 'file'))}{lines}{strays}"
        yield from (f"  {word}: {_named(changed[key])}" for key, word in _CHANGED if changed.get(key))


_LISTED: Final = (("failing", "failing"), ("regressed", "passed before"))
_CHANGED: Final = (
    ("outside", "outside"), ("reverted", "put back"), ("files", "files"),
    ("own", "handoffd's own, by its agent or by others"),
)  # fmt: skip


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(map(plain, names[:_MOST_NAMED]))}{more}"


_ENDED_BY: Final = {"deadline": "timeout", "stop": "stopped", "outside": "killed"}


def _end_of(one: dict[str, Any]) -> str:
    """Return how a program has ended, in a word or two."""
    if one["by"] is None:
        return "runs"
    if one["by"] != "itself":
        return _ENDED_BY.get(one["by"], "lost")
    return f"exit {one['code']}" if one["signal"] is None else f"signal {one['signal']}"


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.1f}"


# --- report ------------------------------------------------------------------------------------------
@click.command()
@project_argument
@click.option("--project", "-p", "named", metavar="PROJECT", help="Same as PROJECT.")
@click.option("--since", metavar="WHEN", default="12h", show_default=True, help=f"Since then: {WHEN}.")
@click.option("--until", metavar="WHEN", help="Only what happened before then.")
@click.option("--markdown", is_flag=True, help="Print Markdown, with every entry.")
@click.option("--html", is_flag=True, help="Print one HTML file that needs no other.")
@json_option
@click.pass_obj
def report(place: Place, /, project: str | None, named: str | None, **asked: Any) -> None:
    """Report on PROJECT or all projects: what landed, what needs you, what failed, what goes on.

    Each line that needs you has the command to type. What an agent claimed and the daemon measured otherwise
    is listed, too; then what the runs cost, and what the time was spent on.
    """
    forms = [form for form in ("markdown", "html", "as_json") if asked[form]]
    if len(forms) > 1:
        raise click.UsageError("--markdown, --html and --json exclude each other")
    word = project or named
    root = None if word is None else place.project(word)
    answer = ask(place, "report", project=root, since=asked["since"], until=asked["until"])
    if asked["as_json"]:
        print_json(answer.json)
        return
    from msgspec import convert

    from handoffd.report.rendering import as_html, as_markdown, as_text
    from handoffd.report.values import Report

    shown = as_html if asked["html"] else as_markdown if asked["markdown"] else as_text
    click.echo(shown(convert(answer.json, Report)))
    if not answer.daemon and not forms:
        print_lines(["", no_daemon()])


# --- tonight -----------------------------------------------------------------------------------------
@click.command()
@click.argument("projects", metavar="[PROJECT]...", nargs=-1, shell_complete=project_names)
@click.option("--until", metavar="WHEN", help="Until then: 07:30, 8h, or 2026-01-31T07:00; 08:00 without it.")
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
    """Yield where the stories are that are over and were not merged here, with the commands for each.

    The ones in a project's own folder are all in one place.
    """
    from handoffd.engine.wording import first_few

    here: dict[str, list[str]] = {}
    for story in found:
        if (where := story.get("whereabouts")) and not where["branch"]:  # older daemons send none
            here.setdefault(story["project"], []).append(story["story"])
    for story in found:
        if story.get("taken"):
            yield f"{called(story)} {plain(story['story'])}: {plain(story['taken'])}"
        if where := story.get("whereabouts"):
            own = [story["story"]] if where["branch"] else here.pop(story["project"], [])
            if not own:
                continue
            project = {"project": story["project"], "called": story["name"]}
            yield f"{called(story)} {first_few(own, 3)}: {placed(where)}"
            yield from (f"    {line}" for line in ways(where, project, story["story"]))


def _outcome(story: dict[str, Any]) -> str:
    """Return what a story has come to; of an open one, where it is: `impl failing`."""
    if story["outcome"] != "open":
        return styled(story["outcome"])
    return f"{plain(story['step'])} {styled(story['status'] or 'running')}"


# --- claims --------------------------------------------------------------------------------------------
_CLAIMS_HEAD: Final = ("EXECUTOR", "STEP", "RUNS", "CLAIMS", "MEASURED", "MET", "", "NOT SO")
_CLAIMS_SPARE: Final = ("RUNS", "CLAIMS", "NOT SO")


@click.command()
@project_argument
@click.option("--by", type=click.Choice(("executor", "step")), help="Sum up by one of them; both without it.")
@click.option("--since", metavar="WHEN", help=f"Only runs that ended since then: {WHEN}; 4w without it.")
@click.option("--until", metavar="WHEN", help="Only runs that ended before then.")
@json_option
@click.pass_obj
def claims(place: Place, /, project: str | None, as_json: bool, **asked: str | None) -> None:
    """Sum up how often the claims of agents met what the daemon measured, of PROJECT or of all projects.

    CLAIMS: runs whose hand-off says that the step passes; MEASURED: of these, the ones that tests or checks
    were run for; MET: all that was measured is as claimed. NOT SO counts what was not: the outcome (it did
    not pass), the counts of tests, the files that it says it has changed.
    """
    named = None if project is None else place.project(project)
    found = ask(place, "claims", project=named, **asked).json
    if as_json:
        print_json(found)
    elif found["rows"]:
        print_lines(claims_report(found, screen_width(), project))
    else:
        click.echo("No run has ended since then.")


def claims_report(found: Json, width: int | None = None, project: str | None = None) -> list[str]:
    """Return the lines for an answer of `GET /v1/claims`, at most `width` columns wide (None: any).

    `project`: as it was asked for; None: of all.
    """
    rows = [_claims_row(row) for row in (*found["rows"], {**found["total"], "executor": "all"})]
    lines = fitting(_CLAIMS_HEAD, rows, _CLAIMS_SPARE, width)
    if found["total"]["measured"] > found["total"]["met"]:
        of = f" {quote(project)}" if project is not None else ""
        lines += ["", f"each that was not met: handoffd report{of} --since {found['since']}"]
    return lines


def _claims_row(row: Json) -> list[str]:
    share = f"{100 * row['met'] // row['measured']} %" if row["measured"] else "–"
    numbers = [str(row[name]) for name in ("runs", "claims", "measured", "met")]
    false = ", ".join(f"{about} {count}" for about, count in row["false"].items() if count)
    return [_cell(row["executor"]), plain(row["step"] or ""), *numbers, share, false]


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
    help=f"Only runs that ended since then: {WHEN}.",
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
    return [str(row["runs"]), *(f"{row[name]:,}" if row["measured"] else "–" for name in _TOKENS), *used(row)]


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
        of = f"{unmeasured} of {counted(total['runs'], 'run')}"
        remarks.append(f"Tokens and cost of {of} are not known: the agents did not report them.")
    if total["unpriced"]:
        of = f"{total['unpriced']} of {counted(total['runs'], 'run')}"
        remarks.append(f"The cost of {of} is not known: see `prices` in the settings.")
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
