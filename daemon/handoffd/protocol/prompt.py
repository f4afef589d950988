"""The prompt of one dispatch, from a template and the facts the daemon has.

No reasoning happens here: values, which `track/prompts.py` gathers, are put into a template, and templates
are texts that come in as an argument, the shipped ones first and a project's own over them. What people,
agents and tools wrote enters as data that is already quoted, so that a template which simply prints it is
safe, too; what a template may do is limited (`prompt_sandbox.py`).

Text of others must not be able to pass for a part of the prompt itself: a text of several lines is quoted
line by line, so no line of it can begin a section; a name is one line of code; an identifier is reduced to
the letters identifiers are made of. Invisible characters become visible. Long texts are cut,
always in the same place, and the prompt mentions each cut.

Rendering is a pure function and takes no time limit. Its work is bounded, so a caller renders in a
worker thread under a limit of its own and abandons the thread when that passes.

Names of templates: `<language>/prompt.j2` is the whole prompt, `<language>/prompt.<step>.j2` the one
of a single step if there is such a template, `<language>/steps/<step>.j2` a step's instruction, and
`<language>/handoff.j2` the prompt that asks for just the hand-off of work that is done already;
`<language>/task.j2` is that of a task of a flow (`task_prompt.py`). A template may extend or include the
shipped one it replaces as `shipped/<language>/…`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from handoffd.errors import HandoffdError, InvalidFile, Problem
from handoffd.protocol.rules import Commands, Expectation, Language, commands_of
from handoffd.protocol.state import TestCounts
from handoffd.protocol.story import expand, is_story_id
from handoffd.protocol.story_text import StoryText, title_of

if TYPE_CHECKING:
    from handoffd.protocol.prompt_sandbox import PromptEnvironment


Ask = Literal["step", "handoff"]

MAX_PROMPT_BYTES = 256 * 1024
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n){2,}")


class PromptTooLarge(HandoffdError):
    """A template makes a prompt larger than an executor is given."""

    default_code = "PROMPT_TOO_LARGE"


class PromptTemplates(Struct, frozen=True, dict=True):
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


class PromptRole(Struct, frozen=True, kw_only=True):
    """One role of an agent team: what it reads and writes, expanded."""

    name: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


class PromptCheck(Struct, frozen=True, kw_only=True):
    """One of several checks after a step that failed: how it ended, and what it printed last."""

    name: str
    code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    tail: str = ""


class PromptFacts(Struct, frozen=True, kw_only=True):
    """What earlier steps of the story left, as recorded in the journal."""

    tests: TestCounts | None = None
    """Measured last, by the daemon."""
    files: tuple[str, ...] = ()
    """Every file the story changed."""
    measured: bool = False
    """Whether the daemon found these; else hand-offs name them."""
    attempts: Mapping[str, int] = field(default_factory=dict)
    """Attempts judged so far, by step."""
    commit_hash: str | None = None


class PromptContext(Struct, frozen=True, kw_only=True):
    """Everything a prompt speaks of. Paths have been expanded; texts are as their authors wrote them."""

    project: str
    story: str | None
    step: str
    display_name: str
    attempt: int
    max_attempts: int
    dispatch: str | None
    """None: the prompt names no id, and the hand-off needs none."""
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
    described: StoryText | None = None
    """What a person said that the story shall bring."""
    human_note: str | None = None
    """A person's note, or the text of a custom task."""
    failing_tests: tuple[str, ...] = ()
    failing_measured: bool = True
    """False: the last attempt's were not measured, so a hand-off may have named them."""
    check_tail: str | None = None
    """The last lines of the check that failed."""
    failed_checks: tuple[PromptCheck, ...] = ()
    """The ones that failed, where a step has several with names; `check_tail` is None then."""
    last_error: str | None = None
    """How the previous attempt ended, if not well."""
    output_tail: str | None = None
    """The last lines it printed, where it left no hand-off."""
    tests_expected: Expectation | None = None
    post_check: Commands | None = None
    facts: PromptFacts = PromptFacts()
    agent_teams: bool = False
    roles: tuple[PromptRole, ...] = ()
    branch: str | None = None
    """The branch of the clone that it is carried out in; None: it is in the project's own folder."""
    step_instruction: str | None = None
    """The step table's own instruction; replaces the step's template. May speak of `US-{story}`."""


def render_prompt(context: PromptContext, templates: PromptTemplates) -> str:
    """Return the prompt, at most 256 KiB of UTF-8.

    Long lists and texts are cut with a visible count of what is missing. Raises InvalidFile when a
    template is at fault (with its line), PromptTooLarge when a project's template makes too much of it.
    """
    name = templates.whole(context.step, context.language, context.ask)
    values = values_of(context) | {"instruction_template": _instruction(context, templates)}
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
def values_of(context: PromptContext) -> dict[str, Any]:
    """Return what a template can print of a prompt; texts of others are quoted."""
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
        "branch": line(context.branch) if context.branch else None,
        **_texts(context),
        **_lists(context),
        **_facts(context.facts, context.language),
    }


def _texts(context: PromptContext) -> dict[str, Any]:
    def quote(text: str | None, kilobytes: float, *, tail: bool = False) -> str | None:
        keep: Any = "tail" if tail else "head"
        return quoted(text or "", limit=int(kilobytes * 1024), language=context.language, keep=keep)

    commands, failed = commands_of(context.post_check), context.failed_checks
    return {
        # A prompt holds no two texts of 64 KiB: beside a story's, a note is cut at 32.
        "story_title": _title(context.described),
        "story_text": quote(context.described.text, 64) if context.described is not None else None,
        "human_note": quote(context.human_note, 64 if context.described is None else 32),
        "step_instruction": quote(_told(context, context.step_instruction), 24),
        "check_tail": quote(context.check_tail, 16, tail=True),
        "last_error": quote(context.last_error, 4),
        "output_tail": quote(context.output_tail, 4, tail=True),
        "post_check": quote(_told(context, text), 4) if isinstance(text := context.post_check, str) else None,
        "post_checks": tuple(
            {"name": identifier(name), "command": quote(_told(context, text), 4 / len(commands))}
            for name, text in commands
            if name is not None
        ),
        "failed_checks": tuple(
            {
                "name": identifier(one.name),
                "code": one.code,
                "signal": one.signal,
                "timed_out": one.timed_out,
                "tail": quote(one.tail, 16 / len(failed), tail=True),
            }
            for one in failed
        ),
    }


def _title(described: StoryText | None) -> str | None:
    """Return a story's title as a code span, where its text does not begin with it."""
    if described is None or described.title in title_of(described.text):
        return None
    return code(described.title)


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
        "files_measured": facts.measured,
        "attempts": tuple((identifier(step), number) for step, number in list(facts.attempts.items())[:50]),
        "commit_hash": code(facts.commit_hash, limit=80) if facts.commit_hash else None,
    }


# --- text of others, made fit to stand in a prompt ----------------------------------------------------
_NEWLINE = re.compile(r"\r\n|[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    r"\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e01ef]"
)
_NO_IDENTIFIER = re.compile(r"[^A-Za-z0-9._-]")
_BACKTICKS = re.compile(r"`+")

_MORE_ITEMS: dict[Language, str] = {"en": "… {} more", "zh-TW": "……另有 {} 項"}
_MORE_TEXT: dict[Language, str] = {"en": "[… {} more characters]", "zh-TW": "［……另有 {} 個字元］"}


def identifier(text: str, *, limit: int = 80) -> str:
    """Return `text` with everything that has no place in an identifier replaced by `_`."""
    return _NO_IDENTIFIER.sub("_", text[:limit])


def line(text: str, *, limit: int = 120) -> str:
    """Return `text` as one line of at most `limit` characters."""
    flat = " ".join(_visible(_NEWLINE.sub("\n", text[: 4 * limit])).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def code(text: str, *, limit: int = 300) -> str:
    """Return `text` as a code span of one line; line ends in it show as `\\n`."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    plain = _visible(_NEWLINE.sub("\n", cut).replace("\n", "\\n").replace("\t", "\\t"))
    longest = max((len(run) for run in _BACKTICKS.findall(plain)), default=0)
    if not longest:
        return f"`{plain}`" if plain.strip() else "` `"
    fence = "`" * (longest + 1)
    return f"{fence} {plain} {fence}"


def quoted(
    text: str, *, limit: int, language: Language, keep: Literal["head", "tail"] = "head"
) -> str | None:
    """Return `text` as quoted lines of at most about `limit` bytes together; None if it is blank.

    Of a longer text its head or tail is kept, and a line outside the quotation says how much is missing.
    """
    near = text[: 4 * limit] if keep == "head" else text[-4 * limit :]  # no need to clean what is cut anyway
    clean = _visible(_NEWLINE.sub("\n", _TERMINAL.sub("", near))).strip("\n")
    if not clean.strip():
        return None
    lines = clean.split("\n")
    kept = _head(lines, limit) if keep == "head" else _tail(lines, limit)
    quotation = [f"> {item}".rstrip() for item in kept]
    missing = len(clean) - len("\n".join(kept)) + len(text) - len(near)
    if missing:
        note = _MORE_TEXT[language].format(missing)
        quotation = [*quotation, "", note] if keep == "head" else [note, "", *quotation]
    return "\n".join(quotation)


def listed(items: Iterable[str], *, limit: int, language: Language, most: int = 200) -> tuple[str, ...]:
    """Return `items` as code spans of at most `limit` bytes together; the last one counts the rest."""
    everything = tuple(items)
    shown: list[str] = []
    for item in everything[:most]:
        span = code(item)
        limit -= len(span.encode())
        if limit < 0:
            break
        shown.append(span)
    if len(shown) < len(everything):
        shown.append(more_items(len(everything) - len(shown), language))
    return tuple(shown)


def more_items(count: int, language: Language) -> str:
    """Return the line about items that are left out."""
    return _MORE_ITEMS[language].format(count)


def _visible(text: str) -> str:
    return _INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _head(lines: list[str], limit: int) -> list[str]:
    kept: list[str] = []
    for item in lines:
        room = limit - 3
        data = item.encode()
        limit -= len(data) + 3
        if limit < 0:
            return [*kept, data[: max(room, 0)].decode(errors="ignore")] if room > 0 else kept
        kept.append(item)
    return kept


def _tail(lines: list[str], limit: int) -> list[str]:
    mirrored = _head([item[::-1] for item in reversed(lines)], limit)
    return [item[::-1] for item in reversed(mirrored)]
