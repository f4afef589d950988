"""STATE.json changed by somebody else: adopted, held, or undone; and a journal older than it.

A human gate opens only through a verb. So an edit from outside that would carry a story past one is
held until a person confirms it, and while an executor runs every edit is undone.
"""

from __future__ import annotations

from handoffd.engine.advice import next_command, way_on
from handoffd.engine.changing import changed
from handoffd.engine.commands import command
from handoffd.engine.decision import Decision, Situation, gate_ground, ground
from handoffd.engine.effects import NoticeKind
from handoffd.engine.events import Restored, StateEdited
from handoffd.engine.requests import EditConfirmed
from handoffd.engine.routing import lasting, with_done
from handoffd.engine.track import HeldEdit, Track
from handoffd.engine.verbs import moved_by_person
from handoffd.engine.waiting import at_gate
from handoffd.engine.wording import accept, ask_human, notice, refuse
from handoffd.protocol.rules import DONE
from handoffd.protocol.state import State, Status

_SHUT = frozenset({Status.PENDING, Status.NEEDS_HUMAN, Status.FAILING})
"""With these a human step is not passed; failing, it was rejected, and goes back."""


def state_edited(situation: Situation, event: StateEdited) -> Decision:
    """Adopt, hold or undo an edit that was valid in itself."""
    if situation.track.state is None:
        return _adopt(situation, event.state, "found in the project", event.done, tells=event.tells)
    if situation.ledger.dispatch is not None or event.dispatch is not None or event.overtaken:
        return _undo(
            situation, "STATE_TAMPERED", "STATE.json was changed while an executor ran, and was restored"
        )
    unknown = event.state.step != DONE and event.state.step not in situation.rules.steps
    if unknown:
        return _undo(
            situation,
            "UNKNOWN_STEP",
            f"STATE.json was changed to the unknown step {event.state.step}, and was restored",
        )
    if event.policy == "refuse":
        return _undo(
            situation,
            "EDIT_REFUSED",
            "STATE.json was changed from outside, and was restored (external_edits: refuse)",
        )
    if event.policy == "hold_gates" and (gate := _gate_passed(situation, event.state)) is not None:
        return _hold(situation, event, gate)
    return _adopt(situation, event.state, "changed from outside", event.done, tells=event.tells)


def edit_confirmed(situation: Situation, event: EditConfirmed) -> Decision:
    """Adopt the edit that was held."""
    held = situation.ledger.held_edit
    advice = way_on(situation.track, situation.rules)
    if held is None:
        return refuse(situation, "NOTHING_HELD", "no edit of STATE.json is held", advice)
    if situation.ledger.dispatch is not None:
        return refuse(situation, "ALREADY_RUNNING", "an executor runs: confirm when it has ended", advice)
    confirmed = situation.at(moved_by_person(situation.track))
    return _adopt(confirmed, held.state, f"confirmed by {event.by}", held.done, tells=held.tells)


def restored(situation: Situation, event: Restored) -> Decision:
    """Stand still until a person has looked: what came after is known to the disk only."""
    track = situation.track
    if situation.ledger.dispatch is not None and event.overtaken:
        when = "the journal was backed up" if event.owner is None else "another handoffd took the project"
        error = f"attempt {situation.state.attempt} was in flight when {when}"
        track = track.without_dispatch().with_state(
            status=Status.PENDING, last_error=error, completed_at=situation.now
        )
    held = track.with_ledger(paused_by=situation.ledger.paused_by or event.by, told=None)
    if event.owner is None:
        message = f"the journal was restored from a backup; paused by {held.ledger.paused_by}"
        return accept(held, message, do="look at the status, then resume it")
    message = f"the project was with another handoffd ({event.owner}) and is back; it is paused"
    why = "what was done there, only STATE.json and the files tell"
    told = notice(held, "blocked", message, why=why, action=next_command(held, situation.rules))
    return accept(held, message, do="look at the status, then resume it").also(told)


def _adopt(situation: Situation, state: State, why: str, done: tuple[str, ...], *, tells: bool) -> Decision:
    before = situation.track.state
    if state.step == DONE:
        state = state.with_(status=Status.PASS)  # the end of a pipeline has no other status
    same_story = before is not None and before.story == state.story
    ledger = situation.ledger if same_story else lasting(situation.ledger)
    track = Track(state=state, ledger=with_done(ledger, done)).with_ledger(
        held_edit=None, told=None, handed_out=None
    )
    if before is None or before.step != state.step:
        track = track.with_ledger(
            free_repeats=0, timeouts=0, session=None, asking=None, gate=None
        )  # of one step
    if state.status is not Status.RUNNING:
        track = track.without_dispatch()
    decision = accept(track, f"STATE.json adopted: {state.step} {state.status}", why=why)
    return _telling(situation, decision, why) if tells else decision


def _telling(situation: Situation, decision: Decision, why: str) -> Decision:
    """Return the decision with a notice, where the project waits for a person from now on."""
    before, after, track = situation.track.state, decision.track.state, decision.track
    assert after is not None
    if after.story is None or track.ledger.closed or _same_place(before, after):
        return decision
    kind: NoticeKind = "timeout" if after.status is Status.TIMEOUT else "needs_human"
    text = f"{after.step} of {after.story} waits for a person: {after.last_error or f'it is {after.status}'}"
    if after.status is Status.NEEDS_HUMAN and at_gate(track, situation.rules):
        track = track.with_ledger(gate=after.step)
        text = (
            f"{after.step} of {after.story} waits for your decision: approve it, or reject it with a reason"
        )
    elif after.status is Status.PENDING and track.ledger.remedy is not None:
        kind, text = "blocked", f"{after.project} is paused by {track.ledger.paused_by}"
    elif after.status is Status.PENDING and track.ledger.capped is not None and _moved(before, after):
        return changed(
            decision, track=track.with_ledger(capped=None)
        )  # the next turn counts, and tells of it
    elif after.status not in {Status.NEEDS_HUMAN, Status.TIMEOUT}:
        return decision
    action = next_command(track, situation.rules)
    told = notice(track, kind, text, why=f"STATE.json was {why}", action=action)
    return changed(decision, track=track).also(told)


def _same_place(before: State | None, after: State) -> bool:
    """Return whether a notice of a wait there was sent already."""
    return before is not None and (before.story, before.step, before.status) == (
        after.story,
        after.step,
        after.status,
    )


def _moved(before: State | None, after: State) -> bool:
    return before is None or (before.story, before.step) != (after.story, after.step)


def _undo(situation: Situation, code: str, message: str) -> Decision:
    events = command("events")
    decision = refuse(situation, code, message, events)
    why = "STATE.json is handoffd's to write; it was put back as it was"
    return decision.also(notice(situation.track, "warning", message, why=why, action=events))


def _hold(situation: Situation, event: StateEdited, gate: str) -> Decision:
    state = event.state
    why = f"STATE.json was edited past the human step {gate} (to {state.step} {state.status})"
    track = situation.track.with_ledger(
        held_edit=HeldEdit(state=state, why=why, done=event.done, tells=event.tells)
    )
    held = ask_human(situation.at(track), why, why="a gate opens only through a verb")
    return held.because(gate_ground(situation, gate), ground("settings.external_edits", "hold_gates"))


def _gate_passed(situation: Situation, after: State) -> str | None:
    """Return the human step that the edit would pass, if there is one."""
    before = situation.state
    same_story = before.story == after.story
    for gate in _gates_on_the_way(situation, after):
        at_gate = gate == after.step
        already_open = same_story and before.step == gate and before.status is Status.PASS
        if already_open or (at_gate and after.status in _SHUT):
            continue
        return gate
    return None


def _gates_on_the_way(situation: Situation, after: State) -> list[str]:
    """Return the human steps from where the story stood to where the edit puts it, both included."""
    before, path = situation.state, situation.rules.path(after.task_type)
    # A step off the path has left every gate of it behind, as the end has.
    end = path.index(after.step) if after.step in path else len(path)
    steps = list(path[: end + 1])
    if before.story == after.story:
        here = max(situation.index_of(before.step), 0)
        if before.task_type == after.task_type:
            steps = steps[here:]
        elif before.story is not None:  # another pipeline leaves behind the gates of the one it was in
            steps += situation.rules.path(before.task_type)[here:]
    kept = (
        situation.ledger.gate if before.story is not None and before.step == situation.ledger.gate else None
    )
    return [step for step in steps if step == kept or situation.rules.steps[step].requires_human]
