"""A program that has the installed package and nothing else: it calls everything that a star import brings.

Run with an empty folder, in which it makes a project. Type checkers read it, too.
"""
# ruff: noqa: F403, F405

from __future__ import annotations

import sys
from pathlib import Path

from handoffd import *

PASS = "---\nstatus: pass\nfiles_changed: [a.py]\n---\nDone.\n"
RULES = "steps:\n  bdd: {next_on_pass: review}\n  review: {next_on_pass: update-memory}\n"


def hand_over(root: Path) -> Applied:
    """Do a step, and hand it in."""
    (root / ".ai/HANDOFF.md").write_text(PASS)
    said: Handoff | None = parse_handoff(root)
    assert said is not None
    assert said.files_changed == ("a.py",)
    return apply_handoff(root)


def look(root: Path) -> None:
    """Ask for everything that changes nothing."""
    framework: Framework = detect_framework(root)
    assert framework.level == 1
    status: ProjectStatus = query_project_status(root)
    assert status.status == "pending"
    projects: tuple[ListedProject, ...] = list_projects(root.parent)
    assert [project.dir for project in projects] == [root.name]
    missing: PrerequisiteCheck = check_prerequisites(root)
    assert not missing.ok
    for prompt in (review(root), triage(root)):
        checked: SessionPrompt = prompt
        assert checked.prompt
    intent: Intent = classify("approve")
    assert intent.kind == "approve"
    reply: Reply = auto(root, "what is the status?")
    assert reply.action == "query"
    seen: Peek = peek(root)
    assert seen.result.type == "dispatched"


def look_things_up(root: Path, state: State) -> None:
    """Ask the step table, and make values of texts."""
    rule: Rule = get_rule("impl")
    assert rule.target(Reason.SCOPE_WARNING) == fail_target("impl", "scope_warning") == "review"
    assert step_sequence(root) == ("bdd", "review", "update-memory")
    roles = team_roles()
    role: TeamRole = roles["test"]
    assert role.claude_writes
    assert dispatch_mode("M", 2) == "team"
    assert resolve_paths(["docs/bdd/US-{story}.md"], "US-001") == ("docs/bdd/US-001.md",)
    parsed: ParsedState = sanitize({**state.model_dump(mode="json"), "status": "passed"})
    assert (parsed.state.status, len(parsed.warnings)) == (Status.PASS, 1)
    assert validate(state, root) == state
    assert "US-001" in build_prompt(state, rule)


def one_story(root: Path, story: str) -> DispatchResult:
    """Do a story from its first step to its end."""
    turn: DispatchResult = dispatch(root)
    while not isinstance(turn, Finished):
        if isinstance(turn, Dispatched):
            assert turn.prompt
            assert hand_over(root).type == "applied"
        else:
            assert isinstance(turn, NeedsHuman), (Blocked, AlreadyRunning, TimedOut)
            assert reject_review(root, Reason.NEEDS_CLARIFICATION, story=story).status is Status.FAILING
            assert isinstance(dispatch(root), Dispatched)
            hand_over(root)
            assert isinstance(dispatch(root), NeedsHuman)
            assert approve_review(root, "Fine.", story=story).status is Status.PASS
            assert undo_approval(root, story=story).status is Status.NEEDS_HUMAN
            assert approve_review(root, story=story).status is Status.PASS
        turn = dispatch(root)
    assert turn.review_suggested is False
    return turn


def refused(root: Path) -> None:
    """Be refused in every way."""
    errors: list[HandoffdError] = []
    try:
        start_next(root)
    except Refused as error:
        errors.append(error)
    try:
        validate({"project": "shop", "step": "bdd", "status": "finished"})
    except InvalidFile as error:
        errors.append(error)
    try:
        dispatch(root.with_name("nowhere"))
    except NotFound as error:
        errors.append(error)
    try:
        write_state(root / "nowhere", read_state(root))
    except StoreError as error:
        errors.append(error)
    assert len({error.code for error in errors}) == 4


def main(folder: str) -> None:
    """Go through a story and every question."""
    root = Path(folder) / "shop"
    (root / ".ai").mkdir(parents=True)
    (root / ".ai/step-rules.yaml").write_text(RULES)
    (root / "PROJECT_CONTEXT.md").write_text("A shop.\n")
    init_state(root)
    state = start_story(root, "US-001")
    write_state(root, state.with_(human_note="Prices are in cents."))
    checked: Checked = run_post_check(root)
    assert checked.passed is None
    assert generate_checklist(str(root), "US-009")
    look_things_up(root, state)
    missing = root / "PROJECT_MEMORY.md"
    missing.write_text("## ISSUES\n- [ ] rounding\n")
    (root / "PROJECT_CONTEXT.md").rename(root / "CONTEXT.md")
    look(root)
    (root / "CONTEXT.md").rename(root / "PROJECT_CONTEXT.md")
    one_story(root, "US-001")
    assert reopen(root, "update-memory").reopened_from == "update-memory"
    assert rollback(root, "bdd").step == "bdd"
    one_story(root, "US-001")
    assert start_custom(root, "Rename the receipt.", label="rename").task_type == "custom"
    report: Report = night_report(root)
    assert report.since < report.until
    plan: Tonight = tonight(root)
    assert plan.at < plan.until
    refused(root)


if __name__ == "__main__":
    main(sys.argv[1])
