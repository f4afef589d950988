"""The step table as a value.

`rulebook.py` makes a `RuleBook` from YAML (the shipped table, a preset, a project's own file) and
validates it; the engine only looks things up in it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from handoffd.protocol.state import Minutes, Reason
from handoffd.protocol.story import expand

DONE = "done"
"""The pseudo-step at the end of every pipeline; it has no rule."""

Expectation = Literal["red", "green"]
Language = Literal["en", "zh-TW"]
Complexity = Literal["S", "M", "L"]
Sessions = Literal["fresh", "resume"]
"""Whether a retry of a step begins a new session of its agent, or continues the last one."""
DispatchMode = Literal["single", "auto", "team"]
Enforcement = Literal["warn", "fail", "revert"]
"""What follows where a step has changed a file that it may not write: it is reported; the attempt fails with
`scope_warning`; or the file is put back as it was."""
Output = Literal["exist", "parse", "levels", "tested", "clear"]
"""What can be checked of what a step has written: each file that it names is there; JSON, YAML, OpenAPI and
AsyncAPI can be read; each scenario says its test level; each scenario that it reads has a test; no line is
marked `[NEEDS CLARIFICATION]` any more, which at a human step asks for an answer in its approval."""
OUTPUTS: Final = "outputs"
"""The name of the check of a step's outputs, beside what `post_check` names."""
OUTPUTS_PROGRAM: Final = "handoffd-outputs"
"""How its command begins, which no shell runs."""
Commands = str | Mapping[str, str]
"""A shell command, or several by name, in the order in which they are run."""
WRITTEN_BY_ALL: Final = (
    ".ai/HANDOFF.md", ".ai/executor-result", ".ai/CHECKLIST.md", ".ai/runs/**",
    "__pycache__/", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/",
)  # fmt: skip
"""What every step may write: its hand-off, and what is left by tools that only look."""
REWRITTEN: Final = (
    ".ai/CHECKLIST.md", ".ai/HANDOFF.md", ".ai/STATE.json", ".ai/board/", ".ai/executor-result",
    ".ai/flows/", ".ai/out/", ".ai/rehearsal-count.json", ".ai/runs/", ".ai/states/", ".ai/task.json",
    ".ai/trash/",
)  # fmt: skip
"""What is written in a project's folder while stories and flows are worked on, and belongs in no commit."""
Gates = Literal["before", "after", "both", "none"]
"""When a person decides about a story: before its code, after it, both, or never."""
REVIEW = "review"
ACCEPTANCE = "acceptance"
OPENED_BY: Final[Mapping[Gates, frozenset[str]]] = {
    "before": frozenset({REVIEW}),
    "after": frozenset({ACCEPTANCE}),
    "both": frozenset({REVIEW, ACCEPTANCE}),
    "none": frozenset(),
}
"""The human steps that a story comes to with each value of `gates`."""
PAPERS: Final = frozenset({"PROJECT_MEMORY.md", ".ai/history.md"})
"""What each story adds lines to."""
IDENTICAL_ENDS = 3
"""After this many equal ends of a step in a row a person is asked, where a project says nothing else."""
MIN_PARALLEL = 2
"""Scenarios marked `[P]` with which `auto` is a team."""


class Formula(BaseModel):
    """An expression that was found sound, with the kinds of the names that it reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    names: tuple[tuple[str, Literal["number", "text", "boolean", "list", "any"]], ...] = ()


class FieldRule(BaseModel):
    """A field that a hand-off must give."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["number", "boolean", "text"] = "number"
    minimum: float | None = None
    maximum: float | None = None


class OutRule(BaseModel):
    """A file that must be handed over: its path below `.ai/out`; one with a schema, `plan/1`, must fit it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    schema_id: str | None = None


class Branch(BaseModel):
    """A row of the table that an outcome is read from; the last one has no condition."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    outcome: str
    condition: Formula | None = None


class Delivery(BaseModel):
    """What a task of a flow must hand over: `delivery.py` makes it of a task, and compares."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    outcomes: tuple[str, ...] = ()
    """Which ones a hand-off may claim."""
    usual: str | None = None
    """The outcome of complete work that claims none; None: it must claim one."""
    verdict: bool = False
    """Whether the outcome is computed from the fields, so that none need be claimed."""
    rows: tuple[Branch, ...] = ()
    """How it is computed then; a program that plays an agent looks for fields that lead somewhere."""
    leads: Mapping[str, str] = Field(default_factory=dict)
    """What follows at first from each: `accept`, `back`, `call`, `again`, `drop`, `end`, `stop`, `hold`."""
    fields: Mapping[str, FieldRule] = Field(default_factory=dict)
    out: Mapping[str, OutRule] = Field(default_factory=dict)
    compute: Mapping[str, Formula] = Field(default_factory=dict)
    """Numbers that a check, or a row, may read."""
    checks: tuple[Formula, ...] = ()


OF_FLOWS: Final = frozenset({"delivers"})
"""The keys of a rule that only a task of a flow has: no step table can say them."""


class TeamRole(BaseModel):
    """What one member of an agent team reads and writes, as path templates."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    claude_reads: tuple[str, ...] = ()
    claude_writes: tuple[str, ...] = ()


class Rule(BaseModel):
    """One step: where it leads, how often it may be tried, what it reads, writes and must prove."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    display_name: Mapping[str, str] = Field(default_factory=dict)
    next_on_pass: str
    on_fail: Mapping[str, str]
    max_attempts: int = Field(1, ge=1)
    timeout_min: Minutes = Field(5)
    requires_human: bool = False
    executor: str | tuple[str, ...] | None = None
    """Who works on the step, before what the story and the settings say: a name, `auto`, or several names."""
    tests: Expectation | None = None
    retry_on_timeout: int = Field(0, ge=0)
    max_visits: int = Field(6, ge=1)
    session: Sessions | None = None
    """None: as the executor's definition says."""
    claude_reads: tuple[str, ...] = ()
    claude_writes: tuple[str, ...] = ()
    enforce_writes: Enforcement = "warn"
    post_check: Commands | None = None
    post_check_timeout_s: float = Field(60, gt=0)
    outputs: Mapping[Output, bool] = Field(default_factory=dict)
    check_timeout_min: float = Field(10, gt=0)
    step_instruction: Mapping[str, str] = Field(default_factory=dict)
    """Replaces the step's instruction template; by language."""
    dispatch_mode: Mapping[Complexity, DispatchMode] = Field(default_factory=dict)
    """How many executors work on the step, by the story's complexity; missing means `single`."""
    team_roles: Mapping[str, TeamRole] = Field(default_factory=dict)
    delivers: Delivery | None = None

    @property
    def only_papers(self) -> bool:
        """Whether it may write nothing but the papers to which each story adds lines."""
        return bool(self.claude_writes) and {*self.claude_writes} <= PAPERS

    @property
    def checks(self) -> Commands | None:
        """What is run after a claimed `pass`: `post_check`, and before it what checks the `outputs`."""
        if self.requires_human or not (own := outputs_command(self)):
            return self.post_check
        return {OUTPUTS: own, **{name or "command": text for name, text in commands_of(self.post_check)}}

    def enforcement(self, *, shared: bool) -> Enforcement:
        """Return what follows from a file outside of `claude_writes`; `shared`: others can write there, too.

        What is written beside papers in a clone would land after the last look at the story's work.
        """
        return "revert" if self.only_papers and not shared else self.enforce_writes

    def strays(self, names: Sequence[str], story: str | None) -> tuple[str, ...]:
        """Return the paths that it may not write; of an inner repository, any of its files counts."""
        probes = {f"{name}-" if name.endswith("/") else name: name for name in names}
        patterns = [expand(pattern, story) for pattern in self.claude_writes]
        return tuple(probes[probe] for probe in outside(probes, patterns))

    def target(self, reason: Reason | None) -> str:
        """Return the step a failure for `reason` leads to."""
        return self.on_fail.get(reason or "default", self.on_fail["default"])

    def mode(self, complexity: Complexity, parallel: int = 0) -> Literal["single", "team"]:
        """Return how a story of this size is worked on; `parallel` is how many `[P]`s its scenarios have."""
        mode = self.dispatch_mode.get(complexity, "single")
        if mode == "auto":
            return "team" if parallel >= MIN_PARALLEL else "single"
        return mode


class Pipeline(BaseModel):
    """Where a kind of task begins. `bootstrap` runs first in a project that had no story yet."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    first: str
    bootstrap: str | None = None


class RuleBook(BaseModel):
    """Every step and pipeline of one project, validated: targets exist, `done` is in reach."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: Mapping[str, Rule]
    pipelines: Mapping[str, Pipeline]
    gates: Gates = "before"
    passed_over: Mapping[str, str] = Field(default_factory=dict)
    """The human steps that `gates` takes off the way of a story, by the step that led to each."""
    identical_ends: int = Field(0, ge=0)
    """Equal ends of a step in a row after which a person is asked; 0: never."""

    def path(self, task_type: str) -> tuple[str, ...]:
        """Return the steps of a pipeline in passing order, bootstrap included, without `done`."""
        pipeline = self.pipelines.get(task_type) or self.pipelines["story"]
        steps: list[str] = []
        step = pipeline.bootstrap or pipeline.first
        while step != DONE and step not in steps:
            steps.append(step)
            step = self.steps[step].next_on_pass
        return tuple(steps)

    def is_behind(self, step: str, at: str, task_type: str) -> bool:
        """Return whether a task that is at a step has another one behind it; also one of an older table."""
        path = self.path(task_type)
        return at not in path or step not in path[path.index(at) :]

    def path_from(self, task_type: str, step: str) -> tuple[str, ...]:
        """Return the steps of a pipeline for a task at `step`: no bootstrap behind it."""
        path = self.path(task_type)
        pipeline = self.pipelines.get(task_type) or self.pipelines["story"]
        return path[1:] if pipeline.bootstrap and step != pipeline.bootstrap else path


class Gate(Struct, frozen=True, kw_only=True):
    """A human step at which a story stops."""

    step: str
    before_code: bool
    """Whether a story comes to it before its first step with tests."""


def next_gate(rules: RuleBook, task_type: str = "story", step: str | None = None) -> Gate | None:
    """Return the first human step that a story comes to while its steps pass; None: it comes to none.

    `step` is where it is, that step included; None: at its first.
    """
    pipeline = rules.pipelines.get(task_type) or rules.pipelines["story"]
    name = step or pipeline.first
    behind = rules.path_from(task_type, name)
    passed = list(behind[: behind.index(name)]) if name in behind else []
    while name != DONE:
        if rules.steps[name].requires_human:
            coded = [one for one in rules.path_from(task_type, name) if rules.steps[one].tests is not None]
            return Gate(step=name, before_code=bool(coded) and not {*coded} & {*passed})
        passed.append(name)
        name = rules.steps[name].next_on_pass
    return None


def outside(paths: Iterable[str], patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the paths that a step may not write. `patterns` are its `claude_writes`, as in a .gitignore.

    Both are relative to the project's root; of several patterns that match, the last one counts.
    """
    from pathspec import GitIgnoreSpec  # noqa: PLC0415  (only a measurement and a gate need it)

    may_write = GitIgnoreSpec.from_lines((*patterns, *WRITTEN_BY_ALL)).match_file
    return tuple(path for path in paths if not may_write(path))


def outputs_command(rule: Rule) -> str | None:
    """Return the command that checks the outputs of a step; None where its rule asks for nothing of them.

    Scenarios are looked for in the Markdown and Gherkin files that it writes, and their tests are asked for
    where it reads them.
    """
    writes = [path for path in rule.claude_writes if not path.startswith("!")]
    texts = [path for path in writes if path.endswith((".md", ".feature"))]
    asked: Mapping[Output, Sequence[str]] = {
        "exist": [path for path in writes if not set(path) & set("*?[")],
        "parse": rule.claude_writes if writes else (),
        "levels": texts,
        "tested": [path for path in rule.claude_reads if path.endswith((".md", ".feature"))],
        "clear": [*texts, *rule.claude_reads],
    }
    words = [
        word
        for name, paths in asked.items()
        if rule.outputs.get(name) and paths
        for word in (f"--{name}={path}" for path in paths)
    ]
    return shlex.join((OUTPUTS_PROGRAM, *words)) if words else None


def commands_of(commands: Commands | None) -> tuple[tuple[str | None, str], ...]:
    """Return the name of each command, and the command; the only one of a plain text has no name."""
    return ((None, commands),) if isinstance(commands, str) else tuple((commands or {}).items())


def dotted(key: str, name: str | None) -> str:
    """Return the key of one of several commands, as people write it: `post_check.lint`."""
    return key if name is None else f"{key}.{name}"


def localized(texts: Mapping[str, str], language: str) -> str | None:
    """Return the text in `language`, else the English one, else any; None when there is none."""
    for candidate in (language, "en", *texts):
        if candidate in texts:
            return texts[candidate]
    return None
