"""Step tables, read along their shape and laid over each other key by key.

What each key may hold is data (`RULEBOOK`). One description serves reading, as a file is walked along it,
and errors: each leaf says what it wants and, where there is a list, which values are allowed.

Everything becomes one flat mapping from key to value that remembers, for each value, the file and line
that set it last; so the problem found with a value, and `rules show`, can name its origin. A value of the
wrong shape is reported and left out, and its key is marked, so that what is missing because of it is not
reported again. Whether a target exists or `done` is in reach cannot be seen from one value; `rulebook.py`
looks at that afterwards.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import get_args

from msgspec import Struct, field
from msgspec.structs import replace

from handoffd.errors import InvalidFile, Problem
from handoffd.protocol.rules import (
    DONE,
    OUTPUTS,
    Complexity,
    DispatchMode,
    Enforcement,
    Expectation,
    Language,
    Output,
    Sessions,
)
from handoffd.protocol.state import STEP_ALIASES, Reason
from handoffd.protocol.yamltext import YamlText, load

# --- what each key may hold ---------------------------------------------------------------------------
MAX_MEMBERS = 200

MAX_CHECKS = 10

MAX_PATHS = 200

MAX_PATH_LENGTH = 512

MAX_TEXT_LENGTH = 16_384

_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")

_EXECUTOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


class Wrong(Struct, frozen=True):
    """Why a value is not accepted."""

    message: str
    allowed: tuple[str, ...] = ()


class Leaf(Struct, frozen=True):
    """One value; `check` returns what is wrong with it."""

    check: Callable[[object], Wrong | None]


class PathList(Struct, frozen=True):
    """A list of path templates relative to the root; `!` excludes where `negation` is allowed."""

    negation: bool = False


class Table(Struct, frozen=True):
    """A mapping with known keys."""

    keys: Mapping[str, Shape]


class Family(Struct, frozen=True):
    """A mapping from names, which the file chooses, to values of one shape."""

    what: str
    member: Shape
    reserved: Mapping[str, str] = field(default_factory=dict)
    """Names that cannot be chosen, each with the reason."""
    most: int = MAX_MEMBERS


class OneOrSeveral(Struct, frozen=True):
    """One value, or several of them by name. Of two files the later one decides which."""

    one: Leaf
    several: Family


Shape = Leaf | PathList | Table | Family | OneOrSeveral


def wrong_name(name: object, family: Family) -> Wrong | None:
    """Return what is wrong with a name that a file gives to a step, a pipeline or a role."""
    if not isinstance(name, str) or len(name) > 40 or not _NAME.fullmatch(name):
        return Wrong(
            f"{name!r} cannot name a {family.what}: use small letters and digits, joined by -, at most 40"
        )
    if name in family.reserved:
        return Wrong(f"{name!r} cannot be the name of a {family.what}: {family.reserved[name]}")
    return None


def wrong_path(path: object, *, negation: bool) -> Wrong | None:
    """Return what is wrong with one path template."""
    if not isinstance(path, str) or not path.isprintable() or not 0 < len(path) <= MAX_PATH_LENGTH:
        return Wrong(f"must be a path of 1 to {MAX_PATH_LENGTH} printable characters, not {_shown(path)}")
    if path.startswith("!") and not negation:
        return Wrong("`!` excludes, which only makes sense in claude_writes")
    plain = path.removeprefix("!")
    if not plain or plain.startswith(("/", "~")) or ".." in plain.split("/"):
        return Wrong(f"must be a path inside the project, relative to its root, not {_shown(path)}")
    unknown = [name for name in _PLACEHOLDER.findall(plain) if name != "story"]
    return Wrong(f"unknown placeholder {{{unknown[0]}}}", ("{story}",)) if unknown else None


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _choice(*values: str, optional: bool = False) -> Leaf:
    allowed = (*values, "null") if optional else values

    def check(value: object) -> Wrong | None:
        if value in values or (optional and value is None):
            return None
        return Wrong(f"unknown value {_shown(value)}", allowed)

    return Leaf(check)


def _number(low: float, high: float, *, whole: bool = False, above: bool = False) -> Leaf:
    wanted = f"must be a {'whole ' if whole else ''}number {'above' if above else 'from'} {low:g} to {high:g}"

    def check(value: object) -> Wrong | None:
        fits = isinstance(value, int) or (isinstance(value, float) and not whole and math.isfinite(value))
        if isinstance(value, bool) or not fits:
            return Wrong(f"{wanted}, not {_shown(value)}")
        assert isinstance(value, int | float)
        inside = (low < value if above else low <= value) and value <= high
        return None if inside else Wrong(f"{wanted}, not {_shown(value)}")

    return Leaf(check)


def _text(what: str, *, optional: bool = False) -> Leaf:
    def check(value: object) -> Wrong | None:
        if optional and value is None:
            return None
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            return Wrong(f"must be {what}, not {_shown(value)}")
        if len(value) > MAX_TEXT_LENGTH:
            return Wrong(f"has {len(value)} characters; at most {MAX_TEXT_LENGTH} are allowed")
        return None

    return Leaf(check)


def _truth(value: object) -> Wrong | None:
    return None if isinstance(value, bool) else Wrong(f"unknown value {_shown(value)}", ("true", "false"))


def _executors(value: object) -> Wrong | None:
    names = value if isinstance(value, list) else [value]
    if value is None or (
        names and all(isinstance(name, str) and _EXECUTOR.fullmatch(name) for name in names)
    ):
        return None
    return Wrong(f"must be the name of an executor, or a list of names, not {_shown(value)}")


_STEP = _text("the name of a step")

_STEP_OR_NONE = _text("the name of a step", optional=True)

_BY_LANGUAGE = Table(dict.fromkeys(get_args(Language), _text("a text")))

_SCOPE = PathList(negation=True)

_ENFORCEMENT = _choice(*get_args(Enforcement))

_COMMAND = _text("a shell command", optional=True)

_COMMANDS = OneOrSeveral(
    _text("a shell command, or several by name", optional=True),
    Family("check", _COMMAND, {OUTPUTS: "it is the check that `outputs` asks for"}, most=MAX_CHECKS),
)


_RULE = Table(
    {
        "display_name": _BY_LANGUAGE,
        "next_on_pass": _STEP,
        "next_on_fail": _STEP,
        "on_fail": Table({"default": _STEP, **{reason.value: _STEP_OR_NONE for reason in Reason}}),
        "max_attempts": _number(1, 100, whole=True),
        "timeout_min": _number(0, 10_080),
        "requires_human": Leaf(_truth),
        "executor": Leaf(_executors),
        "tests": _choice(*get_args(Expectation), optional=True),
        "retry_on_timeout": _number(0, 100, whole=True),
        "max_visits": _number(1, 1000, whole=True),
        "session": _choice(*get_args(Sessions), optional=True),
        "claude_reads": PathList(),
        "claude_writes": _SCOPE,
        "enforce_writes": _ENFORCEMENT,
        "post_check": _COMMANDS,
        "outputs": Table(dict.fromkeys(get_args(Output), Leaf(_truth))),
        "post_check_timeout_s": _number(0, 86_400, above=True),
        "check_timeout_min": _number(0, 1440, above=True),
        "step_instruction": _BY_LANGUAGE,
        "dispatch_mode": Table(dict.fromkeys(get_args(Complexity), _choice(*get_args(DispatchMode)))),
        "team_roles": Family("team role", Table({"claude_reads": PathList(), "claude_writes": _SCOPE})),
    }
)


_RESERVED = {
    DONE: "it marks the end of every pipeline",
    **{alias: f"hand-offs use it for the step {step}" for alias, step in STEP_ALIASES.items()},
}


RULEBOOK = Table(
    {
        "steps": Family("step", _RULE, _RESERVED),
        "pipelines": Family("pipeline", Table({"first": _STEP, "bootstrap": _STEP_OR_NONE})),
        "enforce_writes": _ENFORCEMENT,
    }
)
"""The shape of a whole step table, a preset, or a project's `.ai/step-rules.yaml`."""


# --- layers, laid over each other ---------------------------------------------------------------------
Key = tuple[str, ...]


class Layer(Struct, frozen=True):
    """One file of the table: its path as shown to people, and its text."""

    file: str
    text: str


class Setting(Struct, frozen=True, kw_only=True):
    """One value and its origin. `file` None: no file sets it, it is built in. Lines count from 1."""

    key: Key
    value: object
    file: str | None = None
    line: int | None = None
    layer: int = -1
    written: Key = ()
    """The key as the file writes it: `next_on_fail` for `on_fail.default`."""

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


class Merged(Struct, kw_only=True):
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
        if setting.key[2:3] == ("post_check",):
            self._make_way(setting)
        self.settings[setting.key] = setting
        self.by_member.setdefault(setting.key[:2], {})[setting.key] = setting

    def _make_way(self, setting: Setting) -> None:
        """Take out the named commands that a single one replaces, or the single one that these replace."""
        for other in tuple(self.below(*setting.key[:3])):
            named_over_one = len(other.key) < len(setting.key) and setting.value is not None
            if named_over_one or len(other.key) > len(setting.key):
                del self.settings[other.key], self.by_member[other.key[:2]][other.key]

    def spread(self, name: str) -> None:
        """Give a value of the whole table to each step that has none of its own."""
        if (common := self.settings.pop((name,), None)) is not None:
            for step in self.members("steps"):
                if (key := ("steps", step, name)) not in self.settings:
                    self.put(replace(common, key=key))

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
    merged.spread("enforce_writes")
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
            case OneOrSeveral():
                return self._walk(shape.several if isinstance(value, Mapping) else shape.one, key, value)
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
        if len(value) > shape.most:
            return self._reject(key, Wrong(f"has {len(value)} entries; at most {shape.most} are allowed"))
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
