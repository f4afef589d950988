"""What a project calls itself, by the manifests that lie at its root."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

from handoffd.errors import StoreError
from handoffd.store.rooted import read_project_file

MAX_BYTES = 1024 * 1024


def project_name(root: str) -> str:
    """Return what a project calls itself: package.json, pyproject.toml, go.mod, Cargo.toml, the folder."""
    for file, reader in _NAMES:
        try:
            seen = read_project_file(Path(root), file, MAX_BYTES)
            name = reader(seen.content.decode("utf-8")) if seen is not None else None
        except (StoreError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # somebody else's file; that it is a link or broken is not our business
        if isinstance(name, str) and name.strip() and name.isprintable():
            return name.strip()[:100]
    return Path(root).name


def _from_package_json(text: str) -> object:
    return json.loads(text).get("name")


def _from_pyproject(text: str) -> object:
    table = tomllib.loads(text)
    return table.get("project", {}).get("name") or table.get("tool", {}).get("poetry", {}).get("name")


def _from_go_mod(text: str) -> object:
    found = re.search(r"^module\s+(\S+)", text, re.MULTILINE)
    return found[1].rsplit("/", 1)[-1] if found else None


def _from_cargo(text: str) -> object:
    return tomllib.loads(text).get("package", {}).get("name")


_NAMES: tuple[tuple[str, Callable[[str], object]], ...] = (
    ("package.json", _from_package_json),
    ("pyproject.toml", _from_pyproject),
    ("go.mod", _from_go_mod),
    ("Cargo.toml", _from_cargo),
)
