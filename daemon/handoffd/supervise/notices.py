"""From an order to tell a person to the notice that leaves the house."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC
from pathlib import Path

from handoffd.clock import Clock
from handoffd.engine.commands import addressed, command_for
from handoffd.engine.effects import Notify
from handoffd.engine.track import Track
from handoffd.engine.views import Condition
from handoffd.notify.notice import Notice
from handoffd.protocol.story import expand
from handoffd.store.records import PendingEffect


def notice_of(order: Notify, pending: PendingEffect, track: Track) -> Notice:
    """Return the notice for an order. Its id follows from the order, so that a repetition can be told.

    The time is in it because the journals of two daemons both count their orders from 1.
    """
    root = pending.key.project
    return Notice(
        id=f"{pending.at.astimezone(UTC):%Y%m%dT%H%M%S.%f}-{pending.id}",
        at=pending.at,
        project=root,
        name=track.state.project if track.state is not None else Path(root).name,
        story=order.story,
        step=order.step,
        kind=order.notice,
        text=order.text,
        why=order.why,
        action=addressed(order.action, root) if order.action else None,
        review=tuple(expand(path, order.story) for path in order.review),
        track=pending.key.track,
    )


def condition_notice(root: str, condition: Condition, detail: str | None, clock: Clock) -> Notice:
    """Return the notice for a project that cannot be worked on as it is."""
    return _warning("condition", root, clock, text=_CONDITIONS[condition], why=detail)


def crash_notice(root: str, detail: str, clock: Clock) -> Notice:
    """Return the notice for a project whose supervision failed: a fault of ours, never of the project."""
    text = "handoffd failed at this project and starts again with it; executors go on"
    return _warning("crash", root, clock, text=text, why=detail)


def survivors_notice(root: str, dispatch: str, count: int, clock: Clock) -> Notice:
    """Return the notice for what a run has left alive: nobody but its owner, or root, may end it."""
    text = "processes of an executor outlive it: they belong to another account"
    why = f"{count} of {dispatch} could not be ended; most likely they were started with sudo"
    return _warning(
        "survivors", root, clock, text=text, why=why, action="ps -eo user,pid,lstart,args --forest"
    )


def room_notice(root: str, why: str, action: str, clock: Clock) -> Notice:
    """Return the notice for a disk that is almost full; `root` is the first project that waits for room."""
    text = "a disk is almost full; nothing is dispatched onto it until there is room, executors go on"
    return _warning("room", root, clock, text=text, why=why, action=action)


def machine_notice(state_dir: str, why: str, clock: Clock) -> Notice:
    """Return the notice for a trouble of the whole daemon, which `project` names by its state directory."""
    text = "nothing is started for the time being, in any project; executors go on"
    notice = _warning("machine", state_dir, clock, text=text, why=why, action="handoffd status")
    return replace(notice, name="handoffd")


_CONDITIONS: Mapping[Condition, str] = {
    "not_initialized": "the project has no STATE.json",
    "invalid_state": "STATE.json cannot be read; nothing is dispatched until it is mended or deleted",
    "invalid_rules": "its settings or step table cannot be used; the last valid ones stay in force",
    "missing": "the project's folder is gone; it goes on when it is back",
    "io_error": "the project cannot be read or written; it goes on when it can",
    "locked": "another process works on the project",
}


def _warning(
    prefix: str, root: str, clock: Clock, *, text: str, why: str | None, action: str | None = None
) -> Notice:
    """Return a notice that no story is the reason of; `action` is by default to look at the project."""
    return Notice(
        id=f"{prefix}-{secrets.token_hex(6)}",
        at=clock.now(),
        project=root,
        name=Path(root).name,
        story=None,
        step="",
        kind="warning",
        text=text,
        why=why,
        action=action or command_for(root, "status"),
        review=(),
    )
