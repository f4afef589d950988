"""What cannot be seen from one value of a step table: whether its parts make pipelines that end.

Each check names the file that set the offending value. Where several values together are wrong (a
circle of passes) that is the value set by the topmost layer, since the table below it was sound.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from handoffd.errors import Problem
from handoffd.protocol.rule_merge import Merged, Setting
from handoffd.protocol.rules import DONE

REQUIRED_PIPELINES = ("story", "custom")


def check_merged(merged: Merged, instructed: Collection[str]) -> Iterator[Problem]:
    """Return the problems of the table as a whole.

    `instructed` names the steps beyond those of the first layer that have an instruction template.
    """
    for step in merged.members("steps"):
        yield from _missing(merged, step)
        yield from _unknown_targets(merged, step)
        yield from _without_instruction(merged, step, instructed)
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
