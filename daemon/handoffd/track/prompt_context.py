"""From a track to the values of its prompt.

The facts come from the journal's ledger, not from STATE.json, which is cleared at every step.
"""

from __future__ import annotations

from handoffd.engine.track import Facts, Track, TrackKey
from handoffd.inspection.prerequisites import prerequisites
from handoffd.protocol.prompt import PromptContext, PromptFacts, PromptRole
from handoffd.protocol.rules import Language, Rule, RuleBook, localized
from handoffd.protocol.story import expand


def prompt_context(
    key: TrackKey, track: Track, dispatch: str | None, rules: RuleBook, language: Language
) -> PromptContext:
    """Return what the prompt of the track's current attempt speaks of. Looks at the disk.

    `dispatch` None: the attempt has no id, and its hand-off needs none.
    """
    state, facts, asking = track.state, track.ledger.facts, track.asking
    assert state is not None
    rule = rules.steps[state.step]
    needs = prerequisites(key.project, rule, state.story, state.attempt)
    return PromptContext(
        project=state.project,
        story=state.story,
        step=state.step,
        display_name=localized(rule.display_name, language) or state.step,
        attempt=state.attempt,
        max_attempts=state.max_attempts,
        dispatch=dispatch,
        task_type=state.task_type,
        language=language,
        ask="step" if asking is None else "handoff",
        reads=needs.reads,
        writes=tuple(expand(path, state.story) for path in rule.claude_writes),
        missing=needs.missing,
        rollback_target=needs.rollback_target,
        human_note=state.human_note,
        failing_tests=facts.failing_tests if rule.tests != "red" else (),
        failing_measured=track.ledger.measured is not None,
        check_tail=facts.check_tail,
        last_error=state.last_error if asking is None else asking.problem,
        output_tail=facts.output_tail if state.last_error else None,
        tests_expected=rule.tests,
        post_check=rule.post_check,
        facts=_facts(facts),
        agent_teams=state.agent_teams,
        roles=_roles(rule, state.story),
        step_instruction=localized(rule.step_instruction, language),
    )


def _facts(facts: Facts) -> PromptFacts:
    return PromptFacts(
        tests=facts.tests, files=facts.files, attempts=facts.attempts, commit_hash=facts.commit_hash
    )


def _roles(rule: Rule, story: str | None) -> tuple[PromptRole, ...]:
    return tuple(
        PromptRole(
            name=name,
            reads=tuple(expand(path, story) for path in role.claude_reads),
            writes=tuple(expand(path, story) for path in role.claude_writes),
        )
        for name, role in rule.team_roles.items()
    )
