"""Step tables, read along their shape and laid over each other key by key.

Everything becomes one flat mapping from key to value that remembers, for each value, the file and
line that set it last; so the problem found with a value, and `rules show`, can name its origin.
A value of the wrong shape is reported and left out, and its key is marked, so that what is missing
because of it is not reported again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from handoffd.errors import InvalidFile, Problem
from handoffd.protocol.rule_shapes import (
    MAX_MEMBERS,
    MAX_PATHS,
    RULEBOOK,
    Family,
    Leaf,
    PathList,
    Shape,
    Table,
    Wrong,
    wrong_name,
    wrong_path,
)
from handoffd.protocol.yamltext import YamlText, load

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layer:
    """One file of the table: its path as shown to people, and its text."""

    file: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One value and its origin. `file` None: nobody set it, it is built in. Lines count from 1."""

    key: Key
    value: object
    file: str | None = None
    line: int | None = None
    layer: int = -1
    written: Key = ()
    """The key as it stands in the file: `next_on_fail` for `on_fail.default`."""

    @property
    def dotted(self) -> str:
        """The key as people write it, such as `steps.impl.on_fail.default`."""
        return ".".join(self.key)

    def problem(self, message: str, allowed: Sequence[str] = ()) -> Problem:
        """Return a problem at this value's place."""
        return Problem(
            file=self.file or "(built in)",
            line=self.line,
            key=".".join(self.written or self.key),
            message=message,
            allowed=tuple(allowed),
        )


@dataclass(slots=True, kw_only=True)
class Merged:
    """All layers as one. `named` holds the first mention of each step, pipeline and role."""

    settings: dict[Key, Setting] = field(default_factory=dict)
    by_member: dict[Key, dict[Key, Setting]] = field(default_factory=dict)
    """The same settings, by step or pipeline (the first two parts of the key)."""
    named: dict[Key, Setting] = field(default_factory=dict)
    misnamed: set[Key] = field(default_factory=set)
    spoiled: set[Key] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    unreadable: bool = False

    def put(self, setting: Setting) -> None:
        """Lay a value over what was there."""
        self.settings[setting.key] = setting
        self.by_member.setdefault(setting.key[:2], {})[setting.key] = setting

    def value(self, *key: str) -> object:
        """Return the value of a key, None if it is not set."""
        setting = self.settings.get(key)
        return setting.value if setting else None

    def is_spoiled(self, key: Key) -> bool:
        """Tell whether `key`, or something around it, had a value that was left out."""
        return any(key[:length] in self.spoiled for length in range(len(key) + 1))

    def members(self, kind: str) -> tuple[str, ...]:
        """Return the names of all sound steps or pipelines, in order of first mention."""
        names = (key for key in self.named if len(key) == 2 and key[0] == kind)
        return tuple(key[1] for key in names if key not in self.misnamed)

    def below(self, kind: str, name: str, *rest: str) -> Iterator[Setting]:
        """Return the settings under a key of a step or pipeline."""
        prefix = (kind, name, *rest)
        group = self.by_member.get((kind, name), {})
        return (setting for key, setting in group.items() if key[: len(prefix)] == prefix)


def merge_layers(layers: Sequence[Layer]) -> Merged:
    """Return `layers` laid over each other in order, with every problem of their shape."""
    merged = Merged()
    for number, layer in enumerate(layers):
        try:
            document = _document(layer)
        except InvalidFile as error:
            merged.problems.extend(error.problems)
            merged.unreadable = True
            continue
        if document.data is not None:
            _LayerReader(number, layer.file, document, merged).read()
    return merged


@lru_cache(maxsize=8)
def _document(layer: Layer) -> YamlText:
    # The shipped table is below every project's own, and costs more to read than that one.
    return load(layer.text, file=layer.file)


class _LayerReader:
    """Reads one layer into `merged`."""

    def __init__(self, number: int, file: str, document: YamlText, merged: Merged) -> None:
        self._number = number
        self._file = file
        self._document = document
        self._merged = merged

    def read(self) -> None:
        self._resolve(self._walk(RULEBOOK, (), self._document.data))

    def _walk(self, shape: Shape, key: Key, value: object) -> list[Setting]:
        match shape:
            case Leaf():
                wrong = shape.check(value)
                return [self._setting(key, value)] if wrong is None else self._reject(key, wrong)
            case PathList():
                return self._paths(shape, key, value)
            case Table() | Family() if not isinstance(value, Mapping):
                return self._reject(key, Wrong("must be a mapping"))
            case Table():
                assert isinstance(value, Mapping)
                return self._table(shape, key, value)
            case Family():
                assert isinstance(value, Mapping)
                return self._family(shape, key, value)

    def _table(self, shape: Table, key: Key, value: Mapping[str, object]) -> list[Setting]:
        found: list[Setting] = []
        for name, item in value.items():
            if name in shape.keys:
                found += self._walk(shape.keys[name], (*key, name), item)
            else:
                self._report((*key, name), Wrong(f"unknown key {name!r}", tuple(shape.keys)))
        return found

    def _family(self, shape: Family, key: Key, value: Mapping[str, object]) -> list[Setting]:
        if len(value) > MAX_MEMBERS:
            return self._reject(key, Wrong(f"has {len(value)} entries; at most {MAX_MEMBERS} are allowed"))
        found: list[Setting] = []
        for name, item in value.items():
            wrong = wrong_name(name, shape)
            member = (*key, name)
            self._merged.named.setdefault(member, self._setting(member, None))
            if wrong is not None:
                self._report(member, wrong)
                self._merged.misnamed.add(member)
            else:
                found += self._walk(shape.member, member, item)
        return found

    def _paths(self, shape: PathList, key: Key, value: object) -> list[Setting]:
        if not isinstance(value, list) or len(value) > MAX_PATHS:
            return self._reject(key, Wrong(f"must be a list of at most {MAX_PATHS} paths"))
        wrongs = [wrong_path(path, negation=shape.negation) for path in value]
        for index, wrong in enumerate(wrongs):
            if wrong is not None:
                self._report((*key, str(index)), wrong)
        if any(wrongs):
            self._merged.spoiled.add(key)
            return []
        return [self._setting(key, tuple(value))]

    def _resolve(self, found: list[Setting]) -> None:
        """Take over what was found; `next_on_fail` is short for `on_fail.default`."""
        written = {setting.key for setting in found}
        for setting in found:
            key = setting.key
            if key[0] == "steps" and key[2] == "next_on_fail":
                key = (*key[:2], "on_fail", "default")
                if key in written:
                    self._report(
                        setting.key, Wrong("is short for on_fail.default, which is given, too: keep one")
                    )
                    continue
            self._merged.put(replace(setting, key=key))

    def _setting(self, key: Key, value: object) -> Setting:
        line = self._document.line_of(".".join(key))
        return Setting(key=key, value=value, file=self._file, line=line, layer=self._number, written=key)

    def _reject(self, key: Key, wrong: Wrong) -> list[Setting]:
        self._report(key, wrong)
        self._merged.spoiled.add(key)
        if key[:1] == ("steps",) and key[2:] == ("next_on_fail",):
            self._merged.spoiled.add((*key[:2], "on_fail", "default"))
        return []

    def _report(self, key: Key, wrong: Wrong) -> None:
        dotted = ".".join(key)
        self._merged.problems.append(
            Problem(
                file=self._file,
                line=self._document.line_of(dotted),
                key=dotted or None,
                message=wrong.message,
                allowed=wrong.allowed,
            )
        )
