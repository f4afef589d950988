"""Layers of settings, one over the other, and for every key which of them won.

A mapping is merged key by key, anything else is replaced whole. Paths become absolute while it is
still known where they were written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from handoffd.errors import Problem
from handoffd.settings.checks import section_of
from handoffd.settings.model import Settings
from handoffd.settings.paths import home


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
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


@dataclass(slots=True)
class Merge:
    """What the layers read so far say together."""

    environ: Mapping[str, str]
    data: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def lay(self, values: Mapping[str, Any], source: Callable[[str], Source], base: Path) -> None:
        """Put `values` over what is there; relative paths among them are meant from `base`."""
        values = without_empty_keys(values, Settings)
        self._lay(self.data, _with_absolute_paths(values, base, self.environ), "", source)

    def locate(self, key: str) -> tuple[str, int | None]:
        """Return where a key was given."""
        source = source_of(key, self.sources) or self._source_near(key) or DEFAULT
        return source.name or source.kind, source.line

    def _source_near(self, key: str) -> Source | None:
        """Return the source of anything below `key` or beside it: what is missing was given nowhere."""
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
        """Remember where each item of a list stands, if it is in a file: what is wrong may be one of many."""
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
    """Leave out keys with nothing behind them: all of a section may be commented out."""
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
    """Return the section with whole paths in its groups; whatever is no list of paths stays as it is."""
    groups = scheduling.get("groups")
    if not isinstance(groups, Mapping):
        return dict(scheduling)
    changed = dict(groups)
    for name, group in groups.items():
        if isinstance(group, Mapping) and isinstance(group.get("projects"), list):
            paths = [absolute(one) if isinstance(one, str) and one else one for one in group["projects"]]
            changed[name] = {**group, "projects": paths}
    return {**scheduling, "groups": changed}
