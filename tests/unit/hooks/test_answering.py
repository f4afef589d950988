"""What a hook answers at the end of a turn, and to whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.hooking import DISPATCHED, DISPATCHED_NS, event

from handoffd.hooks.answering import SLACK_NS, Answering, is_fresh, is_fresh_again, moment_ns
from handoffd.hooks.event import BLOCKED, EVENTS, PASSED, SESSION_END, TOLD, Reply, parse_event
from handoffd.hooks.project import Standing
from handoffd.hooks.tally import Tally

BEFORE, AFTER, LATER = (DISPATCHED_NS + minutes * 60 * 10**9 for minutes in (-1, 1, 10))
Json = dict[str, Any]


class House:
    """A project as a hook finds it, a verb that answers `result`, and how often it was given."""

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
        """Return the reply to an event of a session, while STATE.json has `state`."""
        continued = state.pop("continued", False)
        parsed = parse_event(event("/srv/shop", name, session_id=session, stop_hook_active=continued))
        assert parsed is not None
        return self._answering.answer(parsed, Standing(self.root, state_of(**state), written))


def state_of(**changed: Any) -> Json:
    """Return the fields of a STATE.json that hooks read."""
    return {
        "story": "US-001", "step": "impl", "attempt": 1, "status": "running", "dispatched_at": DISPATCHED,
        "completed_at": None, "last_error": None, **changed,
    }  # fmt: skip


def failing(error: str | None = "post_check failed: 3 problems", **changed: Any) -> Json:
    """Return the state of an attempt that a check failed."""
    judged = "2026-01-01T10:05:00Z"
    return state_of(status="failing", last_error=error, completed_at=judged) | changed


def applied(state: Json, kind: str = "applied", message: str = "") -> Json:
    """Return what the verb answers about a hand-off that leads to `state`."""
    return {"type": kind, "state": state, "message": message}


@pytest.mark.parametrize("name", EVENTS)
def test_a_handoff_is_applied_at_every_event(tmp_path: Path, name: str) -> None:
    """A good one stops no agent; at the end of a turn the person sees the result."""
    house = House(tmp_path, applied(state_of(status="pass"), message="impl passed"))
    reply = house.reply(name, written=AFTER)

    assert (1, PASSED, "") == (house.asked, reply.code, reply.text)
    assert ("handoffd: impl passed" if name == "Stop" else "") == reply.note


@pytest.mark.parametrize(
    ("result", "given", "code", "asked"),
    [
        pytest.param(None, {"name": "SubagentStop", "written": BEFORE}, PASSED, 0, id="an old hand-off"),
        pytest.param(None, {"written": AFTER}, PASSED, 1, id="applied later: no answer yet"),
        pytest.param(applied(failing()), {"name": SESSION_END, "written": AFTER}, TOLD, 1,
                     id="the end of a session cannot be stopped"),
        pytest.param(applied(failing(None)), {"written": AFTER}, PASSED, 1,
                     id="the agent itself reported the failure"),
        pytest.param(applied(failing(None), "stale"), {"written": LATER, **failing()}, PASSED, 1,
                     id="a second hand-off of a failed attempt: the engine decides"),
        pytest.param(None, {"written": AFTER, **failing()}, BLOCKED, 0, id="failed before the hook came"),
        pytest.param(applied(state_of()), {"written": AFTER, "status": "pass"}, PASSED, 0,
                     id="a finished attempt"),
        pytest.param({"type": "error", "code": "NOT_FOUND", "message": "no"}, {"written": AFTER}, PASSED, 1,
                     id="a project that is not supervised"),
        pytest.param({"type": "error", "code": "NOT_INITIALIZED", "message": "no"}, {"written": AFTER},
                     PASSED, 1, id="the STATE.json of another tool"),
    ],
)  # fmt: skip
def test_a_reply_follows_from_the_files_and_the_verb(
    tmp_path: Path, result: Json | None, given: Json, code: int, asked: int
) -> None:
    """It stops an agent only for a failure that the agent does not know about."""
    house = House(tmp_path, result)

    assert (code, asked) == (house.reply(**given).code, house.asked)


@pytest.mark.parametrize("name", [name for name in EVENTS if name != SESSION_END])
@pytest.mark.parametrize("kind", ["applied", "stale"])
def test_a_failed_check_sends_the_agent_back(tmp_path: Path, name: str, kind: str) -> None:
    """It sees the failure once, also if another hook applied the hand-off: the next hook is silent."""
    house = House(tmp_path, applied(failing(), kind))
    first, second = house.reply(name, written=AFTER), house.reply(name, written=AFTER)

    assert (BLOCKED, PASSED) == (first.code, second.code)
    assert "impl attempt 1 of US-001 is failing: post_check failed: 3 problems" in first.text
    assert ".ai/HANDOFF.md" in first.text


def test_a_person_learns_about_a_handoff_that_comes_too_late(tmp_path: Path) -> None:
    """Once for each, unless an attempt is left or the attempt is one of the daemon's."""

    def said(attempt: int, written: int, *, theirs: bool = True, **result: Any) -> Reply:
        state = failing(attempt=attempt, max_attempts=3)
        house = House(tmp_path, applied(state | result, "stale"), theirs=theirs)
        return house.reply("TeammateIdle", written=written, **state)

    assert BLOCKED == said(2, LATER).code
    first, same, again = (said(3, written) for written in (LATER, LATER, LATER + 1))
    assert [PASSED] * 3 == [one.code for one in (first, same, again)]
    assert f"A person is needed; next: handoffd retry {tmp_path}" in first.note
    assert ("", first.note) == (same.note, again.note)
    assert "" == said(3, LATER + 2, theirs=False).note
    assert BLOCKED == said(3, LATER + 3, completed_at="2026-01-01T10:09:00Z").code


def test_a_hook_asks_once_a_session_for_a_missing_handoff(tmp_path: Path) -> None:
    """Only at the end of a turn; subagents have other work."""
    house = House(tmp_path)

    assert [PASSED] * 4 == [house.reply(name).code for name in EVENTS if name != "Stop"]
    first = house.reply(written=BEFORE)
    assert BLOCKED == first.code
    assert "write .ai/HANDOFF.md" in first.text
    assert [PASSED, BLOCKED] == [house.reply(session=session).code for session in ("s", "other")]
    ours = House(tmp_path, theirs=False)  # an attempt of the daemon, which deals with it
    assert [PASSED] * 2 == [ours.reply(session="third").code, ours.reply(written=AFTER, **failing()).code]


@pytest.mark.parametrize("kind", ["taken", "stale"])
def test_a_handoff_of_the_attempt_before_is_none_of_this_one(tmp_path: Path, kind: str) -> None:
    """A dispatch right after it leaves its file looking new; the verb knows better, so the agent is asked."""
    house = House(tmp_path, applied(state_of(), kind))

    assert PASSED == house.reply("SubagentStop", written=DISPATCHED_NS - SLACK_NS).code
    replies = [house.reply(written=DISPATCHED_NS - SLACK_NS) for _ in range(2)]
    assert [BLOCKED, PASSED] == [reply.code for reply in replies]
    assert "write .ai/HANDOFF.md" in replies[0].text


def test_a_handoff_for_another_step_is_named(tmp_path: Path) -> None:
    """It was written since the attempt began, so the agent hears why it does not count; once."""
    why = "the hand-off is not for a running attempt: .ai/HANDOFF.md names step 'verify', not 'impl'"
    house = House(tmp_path, applied(state_of(), "stale", why))

    replies = [house.reply(written=AFTER) for _ in range(2)]
    assert [BLOCKED, PASSED] == [reply.code for reply in replies]
    assert "impl attempt 1 of US-001 runs in this project: the hand-off is not for" in replies[0].text
    assert "was not written" not in replies[0].text
    assert PASSED == house.reply("SubagentStop", written=AFTER).code


def failed(tmp_path: Path, number: int, **changed: Any) -> Reply:
    """Return the reply to an agent whose attempt of that number failed."""
    at: Json = {"attempt": number, "dispatched_at": f"begun {number}", "completed_at": f"at {number}"}
    return House(tmp_path, applied(failing(**at | changed))).reply("TeammateIdle", written=AFTER)


def test_a_hook_sends_an_agent_back_twice_in_a_row_at_most(tmp_path: Path) -> None:
    """Then the person sees the reason, and the agent may stop; also if each attempt was a new one."""
    replies = [failed(tmp_path, number) for number in range(4)]

    assert [BLOCKED, BLOCKED, PASSED, PASSED] == [reply.code for reply in replies]
    assert "sent back twice already" in replies[2].note
    assert BLOCKED == failed(tmp_path, 5, step="verify").code


@pytest.mark.parametrize(("status", "then"), [("pass", BLOCKED), ("needs_human", PASSED)])
def test_a_success_resets_the_count(tmp_path: Path, status: str, then: int) -> None:
    """A step that needs a person does not reset it."""
    for number in range(2):
        failed(tmp_path, number)
    House(tmp_path, applied(state_of(status=status))).reply(written=AFTER)

    assert then == failed(tmp_path, 3).code


def test_an_agent_that_a_hook_sent_back_is_not_sent_back_again(tmp_path: Path) -> None:
    """`stop_hook_active` is honoured: the hand-off is applied, and the person sees the failure."""
    house = House(tmp_path, applied(failing()))
    reply = house.reply(written=AFTER, continued=True)

    assert (PASSED, "", 1) == (reply.code, reply.text, house.asked)
    assert "post_check failed" in reply.note
    assert PASSED == house.reply(continued=True).code


def test_a_handoff_that_cannot_be_read_sends_the_agent_back(tmp_path: Path) -> None:
    """Once for each that was written."""
    wrong = {"type": "error", "code": "MALFORMED_HANDOFF", "message": "line 3: no", "state": state_of()}
    house = House(tmp_path, wrong)

    assert [BLOCKED, PASSED, BLOCKED] == [house.reply(written=at).code for at in (AFTER, AFTER, AFTER + 1)]


def test_trouble_of_ours_stops_no_agent(tmp_path: Path) -> None:
    """The person sees it, with the command that helps; so does what cannot be counted."""
    full = {"type": "error", "code": "DISK_FULL", "message": "full", "hint": "df -h"}
    reply = House(tmp_path, full).reply(written=AFTER)
    assert TOLD == reply.code
    assert "full; next: df -h" in reply.text

    (tmp_path / "hooks").write_text("in the way", encoding="utf-8")
    assert TOLD == House(tmp_path).reply().code


@pytest.mark.parametrize("name", ["Stop", "TeammateIdle"])
def test_checks_that_still_run_are_no_success(tmp_path: Path, name: str) -> None:
    """The person sees it; how often the agent was sent back before still counts."""
    assert BLOCKED == House(tmp_path, applied(failing())).reply(name, written=AFTER).code
    unfinished = applied(state_of()) | {"checking": True, "next_command": "handoffd apply /srv/shop"}
    reply = House(tmp_path, unfinished).reply(name, written=AFTER)

    assert (PASSED, "") == (reply.code, reply.text)
    assert "the checks of impl attempt 1 of US-001 still run" in reply.note
    assert reply.note.endswith("next: handoffd apply /srv/shop")
    again = [
        House(tmp_path, applied(failing(completed_at=at))).reply(name, written=AFTER) for at in ("b", "c")
    ]
    assert [BLOCKED, PASSED] == [one.code for one in again]


# --- whether a hand-off may be news ------------------------------------------------------------------
@pytest.mark.parametrize(
    ("dispatched_at", "written_ns", "fresh"),
    [
        (DISPATCHED, None, False),
        (DISPATCHED, DISPATCHED_NS, True),
        (DISPATCHED, DISPATCHED_NS - SLACK_NS, True),
        (DISPATCHED, DISPATCHED_NS - SLACK_NS - 1, False),
        (None, 1, True),
        ("yesterday", 1, True),
    ],
)
def test_a_handoff_from_before_the_dispatch_is_old(
    dispatched_at: str | None, written_ns: int | None, fresh: bool
) -> None:
    """With two seconds for clocks that round; without a time the engine decides."""
    assert fresh == is_fresh(Standing("/srv/shop", {"dispatched_at": dispatched_at}, written_ns))


def test_a_handoff_after_the_verdict_is_another_one() -> None:
    """The judged one is older than its verdict."""
    judged: dict[str, object] = {"completed_at": DISPATCHED}

    assert is_fresh_again(Standing("/srv/shop", judged, DISPATCHED_NS + 1))
    assert not is_fresh_again(Standing("/srv/shop", judged, DISPATCHED_NS - 1))
    assert not is_fresh_again(Standing("/srv/shop", {}, DISPATCHED_NS))


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        (DISPATCHED, DISPATCHED_NS),
        ("2026-01-01T10:00:00.000001+00:00", DISPATCHED_NS + 1000),
        ("2026-01-01T11:00:00+01:00", DISPATCHED_NS),
        ("2026-01-01T10:00:00", DISPATCHED_NS),
        ("", None),
        (5, None),
        (None, None),
    ],
)
def test_times_are_read_as_the_protocol_writes_them(text: object, moment: int | None) -> None:
    """In UTC if they name no zone."""
    assert moment == moment_ns(text)
