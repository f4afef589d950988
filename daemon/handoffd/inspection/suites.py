"""Which tests a project has, told by the files of its root, and how handoffd would run them.

Files are looked up and the small ones read, nothing is run. Tests in the root are proposed; below it there
may be several, and a person decides which of them count: a wrong command is worse than none. All files
may be hostile.

The test script of a JavaScript project is started as the package says. Arguments that have it write a
report are added only where they reach the runner itself: after a build, in a chain or a pipe, a failure
before the tests would look like a missing report, and the exit code alone is read.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from shlex import join, quote
from typing import Any, Final

from msgspec import Struct

from handoffd.errors import InvalidFile
from handoffd.execute.checks import read_bounded
from handoffd.protocol.yamltext import load
from handoffd.settings.model import TestSettings

# --- Node --------------------------------------------------------------------------------------------
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
_LONGEST_SCRIPT: Final = 16 * 1024
"""To split a longer one into words takes seconds."""
_STRING: Final = re.compile(r"""\"(?:[^"\\\n]|\\.)*+\"?|'[^'\n]*+'?""")
_LONG_KEY: Final = re.compile(r"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){32}")
"""Of TOML: a key of thousands of parts takes tomllib the square of their number."""
_FOR_A_SHELL: Final = re.compile(r"[;&|<>$`()\\\n]")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_PATTERN: Final = re.compile(r"[*?\[\]{}!~]")
_NODE_TEST_FILE: Final = re.compile(r"(?:.*[.\-_])?test\.[cm]?js", re.DOTALL)
_JEST: Final = re.compile(r"(?:.*/)?jest(?:\.js)?")
_VITEST: Final = re.compile(r"(?:.*/)?vitest(?:\.mjs)?")

_JEST_REPORT: Final = ("--passWithNoTests", "--json", "--outputFile={report}")
_VITEST_REPORT: Final = ("--passWithNoTests", "--reporter=junit", "--outputFile={report}")
_NODE_REPORT: Final = ("--test-reporter=tap", "--test-reporter-destination={report}")

Tests = tuple[tuple[str, ...], TestSettings]
"""What a person would type, and how handoffd runs the same."""


def suite_of_package(folder: Path, names: frozenset[str]) -> Tests | None:
    """Return how a package is tested, or all members of its workspace; None if no file names a test."""
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
    if len(script) > _LONGEST_SCRIPT:
        return []
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
    files = [*sorted(name for name in names if _NODE_TEST_FILE.fullmatch(name)), *below]
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


# --- the suites of a project -------------------------------------------------------------------------
MOST_NAMES: Final = 20_000
MOST_FOLDERS: Final = 300
MOST_FOUND: Final = 20
_DEPTH: Final = 2
_MAX_BYTES: Final = 1024 * 1024

_PYTHON_PROJECT: Final = frozenset({"pyproject.toml", "setup.py", "setup.cfg", "tox.ini"})
_TEST_FILE: Final = re.compile(r"test_.*\.py|.*_test\.py", re.DOTALL)
_SUREFIRE: Final = "**/target/surefire-reports/TEST-*.xml"
_OF_GRADLE: Final = "**/build/test-results/test/TEST-*.xml"
_GRADLE: Final = frozenset({"build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"})
_MAKEFILES: Final = ("GNUmakefile", "makefile", "Makefile")  # in make's own order
_RULE: Final = re.compile(r"^(?P<targets>[^\s#:=][^#:=\n]{0,1000}?)[ \t]*:(?::(?!=)|(?![:=]))", re.MULTILINE)
_USE: Final = re.compile(r"^[ \t]*use\s*(?:\((?P<many>[^()]*)\)|(?P<one>\S+))", re.MULTILINE)
_PLAIN_PATH: Final = re.compile(r"(?!/)[\w./@+-]+")
_NOT_LOOKED_INTO: Final = frozenset(
    {
        "__pycache__", "build", "dist", "env", "examples", "fixtures", "out", "target",
        "testdata", "third_party", "vendor", "venv",
    }
)  # fmt: skip


class Suite(Struct, frozen=True, kw_only=True):
    """Tests that were found: in which folder of the project, what a person types there, how they are run.

    `folder` is `.` for the project's root; only there the settings can be used as they are.
    """

    folder: str
    typed: tuple[str, ...]
    settings: TestSettings


class Suites(Struct, frozen=True, kw_only=True):
    """What was found: the tests that are proposed, and others that nothing would run then."""

    chosen: Suite | None = None
    others: tuple[Suite, ...] = ()


def find_suites(root: Path) -> Suites:
    """Return the tests of a project: of its root, else of the folders below it."""
    found = list(_in_folder(root, "."))
    if found:
        return Suites(chosen=found[0], others=tuple(found[1:]))
    return Suites(others=tuple(islice(_below(root), MOST_FOUND)))


def command_for_all(suites: Sequence[Suite]) -> tuple[str, ...]:
    """Return one command that runs tests of several folders, one after the other, until some fail."""
    steps = [f"(cd {quote(one.folder)} && {join(one.typed)})" for one in suites]
    return ("sh", "-c", " && ".join(steps))


Finder = Callable[[Path, frozenset[str]], Tests | None]


def _in_folder(folder: Path, shown: str) -> Iterator[Suite]:
    """Yield the tests of one folder by the languages of its manifests, the likeliest first."""
    names = _names(folder)
    found = [tests for find in _BY_MANIFEST if (tests := find(folder, names)) is not None]
    weaker = (tests for find in _WEAKER if (tests := find(folder, names)) is not None)
    for typed, settings in found or islice(weaker, 1):
        yield Suite(folder=shown, typed=typed, settings=settings)


def _below(root: Path) -> Iterator[Suite]:
    """Yield the tests of folders below the root, by name; not folders inside of one that has some."""
    pending: list[tuple[str, ...]] = [(name,) for name in _folders(root)]
    looked = 0
    while pending and looked < MOST_FOLDERS:
        parts = pending.pop(0)
        looked += 1
        folder = root.joinpath(*parts)
        first = next(_in_folder(folder, "/".join(parts)), None)
        if first is not None:
            yield first
        elif len(parts) < _DEPTH:
            pending += [(*parts, name) for name in _folders(folder)]


def _names(folder: Path) -> frozenset[str]:
    try:
        with os.scandir(folder) as entries:
            return frozenset(one.name for one in islice(entries, MOST_NAMES))
    except OSError:
        return frozenset()


def _folders(folder: Path) -> list[str]:
    return [name for name in folders_in(folder, MOST_NAMES) if name not in _NOT_LOOKED_INTO]


def _text(folder: Path, name: str) -> str | None:
    body = read_bounded(folder / name, _MAX_BYTES + 1)
    return None if body is None or len(body) > _MAX_BYTES else body.decode("utf-8", "replace")


def toml_of(text: str) -> dict[str, Any]:
    """Return what a TOML text says. Raises ValueError, also for a key of more parts than a person writes."""
    if _LONG_KEY.search(_STRING.sub("s", text)) is not None:
        raise ValueError("has a key of more than 32 parts")
    return tomllib.loads(text)


def _toml(folder: Path, name: str) -> dict[str, Any]:
    try:
        return toml_of(_text(folder, name) or "")
    except (ValueError, RecursionError):
        return {}  # not ours, and not readable


# --- Python ----------------------------------------------------------------------------------------


def _python(folder: Path, names: frozenset[str]) -> Tests | None:
    if names & {"pytest.ini", "conftest.py"} or "pytest" in _tool_tables(folder, names):
        return _pytest(names)
    likely = names & _PYTHON_PROJECT and names & {"tests", "test"} and "go.mod" not in names
    return _pytest(names) if likely else None


def _python_files(folder: Path, names: frozenset[str]) -> Tests | None:
    beside = (names, *(_names(folder / name) for name in ("tests", "test") if name in names))
    return _pytest(names) if any(_TEST_FILE.fullmatch(one) for there in beside for one in there) else None


def _tool_tables(folder: Path, names: frozenset[str]) -> frozenset[str]:
    tables = _toml(folder, "pyproject.toml").get("tool") if "pyproject.toml" in names else None
    return frozenset(tables) if isinstance(tables, dict) else frozenset()


def _pytest(names: frozenset[str]) -> Tests:
    own = next((folder for folder in (".venv", "venv") if folder in names), None)
    python = f"{own}/bin/python" if own else "python3"
    typed = (python, "-m", "pytest")
    return typed, TestSettings(
        command=(*typed, "-q", "--continue-on-collection-errors", "--junitxml={report}"),
        report="junit",
        exclude_argument="--ignore={file}",
    )


# --- other languages -------------------------------------------------------------------------------


def _go(folder: Path, names: frozenset[str]) -> Tests | None:
    packages = ["./..."] if "go.mod" in names else []
    if not packages and "go.work" in names:
        text = re.sub(r"//.*", "", _text(folder, "go.work") or "")
        used = [
            word.strip("\"'`")
            for one in _USE.finditer(text)
            for word in (one["many"] or one["one"] or "").split()
        ]
        inside = [path for path in used if _PLAIN_PATH.fullmatch(path) and ".." not in path.split("/")]
        packages = [f"./{os.path.normpath(path)}/..." for path in inside[:50]]
    if not packages:
        return None
    # Where an agent may write go's cache, a result that comes out of it is the agent's word.
    command = ("go", "test", "-json", "-count=1", *packages)
    return ("go", "test", *packages), TestSettings(command=command, report="gotest")


def _cargo(folder: Path, names: frozenset[str]) -> Tests | None:
    manifest = _toml(folder, "Cargo.toml") if "Cargo.toml" in names else {}
    if not manifest.keys() & {"package", "workspace"}:
        return None
    typed = ("cargo", "test", "--workspace") if "workspace" in manifest else ("cargo", "test")
    return typed, TestSettings(command=(*typed, "--no-fail-fast", "--color=never"), report="cargo")


def _maven(folder: Path, names: frozenset[str]) -> Tests | None:
    if "pom.xml" not in names:
        return None
    command = (_wrapper(folder, "mvnw") or "mvn", "--batch-mode", "--fail-at-end", "test")
    return command, TestSettings(command=command, report="junit", reports=(_SUREFIRE,))


def _gradle(folder: Path, names: frozenset[str]) -> Tests | None:
    if not names & _GRADLE:
        return None
    # A gradle that stays in the background would keep a check from ending, and what comes out of its caches
    # is the word of the agent that may write these.
    options = ("--no-daemon", "--console=plain", "--no-build-cache", "--continue", "cleanTest", "test")
    command = (_wrapper(folder, "gradlew") or "gradle", *options)
    return command, TestSettings(command=command, report="junit", reports=(_OF_GRADLE,))


def _wrapper(folder: Path, name: str) -> str | None:
    path = folder / name
    return f"./{name}" if path.is_file() and os.access(path, os.X_OK) else None


def _make(folder: Path, names: frozenset[str]) -> Tests | None:
    file = next((name for name in _MAKEFILES if name in names), None)
    text = (_text(folder, file) or "").replace("\\\n", " ") if file is not None else ""
    targets = {target for rule in _RULE.finditer(text) for target in rule["targets"].split()}
    wanted = next((name for name in ("test", "check") if name in targets), None)
    return _by_exit_code("make", wanted) if wanted is not None else None


_MAX_EXPANDED: Final = 1024 * 1024


def expanded(text: str, values: Mapping[str, str]) -> str:
    """Return a Makefile with values in place of its variables, until they are as long as a file may be."""
    room = _MAX_EXPANDED

    def value(found: re.Match[str]) -> str:
        nonlocal room
        said = values.get(found[1], found[0])
        room -= len(said)
        return said if room >= 0 else ""

    return re.sub(r"\$[({](\w+)[)}]", value, text)


def rules_in(text: str) -> list[tuple[list[str], list[str], list[str]]]:
    """Return the rules of a Makefile: targets, what they need, and their lines."""
    rules: list[tuple[list[str], list[str], list[str]]] = []
    for line in text.splitlines()[:20_000]:
        if line[:1] in {" ", "\t"}:
            if rules:
                rules[-1][2].append(line)
            continue
        names, colon, needs = line.partition(":")
        if colon and "=" not in names and not needs.startswith("=") and not line.startswith("#"):
            needs, _, inline = needs.lstrip(":").partition(";")
            rules.append((names.split(), needs.split(), [inline]))
    return rules


def _by_exit_code(*command: str) -> Tests:
    return command, TestSettings(command=command)


_BY_MANIFEST: Final[tuple[Finder, ...]] = (_python, _go, suite_of_package, _cargo, _maven, _gradle)
_WEAKER: Final[tuple[Finder, ...]] = (_python_files, _make)
"""Used only if no manifest has tests: the target of a Makefile mostly runs the tests of a manifest."""
