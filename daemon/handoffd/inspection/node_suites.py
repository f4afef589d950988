"""The tests of a JavaScript project: which program runs its scripts, what its test script is, what reports.

A script is started as the package says. Arguments that have it write a report are added only where
they reach the runner itself: after a build, in a chain or a pipe, a failure before the tests would
look like a missing report, and the exit code alone is read.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from handoffd.errors import InvalidFile
from handoffd.execute.checks import read_bounded
from handoffd.protocol.yamltext import load
from handoffd.settings.model import TestSettings

MANIFEST: Final = "package.json"
MAX_MANIFEST_BYTES: Final = 1024 * 1024
MOST_MEMBERS: Final = 500

_LOCKS: Final = {
    "pnpm-lock.yaml": "pnpm", "pnpm-workspace.yaml": "pnpm", "yarn.lock": "yarn", ".yarnrc.yml": "yarn",
    "bun.lock": "bun", "bun.lockb": "bun", "package-lock.json": "npm", "npm-shrinkwrap.json": "npm",
}  # fmt: skip
_MANAGERS: Final = frozenset(_LOCKS.values())
_NOTHING: Final = re.compile(r"\s*(?:(?:echo\b[^&|;]*|exit(?:\s+\d+)?|true|:)\s*(?:&&|\|\||;|$)\s*)*")
"""A script that says or ends something and tests nothing, such as the one `npm init` writes."""
_FOR_A_SHELL: Final = re.compile(r"[;&|<>$`()\\\n]")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_PATTERN: Final = re.compile(r"[*?\[\]{}!~]")
_TEST_FILE: Final = re.compile(r"(?:.*[.\-_])?test\.[cm]?js", re.DOTALL)
_JEST: Final = re.compile(r"(?:.*/)?jest(?:\.js)?")
_VITEST: Final = re.compile(r"(?:.*/)?vitest(?:\.mjs)?")

_JEST_REPORT: Final = ("--passWithNoTests", "--json", "--outputFile={report}")
_VITEST_REPORT: Final = ("--passWithNoTests", "--reporter=junit", "--outputFile={report}")
_NODE_REPORT: Final = ("--test-reporter=tap", "--test-reporter-destination={report}")

Tests = tuple[tuple[str, ...], TestSettings]
"""What a person would type, and how handoffd runs the same."""


def suite_of_package(folder: Path, names: frozenset[str]) -> Tests | None:
    """Return how a package is tested, or all members of its workspace; None where nothing says so."""
    package = _manifest(folder)
    manager = _manager(package, names)
    if package is not None and (script := _script(package)) is not None:
        typed = ("bun", "run", "test") if manager == "bun" else (manager, "test")
        return typed, _of_script(manager, typed, package, script)
    if package is not None and (chosen := _of_workspace(folder, manager, package)) is not None:
        return chosen
    for runner in ("vitest", "jest"):
        if package is not None and _depends_on(package, runner):
            return _of_runner(manager, runner)
    if _has_node_tests(folder, names):
        return ("node", "--test"), _reported("tap", "node", "--test", *_NODE_REPORT)
    return None


def runner_missing(folder: Path, command: Sequence[str]) -> str | None:
    """Return the runner that a command of a package's tests starts, if the package names it and has none.

    It is looked for where npm, pnpm, yarn and bun put it: in the package, or above.
    """
    package = _manifest(folder)
    if package is None or any((place / ".pnp.cjs").exists() for place in (folder, *folder.parents)):
        return None
    words = [word for word in command[1:] if word not in {"run", "exec", "--no-install"}]
    script = _script(package) if words[:1] == ["test"] else None
    runner = next(iter(words if script is None else _words(script)), "")
    if "/" in runner or not _depends_on(package, runner):
        return None
    places = (place / "node_modules/.bin" / runner for place in (folder, *folder.parents))
    return None if any(map(os.path.lexists, places)) else runner


def _manifest(folder: Path) -> Mapping[str, Any] | None:
    """Return what package.json says; None where there is none that can be used."""
    body = read_bounded(folder / MANIFEST, MAX_MANIFEST_BYTES + 1)
    if body is None or len(body) > MAX_MANIFEST_BYTES:
        return None
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _manager(package: Mapping[str, Any] | None, names: frozenset[str]) -> str:
    """Return the program that the package itself names, else the one whose lock file is there."""
    named = str((package or {}).get("packageManager")).partition("@")[0]
    if named in _MANAGERS:
        return named
    return next((manager for lock, manager in _LOCKS.items() if lock in names), "npm")


def _script(package: Mapping[str, Any]) -> str | None:
    scripts = package.get("scripts")
    script = scripts.get("test") if isinstance(scripts, dict) else None
    return script if isinstance(script, str) and not _tests_nothing(script) else None


def _tests_nothing(script: str) -> bool:
    return "no test specified" in script or _NOTHING.fullmatch(script[:1000]) is not None


def _of_script(manager: str, typed: tuple[str, ...], package: Mapping[str, Any], script: str) -> TestSettings:
    alone = TestSettings(command=typed)
    if _FOR_A_SHELL.search(script) or {"pretest", "posttest"} & package["scripts"].keys():
        return alone
    words = _words(script)
    if not words:
        return alone
    runner, given = words[0], words[1:]
    asked = ("npm", "test", "--") if manager == "npm" else (manager, "run", "test")
    if runner == "react-scripts" and given[:1] == ["test"]:
        return _reported("jest", *asked, "--watchAll=false", *_JEST_REPORT)
    if _JEST.fullmatch(runner):
        return _reported("jest", *asked, *_JEST_REPORT)
    if _VITEST.fullmatch(runner):
        once = () if given[:1] == ["run"] or "--run" in given else ("--run",)
        return _reported("junit", *asked, *once, *_VITEST_REPORT)
    if runner == "node" and "--test" in given:
        return _of_node(asked, script, given) or alone
    return alone


def _words(script: str) -> list[str]:
    """Return the words of a script from its runner on; what only sets the scene for it is left out."""
    try:
        words = shlex.split(script)
    except ValueError:
        return []
    while words and (_ASSIGNMENT.fullmatch(words[0]) or words[0] in {"cross-env", "npx"}):
        del words[0]
    if words[:1] == ["node"]:
        program = next((at for at, word in enumerate(words) if at and not word.startswith("-")), 0)
        if program and (_JEST.fullmatch(words[program]) or _VITEST.fullmatch(words[program])):
            return words[program:]
    return words


def _of_node(asked: tuple[str, ...], script: str, given: list[str]) -> TestSettings | None:
    """Return how node's own tests are run; after the files that it names it reads no more options."""
    if all(word.startswith("-") for word in given):
        return _reported("tap", *asked, *_NODE_REPORT)
    if not script.startswith("node ") or any(map(_PATTERN.search, given)):
        return None
    at = given.index("--test") + 1
    return _reported("tap", "node", *given[:at], *_NODE_REPORT, *given[at:])


def _of_runner(manager: str, runner: str) -> Tests:
    starts = {"npm": ("npx", "--no-install"), "pnpm": ("pnpm", "exec")}.get(manager, (manager, "run"))
    if runner == "jest":
        return (*starts, runner), _reported("jest", *starts, runner, *_JEST_REPORT)
    return (*starts, runner, "run"), _reported("junit", *starts, runner, "run", *_VITEST_REPORT)


def _depends_on(package: Mapping[str, Any], name: str) -> bool:
    sections = (package.get(key) for key in ("devDependencies", "dependencies"))
    return any(isinstance(section, dict) and name in section for section in sections)


def _reported(report: Any, *command: str) -> TestSettings:
    return TestSettings(command=command, report=report)


# --- workspaces ------------------------------------------------------------------------------------


def _of_workspace(folder: Path, manager: str, package: Mapping[str, Any]) -> Tests | None:
    """Return what tests all members that have a test script, where each of these is a real one."""
    commands = {
        "npm": ("npm", "test", "--workspaces", "--if-present"),
        "pnpm": ("pnpm", "--recursive", "run", "test"),
    }
    command = commands.get(manager)
    if command is None:
        return None
    members = [_manifest(member) or {} for member in _members(folder, manager, package)]
    scripts = [member["scripts"]["test"] for member in members if _has_script(member)]
    if not scripts or any(not isinstance(script, str) or _tests_nothing(script) for script in scripts):
        return None
    return command, TestSettings(command=command)


def _has_script(member: Mapping[str, Any]) -> bool:
    scripts = member.get("scripts")
    return isinstance(scripts, dict) and "test" in scripts


def _members(folder: Path, manager: str, package: Mapping[str, Any]) -> Iterator[Path]:
    patterns = _pnpm_patterns(folder) if manager == "pnpm" else package.get("workspaces")
    if isinstance(patterns, dict):
        patterns = patterns.get("packages")
    if not isinstance(patterns, list):
        return
    wanted = [one for one in patterns[:100] if isinstance(one, str) and not one.startswith("!")]
    found = (member for pattern in wanted for member in _expanded(folder, pattern))
    yield from islice(found, MOST_MEMBERS)


def _pnpm_patterns(folder: Path) -> object:
    body = read_bounded(folder / "pnpm-workspace.yaml", MAX_MANIFEST_BYTES + 1)
    if body is None or len(body) > MAX_MANIFEST_BYTES:
        return None
    try:
        data = load(body, "pnpm-workspace.yaml").data
    except InvalidFile:
        return None
    return data.get("packages") if isinstance(data, dict) else None


def _expanded(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield the folders that a pattern of a workspace means; `**` counts as one level. Follows no link."""
    parts = [part for part in pattern.split("/") if part not in {"", "."}]
    if ".." in parts or pattern.startswith("/") or len(parts) > 5:
        return
    pending = [(folder, 0)]
    while pending:
        place, depth = pending.pop()
        if depth == len(parts):
            yield place
            continue
        expression = re.compile(".*".join(map(re.escape, re.split(r"\*+", parts[depth]))), re.DOTALL)
        names = reversed(folders_in(place, MOST_MEMBERS))
        pending += [(Path(place, name), depth + 1) for name in names if expression.fullmatch(name)]


def folders_in(place: Path, most: int) -> list[str]:
    """Return the folders of a place that may be a project's own, by name; of `most` entries, and no links."""
    try:
        with os.scandir(place) as entries:
            names = [one.name for one in islice(entries, most) if one.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(name for name in names if name != "node_modules" and name[0] != ".")


# --- node's own runner -----------------------------------------------------------------------------


def _has_node_tests(folder: Path, names: frozenset[str]) -> bool:
    """Whether a test file, beside the package or in its folder `test`, asks for `node:test`."""
    below = [f"test/{name}" for name in _scripts_in(folder / "test")] if "test" in names else []
    files = [*sorted(name for name in names if _TEST_FILE.fullmatch(name)), *below]
    bodies = (read_bounded(folder / name, 64 * 1024) or b"" for name in files[:20])
    return any(b"node:test" in body for body in bodies)


def _scripts_in(folder: Path) -> list[str]:
    if folder.is_symlink():
        return []
    try:
        with os.scandir(folder) as entries:
            return sorted(one.name for one in islice(entries, 200) if re.search(r"\.[cm]?js$", one.name))
    except OSError:
        return []
