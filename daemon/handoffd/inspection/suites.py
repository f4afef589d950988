"""Which tests a project has, told by the files of its root, and how handoffd would run them.

Files are looked up and the small ones read, nothing is run. What is found in the root is proposed; of
what lies only below it there may be several, and which of them count is for a person to say: a
wrong command is worse than none. Everything that is read may be hostile.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from shlex import join, quote
from typing import Any, Final

from handoffd.execute.checks import read_bounded
from handoffd.inspection.node_suites import Tests, folders_in, suite_of_package
from handoffd.settings.model import TestSettings

MOST_NAMES: Final = 20_000
MOST_FOLDERS: Final = 300
MOST_FOUND: Final = 20
_DEPTH: Final = 2
_MAX_BYTES: Final = 1024 * 1024

_PYTHON_PROJECT: Final = frozenset({"pyproject.toml", "setup.py", "setup.cfg", "tox.ini"})
_TEST_FILE: Final = re.compile(r"test_.*\.py|.*_test\.py", re.DOTALL)
_GRADLE: Final = frozenset({"build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"})
_MAKEFILES: Final = ("GNUmakefile", "makefile", "Makefile")  # in make's own order
_RULE: Final = re.compile(r"^(?P<targets>[^\s#:=][^#:=\n]{0,1000}?)[ \t]*:(?::(?!=)|(?![:=]))", re.MULTILINE)
_USE: Final = re.compile(r"^\s*use\s*(?:\((?P<many>[^)]*)\)|(?P<one>\S+))", re.MULTILINE)
_PLAIN_PATH: Final = re.compile(r"(?!/)[\w./@+-]+")
_NOT_LOOKED_INTO: Final = frozenset(
    {
        "__pycache__", "build", "dist", "env", "examples", "fixtures", "out", "target",
        "testdata", "third_party", "vendor", "venv",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Tests that were found: in which folder of the project, what a person types there, how they are run.

    `folder` is `.` for the project's root; only there the settings can be used as they are.
    """

    folder: str
    typed: tuple[str, ...]
    settings: TestSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Suites:
    """What was found: the tests that are proposed, and others that nothing would run then."""

    chosen: Suite | None = None
    others: tuple[Suite, ...] = ()


def find_suites(root: Path) -> Suites:
    """Return the tests of a project: those of its root, and only without any, those below it."""
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
    """Yield the tests of folders below the root, by name; not those inside of one that has some."""
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


def _toml(folder: Path, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(_text(folder, name) or "")
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
    return ("go", "test", *packages), TestSettings(
        command=("go", "test", "-json", *packages), report="gotest"
    )


def _cargo(folder: Path, names: frozenset[str]) -> Tests | None:
    manifest = _toml(folder, "Cargo.toml") if "Cargo.toml" in names else {}
    if not manifest.keys() & {"package", "workspace"}:
        return None
    typed = ("cargo", "test", "--workspace") if "workspace" in manifest else ("cargo", "test")
    return typed, TestSettings(command=(*typed, "--no-fail-fast", "--color=never"), report="cargo")


def _maven(folder: Path, names: frozenset[str]) -> Tests | None:
    if "pom.xml" not in names:
        return None
    return _by_exit_code(_wrapper(folder, "mvnw") or "mvn", "--batch-mode", "test")


def _gradle(folder: Path, names: frozenset[str]) -> Tests | None:
    if not names & _GRADLE:
        return None
    # A gradle that stays in the background would keep a check from ending.
    return _by_exit_code(_wrapper(folder, "gradlew") or "gradle", "--no-daemon", "--console=plain", "test")


def _wrapper(folder: Path, name: str) -> str | None:
    path = folder / name
    return f"./{name}" if path.is_file() and os.access(path, os.X_OK) else None


def _make(folder: Path, names: frozenset[str]) -> Tests | None:
    file = next((name for name in _MAKEFILES if name in names), None)
    text = (_text(folder, file) or "").replace("\\\n", " ") if file is not None else ""
    targets = {target for rule in _RULE.finditer(text) for target in rule["targets"].split()}
    wanted = next((name for name in ("test", "check") if name in targets), None)
    return _by_exit_code("make", wanted) if wanted is not None else None


def _by_exit_code(*command: str) -> Tests:
    return command, TestSettings(command=command)


_BY_MANIFEST: Final[tuple[Finder, ...]] = (_python, _go, suite_of_package, _cargo, _maven, _gradle)
_WEAKER: Final[tuple[Finder, ...]] = (_python_files, _make)
"""What counts where no manifest tells of tests: the target of a Makefile mostly runs what was found there."""
