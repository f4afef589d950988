"""`orchestrator.reading`: looks that need neither daemon nor journal."""

from __future__ import annotations

import json

from tests.unit.orchestrator.conftest import Say, Shop


def test_the_status_is_the_file(say: Say, shop: Shop) -> None:
    """With its keys in their order."""
    shop.written()

    assert [list(shop.state), shop.state] == [list(json.loads(say("status").out[0])), shop.state]


def test_without_a_state_there_is_no_status(say: Say) -> None:
    """The reference throws, and so the exit code is 127."""
    said = say("status")

    assert ("INTERNAL_ERROR", 127) == (json.loads(said.out[0])["code"], said.code)


def test_a_query_knows_what_comes_next(say: Say, shop: Shop) -> None:
    """By the project's own table."""
    shop.written(step="verify")
    assert "update-memory" == json.loads(say("query").out[0])["next_step"]

    (shop.root / ".ai/handoffd.yaml").write_text("preset: with-commit\n")
    assert "commit" == json.loads(say("query").out[0])["next_step"]


def test_a_query_works_before_anything_has_begun(say: Say) -> None:
    """Without the keys that only a STATE.json has."""
    told = json.loads(say("query").out[0])

    assert ("not_initialized", "none", 1) == (told["status"], told["step"], told["has_framework"]["level"])
    assert {"next_step", "last_error", "warnings"}.isdisjoint(told)


def test_missing_files_are_told_in_words_and_as_json(say: Say, shop: Shop) -> None:
    """With where they would have been made."""
    shop.written()
    said = say("check-prereqs")

    *lines, document = said.out
    told = json.loads(document)
    assert [False, "bdd"] == [told["ok"], told["suggested_rollback"]]
    assert f"Missing {len(told['missing'])} prerequisite file(s):" == lines[0]
    assert "Suggested action: orchestrator rollback . bdd" == lines[-1]

    shop.written(step="done", status="pass")
    assert "All prerequisite files present." == say("check-prereqs").out[0]


def test_projects_of_a_folder_are_listed(say: Say, shop: Shop) -> None:
    """None is a sentence, as in the reference."""
    assert ("No projects found with .ai/STATE.json",) == say("list-projects").out

    (shop.root / "one").mkdir()
    (shop.root / "one/package.json").write_text('{"name": "first"}')
    assert [["first", "one"]] == [
        [found["name"], found["dir"]] for found in json.loads(say("list-projects").out[0])
    ]


def test_sessions_are_prompts(say: Say, shop: Shop) -> None:
    """A triage needs open issues."""
    assert "shop" in say("review").out[0]
    assert "NO_MEMORY" == json.loads(say("triage").out[0])["code"]

    (shop.root / "PROJECT_MEMORY.md").write_text("## ISSUES\n- [ ] totals are rounded twice\n")
    assert "totals are rounded twice" in say("triage").out[0]


def test_sessions_need_a_folder(say: Say, shop: Shop) -> None:
    """Its absence is told as by the verbs that change something."""
    shop.root.rename(shop.root.with_name("moved"))

    told = [say(*words) for words in (("review",), ("triage",), ("auto", "review"), ("auto", "triage"))]
    assert [("NOT_FOUND", 1)] * 4 == [(json.loads(said.out[0])["code"], said.code) for said in told]
