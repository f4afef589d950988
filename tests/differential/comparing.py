"""Two outcomes of one case compared, and differences held against the list of the deliberate ones.

A rule of `deliberate.yaml` names verbs, cases, the path in the outcome, and what each program has there:
it explains that difference and no other. A difference without a rule is a fault, and so is a rule
without a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.differential.outcomes import flat

from handoffd.protocol.yamltext import load

Json = Any

DELIBERATE = Path(__file__).with_name("deliberate.yaml")
ABSENT = "<absent>"
BEFORE = "<before>"
"""In a rule: the value that was there before the verb; of a STATE.json in short, all of it is as it was."""
_LINE = " / "

_CONSEQUENCES = frozenset({"exit", "state"})


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that differs, at a path of the outcome of a case; `before` is what stood there before it."""

    case: str
    verb: str
    at: str
    theirs: Json
    ours: Json
    before: Json = ABSENT


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a rule allows: at paths like `at`, in `cases`, `theirs` against `ours`."""

    at: str
    cases: tuple[str, ...]
    theirs: tuple[Json, ...]
    ours: tuple[Json, ...]

    def fits(self, difference: Difference) -> bool:
        """Return whether this is the difference that is meant."""
        return (
            fnmatchcase(difference.at, self.at)
            and any(fnmatchcase(difference.case, case) for case in self.cases)
            and any(_same(one, difference.theirs, difference.before) for one in self.theirs)
            and any(_same(one, difference.ours, difference.before) for one in self.ours)
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """A deliberate difference: what it is and why, for people; where it shows, for the comparison."""

    id: str
    what: str
    why: str
    verbs: tuple[str, ...]
    differs: tuple[Pattern, ...]

    def explains(self, difference: Difference) -> bool:
        """Return whether the rule speaks of this difference."""
        return difference.verb in self.verbs and any(pattern.fits(difference) for pattern in self.differs)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the differences come to: those that no rule explains, and how many cases each rule does.

    `idle` names what explains nothing any more: a rule, or a rule and its line.
    """

    unexplained: tuple[Difference, ...]
    explained: Mapping[str, int]
    idle: tuple[str, ...]


def differences(case: str, verb: str, theirs: Json, ours: Json, state: Json = None) -> list[Difference]:
    """Return every value in which two outcomes differ. `state` is STATE.json before the verb.

    Where the programs went different ways (stdout is of two kinds), only those are compared: what kind it
    is, and where the story stands. All the rest follows from that.
    """
    kinds = gist(theirs["stdout"]), gist(ours["stdout"])
    other_way = kinds[0].partition(_LINE)[0] != kinds[1].partition(_LINE)[0]
    if other_way:
        theirs, ours = ({**one, "stdout": kind} for one, kind in zip((theirs, ours), kinds, strict=True))
    if other_way or isinstance(theirs["state"], Mapping) != isinstance(ours["state"], Mapping):
        state = standing(state) if ours["state"] == state else ABSENT
        theirs, ours = ({**one, "state": standing(one["state"])} for one in (theirs, ours))
    one, other, was = flat(theirs), flat(ours), flat({"state": state})
    paths = dict.fromkeys([*one, *other])
    found = ((at, one.get(at, ABSENT), other.get(at, ABSENT)) for at in paths)
    return [
        Difference(case, verb, at, a, b, was.get(at.removeprefix("stdout.json."), ABSENT))
        for at, a, b in found
        if not _identical(a, b)
    ]


def standing(state: Json) -> Json:
    """Return in short where a STATE.json says that a story stands."""
    if not isinstance(state, Mapping):
        return state
    said = [str(state.get("step")), str(state.get("status")), f"attempt {state.get('attempt')}"]
    return " ".join(said)


def gist(stdout: Json) -> str:
    """Return in short what stdout is: a prompt and for what, an error and its code, JSON, or lines."""
    document = stdout.get("json")
    if "prompt" in stdout:
        return f"prompt {stdout.get('task-meta', {}).get('task_name', '')}".strip()
    if isinstance(document, Mapping) and "error" in {document.get("type"), document.get("action")}:
        return f"error {document.get('code')}"
    if isinstance(document, Mapping) and (kind := document.get("type") or document.get("action")):
        return str(kind)
    if "json" in stdout:
        return "json"
    return _LINE.join(line.partition(" ")[0] for line in stdout["lines"]) or "nothing"


def judged(found: Iterable[Difference], rules: Sequence[Rule]) -> Judgement:
    """Return what no rule explains, and what each rule does."""
    by_case: dict[str, list[Difference]] = {}
    every = tuple(found)
    for difference in every:
        by_case.setdefault(difference.case, []).append(difference)
    unexplained, counts = [], {rule.id: 0 for rule in rules}
    for differing in by_case.values():
        explained = {rule.id: _explained(rule, differing) for rule in rules}
        for name, known in explained.items():
            counts[name] += bool(known)
        known_all = {one for known in explained.values() for one in known}
        unexplained += [one for one in differing if one.at not in known_all]
    return Judgement(tuple(unexplained), counts, tuple(one for rule in rules for one in _idle(rule, every)))


def _idle(rule: Rule, found: Sequence[Difference]) -> list[str]:
    mine = [one for one in found if one.verb in rule.verbs]
    idle = [one for one in rule.differs if not any(one.fits(difference) for difference in mine)]
    lines = [f"{rule.id}: {one.at}, theirs {one.theirs}, ours {one.ours}" for one in idle]
    return [rule.id] if len(idle) == len(rule.differs) else lines


def _explained(rule: Rule, differing: Sequence[Difference]) -> set[str]:
    """Return the paths at which a rule explains how one case differs.

    Exit code, standing and new files follow from what the program did: a rule that speaks of stdout
    explains them only together with it.
    """
    found = {one.at for one in differing if rule.explains(one)}
    speaks = any(pattern.at.startswith("stdout") for pattern in rule.differs)
    if speaks and not any(at.startswith("stdout") for at in found):
        return {at for at in found if at not in _CONSEQUENCES and not at.startswith("made.")}
    return found


def deliberate(file: Path = DELIBERATE) -> tuple[Rule, ...]:
    """Return the deliberate differences."""
    loaded: Any = load(file.read_text(encoding="utf-8"), str(file)).data
    return tuple(_rule(entry) for entry in loaded["differences"])


def _rule(entry: Mapping[str, Json]) -> Rule:
    cases = entry.get("cases", ["*"])
    return Rule(
        id=entry["id"],
        what=" ".join(entry["what"].split()),
        why=" ".join(entry["why"].split()),
        verbs=tuple(entry["verbs"]),
        differs=tuple(
            Pattern(
                one["at"],
                tuple(one.get("in", cases)),
                _alternatives(one["theirs"]),
                _alternatives(one["ours"]),
            )
            for one in entry["differs"]
        ),
    )


def _alternatives(value: Json) -> tuple[Json, ...]:
    """Return the values that are allowed: one, or those of `any_of`."""
    return tuple(value["any_of"]) if isinstance(value, Mapping) else (value,)


def _same(pattern: Json, value: Json, before: Json) -> bool:
    """Return whether a value is the one of the rule; in texts, `*` stands for anything."""
    if pattern == BEFORE:
        return _identical(before, value)
    if isinstance(pattern, str) and isinstance(value, str) and "*" in pattern:
        return fnmatchcase(value, pattern)
    return _identical(pattern, value)


def _identical(one: Json, other: Json) -> bool:
    return type(one) is type(other) and bool(one == other)
