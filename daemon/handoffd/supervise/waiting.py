"""The backlog of a project as people see it."""

from __future__ import annotations

from handoffd.engine.backlog import coming, unasked, waits_in_words
from handoffd.engine.commands import addressed
from handoffd.engine.track import Queued, Track
from handoffd.engine.views import BacklogView, QueuedView
from handoffd.engine.wording import next_command
from handoffd.protocol.rules import DONE
from handoffd.supervise.project import Project


def backlog_of(project: Project) -> BacklogView:
    """Return a project's backlog, with what keeps each of its stories."""
    main = project.main
    track, by_itself = main.track, unasked(main.track.ledger, auto_continue=main.continues)
    upcoming = coming(track.ledger, auto_continue=main.continues)
    following = next_command(track, project.files.rules)
    return BacklogView(
        project=project.root,
        story=_in_flight(track),
        auto_continue=main.continues,
        chosen=track.ledger.auto_continue,
        paused_by=track.ledger.paused_by,
        next_story=upcoming.story if upcoming is not None else None,
        next_by_itself=by_itself is not None,
        next_command=addressed(following, project.root) if following else None,
        stories=tuple(
            _view(track, place, entry) for place, entry in enumerate(track.ledger.backlog, start=1)
        ),
    )


def _in_flight(track: Track) -> str | None:
    state = track.state
    return None if state is None or state.step == DONE or track.ledger.closed else state.story


def _view(track: Track, place: int, entry: Queued) -> QueuedView:
    waits_for = waits_in_words(track, entry)
    return QueuedView(
        story=entry.story, place=place, priority=entry.priority, task_type=entry.task_type,
        instruction=entry.instruction, complexity=entry.complexity, blocked_by=entry.blocked_by,
        executor=entry.executor, agent_teams=entry.agent_teams, by=entry.by, at=entry.at,
        schedule=entry.schedule, startable=waits_for is None, waits_for=waits_for,
    )  # fmt: skip
