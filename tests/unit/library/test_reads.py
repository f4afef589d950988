"""The functions that only look."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd import (
    NotFound,
    Refused,
    check_prerequisites,
    detect_framework,
    generate_checklist,
    init_state,
    list_projects,
    peek,
    query_project_status,
    read_state,
    review,
    start_story,
    triage,
)


def test_whatever_only_looks_needs_nothing(shop: Path) -> None:
    """No journal, no STATE.json; and nothing is made."""
    assert "not_initialized" == query_project_status(shop).status
    assert 1 == detect_framework(shop).level
    assert ["shop"] == [found.dir for found in list_projects(shop.parent)]
    assert review(shop).prompt
    with pytest.raises(Refused, match="PROJECT_MEMORY") as refused:
        triage(shop)
    assert "NO_MEMORY" == refused.value.code
    with pytest.raises(Refused, match="no STATE"):
        read_state(shop)
    assert not (shop / ".ai" / "STATE.json").exists()


def test_a_folder_is_peeked_at_as_it_is(shop: Path) -> None:
    """What its files lead to, and it is supervised afterwards as little as before."""
    with pytest.raises(NotFound):
        peek(shop)
    state = shop / ".ai" / "STATE.json"
    state.write_text('{"project": "shop", "story": "US-002", "step": "bdd", "status": "pending"}')
    before = state.read_bytes()

    seen = peek(shop)

    assert ("bdd", "dispatched") == (seen.step, seen.result.type)
    assert "US-002" in (seen.prompt or "")
    assert before == state.read_bytes()
    assert ["STATE.json", "step-rules.yaml"] == sorted(path.name for path in (shop / ".ai").iterdir())


def test_prerequisites_and_checklist(shop: Path) -> None:
    """What the step in hand wants to read; boxes for its story."""
    init_state(shop)
    start_story(shop, "US-001")

    assert ("PROJECT_MEMORY.md",) == check_prerequisites(shop).missing
    assert not generate_checklist(str(shop), "US-001")
    assert generate_checklist(str(shop), "US-002")
