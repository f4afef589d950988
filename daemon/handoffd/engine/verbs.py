"""What people order: each verb is taken or refused, never half of it.

An edit of STATE.json is an order, too, by another way: it is adopted, held or undone. A human gate opens
only through a verb. So an edit from outside that would carry a story past one is held until a person
confirms it, and while an executor runs every edit is undone. Starts and the backlog are in `starting.py`.
"""

from __future__ import annotations

from datetime import UTC
from typing import Final

from msgspec.structs import replace

from handoffd.engine.decision import (
    AppendHistory,
    Decision,
    NoticeKind,
    Situation,
    UnknownStepError,
    accept,
    ask_human,
    at_gate,
    gate_ground,
    ground,
    next_command,
    notice,
    refuse,
    row,
    to_review,
    way_on,
)
from handoffd.engine.ends import aborted, stop
from handoffd.engine.events import (
    Aborted,
    Approved,
    EditConfirmed,
    ExecutorChosen,
    Initialised,
    LandingRefused,
    LevelChosen,
    Noted,
    PostChecked,
    Rejected,
    Reopened,
    Restored,
    Retried,
    RolledBack,
    Skipped,
    StateEdited,
    Undone,
)
from handoffd.engine.routing import MAX_ATTEMPTS, enter
from handoffd.engine.track import (
    Approval,
    HeldEdit,
    StopReason,
    Track,
    is_beside,
    lasting,
    with_done,
)
from handoffd.engine.wording import approving, checks_in_words, command, counted
from handoffd.protocol.rules import DONE
from handoffd.protocol.state import State, Status


# --- a check on request -------------------------------------------------------------------------------
def post_checked(situation: Situation, event: PostChecked) -> Decision:
    """Note how the step's post_check came out; nothing follows from it."""
    dispatch = situation.ledger.dispatch
    if dispatch is not None:
        advice = way_on(situation.track, situation.rules)
        return refuse(
            situation, "ALREADY_RUNNING", f"{dispatch.id} is in flight and checked by itself", advice
        )
    track = situation.track.with_state(lint_pass=event.passed)
    named = [one for one in event.checks if one.name is not None]
    ended = f": {checks_in_words(named)}" if named else " passed" if event.passed else " failed"
    return accept(track, f"post_check of {situation.state.step}{ended}")


# --- a project's first state, and its level -----------------------------------------------------------
def initialise(situation: Situation, event: Initialised) -> Decision:
    """Give the track its first STATE."""
    state = State(project=event.project)
    bootstrap = situation.rules.pipelines["story"].bootstrap or situation.rules.pipelines["story"].first
    ledger = with_done(situation.ledger, event.done)
    track = enter(Track(state=state, ledger=ledger), bootstrap, situation.rules)
    if event.as_published:
        track = track.with_state(max_attempts=state.max_attempts, timeout_min=state.timeout_min)
    return accept(track, f"{event.project} is initialised", do=f"next: {command('start', 'STORY')}")


def choose_level(situation: Situation, event: LevelChosen) -> Decision:
    """Go on by itself, or leave the steps to people; what runs goes on as it is."""
    automatic = event.level == 2
    track = situation.track.with_ledger(automatic=automatic, by_hand=not automatic)
    who = "handoffd dispatches its steps" if automatic else "its steps are dispatched by people"
    return accept(track, f"level {event.level} from now on: {who}")


# --- gates --------------------------------------------------------------------------------------------
def approve(situation: Situation, event: Approved) -> Decision:
    """Pass a human step; the note goes into the next prompt."""
    if (refused := _no_gate(situation, event.story)) is not None:
        return refused
    track = moved_by_person(
        situation.track.with_state(status=Status.PASS, reason=None, completed_at=situation.now)
    ).with_note(event.note)
    track = track.with_ledger(unseen=False)
    if event.undoable and track.state is not None:
        before, after = situation.state.human_note, track.state.human_note
        approval = Approval(step=situation.state.step, by=event.by, before=before, after=after)
        track = track.with_ledger(approval=approval)
    decision = accept(track, f"{situation.state.step} approved by {event.by}")
    return decision.because(gate_ground(situation, situation.state.step))


def undo(situation: Situation, event: Undone) -> Decision:
    """Have a human step that was approved wait for a decision again, and tell people so."""
    state, approval, track = situation.state, situation.ledger.approval, situation.track
    if (refused := _of_another(situation, event.story) or _not_open(situation)) is not None:
        return refused
    if approval is None:
        return too_late(situation)
    if state.step != approval.step:
        if approval.step not in situation.rules.steps:
            raise UnknownStepError(approval.step)
        track = enter(track, approval.step, situation.rules)
    note = approval.before if state.human_note == approval.after else state.human_note
    track = track.with_state(status=Status.NEEDS_HUMAN, human_note=note, completed_at=None)
    track = moved_by_person(track).with_ledger(gate=approval.step)
    message = f"the approval of {approval.step} by {approval.by} was taken back by {event.by}"
    told = notice(
        track, "needs_human", f"{approval.step} of {state.story} waits for your decision again", why=message,
        action=approving(state.story), review=to_review(situation.at(track)),
    )  # fmt: skip
    return accept(track, message, do="a person decides it again").also(told)


def too_late(situation: Situation) -> Decision:
    """Return the refusal where there is no approval to take back, or none any more."""
    step, steps = situation.state.step, situation.rules.path(situation.state.task_type)
    behind = steps[: max(situation.index_of(step), 0)]
    gates = [name for name in behind if situation.rules.steps[name].requires_human]
    if not gates:
        return refuse(situation, "NOTHING_APPROVED", "no approval was given before", command("status"))
    message = f"{step} has begun: the approval of {gates[-1]} cannot be taken back any more"
    runs = situation.state.status is Status.RUNNING
    advice = _way_on(situation) if runs else command("rollback", gates[-1])
    return refuse(situation, "TOO_LATE", message, advice)


def reject(situation: Situation, event: Rejected) -> Decision:
    """Fail a human step; the reason routes it and the note goes into the next prompt."""
    if (refused := _no_gate(situation, event.story)) is not None:
        return refused
    failing = situation.track.with_state(
        status=Status.FAILING, reason=event.reason, completed_at=situation.now, last_error=None
    )
    target = situation.rule.target(event.reason)
    message = f"{situation.state.step} rejected by {event.by}, back to {target}"
    reason = event.reason if event.reason in situation.rule.on_fail else "default"
    route = row(situation.state.step, f"on_fail.{reason}", target)
    return accept(moved_by_person(failing).with_note(event.note), message).because(
        gate_ground(situation, situation.state.step), route
    )


def _no_gate(situation: Situation, story: str | None) -> Decision | None:
    """Return the refusal if the track is not at a gate that can be approved or rejected; None if it is.

    `story` is whose gate it must be, None for whichever is in flight.
    """
    if (refused := _of_another(situation, story)) is not None:
        return refused
    if situation.done or not situation.at_gate:
        message = f"{situation.state.step} is not a human step"
        return refuse(situation, "WRONG_STEP", message, _way_on(situation))
    return _not_open(situation)


def _of_another(situation: Situation, story: str | None) -> Decision | None:
    """Return the refusal of a decision about another story than the one in flight; None for that one."""
    step, flying = situation.state.step, situation.state.story
    if story in {None, flying}:
        return None
    # A notice is read hours later; by then another story may wait at a gate that no person has seen.
    now = f"{flying} is the one in flight, at {step}" if situation.in_flight else "no story is in flight"
    return refuse(situation, "WRONG_STORY", f"{story} waits at no gate; {now}", command("status"))


# --- the story in flight ------------------------------------------------------------------------------
def retry(situation: Situation, event: Retried) -> Decision:
    """Try the current step afresh."""
    if (closed := _not_open(situation)) is not None:
        return closed
    state = situation.state
    unblocked = tuple(name for name in state.blocked_by if name != MAX_ATTEMPTS)
    track = situation.track.with_state(
        status=Status.PENDING,
        attempt=1,
        max_attempts=situation.rule.max_attempts,
        reason=None,
        blocked_by=unblocked,
    )
    return accept(moved_by_person(track.unpaused()), f"{state.step} is tried again, as {event.by} asked")


def skip(situation: Situation, event: Skipped) -> Decision:
    """Pass the current step without evidence, and remember that."""
    if (closed := _not_open(situation)) is not None:
        return closed
    state = situation.state
    if situation.at_gate:
        message = f"{state.step} is a human step and cannot be skipped: approve or reject it"
        open_ = state.status in {Status.PENDING, Status.NEEDS_HUMAN}
        return refuse(
            situation, "WRONG_STEP", message, approving(state.story) if open_ else _way_on(situation)
        )
    unblocked = tuple(name for name in state.blocked_by if name != MAX_ATTEMPTS)
    track = situation.track.with_state(
        status=Status.PASS, reason=None, last_error=None, completed_at=situation.now, blocked_by=unblocked
    ).with_ledger(skipped=(*situation.ledger.skipped, state.step))
    return accept(moved_by_person(track), f"{state.step} skipped by {event.by}, without evidence")


def use(situation: Situation, event: ExecutorChosen) -> Decision:
    """Have the rest of the story worked on by others; what runs goes on as it is."""
    if (closed := _not_open(situation)) is not None:
        return closed
    chosen = ", else ".join(event.executor) or "what the settings say"
    track = situation.track.unpaused().with_ledger(executor=event.executor)
    return accept(track, f"{situation.state.story} goes on with {chosen}, from the next attempt on")


def abort(situation: Situation, event: Aborted) -> Decision:
    """Close the track, ending its executor first."""
    if situation.done or situation.state.story is None:
        return refuse(situation, "NOTHING_TO_ABORT", "no story is in flight", _way_on(situation))
    if situation.ledger.closed:
        return _closed(situation)
    if situation.ledger.dispatch is not None:
        return stop(situation, StopReason.ABORT, f"aborted by {event.by}", by=event.by)
    return aborted(situation, event.by)


def note(situation: Situation, event: Noted) -> Decision:
    """Keep a note for the next prompt; one given while an executor runs is for the prompt after."""
    track = situation.track
    if situation.state.status is Status.RUNNING:
        together = "\n\n".join(part for part in (track.ledger.next_note, event.text) if part)
        return accept(track.with_ledger(next_note=together), "noted for the prompt after the running one")
    return accept(track.with_note(event.text), "noted for the next prompt")


def _not_open(situation: Situation) -> Decision | None:
    if situation.done:
        message = f"{situation.state.story} is done: reopen it, or start another"
        return refuse(situation, "ALREADY_DONE", message, _way_on(situation))
    if situation.ledger.closed:
        return _closed(situation)
    if situation.state.story is None:
        return refuse(situation, "NO_STORY", "no story was started", _way_on(situation))
    return None


def _closed(situation: Situation) -> Decision:
    message = f"the track was {situation.state.last_error}: start a story, or roll back"
    return refuse(situation, "CLOSED", message, _way_on(situation))


def _way_on(situation: Situation) -> str:
    return way_on(situation.track, situation.rules)


def moved_by_person(track: Track) -> Track:
    """Return the track with the counters against endless loops at zero: a person has looked.

    A pending edit was made for the earlier step, and leads nowhere any more.
    """
    return track.with_ledger(
        visits={}, free_repeats=0, asking=None, timeouts=0, told=None, held_edit=None, capped=None,
        approval=None, ends={},
    )  # fmt: skip


# --- ways back ----------------------------------------------------------------------------------------
def roll_back(situation: Situation, event: RolledBack) -> Decision:
    """Go back to an earlier step of the pipeline."""
    if (refused := _not_a_way_back(situation, event)) is not None:
        return refused
    unblocked = tuple(name for name in situation.state.blocked_by if name != MAX_ATTEMPTS)
    track = enter(
        situation.track.with_state(blocked_by=unblocked, completed_at=None), event.step, situation.rules
    )
    opened = moved_by_person(track).with_ledger(
        closed=False, discarded=None, stories_done=_others_done(situation)
    )
    message = f"rolled back to {event.step} by {event.by}"
    if (brought := event.brought) is not None:
        files = counted(brought.files, "file")
        message += f"; {files} brought back as in {brought.snapshot}, kept as they were in {brought.kept}"
    return accept(opened, message)


def _not_a_way_back(situation: Situation, event: RolledBack) -> Decision | None:
    """Return why a track cannot be rolled back to a step; None when it can."""
    here, there = situation.index_of(situation.state.step), situation.index_of(event.step)
    if there < 0 or event.step == DONE:
        return refuse(situation, "INVALID_TARGET", _no_step(situation, event.step), _way_back(situation))
    if 0 <= here <= there:
        message = f"{event.step} is not before {situation.state.step}"
        return refuse(situation, "ROLLBACK_FORWARD", message, _way_back(situation))
    if event.step == _bootstrap(situation) and not event.force:
        message = f"{event.step} starts the whole project anew; --force says that this is meant"
        return refuse(situation, "NEEDS_FORCE", message, command("rollback", event.step, "--force"))
    return None


def _way_back(situation: Situation, wanted: str | None = None) -> str:
    """Return the command for the earlier step that was wanted, else for the last one before this."""
    path, here = situation.rules.path(situation.state.task_type), situation.index_of(situation.state.step)
    earlier = [step for step in path[: here if here >= 0 else None] if step != _bootstrap(situation)]
    if not earlier:
        return _way_on(situation)
    return command("rollback", wanted if wanted in earlier else earlier[-1])


def _bootstrap(situation: Situation) -> str | None:
    return situation.pipeline(situation.state.task_type).bootstrap


def _no_step(situation: Situation, step: str) -> str:
    path = ", ".join(situation.rules.path(situation.state.task_type))
    return f"{step} is not a step of this pipeline (allowed: {path})"


def reopen(situation: Situation, event: Reopened) -> Decision:
    """Take a story that is done up again at one of its steps."""
    state = situation.state
    if not situation.done:
        return not_done(situation, event)
    if event.step == DONE:
        message = "a story cannot be reopened at done: it is the end, not a step"
        return refuse(situation, "REOPEN_TO_DONE", message, command("reopen", "STEP"))
    if situation.index_of(event.step) < 0:
        message = _no_step(situation, event.step)
        return refuse(situation, "INVALID_TARGET", message, command("reopen", "STEP"))
    entered = enter(
        situation.track.with_state(reopened_from=event.step, completed_at=None), event.step, situation.rules
    )
    track = moved_by_person(entered.with_note(event.note)).with_ledger(
        escalated=False, stories_done=_others_done(situation), landed=False, discarded=None, unlanded=None
    )
    order = AppendHistory(text=_entry_of(situation, event))
    return accept(track, f"{state.story} reopened at {event.step} by {event.by}").also(order)


MOST_RESOLVES: Final = 2
"""How often a story is taken up again by itself because it could not be landed."""


def landing_refused(situation: Situation, event: LandingRefused) -> Decision:
    """Have an agent make a story fit the branch that it will land on; after two tries a person has to."""
    state, ledger = situation.state, situation.ledger
    own = situation.done and state.story == event.story
    if not event.stays and state.status is not Status.PASS:  # as an older release decided
        if state.status is Status.RUNNING:
            advice = way_on(situation.track, situation.rules)
            return refuse(situation, "ALREADY_RUNNING", f"{state.step} runs", advice)
        return refuse(situation, "STALE_FACT", f"{event.kind} changes nothing at {state.status}")
    if not own and event.story not in ledger.to_land:
        return refuse(situation, "STALE_FACT", f"{event.story} is at work again")
    if own and event.note is not None and ledger.resolves < MOST_RESOLVES:
        path, rules = situation.rules.path(state.task_type), situation.rules.steps
        step = next((one for one in path if rules[one].tests == "green"), path[0])
        reopened = reopen(situation, Reopened(step=step, note=event.note, entry=2, by="stories.land"))
        track = reopened.track.with_ledger(resolves=ledger.resolves + 1)
        return replace(reopened, track=track).because(ground("stories.land", "auto"))
    message = f"{event.story} could not be landed: {event.why}"
    left = tuple(name for name in ledger.to_land if name != event.story or event.stays)
    track = situation.track.with_ledger(to_land=left, unlanded=event.why if own else ledger.unlanded)
    action = event.remedy or command("land", "--story", event.story)
    told = notice(track, "needs_human", message, why="it is done, and its branch is kept", action=action)
    told = replace(told, story=event.story, step=DONE)  # its own track may have ended
    decision = accept(track, message, do=f"a person has to: {action}")
    return replace(decision, result=replace(decision.result, next_command=action)).also(told)


def not_done(situation: Situation, event: Reopened) -> Decision:
    """Refuse to reopen what was not finished: its steps are reached by a rollback."""
    story = situation.state.story
    message = f"{story} is not done: roll back instead" if story else "no story was started"
    advice = _way_back(situation, event.step) if story else _way_on(situation)
    return refuse(situation, "NOT_DONE", message, advice)


def _entry_of(situation: Situation, event: Reopened) -> str:
    """Return the entry of the history for a reopening: other tools count and read them by their form."""
    story, at = situation.state.story, situation.now
    if event.entry == 1:  # recorded by a release that wrote it so
        note = event.note or "No note was given."
        return f"\n### Reopen {story} at {event.step} ({at.date().isoformat()})\n\n{note}\n"
    moment = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    note = " ".join((event.note or "N/A").split())
    return (
        f"### Reopen — {story or 'null'} → {event.step}\n- **Date**: {moment}\n"
        f"- **From**: {DONE} → {event.step}\n- **Note**: {note}\n"
    )


def _others_done(situation: Situation) -> tuple[str, ...]:
    """Return the stories done but for the one in hand: what is worked on again is not done."""
    return tuple(name for name in situation.ledger.stories_done if name != situation.state.story)


# --- STATE.json changed by others, and a journal older than it ----------------------------------------
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
    if (tracks := _has_another_track(situation, event)) is not None:
        why = f"STATE.json was changed to {event.state.story or 'no story'}, but {tracks}; it was restored"
        return _undo(situation, "OTHER_TRACK", why)
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


def _has_another_track(situation: Situation, event: StateEdited) -> str | None:
    """Return that the story of an edit has another track than the one edited, in words."""
    story = event.state.story
    if event.own is not None and story != event.own:
        return f"{event.own} has this track to itself"
    return f"{story} has a track of its own" if is_beside(situation.ledger, story) else None


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
        held_edit=None, told=None, handed_out=None, approval=None
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
    elif after.status not in {Status.NEEDS_HUMAN, Status.TIMEOUT}:
        # A cap of another step: the next turn counts, and reports it.
        capped = None if _moved(before, after) else track.ledger.capped
        return replace(decision, track=track.with_ledger(capped=capped))
    action = next_command(track, situation.rules)
    told = notice(track, kind, text, why=f"STATE.json was {why}", action=action)
    return replace(decision, track=track).also(told)


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
    """Return the human steps from the story's step to the edit's step, both included."""
    before, path = situation.state, situation.rules.path(after.task_type)
    # A step off the path has left every gate of it behind, as the end has.
    end = path.index(after.step) if after.step in path else len(path)
    steps = list(path[: end + 1])
    if before.story == after.story:
        here = max(situation.index_of(before.step), 0)
        if before.task_type == after.task_type:
            off_the_path = before.step in situation.rules.steps and before.step not in path
            steps = [before.step, *steps] if off_the_path else steps[here:]
        elif before.story is not None:  # another pipeline leaves behind the gates of the one it was in
            steps += situation.rules.path(before.task_type)[here:]
    kept = (
        situation.ledger.gate if before.story is not None and before.step == situation.ledger.gate else None
    )
    return [step for step in steps if step == kept or situation.rules.steps[step].requires_human]
