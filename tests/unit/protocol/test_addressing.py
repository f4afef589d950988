"""Messages that name their project: at the beginning, at the end, or only by chance."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoffd.protocol.addressing import directed
from handoffd.protocol.intents import classify

NAMES = ("shop", "shop-api", "my.site", "review", "網店", "/srv/a b")


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("shop: status", "shop", "query"),
        ("Shop：狀態", "shop", "query"),
        ("shop 的進度", "shop", "query"),
        ("shop的進度", "shop", "query"),
        ("status of shop", "shop", "query"),
        ("what's the status of shop-api?", "shop-api", "query"),
        ("shop-api status", "shop-api", "query"),
        ("shop 繼續", "shop", "continue"),
        ("繼續 shop", "shop", "continue"),
        ("approve @shop", "shop", "approve"),
        ("approve for shop", "shop", "approve"),
        ("shop, approve: mind the rounding", "shop", "approve"),
        ("start US-001 in shop", "shop", "start_story"),
        ("網店：核准", "網店", "approve"),
        ("網店的測試過了嗎", "網店", "query"),
        ("my.site: retry", "my.site", "retry"),
        ("shop", "shop", "query"),
        ("switch to shop", "shop", "query"),
        ("切換到 shop", "shop", "query"),
        ("[shop] fix the header", "shop", "start_custom"),
        ("shop: fix the header", "shop", "start_custom"),
        ("/srv/a b: status", "/srv/a b", "query"),
        ("shop: don't approve", "shop", "unclear"),
    ],
)  # fmt: skip
def test_a_project_is_named(text: str, name: str, kind: str) -> None:
    """With or without a sign, where the rest is understood."""
    found = directed(text, NAMES)

    assert (name, True, kind) == (found.project, found.firm, found.intent.kind)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("fix the header of shop", "shop"),
        ("use CC to fix the login in shop", "shop"),
        ("shop page needs a footer", None),
        ("add a link to the shop", None),
        ("rename workshop", None),
        ("fix shop-ui", None),
    ],
)
def test_work_keeps_all_its_words(text: str, name: str | None) -> None:
    """The name may be a word in it; it says where only if nothing else does."""
    found = directed(text, NAMES)

    assert (name, False, "start_custom") == (found.project, found.firm, found.intent.kind)
    assert classify(text) == found.intent


def test_a_command_is_none_for_a_project_that_is_called_so() -> None:
    """What is a command as it stands is one for the project at hand."""
    assert (None, "approve") == ((found := directed("approve review", NAMES)).project, found.intent.kind)
    assert (None, "note") == ((found := directed("note: look at shop", NAMES)).project, found.intent.kind)


def test_of_a_query_the_mark_stays() -> None:
    """Without it, `start US-001 in shop?` would start something."""
    assert "query" == directed("start US-001 in shop?", NAMES).intent.kind


def test_what_is_kept_of_a_task_is_without_its_address() -> None:
    """The agent need not know what its project is called here."""
    assert "fix the header" == directed("[shop] fix the header", NAMES).intent.instruction


@settings(deadline=None)
@given(st.text(max_size=100), st.lists(st.text(max_size=10), max_size=4))
def test_any_text_and_any_names(text: str, names: list[str]) -> None:
    """Names of projects come from their files; nothing raises."""
    found = directed(text, names)

    assert found.project is None or found.project in names


@settings(deadline=None)
@given(st.text(max_size=100))
def test_without_names_a_message_is_what_it_is(text: str) -> None:
    """Nothing is taken out of it."""
    assert classify(text) == directed(text, ()).intent
