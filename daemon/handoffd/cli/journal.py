"""`handoffd journal`: verify, repair, back up and restore it; `gc`: remove expired files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from handoffd.api.verification import Finding, Report
from handoffd.cli.asking import json_option, print_json, project_argument
from handoffd.cli.wording import moment, plain, shorten, size_of, start_command, table
from handoffd.engine.wording import counted
from handoffd.entrance.place import Place
from handoffd.entrance.requests import account, either
from handoffd.entrance.requests import account as person
from handoffd.errors import Locked, NotFound
from handoffd.fleet.journal_restore import Restoration
from handoffd.journal.backup import Copy, Repaired

if TYPE_CHECKING:
    from handoffd.engine.track import TrackKey


# --- for people ----------------------------------------------------------------------------------------
_WIDTH = 300
"""Shown of a recorded and a replayed value: enough to recognise them."""

_MOST_PROJECTS = 20


def verified(report: Report) -> list[str]:
    """Return the findings of a verification, then a summary line."""
    lines = [line for finding in report.findings for line in _finding(finding)]
    if report.further_findings:
        lines.append(f"and {report.further_findings} more.")
    lines += [
        f"Restored {moment(str(one['at']))} from a backup that ended at event {one['after']}; "
        f"numbers go on at {one['next']}."
        for one in report.restores
    ]
    lines.append(_sum(report))
    if not report.clean:
        lines.append(f"  next: {_next(report.findings[0])}")
    return lines


def _next(first: Finding) -> str:
    """Return the command that shows more of a finding, or repairs a journal without replayable events."""
    if first.kind in {"track", "flow"} and first.project:
        return f"handoffd stop && handoffd journal repair {quote(plain(first.project))}"
    if first.seq is None or first.kind in {"missing", "unreadable"}:
        return "handoffd stop && handoffd journal restore FILE   (the latest clean backup)"
    project = f" {plain(first.project)}" if first.project else ""
    return f"handoffd events{project} --after {max(first.seq - 3, 0)} --limit 5"


def repaired(done: Repaired, paused: Sequence[str] = ()) -> list[str]:
    """Return the tracks that were rebuilt, the ones that could not be, and the next command.

    `paused`: projects that an earlier restore left out; the repair pauses them like the restored ones.
    """
    lines = [f"{plain(key.project)} ({key.track}) was rebuilt: {why}" for key, why in done.made.items()]
    lines += [
        f"{plain(key.project)} ({key.track}) cannot be rebuilt from its events: {why}"
        for key, why in done.left.items()
    ]
    lines += [
        f"{plain(root)} is paused, because the backup lacks what happened since:"
        f" handoffd resume {plain(root)}"
        for root in paused
    ]
    if done.left:
        return [*lines, "  next: handoffd journal restore FILE   (the latest clean backup)"]
    return [*lines, f"  next: {start_command()}"] if lines else ["Every track agrees with its last event."]


def backed_up(copy: Copy) -> list[str]:
    """Return where the copy is and what it contains."""
    size = f"{copy.size / 1024 / 1024:.1f} MiB"
    if copy.unsound:
        return [
            f"{plain(copy.file)}: {size}, up to event {copy.newest}. A restore will leave out"
            f" {', '.join(map(plain, copy.unsound[:5]))}: its record was changed outside handoffd.",
            "  next: handoffd stop && handoffd journal repair   (then back up again)",
        ]
    return [
        f"{plain(copy.file)}: {size}, up to event {copy.newest}, checked.",
        f"  to restore it: handoffd stop && handoffd journal restore {plain(copy.file)}",
    ]


def restored(done: Restoration) -> list[str]:
    """Return what a restore did, its consequences, and the next command."""
    lines = [f"{plain(done.journal)} is now the backup {plain(done.file)}, up to event {done.newest}."]
    if done.replaced is not None:
        lines.append(f"  the journal it replaced: {plain(done.replaced)}")
    told = {
        "ended": done.ended,
        "still in flight, and adopted": done.kept,
        "in flight at the backup, overtaken since": done.overtaken,
    }
    lines += [f"  {what}: {', '.join(map(plain, runs))}" for what, runs in told.items() if runs]
    lines += [
        f"{plain(one.project)} ({one.track}) is left out: its record in the backup was changed outside"
        f" handoffd ({one.why}). The daemon dispatches nothing there."
        for one in done.left_out
    ]
    if done.left_out:
        lines.append("  next for the projects left out: handoffd journal repair, or restore a clean backup")
    if not done.paused and done.left_out:
        return lines
    if not done.paused:
        return [*lines, f"No project needs you: {start_command()}"]
    return [
        *lines,
        f"{_projects(len(done.paused))} paused, because the backup lacks what happened since.",
        f"  next: {start_command()}, look at handoffd status, then for each of them: handoffd resume PROJECT",
        *(f"    {plain(root)}" for root in done.paused[:_MOST_PROJECTS]),
        *([f"    and {len(done.paused) - _MOST_PROJECTS} more"] if len(done.paused) > _MOST_PROJECTS else []),
    ]


def _projects(count: int) -> str:
    return counted(count, "project is", "projects are")


def _sum(report: Report) -> str:
    place = report.journal if report.project is None else f"{report.project} in {report.journal}"
    of = counted(report.tracks, "track") + (f" and {counted(report.flows, 'flow')}" if report.flows else "")
    said = f"{counted(report.replayed, 'decision')} of {of} replayed"
    if report.older:
        said += f", {report.older} {'is' if report.older == 1 else 'are'} too old to be replayed"
    if report.unreplayed:
        said += f", {report.unreplayed} after a finding not replayed"
    verdict = "all as recorded" if report.clean else _count(report)
    return f"{plain(place)}: {said}; {verdict}."


def _count(report: Report) -> str:
    count = len(report.findings) + report.further_findings
    return counted(count, "problem")


def _finding(finding: Finding) -> Iterator[str]:
    about = [f"event {finding.seq}" if finding.seq is not None else "journal"]
    about += [plain(text) for text in (finding.event, finding.project, finding.track) if text]
    yield f"{finding.kind}: {', '.join(about)}: {plain(finding.message)}"
    for difference in finding.differences:
        yield f"    {difference.what}"
        yield f"        recorded  {shorten(difference.recorded, _WIDTH)}"
        yield f"        now       {shorten(difference.replayed, _WIDTH)}"
    if finding.engine is not None and finding.differences:
        yield f"    decided by handoffd {plain(finding.engine)}"


# --- journal -------------------------------------------------------------------------------------------


@click.group()
def journal() -> None:
    """Verify, repair, back up or restore the journal, the file that records every event."""


@journal.command()
@project_argument
@click.option("--project", "-p", "named", metavar="PROJECT", help="The same as PROJECT.")
@json_option
@click.pass_obj
def verify(place: Place, project: str | None, named: str | None, as_json: bool) -> None:
    """Replay every recorded decision and report each that comes out differently.

    Of PROJECT, or of all projects. The daemon may run. Exit code 1: there are problems.
    """
    from handoffd.api.verification import Verification
    from handoffd.journal.replay import Recordings

    word = project or named
    with closing(Recordings(place.settings().journal)) as source, _progress("verifying") as tell:
        root = None if word is None else _root(place.project(word), source.roots())
        report = Verification(source, root).run(tell)
    if as_json:
        print_json(report.as_json())
    else:
        click.echo("\n".join(verified(report)))
    if not report.clean:
        click.get_current_context().exit(1)


@journal.command()
@click.argument("project", required=False)
@json_option
@click.pass_obj
def repair(place: Place, project: str | None, as_json: bool) -> None:
    """Rebuild tracks and flows that were changed outside handoffd from their events; stop the daemon first.

    Of PROJECT, or of all projects. Exit code 1: a track cannot be rebuilt.
    """
    import anyio

    from handoffd.api.verification import Verification
    from handoffd.clock import SystemClock
    from handoffd.files.locks import acquire, daemon_lock_path
    from handoffd.fleet import journal_restore
    from handoffd.journal.backup import repair as repair_journal
    from handoffd.journal.replay import Recordings

    settings = place.settings()
    try:
        lock = acquire(daemon_lock_path(settings.state_dir), f"the state directory {settings.state_dir}")
    except Locked as locked:
        raise Locked(locked.message, hint="handoffd stop  # executors go on") from locked
    with lock, closing(Recordings(settings.journal)) as source, _progress("deciding again") as tell:
        root = None if project is None else _root(place.project(project), source.roots())
        verification = Verification(source, root)
        verification.run(tell)
        made, flows = verification.made(), verification.made_flows()
        done = repair_journal(settings.journal, made, root, flows)
        restored = max((int(one["after"]) for one in source.restored()), default=0)
        seqs = {key: one.seq for key, one in made.items()} | {key: one.seq for key, one in flows.items()}
        late = {key for key in done.made if seqs[key] <= restored}
        _quiet()
        paused = anyio.run(journal_restore.catch_up, settings, late, account(), SystemClock()) if late else ()
    if as_json:
        told = {"made": _by_track(done.made), "left": _by_track(done.left), "paused": paused}
        print_json({"type": "repaired", **told})
    else:
        click.echo("\n".join(repaired(done, paused)))
    if done.left:
        click.get_current_context().exit(1)


def _by_track(tracks: Mapping[TrackKey, str]) -> list[dict[str, str]]:
    return [{"project": key.project, "track": key.track, "why": why} for key, why in tracks.items()]


@journal.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@json_option
@click.pass_obj
def backup(place: Place, file: Path, force: bool, as_json: bool) -> None:
    """Copy the journal's current contents to FILE; the daemon may run.

    The copy is checked before it is named FILE, so FILE is complete or missing.
    """
    from handoffd.journal.backup import back_up

    with _progress("copying") as tell:
        copy = back_up(place.settings().journal, file.absolute(), force=force, progress=tell)
    if as_json:
        print_json({"type": "backed_up", **to_builtins(copy)})
    else:
        click.echo("\n".join(backed_up(copy)))


@journal.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--end-executors", is_flag=True, help="End executors that are not recorded in FILE.")
@json_option
@click.pass_obj
def restore(place: Place, file: Path, end_executors: bool, as_json: bool) -> None:
    """Replace the journal by the backup FILE and keep the old journal; the daemon must not run.

    Afterwards every project waits for `handoffd resume`: the backup lacks what happened since, so only
    STATE.json and the project's files show it. A project whose record in FILE was changed outside handoffd
    is left out; then the exit code is 1.
    """
    import anyio

    from handoffd.clock import SystemClock
    from handoffd.fleet import journal_restore

    _quiet()
    request = journal_restore.Request(file=file.absolute(), by=account(), end_executors=end_executors)
    with _progress("copying") as tell:
        done = anyio.run(journal_restore.restore, place.settings(), request, SystemClock(), tell)
    if as_json:
        print_json({"type": "restored", **to_builtins(done)})
    else:
        click.echo("\n".join(restored(done)))
    if done.left_out:
        click.get_current_context().exit(1)


def _quiet() -> None:
    """Silence the daemon's own log: the answer has all that matters."""
    from handoffd.app.logs import configure_logging
    from handoffd.settings.model import LogSettings

    configure_logging(LogSettings(format="text", level="error"), stream=sys.stderr, environment={})


def _root(name: str, known: Mapping[str, str]) -> str:
    """Return the root of the project with this name or path, also of removed projects."""
    path = Path(name)
    for folder in (path, *path.parents) if path.is_absolute() else ():
        if str(folder) in known:
            return str(folder)
    called = [root for root, title in known.items() if title == name]
    if len(called) == 1:
        return called[0]
    if called:
        message = f"{name} is the name of several projects; give a path: {', '.join(called)}"
        raise NotFound(message, hint="handoffd projects")
    raise NotFound(f"the journal has no project named {name}", hint="handoffd projects")


class _Bar:
    """One line on the terminal that shows progress."""

    def __init__(self, what: str, shown: bool) -> None:
        self._what = what
        self._shown = shown
        self._said = ""

    def __call__(self, done: int, of: int) -> None:
        said = f"{self._what}: {100 * done // max(of, 1)} %"
        if self._shown and said != self._said:
            click.echo(f"\r{said}", err=True, nl=False)
            self._said = said

    def clear(self) -> None:
        if self._said:
            click.echo("\r" + " " * len(self._said) + "\r", err=True, nl=False)


@contextmanager
def _progress(what: str) -> Iterator[_Bar]:
    """Show a progress line, on a terminal only."""
    bar = _Bar(what, sys.stderr.isatty())
    try:
        yield bar
    finally:
        bar.clear()


# --- gc ------------------------------------------------------------------------------------------------
_KINDS = {
    "run": "records of runs",
    "copy": "copies in projects",
    "notice": "notices",
    "events": "events",
    "workspace": "clones",
    "journal": "journal",
    "replaced journals": "replaced journals",
}
_MOST_LINES = 20
LIMIT_S = 1800.0
"""Limit for a clean-up by the daemon: a year of runs on a slow disk, projects that do not answer."""


@click.command()
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@json_option
@click.pass_obj
def gc(place: Place, dry_run: bool, as_json: bool) -> None:
    """Remove files that have outlived their time in the settings (`retention`).

    Live runs, runs that were not judged yet, and files of other programs stay.
    """
    by = person()

    def without() -> dict[str, Any]:
        from handoffd.entrance import offline

        return offline.gc(place.settings(), dry_run=dry_run, by=by)

    body = {"dry_run": dry_run, "by": by}
    answer = either(place, lambda _: place.client(LIMIT_S).post("/v1/gc", body), without)
    if as_json:
        print_json(answer.json)
        return
    click.echo("\n".join(report(answer.json)))
    for problem in answer.json["problems"]:
        click.echo(f"warning: {plain(problem)}", err=True)


def report(answer: Mapping[str, Any]) -> list[str]:
    """Return the lines for an answer of `POST /v1/gc`."""
    sizes = [_size(one) for one in answer["sizes"][:_MOST_LINES]]
    lines = table(("WHAT", "PROJECT", "COUNT", "SIZE"), sizes) if sizes else []
    if len(answer["sizes"]) > _MOST_LINES:
        lines.append(f"… and {len(answer['sizes']) - _MOST_LINES} more (--json)")
    return [*lines, "", *_gone(answer), *_kept(answer["kept"]), *_clones(answer.get("clones", ()))]


def _size(one: Mapping[str, Any]) -> list[str]:
    what = _KINDS.get(one["kind"], plain(one["kind"]))
    return [what, shorten(one["project"] or "–", 60), f"{one['count']:,}", size_of(one["bytes"])]


def _gone(answer: Mapping[str, Any]) -> Iterator[str]:
    did = "would go" if answer["dry_run"] else "removed"
    if not answer["doomed"]:
        yield f"{did}: nothing"
    counts, weights = Counter[str](), Counter[str]()
    for one in answer["doomed"]:
        counts[one["kind"]] += 1
        weights[one["kind"]] += one["bytes"]
    for kind, count in counts.items():
        yield f"{did}: {count:,} × {_KINDS.get(kind, plain(kind))}, {size_of(weights[kind])}"
    if answer["dry_run"]:
        shown = answer["doomed"][:_MOST_LINES]
        yield from (f"    {plain(one['what'])}: {plain(one['why'])}" for one in shown)
        if len(answer["doomed"]) > _MOST_LINES:
            yield f"    … and {len(answer['doomed']) - _MOST_LINES} more (--json)"


def _kept(kept: Mapping[str, int]) -> Iterator[str]:
    if kept:
        yield "runs kept: " + ", ".join(f"{count:,} {why}" for why, count in sorted(kept.items()))


def _clones(kept: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each clone that stays, the largest first."""
    for one in sorted(kept, key=lambda one: -one["bytes"])[:_MOST_LINES]:
        project = shorten(one["project"], 60)
        yield f"clone kept: {plain(one['story'])} of {project}, {size_of(one['bytes'])}: {plain(one['kept'])}"
    if len(kept) > _MOST_LINES:
        yield f"… and {len(kept) - _MOST_LINES} more (handoffd workspaces)"
