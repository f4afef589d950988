"""The text of a pipeline, walked along its shape.

What comes out is plain data in which every value has the form that its key asks for: what has not is
reported and left out, and its place is remembered, so that nothing that is missing because of it is
reported again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType, field

from handoffd.errors import Problem
from handoffd.protocol.pipelines.shapes import (
    DEFINITIONS,
    FILE,
    LANGUAGE,
    PIPELINE,
    SYNONYMS,
    Either,
    Family,
    Leaf,
    Listing,
    Named,
    Shape,
    Table,
    shown,
    snake,
)
from handoffd.protocol.rule_merge import Wrong
from handoffd.protocol.yamltext import YamlText, load

MOST_PROBLEMS: Final = 200
"""Of one file; who has more is helped enough by the first."""


def nearest(word: object, allowed: Iterable[str]) -> str | None:
    """Return which of the allowed words was likely meant; None where none is near."""
    return next(iter(get_close_matches(str(word)[:100], list(allowed), n=1, cutoff=0.7)), None)


class Findings(Struct):
    """What is wrong with one file, and what is only doubtful, each at its line."""

    file: str
    text: YamlText
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    _spoiled: set[str] = field(default_factory=set)
    """The dotted keys whose values were left out."""
    _around: set[str] = field(default_factory=set)
    """The dotted keys around them."""

    def refuse(
        self,
        key: str,
        message: str,
        allowed: Sequence[str] = (),
        meant: str | None = None,
        at: str | None = None,
    ) -> None:
        """Note a problem with the value of a dotted key; `at`: the key whose line it has instead."""
        problem = self._problem(key, message, allowed, meant, at)
        if problem not in self.problems and len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)

    def unknown(self, key: str, message: str, word: object, allowed: Iterable[str]) -> None:
        """Note an unknown name, with the likely one."""
        names = tuple(allowed)
        self.refuse(key, message, names, nearest(word, names))

    def warn(self, key: str, message: str) -> None:
        """Note what is likely a mistake, and does no harm."""
        problem = self._problem(key, message)
        if problem not in self.warnings and len(self.warnings) < MOST_PROBLEMS:
            self.warnings.append(problem)

    def spoil(self, key: str) -> None:
        """Remember that the value of a dotted key was left out."""
        self._spoiled.add(key)
        self._around.update(_prefixes(key))

    def doubts(self, key: str) -> bool:
        """Return whether a value at a dotted key, around it or below it was left out."""
        return bool(self._spoiled) and (key in self._around or not self._spoiled.isdisjoint(_prefixes(key)))

    def _problem(
        self,
        key: str,
        message: str,
        allowed: Sequence[str] = (),
        meant: str | None = None,
        at: str | None = None,
    ) -> Problem:
        line = self.text.line_of(key if at is None else at)
        return Problem(
            file=self.file, line=line, key=key or None, message=message, allowed=tuple(allowed), meant=meant
        )


class Document(Struct, frozen=True):
    """A file as data in which every value has its form, and what was found wrong with it so far."""

    data: Mapping[str, Any]
    findings: Findings


def read(text: str | bytes, file: str) -> Document:
    """Return what a text says, with every problem of its form. Raises InvalidFile: no YAML."""
    content = load(text, file, advise=True)
    findings = Findings(file, content)
    found = _Walk(findings).walk(FILE, "", content.data)
    return Document(found if isinstance(found, dict) else {}, findings)


class _Walk(Struct):
    """Walks a value along its shape; what does not fit is UNSET."""

    findings: Findings
    listed: dict[int, str] = field(default_factory=dict)
    """Of the tables whose keys a message has listed, where it did."""

    def walk(self, shape: Shape, key: str, value: object) -> Any:
        """Return the value as far as it fits."""
        match shape:
            case Named():
                return self.walk(DEFINITIONS[shape.name], key, value)
            case Leaf():
                wrong = shape.check(value)
                return value if wrong is None else self._reject(key, value, wrong)
            case Either():
                return self._either(shape, key, value)
            case Listing():
                return self._listing(shape, key, value)
            case Table() | Family() if not isinstance(value, Mapping):
                wrong = Wrong(f"must be a mapping, not {shown(value)}{_as_mapping(shape, value)}")
                return self._reject(key, value, wrong)
            case Table():
                return self._table(shape, key, _mapping(value))
            case Family():
                return self._family(shape, key, _mapping(value))

    def _either(self, shape: Either, key: str, value: object) -> Any:
        form: Shape | None = shape.scalar
        if isinstance(value, Mapping):
            form = shape.mapping
        elif isinstance(value, list):
            form = shape.listing
        if form is None:
            advice = _as_list(shape.listing, key, value)
            return self._reject(key, value, Wrong(f"must be {shape.what}, not {shown(value)}{advice}"))
        return self.walk(form, key, value)

    def _listing(self, shape: Listing, key: str, value: object) -> list[Any] | UnsetType:
        if not isinstance(value, list):
            wrong = Wrong(f"must be a list, not {shown(value)}{_as_list(shape, key, value)}")
            return self._reject(key, value, wrong)
        if not shape.least <= len(value) <= shape.most:
            wanted = f"{shape.least:,} to {shape.most:,}" if shape.least else f"at most {shape.most:,}"
            return self._reject(key, value, Wrong(f"has {len(value):,} entries; {wanted} are allowed"))
        found = [self.walk(shape.member, f"{key}.{index}", one) for index, one in enumerate(value)]
        return [one for one in found if one is not UNSET]

    def _table(self, shape: Table, key: str, value: Mapping[str, object]) -> dict[str, Any] | UnsetType:
        found: dict[str, Any] = {}
        for name, item in value.items():
            if name in shape.keys:
                found[name] = self.walk(shape.keys[name].shape, _dotted(key, name), item)
            else:
                self._unknown(shape, _dotted(key, name), name)
        for name in shape.required:
            if name not in value:
                self.findings.refuse(_dotted(key, name), f"is missing{self._to_type(shape, name)}")
                self.findings.spoil(_dotted(key, name))
        found = {name: item for name, item in found.items() if item is not UNSET}
        if shape is not FILE and not found.keys() >= {*shape.required}:
            return UNSET
        return found

    def _unknown(self, shape: Table, key: str, name: str) -> None:
        """Note an unknown key, with the likely one; all that are allowed are listed once."""
        others = [one for one in SYNONYMS.get(name, ()) if one in shape.keys]
        if shape is not FILE and "title" in others:
            others = ["title"]
        meant = next(iter(others), None) or nearest(name, shape.keys)
        message, allowed = f"unknown key {name!r:.80}", tuple(shape.keys)
        if meant is None and (before := self.listed.setdefault(id(shape), key)) != key:
            message, allowed = f"{message} (what is allowed: see {before})", ()
        self.findings.refuse(key, message, allowed, meant)

    def _to_type(self, shape: Table, name: str) -> str:
        """Return what to write for a key of the file that is missing, where only one value can be meant."""
        stem = self.findings.file.rpartition("/")[2].partition(".")[0]
        values = {"language": str(LANGUAGE), "pipeline": stem if re.fullmatch(PIPELINE, stem) else None}
        value = values.get(name) if shape is FILE else None
        return f": write {name}: {value}" if value else ""

    def _family(self, shape: Family, key: str, value: Mapping[str, object]) -> dict[str, Any] | UnsetType:
        if not shape.least <= len(value) <= shape.most:
            wanted = f"{shape.least} to {shape.most}"
            return self._reject(key, value, Wrong(f"has {len(value):,} entries; {wanted} are allowed"))
        found: dict[str, Any] = {}
        for name, item in value.items():
            if not re.fullmatch(shape.pattern, name):
                self.findings.refuse(
                    _dotted(key, name), _misnamed(shape, name), (), snake(name, shape.pattern)
                )
                if shape is not DEFINITIONS["tasks"]:  # a task is looked through all the same
                    self.findings.spoil(_dotted(key, name))
                    continue
            found[name] = self.walk(shape.member, _dotted(key, name), item)
        return {name: item for name, item in found.items() if item is not UNSET}

    def _reject(self, key: str, value: object, wrong: Wrong) -> UnsetType:
        self.findings.refuse(key, wrong.message, wrong.allowed, nearest(value, wrong.allowed))
        self.findings.spoil(key)
        return UNSET


def _as_list(shape: Listing | None, key: str, value: object) -> str:
    """Return the list of one to write, where a value is an entry of it."""
    if shape is None or not isinstance(shape.member, Leaf) or shape.member.check(value) is not None:
        return ""
    text = str(value)
    quoted = text if re.fullmatch(r"[\w./-]{1,60}", text) else shown(value)
    return f": write {key.rpartition('.')[2]}: [{quoted}]"


def _as_mapping(shape: Table | Family, value: object) -> str:
    """Return what to write in place of a list of fields or of tasks."""
    if not isinstance(shape, Family) or not isinstance(value, list):
        return ""
    if shape is DEFINITIONS["tasks"]:
        return ": write each task as NAME: {…}"
    names = [one for one in value if isinstance(one, str) and re.fullmatch(shape.pattern, one)]
    return f": write {{{names[0]}: {{type: number}}}}" if shape.what == "field" and names else ""


def _misnamed(shape: Family, name: str) -> str:
    signs = {(True, True): "digits, _ and -", (True, False): "digits and -"}
    joined = signs.get(
        ("-]" in shape.pattern or "?:-" in shape.pattern, "_" in shape.pattern), "digits and _"
    )
    wanted = f"a small letter, then small letters, {joined}, at most 32"
    article = "an" if shape.what[0] in "aeiou" else "a"
    return f"{name!r:.80} cannot name {article} {shape.what}: {wanted}"


def _prefixes(key: str) -> list[str]:
    """Return a dotted key and all around it, the whole file included."""
    parts = key.split(".")
    return ["", *(".".join(parts[:count]) for count in range(1, len(parts) + 1))]


def _mapping(value: object) -> Mapping[str, object]:
    assert isinstance(value, Mapping)
    return value


def _dotted(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name
