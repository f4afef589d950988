"""What must be there before an attempt is dispatched: its id, its prompt, a known executor.

All of it is made before the decision is committed, so that a committed dispatch can be started
again after a crash with the very same prompt.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from handoffd.capacity.meters import CpuClock, within_cpu
from handoffd.clock import Clock
from handoffd.engine.run import PostCheck
from handoffd.engine.track import Facts, Track, TrackKey, text_of
from handoffd.engine.wording import command_for, first_few
from handoffd.errors import HandoffdError
from handoffd.execute.registry import AUTO, no_agent
from handoffd.files.atomic import replace_text
from handoffd.files.errors import storage_error
from handoffd.files.rooted import visiting, write_project_file
from handoffd.git.clones import Clones
from handoffd.git.repository import unfinished_in
from handoffd.inspection.own_files import templates_for, warmed
from handoffd.inspection.project_status import prerequisites
from handoffd.protocol.json_schema import Schema
from handoffd.protocol.prompt import (
    PromptCheck,
    PromptContext,
    PromptFacts,
    PromptRole,
    PromptTemplates,
    render_prompt,
)
from handoffd.protocol.rules import Language, Rule, RuleBook, localized
from handoffd.protocol.story import expand
from handoffd.protocol.task_prompt import TASK_FILE, TaskContext, render_task_prompt, task_document
from handoffd.track.ai_folder import prepare
from handoffd.track.services import Files, Services

_T = TypeVar("_T")

PROMPT = "prompt.md"
"""The file in a run's folder that the shim reads the prompt from."""

RENDER_CPU_S = 1.0
"""What a project's own templates may take of a processor; ours are not a stranger's."""
RENDER_OF_OURS = 40
"""How many times as much as compiling ours takes they may take, where that is longer: on a slow machine."""
RENDER_WALL_S = 60.0


def dispatch_id(clock: Clock) -> str:
    """Return a new dispatch id: sorts by time, unique by chance."""
    return f"{clock.now():%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


def cpu_limit_s(templates: PromptTemplates, ours_s: float) -> float | None:
    """Return how many seconds of a processor rendering may take, None: as many as it needs.

    `ours_s` is what compiling the shipped templates has taken on this machine.
    """
    return max(RENDER_CPU_S, RENDER_OF_OURS * ours_s) if templates.files else None


class PromptTooSlowError(HandoffdError):
    """A prompt template was still being rendered after its limit."""

    default_code = "PROMPT_TOO_SLOW"


class Prompts:
    """Makes the prompts of one track."""

    def __init__(
        self,
        key: TrackKey,
        files: Files,
        services: Services,
        schema: Callable[[str], Schema | None] = lambda _: None,
    ) -> None:
        self._key = key
        self._files = files
        self._schema = schema
        self._services = services

    def resumes(self, track: Track, name: str) -> bool:
        """Return whether the next run, by the executor `name`, may continue the session of the last one.

        The executor can, and the step's rule or its own definition says that it shall, or it is asked
        for just the hand-off of what it did there. Where a run was cut short, beginning anew would pay
        twice: then it does so unless the rule says that it shall not.
        """
        executor = self._services.executors.executors.get(name)
        if executor is None or not executor.can_resume or track.state is None:
            return False
        rule = self._files.rules.steps.get(track.state.step)
        last = track.ledger.session
        usual = "resume" if last is not None and last.unfinished else executor.session
        chosen = (rule.session if rule is not None else None) or usual
        return track.asking is not None or chosen == "resume"

    async def prompt(self, track: Track, dispatch: str) -> tuple[str, tuple[str, ...]]:
        """Return the prompt for the track's current attempt, and warnings about missing files.

        Raises HandoffdError when a template cannot be used or takes too long.
        """
        return await self._limited(partial(self._rendered, track, dispatch), track)

    def _rendered(self, track: Track, dispatch: str, meter: CpuClock) -> tuple[str, tuple[str, ...]]:
        language = self._files.settings.language or self._services.settings.language
        context = prompt_context(self._key, track, dispatch, self._files.rules, language)
        if (left := self._left_out(track)) is not None and context.ask == "step":
            context = replace(context, human_note="\n\n".join(filter(None, (context.human_note, left))))
        ours_s, templates = warmed(language), templates_for(self._key.project)
        if limit_s := cpu_limit_s(templates, ours_s):
            meter.limit(limit_s)
        text = self._text(track, context, templates)
        return text, tuple(f"{path} is missing" for path in context.missing)

    def _text(self, track: Track, context: PromptContext, templates: PromptTemplates) -> str:
        """Return the prompt of a step; of a task of a flow, with all that this was given."""
        told = self._told(track, context)
        return render_prompt(context, templates) if told is None else render_task_prompt(told, templates)

    def _told(self, track: Track, context: PromptContext) -> TaskContext | None:
        """Return the part of the prompt about a task of a flow; None: the track works for none."""
        task = track.ledger.task
        if task is None:
            return None
        delivery = self._files.rules.steps[context.step].delivers
        asked = () if delivery is None else (rule.schema_id for rule in delivery.out.values())
        known = {name: schema for name in asked if name and (schema := self._schema(name)) is not None}
        return TaskContext(prompt=context, brief=task.brief, delivery=delivery, schemas=known)

    def _left_out(self, track: Track) -> str | None:
        """Return what an agent has to do with files of its clone that are in no commit."""
        state, where = track.state, track.works_in(self._key.project)
        if state is None or state.story is None or where.kind != "clone":
            return None
        state_dir, environment = self._services.settings.state_dir, self._services.environment
        trail = Clones(self._key.project, state_dir, environment).trail(state.story)
        if trail is None or trail.base != where.base or not trail.left_out:
            return None
        return (
            f"The last commit of this story is without {first_few(trail.left_out)}, so this would not be "
            "landed. Commit what belongs to the story; no commit takes a file of more than 32 MB, or a "
            "repository inside this one: remove these, or have .gitignore name them."
        )

    async def _limited(self, work: Callable[[CpuClock], _T], track: Track) -> _T:
        try:
            return await within_cpu(work, RENDER_WALL_S)
        except TimeoutError as slow:
            root, step = self._key.project, track.state.step if track.state is not None else "a step"
            why = (
                f"took {slow}: simplify the templates in {root}/.ai/prompts"
                if str(slow)
                else f"was not ready within {RENDER_WALL_S:g} s: see whether the disk of {root} answers,"
                " and whether the machine has a processor to spare"
            )
            raise PromptTooSlowError(f"the prompt of {step} {why}", hint=command_for(root, "peek")) from slow

    async def stage(self, track: Track, dispatch: str) -> bool:
        """Lay the prompt where the shim will read it, and a copy where people will.

        Returns False, with nothing written, while the repository is in the middle of a merge or the like.
        `track` is about to be dispatched. Raises HandoffdError if anything that a dispatch needs is missing.
        """
        assert track.ledger.dispatch is not None
        self._require(track.ledger.dispatch.executor)

        def staged(meter: CpuClock) -> bool:  # all in one visit to a thread: an executor waits for it
            where = track.works_in(self._key.project)
            if where.kind == "root" and unfinished_in(where.folder) is not None:
                return False
            self._lay_out(track, dispatch, meter)
            return True

        return await self._limited(staged, track)

    async def lay_out(self, track: Track, dispatch: str) -> None:
        """Lay the prompt of the track's current attempt where `prompt_of` and people find it.

        Raises HandoffdError when it cannot be rendered or written.
        """
        await self._limited(partial(self._lay_out, track, dispatch), track)

    def _lay_out(self, track: Track, dispatch: str, meter: CpuClock) -> None:
        with visiting(Path(self._key.project)):
            text, _ = self._rendered(track, dispatch, meter)
            self._write(dispatch, text)
            self._write_task(track, dispatch)

    def _require(self, executor: str) -> None:
        book = self._services.executors
        if executor == AUTO:
            raise no_agent(book)
        book.get(executor)

    def _write(self, dispatch: str, text: str) -> None:
        run_dir = self._services.run_dir(dispatch)
        try:
            run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error("make the folder", run_dir, error) from error
        replace_text(Path(run_dir, PROMPT), text, durable=False)
        prepare(self._key.project, dispatch, text)

    def _write_task(self, track: Track, dispatch: str) -> None:
        """Lay what a task of a flow asks for beside the files of its hand-off, for programs."""
        if (task := track.ledger.task) is None:
            return
        language = self._files.settings.language or self._services.settings.language
        context = prompt_context(self._key, track, dispatch, self._files.rules, language)
        told = self._told(track, context)
        assert told is not None
        folder = Path(track.works_in(self._key.project).folder)
        write_project_file(folder, TASK_FILE, task_document(told, task.values), durable=False)


# --- from a track to the values of its prompt --------------------------------------------------------
# The facts come from the journal's ledger, not from STATE.json, which is cleared at every step.
def prompt_context(
    key: TrackKey, track: Track, dispatch: str | None, rules: RuleBook, language: Language
) -> PromptContext:
    """Return what the prompt of the track's current attempt speaks of. Looks at the disk.

    `dispatch` None: the attempt has no id, and its hand-off needs none.
    """
    state, facts, asking = track.state, track.ledger.facts, track.asking
    assert state is not None
    rule = rules.steps[state.step]
    where = track.works_in(key.project)
    needs = prerequisites(where.folder, rule, state.story, state.attempt)
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
        described=text_of(track.ledger, state.story),
        human_note=state.human_note,
        failing_tests=facts.failing_tests if rule.tests != "red" else (),
        failing_measured=track.ledger.measured is not None,
        check_tail=facts.check_tail,
        failed_checks=tuple(map(_failed_check, facts.failed_checks)),
        last_error=state.last_error if asking is None else asking.problem,
        output_tail=facts.output_tail if state.last_error else None,
        tests_expected=rule.tests,
        post_check=rule.checks,
        facts=_facts(facts),
        agent_teams=state.agent_teams,
        roles=_roles(rule, state.story),
        branch=where.branch if where.kind == "clone" else None,
        step_instruction=localized(rule.step_instruction, language),
    )


def _failed_check(check: PostCheck) -> PromptCheck:
    assert check.name is not None
    return PromptCheck(
        name=check.name, code=check.code, signal=check.signal, timed_out=check.timed_out, tail=check.tail
    )


def _facts(facts: Facts) -> PromptFacts:
    return PromptFacts(
        tests=facts.tests, files=facts.files, measured=facts.files_measured, attempts=facts.attempts,
        commit_hash=facts.commit_hash,
    )  # fmt: skip


def _roles(rule: Rule, story: str | None) -> tuple[PromptRole, ...]:
    return tuple(
        PromptRole(
            name=name,
            reads=tuple(expand(path, story) for path in role.claude_reads),
            writes=tuple(expand(path, story) for path in role.claude_writes),
        )
        for name, role in rule.team_roles.items()
    )
