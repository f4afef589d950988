"""Starting a story: which may start now, which waits, what is set aside for it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.support.playbook import T0, Playbook, dispatched, state_at, track_at

from handoffd.engine.decision import Accepted, WriteChecklist
from handoffd.engine.events import Aborted, Continued, Paused, Started
from handoffd.engine.routing import MOST_STORIES, MOST_TEXT
from handoffd.engine.track import Ledger, Parked, Queued
from handoffd.protocol.state import Status

AT_REST = [status for status in Status if status is not Status.RUNNING]


def test_a_start_begins_at_the_first_step_and_makes_the_project_level_2() -> None:
    """Nothing is dispatched yet: that is the next turn's."""
    play = Playbook(track_at("bootstrap", story=None, ledger=Ledger()))
    play.started(instruction="Hurry.", agent_teams=True, blocked_by=("US-0",))
    play.expect(
        story="US-1", step="bdd", status=Status.PENDING, task_type="story", human_note="Hurry.",
        agent_teams=True, blocked_by=("US-0",), orders="write_checklist", result="accepted",
    )  # fmt: skip
    order = play.decision.effects[0]
    assert isinstance(order, WriteChecklist)
    assert "US-1" == order.story
    assert play.ledger.automatic


def test_a_start_at_level_1_or_at_a_pause_dispatches_nothing() -> None:
    """`automatic: false` only sets the story up, and a pause outlives a start."""
    play = Playbook(track_at("bootstrap", story=None, ledger=Ledger())).started(automatic=False)
    assert not play.ledger.automatic
    play = Playbook(track_at("bootstrap", story=None)).given(Paused(by="mei")).started()
    play.expect(step="bdd").turn().expect(result="blocked")


def test_an_unknown_kind_of_task_is_refused() -> None:
    """The error names the pipelines there are."""
    play = Playbook(track_at("bootstrap", story=None))
    play.refused(Started(story="X-1", task_type="hotfix"), "UNKNOWN_TASK_TYPE")
    assert "custom, story" in play.decision.result.caller_instruction


@pytest.mark.parametrize("done", [("US-1",), ()])
def test_a_story_that_is_done_is_started_again_by_force_only(done: tuple[str, ...]) -> None:
    """`reopen` is the usual way. Another tool may have brought it to its end: then only STATE shows it."""
    play = Playbook(track_at("done", Status.PASS, ledger=Ledger(stories_done=done)))
    play.refused(Started(story="US-1"), "ALREADY_COMPLETED")
    assert "handoffd reopen {project} STEP" == play.decision.result.next_command
    play.given(Started(story="US-1", force=True)).expect(step="bdd", status=Status.PENDING)


@pytest.mark.parametrize("status", AT_REST)
def test_the_story_in_flight_is_started_anew_by_force_only(status: Status) -> None:
    """It is in flight already; forced, it begins anew and no old copy of it lingers."""
    play = Playbook(track_at("impl", status)).refused(Started(story="US-1"), "ALREADY_RUNNING")
    play.given(Started(story="US-1", force=True)).expect(step="bdd", status=Status.PENDING)
    assert () == play.ledger.parked


def test_a_start_of_the_story_in_flight_with_an_executor_leads_to_the_command_that_changes_it() -> None:
    """And one that is paused, perhaps for want of the other executor, has to be resumed as well."""
    asked = Started(story="US-1", executor=("codex", "claude"))
    play = Playbook(track_at("impl", Status.PENDING)).refused(asked, "ALREADY_RUNNING")
    assert "handoffd use {project} codex,claude" == play.decision.result.next_command

    chosen = Ledger(automatic=True, executor=("codex", "claude"))
    there = Playbook(track_at("impl", Status.PENDING, ledger=chosen)).refused(asked, "ALREADY_RUNNING")
    assert "handoffd status {project}" == there.decision.result.next_command

    play.given(Paused()).refused(asked, "ALREADY_RUNNING")
    both = "handoffd use {project} codex,claude && handoffd resume {project}"
    assert both == play.decision.result.next_command


def test_what_a_blocked_story_waits_for_is_started_before_it() -> None:
    """Behind it in the backlog it would wait for the one that waits for it; another story may."""
    for story, option in (("US-0", "--force"), ("US-7", "--queue")):
        blocked = track_at("bdd", blocked_by=("US-0",))
        play = Playbook(blocked).refused(Started(story=story), "STORY_IN_PROGRESS")
        assert f"handoffd start {{project}} {story} {option}" == play.decision.result.next_command


@pytest.mark.parametrize("status", AT_REST)
def test_another_story_in_flight_is_in_the_way(status: Status) -> None:
    """A person may queue the new one behind it, or put it in its place."""
    play = Playbook(track_at("impl", status)).refused(Started(story="US-2"), "STORY_IN_PROGRESS")
    assert "--queue" in play.decision.result.caller_instruction
    play.given(Started(story="US-2", queue=True)).expect(story="US-1", step="impl", status=status, orders="")
    assert (Queued(story="US-2", by="cli", at=T0),) == play.ledger.backlog


def test_a_story_is_queued_once() -> None:
    """Asked again, it keeps one place, with the latest instruction."""
    play = Playbook(track_at("impl")).given(Started(story="US-2", queue=True))
    play.given(Started(story="US-3", queue=True)).given(Started(story="US-2", queue=True, instruction="Now."))
    assert [("US-3", None), ("US-2", "Now.")] == [(q.story, q.instruction) for q in play.ledger.backlog]


@pytest.mark.parametrize("status", AT_REST)
def test_a_story_replaced_by_force_can_be_taken_up_again(status: Status) -> None:
    """It is parked as it is, not given back by itself, and comes back by starting it."""
    play = Playbook(track_at("impl", status, attempt=3)).given(Started(story="US-2", force=True))
    play.expect(story="US-2", step="bdd")
    (parked,) = play.ledger.parked
    assert (state_at("impl", status, attempt=3), False) == (parked.state, parked.give_back)

    play.given(Aborted()).given(Started(story="US-1"))
    orders = "notify" if status in {Status.NEEDS_HUMAN, Status.TIMEOUT} else ""
    play.expect(story="US-1", step="impl", status=status, attempt=3, orders=orders, result="accepted")
    assert () == play.ledger.parked


def test_a_custom_task_parks_the_story_between_two_steps() -> None:
    """It goes first without force, and gives the story back afterwards."""
    play = Playbook(track_at("impl", Status.PASS)).started("C-1", task_type="custom", instruction="Fix.")
    play.expect(story="C-1", step="custom", task_type="custom", human_note="Fix.")
    assert [True] == [parked.give_back for parked in play.ledger.parked]


def test_what_is_parked_holds_nothing_of_the_project() -> None:
    """Backlog, other parked stories and what is done stay with the track, not inside the parked story."""
    first = Parked(state=state_at("bdd", story="US-0"), ledger=Ledger(), give_back=False)
    track = track_at("impl", ledger=Ledger(backlog=(Queued(story="US-5"),), stories_done=("US-9",)))
    play = Playbook(track.with_ledger(parked=(first,), visits={"impl": 2}))
    play.started("C-1", task_type="custom")

    parked = Parked(state=state_at("impl"), ledger=Ledger(visits={"impl": 2}), give_back=True)
    assert (first, parked) == play.ledger.parked
    assert ((Queued(story="US-5"),), ("US-9",)) == (play.ledger.backlog, play.ledger.stories_done)


def test_tasks_that_interrupt_each_other_are_given_back_in_turn() -> None:
    """The last one interrupted goes on first."""
    play = Playbook(track_at("impl"))
    for name in ("C-1", "C-2"):
        play.given(Started(story=name, task_type="custom"))
    order = []
    for _ in range(3):
        while play.state.step != "done":
            play.step_passes()
            if play.state.step == "update-memory":
                play.turn()
        order.append(play.state.story)
        play.turn()
    assert ["C-2", "C-1", "US-1"] == order


@pytest.mark.parametrize(
    "event",
    [
        Started(story="US-2"),
        Started(story="US-2", force=True),
        Started(story="US-1", force=True),
        Started(story="C-1", task_type="custom"),
    ],
)
def test_nothing_takes_the_place_of_a_running_attempt(event: Started) -> None:
    """Between two steps only; a running story lets others queue."""
    play = Playbook(dispatched("impl")).refused(event, "STORY_IN_PROGRESS")
    play.given(Started(story="US-2", queue=True)).expect(status=Status.RUNNING, story="US-1")


def test_an_attempt_without_a_story_is_waited_for_too() -> None:
    """A tool may run the bootstrap of a project that has no story yet."""
    play = Playbook(track_at("bootstrap", Status.RUNNING, story=None))
    play.refused(Started(story="US-1"), "STORY_IN_PROGRESS")
    play.given(Started(story="US-1", queue=True)).expect(status=Status.RUNNING)


def test_a_story_started_anew_is_not_given_back_as_it_was() -> None:
    """In an earlier release a parked story began by force at its first step, and its old copy was gone."""
    play = Playbook(track_at("impl")).given(Started(story="C-1", task_type="custom"))
    play.given(Started(story="US-1", force=True)).expect(story="US-1", step="bdd")
    assert ["C-1"] == [parked.state.story for parked in play.ledger.parked]


@pytest.mark.parametrize(
    ("ledger", "event", "advice"),
    [
        (Ledger(), Started(story="US-2"), "start {project} US-2 --queue"),
        (
            Ledger(),
            Started(story="US-2", blocked_by=("US-0", "US-1"), agent_teams=True),
            "start {project} US-2 --queue --blocked-by US-0 --blocked-by US-1 --agent-teams",
        ),
        (Ledger(stories_done=("US-2",)), Started(story="US-2"), "start {project} US-2 --queue --force"),
        (Ledger(automatic=True, paused_by="mei"), Started(story="US-1"), "resume {project}"),
        (Ledger(), Started(story="US-1", task_type="hotfix"), "rules check {project}"),
    ],
)
def test_a_refused_start_advises_the_one_that_is_taken(ledger: Ledger, event: Started, advice: str) -> None:
    """With everything that was asked for."""
    play = Playbook(track_at("impl", ledger=ledger)).given(event).expect(result="error")
    assert f"handoffd {advice}" == play.decision.result.next_command


def test_a_custom_task_waits_for_what_runs() -> None:
    """The command has its text, unless that is too long for one."""
    play = Playbook(dispatched("impl")).given(Started(story="C-1", task_type="custom", instruction="Fix it."))
    assert "handoffd custom {project} 'Fix it.' --queue" == play.decision.result.next_command
    play.given(Started(story="C-1", task_type="custom", instruction="Fix\nit."))
    assert "handoffd custom {project} TEXT --queue" == play.decision.result.next_command


# --- several stories ------------------------------------------------------------------------------
IDLE = track_at("done", Status.PASS, ledger=Ledger(stories_done=("US-1",)))


def waiting(play: Playbook) -> list[str]:
    """Return the stories of the backlog."""
    return [entry.story for entry in play.ledger.backlog]


def test_of_several_stories_the_first_starts_and_the_others_wait() -> None:
    """Each has the options that were given for all."""
    options = {"priority": 2, "complexity": "L", "executor": ("codex",), "by": "mei"}
    play = Playbook(IDLE).started("US-2", then=("US-3", "US-4"), **options)
    play.expect(story="US-2", step="bdd", status=Status.PENDING, orders="write_checklist")
    assert ["US-3", "US-4"] == waiting(play)
    for one in play.ledger.backlog:
        assert (T0, options) == (one.at, {name: getattr(one, name) for name in options})
    assert ("L", ("codex",)) == (play.ledger.complexity, play.ledger.executor)
    assert "US-3, US-4 behind it" in play.decision.why


def test_of_several_stories_the_first_that_can_start_does() -> None:
    """US-3 waits for US-4, by an earlier order; so US-4 starts."""
    ledger = Ledger(backlog=(Queued(story="US-3", blocked_by=("US-4",)),), stories_done=("US-1",))
    play = Playbook(track_at("done", Status.PASS, ledger=ledger)).given(Started(story="US-3", then=("US-4",)))
    play.expect(story="US-4", step="bdd")
    assert ["US-3"] == waiting(play)
    assert ("US-4",) == play.ledger.backlog[0].blocked_by


def test_several_stories_that_all_wait_are_queued() -> None:
    """Nothing is in flight and blocked; the answer names what they wait for."""
    play = Playbook(IDLE).given(Started(story="US-2", then=("US-3",), blocked_by=("US-9",)))
    play.expect(story="US-1", step="done", result="accepted")
    assert ["US-2", "US-3"] == waiting(play)
    assert "US-2 waits for US-9 (never started, and not in the backlog)" in play.decision.why
    assert play.ledger.automatic


def test_one_story_that_waits_is_in_flight_and_blocked_or_queued() -> None:
    """As before, its STATE tells that it is blocked; with `queue` it stays out of the way."""
    event = Started(story="US-2", blocked_by=("US-9",))
    Playbook(IDLE).given(event).expect(story="US-2", blocked_by=("US-9",))
    play = Playbook(IDLE).given(replace(event, queue=True)).expect(story="US-1", step="done")
    assert ["US-2"] == waiting(play)


def test_several_stories_behind_one_in_flight_are_queued_together_or_not_at_all() -> None:
    """One that is done already keeps all out, until that is meant."""
    track = track_at("impl", ledger=Ledger(stories_done=("US-3",)))
    several = Started(story="US-2", then=("US-3", "US-4"), queue=True)
    play = Playbook(track).refused(several, "ALREADY_COMPLETED")
    assert "handoffd start {project} US-2 US-3 US-4 --queue --force" == play.decision.result.next_command
    play.given(replace(several, force=True)).expect(story="US-1", step="impl")
    assert ["US-2", "US-3", "US-4"] == waiting(play)
    play = Playbook(track).refused(Started(story="US-2", then=("US-5",), complexity="S"), "STORY_IN_PROGRESS")
    assert "handoffd start {project} US-2 US-5 --queue --complexity S" == play.decision.result.next_command


def test_stories_that_would_wait_for_each_other_are_refused() -> None:
    """The error names the circle; a story must not wait for itself either."""
    Playbook(IDLE).refused(Started(story="US-2", blocked_by=("US-2",)), "BLOCKED_IN_CIRCLE")
    ledger = Ledger(backlog=(Queued(story="US-3", blocked_by=("US-2",)),))
    play = Playbook(track_at("impl", ledger=ledger))
    play.refused(Started(story="US-2", blocked_by=("US-3",), queue=True), "BLOCKED_IN_CIRCLE")
    assert "US-2 → US-3 → US-2" in play.decision.why


def test_a_story_of_the_backlog_that_is_started_by_name_keeps_its_options() -> None:
    """New options go before them; while it waits for another, only force starts it."""
    entry = Queued(story="US-2", executor=("codex",), complexity="L", instruction="Mind.")
    backlog = (replace(entry, blocked_by=("US-9",)),)
    play = Playbook(IDLE.with_ledger(backlog=backlog)).refused(Started(story="US-2"), "BLOCKED")
    assert "handoffd start {project} US-2 --force" == play.decision.result.next_command

    play.given(Started(story="US-2", force=True, complexity="S"))
    play.expect(story="US-2", step="bdd", blocked_by=(), human_note="Mind.")
    assert (("codex",), "S", []) == (play.ledger.executor, play.ledger.complexity, waiting(play))


def test_a_backlog_has_an_end() -> None:
    """It is written with every decision."""
    many = tuple(f"US-{number}" for number in range(2, MOST_STORIES + 3))
    play = Playbook(track_at("impl")).refused(Started(story="X", then=many, queue=True), "BACKLOG_FULL")
    play.given(Started(story="X", then=many[:-2], queue=True)).expect(result="accepted")
    long = Started(story="C-1", task_type="custom", instruction="x" * (MOST_TEXT + 1), queue=True)
    Playbook(track_at("impl")).refused(long, "BACKLOG_FULL")


# --- schedules ------------------------------------------------------------------------------------
NIGHTLY = Started(story="REVIEW-7", schedule="nightly", due=T0, by="schedule nightly")


def test_a_schedule_is_in_no_persons_way() -> None:
    """It skips or queues; its task sets no story aside, as a person's would."""
    custom = replace(NIGHTLY, task_type="custom", instruction="Look.")
    Playbook(track_at("impl")).refused(custom, "STORY_IN_PROGRESS")
    play = Playbook(track_at("impl")).given(replace(custom, queue=True)).expect(story="US-1", step="impl")
    assert [("REVIEW-7", "nightly")] == [(one.story, one.schedule) for one in play.ledger.backlog]
    assert "it starts by itself" in play.decision.result.caller_instruction
    for ledger in (Ledger(), Ledger(automatic=True, paused_by="mei")):
        held = Playbook(track_at("impl", ledger=ledger)).given(replace(custom, queue=True))
        assert "`continue` starts the next one" in held.decision.result.caller_instruction


def test_a_persons_options_of_a_story_hold_when_a_schedule_asks_for_it_too() -> None:
    """And the other way round: it stays the schedule's, which so has one story at a time."""
    asked = Started(story="REVIEW-7", queue=True, blocked_by=("US-5",), executor=("codex",), by="mei")
    play = Playbook(track_at("impl")).given(asked).given(replace(NIGHTLY, queue=True))
    [entry] = play.ledger.backlog
    assert (("US-5",), ("codex",)) == (entry.blocked_by, entry.executor)
    assert ("nightly", "mei") == (entry.schedule, entry.by)

    play.given(Started(story="REVIEW-7", queue=True, priority=9))
    assert [(9, "nightly")] == [(one.priority, one.schedule) for one in play.ledger.backlog]
    play.refused(replace(NIGHTLY, story="REVIEW-8", queue=True), "ALREADY_QUEUED")


def test_one_story_of_a_schedule_is_enough_at_a_time() -> None:
    """In flight or in the backlog, the next one is skipped; another schedule's is not."""
    later = replace(NIGHTLY, story="REVIEW-8", queue=True)
    play = Playbook(IDLE).given(NIGHTLY).expect(story="REVIEW-7", step="bdd")
    assert "nightly" == play.ledger.schedule
    play.refused(later, "STORY_IN_PROGRESS").given(replace(later, schedule="weekly"))
    assert ["REVIEW-8"] == waiting(play)
    Playbook(track_at("impl")).given(replace(NIGHTLY, queue=True)).refused(later, "ALREADY_QUEUED")


def test_a_queued_story_of_a_schedule_starts_when_it_is_due_and_nothing_is_in_flight() -> None:
    """Where stories do not follow by themselves, it would keep the schedule from ever starting again."""
    first = Queued(story="REVIEW-7", schedule="nightly", executor=("codex",))
    idle = track_at("done", Status.PASS, ledger=Ledger(backlog=(Queued(story="US-2"), first)))
    later = replace(NIGHTLY, story="REVIEW-8", queue=True)
    play = Playbook(idle).given(later).expect(story="REVIEW-7", step="bdd")
    assert (["US-2"], "nightly", ("codex",)) == (waiting(play), play.ledger.schedule, play.ledger.executor)

    blocked = idle.with_ledger(backlog=(replace(first, blocked_by=("US-9",)),))
    Playbook(blocked).refused(later, "ALREADY_QUEUED")


def test_a_schedule_starts_nothing_at_a_pause() -> None:
    """Unless it may wait."""
    paused = track_at("done", Status.PASS, ledger=Ledger(paused_by="mei"))
    Playbook(paused).refused(NIGHTLY, "PAUSED")
    Playbook(paused).given(replace(NIGHTLY, queue=True)).expect(story="REVIEW-7")


@pytest.mark.parametrize(
    ("task_type", "force", "told"),
    [
        ("custom", False, "; US-1 is set aside at impl and goes on when that is done"),
        ("story", True, "; US-1 is set aside at impl"),
    ],
)
def test_the_answer_says_which_story_is_set_aside(task_type: str, force: bool, told: str) -> None:
    """And its step; events of an earlier release say nothing about it."""
    for tells, expected in ((True, told), (False, "")):
        play = Playbook(track_at("impl")).started("US-2", task_type=task_type, force=force, tells_aside=tells)
        assert play.decision.why == f"US-2 starts at {play.state.step}{expected}"


ASIDE = Started(story="US-2", force=True, tells_aside=True, keeps_place=True)


@pytest.mark.parametrize("runs", [False, True])
def test_the_answer_names_a_command_that_takes_up_what_was_set_aside(runs: bool) -> None:
    """Typed at once, whether the other story runs by then or not; it is taken when that is done."""
    play = Playbook(track_at("impl", attempt=2)).given(ASIDE)
    way = "handoffd start {project} US-1 --queue"
    said = f"US-2 starts at bdd; US-1 is set aside at impl: `{way}` takes it up again when US-2 is done"
    assert isinstance(play.decision.result, Accepted)
    assert said == play.decision.result.message
    assert play.decision.result.caller_instruction.startswith(said)

    if runs:
        play.turn().runs()
    play.given(Started(story="US-1", queue=True, keeps_place=True)).expect(story="US-2", result="accepted")
    play.track = play.track.with_state(step="done", status=Status.PASS).with_ledger(dispatch=None)
    play.given(Continued()).expect(story="US-1", step="impl", attempt=2)
    assert ((), ()) == (play.ledger.parked, play.ledger.backlog)


def test_force_takes_a_story_up_where_it_was_set_aside() -> None:
    """The other one is set aside; the new options count. An earlier release began it anew."""
    there = track_at("impl", attempt=2, blocked_by=("US-0",))
    again = Started(story="US-1", force=True, tells_aside=True, keeps_place=True, executor=("codex",))
    play = Playbook(there).given(ASIDE).given(again)

    play.expect(story="US-1", step="impl", attempt=2)
    assert (["US-2"], ("codex",)) == ([one.state.story for one in play.ledger.parked], play.ledger.executor)
    assert () == play.state.blocked_by, "by force it waits for no other"
    assert play.decision.why == "US-1 is taken up again at impl; US-2 is set aside at bdd"
    play.given(replace(again, executor=())).expect(story="US-1", step="bdd", attempt=1)

    before = Playbook(there).given(ASIDE).given(replace(again, keeps_place=False))
    before.expect(story="US-1", step="bdd", attempt=1)


@pytest.mark.parametrize(
    ("at", "heeds", "step"),
    [("impl", True, "bdd"), ("impl", False, "bootstrap"), ("bootstrap", True, "bootstrap")],
)
def test_a_project_with_a_story_behind_the_bootstrap_has_no_other(at: str, heeds: bool, step: str) -> None:
    """The bootstrap is for a project that has had no story yet; an earlier release knew only those done."""
    new = Started(story="US-2", bootstrapped=False, force=True, heeds_begun=heeds)

    Playbook(track_at(at)).given(new).expect(story="US-2", step=step)


def test_a_task_that_is_set_aside_does_not_count_as_a_story() -> None:
    """Its pipeline has no bootstrap, so it does not show that there was one."""
    task = track_at("custom", story="CUSTOM-1", task_type="custom")

    play = Playbook(task).started("US-2", bootstrapped=False, force=True, heeds_begun=True)
    play.expect(story="US-2", step="bootstrap")
