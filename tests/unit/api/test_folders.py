"""Questions about any folder, with and without an answer of the journal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.supervision import MemorySupervision, project_view, track_view
from tests.unit.inspection.making import write, write_state

from handoffd.api.folders import Inspecting
from handoffd.errors import InvalidFile, NotFound, Refused, StoreError


async def test_every_question_about_an_empty_folder_has_an_answer(tmp_path: Path) -> None:
    """Nothing is made in it."""
    asked, root = Inspecting(None), str(tmp_path)

    assert 0 == (await asked.detect(root))["level"]
    found = await asked.query(root)
    assert ("not_initialized", False, 0, f"handoffd init {root}") == (
        found["status"], found["supervised"], found["level"], found["next_command"],
    )  # fmt: skip
    assert [] == (await asked.list_projects(root))["projects"]
    assert "review_prompt" == (await asked.review(root))["type"]
    for read in (asked.triage, asked.check_prereqs):
        with pytest.raises(Refused):
            await read(root)
    assert not any(tmp_path.iterdir())  # noqa: ASYNC240  (one entry of an empty folder)


async def test_a_project_that_is_not_supervised_is_at_level_1_at_most(tmp_path: Path) -> None:
    """People keep its STATE.json; it could be added."""
    write_state(tmp_path, tests={"pass": 3, "fail": 0, "skip": 1})

    found = await Inspecting(MemorySupervision()).query(str(tmp_path))

    assert (1, None, f"handoffd add {tmp_path}") == (
        found["level"], found["waits_for"], found["next_command"],
    )  # fmt: skip
    assert {"pass": 3, "fail": 0, "skip": 1} == found["tests"]
    assert "US-005 is at impl, running" in found["caller_instruction"]
    json.dumps(found)


async def test_the_journal_completes_the_answer_about_a_supervised_project(tmp_path: Path) -> None:
    """It waits for a decision, and has a next command; by its name or a path inside."""
    write_state(tmp_path, step="review", status="needs_human")
    view = project_view(str(tmp_path), track_view())
    asked = Inspecting(MemorySupervision(view))

    for name in (view.name, str(tmp_path), str(tmp_path / "src")):
        found = await asked.query(name)
        assert ("review", "scaffold", True, 2) == (
            found["step"], found["next_step"], found["supervised"], found["level"],
        )  # fmt: skip
        assert ("a person's decision", "handoffd approve /srv/shop") == (
            found["waits_for"], found["next_command"],
        )  # fmt: skip


async def test_a_broken_state_comes_with_the_command_that_repairs_it(tmp_path: Path) -> None:
    """Supervised or not."""
    write(tmp_path, ".ai/STATE.json", "{")
    view = project_view(str(tmp_path), condition="invalid_state", detail="line 1", level=1)

    for asked in (Inspecting(None), Inspecting(MemorySupervision(view))):
        found = await asked.query(str(tmp_path))
        assert "invalid_state" == found["status"]
        assert found["next_command"].endswith(f"{tmp_path}/.ai/STATE.json")
        assert "STATE.json cannot be used" in found["caller_instruction"]


async def test_a_done_story_is_reported_as_done(tmp_path: Path) -> None:
    """No program dispatches because of that answer."""
    write_state(tmp_path, step="done", status="pass")

    assert "US-005 is done" in (await Inspecting(None).query(str(tmp_path)))["caller_instruction"]


async def test_missing_files_come_with_the_command_that_makes_them(tmp_path: Path) -> None:
    """In a form that a program passes on to a person."""
    write_state(tmp_path, step="sdd-delta")

    found = await Inspecting(None).check_prereqs(str(tmp_path))

    assert (False, "bdd") == (found["ok"], found["suggested_rollback"])
    command = f"handoffd rollback {tmp_path} bdd"
    assert f"handoffd add {tmp_path} && {command}" == found["next_command"]
    supervised = Inspecting(MemorySupervision(project_view(str(tmp_path), track_view())))
    assert command == (await supervised.check_prereqs(str(tmp_path)))["next_command"]
    assert found["caller_instruction"].endswith(found["next_command"])


async def test_a_prompt_is_in_the_requested_language(tmp_path: Path) -> None:
    """Else in the daemon's; the refusal of another one lists the languages."""
    write(tmp_path, "PROJECT_MEMORY.md", "## ISSUES\n- [ ] one\n")
    asked = Inspecting(None, "zh-TW")

    assert "健康檢查" in (await asked.review(str(tmp_path)))["prompt"]
    sorting = await asked.triage(str(tmp_path), "en")
    assert ("Triage of", ["one"], 1) == (sorting["prompt"][2:11], sorting["issues"], sorting["fw_lv"])
    with pytest.raises(Refused) as caught:
        await asked.review(str(tmp_path), "fr")
    assert "en, zh-TW" in caught.value.message


async def test_a_file_that_is_wrong_comes_with_the_command_that_opens_it(tmp_path: Path) -> None:
    """By the path of the file, from whatever folder the question comes."""
    write_state(tmp_path)
    write(tmp_path, ".ai/step-rules.yaml", "steps: [\n")
    write(tmp_path, ".ai/prompts/en/review_session.j2", "{{ nothing }}")

    for read in (Inspecting(None).check_prereqs, Inspecting(None).review):
        with pytest.raises(InvalidFile) as caught:
            await read(str(tmp_path))
        assert f"{tmp_path}/.ai/" in (caught.value.hint or "")


async def test_a_missing_project_is_not_found(tmp_path: Path) -> None:
    """Neither an unknown name nor a wrong path."""
    write(tmp_path, "file")
    for asked in (Inspecting(None), Inspecting(MemorySupervision())):
        for name in ("shop", str(tmp_path / "gone"), "/" + "x" * 5_000, "/a\0b", str(tmp_path / "file")):
            with pytest.raises(NotFound):
                await asked.detect(name)
            with pytest.raises((NotFound, Refused)):
                await asked.list_projects(name)


async def test_a_folder_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    """The answer names it, and the daemon goes on."""
    asked = Inspecting(MemorySupervision(), look_s=0)

    with pytest.raises(StoreError, match="does not answer") as caught:
        await asked.query(str(tmp_path))
    assert f"stat {tmp_path}" == caught.value.hint
