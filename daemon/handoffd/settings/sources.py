"""Layers of settings, one over the other, and the source of every key.

A mapping is merged key by key, anything else is replaced whole. Relative paths become absolute here,
where the folder of their layer is known.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_origin

from msgspec import Struct, field
from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from handoffd.errors import Problem
from handoffd.settings.model import Settings
from handoffd.settings.paths import home


class Source(Struct, frozen=True, kw_only=True):
    """Where a value comes from. `kind` is default, file, environment or flag."""

    kind: str
    name: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = self.name if self.line is None else f"{self.name}:{self.line}"
        return f"{self.kind} {place}".rstrip()


DEFAULT = Source(kind="default")


def source_of(key: str, sources: Mapping[str, Source]) -> Source | None:
    """Return the source of a key, or of the list or mapping that it is an item of."""
    while key and key not in sources:
        key = key.rpartition(".")[0]
    return sources.get(key)


class Merge(Struct):
    """The layers read so far, merged."""

    environ: Mapping[str, str]
    data: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def lay(self, values: Mapping[str, Any], source: Callable[[str], Source], base: Path) -> None:
        """Lay `values` over the earlier ones; relative paths are relative to `base`."""
        values = without_empty_keys(values, Settings)
        self._lay(self.data, _with_absolute_paths(values, base, self.environ), "", source)

    def locate(self, key: str) -> tuple[str, int | None]:
        """Return where a key was given."""
        source = source_of(key, self.sources) or self._source_near(key) or DEFAULT
        return source.name or source.kind, source.line

    def _source_near(self, key: str) -> Source | None:
        """Return the source of a key below or beside `key`: a missing key has none itself."""
        while key:
            near = (by for given, by in self.sources.items() if given.startswith(f"{key}."))
            if found := next(near, None):
                return found
            key = key.rpartition(".")[0]
        return None

    def _lay(
        self, below: dict[str, Any], values: Mapping[str, Any], path: str, source: Callable[[str], Source]
    ) -> None:
        for name, value in values.items():
            key = f"{path}{name}"
            before = below.get(name)
            if isinstance(value, Mapping) and value:
                below[name] = dict(before) if isinstance(before, Mapping) else {}
                self.sources.pop(key, None)
                self._lay(below[name], value, f"{key}.", source)
                continue
            self.sources = {old: by for old, by in self.sources.items() if not old.startswith(f"{key}.")}
            self.sources[key] = source(key)
            self._note_items(value, key, source)
            below[name] = value

    def _note_items(self, value: Any, key: str, source: Callable[[str], Source]) -> None:
        """Remember the line of each item of a list in a file: one of many may be wrong."""
        inner: Iterable[tuple[object, Any]] = ()
        if isinstance(value, list):
            inner = enumerate(value)
        elif isinstance(value, Mapping):
            inner = value.items()
        for name, item in inner:
            place = f"{key}.{name}"
            found = source(place)
            if found.kind == "file":
                self.sources[place] = found
                self._note_items(item, place, source)


def without_empty_keys(values: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Leave out keys without a value: all of a section may be commented out."""
    kept = {}
    for name, value in values.items():
        known = model.model_fields.get(name)
        section = section_of(known) if known else None
        if section is not None and isinstance(value, Mapping):
            kept[name] = without_empty_keys(value, section)
        elif value is not None or known is None or known.default is None:
            kept[name] = value
    return kept


def _with_absolute_paths(values: dict[str, Any], base: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    def absolute(value: Any) -> Any:
        if not isinstance(value, str | Path) or not str(value):
            return value
        text = str(value)
        if text == "~" or text.startswith("~/"):
            return Path(home(environ), text[2:])
        return Path(os.path.normpath(base / os.path.expanduser(text)))

    changed = dict(values)
    for name in ("state_dir", "runtime_dir"):
        if name in values:
            changed[name] = absolute(values[name])
    if isinstance(values.get("projects"), list):
        changed["projects"] = [absolute(value) for value in values["projects"]]
    if isinstance(values.get("workspaces"), list):
        changed["workspaces"] = [
            {**value, "path": absolute(value["path"])}
            if isinstance(value, Mapping) and "path" in value
            else absolute(value)
            for value in values["workspaces"]
        ]
    if isinstance(values.get("scheduling"), Mapping):
        changed["scheduling"] = _with_absolute_groups(values["scheduling"], lambda text: str(absolute(text)))
    return changed


def _with_absolute_groups(scheduling: Mapping[str, Any], absolute: Callable[[str], str]) -> dict[str, Any]:
    """Return the section with whole paths in its groups; other values stay as they are."""
    groups = scheduling.get("groups")
    if not isinstance(groups, Mapping):
        return dict(scheduling)
    changed = dict(groups)
    for name, group in groups.items():
        if isinstance(group, Mapping) and isinstance(group.get("projects"), list):
            paths = [absolute(one) if isinstance(one, str) and one else one for one in group["projects"]]
            changed[name] = {**group, "projects": paths}
    return {**scheduling, "groups": changed}


# --- what is wrong, in words --------------------------------------------------------------------------
# A problem has its place (file and line, variable or flag), its dotted key and the allowed values. Values
# that may contain a secret are never quoted.
Location = tuple[int | str, ...]
Locate = Callable[[str], tuple[str, int | None]]
"""Takes a dotted key; returns its file (variable, flag) and line."""

_SHOWN_CHARACTERS = 60
_MESSAGES = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a section with keys of its own",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than": "must be more than {gt:.15g}",
    "greater_than_equal": "must be at least {ge:.15g}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "less_than": "must be less than {lt:.15g}",
    "less_than_equal": "must be at most {le:.15g}",
    "literal_error": "must be one of the allowed values",
    "mapping_type": "must be a section with keys of its own",
    "missing": "is missing",
    "model_attributes_type": "must be a section with keys of its own",
    "model_type": "must be a section with keys of its own",
    "path_type": "must be a path",
    "string_pattern_mismatch": "must be the name of an environment variable",
    "string_type": "must be text",
    "too_short": "must not be empty",
    "tuple_type": "must be a list",
    "value_error": "{error}",
}
_WITHOUT_VALUE = frozenset({"extra_forbidden", "missing", "told_by_other_key", "too_short", "value_error"})
_WITH_ALLOWED = frozenset({"literal_error", "told_by_other_key"})
"""The second is ours: the value belongs to another setting, which the message names."""


def problems_of(error: ValidationError, model: type[BaseModel], locate: Locate) -> tuple[Problem, ...]:
    """Return one Problem for each error."""
    return tuple(_problem(details, model, locate) for details in error.errors(include_url=False))


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model of a field that is a section (or may be one), else None."""
    return _model_in(_kinds(field.annotation, items=False))


def _model_in(kinds: Iterator[Any]) -> type[BaseModel] | None:
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def item_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model of the items of a field that is a mapping of sections, else None."""
    parts = get_args(field.annotation)[1:] if get_origin(field.annotation) is Mapping else ()
    return _model_in(iter(parts))


def dotted(location: Location) -> str:
    """Return `notify.command.0` for ("notify", "command", 0)."""
    return ".".join(map(str, location))


def _problem(details: ErrorDetails, model: type[BaseModel], locate: Locate) -> Problem:
    key = dotted(details["loc"])
    owner, field = _owner(model, details["loc"])
    message, allowed = _words(details, owner, field)
    close = get_close_matches(str(details["loc"][-1]), allowed, n=1) if message == _UNKNOWN else ()
    file, line = locate(key)
    return Problem(
        file=file, line=line, key=key or None, message=message, allowed=allowed, meant=next(iter(close), None)
    )


_UNKNOWN = "unknown setting"
"""The message for a key that a section does not have."""


def _words(
    details: ErrorDetails, owner: type[BaseModel] | None, field: FieldInfo | None
) -> tuple[str, tuple[str, ...]]:
    kind, context = details["type"], details.get("ctx", {})
    if kind == "extra_forbidden" and owner is not None:
        return _UNKNOWN, tuple(owner.model_fields)
    told = _MESSAGES.get(kind)
    message = told.format(**context) if told else details["msg"][:1].lower() + details["msg"][1:]
    allowed = tuple(re.findall(r"'([^']*)'", context.get("expected", ""))) if kind in _WITH_ALLOWED else ()
    return message + ("" if kind in _WITHOUT_VALUE else _shown(details["input"], field)), allowed


def _shown(value: Any, field: FieldInfo | None) -> str:
    """Return `, not …` with the value, unless it may be a secret."""
    text = repr(value)
    if "://" in text or (field is not None and _may_be_secret(field)):
        return ""
    if isinstance(value, SecretStr):
        return ", not a secret"
    if isinstance(value, Mapping):
        return ", not a section"
    if isinstance(value, list | tuple):
        return ", not a list"
    return f", not {'nothing' if value is None else text[:_SHOWN_CHARACTERS]}"


def _may_be_secret(field: FieldInfo) -> bool:
    """Return whether a field is a secret, or a section that holds one."""
    section = item_of(field) or _model_in(_kinds(field.annotation))
    return SecretStr in _kinds(field.annotation) or (
        section is not None and any(map(_may_be_secret, section.model_fields.values()))
    )


def _owner(model: type[BaseModel], location: Location) -> tuple[type[BaseModel] | None, FieldInfo | None]:
    """Return the model in which the last key of `location` is looked up, and its field there."""
    owner: type[BaseModel] | None = model
    field: FieldInfo | None = None
    within = False
    for depth, key in enumerate(location):
        if owner is None:
            return None, field  # below a field that is not a section: an item of a list or mapping
        if isinstance(key, int):
            continue  # an item of a list of sections
        if within:
            within = False  # the name of an item, which is a section itself
            continue
        field = owner.model_fields.get(str(key))
        if depth < len(location) - 1:
            item = item_of(field) if field else None
            within = item is not None
            owner = item or (_model_in(_kinds(field.annotation)) if field else None)
    return owner, field


def _kinds(annotation: Any, *, items: bool = True) -> Iterator[Any]:
    """Yield the types of a value, with `items` also of its items; not the types in a mapping."""
    yield annotation
    origin = get_origin(annotation)
    if origin is Mapping or (origin is tuple and not items):
        return
    for part in get_args(annotation):
        yield from _kinds(part, items=items)
