"""The prompt templates in force for a project: the shipped ones, with its own over them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePath

from handoffd.protocol.prompt import PromptTemplates
from handoffd.protocol.rules import Language
from handoffd.settings.paths import shared
from handoffd.store.rooted import open_parent, read_project_file

PROMPTS = ".ai/prompts"
MAX_TEMPLATE_BYTES = 64 * 1024
MOST_TEMPLATES = 100
MOST_FOLDERS = 100


def templates_for(root: str | None) -> PromptTemplates:
    """Return the templates in force for a project; for None the shipped ones.

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
