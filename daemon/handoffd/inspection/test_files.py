"""Which files of a project decide what its tests prove, and how a copy of it gets them back as they were.

There are three kinds: the files of the tests, with their fixtures and conftests; the files, or sections of
files, that say which tests are run and how; and what starts with the runner, as far as it is installed inside
the workspace (a virtual environment, `node_modules`). Nothing is run, and all files may be hostile:
links are not followed, and what an agent put in the way of a file is replaced.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

from msgspec import Struct

from handoffd.errors import StoreError
from handoffd.execute.checks import read_bounded
from handoffd.execute.proof import WRITTEN_IN, Kind, Sealed
from handoffd.files.atomic import digest_of
from handoffd.git.worktree import remove_tree
from handoffd.inspection.suites import toml_of

MOST_FILES: Final = 20_000
MOST_LOOKS: Final = 400_000
LARGEST: Final = 32 * 1024 * 1024
"""Of a larger file only the size is compared."""
CHANGED_ONLY: Final = frozenset({"runner"})
"""The kinds that are compared and not laid back; a new one counts only inside a package that was there."""

TEST_FILES: Final = (
    "**/test/**", "**/tests/**", "!**/build/**", "!**/target/**", "!**/vendor/**", "**/src/test/**",
    "**/*_test.*", "**/test_*.*", "**/*.test.*", "**/*.spec.*", "**/conftest.py", "test/**", "tests/**",
    "**/__tests__/**", "**/__mocks__/**", "**/testdata/**",
    "**/build/tests/**/*.py", "**/target/tests/**/*.py",
)  # fmt: skip
"""As in .gitignore: folders of tests, but not what build tools make and fetch; then scaffold's patterns."""
_SETS_UP: Final = re.compile(
    r"\.?pytest\.(?:ini|toml)|tox\.(?:ini|toml)|hatch\.toml|\.coveragerc|noxfile\.py|\.npmrc|\.yarnrc(?:\.yml)?|\.pnpmfile\.cjs|go\.work"
    r"|bunfig\.toml|\.mocharc(?:\..*)?|\.babelrc(?:\..*)?|\.postcssrc(?:\..*)?"
    r"|(?:jest|vitest|vite|ava|karma|playwright|cypress|babel|postcss)\.(?:config|workspace|setup)\..*",
    re.DOTALL,
)
"""Names of files that only say how tests are run, or how their code is loaded."""
_HOOKS: Final = re.compile(r"(?:site|user)customize(?:\..*)?|.*\.pth", re.DOTALL)
"""What Python runs at its start: files, compiled ones, and packages."""
_PACKAGES: Final = frozenset({"node_modules", ".venv", "venv"})
"""Where packages are installed: a link of this name says which runner is run."""
_RUNNERS: Final = re.compile(
    r"jest|vitest|mocha|ava|tap|chai|expect|jest-.*|@jest|@vitest"
    r"|babel-jest|babel-(?:plugin|preset)-jest.*|pretty-format|ts-jest|vite|vite-node",
    re.DOTALL,
)
"""Packages of node_modules."""
_CACHES: Final = (".vite", ".vitest-cache", ".experimental-vitest-cache")
"""Folders of node_modules in which runners keep tests as they have compiled them."""
_VENDORED: Final = "modules.txt"
_PLANTED: Final = "package"
"""The seals of a folder with the modules of go, and of a package where tests alone find it: one that is new
is not there in a second run."""
NOT_MADE: Final = "not made"
"""How the seal begins of what a build may leave, or a person may write: a second run goes without it."""
_PACKAGE: Final = re.compile(r"(?:.*/\.pnpm/[^/]+/)?.*?(?:site-packages|node_modules)/[^/]+(?=/)", re.DOTALL)
_INSTALLED: Final = re.compile(r"(?:bin|include|lib64|Scripts|lib/(?:python|pypy)[\d.t]*)/", re.DOTALL)
"""What is in an environment of Python beside the files that a person might put there."""
_SECRET: Final = re.compile(r"\.npmrc|\.yarnrc(?:\.yml)?|\.env(?:\..*)?|.*\.(?:pem|key|p12|pfx)", re.DOTALL)
_SKIPPED: Final = frozenset(
    {
        ".ai", ".git", ".hg", ".mypy_cache", ".nox", ".pytest_cache", ".ruff_cache", ".svn", ".tox",
        "__pycache__",
    }
)  # fmt: skip
MADE_BY: Final[Mapping[str, frozenset[str]]] = {
    "make": frozenset({"GNUmakefile", "Makefile", "makefile"}),
    "just": frozenset({"justfile", "Justfile", ".justfile"}),
    "invoke": frozenset({"tasks.py", "invoke.yaml"}), "inv": frozenset({"tasks.py", "invoke.yaml"}),
    "task": frozenset({"Taskfile.yml", "Taskfile.yaml"}), "doit": frozenset({"dodo.py"}),
    "rake": frozenset({"Rakefile", ".rspec"}), "rspec": frozenset({".rspec"}),
    "deno": frozenset({"deno.json", "deno.jsonc"}), "phpunit": frozenset({"phpunit.xml", "phpunit.xml.dist"}),
    "mvn": frozenset({".mvn/maven.config", ".mvn/jvm.config"}), "cargo": frozenset({".cargo/config.toml"}),
    "nx": frozenset({"nx.json"}), "turbo": frozenset({"turbo.json"}), "lerna": frozenset({"lerna.json"}),
}  # fmt: skip
"""Files beside the manifest that say what a command runs."""
MAKEFILES: Final = MADE_BY["make"] | MADE_BY["just"]


class Survey(Struct, frozen=True, kw_only=True):
    """The files by their path from the workspace; with a `problem`, there are too many to be known."""

    files: Mapping[str, Sealed]
    caches: tuple[str, ...] = ()
    """Folders of compiled files, in the place of which a runner may run something else."""
    problem: str | None = None
    only_code: bool = False
    """Of too many test files, only the ones with code are known."""


def survey(
    root: Path,
    patterns: Sequence[str],
    command: Sequence[str],
    within: str = "",
    *,
    only_code: bool | None = None,
) -> Survey:
    """Return what decides what the tests below `root` prove; blocks.

    `patterns` are the test files, as in .gitignore; `command` is the test command, run in `within`.
    `only_code`: see there; None: if all are too many.
    """
    walk = _Walk(root, patterns, command, within)
    found = (one for one in walk.found() if not only_code or _is_code(*one))
    files = dict(islice(found, MOST_FILES + 1))
    if len(files) > MOST_FILES and only_code is None:
        return survey(root, patterns, command, within, only_code=True)
    if len(files) > MOST_FILES or walk.is_too_large:
        many = f"{MOST_LOOKS:,} files" if walk.is_too_large else f"{MOST_FILES:,} test files"
        return Survey(files={}, problem=f"there are more than {many}, which are not compared")
    return Survey(files=files, caches=tuple(walk.caches), only_code=bool(only_code))


def _is_code(path: str, sealed: Sealed) -> bool:
    return sealed.kind != "test" or sealed.mode == "link" or path.endswith(WRITTEN_IN)


def differences(
    before: Mapping[str, Sealed], now: Mapping[str, Sealed], allowed: Sequence[str]
) -> tuple[str, ...]:
    """Return the paths, sorted, that are not as they were; `allowed` are patterns of paths to leave out."""
    packages = {_package_of(path) for path, sealed in before.items() if sealed.kind in CHANGED_ONLY}
    changed = [path for path in {**before, **now} if _differs(before.get(path), now.get(path))]
    changed += [
        path
        for path, sealed in now.items()
        if sealed.kind in CHANGED_ONLY and path not in before and _package_of(path) in packages - {""}
    ]
    may_change = matching(allowed)
    return tuple(sorted(path for path in changed if not may_change(path)))


def keepable(files: Mapping[str, Sealed]) -> tuple[str, ...]:
    """Return the files whose contents are kept, to lay them back: none that may hold a secret."""
    return tuple(path for path in _to_lay_back(files) if not _SECRET.fullmatch(os.path.basename(path)))


def secret(files: Mapping[str, Sealed]) -> tuple[str, ...]:
    """Return the files that may hold a secret: they are laid back if git has their contents anyway."""
    return tuple(path for path in _to_lay_back(files) if _SECRET.fullmatch(os.path.basename(path)))


def _to_lay_back(files: Mapping[str, Sealed]) -> Iterator[str]:
    for path, sealed in files.items():
        changed_only = sealed.kind in CHANGED_ONLY or sealed.mode == "link"
        if not changed_only and sealed.content not in {"", "unreadable"}:
            yield path


def _differs(before: Sealed | None, now: Sealed | None) -> bool:
    if before is None:
        return now is not None and now.kind not in CHANGED_ONLY
    if before.seal in {_VENDORED, _PLANTED} or (before.seal.startswith(NOT_MADE) and now is None):
        return False
    return now is None or (now.seal, now.mode) != (before.seal, before.mode)


def _package_of(path: str) -> str:
    """Return the folder of an installed package that a file is in; of a module, the one in its place."""
    found = _PACKAGE.match(path)
    return found[0] if found else path.removesuffix(".py") if path.endswith(".py") else ""


def matching(patterns: Sequence[str]) -> Any:
    """Return a function that tells whether a path matches patterns as in .gitignore."""
    from pathspec import GitIgnoreSpec  # noqa: PLC0415  (only a measurement needs it)

    return GitIgnoreSpec.from_lines(patterns).match_file


# --- looking ------------------------------------------------------------------------------------------
class _Walk:
    """One look at a workspace."""

    def __init__(self, root: Path, patterns: Sequence[str], command: Sequence[str], within: str) -> None:
        self.caches: list[str] = []
        self.is_too_large = False
        """Whether some folders were not looked into."""
        self._root = root
        self._is_test = matching(patterns)
        self._command = command
        by = MADE_BY.get(os.path.basename(command[0]) if command else "", frozenset())
        self._named = frozenset(os.path.normpath(f"{within}{name}") for name in _named(command) | by)
        self._passed_over: set[str] = set()
        self._own = {"", *(f"{folder}/" for folder in PurePosixPath(within).parents), within}
        self._above = {str(folder) for name in self._named for folder in PurePosixPath(name).parents}

    def found(self) -> Iterator[tuple[str, Sealed]]:
        """Yield the files, folder by folder."""
        pending, left = [""], MOST_LOOKS
        while pending and left > 0:
            folder = pending.pop()
            entries = _entries(self._root / folder)
            left -= len(entries)
            yield from self._installed(folder, entries)
            for one in entries:
                path = f"{folder}{one.name}"
                if not one.is_dir(follow_symlinks=False):
                    yield from self._file(path, one.name)
                elif one.name == "node_modules":
                    yield from self._modules(f"{path}/")
                elif one.name.lower().endswith(_METADATA):
                    yield from self._plugins(f"{path}/entry_points.txt")
                elif one.name not in _SKIPPED and f"{path}/" not in self._passed_over:
                    pending.append(f"{path}/")
            yield from self._in_their_place(folder, entries)
            if os.path.isfile(self._root / folder / "vendor/modules.txt"):
                yield f"{folder}vendor", Sealed(kind="setting", seal=_VENDORED, content="", mode="file")
        self.is_too_large = bool(pending) or left < 0

    def _in_their_place(
        self, folder: str, entries: Sequence[os.DirEntry[str]]
    ) -> Iterator[tuple[str, Sealed]]:
        """Yield what Python imports in place of a test or a conftest: a package, a library."""
        modules = {one.name[:-3] for one in entries if one.name.endswith(".py")}
        modules = {name for name in modules if self._is_test(f"{folder}{name}.py")} | {"conftest"}
        for one in entries:
            path = f"{folder}{one.name}"
            if one.name.partition(".")[0] not in modules or one.name.endswith(".py"):
                continue
            if one.is_dir(follow_symlinks=False):
                for inner in _entries(self._root / path):
                    if inner.name.startswith("__init__."):
                        yield from self._sealed(f"{path}/{inner.name}", "test")
            elif one.is_symlink() or one.name.endswith((".so", ".pyd")):
                yield from self._sealed(path, "test")

    def _file(self, path: str, name: str) -> Iterator[tuple[str, Sealed]]:
        if self._is_test(path):
            yield from self._sealed(path, "test")
        elif _SETS_UP.fullmatch(name) or path in self._named:
            yield from self._sealed(path, "setting")
        elif name in _SECTIONS:
            yield from self._sections(path, name)
        elif self._starts(path, name):
            yield from self._sealed(path, "hook")

    def _starts(self, path: str, name: str) -> bool:
        """Whether Python runs a file at its start, or a link may lead to what is run."""
        folder = os.path.basename(os.path.dirname(path))
        is_hook = _HOOKS.fullmatch(name) is not None or _HOOKS.fullmatch(folder) is not None
        return is_hook or name in _PACKAGES or path in self._above

    def _sealed(self, path: str, kind: Kind) -> Iterator[tuple[str, Sealed]]:
        if (sealed := seal(self._root / path, kind)) is not None:
            yield path, sealed

    def _sections(self, path: str, name: str) -> Iterator[tuple[str, Sealed]]:
        body = read_bounded(self._root / path, _MOST_MANIFEST)
        sealed = seal(self._root / path, "setting")
        sections = sections_of(name, body, self._command) if body is not None else None
        if sealed is None or sections == {}:
            return
        said = json.dumps(sections, sort_keys=True, default=str).encode() if sections is not None else body
        yield (
            path,
            Sealed(
                kind="setting", seal=digest_of(said or b"")[:32], content=sealed.content, mode=sealed.mode
            ),
        )

    # --- what is installed in the workspace ------------------------------------------------------
    def _installed(self, folder: str, entries: Sequence[os.DirEntry[str]]) -> Iterator[tuple[str, Sealed]]:
        """Yield what starts with Python in a folder, and pytest itself; the rest of it is not looked into.

        The workspace's own folders do not count as an environment, whatever an agent puts there.
        """
        names = {one.name for one in entries}
        if "pyvenv.cfg" in names and folder not in self._own:
            yield from self._environment(folder)
            versions = (f"lib/{one.name}/" for one in _entries(self._root / folder / "lib"))
            found = (
                name for name in (*(f"{name}/" for name in names), *versions) if _INSTALLED.fullmatch(name)
            )
            self._passed_over.update(f"{folder}{name}" for name in found)
        elif {"_pytest", "pluggy"} <= names:  # as `pip install --target` and conda leave them
            yield from self._packages(folder)

    def _environment(self, folder: str) -> Iterator[tuple[str, Sealed]]:
        """Yield what starts with Python in a virtual environment, and pytest itself."""
        yield from self._sealed(f"{folder}pyvenv.cfg", "runner")
        for one in _entries(self._root / folder / "bin"):
            if re.match(r"python|pypy|pytest|py\.test", one.name):
                yield from self._sealed(f"{folder}bin/{one.name}", "runner")
        for version in _entries(self._root / folder / "lib"):
            yield from self._packages(f"{folder}lib/{version.name}/site-packages/")

    def _packages(self, folder: str) -> Iterator[tuple[str, Sealed]]:
        for one in _entries(self._root / folder):
            path = f"{folder}{one.name}"
            if _HOOKS.fullmatch(one.name):
                yield from self._start_hook(path)
            elif one.name.lower().endswith(_METADATA):
                yield from self._plugins(f"{path}/entry_points.txt")
                for module in self._plugin_modules(f"{path}/entry_points.txt"):
                    yield from self._sealed(f"{folder}{module}.py", "runner")
                    yield from self._all_below(f"{folder}{module}", _OF_PYTHON)
            elif re.fullmatch(r"_pytest|pytest|pluggy|iniconfig|xdist|pytest_.*", one.name, re.DOTALL):
                yield from self._all_below(path, _OF_PYTHON)

    def _start_hook(self, path: str) -> Iterator[tuple[str, Sealed]]:
        """Yield what Python runs at its start, and the modules that a .pth imports."""
        yield from self._sealed(path, "hook")
        for one in _entries(self._root / path):
            yield from self._sealed(f"{path}/{one.name}", "hook")
        if path.endswith(".pth"):
            body, beside = read_bounded(self._root / path, _MOST_MANIFEST) or b"", os.path.dirname(path)
            for word in sorted({*re.findall(rb"\w{1,100}", body)})[:_MOST_WORDS]:
                for module in (f"{word.decode()}.py", f"{word.decode()}/__init__.py"):
                    yield from self._sealed(f"{beside}/{module}", "hook")

    def _plugins(self, path: str) -> Iterator[tuple[str, Sealed]]:
        if b"pytest11" in (read_bounded(self._root / path, _MOST_MANIFEST) or b""):
            yield from self._sealed(path, "hook")

    def _plugin_modules(self, path: str) -> list[str]:
        """Return the packages of the plugins that an installed package names."""
        body = (read_bounded(self._root / path, _MOST_MANIFEST) or b"").decode("utf-8", "replace")
        section = body.partition("[pytest11]")[2].partition("\n[")[0]
        return sorted({*re.findall(r"^[^=\n]{1,200}=[ \t]*(\w{1,100})", section, re.MULTILINE)})[:_MOST_WORDS]

    def _modules(self, folder: str) -> Iterator[tuple[str, Sealed]]:
        """Yield what npm puts on its PATH, and the runners themselves."""
        self.caches += [f"{folder}{name}" for name in _CACHES if os.path.lexists(self._root / folder / name)]
        for one in _entries(self._root / folder / ".bin"):
            yield from self._sealed(f"{folder}.bin/{one.name}", "hook")
        for one in _entries(self._root / folder):
            if _RUNNERS.fullmatch(one.name):
                yield from self._all_below(f"{folder}{one.name}", _OF_NODE)
            if self._is_test(f"{folder}{one.name}/index.js"):
                yield f"{folder}{one.name}", Sealed(kind="hook", seal=_PLANTED, content="", mode="file")
        for one in _entries(self._root / folder / ".pnpm"):  # where pnpm has them, and links to them above
            yield from self._modules(f"{folder}.pnpm/{one.name}/node_modules/")

    def _all_below(self, path: str, suffixes: tuple[str, ...]) -> Iterator[tuple[str, Sealed]]:
        if os.path.islink(self._root / path) or not os.path.isdir(self._root / path):
            yield from self._sealed(path, "runner")
            return
        pending = [path]
        while pending:
            folder = pending.pop()
            for one in _entries(self._root / folder):
                if one.is_dir(follow_symlinks=False):
                    pending += [f"{folder}/{one.name}"] if one.name not in _SKIPPED else []
                elif one.name.endswith(suffixes) or (suffixes is _OF_NODE and "." not in one.name):
                    yield from self._sealed(f"{folder}/{one.name}", "runner")


_METADATA: Final = (".egg-info", ".dist-info")
_OF_PYTHON: Final = (".py", ".so", ".pyd")
_OF_NODE: Final = (".js", ".cjs", ".mjs", ".json", ".node")


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return what is in a folder, by name; nothing where there is none, or a link."""
    with suppress(OSError):
        if not folder.is_symlink():
            with os.scandir(folder) as entries:
                return sorted(islice(entries, MOST_LOOKS), key=lambda one: one.name)
    return []


def _named(command: Sequence[str]) -> frozenset[str]:
    """Return what a command names that may be a file of the workspace, also inside a line for a shell."""
    words = (piece for word in command[:100] for piece in re.split(r"[\s;&|()'\"=]+", word)[:200])
    return frozenset(word for word in words if word and not word.startswith(("/", "-")))


def seal(path: Path, kind: Kind) -> Sealed | None:
    """Return what a file is by now; None where there is none that could be read."""
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(path)
            return Sealed(kind=kind, seal=digest_of(os.fsencode(target))[:32], content=target, mode="link")
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    mode: Literal["file", "exec"] = "exec" if status.st_mode & stat.S_IXUSR else "file"
    if status.st_size > LARGEST:
        return Sealed(kind=kind, seal=f"{status.st_size} bytes", content="", mode=mode)
    body = read_bounded(path, LARGEST)
    digest = "unreadable" if body is None else digest_of(body)[:32]
    return Sealed(kind=kind, seal=digest, content=digest, mode=mode)


# --- sections -----------------------------------------------------------------------------------------
_MOST_MANIFEST: Final = 4 * 1024 * 1024
_MOST_WORDS: Final = 500
"""Of a .pth, that may each be a module."""
_OF_PACKAGE: Final = ("jest", "vitest", "mocha", "ava", "tap", "nyc", "c8", "babel", "postcss")
_OF_PYPROJECT: Final = (
    ("tool", "pytest"), ("tool", "coverage"), ("tool", "tox"), ("tool", "hatch", "envs"), ("tool", "poe"),
    ("tool", "taskipy"), ("tool", "pdm", "scripts"), ("project", "entry-points", "pytest11"),
)  # fmt: skip
_OF_SETUP: Final = re.compile(
    r"\[(?:tool:pytest|coverage:|tox:|testenv|options\.entry_points\][^\[]*pytest11)"
)
_TESTS: Final = re.compile(r"(?:pre|post)?test(?::.*)?")


def sections_of(name: str, body: bytes, command: Sequence[str]) -> dict[str, Any] | None:
    """Return what a manifest says about its tests; None when it cannot be read, or is one as a whole."""
    try:
        return dict(_SECTIONS[name](body, command))
    except (ValueError, RecursionError, TypeError, AttributeError):
        return None


def _of_package(body: bytes, command: Sequence[str]) -> dict[str, Any]:
    package = json.loads(body)
    found = {key: package[key] for key in (*_OF_PACKAGE, "imports") if key in package}
    scripts = _mapping(package.get("scripts"))
    if run := {key: scripts[key] for key in _scripts_run(scripts, command)}:
        found["scripts"] = run
    return found


def _scripts_run(scripts: Mapping[str, Any], command: Sequence[str]) -> list[str]:
    """Return the scripts that a test command may run, and the ones that these name."""
    wanted = [name for name in scripts if _TESTS.fullmatch(name) or name in command]
    known = {*wanted}
    for name in wanted:  # grows meanwhile
        said = {f"pre{name}", f"post{name}", *re.split(r"[^\w:.\-]+", str(scripts[name]))}
        wanted += (also := (said & scripts.keys()) - known)
        known |= also
    return sorted(wanted)


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _of_pyproject(body: bytes, _: Sequence[str]) -> dict[str, Any]:
    document = toml_of(body.decode("utf-8-sig"))
    found: dict[str, Any] = {}
    for keys in _OF_PYPROJECT:
        section: Any = document
        for key in keys:
            section = section.get(key) if isinstance(section, dict) else None
        if section is not None:
            found[".".join(keys)] = section
    return found


def _of_setup(body: bytes, _: Sequence[str]) -> dict[str, Any]:
    # By its text: pytest reads it with another parser than setuptools, and sees tables where that sees none.
    lines = "\n".join(body.decode("utf-8-sig").splitlines())
    tables = [
        text.rstrip() for text in re.split(r"^(?=\[)", lines, flags=re.MULTILINE) if _OF_SETUP.match(text)
    ]
    return {"tables": tables} if tables else {}


_SECTIONS: Final[Mapping[str, Any]] = {
    "package.json": _of_package, "pyproject.toml": _of_pyproject, "setup.cfg": _of_setup,
}  # fmt: skip

MANIFESTS: Final = frozenset(_SECTIONS)


# --- laying back --------------------------------------------------------------------------------------
def lay_back(
    root: Path,
    paths: Iterable[str],
    before: Mapping[str, Sealed],
    now: Mapping[str, Sealed],
    contents: Mapping[str, bytes],
    command: Sequence[str],
) -> tuple[str, ...]:
    """Bring files below `root`, a copy, back as they were; return the ones that cannot be; blocks.

    `contents` are the files' own before, by path. Raises OSError.
    """
    lost: list[str] = []
    for path in sorted(paths, key=before.__contains__):  # new ones first: a link laid back leads elsewhere
        was, content = before.get(path), contents.get(path)
        was = None if was is not None and was.seal.startswith(NOT_MADE) else was
        if was is not None and was.mode != "link" and (content is None or not _is(content, was)):
            lost.append(path)
        elif _by_sections(was or now.get(path)) and (said := _said_before(root, path, content, command)):
            _write(root, path, said, "file")
        elif was is None:
            _remove(root / path)
        else:
            _write(root, path, content or b"", was.mode, was.content)
    return tuple(lost)


def _is(content: bytes, sealed: Sealed) -> bool:
    return digest_of(content)[:32] == sealed.content


def _by_sections(sealed: Sealed | None) -> bool:
    """Whether only some sections of a file count: one in a folder of tests counts as a whole."""
    return sealed is not None and sealed.mode != "link" and sealed.seal != sealed.content


def _said_before(root: Path, path: str, before: bytes | None, command: Sequence[str]) -> bytes | None:
    """Return a manifest that says about its tests what it said before; the rest stays as it is now.

    None: the two cannot be kept apart, or the file is gone.
    """
    name = os.path.basename(path)
    inside = os.path.realpath(root / os.path.dirname(path)).startswith(os.path.realpath(root))
    now = read_bounded(root / path, _MOST_MANIFEST) if inside else None
    if now is None or name not in _SECTIONS:
        return None
    return _package(now, before, command) if name == "package.json" else _tables(name, now, before)


def _tables(name: str, now: bytes, before: bytes | None) -> bytes | None:
    """Return the tables of a TOML or INI file that are not about tests, and the ones that were before."""
    kept = [text for of_tests, text in _by_table(name, now) if not of_tests]
    kept += [text for of_tests, text in _by_table(name, before or b"") if of_tests]
    body = b"".join(kept)
    said = sections_of(name, before or b"", ())
    return body if said is not None and said == sections_of(name, body, ()) else None


def _by_table(name: str, body: bytes) -> Iterator[tuple[bool, bytes]]:
    """Yield a file in pieces that begin with the header of a table, and whether that is about tests."""
    of_tests = False
    for text in re.split(rb"^(?=[ \t]*\[)", body.rstrip() + b"\n", flags=re.MULTILINE):
        header = sections_of(name, text.partition(b"\n")[0], ())
        of_tests = of_tests if header is None else bool(header)  # None: in a list of several lines
        yield of_tests, text


def _package(now: bytes, before: bytes | None, command: Sequence[str]) -> bytes:
    said = sections_of("package.json", before or b"{}", command)
    says = sections_of("package.json", now, command)
    if said is None or says is None:
        return before or b"{}"
    package = json.loads(now)
    own, of_tests = _mapping(package.get("scripts")), says.get("scripts", {})
    scripts = {name: run for name, run in own.items() if name not in of_tests} | said.get("scripts", {})
    kept = {key: value for key, value in package.items() if key not in (*_OF_PACKAGE, "scripts")}
    rest = {key: value for key, value in said.items() if key != "scripts"}
    if "imports" in rest:  # further ones are the program's
        rest["imports"] = {**_mapping(kept.get("imports")), **_mapping(rest["imports"])}
    # Without an indent: with one, each value of what is nested deep goes through a generator for each level.
    return json.dumps({**kept, "scripts": scripts, **rest}).encode()


def _write(root: Path, path: str, content: bytes, mode: str, target: str = "") -> None:
    """Write a file, with its folders, in place of whatever is there."""
    place = root
    for part in path.split("/")[:-1]:
        place = place / part
        if place.is_symlink() or not place.is_dir():
            _remove(place)
            place.mkdir()
    _remove(root / path)
    if mode == "link":
        os.symlink(target, root / path)
        return
    with open(root / path, "xb") as file:
        file.write(content)
        os.fchmod(file.fileno(), 0o755 if mode == "exec" else 0o644)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()


def forget_compiled(root: Path, files: Mapping[str, Sealed], caches: Iterable[str]) -> None:
    """Remove what was compiled of these files, and all caches: it would be run instead of them; blocks."""
    folders = {os.path.dirname(path) for path in files if path.endswith(".py")}
    for place in (*(f"{folder}/__pycache__".lstrip("/") for folder in folders), *caches):
        if not _is_led_away(root, os.path.dirname(place)) and os.path.lexists(root / place):
            shutil.rmtree(root / place, ignore_errors=True)
            if os.path.lexists(root / place):  # one that may not be written
                with suppress(StoreError):
                    remove_tree(root / place)


def _is_led_away(root: Path, folder: str) -> bool:
    return os.path.realpath(root / folder) != os.path.join(os.path.realpath(root), folder).rstrip("/")
