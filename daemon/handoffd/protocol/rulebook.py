"""From files to a validated step table, and what of an edited table needs a person's trust.

The texts come in as arguments, lowest layer first: the shipped table, a preset, the project's
`.ai/step-rules.yaml`. The last is written where agents work, so a change of what runs commands, opens
gates, routes, limits or confines is held back until a person has trusted it; see `merge_trusted`.

Each check names the file that set the offending value. Where several values together are wrong (a circle
of passes) that is the value set by the topmost layer, since the table below it was sound.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from handoffd.errors import InvalidFile, Problem
from handoffd.protocol.rule_merge import Key, Layer, Merged, Setting, merge_layers
from handoffd.protocol.rules import (
    ACCEPTANCE,
    DONE,
    OF_FLOWS,
    OPENED_BY,
    REVIEW,
    Gates,
    Pipeline,
    Rule,
    RuleBook,
)

INSENSITIVE = frozenset({"display_name", "claude_reads", "session", "step_instruction"})
"""Keys of a step that take effect without trust; every other key, also a future one, is held."""


MAX_PROBLEMS = 50
"""At most this many are listed; the rest is counted."""

REQUIRED_PIPELINES = ("story", "custom")

_HINT = "correct the file; until then the last valid table applies"

_NOTHING = object()


# --- from layers to a table ---------------------------------------------------------------------------
def build_rulebook(
    layers: Sequence[Layer],
    *,
    instructed: Collection[str] = (),
    gates: Gates = "before",
    identical_ends: int = 0,
) -> RuleBook:
    """Return the table that `layers`, lowest first, make together, with `gates` laid over it.

    Mappings are merged key by key, lists replaced whole; null takes back one check or all, an expectation, a
    bootstrap or a route by reason. Steps of the first layer have shipped instructions; a step added above it
    needs a `step_instruction`, a person, or its name in `instructed` (it has a template of its own).
    Raises InvalidFile with every problem of all layers.
    """
    merged, composed = _valid(layers, instructed, gates)
    return RuleBook.model_validate(
        {
            **_tree(merged),
            "gates": gates,
            "passed_over": composed.passed_over,
            "identical_ends": identical_ends,
        }
    )


def explain(
    layers: Sequence[Layer], *, instructed: Collection[str] = (), gates: Gates = "before"
) -> tuple[Setting, ...]:
    """Return every value of the table with the file and line that set it, in the table's order.

    Built-in values come with `file` None. Raises InvalidFile as `build_rulebook` does.
    """
    merged, _ = _valid(layers, instructed, gates)
    settings: list[Setting] = []
    for kind, model in (("steps", Rule), ("pipelines", Pipeline)):
        for name in merged.members(kind):
            for key in (key for key in model.model_fields if key not in OF_FLOWS):
                settings += _explained(merged, (kind, name, key))
    return tuple(settings)


def _valid(layers: Sequence[Layer], instructed: Collection[str], gates: Gates) -> tuple[Merged, Composed]:
    merged = merge_layers(layers)
    composed = Composed()
    problems = list(merged.problems)
    if not merged.unreadable:
        problems += check_merged(merged, instructed)
    if not problems and gates != "before":
        composed = compose(merged, gates)
        problems += composed.problems or check_merged(merged, instructed)
    if problems:
        ordered = _in_order(problems, layers)
        if len(ordered) > MAX_PROBLEMS:
            more = Problem(file=ordered[-1].file, message=f"… and {len(ordered) - MAX_PROBLEMS} more")
            ordered = [*ordered[:MAX_PROBLEMS], more]
        raise InvalidFile(tuple(ordered), hint=_HINT)
    return merged, composed


def _in_order(problems: list[Problem], layers: Sequence[Layer]) -> list[Problem]:
    files = [layer.file for layer in layers]

    def place(problem: Problem) -> tuple[int, int]:
        return files.index(problem.file) if problem.file in files else -1, problem.line or 0

    return sorted(problems, key=place)


def _tree(merged: Merged) -> dict[str, Any]:
    tree: dict[str, dict[str, dict[str, Any]]] = {"steps": {}, "pipelines": {}}
    for kind, members in tree.items():
        for name in merged.members(kind):
            members[name] = {}
    for key in merged.named:
        if len(key) == 4 and key[2] == "team_roles":  # one may be without a value
            tree["steps"][key[1]].setdefault(key[2], {}).setdefault(key[3], {})
    for setting in merged.settings.values():
        _place(tree, setting)
    return tree


def _place(tree: dict[str, Any], setting: Setting) -> None:
    if setting.value is None and len(setting.key) == 4:  # a route or a check that was taken out
        return
    for part in setting.key[:-1]:
        tree = tree.setdefault(part, {})
    tree[setting.key[-1]] = setting.value


def _explained(merged: Merged, key: Key) -> Iterator[Setting]:
    found = list(merged.below(*key))
    if found:
        yield from found
        return
    model = Rule if key[0] == "steps" else Pipeline
    yield Setting(key=key, value=model.model_fields[key[2]].get_default(call_default_factory=True))


def _flat(prefix: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{prefix}.{key}", item)
    else:
        yield prefix, value


# --- what cannot be seen from one value: whether the parts make pipelines that end --------------------
def check_merged(merged: Merged, instructed: Collection[str]) -> Iterator[Problem]:
    """Return the problems of the table as a whole.

    `instructed` names the steps that have an instruction template and are not in the first layer.
    """
    for step in merged.members("steps"):
        yield from _missing(merged, step)
        yield from _unknown_targets(merged, step)
        yield from _without_instruction(merged, step, instructed)
        yield from _outputs_of_people(merged, step)
    yield from _pass_circles(merged)
    yield from _pipelines(merged)


def _missing(merged: Merged, step: str) -> Iterator[Problem]:
    place = merged.named["steps", step]
    for key in ((*place.key, "next_on_pass"), (*place.key, "on_fail", "default")):
        if key not in merged.settings and not merged.is_spoiled(key):
            yield place.problem(f"the step has no {'.'.join(key[2:])}")


def _unknown_targets(merged: Merged, step: str) -> Iterator[Problem]:
    steps = merged.members("steps")
    passing = merged.settings.get(("steps", step, "next_on_pass"))
    if passing is not None and passing.value != DONE and not _exists(merged, passing):
        yield passing.problem(f"there is no step {passing.value!r}", (*steps, DONE))
    for setting in merged.below("steps", step, "on_fail"):
        if setting.value == DONE:
            yield setting.problem("a failed step cannot lead to done", steps)
        elif setting.value is not None and not _exists(merged, setting):
            yield setting.problem(f"there is no step {setting.value!r}", steps)


def _exists(merged: Merged, target: Setting) -> bool:
    """Tell whether a target exists, if only under a name that has been reported already."""
    return ("steps", target.value) in merged.named


def _without_instruction(merged: Merged, step: str, instructed: Collection[str]) -> Iterator[Problem]:
    place = merged.named["steps", step]
    told = place.layer == 0 or step in instructed or any(merged.below("steps", step, "step_instruction"))
    human = merged.value("steps", step, "requires_human") is True
    if not (told or human or merged.is_spoiled((*place.key, "step_instruction"))):
        yield place.problem("a step that no person does needs a step_instruction")


def _outputs_of_people(merged: Merged, step: str) -> Iterator[Problem]:
    if merged.value("steps", step, "requires_human") is True:
        for setting in merged.below("steps", step, "outputs"):
            if setting.value and setting.key[-1] != "clear":
                yield setting.problem("no agent writes anything at a human step", ("clear",))


def _pass_circles(merged: Merged) -> Iterator[Problem]:
    settled: set[str] = set()
    for start in merged.members("steps"):
        walk: list[str] = []
        step: object = start
        while isinstance(step, str) and step not in settled and step not in walk:
            walk.append(step)
            step = merged.value("steps", step, "next_on_pass")
        if isinstance(step, str) and step in walk:
            circle = walk[walk.index(step) :]
            links = [merged.settings["steps", name, "next_on_pass"] for name in circle]
            culprit = max(links, key=lambda link: link.layer)
            yield culprit.problem(f"{' → '.join((*circle, circle[0]))} never reaches done")
        settled.update(walk)


def _pipelines(merged: Merged) -> Iterator[Problem]:
    names = merged.members("pipelines")
    for name in REQUIRED_PIPELINES:
        if name not in names and not merged.is_spoiled(("pipelines", name)):
            yield Problem(file=_bottom(merged), key=f"pipelines.{name}", message="this pipeline must exist")
    for name in names:
        first = merged.settings.get(("pipelines", name, "first"))
        bootstrap = merged.settings.get(("pipelines", name, "bootstrap"))
        if first is None:
            if not merged.is_spoiled(("pipelines", name, "first")):
                yield merged.named["pipelines", name].problem("the pipeline has no first step")
            continue
        yield from _entries(merged, first, bootstrap)


def _entries(merged: Merged, first: Setting, bootstrap: Setting | None) -> Iterator[Problem]:
    steps = merged.members("steps")
    entries = [first] if bootstrap is None or bootstrap.value is None else [first, bootstrap]
    unknown = [entry for entry in entries if not _exists(merged, entry)]
    for entry in unknown:
        yield entry.problem(f"there is no step {entry.value!r}", steps)
    if not unknown and len(entries) == 2 and not _leads_to(merged, entries[1].value, first.value):
        topmost = max(entries, key=lambda entry: entry.layer)
        yield topmost.problem(f"passing {entries[1].value} must lead to the first step, {first.value}")


def _leads_to(merged: Merged, step: object, goal: object) -> bool:
    seen: set[object] = set()
    while isinstance(step, str) and step != goal and step not in seen:
        seen.add(step)
        step = merged.value("steps", step, "next_on_pass")
    return step == goal


def _bottom(merged: Merged) -> str:
    layers = sorted(merged.named.values(), key=lambda place: place.layer)
    return layers[0].file or "(built in)" if layers else "(built in)"


# --- when a person decides about a story: `gates`, laid over the table --------------------------------
# What the project's own file sets stays, unless it contradicts `gates`: that is a problem with its place, not
# a guess. `review` and `acceptance` stay in the table in any case: a story that waits at one of them when
# `gates` is changed is still decided there.
_SETTINGS = ".ai/handoffd.yaml"
_VERIFY = "verify"
_MEMORY = "update-memory"


class Composed(Struct, frozen=True, kw_only=True):
    """What `gates` has made of a table: the steps it took off the way, and what contradicts it."""

    passed_over: Mapping[str, str] = field(default_factory=dict)
    """By the step that led to each."""
    problems: tuple[Problem, ...] = ()


def compose(merged: Merged, gates: Gates) -> Composed:
    """Lay `gates` over a valid table, which is changed. Its result must be checked again."""
    passed = _past_the_review(merged) if REVIEW not in OPENED_BY[gates] else {}
    if ACCEPTANCE in OPENED_BY[gates]:
        _behind_the_code(merged, reviewed=REVIEW in OPENED_BY[gates])
    return Composed(passed_over=passed, problems=tuple(_against(merged, gates)))


def _past_the_review(merged: Merged) -> dict[str, str]:
    """Lead every step that led to the review past it, and return these."""
    if merged.value("steps", REVIEW, "requires_human") is not True:
        return {}  # an executor does it here, as the project's own table says
    following, passed = merged.value("steps", REVIEW, "next_on_pass"), {}
    for step in merged.members("steps"):
        if merged.value("steps", step, "next_on_pass") == REVIEW:
            passed[step] = REVIEW
            _put(merged, following, "steps", step, "next_on_pass")
        for route in tuple(merged.below("steps", step, "on_fail")):
            if route.value == REVIEW and route.key[-1] != "default" and _is_shipped(route):
                _put(merged, None, *route.key)  # a person is asked at the step itself
    for name in merged.members("pipelines"):
        if merged.value("pipelines", name, "first") == REVIEW:
            _put(merged, following, "pipelines", name, "first")
    return passed


def _behind_the_code(merged: Merged, *, reviewed: bool) -> None:
    """Bring a story to the acceptance: where the project's own table does that, else behind `verify`."""
    unclear = merged.settings["steps", ACCEPTANCE, "on_fail", "needs_clarification"]
    if reviewed and _is_shipped(unclear):
        _put(merged, REVIEW, *unclear.key)
    way = _way(merged)
    if ACCEPTANCE in way:
        return
    behind = next(step for step in way if step == _VERIFY or _leads(merged, step, _MEMORY, DONE))
    route = merged.settings["steps", ACCEPTANCE, "next_on_pass"]
    if _is_shipped(route):
        _put(merged, merged.value("steps", behind, "next_on_pass"), *route.key)
    _put(merged, ACCEPTANCE, "steps", behind, "next_on_pass")


def _leads(merged: Merged, step: str, *targets: str) -> bool:
    return merged.value("steps", step, "next_on_pass") in targets


def _way(merged: Merged) -> list[str]:
    """Return the steps of a story in passing order, without bootstrap."""
    way: list[str] = []
    step = merged.value("pipelines", "story", "first")
    while isinstance(step, str) and step != DONE and step not in way:
        way.append(step)
        step = merged.value("steps", step, "next_on_pass")
    return way


def _is_shipped(setting: Setting) -> bool:
    """Return whether a value is that of the lowest layer, which ships."""
    return setting.layer == 0


def _put(merged: Merged, value: object, *key: str) -> None:
    before = merged.settings[key]
    merged.put(replace(before, value=value, file=_SETTINGS, line=None, written=("gates",)))


def _against(merged: Merged, gates: Gates) -> Iterator[Problem]:
    way = _way(merged)
    for step in (REVIEW, ACCEPTANCE):
        human = merged.settings["steps", step, "requires_human"]
        if step not in OPENED_BY[gates]:
            own = _says_otherwise(merged, way, human, step)
            if own is not None:
                allowed = tuple(f"gates: {one}" for one, steps in OPENED_BY.items() if step in steps)
                yield own.problem(f"with `gates: {gates}` no person decides at {step}", allowed)
        elif human.value is not True:
            yield human.problem(f"with `gates: {gates}` a person decides at {step}", ("true",))
        elif step not in way:
            yield _detour(merged, way, f"with `gates: {gates}` a story must come to {step}", step)


def _says_otherwise(merged: Merged, way: list[str], human: Setting, step: str) -> Setting | None:
    """Return what has a person decide at a step that `gates` does not want; None where nothing has."""
    if human.value is not True:
        return None
    if not _is_shipped(human):
        return human
    leading = (one for one in way if _leads(merged, one, step))
    return next((merged.settings["steps", one, "next_on_pass"] for one in leading), None)


def _detour(merged: Merged, way: list[str], message: str, step: str) -> Problem:
    """Return the problem of a way that leaves out a step, at the last link that leads past it."""
    coded = next((at for at, one in enumerate(way) if merged.value("steps", one, "tests")), len(way))
    links = [("pipelines", "story", "first"), *(("steps", one, "next_on_pass") for one in way[:coded])]
    own = [merged.settings[key] for key in links if not _is_shipped(merged.settings[key])]
    return own[-1].problem(message, (step,)) if own else Problem(file=_SETTINGS, key="gates", message=message)


# --- what of an edited table needs a person's trust ---------------------------------------------------
def sensitive_view(rulebook: RuleBook) -> Mapping[str, object]:
    """Return what needs trust, by dotted key: commands, gates, targets, limits, write scopes.

    Two tables with equal views differ in nothing that needs trust. Values are plain data.
    """
    view: dict[str, object] = {}
    for name, rule in rulebook.steps.items():
        values = rule.model_dump(mode="json", exclude=set(INSENSITIVE))
        view.update(_flat(f"steps.{name}", values))
    for name, pipeline in rulebook.pipelines.items():
        view.update(_flat(f"pipelines.{name}", pipeline.model_dump(mode="json")))
    return MappingProxyType(view)


def merge_trusted(new: RuleBook, trusted: RuleBook) -> tuple[RuleBook, tuple[str, ...]]:
    """Return `new` with everything that needs trust as in `trusted`, and the dotted keys held back.

    Added steps and pipelines are left out, removed ones stay. The result is valid: every route of it
    is one of `trusted`.
    """
    steps = {name: _held_rule(new.steps.get(name), rule) for name, rule in trusted.steps.items()}
    return trusted.model_copy(update={"steps": steps}), tuple(_held_keys(new, trusted))


def _held_rule(new: Rule | None, trusted: Rule) -> Rule:
    if new is None:
        return trusted
    free = {key: getattr(new, key) for key in INSENSITIVE}
    if new.requires_human and not trusted.requires_human and not new.step_instruction:
        free["step_instruction"] = trusted.step_instruction  # an executor still does this step
    return trusted.model_copy(update=free)


def _held_keys(new: RuleBook, trusted: RuleBook) -> Iterator[str]:
    theirs, ours = sensitive_view(new), sensitive_view(trusted)
    known = {f"steps.{name}" for name in trusted.steps} | {f"pipelines.{name}" for name in trusted.pipelines}
    wanted = {f"steps.{name}" for name in new.steps} | {f"pipelines.{name}" for name in new.pipelines}
    yield from sorted(known ^ wanted)
    for key in sorted(theirs.keys() | ours.keys()):
        member = ".".join(key.split(".")[:2])
        if member in known & wanted and theirs.get(key, _NOTHING) != ours.get(key, _NOTHING):
            yield key
