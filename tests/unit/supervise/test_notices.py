"""From the order to tell a person to the notice."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.unit.supervise.making import NOW, MovableClock, track_of

from handoffd.engine.effects import Notify
from handoffd.engine.track import TrackKey
from handoffd.engine.views import Condition
from handoffd.notify.notice import Notice
from handoffd.store.records import PendingEffect
from handoffd.supervise.notices import condition_notice, notice_of

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


@pytest.mark.parametrize("condition", ["invalid_state", "invalid_rules", "missing", "io_error", "locked"])
def test_each_condition_has_words_of_its_own(condition: Condition) -> None:
    """A project that cannot be worked on is told of like everything that waits for a person."""
    notice = condition_notice("/srv/shop", condition, "line 3", MovableClock())

    assert ("warning", "line 3", "handoffd status /srv/shop") == (notice.kind, notice.why, notice.action)
    assert notice.text
    assert notice.id != condition_notice("/srv/shop", condition, "line 3", MovableClock()).id
