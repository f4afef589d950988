"""From the order to tell a person to the notice."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.house import NOW, MovableClock, track_of

from handoffd.engine.decision import Notify
from handoffd.engine.run import Finding
from handoffd.engine.track import TrackKey
from handoffd.engine.views import Condition
from handoffd.errors import Problem
from handoffd.journal.records import PendingEffect
from handoffd.notify import notices
from handoffd.notify.notice import Notice, sign_of
from handoffd.notify.notices import (
    cap_notice,
    condition_notice,
    crash_notice,
    lockout_notice,
    machine_notice,
    notice_of,
    room_notice,
    settings_notice,
    survivors_notice,
    trust_notice,
    unpriced_notice,
)

ORDER = Notify(
    notice="needs_human", story="US-001", step="review", text="review waits", why="a human step",
    action="handoffd approve {project}", review=("docs/bdd/US-{story}.md",),
)  # fmt: skip


def test_a_notice_says_what_why_and_what_to_type() -> None:
    """Paths are the project's own; its id is that of the order, so that a repetition can be told."""
    pending = PendingEffect(id=7, key=TrackKey("/srv/shop"), seq=3, at=NOW, effect=ORDER)

    assert Notice(
        id="20260131T221509.000000-7", at=NOW, project="/srv/shop", name="shop", story="US-001",
        step="review", kind="needs_human", text="review waits", why="a human step",
        action="handoffd approve /srv/shop", review=("docs/bdd/US-001.md",), track="main",
    ) == notice_of(ORDER, pending, track_of())  # fmt: skip


def test_a_notice_has_the_time_of_its_decision_and_no_other_daemon_has_its_id() -> None:
    """However late it is sent, and although both journals count from 1."""
    here = PendingEffect(id=7, key=TrackKey("/srv/shop"), seq=3, at=NOW, effect=ORDER)
    there = replace(here, at=NOW + timedelta(microseconds=1))

    first, second = (notice_of(ORDER, pending, track_of()) for pending in (here, there))
    assert (NOW, there.at) == (first.at, second.at)
    assert first.id != second.id


@pytest.mark.parametrize(
    ("condition", "kind", "action"),
    [
        ("not_initialized", "blocked", "handoffd init /srv/shop"),
        ("invalid_state", "blocked", "${EDITOR:-vi} /srv/shop/.ai/STATE.json"),
        ("invalid_rules", "warning", "handoffd rules check /srv/shop"),
        ("invalid_journal", "blocked", "handoffd journal verify /srv/shop"),
        ("unfinished_git", "blocked", "git -C /srv/shop status"),
        ("missing", "blocked", "ls -ld /srv/shop"),
        ("io_error", "blocked", "ls -ld /srv/shop /srv/shop/.ai"),
        ("locked", "blocked", "handoffd remove /srv/shop"),
    ],
)
def test_each_condition_has_words_and_a_next_command_of_its_own(
    condition: Condition, kind: str, action: str
) -> None:
    """A project that cannot be worked on is blocked like a story; with invalid rules it goes on."""
    notice = condition_notice("/srv/shop", condition, "line 3", MovableClock())

    assert (kind, "line 3") == (notice.kind, notice.why)
    assert str(notice.action).startswith(action)
    assert notice.text
    assert notice.id != condition_notice("/srv/shop", condition, "line 3", MovableClock()).id


def test_the_notice_of_a_locked_project_says_by_whom() -> None:
    """In the line that every list shows."""
    who = "the project /srv/shop is in use by process 7 (handoffd run)"
    notice = condition_notice("/srv/shop", "locked", who, CLOCK)
    assert (f"{who}; until then the daemon dispatches nothing here", who) == (notice.text, notice.why)


CLOCK = MovableClock()
EVERY = {
    "condition_notice": condition_notice("/srv/shop", "missing", "no such folder", CLOCK),
    "crash_notice": crash_notice("/srv/shop", "ValueError", CLOCK),
    "lockout_notice": lockout_notice("/srv/shop", "in use by process 7", CLOCK),
    "survivors_notice": survivors_notice("/srv/shop", "d1", 2, CLOCK),
    "room_notice": room_notice("/srv/shop", "3 MiB are free", "df -h /srv", CLOCK),
    "machine_notice": machine_notice("/state", "the journal cannot be written", CLOCK),
    "cap_notice": cap_notice(
        Finding(scope="story", unit="usd", spent=2, cap=1), "/srv/shop", track_of(), "", CLOCK
    ),
    "unpriced_notice": unpriced_notice("/state", None, CLOCK),
    "settings_notice": settings_notice("/state", (Problem(file="handoffd.yaml", message="no"),), CLOCK),
    "trust_notice": trust_notice("/srv/shop", ("auto", "test.command"), "1", CLOCK),
}


def test_every_notice_names_project_what_why_and_what_to_type() -> None:
    """Whoever makes one; there are no others."""
    makers = {name for name in vars(notices) if name.endswith("_notice")}

    assert makers == set(EVERY)
    for name, notice in EVERY.items():
        said = (notice.project, notice.name, notice.text, notice.why, notice.action)
        assert all(said), name
        assert notice.action is not None
        assert notice.action.split()[0] in {"handoffd", "df", "ls", "ps"}, name


def test_what_two_machines_tell_of_is_not_taken_for_one() -> None:
    """They may have the same folders, caps and days; whoever gets both drops repetitions by the id."""
    finding = Finding(scope="day", unit="usd", spent=2, cap=1)
    told = [
        (
            cap_notice(finding, "/state", track_of(), "1", CLOCK, machine).id,
            unpriced_notice("/state", None, CLOCK, machine).id,
        )
        for machine in (None, None, "another")
    ]

    assert told[0] == told[1]
    assert not {*told[0]} & {*told[2]}


def test_the_same_edit_has_the_same_sign() -> None:
    """Under an id of its own, so that nobody drops it as a repetition; of many keys some are named."""
    keys = tuple(f"key{number}" for number in range(30))
    one, again, other = (trust_notice("/srv/shop", keys, edit, CLOCK) for edit in ("1", "1", "2"))

    assert (sign_of(one.id), "needs_human", "") == (sign_of(again.id), one.kind, one.track)
    assert one.id != again.id
    assert sign_of(one.id) != sign_of(other.id)
    assert one.why is not None
    assert one.why.endswith("key9 and 20 more")
