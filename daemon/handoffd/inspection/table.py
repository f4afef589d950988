"""The settings and the step table that a project's own files make, over what ships.

Whether an edit of them is in force is another question (`supervise/project_files.py`): here they are
taken as they are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from handoffd.errors import InvalidFile, Problem
from handoffd.inspection.templates import templates_for
from handoffd.protocol.rule_merge import Layer
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.rules import RuleBook
from handoffd.settings.loading import load_project
from handoffd.settings.model import ProjectSettings
from handoffd.settings.paths import shared
from handoffd.store.rooted import read_project_file

RULES = ".ai/step-rules.yaml"
SETTINGS = ".ai/handoffd.yaml"
MAX_BYTES = 64 * 1024

Texts = Mapping[str, str | None]
"""The project's own files by name; None where one is missing."""


def read_texts(root: Path) -> Texts:
    """Return the project's own files as they are on the disk. Raises StoreError when they cannot be read."""
    return {name: _text(root, name) for name in (SETTINGS, RULES)}


def _text(root: Path, name: str) -> str | None:
    seen = read_project_file(root, name, MAX_BYTES)
    return None if seen is None else seen.content.decode("utf-8", errors="replace")


def settings_of(root: str) -> ProjectSettings:
    """Return a project's own settings as its file says. Raises InvalidFile, StoreError."""
    return settings_in(_text(Path(root), SETTINGS))


def layers_of(root: str) -> tuple[Layer, ...]:
    """Return the layers of a project's step table, lowest first. Raises InvalidFile, StoreError."""
    own = _text(Path(root), RULES)
    layers = shipped_layers(settings_of(root).preset)
    return layers if own is None or not own.strip() else (*layers, Layer(RULES, own))


def table_of(root: str) -> RuleBook:
    """Return a project's step table as its files say.

    Raises InvalidFile, also for its settings and templates, and StoreError.
    """
    layers = layers_of(root)
    if layers[-1].file != RULES:
        return book_of(layers)
    return book_of(layers, templates_for(root).instructed())


# Projects that say the same share what it means: most have no table, many are copies of each other.
@lru_cache(maxsize=32)
def book_of(layers: tuple[Layer, ...], instructed: frozenset[str] = frozenset()) -> RuleBook:
    """Return the table that `layers` make, as `build_rulebook` does."""
    return build_rulebook(layers, instructed=instructed)


@lru_cache(maxsize=32)
def settings_in(text: str | None) -> ProjectSettings:
    """Return the settings that the text of a project's file makes. Raises InvalidFile."""
    return load_project(text, SETTINGS)


@lru_cache(maxsize=8)
def shipped_layers(preset: str | None) -> tuple[Layer, ...]:
    """Return the shipped step table, with a preset above it. Raises InvalidFile for an unknown one."""
    table = shared("config", "step-rules.yaml")
    layers = (Layer("config/step-rules.yaml", table.read_text("utf-8")),)
    if preset is None:
        return layers
    known = sorted(path.stem for path in shared("config", "presets").glob("*.yaml"))
    if preset not in known:
        message = f"there is no preset {preset!r}"
        raise InvalidFile((Problem(file=SETTINGS, key="preset", message=message, allowed=tuple(known)),))
    text = shared("config", "presets", f"{preset}.yaml").read_text("utf-8")
    return (*layers, Layer(f"config/presets/{preset}.yaml", text))
