"""The copy of a project that a rehearsal works on: as the project is, without its story in flight.

Nothing in it may lead back: links are copied as links, and the copy's own files are written like
those of any project, which refuses to follow one.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Any

from handoffd.api.init_project import SETTINGS, prepare_project
from handoffd.errors import HandoffdError
from handoffd.files.rooted import read_project_file, write_project_file
from handoffd.protocol.yamltext import MAX_BYTES

SCRIPT = ".ai/rehearsal.json"

_LEFT_OUT = ("STATE.json", "HANDOFF.md", "executor-result", "states", "runs", "CHECKLIST.md")
"""Of `.ai`: what belongs to the story in flight, which the rehearsal does not take up."""


def copy_project(source: Path, target: Path, script: str | None) -> None:
    """Make a copy of a project that rehearses: initialised, and with the rehearsal as its executor.

    `script` is the text that tells the rehearsal how to misbehave. The project's settings must be
    valid. Raises HandoffdError; what was copied until then stays.
    """
    try:
        shutil.copytree(source, target, symlinks=True, ignore=_left_out_of(source, target))
    except OSError as error:  # shutil's own error is one, too
        file, why = _first_failure(error, source)
        raise HandoffdError(
            f"{source} cannot be copied: {file}: {why}", code="NOT_COPIED", hint=f"ls -ld {quote(file)}"
        ) from error
    prepare_project(str(target))  # it detects the tests only while there are no settings
    _choose_rehearsal(target)
    if script is not None:
        write_project_file(target, SCRIPT, script)


def skip_tests(copy: Path, story: str) -> str | None:
    """Have the tests of a copy not measured where the rehearsal writes none; return why, in words.

    Measured all the same, no step that is to add failing tests would ever pass.
    """
    from handoffd.rehearsal.assignment import Assignment
    from handoffd.rehearsal.coding import plan_for
    from handoffd.rehearsal.workspace import Workspace

    why = plan_for(Workspace(str(copy)), Assignment("scaffold", story, 1, None, ""))
    if not isinstance(why, str) or not _changed(copy, lambda document: document.pop("test", None)):
        return None
    return why


def _left_out_of(source: Path, target: Path) -> Any:
    """Return what `copytree` asks: the story in flight, special files, and the copy itself."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        special = {name for name in names if not _is_ordinary(os.path.join(folder, name))}
        in_flight = set(names) & set(_LEFT_OUT) if Path(folder) == source / ".ai" else set()
        return special | in_flight | {name for name in names if Path(folder, name) == target.parent}

    return left_out


def _is_ordinary(path: str) -> bool:
    """Tell files, folders and links from pipes and devices; `copytree` complains of what cannot be seen."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _first_failure(error: OSError, source: Path) -> tuple[str, str]:
    """Return the file that could not be copied, and why; `copytree` goes on and collects them."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        file, _, why = error.args[0][0]
        return str(file), str(why)
    return str(error.filename or source), error.strerror or str(error)


def _choose_rehearsal(project: Path) -> None:
    """Set `executor: rehearsal` in a project's settings, leaving everything else as it is."""
    _changed(project, lambda document: document.update(executor="rehearsal"))


def _changed(project: Path, change: Callable[[Any], Any]) -> Any:
    """Have `change` work on a project's settings as they are written; return what it returns."""
    from ruamel.yaml import YAML

    seen = read_project_file(project, SETTINGS, MAX_BYTES)
    yaml = YAML(typ="rt")
    document: Any = yaml.load(seen.content.decode("utf-8-sig")) if seen is not None else None
    if document is None:
        document = {}
    result = change(document)
    output = io.StringIO()
    yaml.dump(document, output)
    write_project_file(project, SETTINGS, output.getvalue())
    return result
