"""The parts of the documentation that are made from the code.

A document holds `<!-- generated: NAME -->` and `<!-- end generated -->`, each on a line of its own;
the text between them is the result of `BLOCKS[NAME]`. `generate.py` fills it in, and a test fails
when one is out of date, so that a table, a diagram or an example in the docs is never an old one.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any, get_args

from tests.support.api_documents import endpoints, problems
from tests.support.chat_tables import intents
from tests.support.compatibility import differences
from tests.support.flow_screens import flow_screen
from tests.support.markdown import plain, table
from tests.support.pipeline_tables import parts, programs, task, whole_file
from tests.support.plays import examples
from tests.support.settings_tables import daemon_settings, project_settings
from tests.support.shipped_pipelines import blocks
from tests.support.systemd_cases import cases

from handoffd.api.http.endpoint import schemas_of
from handoffd.api.verbs import VERBS, VerbSpec
from handoffd.cli.main import GROUPS
from handoffd.engine.decide import ANY, TRANSITIONS, diagram
from handoffd.engine.decision import Effect
from handoffd.engine.events import Fact, Verb
from handoffd.engine.run import POLICIES, End, OwnEnd, Then
from handoffd.engine.track import kind_of
from handoffd.engine.views import ProjectView, TrackView
from handoffd.execute.executor import Capabilities, capabilities
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.inspection.own_files import shipped_layers
from handoffd.protocol.handoff import FrontMatter
from handoffd.protocol.rule_merge import Layer
from handoffd.protocol.rulebook import build_rulebook, sensitive_view
from handoffd.protocol.rules import DONE, OF_FLOWS, Rule, RuleBook
from handoffd.protocol.state import NEAR_STATUS, STEP_ALIASES, Reason, State, Status
from handoffd.protocol.state import plain as json_of
from handoffd.settings.paths import shared

DOCS = Path(__file__).resolve().parents[2] / "docs"

_BLOCK = re.compile(
    r"^(<!-- generated: (?P<name>[a-z-]+) -->\n).*?^(<!-- end generated -->)$", re.MULTILINE | re.DOTALL
)
_WRITERS: Mapping[str, str] = {
    **dict.fromkeys(("project", "story", "task_type", "agent_teams", "blocked_by"), "a person's verb"),
    **dict.fromkeys(
        ("step", "attempt", "dispatched_at", "human_note", "last_error", "reopened_from"), "engine"
    ),
    **dict.fromkeys(("max_attempts", "timeout_min"), "the step's rule"),
    **dict.fromkeys(("status", "reason", "completed_at", "files_changed"), "verdict"),
    **dict.fromkeys(("tests", "failing_tests", "lint_pass"), "checks"),
}


def documents() -> tuple[Path, ...]:
    """Return every document that has a generated part."""
    return tuple(path for path in sorted(DOCS.rglob("*.md")) if _BLOCK.search(path.read_text("utf-8")))


def filled(text: str) -> str:
    """Return `text` with all its generated parts made anew. Raises KeyError for an unknown name."""

    def block(found: re.Match[str]) -> str:
        return f"{found[1]}\n{BLOCKS[found['name']]().strip()}\n\n{found[3]}"

    return _BLOCK.sub(block, text)


# --- pieces -------------------------------------------------------------------------------------------
def _code(values: Iterable[object]) -> str:
    return ", ".join(f"`{value}`" for value in values) or "–"


def _first_line(thing: type) -> str:
    return (inspect.getdoc(thing) or "").partition("\n\n")[0].replace("\n", " ")


# --- STATE.json and hand-offs -----------------------------------------------------------------------
def _state_fields() -> str:
    schema = State.model_json_schema()
    initial = State(project="…")
    rows = [
        (
            f"`{name}`",
            _type(schema["properties"][name], schema.get("$defs", {})),
            f"`{json.dumps(plain(getattr(initial, name)), ensure_ascii=False)}`",
            _WRITERS[name],
            field.description or "",
        )
        for name, field in State.model_fields.items()
    ]
    return table(("Field", "Values", "When left out", "Set by", "Meaning"), rows)


def _front_matter() -> str:
    schema = FrontMatter.model_json_schema()
    rows = [
        (f"`{name}`", _type(schema["properties"][name], schema.get("$defs", {})), field.description or "")
        for name, field in FrontMatter.model_fields.items()
    ]
    return table(("Field", "Values", "Meaning"), rows)


def _type(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    """Return the type that a JSON schema describes, as people say it."""
    if "anyOf" in schema:
        return " or ".join(_type(part, whole) for part in schema["anyOf"])
    if "$ref" in schema:
        return _type(whole[schema["$ref"].rpartition("/")[2]], whole)
    if "enum" in schema:
        return " ".join(f"`{value}`" for value in schema["enum"])
    if schema["type"] == "array":
        return "list of text"
    if schema["type"] == "object" and "properties" not in schema:
        return f"{_type(schema['additionalProperties'], whole)} by name"
    if schema["type"] == "object":
        return f"`{{{', '.join(schema['properties'])}}}`"
    names = {"string": "text", "integer": "whole number", "number": "number", "boolean": "bool"}
    name = "time" if schema.get("format") == "date-time" else names.get(schema["type"], schema["type"])
    low = schema.get("minimum")
    return name if low is None else f"{name} ≥ {low}"


def _near(words: Mapping[str, object]) -> str:
    targets: dict[str, list[str]] = {}
    for word, target in words.items():
        targets.setdefault(str(target), []).append(word)
    return table(("Written", "Read as"), [(_code(found), f"`{target}`") for target, found in targets.items()])


# --- the step table -----------------------------------------------------------------------------------
def _shipped() -> RuleBook:
    return build_rulebook(shipped_layers(None))


def _step_table() -> str:
    head = ("Step", "Pass", "Failure", "Attempts", "Minutes", "Done by", "Tests", "Reads", "May write")
    return table(head, [_step_row(name, rule) for name, rule in _shipped().steps.items()])


def _step_row(name: str, rule: Rule) -> tuple[str, ...]:
    routes = [f"{reason} → {target}" for reason, target in rule.on_fail.items() if reason != "default"]
    return (
        f"`{name}`",
        rule.next_on_pass,
        "; ".join([rule.on_fail["default"], *routes]),
        str(rule.max_attempts),
        f"{rule.timeout_min:g}" if rule.timeout_min else "no limit",
        "a person" if rule.requires_human else "an executor",
        rule.tests or "–",
        _code(rule.claude_reads),
        _code(rule.claude_writes),
    )


def _pipelines() -> str:
    rules = _shipped()
    rows = [
        (
            f"`{name}`",
            " → ".join([*(f"`{step}`" for step in rules.path(name)), DONE]),
            pipeline.bootstrap or "–",
        )
        for name, pipeline in rules.pipelines.items()
    ]
    return table(("Pipeline (`task_type`)", "Steps", "Only in a new project"), rows)


def _presets() -> str:
    def shown(value: object) -> object:
        return json.dumps(value) if isinstance(value, bool) else value

    before = sensitive_view(_shipped())
    rows = []
    for file in sorted(shared("config", "presets").glob("*.yaml")):
        changed = sensitive_view(build_rulebook(shipped_layers(file.stem)))
        news = [f"`{key}: {shown(value)}`" for key, value in changed.items() if before.get(key) != value]
        rows.append((f"`{file.stem}`", "<br>".join(news) or "nothing"))
    return table(("Preset", "What it changes"), rows)


def _rule_defaults() -> str:
    rule = build_rulebook((*shipped_layers(None), Layer("x", _BARE))).steps["bare"]
    rows = [(f"`{name}`", f"`{json.dumps(plain(getattr(rule, name)))}`") for name in Rule.model_fields]
    return table(("Key", "Without it"), [row for row in rows if row[0] not in _REQUIRED])


_BARE = "steps: {bare: {next_on_pass: done, next_on_fail: bare, step_instruction: {en: x}}}"
_REQUIRED = {f"`{name}`" for name in OF_FLOWS} | {"`next_on_pass`", "`on_fail`", "`step_instruction`"}


# --- executors ----------------------------------------------------------------------------------------
def _executors() -> str:
    head = ("Executor", "Prompt", "Output", "Session", "Tokens", "Cost", "Limits", "May", "Keeps")
    book = load_book(shipped_layer())
    return table(head, [_executor_row(capabilities(book.get(name))) for name in book.names])


def _executor_row(can: Capabilities) -> tuple[str, ...]:
    others = [name for name in can.permissions if name != can.permission]
    return (
        f"`{can.name}`",
        can.prompt,
        can.output,
        "can be continued" if can.resume else "fresh",
        can.tokens,
        "told" if can.cost else "reckoned" if can.tokens != "no" else "–",
        "told" if can.limits else "–",
        f"`{can.permission}`; {_code(others)}" if can.permission else "–",
        _code([*can.writes, *(path for path in can.own if os.path.dirname(path) not in can.own)]),
    )


# --- the engine ---------------------------------------------------------------------------------------
def _verbs(*, of_flows: bool = False) -> str:
    head = ("Verb", "Arguments", "Event", "Refused over TCP", "What it does")
    rows = [
        (f"`{spec.name}`", _arguments(spec), _event_of(spec), _GUARDS[spec.guard], spec.help)
        for spec in VERBS.values()
        if spec.of_flow == of_flows
    ]
    return table(head, rows)


_GUARDS = {
    "never": "–",
    "always": "always",
    "forced": "with `force`, `files` or `over`",
    "unknown": "with `force`, for a new project, or at level 1 without `manual`",
}


def _arguments(spec: VerbSpec) -> str:
    return ", ".join(f"`{p.name}`" if p.needed else f"[`{p.name}`]" for p in spec.parameters) or "–"


def _event_of(spec: VerbSpec) -> str:
    event = "initialised" if spec.name == "init" else spec.event  # which is but a part of what `init` does
    return f"`{event}`" if event is not None else "–"


def _kinds(union: Any) -> str:
    return table(
        ("Kind", "Meaning"),
        [(f"`{kind_of(member)}`", _first_line(member)) for member in get_args(union)],
    )


def _transitions() -> str:
    statuses = [None, *Status]
    kinds = list(dict.fromkeys(kind for facts in TRANSITIONS.values() for kind in facts))
    head = ("Event", *("none yet" if status is None else f"`{status}`" for status in statuses))
    return table(head, [(f"`{kind}`", *(_targets(status, kind) for status in statuses)) for kind in kinds])


def _targets(status: Status | None, kind: str) -> str:
    allowed = TRANSITIONS[status].get(kind)
    if allowed is None:
        return "–"
    return "any" if allowed == ANY else " ".join(target.value for target in Status if target in allowed)


def _ends() -> str:
    meanings = {**_attribute_docs(End), **_attribute_docs(OwnEnd)}
    rows = [
        (
            f"`{end}`",
            meanings[end.name],
            str(policy.free) if policy.free else "–",
            f"`{policy.then}`",
            "a fresh one" if policy.fresh else "continued",
            f"`{policy.remedy.format(executor='EXECUTOR')}`" if policy.remedy else "–",
        )
        for end, policy in POLICIES.items()
    ]
    consequences = [(f"`{then}`", _attribute_docs(Then)[then.name]) for then in Then]
    head = ("End", "Meaning", "Free repetitions", "Then", "Session", "Remedy")
    return f"{table(head, rows)}\n\n{table(('Then', 'Meaning'), consequences)}"


def _state_diagram() -> str:
    return f"```mermaid\n{diagram()}```\n"


def _results() -> str:
    parts = []
    for result in examples():
        text = json.dumps(json_of(result), indent=2, ensure_ascii=False)
        parts.append(f"`{result.type}`: {_first_line(type(result))}\n\n```json\n{text}\n```")
    return "\n\n".join(parts)


def _view_fields() -> str:
    _, schemas = schemas_of([ProjectView])
    outer, inner = schemas["ProjectView"], schemas["TrackView"]
    project, track = _attribute_docs(ProjectView), _attribute_docs(TrackView)
    rows = [
        (f"`{name}`", _type(part, schemas), project.get(name) or _VIEWS[name])
        for name, part in outer["properties"].items()
        if name != "tracks"
    ]
    rows += [
        (f"`tracks[].{name}`", _type(part, schemas), _meaning(name, track))
        for name, part in inner["properties"].items()
    ]
    return table(("Key", "Value", "Meaning"), rows)


def _meaning(name: str, docs: Mapping[str, str]) -> str:
    known = State.model_fields.get(name)
    return docs.get(name) or (known and known.description) or _VIEWS[name]


_VIEWS: Mapping[str, str] = {
    "name": "What the project calls itself.",
    "level": "0: no STATE.json; 1: people dispatch; 2: the daemon dispatches.",
    "condition": "Whether handoffd can work on it.",
    "detail": "What is wrong, where `condition` is not `ok`.",
    "paused_by": "Who paused it.",
    "warnings": "Problems of its own files, edits that wait for trust, files it cannot write or watch.",
    "track": "`main`.",
    "executor": "The executor of the attempt in flight.",
    "dispatch": "The id of the attempt in flight.",
    "pid": "The executor's process id; null until it runs.",
    "model": "The model it says it uses.",
    "session": "The agent's own session id; null until it has told it.",
    "last_output_at": "When it printed something last.",
    "elapsed_min": "How many minutes the attempt has run.",
    "backlog": "Stories that wait for this one.",
    "parked": "Stories that were set aside.",
    "unlanded": "Stories that are done and wait for a person to land them, while another one is in flight.",
}


def _attribute_docs(thing: type) -> dict[str, str]:
    """Return the docstrings of the attributes of a class."""
    (body,) = ast.parse(dedent(inspect.getsource(thing))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for before, after in zip(body.body, body.body[1:], strict=False):
        target: ast.expr | None = before.target if isinstance(before, ast.AnnAssign) else None
        if isinstance(before, ast.Assign):
            target = before.targets[0]
        if isinstance(target, ast.Name) and _is_text(after):
            found[target.id] = ast.literal_eval(after.value)  # type: ignore[attr-defined]
    return found


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _commands() -> str:
    return table(("To", "`handoffd …`"), ((group, _code(names)) for group, names in GROUPS.items()))


BLOCKS: Mapping[str, Callable[[], str]] = {
    "state-fields": _state_fields,
    "near-statuses": lambda: _near(NEAR_STATUS),
    "step-aliases": lambda: _near(STEP_ALIASES),
    "reasons": lambda: _code(Reason),
    "front-matter": _front_matter,
    "step-table": _step_table,
    "pipelines": _pipelines,
    "pipeline-file": whole_file,
    "pipeline-task": task,
    "kit": programs,
    **{name: partial(parts().__getitem__, name) for name in parts()},
    **blocks(),
    "presets": _presets,
    "differences": differences,
    "rule-defaults": _rule_defaults,
    "executors": _executors,
    "verbs": _verbs,
    "flow-show": flow_screen,
    "flow-verbs": partial(_verbs, of_flows=True),
    "commands": _commands,
    "endpoints": endpoints,
    "intents": intents,
    "problems": problems,
    "verb-events": lambda: _kinds(Verb),
    "fact-events": lambda: _kinds(Fact),
    "effects": lambda: _kinds(Effect),
    "transitions": _transitions,
    "ends": _ends,
    "state-diagram": _state_diagram,
    "results": _results,
    "status-keys": _view_fields,
    "settings": daemon_settings,
    "project-settings": project_settings,
    "systemd-cases": cases,
}
"""Every generated part by its name."""
