"""What `handoffd journal` found and did, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

from handoffd.api.verification import Finding, Report
from handoffd.cli.wording import moment, plain, shorten, start_command
from handoffd.engine.usage import counted
from handoffd.journal.backup import Copy, Repaired
from handoffd.supervise.restoring import Restoration

_WIDTH = 300
"""Of what was recorded and what comes out now: enough to see what it is."""

_MOST_PROJECTS = 20


def verified(report: Report) -> list[str]:
    """Return what a verification found: the findings, then one line that says it all."""
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
    """Return the command that shows more of a finding, or mends what has none."""
    if first.kind == "track" and first.project:
        return f"handoffd stop && handoffd journal repair {quote(plain(first.project))}"
    if first.seq is None or first.kind in {"missing", "unreadable"}:
        return "handoffd stop && handoffd journal restore FILE   (the latest backup that is clean)"
    project = f" {plain(first.project)}" if first.project else ""
    return f"handoffd events{project} --after {max(first.seq - 3, 0)} --limit 5"


def repaired(done: Repaired, paused: Sequence[str] = ()) -> list[str]:
    """Return what was made again, what was not, and what to do now.

    `paused`: projects that a restore had left out, and that it holds up now as it did the others.
    """
    lines = [f"{plain(key.project)} ({key.track}) was made again: {why}" for key, why in done.made.items()]
    lines += [
        f"{plain(key.project)} ({key.track}) cannot be made again from its events: {why}"
        for key, why in done.left.items()
    ]
    lines += [
        f"{plain(root)} is paused, because what has happened since the backup is not in it:"
        f" handoffd resume {plain(root)}"
        for root in paused
    ]
    if done.left:
        return [*lines, "  next: handoffd journal restore FILE   (the latest backup that is clean)"]
    return (
        [*lines, f"  next: {start_command()}"] if lines else ["Every track is what its last event has left."]
    )


def backed_up(copy: Copy) -> list[str]:
    """Return where the copy is and what is in it."""
    size = f"{copy.size / 1024 / 1024:.1f} MiB"
    if copy.unsound:
        return [
            f"{plain(copy.file)}: {size}, up to event {copy.newest}. A restore leaves out"
            f" {', '.join(map(plain, copy.unsound[:5]))}, whose record was changed outside handoffd.",
            "  next: handoffd stop && handoffd journal repair   (then back up again)",
        ]
    return [
        f"{plain(copy.file)}: {size}, up to event {copy.newest}, checked.",
        f"  to put it back: handoffd stop && handoffd journal restore {plain(copy.file)}",
    ]


def restored(done: Restoration) -> list[str]:
    """Return what a restore did, what it means, and what to do now."""
    lines = [f"{plain(done.journal)} is the backup {plain(done.file)} now, up to event {done.newest}."]
    if done.replaced is not None:
        lines.append(f"  the journal it replaced: {plain(done.replaced)}")
    told = {
        "ended": done.ended,
        "still in flight, and adopted": done.kept,
        "in flight at the backup, overtaken since": done.overtaken,
    }
    lines += [f"  {what}: {', '.join(map(plain, runs))}" for what, runs in told.items() if runs]
    lines += [
        f"{plain(one.project)} ({one.track}) is left out, for its record in the backup was changed outside"
        f" handoffd: {one.why}. Nothing is dispatched in it."
        for one in done.left_out
    ]
    if done.left_out:
        lines.append("  next for what is left out: handoffd journal repair, or a backup in which it is sound")
    if not done.paused and done.left_out:
        return lines
    if not done.paused:
        return [*lines, f"Nothing waits for you: {start_command()}"]
    return [
        *lines,
        f"{_projects(len(done.paused))} paused, because what has happened since the backup is not in it.",
        f"  next: {start_command()}, look at handoffd status, then for each of them: handoffd resume PROJECT",
        *(f"    {plain(root)}" for root in done.paused[:_MOST_PROJECTS]),
        *([f"    and {len(done.paused) - _MOST_PROJECTS} more"] if len(done.paused) > _MOST_PROJECTS else []),
    ]


def _projects(count: int) -> str:
    return counted(count, "project is", "projects are")


def _sum(report: Report) -> str:
    place = report.journal if report.project is None else f"{report.project} in {report.journal}"
    said = f"{counted(report.replayed, 'decision')} of {counted(report.tracks, 'track')} made again"
    if report.older:
        said += f", {report.older} {'is' if report.older == 1 else 'are'} of before a replay can begin"
    if report.unreplayed:
        said += f", {report.unreplayed} after a finding {'was' if report.unreplayed == 1 else 'were'} not"
    verdict = "all as recorded" if report.clean else _count(report)
    return f"{plain(place)}: {said}; {verdict}."


def _count(report: Report) -> str:
    count = len(report.findings) + report.further_findings
    return counted(count, "thing is not as it should be", "things are not as they should be")


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
