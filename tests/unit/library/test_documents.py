"""The files of the protocol and the step table as values, without a daemon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.refusals import refused

from handoffd import (
    InvalidFile,
    Reason,
    Refused,
    State,
    Status,
    StoreError,
    apply_handoff,
    approve_review,
    build_prompt,
    dispatch,
    dispatch_mode,
    fail_target,
    get_rule,
    parse_handoff,
    read_state,
    resolve_paths,
    sanitize,
    start_story,
    step_sequence,
    team_roles,
    validate,
    write_state,
)

STATE: dict[str, Any] = {"project": "shop", "story": "US-001", "step": "bdd", "status": "pending"}


def state_file(root: Path) -> Path:
    """Return where a project's STATE.json is."""
    return root / ".ai" / "STATE.json"


def test_a_written_state_keeps_the_keys_of_others(shop: Path) -> None:
    """And their order; a missing project gets no folder."""
    with pytest.raises(StoreError):
        write_state(shop / "nowhere", STATE)
    assert not (shop / "nowhere").exists()
    state_file(shop).write_text('{"status": "pending", "owner": "mei", "step": "bdd", "project": "shop"}')

    write_state(shop, read_state(shop).with_(human_note="Cents."))

    written = json.loads(state_file(shop).read_text())
    assert ["status", "owner", "step", "project"] == list(written)[:4]
    assert ("mei", "Cents.") == (written["owner"], written["human_note"])
    assert ["STATE.json", "step-rules.yaml"] == sorted(path.name for path in (shop / ".ai").iterdir())


def test_the_next_verb_adopts_a_written_state(shop: Path) -> None:
    """As an edit with an editor."""
    start_story(shop, "US-001")

    write_state(shop, read_state(shop).with_(human_note="Cents."))

    assert "Cents." in (getattr(dispatch(shop), "prompt", None) or "")


def test_a_written_state_passes_no_gate(shop: Path) -> None:
    """At the gate or beyond, it waits for `handoffd confirm`."""
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
def test_a_wrong_state_is_neither_valid_nor_written(shop: Path, changed: dict[str, Any], told: str) -> None:
    """The existing file stays."""
    write_state(shop, STATE)
    before = state_file(shop).read_bytes()

    for refuse in (lambda: validate({**STATE, **changed}), lambda: write_state(shop, {**STATE, **changed})):
        with pytest.raises(InvalidFile, match=told):
            refuse()

    assert before == state_file(shop).read_bytes()


def test_a_valid_state_comes_back(shop: Path) -> None:
    """By the project's own table if it has one; a value is validated again."""
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


def test_near_misses_are_corrected_with_a_warning() -> None:
    """A word without a meaning is refused all the same."""
    corrected = sanitize({**STATE, "status": "Passed", "failing_tests": None})

    assert Status.PASS is corrected.state.status
    assert 2 == len(corrected.warnings)
    with pytest.raises(InvalidFile):
        sanitize({**STATE, "status": "finished"})


def test_a_handoff_of_any_attempt_is_read(shop: Path) -> None:
    """Both files together, with names of steps resolved; without front matter, by its words."""
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

    (shop / ".ai/HANDOFF.md").write_text("---\nstatus: pass\nno end\n")
    with pytest.raises(InvalidFile, match="HANDOFF"):
        parse_handoff(shop)


def test_a_prompt_is_made_of_a_state_and_a_rule() -> None:
    """Without a project, by the shipped table; it names no dispatch for a hand-off to repeat."""
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
    """By its rules, its language and its templates, with its missing files."""
    (shop / ".ai/handoffd.yaml").write_text("language: zh-TW\n")
    prompt = build_prompt(STATE, root=shop)

    assert "步驟" in prompt
    assert "PROJECT_MEMORY.md" in prompt
    asked = get_rule("bdd").model_copy(update={"step_instruction": {"en": "Count the cents."}})
    assert "Count the cents." in build_prompt(STATE, asked, root=shop, language="en")


@pytest.mark.parametrize(("step", "code"), [("review", "WRONG_STEP"), ("done", "UNKNOWN_STEP")])
def test_a_step_without_an_agent_has_no_prompt(step: str, code: str) -> None:
    """A person decides a gate, and the end needs no work."""
    with refused(code):
        build_prompt({**STATE, "step": step})


def test_a_handoff_to_such_a_prompt_counts(shop: Path) -> None:
    """Without a dispatch, it belongs to the running attempt."""
    start_story(shop, "US-001")
    dispatch(shop)
    state: State = read_state(shop)
    front = build_prompt(state, root=shop).split("```yaml\n")[1].split("```")[0]
    filled = front.replace("<pass | failing | needs_human>", "pass").replace('"<one sentence>"', '"Done."')
    (shop / ".ai/HANDOFF.md").write_text(filled)

    assert "applied" == apply_handoff(shop).type
    assert Status.PASS is read_state(shop).status


# --- the step table ----------------------------------------------------------------------------------
def test_the_shipped_table_needs_no_project() -> None:
    """For its rules and the order of its steps, without the bootstrap of a new project."""
    story = "bdd sdd-delta contract review scaffold impl verify update-memory"
    assert tuple(story.split()) == step_sequence()
    assert ("custom", "update-memory") == step_sequence(task_type="custom")
    assert ("verify", 5) == (get_rule("impl").next_on_pass, get_rule("impl").max_attempts)
    assert get_rule("review").requires_human
    assert "bdd" == get_rule("bootstrap").next_on_pass


def test_a_project_has_its_own_table(shop: Path) -> None:
    """Under its root; a rule is a copy, so that a change does not reach the next caller."""
    assert ("bdd", "review", "update-memory") == step_sequence(shop)
    assert ("review", "sdd-delta") == (get_rule("bdd", shop).next_on_pass, get_rule("bdd").next_on_pass)
    on_fail = get_rule("impl").on_fail
    assert isinstance(on_fail, dict)
    on_fail["default"] = "done"
    assert "impl" == get_rule("impl").on_fail["default"] == fail_target("impl")


@pytest.mark.parametrize(("step", "told"), [("implement", "allowed: bootstrap, bdd"), ("done", "is the end")])
def test_an_unknown_step_is_refused(step: str, told: str) -> None:
    """With the known steps; the end has no rule."""
    with refused("UNKNOWN_STEP", match=told):
        get_rule(step)


@pytest.mark.parametrize(
    ("step", "reason", "target"),
    [
        ("impl", None, "impl"),
        ("impl", "constitution_violation", "sdd-delta"),
        ("impl", Reason.SCOPE_WARNING, "review"),
        ("verify", None, "impl"),
        ("verify", "test_timeout", "impl"),
        ("review", "needs_clarification", "bdd"),
        ("bdd", "needs_clarification", None),
    ],
)
def test_a_failure_leads_to_a_step(step: str, reason: str | None, target: str | None) -> None:
    """By its reason; to a person if the table has no route for it."""
    assert target == fail_target(step, reason)


def test_an_unknown_reason_is_refused() -> None:
    """It would else count as none."""
    with refused("BAD_ARGUMENT", match="needs_clarification"):
        fail_target("impl", "dislike")


def test_a_team_has_roles_and_large_stories() -> None:
    """And medium ones of which enough is parallel; other steps are for one."""
    roles = team_roles()
    assert {"backend", "frontend", "test", "verify"} == set(roles)
    assert "docs/sdd.md" in roles["backend"].claude_reads
    assert ["single", "team"] == [dispatch_mode("S", 9), dispatch_mode("L")]
    assert ["single", "team"] == [dispatch_mode("M", 1), dispatch_mode("M", 2)]
    assert ({}, "single") == (team_roles("bdd"), dispatch_mode("L", step="bdd"))


def test_a_path_names_its_story_once() -> None:
    """With its prefix or without."""
    paths = ("docs/bdd/US-{story}.md", "docs/sdd.md")
    for story in ("US-013", "013"):
        assert ("docs/bdd/US-013.md", "docs/sdd.md") == resolve_paths(paths, story)
    with pytest.raises(Refused, match="story id"):
        resolve_paths(("docs/{story}.md",), "../etc")
