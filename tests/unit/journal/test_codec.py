from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.journal.strategies import values

from handoffd.engine.decision import Effect, Result
from handoffd.engine.events import Event, Started, StateEdited, TestEvidence
from handoffd.engine.flow.events import FlowEvent, Order, TaskEnded
from handoffd.engine.flow.flow import Flow
from handoffd.engine.run import Exit
from handoffd.engine.track import Track
from handoffd.journal.codec import (
    as_kept,
    decode,
    decode_effect,
    decode_event,
    decode_exit,
    decode_flow_event,
    decode_flow_order,
    decode_order,
    decode_result,
    decode_tests,
    decode_track,
    encode,
    readable,
)
from handoffd.protocol.state import State

CASES: list[tuple[type[Any], Callable[[str], Any]]] = [
    *((kind, decode_event) for kind in get_args(Event)),
    *((kind, decode_effect) for kind in get_args(Effect)),
    *((kind, decode_result) for kind in get_args(Result)),
    *((kind, decode_flow_event) for kind in get_args(FlowEvent)),
    *((kind, decode_flow_order) for kind in get_args(Order)),
    *((kind, decode_order) for kind in (*get_args(Effect), *get_args(Order))),
    (Flow, partial(decode, Flow)),
    (Track, decode_track),
    (Exit, decode_exit),
    (TestEvidence, decode_tests),
]


@pytest.mark.parametrize(("kind", "decode"), CASES, ids=[kind.__name__ for kind, _ in CASES])
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_is_written_is_read_back_equal(
    kind: type[Any], decode: Callable[[str], Any], data: st.DataObject
) -> None:
    """Every event, effect, result and track survives the journal exactly, in every field."""
    value = data.draw(values(kind))

    again = decode(encode(value))

    assert value == again
    assert type(value) is type(again)
    assert _key_orders(value) == _key_orders(again)


def test_unknown_keys_of_a_state_keep_their_place() -> None:
    """The order of STATE.json's keys is part of what the journal keeps."""
    state = State.model_validate({"x-owner": {"b": 1, "a": [1, 2.5, None]}, "project": "shop"})
    state._layout = ("x-owner", "project")

    again = decode_track(encode(Track(state=state))).state

    assert again is not None
    assert ("x-owner", "project") == again._layout
    assert ["b", "a"] == list((again.model_extra or {})["x-owner"])


def test_a_document_cannot_pass_itself_off_as_a_wrapper() -> None:
    """Keys that look like the journal's own stay foreign data."""
    forged = {"$state": {"layout": [], "document": {"project": "evil"}}}
    state = State.model_validate({"project": "shop", "$state": forged, "x": forged})

    assert StateEdited(state=state) == decode_event(encode(StateEdited(state=state)))


def test_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    """Broken output of an agent neither stops the journal nor gets into it."""
    assert Exit(code=1, tail="half ? of it") == decode_exit(encode(Exit(code=1, tail="half \ud83d of it")))


@pytest.mark.parametrize("odd", [2**64, -(2**63) - 1, 1e22, 5e-324, "\u2028", "\x7f", {"$": 1}, {"": []}])
def test_whatever_json_knows_is_kept(odd: object) -> None:
    """Also what the fast writer has no form for, or writes in another one than Python does."""
    state = State.model_validate({"project": "shop", "x": odd})

    assert StateEdited(state=state) == decode_event(encode(StateEdited(state=state)))


def test_a_text_of_another_release_is_read() -> None:
    """Written by Python's own encoder: other forms of floats, and the same values."""
    text = (
        '{"kind":"state_edited","state":{"$state":{"layout":["project","x"],'
        '"document":{"project":"shop","x":[1e+22,5e-324,"\u2028",18446744073709551616,{"$$odd":1}]}}}}'
    )
    state = State.model_validate({"project": "shop", "x": [1e22, 5e-324, "\u2028", 2**64, {"$odd": 1}]})

    assert StateEdited(state=state) == decode_event(text)
    assert Exit(code=3) == decode_exit('{"code":3,"moon_phase":"full"}'), "fields of a later one are ignored"


def test_readable_shows_a_state_as_the_document_it_is() -> None:
    """People and scripts see STATE.json, not how the journal wraps it."""
    state = State.model_validate({"project": "shop", "$odd": 1})

    shown = readable(encode(StateEdited(state=state)))

    assert ("shop", 1) == (shown["state"]["project"], shown["state"]["$odd"])


def test_a_value_without_a_form_is_an_error() -> None:
    """Nothing is written that could not be read again."""
    with pytest.raises(TypeError, match="no form for object"):
        encode(object())


def _key_orders(value: Any) -> Any:
    state = getattr(value, "state", None)
    return state._layout if isinstance(state, State) else None


@pytest.mark.parametrize(
    "state",
    [
        '{"project":"shop"}',
        '{"$state":{}}',
        '{"$state":{"layout":7,"document":{"project":"shop"}}}',
        '"shop"',
    ],
)
@pytest.mark.parametrize("other", ["", ',"$$odd":1'])
def test_a_state_in_another_form_is_an_error(state: str, other: str) -> None:
    """The journal was edited: the reader gets one kind of error, whatever is missing."""
    with pytest.raises(ValueError, match=r"."):
        decode_track(f'{{"state":{state},"ledger":{{}}{other}}}')


EVENTS = (
    "initialised started approved rejected retried skipped aborted paused resumed noted "
    "rolled_back reopened edit_confirmed executor_chosen limit_lifted budget_raised prompt_taken "
    "level_chosen post_checked landed discarded continued backlog_moved backlog_edited backlog_removed "
    "auto_continue_chosen advanced dispatch_failed baseline_measured executor_started "
    "spawn_refused handoff_settled deadline_passed cap_reached executor_quiet executor_stalled "
    "interrupted executor_exited checks_finished handoff_arrived state_edited restored "
    "notice_given_up cause_ended "
)
ORDERS = "measure_baseline spawn stop_tree run_checks notify write_checklist append_history "
RESULTS = "dispatched done needs_human blocked already_running timeout error accepted "
"""What journals hold already: a class may get another name, and these may not."""


@pytest.mark.parametrize(("union", "kinds"), [(Event, EVENTS), (Effect, ORDERS), (Result, RESULTS)])
def test_the_kinds_in_journals_keep_their_names(union: Any, kinds: str) -> None:
    """They follow from the names of classes, so that a class which is renamed needs a tag."""
    assert set(kinds.split()) <= {kind.__struct_config__.tag for kind in get_args(union)}


@pytest.mark.parametrize("instruction", ["plain", 'costs "$5"', "half \ud83d of it"])
def test_a_moment_is_spelled_alike_whatever_is_beside_it(instruction: str) -> None:
    """Also where a part of the text keeps the fast writer from writing it."""
    due = datetime(2026, 3, 1, 3, tzinfo=UTC)
    event = Started(story="US-1", instruction=instruction, due=due)
    state = State.model_validate({"project": "shop", "dispatched_at": "2026-03-01T03:00:00Z"})

    assert '"due":"2026-03-01T03:00:00Z"' in encode(event)
    assert '"dispatched_at":"2026-03-01T03:00:00Z"' in encode(StateEdited(state=state, dispatch=instruction))


def test_a_whole_number_may_be_written_as_a_float() -> None:
    """An agent's report may hold 2.0 where tokens are counted, and nothing checks a value that is made."""
    assert Exit(code=2) == decode_exit('{"code":2.0}')
    assert Exit(code=2, tail='"$$') == decode_exit('{"code":2.0,"tail":"\\"$$"}')


def test_a_value_as_it_is_kept_has_the_types_that_its_text_gives_it() -> None:
    """So a decision on it is made again on an equal value."""
    ended = TaskEnded(node="a", visit=1, status="pass", fields={"score": 3})
    kept = as_kept(ended)

    assert kept == ended
    assert float is type(kept.fields["score"])
    assert kept == as_kept(kept)


def test_keys_of_a_flow_may_be_any_text() -> None:
    """Also such as our own wrappers have; sets have one order."""
    flow = Flow(id="a-1", params={"$state": {"$x": 1}}, busy=frozenset({"b", '"$', "a"}))

    assert flow == as_kept(flow)
    assert '"busy":["\\"$","a","b"]' in encode(flow)
