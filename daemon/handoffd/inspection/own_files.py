"""What a project's own files make, over what ships: settings, step table, prompt templates; its pipelines.

Whether an edit of them applies is decided in `project/files.py`: here they are read as they are
written.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePath

from handoffd.errors import InvalidFile, Problem, StoreError
from handoffd.files.rooted import open_parent, read_project_file
from handoffd.protocol import yamltext
from handoffd.protocol.pipelines.shapes import PIPELINE
from handoffd.protocol.prompt import PromptTemplates
from handoffd.protocol.rule_merge import Layer
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.rules import IDENTICAL_ENDS, Gates, Language, RuleBook
from handoffd.settings.loading import load_project
from handoffd.settings.model import ProjectSettings, StoryWorkspace
from handoffd.settings.paths import shared

RULES = ".ai/step-rules.yaml"
SETTINGS = ".ai/handoffd.yaml"
PIPELINES = ".ai/pipelines"
MAX_BYTES = 64 * 1024
MOST_PIPELINES = 200
"""Of one project; further ones, by their names, are not read."""

Texts = Mapping[str, str | None]
"""The project's own files by name; None where one is missing."""


def read_texts(root: Path) -> Texts:
    """Return the project's own files as they are on the disk. Raises StoreError when they cannot be read.

    A pipeline that cannot be read counts as missing: no story needs it.
    """
    texts = {name: _text(root, name) for name in (SETTINGS, RULES)}
    with suppress(StoreError):
        for name in pipeline_files(root):
            texts[name] = None
            with suppress(StoreError):
                texts[name] = _text(root, name)
    return texts


def pipeline_files(root: Path) -> list[str]:
    """Return the names of the files that have a project's pipelines. Raises StoreError, also for a link."""
    return [f"{PIPELINES}/{name}" for name in called_pipelines(beside_pipelines(root))[:MOST_PIPELINES]]


def beside_pipelines(root: Path) -> list[str]:
    """Return all names in the folder of a project's pipelines. Raises StoreError, also for a link."""
    with open_parent(root, f"{PIPELINES}/any") as folder:
        return [] if folder is None else os.listdir(folder)


def called_pipelines(names: Iterable[str], first: Collection[str] = ()) -> list[str]:
    """Return which names of files a pipeline can have: only these are words for a command to type.

    The ones of `first` come before all others: new files then put none of them out of reach.
    """
    called = (name for name in names if re.fullmatch(rf"{PIPELINE}\.yaml", name))
    return sorted(called, key=lambda name: (name not in first, name))


def with_trusted(root: Path, texts: Texts, trusted: Mapping[str, str]) -> Texts:
    """Return the texts with all pipelines that a person trusted, read from the disk where they are left out.

    One that is not there, or cannot be read, is None.
    """
    known = {name for name, text in trusted.items() if text and is_pipeline(name)}
    read = dict(texts)
    for name in known - texts.keys():
        read[name] = None
        with suppress(StoreError):
            read[name] = _text(root, name)
    there = sum(1 for name in known if read[name] is not None)
    others = sorted(name for name in read if is_pipeline(name) and name not in known)
    return {name: text for name, text in read.items() if name not in others[MOST_PIPELINES - there :]}


def too_many(root: Path, texts: Texts) -> str | None:
    """Return that a project has more pipelines than count, if it has."""
    if sum(map(is_pipeline, texts)) < MOST_PIPELINES:
        return None
    with suppress(StoreError):
        count = len(called_pipelines(beside_pipelines(root)))
        return crowded(count) if count > MOST_PIPELINES else None
    return None


def crowded(count: int) -> str:
    """Return what is wrong with a folder of this many pipelines."""
    which = f"only {MOST_PIPELINES} count, the trusted ones first"
    return f"has {count:,} pipelines, of which {which}: remove some"


def is_there(root: Path, name: str) -> bool:
    """Return whether anything is at a name, also a link that leads nowhere."""
    return os.path.lexists(root / name)


def is_pipeline(name: str) -> bool:
    """Return whether one of a project's own files has a pipeline."""
    return name.startswith(f"{PIPELINES}/")


def _text(root: Path, name: str) -> str | None:
    seen = read_project_file(root, name, MAX_BYTES)
    return None if seen is None else seen.content.decode("utf-8", errors="replace")


def settings_of(root: str) -> ProjectSettings:
    """Return a project's own settings as its file says. Raises InvalidFile, StoreError."""
    return settings_in(_text(Path(root), SETTINGS))


def with_workspace(text: str, place: StoryWorkspace) -> str | None:
    """Return the text of a project's settings with another workspace, and nothing else changed.

    None where the text is not of lines with a key each, as JSON is not. Raises InvalidFile.
    """
    return _with(text, "workspace", place, _block(place))


def with_gates(text: str, gates: Gates) -> str | None:
    """Return the text of a project's settings with other gates, as `with_workspace` does."""
    told = "# when you decide about a story: docs/how-to/reviews.md"
    return _with(text, "gates", gates, [f"gates: {gates}  {told}\n"])


def _with(text: str, key: str, value: object, block: list[str]) -> str | None:
    read = yamltext.load(text, SETTINGS)
    data = read.data if isinstance(read.data, Mapping) else {}
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    begin = end = len(lines)
    if key in data:
        begin = read.lines[key] - 1
        ends = (
            at for at, line in enumerate(lines[begin + 1 :], begin + 1) if not line.startswith((" ", "\t"))
        )
        end = next(ends, len(lines))
    changed = "".join((*lines[:begin], *block, *lines[end:]))
    try:
        return changed if settings_in(changed) == settings_in(text).model_copy(update={key: value}) else None
    except InvalidFile:
        return None


def _block(place: StoryWorkspace) -> list[str]:
    """Return the lines of a workspace; what is as always is left out."""
    what = "  # where stories work: docs/how-to/clones.md\n"
    given = {name: getattr(place, name) for name in ("link", "setup", "setup_min")}
    told = {name: value for name, value in given.items() if value != getattr(_USUAL, name)}
    if not told:
        return [f"workspace: {place.kind}{what}"]
    rest = [f"  {name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in told.items()]
    return [f"workspace:{what}", f"  kind: {place.kind}\n", *rest]


_USUAL = StoryWorkspace()


def layers_of(root: str) -> tuple[Layer, ...]:
    """Return the layers of a project's step table, lowest first. Raises InvalidFile, StoreError."""
    own = _text(Path(root), RULES)
    layers = shipped_layers(settings_of(root).preset)
    return layers if own is None or not own.strip() else (*layers, Layer(RULES, own))


def table_of(root: str) -> RuleBook:
    """Return a project's step table as its files say.

    Raises InvalidFile, also for its settings and templates, and StoreError.
    """
    settings, layers = settings_of(root), layers_of(root)
    instructed = templates_for(root).instructed() if layers[-1].file == RULES else frozenset()
    return book_of(layers, instructed, settings.gates, settings.identical_ends)


def book_of(
    layers: tuple[Layer, ...],
    instructed: frozenset[str] = frozenset(),
    gates: Gates = "before",
    identical_ends: int = IDENTICAL_ENDS,
) -> RuleBook:
    """Return the table that `layers` make, as `build_rulebook` does."""
    return _book_of(layers, instructed, gates, identical_ends)


# Projects that say the same share what it means: most have no table, many are copies of each other.
@lru_cache(maxsize=32)
def _book_of(
    layers: tuple[Layer, ...], instructed: frozenset[str], gates: Gates, identical_ends: int
) -> RuleBook:
    return build_rulebook(layers, instructed=instructed, gates=gates, identical_ends=identical_ends)


@lru_cache(maxsize=32)
def settings_in(text: str | None) -> ProjectSettings:
    """Return the settings that the text of a project's file makes. Raises InvalidFile."""
    return load_project(text, SETTINGS)


@lru_cache(maxsize=8)
def shipped_layers(preset: str | tuple[str, ...] | None) -> tuple[Layer, ...]:
    """Return the shipped step table, with presets above it, in order. Raises InvalidFile for others."""
    table = shared("config", "step-rules.yaml")
    layers = [Layer("config/step-rules.yaml", table.read_text("utf-8"))]
    known = sorted(path.stem for path in shared("config", "presets").glob("*.yaml"))
    for name in (preset,) if isinstance(preset, str) else preset or ():
        if name not in known:
            message = f"there is no preset {name!r}"
            raise InvalidFile((Problem(file=SETTINGS, key="preset", message=message, allowed=tuple(known)),))
        text = shared("config", "presets", f"{name}.yaml").read_text("utf-8")
        layers.append(Layer(f"config/presets/{name}.yaml", text))
    return tuple(layers)


# --- prompt templates --------------------------------------------------------------------------------
PROMPTS = ".ai/prompts"
MAX_TEMPLATE_BYTES = 64 * 1024
MOST_TEMPLATES = 100
MOST_FOLDERS = 100


def templates_for(root: str | None) -> PromptTemplates:
    """Return the templates that apply to a project; for None the shipped ones.

    Raises StoreError when its own cannot be read.
    """
    if root is None:
        return _shipped()
    own: dict[str, str] = {}
    files: dict[str, str] = {}
    for name in _own_names(root):
        seen = read_project_file(Path(root), f"{PROMPTS}/{name}", MAX_TEMPLATE_BYTES)
        if seen is not None:
            own[name] = seen.content.decode("utf-8", errors="replace")
            files[name] = f"{PROMPTS}/{name}"
    if not own:
        return _shipped()
    return PromptTemplates.layered(_shipped_texts(), own, files=files)


@lru_cache
def warmed(language: Language) -> float:
    """Compile the shipped templates of `language`; return how many seconds of a processor that took.

    The first prompt after a start then need not wait for it. And it is the same work on every machine, so
    it tells how slow this one is.
    """
    templates, began = _shipped(), time.thread_time()
    for name in templates.by_name:
        if name.startswith(f"{language}/"):
            templates.environment.get_template(name)
    return time.thread_time() - began


def _own_names(root: str) -> list[str]:
    """Return the paths of a project's templates below its folder, which may be anything: a link to `/`."""
    found: list[str] = []
    with open_parent(Path(root), f"{PROMPTS}/any") as folder:
        walk = () if folder is None else os.fwalk(".", dir_fd=folder)
        for place, below, names, _ in islice(walk, MOST_FOLDERS):
            below.sort()
            found += [str(PurePath(place, name)) for name in names if name.endswith(".j2")]
    return sorted(found)[:MOST_TEMPLATES]


@lru_cache(maxsize=1)
def _shipped() -> PromptTemplates:
    return PromptTemplates.layered(_shipped_texts())


@lru_cache(maxsize=1)
def _shipped_texts() -> Mapping[str, str]:
    folder = shared("config", "prompts")
    return {str(path.relative_to(folder)): path.read_text("utf-8") for path in folder.rglob("*.j2")}
