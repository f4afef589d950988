"""The copy of a project that is rehearsed, and the settings of the daemon that works on it.

Afterwards hints would lead to the copy, so problems with a project are reported before it is made.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Any

from handoffd.api.folders import SETTINGS, prepare_project
from handoffd.doctor.machine import SandboxFacts, sandbox_facts
from handoffd.errors import HandoffdError, remedies
from handoffd.files.rooted import read_project_file, write_project_file
from handoffd.protocol.yamltext import MAX_BYTES, load
from handoffd.settings.model import SandboxSettings


@contextmanager
def new_folder() -> Iterator[Path]:
    """Lend a folder that stays, unless what is done in it first fails."""
    base = Path(tempfile.mkdtemp(prefix="handoffd-rehearsal-"))
    try:
        yield base
    except BaseException:
        shutil.rmtree(base, ignore_errors=True)
        raise


def own_settings() -> dict[str, Any]:
    """Return the user's settings that matter here: sinks, the groups their routes name, the language."""
    from handoffd.settings.loading import load

    with remedies("/"):
        settings = load().settings
    wanted = settings.model_dump(mode="json", include={"notify", "language", "execute"})
    groups = settings.model_dump(mode="json", include={"scheduling": {"groups"}})["scheduling"]
    scheduling = {**groups, "min_free_memory_mb": 0}  # a rehearsal takes next to none
    sandbox = sandbox_here(settings.sandbox)
    return {
        **wanted,
        "executor": "rehearsal",
        "sandbox": sandbox,
        "schedule": {"poll_s": 1},
        "scheduling": scheduling,
        "executors": played_by_us(settings.executors),
    }


def played_by_us(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return every agent as the rehearsal, so that none works where rules or roles name one.

    Their program is not a placeholder: `auto` takes one that has such a program for no agent.
    """
    from handoffd.execute.registry import is_own, load_book, shipped_layer

    book = load_book(shipped_layer())
    agents = {name for name, one in book.executors.items() if one.argv and not is_own(one)}
    argv = [sys.executable, "-I", "-m", "handoffd.rehearsal"]
    names = sorted((agents | {*own}) - {"rehearsal", "rehearsal-stream", "command"})
    return {name: {"extends": "rehearsal", "argv": argv, "account": name} for name in names}


def sandbox_here(
    wanted: SandboxSettings, try_out: Callable[[SandboxSettings], SandboxFacts] = sandbox_facts
) -> dict[str, Any]:
    """Return the settings of a sandbox that can be made here: `wanted`, else none, which is reported.

    A daemon would start no agent then; but it is our script that plays the agent.
    """
    from handoffd.cli.story.player import progress

    if try_out(wanted).why is None:
        return wanted.model_dump(mode="json")
    progress.print("This system forbids the sandbox: the script works without; an agent would not start.")
    return {"level": "off"}


# --- the copy -----------------------------------------------------------------------------------------
# The project as it is now, without its story in flight. Links are copied as links, and writing the copy's own
# files never follows a link, so nothing in the copy can write to the project.
SCRIPT = ".ai/rehearsal.json"

_LEFT_OUT = (
    "STATE.json", "HANDOFF.md", "executor-result", "states", "runs", "CHECKLIST.md", "flows", "task.json",
)  # fmt: skip
"""Files of `.ai` that belong to the story in flight, which the rehearsal leaves out."""


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

    Otherwise a step that must add failing tests could never pass.
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


def _choose_rehearsal(copy: Path) -> None:
    """Set `executor: rehearsal` in the settings of a copy."""
    _changed(copy, lambda document: document.update(executor="rehearsal"))


def _changed(copy: Path, change: Callable[[Any], Any]) -> Any:
    """Have `change` work on the settings of a copy; return what it returns. Comments are lost."""
    import yaml

    seen = read_project_file(copy, SETTINGS, MAX_BYTES)
    document = load(seen.content, SETTINGS).data if seen is not None else None
    document = {} if document is None else document
    result = change(document)
    write_project_file(copy, SETTINGS, yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    return result
