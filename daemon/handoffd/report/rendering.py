"""The report for people: text for a terminal, Markdown, or HTML as one file that needs no other.

All three show the same sections. Names, reasons and claims come from projects and agents: what cannot be
printed becomes `?`, and what means something to Markdown or HTML is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, tzinfo
from typing import Final

from msgspec import Struct

from handoffd.engine.notice import ITEM
from handoffd.engine.run import amount, dollars
from handoffd.engine.wording import beginning, columns, counted, first_few, fitted, shortened, span, wrapped
from handoffd.report.values import Coming, Cost, Down, DroppedStory, EndedStory, Entry, Report, TimeSpent
from handoffd.settings.paths import shared

WIDTH: Final = 80
_NAME: Final = 20
"""Columns of project and story."""
_MOST_SAID: Final = 4
"""Lines of a reason that waits for a person."""
_FEW: Final = 6
"""Entries of a section on a screen; Markdown and HTML have all of them."""


class Line(Struct, frozen=True):
    """A line of a section: whom it is about, the text, and the command to type."""

    who: str
    said: str
    command: str | None = None
    instead: str | None = None
    """Another command, for the opposite."""
    title: str | None = None
    """The story's title; a screen has it where there is room."""

    @property
    def commands(self) -> tuple[str, ...]:
        """What to type, one or the other."""
        return tuple(one for one in (self.command, self.instead) if one is not None)


class Section(Struct, frozen=True):
    """A part of the report. `more`: entries that the report leaves out. `whole`: a screen cuts none."""

    title: str
    lines: tuple[Line, ...]
    more: int = 0
    whole: bool = False

    @property
    def count(self) -> int:
        """How many entries there are."""
        return len(self.lines) + self.more


# --- what is shown ------------------------------------------------------------------------------------
def headline(report: Report, zone: tzinfo | None = None) -> str:
    """Return what the report is about, in one line; times by the clock of `zone` (None: the machine's).

    Both have their days unless all of it is of the day of the report; their years, if it is not of that year.
    """
    times = [at.astimezone(zone) for at in (report.since, report.until)]
    days = {time.date() for time in (*times, report.at.astimezone(zone))}
    year = " %Y" if len({day.year for day in days}) > 1 else ""
    form = "%H:%M" if len(days) == 1 else f"%d %b{year} %H:%M"
    since, until = (time.strftime(form) for time in times)
    return (
        f"From {since} to {until}: {counted(report.cost.runs, 'run')} ended,"
        f" {counted(report.projects, 'project')} with news"
    )


def warnings(report: Report, zone: tzinfo | None = None) -> list[str]:
    """Return what a reader must know first: times without a daemon, events that are missing."""
    told = [_down(one, zone, report.at) for one in report.down]
    return told + ([f"Some of it is missing: {printable(report.incomplete)}."] if report.incomplete else [])


def sections(report: Report, zone: tzinfo | None = None) -> list[Section]:
    """Return the parts that have something to say; cost and time always do once something has run."""
    found = [
        Section("Landed or done", tuple(_landed(report)), report.more.landed),
        Section("Waits for you", tuple(_waiting(report, zone)), report.more.waiting, whole=True),
        Section("Paused or set aside", tuple(_paused(report, zone)), report.more.paused),
        Section("Aborted or discarded", tuple(_dropped(report, zone)), report.more.dropped),
        Section("Failed", tuple(_failed(report)), report.more.failed),
        Section("Claimed, and not so", tuple(_false(report)), report.more.false),
        Section("Cost", tuple(_cost(report.cost))),
        Section("Time", tuple(_time(report.time))),
        Section("Goes on", tuple(_coming(one, zone, report.at) for one in report.next), report.more.next),
        Section("The coming night", (Line("", report.tonight),) if report.tonight else ()),
    ]
    return [section for section in found if section.lines]


def _who(name: str, story: str | None) -> str:
    return printable(f"{name} {story}" if story else name)


def _title(one: Entry) -> str | None:
    return printable(one.title) if one.title else None


def _landed(report: Report) -> Iterator[Line]:
    for one in report.landed:
        command = printable(one.command) if one.command and not one.branch else None
        yield Line(_who(one.name, one.story), printable(_where(one)), command, title=_title(one))


def _where(one: EndedStory) -> str:
    """Return where the work of a story is that is over."""
    at = f"at {(one.commit or '')[:12]}"
    if one.outcome == "done":
        in_folder = "done, in its folder, not committed" if one.says else "done"
        return f"done, on the branch {one.branch}" if one.branch else in_folder
    match one.how:
        case "branch":
            return f"on its branch {one.onto} {at}"
        case "command":
            taken = one.told or f"taken by the project's command, {at}"
            return f"for {one.onto}: {taken}"
    return f"merged into {one.onto} {at}"


def _waiting(report: Report, zone: tzinfo | None) -> Iterator[Line]:
    for one in report.waiting:
        since = f"since {moment(one.since, zone, report.at)}, " if one.since else ""
        step = f"{one.step}: " if one.step else ""
        instead = printable(one.instead) if one.instead else None
        said = printable(f"{since}{step}{one.why}")
        yield Line(_who(one.name, one.story), said, printable(one.command), instead, _title(one))


def _paused(report: Report, zone: tzinfo | None) -> Iterator[Line]:
    for one in report.paused:
        step = f"{one.step}: " if one.step else ""
        since = f" since {moment(one.since, zone, report.at)}" if one.since else ""
        said = printable(f"{step}{one.why}{since}")
        yield Line(_who(one.name, one.story), said, printable(one.command), title=_title(one))


def _dropped(report: Report, zone: tzinfo | None) -> Iterator[Line]:
    for one in report.dropped:
        by = f" by {one.by}" if one.by else ""
        said = printable(f"{one.outcome}{by} at {moment(one.at, zone, report.at)}{_work_of(one)}")
        instead = printable(one.instead) if one.instead else None
        yield Line(_who(one.name, one.story), said, printable(one.command), instead, _title(one))


def _work_of(one: DroppedStory) -> str:
    """Return where the work is of a story that was dropped."""
    if one.kept is not None:
        return f", kept as {one.kept}"
    told = (one.says or "").removeprefix(f"{one.outcome}; ")
    if one.branch is None:
        return f"; {told}" if told else ""
    return f"; on the branch {one.branch}: {told}"


def _failed(report: Report) -> Iterator[Line]:
    for one in report.failed:
        times = counted(one.attempts, "attempt")
        then = ", then passed" if one.passed else ""
        said = printable(f"{one.step}, {times}{then}: {one.why}")
        yield Line(_who(one.name, one.story), said, title=_title(one))


def _false(report: Report) -> Iterator[Line]:
    for one in report.false:
        said = f"{one.step} {one.attempt}: said {one.claimed}; in fact {one.measured}"
        yield Line(_who(one.name, one.story), printable(said), title=_title(one))


_PERIODS: Final = {"day": "today", "daemon": "ever"}


def _cost(cost: Cost) -> Iterator[Line]:
    if not cost.runs and not cost.running and not cost.caps:
        return
    runs, going_on = counted(cost.runs, "run"), f"; {cost.running} still running" if cost.running else ""
    known = f"{dollars(cost.usd)}, {cost.tokens:,} tokens in {runs}"
    yield Line("", (known if cost.runs > cost.unmeasured else runs) + going_on)
    for cap in cost.caps:
        used, most = amount(cap.spent, cap.unit), amount(cap.cap, cap.unit)
        yield Line("", f"{_PERIODS.get(cap.scope, cap.scope)} {used} of {most} (caps.{cap.scope}_{cap.unit})")
    if cost.unmeasured:
        yield Line("", f"tokens and cost are not known: {counted(cost.unmeasured, 'run')}")
    if cost.unpriced:
        yield Line("", f"without a known price: {counted(cost.unpriced, 'run')} (`prices` in the settings)")


_SPENT: Final = (
    ("agents", "agents"), ("checks", "checks"), ("slots", "waiting for slots"), ("limits", "for limits"),
    ("people", "for people"), ("stories", "for other stories"), ("down", "without a daemon"),
)  # fmt: skip


def _time(time: TimeSpent) -> Iterator[Line]:
    spent = [(words, timedelta(seconds=getattr(time, field))) for field, words in _SPENT]
    told = ", ".join(f"{words} {span(length)}" for words, length in spent if length >= _LEAST)
    if told:
        yield Line("", told)


_LEAST: Final = timedelta(seconds=1)


def _coming(one: Coming, zone: tzinfo | None, near: datetime) -> Line:
    at = f"at {one.step}" if one.step else "starts next"
    at = f"starts {moment(one.at, zone, near)}" if one.at else at
    waits = f", {_waits(one.waits_for)}" if one.waits_for else ""
    rest = first_few(one.then, _FEW)
    said = printable(f"{at}{waits}{f'; then {rest}' if rest else ''}")
    return Line(_who(one.name, one.story), said, title=_title(one))


def _waits(why: str) -> str:
    """Return what is waited for, in a sentence; or the place in line (`3rd for a slot`), as it is."""
    return why if why[:1].isdigit() else f"waits for {why}"


_ENDS: Final = {
    "stopped": "it was stopped",
    "slept": "the machine slept, or hung",
    "died": "it was killed, or the machine was switched off",
}


def _down(down: Down, zone: tzinfo | None, near: datetime) -> str:
    since = moment(down.since, zone, near)
    if down.until is None:
        return f"No daemon runs since {since}: {_ENDS[down.how]}. Start it: handoffd run"
    length = span(down.until - down.since)
    return f"No daemon ran from {since} to {moment(down.until, zone, near)} ({length}): {_ENDS[down.how]}."


def moment(at: datetime, zone: tzinfo | None, near: datetime) -> str:
    """Return a time; with its day if that is a day or more from `near`, and with its year in another one."""
    local, day = at.astimezone(zone), near.astimezone(zone)
    if abs(at - near) < _DAY:
        return f"{local:%H:%M}"
    return f"{local:%d %b %H:%M}" if local.year == day.year else f"{local:%d %b %Y %H:%M}"


_DAY: Final = timedelta(days=1)


def printable(text: str) -> str:
    """Return a text in one line, `?` in place of what cannot be printed."""
    return "".join(sign if sign.isprintable() else "?" for sign in " ".join(text.split()))


# --- text ---------------------------------------------------------------------------------------------
def as_text(report: Report, zone: tzinfo | None = None) -> str:
    """Return the report as text of at most `WIDTH` columns, short enough for a screen."""
    told = [*warnings(report, zone), *(["Nothing has happened."] if report.is_quiet else [])]
    return "\n".join(
        screen(headline(report, zone), told, sections(report, zone), "handoffd report --markdown")
    )


def screen(
    head: str, told: Iterable[str], sections: Iterable[Section], whole: str, few: int = _FEW
) -> Iterator[str]:
    """Yield the lines of a screen, `few` of a section; `whole` is the command that shows every entry."""
    yield from (head, *(line for text in told for line in wrapped(text, WIDTH)))
    for section in sections:
        shown = section.lines if section.whole else section.lines[:few]
        rest = section.count - len(shown)
        counts = f" ({section.count})" if section.lines[0].who else ""
        yield from ("", f"{section.title}{counts}")
        yield from (text for line in shown for text in _text_of(line))
        if rest:
            yield f"  and {rest} more: {whole}"


def _text_of(line: Line) -> Iterator[str]:
    if not line.who:
        yield from (f"  {text}" for text in wrapped(line.said, WIDTH - 2))
        return
    who = line.who
    if columns(who) > _NAME:  # a path matters at its end
        who = f"…{beginning(who[::-1], _NAME - 1)[::-1]}"
    room = WIDTH - _NAME - 4
    # What a person decides by is worth more lines than one.
    said = _titled(line, room)
    told = (line.command and wrapped(said, room)) or [fitted(said, room)]
    rest = [fitted(" ".join(told[_MOST_SAID - 1 :]), room)] if len(told) >= _MOST_SAID else []
    for place, text in enumerate([*told[: _MOST_SAID - 1], *rest]):
        yield f"  {' ' * _NAME if place else who + ' ' * (_NAME - columns(who))}  {text}"
    # Whole, however long: half of it would be another command.
    yield from (f"      {command}" for command in line.commands)


def _titled(line: Line, room: int) -> str:
    """Return the text of a line, with the story's title where that leaves it whole."""
    left = _MOST_TITLE if line.command else min(room - columns(line.said) - 2, _MOST_TITLE)
    return f"{fitted(line.title, left)}: {line.said}" if line.title and left >= _LEAST_TITLE else line.said


_LEAST_TITLE, _MOST_TITLE = 12, 40


# --- a notice -----------------------------------------------------------------------------------------
_MOST_LINE: Final = 220


def as_lines(report: Report, zone: tzinfo | None = None) -> list[str]:
    """Return the report as the lines of a notice: what it is about, and what each section lists."""
    lines = [headline(report, zone), *warnings(report, zone)]
    for section in sections(report, zone):
        lines.append(f"{section.title}:")
        for line in section.lines[:_FEW]:
            who = ", ".join(part for part in (line.who, line.title) if part)
            told = shortened(f"{who}: {line.said}" if who else line.said, _MOST_LINE)
            lines.append(f"{ITEM}{told} > {' or '.join(line.commands)}" if line.command else f"{ITEM}{told}")
        rest = section.count - len(section.lines[:_FEW])
        lines += [f"and {rest} more"] if rest else []
    return lines


# --- Markdown -----------------------------------------------------------------------------------------
_MARKS: Final = re.compile(r"([\\`*_\[\]<>#!|~&])")


def as_markdown(report: Report, zone: tzinfo | None = None) -> str:
    """Return the report as Markdown."""
    lines = ["# Report", "", _escaped(headline(report, zone))]
    lines += [line for text in warnings(report, zone) for line in ("", f"**{_escaped(text)}**")]
    lines += ["", "Nothing has happened."] if report.is_quiet else []
    for section in sections(report, zone):
        lines += ["", f"## {section.title}", ""]
        for line in section.lines:
            who = f"**{_escaped(line.who)}** " if line.who else ""
            commands = f": {' or '.join(map(_code, line.commands))}" if line.command else ""
            title = f"{_escaped(line.title)}: " if line.title else ""
            lines.append(f"- {who}{title}{_escaped(line.said)}{commands}")
        lines += [f"- and {section.more} more"] if section.more else []
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return _MARKS.sub(r"\\\1", text)


def _code(text: str) -> str:
    """Return a text as code, whatever backticks it has."""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


# --- HTML ---------------------------------------------------------------------------------------------
def as_html(report: Report, zone: tzinfo | None = None) -> str:
    """Return the report as one HTML file, which loads nothing."""
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415  (only this form needs it)

    template = shared("config", "reports", "report.html").read_text("utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(template).render(
        headline=headline(report, zone),
        warnings=warnings(report, zone),
        sections=sections(report, zone),
        quiet=report.is_quiet,
    )
