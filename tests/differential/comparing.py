"""Two outcomes of one case compared, and differences held against the list of the deliberate ones.

A rule of `deliberate.yaml` names verbs, cases, the path in the outcome, and what each program has there:
it explains that difference and no other. A difference without a rule is a fault. So is a rule, or a part of
one, without a difference; and one that also fits a case in which the programs agree: it says more than is so.

A verb of a sequence is called `dispatch @ impl failing (with-commit) #7.2`: a rule may name all of that but
for the number, or leave out what is in brackets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    """One value that differs, at a path of the outcome of a case; `before` is the value before the verb."""

    case: str
    verb: str
    at: str
    theirs: Json
    ours: Json
    before: Json = ABSENT


@dataclass(frozen=True, slots=True)
class Compared:
    """A case: the values in which the programs differ, and those that are the same in both, by path."""

    case: str
    verb: str
    differences: tuple[Difference, ...]
    same: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a rule allows: at paths like `at`, in `cases` but not in `other`, `theirs` against `ours`."""

    at: str
    cases: tuple[str, ...]
    other: tuple[str, ...]
    own_cases: bool
    theirs: tuple[Json, ...]
    ours: tuple[Json, ...]

    def fits(self, difference: Difference) -> bool:
        """Return whether this is the difference that is meant."""
        return (
            fnmatchcase(difference.at, self.at)
            and self.names(difference.case)
            and any(_same(one, difference.theirs, difference.before) for one in self.theirs)
            and any(_same(one, difference.ours, difference.before) for one in self.ours)
        )

    def names(self, case: str) -> bool:
        """Return whether the rule covers a case."""
        return _named(case, self.cases) and not _named(case, self.other)

    def narrower(self) -> Iterator[tuple[str, Pattern]]:
        """Yield each thing that the pattern allows of several: what it is, and a pattern of it alone."""
        if self.own_cases and len(self.cases) > 1:
            yield from ((f"cases {one}", replace(self, cases=(one,))) for one in self.cases)
        if len(self.theirs) > 1:
            yield from ((f"theirs {one}", replace(self, theirs=(one,))) for one in self.theirs)
        if len(self.ours) > 1:
            yield from ((f"ours {one}", replace(self, ours=(one,))) for one in self.ours)


@dataclass(frozen=True, slots=True)
class Rule:
    """A deliberate difference: what it is and why, for people; where it shows, for the comparison."""

    id: str
    what: str
    why: str
    verbs: tuple[str, ...]
    cases: tuple[str, ...]
    differs: tuple[Pattern, ...]

    def explains(self, difference: Difference) -> bool:
        """Return whether the rule speaks of this difference."""
        return difference.verb in self.verbs and any(pattern.fits(difference) for pattern in self.differs)

    @property
    def leading(self) -> tuple[Pattern, ...]:
        """The differences that cause the others: stdout, if the rule has differences there."""
        return tuple(one for one in self.differs if one.at.startswith("stdout")) or self.differs


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the differences come to: those that no rule explains, and how many cases each rule does.

    `idle` names what explains nothing any more: a rule, its line, or a part of that. `broad` names what
    would also explain a difference where there is none.
    """

    unexplained: tuple[Difference, ...]
    explained: Mapping[str, int]
    idle: tuple[str, ...]
    broad: tuple[str, ...]


def compared(case: str, verb: str, theirs: Json, ours: Json, state: Json = None) -> Compared:
    """Compare two outcomes value by value. `state` is STATE.json before the verb.

    Where the programs went different ways (stdout is of two kinds), only the kind and the step and status of
    the story are compared: all the rest follows from them. Files that both made or changed are compared word
    for word.
    """
    both = theirs["texts"].keys() & ours["texts"].keys()
    theirs, ours = (
        {**one, "texts": {name: one["texts"][name] for name in sorted(both)}} for one in (theirs, ours)
    )
    kinds = gist(theirs["stdout"]), gist(ours["stdout"])
    summaries = standing(theirs["state"]), standing(ours["state"])
    short = {}
    other_way = kinds[0].partition(_LINE)[0] != kinds[1].partition(_LINE)[0]
    if other_way:
        theirs, ours = ({**one, "stdout": kind} for one, kind in zip((theirs, ours), kinds, strict=True))
    else:
        short["stdout"] = kinds[0]
    if other_way or isinstance(theirs["state"], Mapping) != isinstance(ours["state"], Mapping):
        state = standing(state) if ours["state"] == state else ABSENT
        theirs, ours = ({**one, "state": to} for one, to in zip((theirs, ours), summaries, strict=True))
    elif summaries[0] == summaries[1]:
        short["state"] = summaries[0]
    one, other, was = flat(theirs), flat(ours), flat({"state": state})
    values = {at: (one.get(at, ABSENT), other.get(at, ABSENT)) for at in dict.fromkeys([*one, *other])}
    return Compared(
        case,
        verb,
        tuple(
            Difference(case, verb, at, a, b, was.get(at.removeprefix("stdout.json."), ABSENT))
            for at, (a, b) in values.items()
            if not _identical(a, b)
        ),
        {**short, **{at: a for at, (a, b) in values.items() if _identical(a, b)}},
    )


def standing(state: Json) -> Json:
    """Return step, status and attempt in a STATE.json, in short."""
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


def judged(cases: Iterable[Compared], rules: Sequence[Rule]) -> Judgement:
    """Return what no rule explains, what each rule does, and what of the rules is too much."""
    every = tuple(cases)
    unexplained, counts = [], {rule.id: 0 for rule in rules}
    for case in every:
        explained = {rule.id: _explained(rule, case.differences) for rule in rules}
        for name, known in explained.items():
            counts[name] += bool(known)
        known_all = {one for known in explained.values() for one in known}
        unexplained += [one for one in case.differences if one.at not in known_all]
    found = tuple(one for case in every for one in case.differences)
    idle = tuple(one for rule in rules for one in _idle(rule, found))
    broad = tuple(one for rule in rules for one in _broad(rule, every))
    return Judgement(tuple(unexplained), counts, idle, broad)


def _idle(rule: Rule, found: Sequence[Difference]) -> list[str]:
    mine = [different for different in found if different.verb in rule.verbs]
    fitting = [(one, [different for different in mine if one.fits(different)]) for one in rule.differs]
    if not any(fit for _, fit in fitting):
        return [rule.id]
    lines = []
    for one, fit in fitting:
        if not fit:
            lines.append(f"{rule.id}: {one.at}, theirs {one.theirs}, ours {one.ours}")
            continue
        parts = (part for part, narrow in one.narrower() if not any(map(narrow.fits, fit)))
        lines += [f"{rule.id}: {one.at}, {part}" for part in parts]
    verbs = {different.verb for _, fit in fitting for different in fit}
    names = {different.case for one, fit in fitting if not one.own_cases for different in fit}
    cases = (case for case in rule.cases if not any(_named(name, (case,)) for name in names))
    return [
        *lines,
        *(f"{rule.id}: verb {verb}" for verb in rule.verbs if verb not in verbs),
        *(f"{rule.id}: cases {case}" for case in cases),
    ]


def _broad(rule: Rule, cases: Sequence[Compared]) -> list[str]:
    """Return where the reference does what the rule says of it, and ours does the same."""
    mine = [case for case in cases if case.verb in rule.verbs]
    return [
        f"{rule.id}: {one.at}, theirs {value!r}, in {case.case}"
        for one in rule.leading
        for case in mine
        if one.names(case.case)
        for at, value in case.same.items()
        if fnmatchcase(at, one.at)
        and any(_same(theirs, value, ABSENT) for theirs in one.theirs)
        and not any(_same(ours, value, ABSENT) for ours in one.ours)
    ]


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
    cases, other = entry.get("cases", ["*"]), entry.get("but", [])
    return Rule(
        id=entry["id"],
        what=" ".join(entry["what"].split()),
        why=" ".join(entry["why"].split()),
        verbs=tuple(entry["verbs"]),
        cases=tuple(cases) if any("in" not in one for one in entry["differs"]) else (),
        differs=tuple(
            Pattern(
                one["at"],
                tuple(one.get("in", cases)),
                tuple(one.get("but", other)),
                "in" in one,
                _alternatives(one["theirs"]),
                _alternatives(one["ours"]),
            )
            for one in entry["differs"]
        ),
    )


def _alternatives(value: Json) -> tuple[Json, ...]:
    """Return the allowed values: one, or all in `any_of`."""
    return tuple(value["any_of"]) if isinstance(value, Mapping) else (value,)


def _named(case: str, patterns: Iterable[str]) -> bool:
    """Return whether a pattern fits the name of a case, with or without what is in brackets."""
    whole, numbered, _ = case.partition(" #")
    names = (whole, whole.partition(" (")[0]) if numbered else (whole,)
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _same(pattern: Json, value: Json, before: Json) -> bool:
    """Return whether a value is the one of the rule; in texts, `*` means anything."""
    if pattern == BEFORE:
        return _identical(before, value)
    if isinstance(pattern, str) and isinstance(value, str) and "*" in pattern:
        return fnmatchcase(value, pattern)
    return _identical(pattern, value)


def _identical(one: Json, other: Json) -> bool:
    return type(one) is type(other) and bool(one == other)
