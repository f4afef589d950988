"""Schedules as values: what one starts, how it is told, and those that projects have of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from handoffd.engine.requests import Started
from handoffd.engine.views import IdleSchedule, ScheduleView
from handoffd.errors import InvalidFile
from handoffd.inspection.own_files import SETTINGS
from handoffd.journal.schedules import StoredSchedule
from handoffd.schedule.cron import FireTimes
from handoffd.schedule.plan import OWN, Planned
from handoffd.settings.loading import load_project
from handoffd.settings.schedule import ScheduledStart, SharedStart


class OwnSchedules:
    """What the projects' own settings say, as far as they were read and trusted."""

    def __init__(self) -> None:
        self.starts: dict[str, tuple[ScheduledStart, ...]] = {}
        self.revision = 0
        """Rises with every change."""

    def learn(self, root: str, starts: tuple[ScheduledStart, ...]) -> None:
        """Take over what a project's settings say now."""
        if self.starts.get(root, ()) == starts:
            return
        self.starts.pop(root, None)
        if starts:
            self.starts[root] = starts
        self.revision += 1


def own_starts(text: str) -> tuple[ScheduledStart, ...]:
    """Return the schedules in the settings of a project; none where nothing can be made of these."""
    try:
        return load_project(text, SETTINGS).schedule
    except InvalidFile:  # of another release; whoever looks at the project next tells of it
        return ()


def started(one: Planned, due: datetime) -> Started:
    """Return the fact that a schedule asks for its story, because it is `due`; in its own time zone."""
    start = one.start
    return Started(
        story=start.story(due), task_type="story" if start.custom is None else "custom",
        instruction=start.custom, agent_teams=start.agent_teams, executor=start.executor,
        priority=start.priority, complexity=start.complexity, queue=start.overlap == "queue",
        schedule=one.schedule, due=due, by=f"schedule {one.schedule}",
    )  # fmt: skip


def idle(starts: Iterable[SharedStart], planned: Collection[tuple[str, str]]) -> tuple[IdleSchedule, ...]:
    """Return which schedules of the settings are among no project's (root, name), `planned`."""
    concern = {schedule for _, schedule in planned}
    return tuple(
        IdleSchedule(schedule=one.name, projects=one.projects) for one in starts if one.name not in concern
    )


def schedule_view(
    one: Planned, times: FireTimes, stored: StoredSchedule | None, now: datetime, problem: str | None
) -> ScheduleView:
    """Return a schedule as it is told. `problem` is why its start waits, if it does."""
    start = one.start
    handled = now if stored is None else stored.handled
    due = times.after(handled)
    local = None if due is None else due.astimezone(times.zone)
    last = None if stored is None else stored.last
    return ScheduleView(
        project=one.root, schedule=one.schedule, own=one.schedule.startswith(OWN), cron=start.cron,
        timezone=str(times.zone), story=None if local is None else start.story(local), custom=start.custom,
        overlap=start.overlap, catch_up=start.catch_up,
        next_at=None if local is None else local + one.jitter, waits_for=problem,
        last_due=None if last is None else last.due.astimezone(times.zone),
        last_outcome=None if last is None else last.outcome,
        last_story=None if last is None else last.story, last_why=None if last is None else last.why,
    )  # fmt: skip
