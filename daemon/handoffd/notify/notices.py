"""Makes notices: from orders of a decision, and for conditions of projects and of the daemon."""

from __future__ import annotations

import platform
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from handoffd.clock import Clock, rfc3339
from handoffd.engine.decision import Notify, raising
from handoffd.engine.limits import WARN_AT
from handoffd.engine.notice import Notice
from handoffd.engine.routing import look_command, question_of
from handoffd.engine.run import SHARED, Finding
from handoffd.engine.track import Track, TrackKey, own_story
from handoffd.engine.views import WORKABLE, Condition, GateView, Whereabouts
from handoffd.engine.wording import (
    addressed,
    approving,
    command,
    command_for,
    first_few,
    gate_in_words,
    rejecting,
    repair_command,
    shortened,
    showing_gate,
    throwing_away,
)
from handoffd.errors import Problem
from handoffd.notify.notifier import Notifier
from handoffd.notify.ports import LASTING
from handoffd.protocol.rules import DONE
from handoffd.protocol.state import plain
from handoffd.protocol.story import expand


class Pending(Protocol):
    """An order of the journal that is still to be carried out, as far as its notice needs it."""

    @property
    def id(self) -> int:
        """Its number in the journal."""

    @property
    def at(self) -> datetime:
        """When it was decided."""

    @property
    def key(self) -> TrackKey:
        """Whose it is."""


def notice_of(
    order: Notify, pending: Pending, track: Track, known: Whereabouts | GateView | None = None
) -> Notice:
    """Return the notice for an order. Its id follows from the order, so that a repetition is recognised.

    The time is in it because the journals of two daemons both count their orders from 1. `known` is where the
    work of a finished story is, or the screen of an open gate, as far as it could be made.
    """
    root, own = pending.key.project, _meant(order, pending.key, track)
    action = addressed(order.action, root, own) if order.action else None
    if isinstance(known, Whereabouts) and action == command_for(root, "land", "--story", order.story or ""):
        action = known.command  # as on each screen: landing may have to fail
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
        action=action,
        review=tuple(expand(path, order.story) for path in order.review),
        track=pending.key.track,
        facts=tuple(addressed(line, root) for line in _facts_of(order, track, own, known)),
    )


def _meant(order: Notify, key: TrackKey, track: Track) -> str | None:
    """Return the story that commands name: beside one in a clone, others may be in flight by then."""
    where = track.ledger.workspace
    if where is None or where.kind != "clone" or track.ledger.paused_by:
        return own_story(key)
    return own_story(key) or order.story


def _facts_of(
    order: Notify, track: Track, own: str | None, known: Whereabouts | GateView | None
) -> Iterator[str]:
    """Yield the facts that a notice has beside its text; of a gate, if the track still waits there."""
    state = track.state
    if order.step == DONE:
        yield from _placed(order, track, known if isinstance(known, Whereabouts) else None)
    elif state is None or (state.story, state.step) != (order.story, order.step):
        return
    elif order.action == approving(order.story):
        yield from _gate_lines(track, own, known if isinstance(known, GateView) else None)
    elif (question := question_of(track)) is not None:
        yield f"The agent asks: {shortened(question, _MOST_SAID)}"
    elif (looking := look_command(track, own, gate=False)) is not None and order.action == command("retry"):
        yield f"To look: {looking}"


def _placed(order: Notify, track: Track, known: Whereabouts | None) -> Iterator[str]:
    """Yield where the work of a finished story is, and how it is thrown away."""
    state, where = track.state, track.ledger.workspace
    if order.story is None:
        return
    if known is not None:
        yield from (f"Branch: {known.branch}",) if known.branch else ()
        yield f"Work: {known.says}"
    elif where is not None and where.kind == "clone" and state is not None and state.story == order.story:
        yield f"Branch: {where.branch}"
    else:
        return
    if known is not None and known.branch is None:
        yield from (f"To look: {known.command}",) if known.command else ()
    elif known is None or known.would != "landed":  # else that is the command to type next
        yield f"To throw it away: {throwing_away(order.story)}"


_MOST_TITLE, _MOST_SAID = 70, 300


def _gate_lines(track: Track, own: str | None, gate: GateView | None) -> Iterator[str]:
    """Yield the lines of a notice about an open gate, as its screen has them, with templates of commands."""
    facts, state = track.ledger.facts, track.state
    story = state.story if state is not None else None
    told = track.ledger.texts.get(story) if story is not None else None
    if told is not None:
        yield f"Story: {shortened(told.title, _MOST_TITLE)}"
    if gate is not None:
        yield from (f"{line[0].upper()}{line[1:]}" for line in gate_in_words(plain(gate)))
    if facts.summary:
        yield f"The agent says: {shortened(facts.summary, _MOST_SAID)}"
    yield f"All of it: {showing_gate(own)}"
    yield f"Or: {rejecting(story, 'REASON')}"


CONDITION = f"{LASTING}condition"
"""Prefix of a matter of the project itself, apart from its tracks and the trust of files."""


def condition_notice(root: str, condition: Condition, detail: str | None, clock: Clock) -> Notice:
    """Return the notice for a project with which something is wrong; the same again has the same sign.

    Where nothing can be dispatched it is blocked, as a story is, and waits for a person.
    """
    text = _CONDITIONS[condition]
    if condition == "locked" and detail is not None:  # lists show the text alone, and who it is matters most
        text = f"{detail}; until then the daemon dispatches nothing here"
    action = repair_command(root, condition)
    notice = _warning("condition", root, clock, text=text, why=detail, action=action)
    if condition in WORKABLE:
        return replace(notice, id=_signed("condition", root, condition, detail or ""))
    return replace(notice, id=_signed("standstill", root, condition, detail or ""), kind="blocked")


def settle(notifier: Notifier, root: str) -> None:
    """Settle all that waits for the user at a project itself; its tracks settle their own notices."""
    notifier.settle(root)
    notifier.settle(root, CONDITION)


def crash_notice(root: str, detail: str, clock: Clock) -> Notice:
    """Return the notice for a project whose supervision failed: a fault of ours, never of the project."""
    text = "handoffd failed at this project and starts again with it; executors go on"
    return _warning("crash", root, clock, text=text, why=detail)


def lockout_notice(root: str, why: str, clock: Clock) -> Notice:
    """Return the notice for an agent's process that had locked its project against any daemon."""
    text = "a process of an agent kept the project locked and was ended; the project goes on"
    return _warning("lockout", root, clock, text=text, why=why)


def survivors_notice(root: str, dispatch: str, count: int, clock: Clock) -> Notice:
    """Return the notice for processes that outlived a run: only their owner, or root, may end them."""
    text = "processes of an executor outlive it: they belong to another account"
    why = f"{count} of {dispatch} could not be ended; most likely they were started with sudo"
    return _warning(
        "survivors", root, clock, text=text, why=why, action="ps -eo user,pid,lstart,args --forest"
    )


def room_notice(root: str, why: str, action: str, clock: Clock) -> Notice:
    """Return the notice for a disk that is almost full; `root` is who met it first."""
    text = "a disk is almost full; nothing is dispatched onto it until there is room, executors go on"
    return _warning("room", root, clock, text=text, why=why, action=action)


def machine_notice(state_dir: str, why: str, clock: Clock) -> Notice:
    """Return the notice for a trouble of the whole daemon, which `project` names by its state directory."""
    text = "nothing is started for the time being, in any project; executors go on"
    notice = _warning("machine", state_dir, clock, text=text, why=why, action="handoffd status")
    return replace(notice, name="handoffd")


def settings_notice(state_dir: str, problems: tuple[Problem, ...], clock: Clock) -> Notice:
    """Return the notice for settings that were edited and cannot be used."""
    text = "the edited settings are invalid; the daemon keeps the last valid ones"
    why = "; ".join(map(str, problems))
    notice = _warning("settings", state_dir, clock, text=text, why=why, action="handoffd config check")
    return replace(notice, name="handoffd")


def settings_trust_notice(state_dir: str, keys: Sequence[str], edit: str, clock: Clock) -> Notice:
    """Return the notice for an edit of the settings that waits for trust; the same edit has the same sign."""
    text = "an edit of the daemon's settings waits for your trust; until then the last trusted ones apply"
    named = first_few(keys, _MOST_KEYS)
    why = f"this may run commands, hand out secrets, spend money or loosen a guard: {named}"
    action = "handoffd trust --daemon"
    notice = _warning("trust", state_dir, clock, text=text, why=why, action=action)
    return replace(notice, id=_signed("trust", state_dir, edit), kind="needs_human", name="handoffd")


def cap_notice(
    finding: Finding, place: str, track: Track, period: str, clock: Clock, machine: str | None = None
) -> Notice:
    """Return the notice for a cap that is nearly or fully used; the id keeps it from being sent twice.

    `place` is the project's root, or the state directory for what all projects share; `machine` keeps the id
    from being that of another one (None: this one).
    """
    mark = _mark(machine or _machine(), place, period)
    level = "over" if finding.over else "near"
    shared, story = finding.scope in SHARED, track.state.story if track.state is not None else None
    action = addressed(raising(finding, story), place)
    why = _CAP_OVER if finding.over else f"{WARN_AT:.0%} of it is gone"
    notice = _warning("cap", place, clock, text=finding.text, why=why, action=action)
    return replace(
        notice,
        id=f"cap-{finding.scope}-{finding.unit}-{finding.cap:.15g}-{level}-{mark}",
        name="handoffd" if shared else notice.name,
        kind="blocked" if finding.over else "warning",
        story=None if shared else story,
    )


_CAP_OVER = "nothing is started in any project before more may be spent"


def report_notice(
    lines: Sequence[str],
    place: str,
    since: datetime,
    until: datetime,
    clock: Clock,
    machine: str | None = None,
) -> Notice:
    """Return the notice of a report; the id, which is that of its day, keeps it from being sent twice."""
    first, *rest = lines
    action = f"handoffd report --since {rfc3339(since)} --until {rfc3339(until)}"
    notice = _warning("report", place, clock, text=first, why=_ONCE_A_DAY, action=action)
    mark = _mark(machine or _machine(), place, f"{until:%Y-%m-%d}")
    return replace(notice, id=f"report-{mark}", name="handoffd", kind="report", lines=tuple(rest))


_ONCE_A_DAY = "the report of the night is sent once a day (report.at in the settings)"


def unpriced_notice(place: str, model: str | None, clock: Clock, machine: str | None = None) -> Notice:
    """Return the notice for a model whose tokens have no price, while there are caps in dollars."""
    named = model or "an agent that does not name its model"
    text = f"what {named} costs is not known; caps in dollars do not see it, caps in tokens do"
    why = "neither its program nor the price table says it; `prices` in the settings can"
    notice = _warning("unpriced", place, clock, text=text, why=why, action="handoffd config show")
    return replace(notice, id=f"unpriced-{_mark(machine or _machine(), place, named)}", name="handoffd")


def trust_notice(root: str, keys: Sequence[str], edit: str, clock: Clock) -> Notice:
    """Return the notice for edits that wait for trust; the same edit has the same sign."""
    text = "edits of its settings or step table wait for your trust; until then the trusted version applies"
    named = first_few(keys, _MOST_KEYS)
    why = f"agents can write these files, and this may run commands, spend money or weaken a gate: {named}"
    notice = _warning("trust", root, clock, text=text, why=why, action=command_for(root, "trust"))
    return replace(notice, id=_signed("trust", root, edit), kind="needs_human")


def _signed(prefix: str, *about: str) -> str:
    """Return an id of its own whose sign follows from what it is about."""
    return f"{prefix}-{_mark(*about)}~{secrets.token_hex(6)}"


def _mark(*about: str) -> str:
    return sha256("\0".join(about).encode("utf-8", "replace")).hexdigest()[:16]


@cache
def _machine() -> str:
    """Return what tells this machine from others: two of them may have the same folders, caps and days."""
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii").strip() or platform.node()
    except (OSError, ValueError):
        return platform.node()


_MOST_KEYS = 10

_CONDITIONS: Mapping[Condition, str] = {
    "not_initialized": "the project has no STATE.json",
    "invalid_state": "STATE.json cannot be read; nothing is dispatched until you fix or delete it",
    "invalid_rules": "its settings or step table are invalid; the daemon keeps the last valid ones",
    "invalid_journal": "its record in the journal was changed outside handoffd; it waits for a repair",
    "unfinished_git": "its repository is in the middle of a merge or the like; it goes on after that",
    "missing": "the project's folder is gone; it goes on when it is back",
    "io_error": "the project cannot be read or written; it goes on when it can",
    "locked": "it is in use by another process, by another handoffd, or under another path",
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
