"""The plan of a night for a terminal: one screen of 80 columns, with the sections of the report.

Names and reasons come from projects: what cannot be printed becomes `?`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from typing import Final

from handoffd.engine.run import amount, dollars
from handoffd.engine.wording import counted, first_few, span
from handoffd.forecast.plan import CapAhead, PlannedStory, Stop, Tonight
from handoffd.report.rendering import Line, Section, moment, printable, screen

_FEW: Final = 12
"""Entries of a section on a screen."""

_TITLES: Final = {
    "day": "on",
    "daemon": "this daemon",
    "project": "",
    "story": "",
    "attempt": "each attempt of",
}


def as_text(night: Tonight, zone: tzinfo | None = None) -> str:
    """Return the plan as text of at most 80 columns, commands aside; times by the clock of `zone`."""
    parts = headline(night, zone), warnings(night), sections(night, zone)
    return "\n".join(screen(*parts, "handoffd tonight --json", _FEW))


def headline(night: Tonight, zone: tzinfo | None = None) -> str:
    """Return what comes of the night, in one line."""
    until, counts = moment(night.until, zone, night.at), night.outcomes
    told = [
        counted(counts["done"], "story done", "stories done") if counts["done"] else "",
        counted(counts["stops"], "story stops", "stories stop") if counts["stops"] else "",
        f"{counts['goes_on']} still going on" if counts["goes_on"] else "",
        f"{counts['waits']} not begun" if counts["waits"] else "",
    ]
    said = ", ".join(part for part in told if part) or "nothing"
    return f"Until {until} ({span(night.until - night.at)}): {said}"


def warnings(night: Tonight) -> list[str]:
    """Return what a person must know before going to bed."""
    told = [
        "No daemon runs, so nothing of this happens. Start it: handoffd run" if not night.daemon else "",
        _gated(night),
        "" if night.whole else "There is more work than is planned ahead; the rest is not shown.",
        "Nothing is planned: no story is in flight or waits." if not night.projects else "",
    ]
    return [printable(line) for line in told if line]


def _gated(night: Tonight) -> str:
    gates = " or ".join(sorted({one.step for one in night.stops if one.before_code and one.step is not None}))
    if night.gated:
        return f"Every story stops at {gates}, before its first line of code."
    if night.before_code:
        stop, their = ("stops", "its") if night.before_code == 1 else ("stop", "their")
        of = f"{night.before_code} of {counted(night.ahead, 'story', 'stories')}"
        others = (
            "; the others do not begin" if night.before_code + night.outcomes["waits"] == night.ahead else ""
        )
        return f"{of} {stop} at {gates}, before {their} first line of code{others}."
    return ""


def in_short(night: Tonight, zone: tzinfo | None = None) -> str:
    """Return the whole in two sentences, for the report of a night."""
    stopped = next((one for one in night.stops if not one.may_wait), None)
    said = f"{headline(night, zone)}."
    if gated := _gated(night):
        said += f" {printable(gated)}"
    elif stopped is not None:
        said += f" First of what stops it: {printable(f'{stopped.name}: {stopped.why}')}."
    return f"{said} See: handoffd tonight"


def sections(night: Tonight, zone: tzinfo | None = None) -> list[Section]:
    """Return the parts that have something to say."""
    near = night.at
    found = [
        Section("Stories", tuple(_story(one, zone, near) for one in night.stories), night.more.stories),
        Section("What stops it", tuple(_stop(one, zone, near) for one in night.stops), night.more.stops),
        Section("Expected", tuple(_expected(night))),
        Section("Usage limits", tuple(
            Line(printable(one.account), printable(f"until {moment(one.until, zone, near)}: {one.why}"))
            for one in night.limits
        )),
        Section("Budgets", tuple(_cap(one) for one in night.caps), night.more.caps),
        Section("Started by the clock", tuple(_scheduled(night, zone)), night.more.schedules),
        Section("Quiet hours", tuple(_quiet(night))),
    ]  # fmt: skip
    return [section for section in found if section.lines]


def _story(one: PlannedStory, zone: tzinfo | None, near: datetime) -> Line:
    who = printable(f"{one.name} {one.story}")
    if not one.steps:
        at = f"{one.stops_at}: " if one.outcome == "stops" and one.stops_at else ""
        done = "done" if one.outcome == "done" else ""
        return Line(who, printable(f"{at}{one.why or done}"))
    begin, last = moment(one.steps[0].starts_at, zone, near), one.steps[-1]
    path = one.steps[0].step if len(one.steps) == 1 else f"{one.steps[0].step} to {last.step}"
    end = moment(one.ends_at or last.ends_at, zone, near)
    said = {
        "done": f"done {end}" + (f", {one.why}" if one.why else ""),
        "stops": f"stops {end} at {one.stops_at}",
        "goes_on": "still going on",
        "waits": one.why or "waits",
    }[one.outcome]
    return Line(who, printable(f"{begin} {path}; {said}"))


def _stop(one: Stop, zone: tzinfo | None, near: datetime) -> Line:
    since = moment(one.at, zone, near) if one.at else "now"
    gate = f"{since} at {one.step}, {'before any code' if one.before_code else 'a human step'}"
    why = gate if one.kind == "gate" else f"{since}: {one.why}" if one.at else one.why
    whom = f" ({first_few(one.stories, 3) if one.count <= 10 else counted(one.count, 'story', 'stories')})"
    return Line(printable(one.name), printable(f"{why}{whom if one.count else ''}"), one.command)


_BASES: Final = {
    "past": "each step as it went before in its project, in the median",
    "reference": "there is no past yet: the protocol's numbers, and each step's time limit",
    "mixed": "medians of each project's past, the protocol's numbers where there is none",
}


def _expected(night: Tonight) -> Iterator[Line]:
    one = night.expected
    if not one.steps:
        return
    known = [] if one.unpriced == one.steps else [f"about {dollars(one.cost_usd)}"]
    known += [] if one.unmeasured == one.steps else [f"{one.tokens:,} tokens"]
    work = span(timedelta(seconds=one.seconds))
    yield Line("", f"{', '.join([*known, counted(one.steps, 'step')])}; {work} of agents at work")
    waited = f"; {counted(night.slots.waited, 'step')} wait for one" if night.slots.waited else ""
    yield Line("", f"at most {counted(night.slots.most, 'slot')} of {night.slots.total}{waited}")
    if one.unpriced:
        yield Line("", f"without a known cost: {counted(one.unpriced, 'step')}")
    yield Line("", _BASES.get(one.basis, ""))


def _cap(one: CapAhead) -> Line:
    whose = " ".join(part for part in (_TITLES[one.scope], one.day, one.whose) if part)
    used, most = amount(one.expected, one.unit), amount(one.cap, one.unit)
    reached = "; that is all of it" if one.expected >= one.cap else ""
    stops = f"; stops {one.stops}" if one.stops else reached
    unsure = f"; {counted(one.unsure, 'step')} not counted" if one.unsure else ""
    return Line(
        printable(whose),
        printable(f"{amount(one.spent, one.unit)} now, then {used} of {most}{stops}{unsure}"),
    )


def _scheduled(night: Tonight, zone: tzinfo | None) -> Iterator[Line]:
    for one in night.schedules:
        at = moment(one.at, zone, night.at)
        why = f": {one.why}" if one.why else ""
        yield Line(printable(one.name), printable(f"{at} {one.schedule}: {one.story}, {one.outcome}{why}"))


def _quiet(night: Tonight) -> Iterator[Line]:
    if night.quiet is not None:
        yield Line("", f"{night.quiet.start} to {night.quiet.end}: only urgent notices are sent")
