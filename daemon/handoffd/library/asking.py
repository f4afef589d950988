"""Where a project lies, and asking about it as this process's environment says."""

from __future__ import annotations

import os
from typing import Any

from handoffd.api.client import Json
from handoffd.entrance import offline, peeking
from handoffd.entrance.asking import either, give
from handoffd.entrance.place import Place
from handoffd.errors import NotFound
from handoffd.inspection.project_status import parsed_state

Root = str | os.PathLike[str]
"""A project's folder; a relative one is taken from where the process is."""


def path_of(root: Root) -> str:
    """Return the absolute path of a project's folder."""
    return os.path.abspath(os.path.expanduser(os.fspath(root)))


def place() -> Place:
    """Return where the daemon is looked for: where the command line does."""
    return Place(config=os.environ.get("HANDOFFD_CONFIG"), environ=os.environ)


def verb(name: str, root: Root, /, **arguments: Any) -> Json:
    """Return what became of a verb; arguments that are None are left out. Raises HandoffdError.

    A folder with a STATE.json that is not supervised yet is added for it, at level 1.
    """
    given = {key: value for key, value in arguments.items() if value is not None}
    path = path_of(root)
    try:
        return give(place(), name, path, given).json
    except NotFound:
        if not _has_state(path):
            raise
    give(place(), "add", path, {})
    return give(place(), name, path, given).json


def peeked(root: Root) -> Json:
    """Return what the next turn of a project would do; of one that is not supervised, by its files.

    Raises HandoffdError.
    """
    at, path = place(), path_of(root)
    try:
        return either(
            at,
            lambda client: client.get("/v1/peek", project=path),
            lambda: offline.alone(at.settings(), lambda service: service.peek(path)),
        ).json
    except NotFound:
        if not _has_state(path):
            raise
    return peeking.peek(path, at.settings().language)


def _has_state(path: str) -> bool:
    """Return whether a folder has a STATE.json. Raises InvalidFile for one that means nothing, StoreError."""
    return os.path.isdir(path) and parsed_state(path) is not None
