"""Notices: made from orders and conditions, as JSON, and in words."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from msgspec.structs import replace
from tests.support.house import NOW, MovableClock, track_of
from tests.support.notices import NOTICE
from tests.support.supervision import gate_view

from handoffd.engine.decision import Notify
from handoffd.engine.notice import MOST_BYTES, MOST_HEADLINE, Notice, headline, message, sign_of
from handoffd.engine.run import Finding
from handoffd.engine.track import Facts, TrackKey, Workspace
from handoffd.engine.views import Condition, Whereabouts
from handoffd.errors import Problem
from handoffd.journal.records import PendingEffect
from handoffd.notify import notices
from handoffd.notify.notices import (
    cap_notice,
    condition_notice,
    crash_notice,
    lockout_notice,
    machine_notice,
    notice_of,
    report_notice,
    room_notice,
    settings_notice,
    settings_trust_notice,
    survivors_notice,
    trust_notice,
    unpriced_notice,
)
from handoffd.protocol.state import Status
from handoffd.protocol.story_text import StoryText

ORDER = Notify(
    notice="needs_human", story="US-001", step="review", text="review waits", why="a human step",
    action="handoffd approve {project}", review=("docs/bdd/US-{story}.md",),
)  # fmt: skip


def test_a_notice_says_what_why_and_what_to_type() -> None:
    """Paths are the project's own; the order gives the id, so a repetition has the same."""
    pending = PendingEffect(id=7, key=TrackKey("/srv/shop"), seq=3, at=NOW, effect=ORDER)

    assert Notice(
        id="20260131T221509.000000-7", at=NOW, project="/srv/shop", name="shop", story="US-001",
        step="review", kind="needs_human", text="review waits", why="a human step",
        action="handoffd approve /srv/shop", review=("docs/bdd/US-001.md",), track="main",
    ) == notice_of(ORDER, pending, track_of())  # fmt: skip


def test_the_notice_of_a_gate_has_what_a_person_needs_and_both_answers() -> None:
    """As its screen has them, in lines for a phone; of a track that has gone on they would be of another."""
    order = replace(ORDER, action="handoffd approve {project} --story US-001")
    pending = PendingEffect(id=7, key=TrackKey("/srv/shop"), seq=3, at=NOW, effect=order)
    texts = {"US-001": StoryText(title="Dark mode", text="Dark mode")}
    there = track_of(step="review").with_ledger(facts=Facts(summary="It\nworks"), texts=texts)

    told = notice_of(order, pending, there, gate_view("/srv/shop"))

    title, *own = (
        "Story: Dark mode",
        "The agent says: It works",
        "All of it: handoffd gate /srv/shop",
        "Or: handoffd reject /srv/shop REASON --story US-001",
    )
    assert (
        title,
        "Asked for: Dark mode People read the shop at night.",
        "Changed since bdd-0: 3 files, +60 -4 lines",
        "Scope: 1 of them is outside of what the step may write",
        "Tests: before: 11 passed; claimed: 99 passed; measured: 11 passed, 1 failed",
        "Tests: what the agent claims is not what was measured",
        "Tests: new in this story: tests/test_shop.py::test_new and 2 more",
        "Tests: gone, passed before: tests/test_shop.py::test_old",
        "Open: 1 unclear point, 1 unticked box",
        "Attempts: 2, 1 failed; sent back 1 time",
        "Cost: 12.4k tokens, $0.21; agents ran 2 min; sandbox: strict",
        *own,
    ) == told.facts
    assert all(len(line) < 80 for line in message(told).splitlines())
    assert (title, *own) == notice_of(order, pending, there).facts  # not known in time
    assert "\n".join(told.facts) in message(told)
    assert told == Notice.from_json(told.as_json())
    assert () == notice_of(order, pending, track_of(step="impl")).facts
    assert () == notice_of(replace(order, action="handoffd retry {project}"), pending, there).facts


def test_the_question_of_an_agent_is_in_its_notice() -> None:
    """In its own words: the text names only who asks."""
    order = replace(ORDER, step="impl", action="handoffd note {project} TEXT")
    pending = PendingEffect(id=7, key=TrackKey("/srv/shop"), seq=3, at=NOW, effect=order)
    asks = Facts(summary="Which\ncurrency?", attempts={"impl": 1})
    there = track_of(step="impl", status=Status.NEEDS_HUMAN).with_ledger(facts=asks)
    assert ("The agent asks: Which currency?",) == notice_of(order, pending, there).facts
    failed = there.with_state(last_error="it has no test")
    assert () == notice_of(order, pending, failed).facts


def test_the_notice_of_a_finished_story_has_its_branch_and_how_to_throw_it_away() -> None:
    """What landing would do, as on each screen; what to type follows from that: it may have to fail."""
    land, discard = "handoffd land {project} --story US-001", "handoffd discard /srv/shop US-001"
    order = replace(ORDER, notice="done", step="done", action=land)
    pending = PendingEffect(id=7, key=TrackKey("/srv/shop"), seq=3, at=NOW, effect=order)
    clone = Workspace(folder="/clone", kind="clone", branch="handoffd/US-001", onto="main")
    there = track_of(step="done").with_ledger(workspace=clone)
    fits = Whereabouts(
        branch="handoffd/US-001", onto="main", commits=2, would="forward", files=3, conflicts=(),
        says="2 commits; landing brings 3 files to main", command="handoffd land /srv/shop --story US-001",
    )  # fmt: skip
    merge = "git -C /srv/shop merge handoffd/US-001"
    conflict = replace(fits, would="conflict", says="it would conflict in a.py", command=merge)
    gone, branch = replace(fits, would="landed", says="all", command=discard), "Branch: handoffd/US-001"

    told = [notice_of(order, pending, there, known) for known in (fits, conflict, gone, None)]

    throw = f"To throw it away: {discard}"
    assert [
        (branch, "Work: 2 commits; landing brings 3 files to main", throw),
        (branch, "Work: it would conflict in a.py", throw), (branch, "Work: all"), (branch, throw),
    ] == [one.facts for one in told]  # fmt: skip
    assert [fits.command, merge, discard, fits.command] == [one.action for one in told]
    here = replace(fits, branch=None, would="folder", says="in the project's folder", command="git status")
    assert ("Work: in the project's folder", "To look: git status") == (
        notice_of(order, pending, track_of(step="done"), here).facts
    )
    elsewhere = notice_of(order, pending, track_of(step="impl", story="US-002"), fits)
    assert told[0].facts == elsewhere.facts
    paused = notice_of(replace(order, action="handoffd resume {project}"), pending, there, conflict)
    assert "handoffd resume /srv/shop --story US-001" == paused.action


def test_the_commands_about_a_story_in_a_clone_name_it() -> None:
    """Other stories may be in flight beside it when they are typed; a pause is of all of them."""
    gate, retry = "handoffd approve {project} --story US-001", "handoffd retry {project}"
    there = track_of(step="review").with_ledger(workspace=Workspace(folder="/clone", kind="clone"))
    paused = there.with_ledger(paused_by="mei")

    told = [
        notice_of(order, PendingEffect(id=7, key=TrackKey("/srv/shop"), seq=3, at=NOW, effect=order), track)
        for order, track in (
            (replace(ORDER, action=gate), there), (replace(ORDER, action=retry), there),
            (replace(ORDER, action="handoffd resume {project}"), paused),
        )
    ]  # fmt: skip

    assert "All of it: handoffd gate /srv/shop --story US-001" in told[0].facts
    assert "handoffd retry /srv/shop --story US-001" == told[1].action
    assert "handoffd resume /srv/shop" == told[2].action


def test_a_notice_has_the_time_of_its_decision_and_no_other_daemon_has_its_id() -> None:
    """Although both journals count from 1."""
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
def test_each_condition_has_its_text_and_next_command(condition: Condition, kind: str, action: str) -> None:
    """A project without work is blocked like a story; with invalid rules it continues."""
    notice = condition_notice("/srv/shop", condition, "line 3", MovableClock())

    assert (kind, "line 3") == (notice.kind, notice.why)
    assert str(notice.action).startswith(action)
    assert notice.text
    assert notice.id != condition_notice("/srv/shop", condition, "line 3", MovableClock()).id


def test_the_notice_of_a_locked_project_names_the_process() -> None:
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
    "report_notice": report_notice(["2 runs ended"], "/state", CLOCK.now(), CLOCK.now(), CLOCK),
    "settings_notice": settings_notice("/state", (Problem(file="handoffd.yaml", message="no"),), CLOCK),
    "settings_trust_notice": settings_trust_notice("/state", ("caps.story_usd",), "1", CLOCK),
    "trust_notice": trust_notice("/srv/shop", ("auto", "test.command"), "1", CLOCK),
}


def test_every_notice_has_project_text_reason_and_next_command() -> None:
    """The table has every function that makes one."""
    makers = {name for name in vars(notices) if name.endswith("_notice")}

    assert makers == set(EVERY)
    for name, notice in EVERY.items():
        said = (notice.project, notice.name, notice.text, notice.why, notice.action)
        assert all(said), name
        assert notice.action is not None
        assert notice.action.split()[0] in {"handoffd", "df", "ls", "ps"}, name


def test_notices_of_two_machines_have_different_ids() -> None:
    """Their folders, caps and days may be the same, and receivers drop repetitions by the id."""
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
    """Each notice has its own id, so receivers do not drop it as a repetition; it names some of many keys."""
    keys = tuple(f"key{number}" for number in range(30))
    one, again, other = (trust_notice("/srv/shop", keys, edit, CLOCK) for edit in ("1", "1", "2"))

    assert (sign_of(one.id), "needs_human", "") == (sign_of(again.id), one.kind, one.track)
    assert one.id != again.id
    assert sign_of(one.id) != sign_of(other.id)
    assert one.why is not None
    assert one.why.endswith("key9 and 20 more")


def test_the_json_holds_every_field_under_its_name() -> None:
    """The time is as the protocol writes it; there is a format number."""
    assert {
        "format": 1,
        "id": "main-7",
        "at": "2026-01-31T22:15:09.123Z",
        "project": "/srv/shop",
        "name": "shop",
        "story": "US-005",
        "step": "review",
        "kind": "needs_human",
        "text": "US-005 waits for a review",
        "why": "the step needs a person",
        "action": "handoffd approve /srv/shop",
        "review": ["docs/bdd/US-005.md"],
        "track": "main",
        "of": None,
        "count": 1,
        "lines": [],
        "facts": [],
        "more": 0,
    } == json.loads(NOTICE.as_json())


def test_the_json_is_one_line_and_readable() -> None:
    """Line-oriented receivers get one line; Chinese stays Chinese."""
    text = replace(NOTICE, text="需要審查\nnow").as_json()

    assert "\n" not in text
    assert "需要審查" in text


def test_a_recorded_notice_is_read_as_it_was() -> None:
    """Fields of a later release are ignored; missing ones have their defaults."""
    assert NOTICE == Notice.from_json(NOTICE.as_json())
    later = {**json.loads(NOTICE.as_json()), "colour": "red"}
    del later["review"]
    assert replace(NOTICE, review=()) == Notice.from_json(json.dumps(later))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"id": "1"}', '{"at": 3}', '{"at": "yesterday"}'])
def test_other_text_is_refused(text: str) -> None:
    """With a ValueError."""
    with pytest.raises(ValueError):  # noqa: PT011  (json has its own subclass)
        Notice.from_json(text)


def test_a_message_has_all_that_a_tired_person_needs() -> None:
    """Project and story, text, reason, place, next command."""
    assert "shop US-005 needs you" == headline(NOTICE)
    assert message(NOTICE).splitlines() == [
        "US-005 waits for a review",
        "Why: the step needs a person",
        "To look at: docs/bdd/US-005.md",
        "Where: /srv/shop (review)",
        "Next: handoffd approve /srv/shop",
    ]


def test_a_message_leaves_out_missing_fields() -> None:
    """Also with a kind of a later release."""
    bare = replace(NOTICE, story=None, step="", why=None, action=None, review=(), kind="new")

    assert "shop new" == headline(bare)
    assert "US-005 waits for a review\nWhere: /srv/shop" == message(bare)


def test_a_long_message_keeps_its_command() -> None:
    """The limit is in bytes; no letter is cut in two."""
    long = replace(NOTICE, text="擷" * 5000, name="n" * 500, review=tuple(map(str, range(30))))

    told = message(long)
    assert len(told.encode()) <= MOST_BYTES
    assert told.endswith("…\nWhere: /srv/shop (review)\nNext: handoffd approve /srv/shop")
    assert MOST_HEADLINE == len(headline(long))
    assert len(message(replace(NOTICE, action="x" * 9000)).encode()) <= MOST_BYTES
    assert "9 and 20 more" in message(replace(long, text="x"))


def test_a_digest_shows_its_lines() -> None:
    """One per line."""
    assert "a\n- b\n" in message(replace(NOTICE, lines=("a", "- b")))
