"""The texts of stories: which id a story gets that is asked for by its text, and which stories lack one.

A text belongs to the story, not to the step: it is kept in the track's ledger, by the story's id, from the
moment it is given until the story has ended and others have ended after it. Each prompt quotes it.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import Final, TypeVar

from msgspec.structs import replace

from handoffd.engine.decision import Accepted, AskedFor, Decision, Refusal, Situation, accept
from handoffd.engine.events import BacklogAdded, Event, Started
from handoffd.engine.track import Ledger, Track, text_of, with_texts
from handoffd.engine.wording import command, counted, first_few
from handoffd.protocol.story import Numbering, next_id, reads_as_text
from handoffd.protocol.story_text import NewStory, StoryText, title_of

MOST_TYPED: Final = 200
"""Characters of a text that a command to type repeats."""

_E = TypeVar("_E", bound=Event)


# --- the id of a story that has none ------------------------------------------------------------------
def named(track: Track, event: _E) -> _E:
    """Return an event with ids for the stories that were asked for by their text alone."""
    match event:
        case Started(story="", numbers=numbers):
            return replace(event, story=next_id(numbers or (), _ids(track)))
        case BacklogAdded(stories=stories, numbers=numbers):
            return replace(event, stories=_all_named(track, stories, numbers))
        case _:
            return event


def _all_named(
    track: Track, stories: Iterable[NewStory], numbers: tuple[Numbering, ...]
) -> tuple[NewStory, ...]:
    found: list[NewStory] = []
    known, taken = dict(track.ledger.texts), [*_ids(track), *(one.story for one in stories if one.story)]
    for one in stories:
        story = one.story or _same(known, one.described) or next_id(numbers, taken)
        known[story] = one.described
        taken.append(story)
        found.append(replace(one, story=story))
    return tuple(found)


def _same(known: Mapping[str, StoryText], wanted: StoryText) -> str | None:
    """Return the story that a text is of: by its source where both have one, else by its title."""
    for story, text in known.items():
        by_source = text.source is not None and wanted.source is not None
        if (text.source == wanted.source) if by_source else (_folded(text.title) == _folded(wanted.title)):
            return story
    return None


def _folded(title: str) -> str:
    return " ".join(title.casefold().split())


def _ids(track: Track) -> tuple[str, ...]:
    """Return every id that belongs to a story of the track."""
    ledger = track.ledger
    states = [parked.state for parked in ledger.parked] + ([track.state] if track.state is not None else [])
    waited_for = [name for entry in ledger.backlog for name in entry.blocked_by]
    waited_for += [name for state in states for name in state.blocked_by]
    return tuple(dict.fromkeys((*known_stories(track), *waited_for)))


def known_stories(track: Track) -> tuple[str, ...]:
    """Return the stories that are known: one that others only wait for is still to come."""
    ledger = track.ledger
    here = track.state.story if track.state is not None else None
    waiting, aside = (one.story for one in ledger.backlog), (one.state.story for one in ledger.parked)
    beside = (one.story for one in ledger.beside)
    known = (*ledger.stories_done, *waiting, *aside, *beside, here, *ledger.texts)
    return tuple(dict.fromkeys(name for name in known if name is not None))


# --- a start --------------------------------------------------------------------------------------------
_WORD: Final = re.compile(r"[A-Za-z]+\.?")
_SEVERAL: Final = 2


def strange_words(situation: Situation, event: Started) -> tuple[str, ...]:
    """Return the words of a start that were hardly meant as ids: several mere words that nothing knows.

    An id may be a mere word, too. Several of them are more likely a text whose quotes were forgotten.
    """
    if not event.heeds_words or event.described is not None:
        return ()
    known, asked = frozenset(known_stories(situation.track)), (event.story, *event.then)
    found = [one for one in asked if one in event.undescribed and one not in known and _WORD.fullmatch(one)]
    return tuple(found) if len(found) >= _SEVERAL else ()


def not_quoted_in_words(strange: tuple[str, ...]) -> str:
    """Return what words would be without quotes, in words."""
    return f"{first_few(strange)} would be stories, and nothing is known of them: a text needs quotes"


def answered(
    decision: Decision, event: Started, missing: tuple[str, ...], strange: tuple[str, ...]
) -> Decision:
    """Return the decision on a start, with the text kept and what its answer says of the stories."""
    result = decision.result
    if isinstance(result, Refusal):
        return decision
    texts = {} if event.described is None else {event.story: event.described}
    track = with_texts(decision.track, texts) if texts else decision.track
    if isinstance(result, Accepted) and event.names_story:
        warnings = [not_quoted_in_words(strange)] if strange else []
        warnings += [not_described_in_words(missing)] if missing else []
        result = replace(result, story=event.story, warnings=tuple(warnings))
    return replace(decision, track=track, result=result)


def asked_again(event: Started, *, queue: bool = False, force: bool = False) -> str:
    """Return the command for what was asked for, with one option more. Each custom task is a new one.

    Without an id that was chosen for a text: it is free again.
    """
    first = [word for story in event.blocked_by for word in ("--blocked-by", story)]
    chosen = {"--executor": ",".join(event.executor), "--complexity": event.complexity}
    options = [
        *(["--queue"] if queue else []),
        *(["--force"] if force and event.task_type != "custom" else []),
        *first,
        *(["--agent-teams"] if event.agent_teams else []),
        *(word for name, value in chosen.items() if value for word in (name, value)),
        *(["--priority", str(event.priority)] if event.priority else []),
        *([] if event.automatic else ["--manual"]),
    ]
    if event.task_type == "custom":
        return _with_text("custom", [], event.instruction or "", options)
    names = [*([event.story] if event.numbers is None else []), *event.then]
    if event.described is None:
        return command("start", *names, *options)
    text, title = event.described.text, event.described.title
    named_ = [] if title == title_of(text) else ["--title", title]
    return _with_text("start", names, text, [*options, *named_])


def _with_text(verb: str, names: list[str], text: str, options: list[str]) -> str:
    """Return a command with a text, which may begin as an option does."""
    word = typed(text)
    if word.startswith("-"):
        return command(verb, *names, *options, "--", word)
    return command(verb, *names, word, *options)


def typed(text: str) -> str:
    """Return a text as a word of a command, where that can be typed again; else `TEXT`."""
    return text if len(text) <= MOST_TYPED and text.isprintable() and reads_as_text(text) else "TEXT"


def missing_texts(situation: Situation, event: Started, first: str) -> tuple[str, ...]:
    """Return the stories of a start that nothing describes; `first` is the step at which they would begin.

    Before the bootstrap the papers that could do that do not exist; a story that was begun has scenarios.
    """
    ledger, pipeline = situation.ledger, situation.pipeline(event.task_type)
    if event.task_type != "story" or first == pipeline.bootstrap:
        return ()
    begun = {*ledger.stories_done, *(parked.state.story for parked in ledger.parked)}
    given = {event.story} if event.described is not None else set()
    asked = (event.story, *event.then)
    return tuple(
        story for story in asked
        if story in event.undescribed and story not in begun | given and text_of(ledger, story) is None
    )  # fmt: skip


def not_described_in_words(missing: tuple[str, ...]) -> str:
    """Return what was looked for in vain, in words."""
    named_, file = first_few(missing), f"docs/bdd/{missing[0] if len(missing) == 1 else 'US-…'}.md"
    has = "it has" if len(missing) == 1 else "they have"
    return f"nothing describes {named_}: {has} no text, PROJECT_MEMORY.md and {file} say nothing of it"


# --- stories for the backlog ----------------------------------------------------------------------------
def texts_taken(ledger: Ledger, event: BacklogAdded, known: Container[str]) -> dict[str, StoryText]:
    """Return the texts that known stories take, by story: another while one waits, or its first."""
    again = [one for one in event.stories if one.story in known]
    return {one.story: one.described for one in again if _takes(ledger, one, first=event.first_texts)}


def _takes(ledger: Ledger, one: NewStory, *, first: bool) -> bool:
    kept = ledger.texts.get(one.story)
    if any(entry.story == one.story for entry in ledger.backlog):
        return kept != one.described
    # A story with a track of its own took its text along when that began.
    return first and kept is None and all(entry.story != one.story for entry in ledger.beside)


def not_taken_in_words(ledger: Ledger, known: Iterable[NewStory]) -> tuple[str, ...]:
    """Return which known stories do not take the text they have got, and why, in words."""
    began = [one.story for one in known if one.story not in ledger.texts]
    has = [one.story for one in known if text_of(ledger, one.story) not in (None, one.described)]
    why = {
        "the story began without it, in a clone of its own; add it with `note`": began,
        "only a story that still waits takes another": has,
    }
    return tuple(f"{first_few(names)}: text not taken: {said}" for said, names in why.items() if names)


def added(
    situation: Situation, event: BacklogAdded, track: Track, *, new: frozenset[str], changed: frozenset[str]
) -> Decision:
    """Return the decision after which the track is `track`, with `new` stories and `changed` texts."""
    asked = tuple(
        AskedFor(
            story=one.story, title=one.described.title,
            outcome="added" if one.story in new else "changed" if one.story in changed else "known",
        )
        for one in event.stories
    )  # fmt: skip
    message = _counts(asked, dry_run=event.dry_run)
    decision = accept(situation.track if event.dry_run else track, message)
    assert isinstance(decision.result, Accepted)
    known = [one for one in event.stories if one.story not in new | changed]
    warnings = not_taken_in_words(situation.ledger, known) if event.first_texts else ()
    return replace(decision, result=replace(decision.result, stories=asked, warnings=warnings))


def _counts(asked: tuple[AskedFor, ...], *, dry_run: bool) -> str:
    of = {kind: sum(one.outcome == kind for one in asked) for kind in ("added", "changed", "known")}
    would = "would be " if dry_run else ""
    said = [f"{counted(of['added'], 'story', 'stories')} {would}added to the backlog"]
    said += [f"{counted(of['changed'], 'text')} {would}changed"] if of["changed"] else []
    said += [f"{of['known']} known already"] if of["known"] else []
    return ", ".join(said)
