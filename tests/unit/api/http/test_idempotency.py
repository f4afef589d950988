"""A request with a key is carried out once, whatever happens in between."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from msgspec.structs import replace
from tests.support.controlled import Controlled, controlled
from tests.support.eventually import eventually_sync
from tests.support.loopback import OverSocket
from tests.support.supervision import MemorySupervision
from tests.unit.journal.making import record

from handoffd.api.http.application import fingerprint
from handoffd.api.http.endpoint import MOST_KEY
from handoffd.clock import SystemClock
from handoffd.engine.decision import Refusal, Result
from handoffd.engine.events import Noted, Verb

NOTE = "/v1/verbs/note"


def post(control: Controlled, path: str, key: str | None, **body: Any) -> tuple[int, bool, Any]:
    """Return the status, whether it was a replay, and the answer."""
    answer = OverSocket(control.socket).ask("POST", path, json.dumps(body).encode(), idempotency_key=key)
    return answer.status, answer.headers.get("idempotent-replay") == "true", answer.json


def given(control: Controlled) -> list[str]:
    """Return the texts of the notes that reached the engine."""
    return [verb.text for _, verb in control.supervision.given if isinstance(verb, Noted)]


def test_a_repeated_request_is_answered_and_not_done_again(control: Controlled) -> None:
    """By its key; without one, and with another, it is done."""
    first = post(control, NOTE, "a", project="shop", text="x")
    second = post(control, NOTE, "a", text="x", project="shop")
    post(control, NOTE, None, project="shop", text="x")
    post(control, NOTE, "b", project="shop", text="x")

    assert (200, False) == first[:2]
    assert (200, True, first[2]) == second
    assert ["x", "x", "x"] == given(control)


def test_another_request_under_the_same_key_is_refused(control: Controlled) -> None:
    """Another body, or another path."""
    post(control, NOTE, "a", project="shop", text="x")

    for path, body in ((NOTE, {"project": "shop", "text": "y"}), ("/v1/verbs/pause", {"project": "shop"})):
        status, _, told = post(control, path, "a", **body)
        assert (409, "IDEMPOTENCY_CONFLICT") == (status, told["code"])
    assert ["x"] == given(control)


def test_a_refusal_of_the_engine_is_an_answer(control: Controlled) -> None:
    """It comes again, though the engine would answer differently by now."""
    before = control.supervision.answer
    control.supervision.answer = Refusal(code="WRONG_STEP", message="no", caller_instruction="no")
    first = post(control, NOTE, "a", project="shop", text="x")
    control.supervision.answer = before

    assert (409, False, "WRONG_STEP") == (*first[:2], first[2]["code"])
    assert (409, True, first[2]) == post(control, NOTE, "a", project="shop", text="x")


def test_a_wrong_request_leaves_the_key_free(control: Controlled) -> None:
    """The corrected one may use it."""
    assert 404 == post(control, NOTE, "a", project="nope", text="x")[0]
    assert (200, False) == post(control, NOTE, "a", project="shop", text="x")[:2]


@pytest.mark.parametrize("key", ["", "x" * (MOST_KEY + 1), "a b", "é", "a\tb"])
def test_a_wrong_key_is_refused(control: Controlled, key: str) -> None:
    """Before anything is done; stopping takes none, because its answer would stop the next daemon."""
    status, _, told = post(control, NOTE, key, project="shop", text="x")

    assert (400, "BAD_ARGUMENT", []) == (status, told["code"], given(control))
    assert (400, []) == (post(control, "/v1/stop", "a")[0], control.stopped_with)


def test_an_answer_survives_the_daemon(supervision: MemorySupervision, tmp_path: Path) -> None:
    """Also one without an event."""
    with controlled(supervision, state=tmp_path) as control:
        first = post(control, "/v1/reload", "a")
    with controlled(supervision, state=tmp_path) as control:
        assert (200, True, first[2]) == post(control, "/v1/reload", "a")


def _claimed(control: Controlled, key: str, path: str, **body: Any) -> None:
    """Leave behind what a daemon does that dies before it answers."""
    control.run(control.journal.requests.claim, key, fingerprint(path, body), SystemClock().now())


def test_a_request_that_an_earlier_daemon_carried_out_is_answered_and_not_done(control: Controlled) -> None:
    """The event was committed with the key: its result is the answer, and is kept from then on."""
    _claimed(control, "a", NOTE, project="shop", text="x")
    committed = control.commit(replace(record(why="noted"), request="a"))

    first = post(control, NOTE, "a", project="shop", text="x")
    second = post(control, NOTE, "a", project="shop", text="x")

    (event,) = control.client.get("/v1/events", after=committed.seq - 1, limit=1)["events"]
    assert (200, True, event["result"]["type"]) == (*first[:2], first[2]["type"])
    assert first == second
    assert [] == given(control)


def test_a_request_that_an_earlier_daemon_only_began_is_done(control: Controlled) -> None:
    """It had no effect."""
    _claimed(control, "a", NOTE, project="shop", text="x")

    assert (200, False) == post(control, NOTE, "a", project="shop", text="x")[:2]
    assert ["x"] == given(control)


def test_a_request_that_was_perhaps_done_in_part_is_not_done_again(control: Controlled) -> None:
    """One of several events: a person has to look."""
    _claimed(control, "a", "/v1/verbs/dispatch", project="shop")
    control.commit(replace(record(), request="a"))

    status, _, told = post(control, "/v1/verbs/dispatch", "a", project="shop")

    assert (409, "REQUEST_CUT_SHORT", "handoffd events") == (status, told["code"], told["hint"])


class _Slow(MemorySupervision):
    """Waits in every verb."""

    def __init__(self, like: MemorySupervision) -> None:
        self.__dict__.update(like.__dict__)
        self.begun = threading.Event()
        self.may_end = threading.Event()

    async def give(
        self, project: str, verb: Verb, request: str | None = None, story: str | None = None
    ) -> Result:
        """Wait for the test."""
        self.begun.set()
        await to_thread.run_sync(self.may_end.wait, 60)
        return await super().give(project, verb, request, story)


def test_two_at_once_are_one(supervision: MemorySupervision) -> None:
    """The second waits for the first, and another request under that key does not."""
    slow = _Slow(supervision)
    answers: list[tuple[int, bool, Any]] = []
    with controlled(slow) as control:

        def ask() -> None:
            answers.append(post(control, NOTE, "a", project="shop", text="x"))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert eventually_sync(slow.begun.is_set)
        conflict = post(control, NOTE, "a", project="shop", text="y")
        slow.may_end.set()
        for thread in threads:
            thread.join(60)

        assert 409 == conflict[0]
        assert [(200, False), (200, True), (200, True)] == sorted(answer[:2] for answer in answers)
        assert ["x"] == given(control)
