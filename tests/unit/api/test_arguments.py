"""Arguments of verbs: what is let through, and what is said about the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handoffd.api.arguments import checked, event_of, spec_of, usage
from handoffd.api.verbs import MAX_TEXT, VERBS
from handoffd.engine.events import Approved, ExecutorChosen, Rejected, RolledBack
from handoffd.errors import HandoffdError, NotFound, Refused
from handoffd.protocol.state import Reason


def _refusal(verb: str, given: dict[str, Any]) -> HandoffdError:
    with pytest.raises(Refused) as caught:
        checked(VERBS[verb], "/srv/my shop", given)
    return caught.value


def test_missing_arguments_get_their_defaults() -> None:
    """Optional texts are None, flags false, lists empty."""
    given = checked(VERBS["start"], "/srv/shop", {"story": "US-1"})

    assert {
        "story": "US-1", "queue": False, "force": False, "blocked_by": (), "agent_teams": False,
        "executor": (), "manual": False, "then": (), "priority": None, "complexity": None,
    } == given  # fmt: skip


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("codex", ("codex",)),
        ("claude, codex,claude", ("claude", "codex")),
        (["claude", "codex"], ("claude", "codex")),
        ("default", ()),
        ("auto", ("auto",)),
    ],
)
def test_executors_are_a_name_or_several(given: object, names: tuple[str, ...]) -> None:
    """As one text, as people type it, or as a list; `default` is none at all."""
    assert ExecutorChosen(executor=names, by="eve") == event_of(
        VERBS["use"], checked(VERBS["use"], "/srv/shop", {"executor": given}), "eve"
    )


@pytest.mark.parametrize("given", [None, "", [], 7, [7], {"a": 1}])
def test_what_names_no_executor_is_refused(given: object) -> None:
    """With the form that it has."""
    refused = _refusal("use", {"executor": given})
    assert ("BAD_ARGUMENT", "handoffd use '/srv/my shop' EXECUTOR") == (refused.code, refused.hint)


def test_verbs_become_events_with_the_name_of_whoever_gave_them() -> None:
    """The engine learns who approved, rejected, rolled back."""
    assert Approved(note=None, by="eve") == event_of(
        VERBS["approve"], checked(VERBS["approve"], "/srv/shop", {}), "eve"
    )
    rejected = checked(VERBS["reject"], "/srv/shop", {"reason": "scope_warning", "note": "too much"})
    assert Rejected(reason=Reason.SCOPE_WARNING, note="too much", by="eve") == event_of(
        VERBS["reject"], rejected, "eve"
    )
    back = checked(VERBS["rollback"], "/srv/shop", {"step": "bdd", "force": True})
    assert RolledBack(step="bdd", force=True, by="eve") == event_of(VERBS["rollback"], back, "eve")


@pytest.mark.parametrize(
    ("verb", "given", "said"),
    [
        ("approve", {"nope": 1}, "unknown argument 'nope' (allowed: note, story)"),
        ("approve", {"story": ""}, "story is empty: name one, or leave it out"),
        ("retry", {"note": "x"}, "unknown argument 'note' (allowed: none)"),
        ("start", {}, "story is missing: its id, e.g. US-001"),
        ("note", {"text": ""}, "text is missing: the note"),
        ("note", {"text": 5}, f"text must be a text of at most {MAX_TEXT} characters"),
        ("note", {"text": "x" * (MAX_TEXT + 1)}, f"text must be a text of at most {MAX_TEXT} characters"),
        (
            "note",
            {"text": json.loads('"\\ud800"')},
            "text holds half of a character; it cannot be written as UTF-8",
        ),
        ("rollback", {"step": "bdd", "force": "yes"}, "force must be true or false"),
        ("start", {"story": "US-1", "blocked_by": "US-2"}, "blocked_by must be a list of story ids"),
    ],
)
def test_a_wrong_argument_is_named(verb: str, given: dict[str, Any], said: str) -> None:
    """Whoever asked can mend it."""
    refusal = _refusal(verb, given)

    assert ("BAD_ARGUMENT", said) == (refusal.code, refusal.message)
    assert usage(VERBS[verb], "/srv/my shop") == refusal.hint


def test_a_reason_that_is_none_is_answered_with_those_there_are() -> None:
    """People need not look reasons up."""
    assert all(reason in _refusal("reject", {"reason": "dunno"}).message for reason in Reason)


@pytest.mark.parametrize("given", [{"story": "../../etc"}, {"story": "US-1", "blocked_by": ["a/b"]}])
def test_a_story_id_cannot_leave_the_project(given: dict[str, Any]) -> None:
    """Ids become parts of paths."""
    refusal = _refusal("start", given)

    assert ("INVALID_STORY", "handoffd start '/srv/my shop' STORY") == (refusal.code, refusal.hint)


def test_how_a_verb_is_given_names_what_it_needs() -> None:
    """Nothing that is optional; the reasons there are, or what else there is to say, behind it."""
    assert "handoffd retry /srv/shop" == usage(VERBS["retry"], "/srv/shop")
    assert "handoffd note shop TEXT  # here" == usage(VERBS["note"], "shop", "here")
    assert usage(VERBS["reject"], "shop").startswith("handoffd reject shop REASON  # REASON: constitution")


def test_an_unknown_verb_is_answered_with_the_known_ones() -> None:
    """A typo costs one look."""
    with pytest.raises(NotFound) as caught:
        spec_of("aprove")

    assert "approve" in caught.value.message
    assert "handoffd --help" == caught.value.hint
