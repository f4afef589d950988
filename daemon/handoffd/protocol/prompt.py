"""The prompt of one dispatch, from a template and the facts the daemon has.

No reasoning happens here: values are put into a template, and templates are texts that come in as an
argument, the shipped ones first and a project's own over them. What people, agents and tools wrote
enters as data that is already quoted (`prompt_text.py`), so that a template which simply prints it is
safe, too; what a template may do is limited (`prompt_sandbox.py`).

Rendering is a pure function and takes no time limit. Its work is bounded, so a caller renders in a
worker thread under a limit of its own and abandons the thread when that passes.

Names of templates: `<language>/prompt.j2` is the whole prompt, `<language>/prompt.<step>.j2` the one
of a single step if there is such a template, `<language>/steps/<step>.j2` a step's instruction, and
`<language>/handoff.j2` the prompt that asks for just the hand-off of work that is done already. A
template may extend or include the shipped one it replaces as `shipped/<language>/…`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from handoffd.errors import HandoffdError, InvalidFile, Problem
from handoffd.protocol.prompt_text import code, identifier, line, listed, quoted
from handoffd.protocol.rules import Expectation, Language
from handoffd.protocol.state import TestCounts
from handoffd.protocol.story import expand, is_story_id

if TYPE_CHECKING:
    from handoffd.protocol.prompt_sandbox import PromptEnvironment

Ask = Literal["step", "handoff"]

MAX_PROMPT_BYTES = 256 * 1024
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n){2,}")


class PromptTooLarge(HandoffdError):
    """A template makes a prompt larger than an executor is given."""

    default_code = "PROMPT_TOO_LARGE"


@dataclass(frozen=True)
class PromptTemplates:
    """Template texts by name; `files` tells which file to name in errors, by template name."""

    by_name: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def layered(
        cls, shipped: Mapping[str, str], *overrides: Mapping[str, str], files: Mapping[str, str] | None = None
    ) -> PromptTemplates:
        """Return `shipped` templates with `overrides` over them, the last on top."""
        merged = {f"shipped/{name}": text for name, text in shipped.items()} | dict(shipped)
        for override in overrides:
            merged |= override
        return cls(merged, files or {})

    def problems(self) -> tuple[Problem, ...]:
        """Return what is wrong with the templates, as far as that shows without rendering them."""
        return tuple(self.environment.problems())

    def instructed(self) -> frozenset[str]:
        """Return the steps that have an instruction template in some language."""
        parts = (name.split("/") for name in self.by_name)
        return frozenset(p[2].removesuffix(".j2") for p in parts if len(p) == 3 and p[1] == "steps")

    @cached_property
    def environment(self) -> PromptEnvironment:
        """The templates, compiled as they are used."""
        return _environment(tuple(self.by_name.items()), tuple(self.files.items()))

    def whole(self, step: str, language: Language, ask: Ask = "step") -> str:
        """Return the name of the template to render for what is asked for: a step, or just its hand-off."""
        kinds = (f"prompt.{step}.j2", "prompt.j2") if ask == "step" else ("handoff.j2",)
        names = [f"{tongue}/{kind}" for tongue in (language, "en") for kind in kinds]
        return next((name for name in names if name in self.by_name), f"{language}/{kinds[-1]}")

    def instruction(self, step: str, language: Language) -> str | None:
        """Return the name of the step's instruction template, None if it has none."""
        names = (f"{language}/steps/{step}.j2", f"en/steps/{step}.j2")
        return next((name for name in names if name in self.by_name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRole:
    """One role of an agent team: what it reads and writes, expanded."""

    name: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFacts:
    """What earlier steps of the story left, as recorded in the journal."""

    tests: TestCounts | None = None
    """Measured last, by the daemon."""
    files: tuple[str, ...] = ()
    """Every file the story changed."""
    attempts: Mapping[str, int] = field(default_factory=dict)
    """Attempts judged so far, by step."""
    commit_hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptContext:
    """Everything a prompt speaks of. Paths have been expanded; texts are as their authors wrote them."""

    project: str
    story: str | None
    step: str
    display_name: str
    attempt: int
    max_attempts: int
    dispatch: str | None
    """None: it is told no id, and its hand-off names none."""
    task_type: str = "story"
    language: Language = "en"
    ask: Ask = "step"
    """What it is asked for: the step's work, or just the hand-off that is missing."""
    reads: tuple[str, ...] = ()
    """In the order in which they shall be read."""
    writes: tuple[str, ...] = ()
    """What the step may change beside its hand-off files; a leading `!` excludes."""
    missing: tuple[str, ...] = ()
    """Files of `reads` that do not exist."""
    rollback_target: str | None = None
    """The step that would make what is missing."""
    human_note: str | None = None
    """A person's note, or the text of a custom task."""
    failing_tests: tuple[str, ...] = ()
    failing_measured: bool = True
    """False: the last attempt's were not measured, so a hand-off may have named them."""
    check_tail: str | None = None
    """The last lines of the check that failed."""
    last_error: str | None = None
    """How the previous attempt ended, if not well."""
    output_tail: str | None = None
    """The last lines it printed, where it left no hand-off."""
    tests_expected: Expectation | None = None
    post_check: str | None = None
    facts: PromptFacts = PromptFacts()
    agent_teams: bool = False
    roles: tuple[PromptRole, ...] = ()
    step_instruction: str | None = None
    """The step table's own instruction; replaces the step's template. May speak of `US-{story}`."""


def render_prompt(context: PromptContext, templates: PromptTemplates) -> str:
    """Return the prompt, at most 256 KiB of UTF-8.

    Long lists and texts are cut with a visible count of what is missing. Raises InvalidFile when a
    template is at fault (with its line), PromptTooLarge when a project's template makes too much of it.
    """
    name = templates.whole(context.step, context.language, context.ask)
    values = _values(context) | {"instruction_template": _instruction(context, templates)}
    return render_template(name, values, templates, what=f"the prompt of {identifier(context.step)}")


def render_template(name: str, values: Mapping[str, Any], templates: PromptTemplates, *, what: str) -> str:
    """Return what one template makes of `values`, at most 256 KiB of UTF-8; `what` is it, in errors.

    What others wrote has to be quoted in `values` already. Raises InvalidFile and PromptTooLarge.
    """
    from handoffd.protocol.prompt_sandbox import TooMuchOutput, render  # noqa: PLC0415  (see `_environment`)

    try:
        text = render(templates.environment, name, values, limit=MAX_PROMPT_BYTES)
    except TooMuchOutput:
        raise PromptTooLarge(
            f"{what} would be larger than {MAX_PROMPT_BYTES // 1024} KiB",
            hint=f"shorten the template {templates.files.get(name, name)} and what it includes",
        ) from None
    return _BLANK_LINES.sub("\n\n", text).strip("\n") + "\n"


# Compiling takes a hundred times as long as rendering, and the texts rarely change.
@lru_cache(maxsize=32)
def _environment(
    by_name: tuple[tuple[str, str], ...], files: tuple[tuple[str, str], ...]
) -> PromptEnvironment:
    from handoffd.protocol.prompt_sandbox import PromptEnvironment  # noqa: PLC0415  (jinja2 is slow)

    return PromptEnvironment(dict(by_name), dict(files))


def _instruction(context: PromptContext, templates: PromptTemplates) -> str | None:
    if context.step_instruction and context.step_instruction.strip():
        return None
    name = templates.instruction(context.step, context.language)
    if name is None:
        problem = Problem(
            file=".ai/step-rules.yaml",
            key=f"steps.{context.step}.step_instruction",
            message=f"the step has no instruction, here or as {context.language}/steps/{context.step}.j2",
        )
        raise InvalidFile((problem,))
    return name


# The limits, in bytes, add up to about 200 KiB; the shipped templates need less than 16 more.
def _values(context: PromptContext) -> dict[str, Any]:
    return {
        "project": line(context.project),
        "story": identifier(context.story) if context.story else None,
        "step": identifier(context.step),
        "display_name": line(context.display_name, limit=80),
        "attempt": context.attempt,
        "max_attempts": context.max_attempts,
        "dispatch": identifier(context.dispatch) if context.dispatch else None,
        "task_type": identifier(context.task_type),
        "language": context.language,
        "rollback_target": identifier(context.rollback_target) if context.rollback_target else None,
        "tests_expected": context.tests_expected,
        "agent_teams": context.agent_teams,
        "failing_measured": context.failing_measured,
        **_texts(context),
        **_lists(context),
        **_facts(context.facts, context.language),
    }


def _texts(context: PromptContext) -> dict[str, str | None]:
    def quote(text: str | None, kilobytes: int, *, tail: bool = False) -> str | None:
        keep: Any = "tail" if tail else "head"
        return quoted(text or "", limit=kilobytes * 1024, language=context.language, keep=keep)

    return {
        "human_note": quote(context.human_note, 64),
        "step_instruction": quote(_told(context, context.step_instruction), 24),
        "check_tail": quote(context.check_tail, 16, tail=True),
        "last_error": quote(context.last_error, 4),
        "output_tail": quote(context.output_tail, 4, tail=True),
        "post_check": quote(_told(context, context.post_check), 4),
    }


def _told(context: PromptContext, text: str | None) -> str | None:
    """Return a text of the step table with the story's id in it, where it has a place for one."""
    story = context.story
    return expand(text, story) if text and story and is_story_id(story) else text


def _lists(context: PromptContext) -> dict[str, Any]:
    def spans(items: tuple[str, ...], kilobytes: int) -> tuple[str, ...]:
        return listed(items, limit=kilobytes * 1024, language=context.language)

    return {
        "reads": spans(context.reads, 16),
        "writes": spans(context.writes, 16),
        "missing": spans(context.missing, 8),
        "failing_tests": spans(context.failing_tests, 16),
        "roles": tuple(
            {"name": identifier(role.name), "reads": spans(role.reads, 1), "writes": spans(role.writes, 1)}
            for role in context.roles[:8]
        ),
    }


def _facts(facts: PromptFacts, language: Language) -> dict[str, Any]:
    tests = facts.tests
    return {
        "tests": {"pass": tests.passed, "fail": tests.failed, "skip": tests.skipped} if tests else None,
        "files": listed(facts.files, limit=16 * 1024, language=language),
        "attempts": tuple((identifier(step), number) for step, number in list(facts.attempts.items())[:50]),
        "commit_hash": code(facts.commit_hash, limit=80) if facts.commit_hash else None,
    }
