"""The texts of stories: where they stay, which id they get, and what lacks one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.playbook import T0, Playbook, dispatched, state_at, track_at

from handoffd.engine.decision import Accepted, Refusal
from handoffd.engine.events import (
    Aborted,
    Advanced,
    BacklogAdded,
    BacklogRemoved,
    Continued,
    Event,
    Retried,
    RolledBack,
    Started,
    StateEdited,
)
from handoffd.engine.routing import MOST_STORIES, MOST_TEXT
from handoffd.engine.story_texts import named
from handoffd.engine.track import MOST_KEPT, MOST_TITLES, Ledger, Parked, Queued, text_of, with_texts
from handoffd.protocol.state import Status
from handoffd.protocol.story import Numbering
from handoffd.protocol.story_text import NewStory, StoryText, story_text

DARK, CARDS = story_text("Dark mode\n\nAt night."), story_text("Gift cards")
FRESH = track_at("bootstrap", story=None, ledger=Ledger(stories_done=("US-1", "US-2")))


def given(play: Playbook, event: Event) -> Playbook:
    """Decide on an event as the track's consumer does: the id is chosen first."""
    return play.given(named(play.track, event))


def texts(play: Playbook) -> dict[str, str]:
    """Return the texts that are kept, by story."""
    return {story: text.text for story, text in play.ledger.texts.items()}


# --- a start with a text --------------------------------------------------------------------------------
def test_a_text_gets_the_next_number_and_stays_with_the_story() -> None:
    """The answer names the story."""
    play = given(Playbook(FRESH), Started(story="", described=DARK, numbers=(), names_story=True))
    play.expect(story="US-3", step="bdd", human_note=None, result="accepted")
    assert isinstance(play.decision.result, Accepted)
    assert ("US-3", ()) == (play.decision.result.story, play.decision.result.warnings)
    assert DARK == text_of(play.ledger, "US-3")
    assert "Dark mode" not in play.decision.why


def test_a_text_survives_whatever_happens_to_its_story() -> None:
    """An attempt, a retry, a way back, an abort, a start anew, a story that is put before it and ends."""
    play = given(Playbook(FRESH), Started(story="", described=DARK, numbers=()))
    for event in (
        Retried(),
        RolledBack(step="bootstrap", force=True),
        Started(story="US-9", force=True, described=CARDS),
        Started(story="US-3", queue=True),
        Started(story="US-3", force=True),
        Aborted(),
        Started(story="US-3"),
        Started(story="US-3", force=True),
        Started(story="C-1", task_type="custom", instruction="Tidy."),
    ):
        play.given(event)
        assert not isinstance(play.decision.result, Refusal), event
        assert DARK == text_of(play.ledger, "US-3"), event
    assert all({} == parked.ledger.texts for parked in play.ledger.parked)


def test_a_story_that_waits_has_its_text_when_it_starts() -> None:
    """It goes out of the backlog with the story, and into no other place."""
    play = given(Playbook(track_at("impl")), Started(story="", described=DARK, queue=True, numbers=()))
    assert ("US-2",) == tuple(one.story for one in play.ledger.backlog)
    play.given(Aborted()).given(Continued()).expect(story="US-2", step="bdd")
    assert {"US-2": DARK.text} == texts(play)


def test_another_text_replaces_the_first() -> None:
    """Of a story that waits, or that is begun anew."""
    play = Playbook(track_at("impl")).given(Started(story="US-2", described=DARK, queue=True))
    play.given(Started(story="US-2", described=CARDS, queue=True))
    assert {"US-2": "Gift cards"} == texts(play)


def test_a_refused_start_keeps_no_text_and_can_be_typed_again() -> None:
    """With the text, and without the id, which is free again; a long text is for the user to fill in."""
    play = given(Playbook(track_at("impl")), Started(story="", described=CARDS, numbers=()))
    assert "STORY_IN_PROGRESS" == refusal(play).code
    assert "handoffd start {project} 'Gift cards' --queue" == refusal(play).next_command
    given(play, Started(story="", described=DARK, numbers=()))
    assert "handoffd start {project} TEXT --queue" == refusal(play).next_command
    given(play, Started(story="", described=StoryText(title="Hi", text="--help me"), numbers=()))
    assert "handoffd start {project} --queue --title Hi -- '--help me'" == refusal(play).next_command
    given(
        play, Started(story="", described=StoryText(title="故事", text="故事"), numbers=(), automatic=False)
    )
    assert "handoffd start {project} '故事' --queue --manual" == refusal(play).next_command
    play.given(Started(story="US-7", described=CARDS))
    assert "handoffd start {project} US-7 'Gift cards' --queue" == refusal(play).next_command
    assert {} == texts(play)


def refusal(play: Playbook) -> Refusal:
    """Return the answer, which is a refusal."""
    assert isinstance(play.decision.result, Refusal)
    return play.decision.result


def test_a_story_that_leaves_the_backlog_takes_its_text_along() -> None:
    """Unless it was set aside, and may be taken up again."""
    aside = Parked(state=state_at("verify", story="US-5"), ledger=Ledger(), give_back=False)
    ledger = Ledger(
        automatic=True, backlog=(Queued(story="US-4"), Queued(story="US-5")), parked=(aside,),
        texts={"US-4": DARK, "US-5": CARDS},
    )  # fmt: skip
    play = Playbook(track_at("impl", ledger=ledger)).given(BacklogRemoved(stories=("US-4", "US-5")))
    assert {"US-5": "Gift cards"} == texts(play)


def test_only_the_latest_texts_of_ended_stories_are_kept() -> None:
    """Then their titles, by which they are recognised; in the end nothing. Stories in hand keep all."""
    long = {f"OLD-{number}": story_text("x" * 20_000, f"Old {number}") for number in range(6)}
    ledger = Ledger(automatic=True, texts=long, backlog=(Queued(story="OLD-0"),))
    track = with_texts(track_at("impl", ledger=ledger), {"US-2": DARK})

    kept = track.ledger.texts
    assert [*long, "US-2"] == list(kept)
    assert ["OLD-0", "OLD-3", "OLD-4", "OLD-5", "US-2"] == [
        name for name in kept if text_of(track.ledger, name)
    ]
    assert "Old 1" == kept["OLD-1"].title
    assert MOST_KEPT >= sum(len(kept[f"OLD-{number}"].text) for number in range(1, 6))

    many = {f"OLD-{number}": CARDS for number in range(MOST_TITLES + 5)}
    crowd = with_texts(track_at("impl", ledger=Ledger(texts=many)), {"US-2": DARK})
    assert MOST_TITLES + 1 == len(crowd.ledger.texts)
    assert "OLD-4" not in crowd.ledger.texts


def test_a_backlog_of_texts_has_its_limit() -> None:
    """It is written with every decision."""
    play = Playbook(track_at("impl"))
    text = story_text("x" * 60_000)
    for number in range(2, 2 + MOST_TEXT // 60_000):
        play.given(Started(story=f"US-{number}", described=text, queue=True)).expect(result="accepted")
    play.refused(Started(story="US-99", described=text, queue=True), "BACKLOG_FULL")


# --- its id ---------------------------------------------------------------------------------------------
def chosen(play: Playbook, *numbers: Numbering) -> str:
    """Return the id that a text would get now."""
    return named(play.track, Started(story="", described=DARK, numbers=numbers)).story


def test_two_stories_asked_for_at_the_same_moment_get_two_ids() -> None:
    """Both events were made before either was decided."""
    first, second = (Started(story="", described=text, numbers=(), queue=True) for text in (DARK, CARDS))
    play = given(given(Playbook(FRESH), first), second)
    assert ["US-3", "US-4"] == list(play.ledger.texts)


def test_an_id_is_none_that_a_story_has_or_is_waited_for_by() -> None:
    """Done, queued, set aside, in flight, a blocker, in the files."""
    aside = Parked(state=state_at("verify", story="US-14"), ledger=Ledger(), give_back=False)
    ledger = Ledger(
        stories_done=("US-011",), parked=(aside,), texts={"US-15": DARK},
        backlog=(Queued(story="US-12", blocked_by=("US-16",)), Queued(story="013")),
    )  # fmt: skip
    play = Playbook(track_at("impl", ledger=ledger, blocked_by=("US-17", "max_attempts_exceeded")))
    assert "US-018" == chosen(play)
    assert "US-020" == chosen(play, Numbering(prefix="US-", last=19, stories=1))


def test_a_given_id_stays() -> None:
    """Whatever numbers there are."""
    event = Started(story="dark-mode", described=DARK)
    assert event == named(FRESH, event)
    turn = Advanced(dispatch="d1", executor="x")
    assert turn == named(FRESH, turn)


# --- a story that nothing describes --------------------------------------------------------------------
ASKED = Started(story="US-9", undescribed=("US-9",), heeds_undescribed=True, names_story=True)


def test_a_story_that_nothing_describes_is_refused_with_what_to_type() -> None:
    """Before it costs anything; with a text, by force, or where no person is asked, it starts."""
    play = Playbook(FRESH).refused(ASKED, "UNDESCRIBED")
    assert "handoffd start {project} US-9 --edit" == refusal(play).next_command
    for part in ("no text", "PROJECT_MEMORY.md", "docs/bdd/US-9.md", "handoffd start {project} US-9 --force"):
        assert part in refusal(play).message


@pytest.mark.parametrize(
    ("changes", "warned"),
    [
        ({"described": DARK}, False),
        ({"force": True}, True),
        ({"heeds_undescribed": False}, True),
        ({"automatic": False}, True),
        ({"undescribed": ()}, False),
        ({"task_type": "custom", "instruction": "Tidy."}, False),
    ],
)
def test_where_it_is_not_refused_it_may_be_a_warning(changes: dict[str, Any], warned: bool) -> None:
    """A story with a text needs no warning."""
    event = Started(**{name: getattr(ASKED, name) for name in ASKED.__struct_fields__} | changes)
    play = Playbook(FRESH).given(event).expect(result="accepted", story="US-9")
    assert isinstance(play.decision.result, Accepted)
    assert warned == bool(play.decision.result.warnings)
    assert "nothing describes" not in play.decision.why


def test_before_the_bootstrap_no_paper_can_describe_a_story() -> None:
    """Neither a refusal nor a warning."""
    new = Playbook(track_at("bootstrap", story=None, ledger=Ledger()))
    new.given(
        Started(**{name: getattr(ASKED, name) for name in ASKED.__struct_fields__} | {"bootstrapped": False})
    )
    assert isinstance(new.decision.result, Accepted)
    assert () == new.decision.result.warnings


def test_a_story_that_has_a_text_or_was_begun_is_described() -> None:
    """Whatever the files say."""
    for ledger in (
        Ledger(stories_done=("US-1",), texts={"US-9": DARK}),
        Ledger(
            stories_done=("US-1",),
            parked=(Parked(state=state_at("impl", story="US-9"), ledger=Ledger(), give_back=False),),
        ),
    ):
        Playbook(track_at("bootstrap", story=None, ledger=ledger)).given(ASKED).expect(result="accepted")


def test_every_story_of_a_start_is_looked_at_and_the_advice_is_taken() -> None:
    """Also while another is in flight."""
    several = Started(
        story="US-3", then=("US-8", "US-9"), undescribed=("US-8", "US-9"), heeds_undescribed=True
    )  # fmt: skip
    play = Playbook(track_at("impl")).refused(several, "UNDESCRIBED")
    assert "nothing describes US-8, US-9: they have no text" in refusal(play).message
    assert "handoffd start {project} US-8 --queue --edit" == refusal(play).next_command
    assert refusal(play).message.endswith("handoffd start {project} US-3 US-8 US-9 --queue --force")


# --- words without quotes ------------------------------------------------------------------------------
def words(*names: str, **more: Any) -> Started:
    """Return the start of these names, of which no file says anything."""
    facts: dict[str, Any] = {
        "undescribed": names, "heeds_undescribed": True, "heeds_words": True, "names_story": True,
    }  # fmt: skip
    return Started(story=names[0], then=names[1:], **facts | more)


@pytest.mark.parametrize(
    ("names", "track"),
    [
        ("Add dark mode", FRESH),
        ("Add OAuth2 logins.", track_at("impl")),
        ("Add dark mode", track_at("bootstrap", story=None, ledger=Ledger())),
        ("US-8 dark mode", FRESH),
    ],
)
def test_a_text_whose_quotes_were_forgotten_is_refused(names: str, track: Any) -> None:
    """At any level, before the bootstrap, too; by force they are ids, and none takes another's place."""
    play = Playbook(track).refused(words(*names.split(), bootstrapped=False, automatic=False), "UNQUOTED")
    assert "handoffd start {project} TEXT --manual" == refusal(play).next_command
    again = f"{names} --queue --force" if track.state.step == "impl" else f"{names} --force"
    assert (
        f"a text needs quotes; if they are ids: handoffd start {{project}} {again}" in refusal(play).message
    )
    assert track == play.track


@pytest.mark.parametrize(
    "names", ["US-8 US-9", "013 014", "dark-mode gift-cards", "dark-mode refunds", "login US-9", "v2 beta"]
)
def test_ids_are_none(names: str) -> None:
    """They have a number, or are words joined by a sign; one mere word is an id."""
    fresh = track_at("bootstrap", story=None, ledger=Ledger())
    Playbook(fresh).given(words(*names.split(), bootstrapped=False)).expect(result="accepted")


def test_words_that_the_project_knows_are_ids() -> None:
    """Waiting ones, and ones that a file describes; with a text, one word is the id of that."""
    ledger = Ledger(stories_done=("US-1",), backlog=(Queued(story="refunds"),), texts={"refunds": CARDS})
    track = track_at("bootstrap", story=None, ledger=ledger)
    for event in (words("login", "refunds", force=True), words("login", "cards", undescribed=())):
        Playbook(track).given(event).expect(result="accepted")
    with_text = Playbook(track).given(words("login", "cards", described=DARK, heeds_undescribed=False))
    with_text.expect(result="accepted")
    assert not any("quotes" in one for one in warnings(with_text))


def test_elsewhere_unknown_words_are_warned_of() -> None:
    """A script may have such ids; an event of an older release is replayed without."""
    fresh = track_at("bootstrap", story=None, ledger=Ledger())
    asked = words("login", "logout", bootstrapped=False, heeds_undescribed=False)
    said = "login, logout would be stories, and nothing is known of them: a text needs quotes"
    assert (said,) == warnings(Playbook(fresh).given(asked))
    older = words("login", "logout", bootstrapped=False, heeds_words=False)
    assert () == warnings(Playbook(fresh).given(older))


# --- stories for the backlog ----------------------------------------------------------------------------
def imported(*stories: NewStory, **more: Any) -> BacklogAdded:
    """Return the import of stories."""
    return BacklogAdded(stories=stories, first_texts=True, **more)


def outcomes(play: Playbook) -> list[tuple[str, str]]:
    """Return the outcome of each story of an import."""
    assert isinstance(play.decision.result, Accepted)
    return [(one.story, one.outcome) for one in play.decision.result.stories]


def new(text: StoryText, story: str = "", **more: Any) -> NewStory:
    """Return a story of an import."""
    return NewStory(story=story, described=text, **more)


@pytest.mark.parametrize(
    "track", [FRESH, track_at("impl"), dispatched("impl"), track_at("done", Status.PASS)]
)
def test_an_import_queues_its_stories_and_starts_none(track: Any) -> None:
    """In their order, with ids of their own; the status stays as it is."""
    play = Playbook(track)
    status = play.state.status
    given(play, imported(new(DARK), new(CARDS, "US-40", blocked_by=("US-41",)), new(story_text("Refunds"))))
    assert status == play.state.status
    assert ["Dark mode", "Gift cards", "Refunds"] == [
        play.ledger.texts[one.story].title for one in play.ledger.backlog
    ]
    assert ["added"] * 3 == [outcome for _, outcome in outcomes(play)]
    assert "US-42" == outcomes(play)[2][0] or "US-41" not in dict(outcomes(play))
    assert "3 stories added to the backlog" == play.decision.why


def test_a_dry_run_says_the_same_and_changes_nothing() -> None:
    """Not even a number is used up."""
    play = given(Playbook(FRESH), imported(new(DARK), dry_run=True))
    assert [("US-3", "added")] == outcomes(play)
    assert FRESH == play.track
    assert "1 story would be added to the backlog" == play.decision.why
    assert not play.decision.memorable


def test_a_repeated_import_adds_nothing_twice() -> None:
    """By id, by address, by title, also once the story has ended; one that waits takes a new text."""
    issue = story_text("Refunds\n\nSource: https://x.org/1", "Refunds", "https://x.org/1")
    first = imported(new(DARK), new(CARDS, "GC-1"), new(issue))
    play = given(Playbook(FRESH), first)
    before = play.ledger
    assert ["known"] * 3 == [outcome for _, outcome in outcomes(given(play, first))]
    assert before == play.ledger

    changed = imported(
        new(story_text("dark  MODE\n\nBy day, too.")), new(story_text("Vouchers"), "GC-1"),
        new(story_text("Returns", "Returns", "https://x.org/1")),
    )  # fmt: skip
    given(play, changed)
    assert [("US-3", "changed"), ("GC-1", "changed"), ("US-4", "changed")] == outcomes(play)
    assert "0 stories added to the backlog, 3 texts changed" == play.decision.why
    assert "dark  MODE\n\nBy day, too." == texts(play)["US-3"]

    play.given(Continued()).expect(story="US-3")
    given(play, imported(new(DARK), new(story_text("Refunds", "Refunds", "https://x.org/2"))))
    assert [("US-3", "known"), ("US-5", "added")] == outcomes(play)


@pytest.mark.parametrize(
    "track",
    [
        track_at("impl", story="US-9"),
        track_at("impl", story="US-9", status=Status.NEEDS_HUMAN, ledger=Ledger(closed=True)),
        track_at("bootstrap", story=None, ledger=Ledger(stories_done=("US-9",))),
        track_at("impl", ledger=Ledger(backlog=(Queued(story="US-9"),))),
    ],
    ids=["in flight", "aborted", "done", "waiting"],
)
def test_a_known_story_without_a_text_takes_its_first(track: Any) -> None:
    """Wherever it is; it is not queued again, and can be started with it."""
    waiting = track.ledger.backlog
    play = given(Playbook(track), imported(new(DARK, "US-9")))
    assert [("US-9", "changed")] == outcomes(play)
    assert (DARK, waiting) == (text_of(play.ledger, "US-9"), play.ledger.backlog)
    assert "0 stories added to the backlog, 1 text changed" == play.decision.why
    assert () == warnings(play)
    assert [("US-9", "known")] == outcomes(given(play, imported(new(DARK, "US-9"))))


def test_an_import_of_an_older_release_is_replayed_as_it_was_decided() -> None:
    """It gave a known story no text, and warned of nothing."""
    play = given(Playbook(track_at("impl", story="US-9")), BacklogAdded(stories=(new(DARK, "US-9"),)))
    assert ([("US-9", "known")], (), {}) == (outcomes(play), warnings(play), texts(play))


def test_an_aborted_story_starts_with_the_text_of_an_import() -> None:
    """It is refused as one that nothing describes before."""
    play = Playbook(FRESH).given(Started(story="US-9")).given(Aborted())
    play.refused(ASKED, "UNDESCRIBED")
    given(play, imported(new(DARK, "US-9"))).given(ASKED).expect(result="accepted", story="US-9")


def test_a_text_that_is_not_taken_is_reported() -> None:
    """Of a story that has one and no longer waits, and of one that began in a clone of its own."""
    ledger = Ledger(stories_done=("US-1", "US-2"), texts={"US-1": DARK}, beside=(Queued(story="US-3"),))
    play = Playbook(track_at("bootstrap", story=None, ledger=ledger))
    given(play, imported(new(CARDS, "US-1"), new(story_text("Refunds"), "US-3")))
    assert [("US-1", "known"), ("US-3", "known")] == outcomes(play)
    assert (
        "US-3: text not taken: the story began without it, in a clone of its own; add it with `note`",
        "US-1: text not taken: only a story that still waits takes another",
    ) == warnings(play)
    assert ledger == play.ledger


def warnings(play: Playbook) -> tuple[str, ...]:
    """Return the warnings of an answer."""
    assert isinstance(play.decision.result, Accepted)
    return play.decision.result.warnings


def test_the_same_title_twice_is_one_story() -> None:
    """A list that names it twice does not add it twice."""
    play = given(Playbook(FRESH), imported(new(DARK), new(story_text("Dark Mode"))))
    assert ["US-3", "US-3"] == [story for story, _ in outcomes(play)]
    assert ["US-3"] == [one.story for one in play.ledger.backlog]


def test_of_an_import_that_cannot_be_taken_nothing_is() -> None:
    """Stories that wait for each other, or too many."""
    circle = imported(new(DARK, "A-1", blocked_by=("A-2",)), new(CARDS, "A-2", blocked_by=("A-1",)))
    assert "BLOCKED_IN_CIRCLE" == refusal(given(Playbook(FRESH), circle)).code
    many = imported(*(new(story_text(f"Story {number}")) for number in range(MOST_STORIES + 2)))
    play = given(Playbook(FRESH), many)
    assert "BACKLOG_FULL" == refusal(play).code
    assert FRESH == play.track


def test_a_title_that_no_longer_has_a_text_is_recognised() -> None:
    """The story has ended long ago; it is not done again because a file still names it."""
    ledger = Ledger(stories_done=("US-1",), texts={"US-1": StoryText(title="Dark mode", text="")})
    play = given(Playbook(track_at("bootstrap", story=None, ledger=ledger)), imported(new(DARK)))
    assert [("US-1", "known")] == outcomes(play)
    assert text_of(play.ledger, "US-1") is None


def test_an_edit_from_outside_keeps_the_texts() -> None:
    """STATE.json knows nothing of them."""
    play = given(Playbook(FRESH), Started(story="", described=DARK, numbers=()))
    play.given(StateEdited(state=state_at("impl", story="US-3"), policy="adopt"))
    assert DARK == text_of(play.ledger, "US-3")
    assert T0 == play.now
