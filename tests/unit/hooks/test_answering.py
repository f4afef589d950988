"""Who is told what at the end of a turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.hooking import DISPATCHED, DISPATCHED_NS, event

from handoffd.hooks.answering import Answering
from handoffd.hooks.event import BLOCKED, EVENTS, PASSED, SESSION_END, TOLD, Reply, parse_event
from handoffd.hooks.project import Standing
from handoffd.hooks.tally import Tally

AFTER, BEFORE = DISPATCHED_NS + 60 * 10**9, DISPATCHED_NS - 60 * 10**9
Json = dict[str, Any]


class House:
    """A project as a hook finds it, a verb that says `result`, and what was asked of it."""

    def __init__(self, tmp_path: Path, result: Json | None = None, *, theirs: bool = True) -> None:
        self.root = str(tmp_path)
        self.asked = 0
        self._result = result
        self._answering = Answering(self._apply, lambda _: theirs, Tally(str(tmp_path / "hooks"), self.root))

    def _apply(self, standing: Standing) -> Json | None:
        self.asked += 1
        return self._result

    def reply(
        self, name: str = "Stop", *, written: int | None = None, session: str = "s", **state: Any
    ) -> Reply:
        """Return the reply to an event of a session, while STATE.json says `state`."""
        continued = state.pop("continued", False)
        parsed = parse_event(event("/srv/shop", name, session_id=session, stop_hook_active=continued))
        assert parsed is not None
        return self._answering.answer(parsed, Standing(self.root, state_of(**state), written))


def state_of(**changed: Any) -> Json:
    """Return the fields of a STATE.json that hooks look at."""
    return {
        "story": "US-001", "step": "impl", "attempt": 1, "status": "running", "dispatched_at": DISPATCHED,
        "completed_at": None, "last_error": None, **changed,
    }  # fmt: skip


def failing(error: str | None = "post_check failed: 3 problems", **changed: Any) -> Json:
    """Return the state of an attempt that was judged and found wanting."""
    judged = "2026-01-01T10:05:00Z"
    return state_of(status="failing", last_error=error, completed_at=judged) | changed


@pytest.mark.parametrize("name", EVENTS)
def test_a_handoff_is_applied_at_every_event(tmp_path: Path, name: str) -> None:
    """A good one stops nobody; at the end of a turn the person is told."""
    house = House(tmp_path, {"type": "applied", "state": state_of(status="pass"), "message": "impl passed"})
    reply = house.reply(name, written=AFTER)

    assert (1, PASSED, "") == (house.asked, reply.code, reply.text)
    assert ("handoffd: impl passed" if name == "Stop" else "") == reply.note


def test_an_old_handoff_is_not_brought_up(tmp_path: Path) -> None:
    """The verb is not asked for what is known."""
    house = House(tmp_path)

    assert PASSED == house.reply("SubagentStop", written=BEFORE).code
    assert 0 == house.asked


def test_what_is_applied_later_has_no_answer_yet(tmp_path: Path) -> None:
    """Where nothing can be checked, nobody waits."""
    assert PASSED == House(tmp_path, None).reply(written=AFTER).code


@pytest.mark.parametrize("name", [name for name in EVENTS if name != SESSION_END])
def test_a_failed_check_sends_the_agent_back(tmp_path: Path, name: str) -> None:
    """With what failed, once: the next hook is silent."""
    house = House(tmp_path, {"type": "applied", "state": failing(), "message": "impl attempt 1 is failing"})
    first, second = house.reply(name, written=AFTER), house.reply(name, written=AFTER)

    assert (BLOCKED, PASSED) == (first.code, second.code)
    assert "impl attempt 1 of US-001 is failing: post_check failed: 3 problems" in first.text
    assert ".ai/HANDOFF.md" in first.text


def test_the_end_of_a_session_cannot_be_stopped(tmp_path: Path) -> None:
    """Then the person is shown it."""
    house = House(tmp_path, {"type": "applied", "state": failing(), "message": ""})

    assert TOLD == house.reply(SESSION_END, written=AFTER).code


def test_an_agent_that_says_itself_that_it_failed_is_let_go(tmp_path: Path) -> None:
    """It knows."""
    house = House(tmp_path, {"type": "applied", "state": failing(None), "message": ""})

    assert PASSED == house.reply(written=AFTER).code


def test_a_verdict_that_came_before_the_hook_is_told(tmp_path: Path) -> None:
    """The daemon hears a hand-off by itself, too; of an attempt of its own nobody else is told."""
    judged = failing()

    assert BLOCKED == House(tmp_path).reply(written=AFTER, **judged).code
    other = tmp_path / "other"
    other.mkdir()
    assert PASSED == House(other, theirs=False).reply(written=AFTER, **judged).code


def test_a_verdict_that_another_hook_saw_is_told_once(tmp_path: Path) -> None:
    """Of several hooks at once one applies the hand-off; the answer `stale` says how it stands."""
    house = House(tmp_path, {"type": "stale", "state": failing(), "message": "it was applied already"})

    assert [BLOCKED, PASSED] == [house.reply(written=AFTER).code for _ in range(2)]


def test_a_second_handoff_of_a_failed_attempt_is_brought_up(tmp_path: Path) -> None:
    """Whether it counts is for the engine to say."""
    house = House(tmp_path, {"type": "stale", "state": failing(None), "message": ""})
    later = DISPATCHED_NS + 600 * 10**9

    assert PASSED == house.reply(written=later, **failing()).code
    assert 1 == house.asked


def test_a_handoff_that_comes_too_late_is_told_to_a_person(tmp_path: Path) -> None:
    """Once for each that was written; while an attempt is left, and if it is another's, it is not said."""
    later = DISPATCHED_NS + 600 * 10**9

    def said(attempt: int, written: int, *, theirs: bool = True, **result: Any) -> Reply:
        state = failing(attempt=attempt, max_attempts=3)
        house = House(tmp_path, {"type": "stale", "state": state | result, "message": ""}, theirs=theirs)
        return house.reply("TeammateIdle", written=written, **state)

    assert BLOCKED == said(2, later).code
    first, same, again = (said(3, written) for written in (later, later, later + 1))
    assert [PASSED] * 3 == [one.code for one in (first, same, again)]
    assert f"A person is needed; next: handoffd retry {tmp_path}" in first.note
    assert ("", first.note) == (same.note, again.note)
    assert "" == said(3, later + 2, theirs=False).note
    assert BLOCKED == said(3, later + 3, completed_at="2026-01-01T10:09:00Z").code


def test_a_step_that_was_not_handed_over_is_asked_for_once_a_session(tmp_path: Path) -> None:
    """At the end of a turn only; subagents have other work."""
    house = House(tmp_path)

    assert [PASSED] * 4 == [house.reply(name).code for name in EVENTS if name != "Stop"]
    first = house.reply(written=BEFORE)
    assert BLOCKED == first.code
    assert "write .ai/HANDOFF.md" in first.text
    assert [PASSED, BLOCKED] == [house.reply(session=session).code for session in ("s", "other")]
    assert PASSED == House(tmp_path, theirs=False).reply(session="third").code


def test_twice_in_a_row_is_enough(tmp_path: Path) -> None:
    """Then the person is told, and the agent may stop; also if each time it was a new attempt."""
    replies = [mended(tmp_path, number) for number in range(4)]

    assert [BLOCKED, BLOCKED, PASSED, PASSED] == [reply.code for reply in replies]
    assert "sent back twice already" in replies[2].note
    assert BLOCKED == mended(tmp_path, 5, step="verify").code


@pytest.mark.parametrize(("status", "then"), [("pass", BLOCKED), ("needs_human", PASSED)])
def test_a_success_begins_anew(tmp_path: Path, status: str, then: int) -> None:
    """What waits for a person is none."""
    for number in range(2):
        mended(tmp_path, number)
    House(tmp_path, {"type": "applied", "state": state_of(status=status)}).reply(written=AFTER)

    assert then == mended(tmp_path, 3).code


def mended(tmp_path: Path, number: int, **changed: Any) -> Reply:
    """Return the reply to an agent whose attempt of that number failed."""
    at: Json = {"attempt": number, "dispatched_at": f"begun {number}", "completed_at": f"at {number}"}
    result = {"type": "applied", "state": failing(**at | changed), "message": ""}
    return House(tmp_path, result).reply("TeammateIdle", written=AFTER)


def test_an_agent_that_is_at_it_again_is_never_sent_back(tmp_path: Path) -> None:
    """`stop_hook_active` is honoured; the person is told."""
    house = House(tmp_path, {"type": "applied", "state": failing(), "message": ""})
    reply = house.reply(written=AFTER, continued=True)

    assert PASSED == reply.code
    assert "post_check failed" in reply.note
    assert PASSED == house.reply(continued=True).code


@pytest.mark.parametrize("code", ["NOT_FOUND", "NOT_INITIALIZED"])
def test_a_project_that_is_not_looked_after_is_left_alone(tmp_path: Path, code: str) -> None:
    """Another tool may have written its STATE.json."""
    house = House(tmp_path, {"type": "error", "code": code, "message": "no"})

    assert PASSED == house.reply(written=AFTER).code


def test_a_handoff_that_cannot_be_read_is_asked_for_again(tmp_path: Path) -> None:
    """Once for each that was written."""
    wrong = {"type": "error", "code": "MALFORMED_HANDOFF", "message": "line 3: no", "state": state_of()}
    house = House(tmp_path, wrong)

    assert [BLOCKED, PASSED, BLOCKED] == [house.reply(written=at).code for at in (AFTER, AFTER, AFTER + 1)]


def test_what_keeps_the_verb_from_being_carried_out_stops_nobody(tmp_path: Path) -> None:
    """It is shown, with the command that helps."""
    house = House(tmp_path, {"type": "error", "code": "DISK_FULL", "message": "full", "hint": "df -h"})
    reply = house.reply(written=AFTER)

    assert TOLD == reply.code
    assert "full; next: df -h" in reply.text


def test_what_cannot_be_counted_stops_nobody(tmp_path: Path) -> None:
    """Or it would stop them for ever."""
    (tmp_path / "hooks").write_text("in the way", encoding="utf-8")

    assert TOLD == House(tmp_path).reply().code


def test_a_paused_or_finished_attempt_is_nobodys_business(tmp_path: Path) -> None:
    """Whoever's it was."""
    house = House(tmp_path, {"type": "applied", "state": state_of(status="pass"), "message": "passed"})

    assert PASSED == house.reply(status="pass", written=AFTER).code
    assert 0 == house.asked


@pytest.mark.parametrize("name", ["Stop", "TeammateIdle"])
def test_checks_that_still_run_are_no_success(tmp_path: Path, name: str) -> None:
    """The person is told; what the agent was sent back for before counts on."""
    failed = House(tmp_path, {"type": "applied", "state": failing(), "message": ""})
    assert BLOCKED == failed.reply(name, written=AFTER).code
    unfinished = {
        "type": "applied", "checking": True, "state": state_of(), "message": "impl is running",
        "next_command": "handoffd apply /srv/shop",
    }  # fmt: skip
    reply = House(tmp_path, unfinished).reply(name, written=AFTER)

    assert (PASSED, "") == (reply.code, reply.text)
    assert "the checks of impl attempt 1 of US-001 still run" in reply.note
    assert reply.note.endswith("next: handoffd apply /srv/shop")
    again = [
        House(tmp_path, {"type": "applied", "state": failing(completed_at=at), "message": ""})
        .reply(name, written=AFTER).code
        for at in ("b", "c")
    ]  # fmt: skip
    assert [BLOCKED, PASSED] == again
