"""The files of the protocol as values, without a daemon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from handoffd import (
    InvalidFile,
    Refused,
    State,
    Status,
    StoreError,
    apply_handoff,
    approve_review,
    build_prompt,
    dispatch,
    get_rule,
    parse_handoff,
    read_state,
    sanitize,
    start_story,
    validate,
    write_state,
)

STATE: dict[str, Any] = {"project": "shop", "story": "US-001", "step": "bdd", "status": "pending"}


def state_file(root: Path) -> Path:
    """Return where a project's STATE.json is."""
    return root / ".ai" / "STATE.json"


def test_a_state_is_written_whole_and_keeps_what_is_not_ours(shop: Path) -> None:
    """Keys of others, and the order of all."""
    state_file(shop).write_text('{"status": "pending", "owner": "mei", "step": "bdd", "project": "shop"}')

    write_state(shop, read_state(shop).with_(human_note="Cents."))

    written = json.loads(state_file(shop).read_text())
    assert ["status", "owner", "step", "project"] == list(written)[:4]
    assert ("mei", "Cents.") == (written["owner"], written["human_note"])
    assert ["STATE.json", "step-rules.yaml"] == sorted(path.name for path in (shop / ".ai").iterdir())


def test_what_is_written_is_an_edit_that_the_next_verb_takes(shop: Path) -> None:
    """As one with an editor is."""
    start_story(shop, "US-001")

    write_state(shop, read_state(shop).with_(human_note="Cents."))

    assert "Cents." in (getattr(dispatch(shop), "prompt", None) or "")


def test_a_gate_is_not_passed_by_writing(shop: Path) -> None:
    """Neither as passed nor as left behind: it waits for `handoffd confirm`."""
    start_story(shop, "US-001")
    for past in ({"step": "review", "status": "pass"}, {"step": "update-memory"}, {"step": "done"}):
        write_state(shop, {**STATE, **past})
        held = dispatch(shop)
        assert "blocked" == held.type
        assert "handoffd confirm" in (held.next_command or "")
        assert "bdd" == read_state(shop).step
        with pytest.raises(Refused):
            approve_review(shop)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"status": "finished"}, "status"),
        ({"status": "passed"}, "is read as 'pass'"),
        ({"step": "scaffold-tests"}, "the step table has no step 'scaffold-tests'"),
        ({"attempt": 0}, "attempt"),
        ({"story": "../x"}, "story id"),
        ({"project": None}, "project"),
    ],
)
def test_what_is_no_state_is_neither_valid_nor_written(
    shop: Path, changed: dict[str, Any], told: str
) -> None:
    """The file that was there stays."""
    write_state(shop, STATE)
    before = state_file(shop).read_bytes()

    for refuse in (lambda: validate({**STATE, **changed}), lambda: write_state(shop, {**STATE, **changed})):
        with pytest.raises(InvalidFile, match=told):
            refuse()

    assert before == state_file(shop).read_bytes()


def test_a_valid_state_comes_back(shop: Path) -> None:
    """Of a project with steps of its own by its own table; from values that were only trusted before."""
    state = validate(STATE)
    assert (state, Status.PENDING) == (validate(state), state.status)
    (shop / ".ai/step-rules.yaml").write_text(
        "steps:\n  bdd: {next_on_pass: audit}\n"
        "  audit: {next_on_pass: done, next_on_fail: bdd, step_instruction: {en: Look.}}\n"
    )
    audited = {**STATE, "step": "audit"}
    assert "audit" == validate(audited, shop).step
    with pytest.raises(InvalidFile):
        validate(audited)
    with pytest.raises(InvalidFile):
        validate(state.with_(attempt=0))


def test_near_misses_are_mended_with_a_word() -> None:
    """What means nothing is refused all the same."""
    mended = sanitize({**STATE, "status": "Passed", "failing_tests": None})

    assert Status.PASS is mended.state.status
    assert 2 == len(mended.warnings)
    with pytest.raises(InvalidFile):
        sanitize({**STATE, "status": "finished"})


def test_no_state_is_written_where_there_is_no_project(tmp_path: Path) -> None:
    """A slip makes no folder."""
    with pytest.raises(StoreError):
        write_state(tmp_path / "nowhere", STATE)
    assert not (tmp_path / "nowhere").exists()


def test_a_handoff_is_read_whatever_it_is_of(shop: Path) -> None:
    """Both files together, names of steps resolved; without front matter, what its words say."""
    assert parse_handoff(shop) is None
    (shop / ".ai/HANDOFF.md").write_text(
        "---\nstory: US-007\nstep: implementation\nattempt: 2\nstatus: passed\nfiles_changed: [a.py]\n"
        "tests_pass: 3\n---\nDone.\n"
    )
    said = parse_handoff(shop)
    assert said is not None
    assert ("US-007", "impl", 2, Status.PASS) == (said.story, said.step, said.attempt, said.status)
    assert (("a.py",), 3) == (said.files_changed, said.tests.passed if said.tests else None)

    (shop / ".ai/executor-result").write_text("status: failing\nreason: scope_warning\n")
    worse = parse_handoff(shop)
    assert worse is not None
    assert (Status.FAILING, "scope_warning") == (worse.status, worse.reason)

    (shop / ".ai/executor-result").unlink()
    (shop / ".ai/HANDOFF.md").write_text("# Session\nNEEDS CLARIFICATION: which currency?\n")
    old = parse_handoff(shop)
    assert old is not None
    assert (Status.FAILING, "needs_clarification") == (old.status, old.reason)


def test_a_handoff_that_cannot_be_read_is_told_with_its_line(shop: Path) -> None:
    """It is no hand-off, and not none either."""
    (shop / ".ai/HANDOFF.md").write_text("---\nstatus: pass\nno end\n")

    with pytest.raises(InvalidFile, match="HANDOFF"):
        parse_handoff(shop)


def test_a_prompt_is_made_of_a_state_and_a_rule() -> None:
    """Without a project, by what ships; it names no dispatch, which a hand-off would have to repeat."""
    state = validate(
        {**STATE, "step": "impl", "attempt": 2, "max_attempts": 5, "failing_tests": ["test_sum"],
         "human_note": "Mind the cents."}
    )  # fmt: skip
    prompt = build_prompt(state, get_rule("impl"))

    for part in ("US-001", "docs/bdd/US-001.md", "test_sum", "> Mind the cents.", "dispatch: null"):
        assert part in prompt
    assert "- Dispatch:" not in prompt
    assert "missing" not in prompt.split("## Read first")[0]
    assert prompt == build_prompt(state)
    assert "第 2 次嘗試" in build_prompt(state, language="zh-TW")


def test_a_project_has_its_own_prompt(shop: Path) -> None:
    """Its rules, its language, its templates; and what its folder lacks is told."""
    (shop / ".ai/handoffd.yaml").write_text("language: zh-TW\n")
    prompt = build_prompt(STATE, root=shop)

    assert "步驟" in prompt
    assert "PROJECT_MEMORY.md" in prompt
    asked = get_rule("bdd").model_copy(update={"step_instruction": {"en": "Count the cents."}})
    assert "Count the cents." in build_prompt(STATE, asked, root=shop, language="en")


@pytest.mark.parametrize(("step", "code"), [("review", "WRONG_STEP"), ("done", "UNKNOWN_STEP")])
def test_what_no_agent_does_has_no_prompt(step: str, code: str) -> None:
    """A gate is a person's, and the end is nobody's."""
    with pytest.raises(Refused) as refused:
        build_prompt({**STATE, "step": step})
    assert code == refused.value.code


def test_a_handoff_to_such_a_prompt_counts(shop: Path) -> None:
    """It names no dispatch, so it is of the attempt that runs."""
    start_story(shop, "US-001")
    dispatch(shop)
    state: State = read_state(shop)
    front = build_prompt(state, root=shop).split("```yaml\n")[1].split("```")[0]
    filled = front.replace("<pass | failing | needs_human>", "pass").replace('"<one sentence>"', '"Done."')
    (shop / ".ai/HANDOFF.md").write_text(filled)

    assert ("applied", Status.PASS) == (
        apply_handoff(shop).type, read_state(shop).status,
    )  # fmt: skip
