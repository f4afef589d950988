"""What `init` puts into a project.

It never overwrites what is there: settings are written once, and the pointer for agents is a marked
block that is replaced as a whole.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from handoffd.api.arguments import BAD_ARGUMENT
from handoffd.engine.wording import command_for
from handoffd.errors import Refused, StoreError
from handoffd.files.rooted import read_project_file, write_project_file
from handoffd.inspection.discovery import unfit
from handoffd.inspection.finished import archived
from handoffd.inspection.suites import Suite, Suites, command_for_all, find_suites
from handoffd.settings.loading import load_project

MAX_BYTES = 1024 * 1024
BEGIN = "<!-- handoffd: begin -->"
END = "<!-- handoffd: end -->"
SETTINGS = ".ai/handoffd.yaml"
POINTER = "CLAUDE.md"
_OFFERED = 5
EXPECTED = ("PROJECT_CONTEXT.md", "PROJECT_MEMORY.md")

_POINTER = f"""{BEGIN}
## How work goes here

This project is worked on step by step, by hand-offs. Do only the step you were given, then write
`.ai/HANDOFF.md` as your prompt describes. Never edit `.ai/STATE.json`, `.ai/step-rules.yaml` or
`.ai/handoffd.yaml`: the orchestrator and the people who run it own them.
{END}
"""

_BLOCK = re.compile(re.escape(BEGIN) + r".*?" + re.escape(END) + r"\n?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What was written into a project, what it lacks of what is expected, and what tests it.

    `test_command` is what the project's settings name, found now or written before; None: nothing. `others`
    are tests that were found and that it does not run, as far as the settings are not a person's own.
    """

    created: tuple[str, ...]
    missing: tuple[str, ...]
    test_command: tuple[str, ...] | None
    others: tuple[Suite, ...] = ()


def check_project(root: str, state_dir: Path, name: str | None = None) -> None:
    """See to it that a folder can be a project, called `name` if that is given. Writes nothing.

    Raises Refused (BAD_ARGUMENT) for a place that is the system's, a person's or ours as a whole, and for a
    name that is no name.
    """
    hint = command_for("PROJECT", "init")
    if (why := unfit(root, state_dir)) is not None:
        raise Refused(f"{root} can be no project: {why}", code=BAD_ARGUMENT, hint=hint)
    if name is not None and not name.strip():
        raise Refused("name is blank: a project needs one", code=BAD_ARGUMENT, hint=hint)


def prepare_project(root: str) -> Prepared:
    """Write what a project needs to be supervised, where it is missing. Raises StoreError, InvalidFile."""
    found = find_suites(Path(root))
    created = []
    if _write_settings(root, found):
        created.append(SETTINGS)
    with suppress(StoreError):  # often a link to another tool's file: not ours to replace
        if _write_pointer(root):
            created.append(POINTER)
    missing = tuple(name for name in EXPECTED if not Path(root, name).is_file())
    command = _test_command(root)
    others = found.others if SETTINGS in created or command is None else ()
    if command is None and found.chosen is not None:  # the settings are a person's, and name none
        others = (found.chosen, *others)
    return Prepared(created=tuple(created), missing=missing, test_command=command, others=others)


def _test_command(root: str) -> tuple[str, ...] | None:
    seen = read_project_file(Path(root), SETTINGS, MAX_BYTES)
    text = None if seen is None else seen.content.decode("utf-8", errors="replace")
    return load_project(text, SETTINGS).test.command


def is_bootstrapped(root: str) -> bool:
    """Return whether the project has what a bootstrap would make first, or has had a story by its archive."""
    return Path(root, "PROJECT_CONTEXT.md").is_file() or bool(archived(root))


def _write_settings(root: str, found: Suites) -> bool:
    if read_project_file(Path(root), SETTINGS, MAX_BYTES) is not None:
        return False
    write_project_file(Path(root), SETTINGS, settings_text(found))
    return True


def settings_text(found: Suites) -> str:
    """Return a first `.ai/handoffd.yaml`, with the test command that was found, or a place for one."""
    lines = [
        "# What handoffd does in this project. Every setting: docs/settings.md",
        "# auto: true               # dispatch by itself as soon as the project is added",
        "# executor: claude",
        "# preset: with-commit      # or: go, web",
    ]
    if found.chosen is None:
        return "\n".join([*lines, *_place_for_tests(found.others), ""])
    test = found.chosen.settings
    lines += ["test:", f"  command: {json.dumps(list(test.command or ()))}", f"  report: {test.report}"]
    if test.exclude_argument:
        lines.append(f"  exclude_argument: {json.dumps(test.exclude_argument)}")
    return "\n".join([*lines, ""])


def _place_for_tests(below: tuple[Suite, ...]) -> list[str]:
    """Return the lines in which a person names the command, filled in with what is below the root."""
    if not below:
        return ["# test:", "#   command: [make, test]", "#   report: exit"]
    return [
        "# Tests were found below this folder only. One command runs all that count, for instance:",
        "# test:",
        f"#   command: {json.dumps(list(command_for_all(below[:_OFFERED])))}",
        "#   report: exit",
    ]


def _write_pointer(root: str) -> bool:
    seen = read_project_file(Path(root), POINTER, MAX_BYTES)
    text = seen.content.decode("utf-8", errors="surrogateescape") if seen is not None else ""
    wanted = _BLOCK.sub("", text).rstrip("\n")
    wanted = f"{wanted}\n\n{_POINTER}" if wanted else _POINTER
    if wanted == text:
        return False
    write_project_file(Path(root), POINTER, wanted.encode("utf-8", errors="surrogateescape"))
    return True
