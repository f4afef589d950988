"""What decides what a story's tests prove, as its red step left it, and a copy of the workspace that has it.

An agent that must make tests pass may write in them, too. So the files of the tests, and the ones that say
how these are run, are compared with their state when the tests were red. Where they differ, the tests are run
a second time, in a copy of the workspace with these files as they were. Where nothing differs, the first run
was that run already.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from handoffd.engine.track import TrackKey, Workspace
from handoffd.engine.wording import first_few
from handoffd.errors import StoreError
from handoffd.execute.checks import read_bounded
from handoffd.execute.evidence import Baseline
from handoffd.execute.proof import (
    CHANGED,
    MAX_DECLARED,
    WRITTEN_IN,
    Kind,
    Red,
    Sealed,
    choice_of,
    declared_in,
    held_of,
    last_names,
    names_in,
)
from handoffd.execute.reports.report import TestReport
from handoffd.execute.sandbox.plan import LANDLOCK, OFF
from handoffd.execute.sandbox.planning import combined
from handoffd.files.run_removal import bytes_below
from handoffd.git.worktree import Blobs, remove_tree, top_of_clone
from handoffd.inspection.suites import expanded, rules_in
from handoffd.inspection.test_files import (
    CHANGED_ONLY,
    MADE_BY,
    MAKEFILES,
    MANIFESTS,
    NOT_MADE,
    TEST_FILES,
    Survey,
    differences,
    forget_compiled,
    keepable,
    lay_back,
    matching,
    seal,
    secret,
    sections_of,
    survey,
)
from handoffd.track.services import Files, Services

COPY_LIMIT_S = 600.0
"""How long it may take to copy a workspace."""
_OF_TESTS = re.compile(r"test|spec|fixture|mock|snapshot|e2e", re.IGNORECASE)
"""What else a red step may write, such as `src/**`, is not compared: green steps change it."""
_MOST_TEXT = 1024 * 1024
"""Bytes of a test file in which tests are looked for."""
_ROOM = 1024 * 1024 * 1024
"""Bytes that a copy leaves free on the daemon's disk."""


class Change(Struct, frozen=True, kw_only=True):
    """How the test files differ from what the red step left; `paths` are from the top of the workspace."""

    paths: tuple[str, ...] = ()
    why_not: str | None = None
    """Why that is not known."""
    problem: str | None = None
    """What was changed that cannot be laid back."""


class TestFiles:
    """The test files of one track's stories. `workspace` returns where the track works now."""

    __test__ = False

    def __init__(
        self, key: TrackKey, files: Files, services: Services, workspace: Callable[[], Workspace]
    ) -> None:
        self._key = key
        self._files = files
        self._services = services
        self._workspace = workspace

    @property
    def top(self) -> Path:
        """The folder that its agents may write: the whole clone, or the project."""
        folder = self._workspace().folder
        return Path(top_of_clone(folder, self._services.settings.state_dir) or folder)

    @property
    def at_its_place(self) -> bool:
        """Whether a check can see a copy in place of the workspace itself."""
        asked = combined(self._services.settings.sandbox, self._files.settings.sandbox)
        return asked.level not in {LANDLOCK, OFF}

    @property
    def _within(self) -> str:
        """The project's folder from the top of the workspace, with a slash; empty where it is the same."""
        within = os.path.relpath(self._workspace().folder, self.top)
        return "" if within == "." else f"{within}/"

    def in_copy(self, copy: Path) -> Path:
        """Return the project's folder in a copy of the workspace."""
        return copy / Path(self._workspace().folder).relative_to(self.top)

    # --- when they are red -----------------------------------------------------------------------
    async def beyond(self) -> str | None:
        """Return why the test files cannot be known: there are too many."""
        return (await to_thread.run_sync(self._survey, self.top, ())).problem

    async def kept(self, red: Red, patterns: Sequence[str], report: TestReport, baseline: Baseline) -> Red:
        """Return it with the test files as they are now; `patterns` are what the red step may write.

        `report` is of the red step's tests.
        """
        red = await to_thread.run_sync(self._kept, red, tuple(patterns))
        if red.tests is None or not report.verified:
            return red
        return await to_thread.run_sync(self._with_written, red, report, baseline)

    def _kept(self, red: Red, patterns: tuple[str, ...]) -> Red:
        wanted = tuple(pattern for pattern in patterns if _OF_TESTS.search(pattern))
        seen = self._survey(self.top, wanted)
        if seen.problem is not None:
            return replace(red, why_not=seen.problem, beyond=seen.problem)
        command = self._files.settings.test.command or ()
        all_files = {**seen.files, **Named(self.top, self._within, seen.files, command).files()}
        try:
            blobs = self._blobs().keep(keepable(all_files), str(self.top))
            if hidden := secret(all_files):
                blobs |= self._blobs().named(hidden, str(self.top))
        except StoreError as error:
            return replace(red, why_not=error.message)
        files = {path: replace(sealed, blob=blobs.get(path)) for path, sealed in all_files.items()}
        return replace(red, tests=files, patterns=wanted, only_code=seen.only_code)

    def _with_written(self, red: Red, report: TestReport, baseline: Baseline) -> Red:
        """Return it with the tests that must run by what is written in its files."""
        go = {os.path.dirname(file) for file in red.files if file.endswith(".go")}
        had = last_names(baseline.results)
        names: dict[str, frozenset[str]] = {}
        unloadable: dict[str, str] = {}
        hooks = ""
        for file, text in self._texts(red.tests or {}, "test"):
            names[file] = names_in(file, text) & had
            hooks += text if os.path.basename(file) == "conftest.py" else ""
            if file in red.files or (file.endswith(".go") and os.path.dirname(file) in go):
                unloadable[file] = text
        settings = self._texts(red.tests or {}, "setting")
        command = re.split(r"\bpytest\b", " ".join(self._files.settings.test.command or ()), maxsplit=1)[-1]
        choice = choice_of("\n".join([command, *(text for _, text in settings)]), hooks)
        new = (
            one
            for file, text in sorted(unloadable.items())
            for one in declared_in(file, text, choice)
            if file in red.files or one.name not in had
        )
        held = {
            file and f"{self._within}{file}": ids
            for file, ids in held_of(report, baseline.results, names, red).items()
        }
        return replace(red, declared=tuple(islice(new, MAX_DECLARED)), held=held)

    def _texts(self, files: Mapping[str, Sealed], kind: Kind) -> Iterator[tuple[str, str]]:
        """Yield files of tests or settings by their paths from the project's folder, as ids have them."""
        for path, sealed in files.items():
            has_tests = kind == "setting" or path.endswith(WRITTEN_IN)
            if sealed.kind == kind and has_tests and path.startswith(self._within):
                body = read_bounded(self.top / path, _MOST_TEXT + 1) or b""
                text = "" if len(body) > _MOST_TEXT else body.decode("utf-8", "replace")
                yield path.removeprefix(self._within), text

    # --- when they must be green -----------------------------------------------------------------
    def without_allowed(self, red: Red) -> Red:
        """Return it without the tests of files that a person lets a story change."""
        if not self._files.settings.allow_test_changes:
            return red
        allowed = [self._from_top(pattern) for pattern in self._files.settings.allow_test_changes]
        spec = matching(allowed)
        held = {file: ids for file, ids in red.held.items() if file and not spec(file)}
        return replace(red, held=held)

    async def changed(self, red: Red) -> Change:
        """Return how they differ from what a red step left: before the tests are run, which may write."""
        return await to_thread.run_sync(self._changed, red)

    def _changed(self, red: Red) -> Change:
        if red.tests is None:
            return Change(why_not=red.why_not)
        seen = self._seen(self.top, red)
        if seen.problem is not None:
            return Change(problem=f"{CHANGED}: {seen.problem}")
        forget_compiled(self.top, seen.files, seen.caches)
        paths = self._differing(red.tests, seen)
        runner = [path for path in paths if _kind(path, red.tests, seen) in CHANGED_ONLY]
        problem = f"{CHANGED}: the test runner itself: {first_few(runner)}" if runner else None
        return Change(paths=paths, problem=problem)

    def _differing(self, before: Mapping[str, Sealed], seen: Survey) -> tuple[str, ...]:
        allowed = [self._from_top(pattern) for pattern in self._files.settings.allow_test_changes]
        return differences(before, seen.files, allowed)

    async def copied(self, into: Path, red: Red) -> str | None:
        """Copy the workspace, with the test files as a red step left them; return what they lack.

        Raises StoreError where no copy can be made.
        """
        return await to_thread.run_sync(partial(self._copied, into, red), abandon_on_cancel=True)

    def _copied(self, into: Path, red: Red) -> str | None:
        assert red.tests is not None
        remove_tree(into)
        try:
            _copy(self.top, into)
            return self._laid_back(into, red, red.tests)
        except StoreError:
            self.removed(into)
            raise

    def _laid_back(self, into: Path, red: Red, before: Mapping[str, Sealed]) -> str | None:
        seen = self._seen(into, red)
        if seen.problem is not None:
            return f"{CHANGED}: {seen.problem}"
        paths = [
            path for path in self._differing(before, seen) if _kind(path, before, seen) not in CHANGED_ONLY
        ]
        blobs = {path: blob for path in paths if path in before and (blob := before[path].blob)}
        contents = self._blobs().contents(blobs)
        command = self._files.settings.test.command or ()
        try:
            lacking = lay_back(into, paths, before, seen.files, contents, command)
        except OSError as error:
            raise StoreError(f"the test files of the red step cannot be laid back: {error}") from error
        forget_compiled(into, {**before, **seen.files}, seen.caches)
        return f"{CHANGED}: {first_few(lacking)}, which cannot be laid back" if lacking else None

    def removed(self, copy: Path) -> None:
        """Remove a copy; what cannot be removed goes with the run."""
        with suppress(StoreError):
            remove_tree(copy)

    def _seen(self, top: Path, red: Red) -> Survey:
        """Return what is there now of what the red step had, and what is there in its place."""
        seen = self._survey(top, red.patterns, only_code=red.only_code)
        return replace(seen, files={**named_before(top, red.tests or {}), **seen.files})

    def _survey(self, top: Path, patterns: Sequence[str], *, only_code: bool | None = None) -> Survey:
        command = self._files.settings.test.command or ()
        own = (self._from_top(pattern) for pattern in (*TEST_FILES, *patterns))
        more = [pattern for pattern in own if pattern not in TEST_FILES]
        return survey(top, (*TEST_FILES, *more), command, self._within, only_code=only_code)

    def _from_top(self, pattern: str) -> str:
        """Return a pattern that is from the project's folder as one from the top of the workspace."""
        negated, bare = ("!", pattern[1:]) if pattern.startswith("!") else ("", pattern)
        if not self._within or "/" not in bare.rstrip("/") or bare.startswith("**/"):
            return pattern
        return f"{negated}/{self._within}{bare.lstrip('/')}"

    def _blobs(self) -> Blobs:
        return Blobs(self._workspace().folder, self._services.settings.state_dir, self._services.environment)


def _kind(path: str, before: Mapping[str, Sealed], seen: Survey) -> str:
    return (before.get(path) or seen.files[path]).kind


def _copy(top: Path, into: Path) -> None:
    """Copy a workspace with all that is in it. Raises StoreError."""
    size, free = bytes_below(top), shutil.disk_usage(into.parent).free
    if size + _ROOM > free:
        why = f"{top} takes {size:,} bytes, and {free:,} are free"
        raise StoreError(f"no copy for the second run of the tests: {why}")
    words = ("cp", "-a", "--reflink=auto", "--", str(top), str(into))
    environment = {"PATH": os.defpath, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            words, env=environment, cwd="/", capture_output=True, timeout=COPY_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreError(f"no copy for the second run of the tests: {error}") from error
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").splitlines() or [f"exit code {done.returncode}"]
        raise StoreError(f"no copy for the second run of the tests: {lines[-1][:300]}")


# --- what a runner's settings name --------------------------------------------------------------------
MOST_NAMED = 300
_MOST_LOOKS = 50_000
"""For files that are named and may not be there."""
_LONGEST = 300
_DEEP = 3
_OF_JAVASCRIPT = (".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".jsx", ".tsx", ".json")
_TO_ELSEWHERE = frozenset({".ai", ".git", ".venv", "node_modules", "venv"})
_PLUGIN = re.compile(r"(?<![\w-])-p[\s\"',]*([A-Za-z_]\w*(?:\.\w+)*)")
_PLUGINS = re.compile(
    r"^pytest_plugins\b[^=\n]*=\s*(\[[^\]]{0,4000}\]|\([^)]{0,4000}\)|[^\n]*)", re.MULTILINE
)
_QUOTED = re.compile(r"""["'`]([^"'`\n]{1,300})["'`]""")
_IMPORTED = re.compile(r"""\b(?:from|import|require)[\s(]{0,20}["'](\.{1,2}/[^"'\n]{1,300})["']""")
_PYTHON_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(\.*\w[\w.]*|\.+)[ \t]+import[ \t(]+([\w, \t]*)|import[ \t]+([\w., \t]+))",
    re.MULTILINE,
)
_SETS_UP_TESTS = re.compile(
    r"""["']?\b(?:setupFiles\w*|global(?:Setup|Teardown)|testEnvironment|environment|runner|testRunner|reporters"""
    r"""|resolver|preset|transform|snapshotSerializers|testSequencer|require|import|extends|projects|workspace)"""
    r"""["']?\s*:\s*(\[[^\]]{0,4000}\]|\{[^}]{0,4000}\}|["'`][^"'`\n]{0,300}["'`])"""
)
_PRELOADS = frozenset({"--import", "--require", "-r", "--loader", "--experimental-loader"})
_STARTS = re.compile(r"(?:.*/)?(?:\.|source|exec|sh|bash|dash|zsh|python[\d.]*|node|tsx|ts-node|bun|deno)")
_SHELL = re.compile(r"(?:.*/)?[^/.]+|.*\.(?:sh|bash|mk)")
_ASSIGNED = re.compile(r"^[ ]*(?:export[ \t]+)?(\w+)[ \t]*[:?]{0,2}=[ \t]*([^#\n]*)", re.MULTILINE)
_INCLUDED = re.compile(r"^[ ]*[-s]?include[ \t]+([^#\n]+)", re.MULTILINE)


class Named:
    """The files of a workspace that a runner's settings name, and that are not among its test files anyway.

    Tests are not settings: what they import is the program. So is what a runner's own script imports, if
    tests import it, too. `within` is the project's folder from `top`.
    """

    def __init__(self, top: Path, within: str, known: Mapping[str, Sealed], command: Sequence[str]) -> None:
        self._top = top
        self._within = within
        self._known = known
        self._command = command
        self._found: dict[str, Sealed] = {}
        self._of_tests: frozenset[str] | None = None
        self._pending: list[tuple[str, int]] = []
        self._looks = 0
        self._words = {word for part in command[:100] for word in part.split()}
        """What may be the targets of a Makefile."""
        self._on_path: list[str] = []
        """The folders of the workspace in which programs are looked for."""

    def files(self) -> dict[str, Sealed]:
        """Return the files by their path; blocks."""
        words = [word for part in self._command[:100] for word in re.split(r"\s+", part)[:200]]
        for option, word in itertools.pairwise(words):
            if option in {"-m", "-p"}:
                self._module(word, (self._within,), 0)
        self._plugins(" ".join(words))
        for path, sealed in self._known.items():
            is_hook = os.path.basename(path) == "conftest.py"
            if sealed.mode != "link" and (sealed.kind == "setting" or is_hook):
                self._read(path, 0)
        while self._pending:
            self._read(*self._pending.pop())
        return self._found

    def _read(self, path: str, depth: int) -> None:
        """Look for names in one file."""
        body = read_bounded(self._top / path, _MOST_TEXT)
        text, name, beside = (body or b"").decode("utf-8", "replace"), os.path.basename(path), _beside(path)
        if name == "package.json":
            self._package(body or b"", beside)
        elif name == "conftest.py":
            for found in _PLUGINS.findall(text):
                for module in _QUOTED.findall(found):
                    self._module(module, (self._within, beside), depth)
        elif name.endswith((".ini", ".toml", ".cfg")):
            self._plugins(text, beside)
        elif name in MAKEFILES or name.endswith(".mk"):
            self._makefile(text, beside, depth)
        elif name.endswith(".py"):
            self._python(text, path, depth)
        elif name.endswith(_OF_JAVASCRIPT) or "rc" in name:
            self._javascript(text, beside, depth)
        elif _SHELL.fullmatch(name):
            for line in text.splitlines():
                self._shell(line, (self._within, beside), depth)

    def _plugins(self, text: str, beside: str = "") -> None:
        for module in _PLUGIN.findall(text):
            self._module(module, (self._within, beside), 0)

    def _package(self, body: bytes, beside: str) -> None:
        said = sections_of("package.json", body, self._command) or {}
        for line in said.pop("scripts", {}).values():
            words = re.split(r"[\s;&|()'\"=]+", str(line))[:500]
            self._tools(words, (beside,), 1)
            for before, word in itertools.pairwise(["", *words]):
                depth = _DEEP if before in _PRELOADS else 1
                self._file(word, (beside,), depth, is_module=before in _PRELOADS)
        self._javascript(json.dumps(said), beside, 1)

    def _makefile(self, text: str, beside: str, depth: int) -> None:
        values = dict(_ASSIGNED.findall(text))
        on_path = re.sub(r"\$[({]CURDIR[)}]/|\./", "", values.get("PATH", "")).strip().split(":")
        self._on_path = [f"{self._within}{folder}/" for folder in on_path if re.fullmatch(r"[\w.-]+", folder)]
        text = expanded(expanded(text, values), values)  # a value may have another one in it
        for line in _INCLUDED.findall(text):
            for word in line.split():
                self._file(word, (self._within, beside), depth)
                self._not_made(f"{self._within}{word}")
        rules = rules_in(text)
        wanted = [name for names, _, _ in rules for name in names if name in self._words]
        wanted += [] if wanted else [name for names, _, _ in rules[:1] for name in names]
        of: dict[str, list[int]] = {}
        for number, (names, _, _) in enumerate(rules):
            for name in names:
                of.setdefault(name, []).append(number)
        wanted, done = list(dict.fromkeys(wanted)), set[int]()
        known = {*wanted}
        for target in (one for one in wanted if one in of):  # grows meanwhile
            self._not_made(f"{beside}{target}")
            for number in (one for one in of.pop(target) if one not in done):
                done.add(number)
                wanted += [one for one in dict.fromkeys(rules[number][1]) if one not in known]
                known.update(rules[number][1])
                for line in rules[number][2]:
                    self._shell(line, (self._within, beside), depth)

    def _not_made(self, path: str) -> None:
        """Note that a file is not there, or since when: make would read it, or would take it for made."""
        path = os.path.normpath(path)
        plain = re.fullmatch(r"(?![./]*\.\./|/)[\w./@+-]{1,300}", path) is not None
        if not plain or path in self._known or path in self._found or not self._may_look():
            return
        if not os.path.isdir(self._top / path):
            made = _made_at(self._top / path) or NOT_MADE
            self._found[path] = Sealed(kind="setting", seal=made, content="", mode="file")

    def _tools(self, words: Sequence[str], bases: Sequence[str], depth: int) -> None:
        """Look at what programs read by themselves, as a Makefile, in their folder or where `-C` says."""
        folders = [folder for option, folder in itertools.pairwise(words) if option in {"-C", "--directory"}]
        for word in words:
            for name in MADE_BY.get("make" if word == "MAKE" else os.path.basename(word), ()):
                self._words.update(words)
                for base in (*bases, *(f"{base}{folder}/" for base in bases for folder in folders)):
                    self._take(f"{base}{name}", depth, is_module=False, is_import=False)

    def _shell(self, line: str, bases: Sequence[str], depth: int) -> None:
        """Look at a line of a script: at shell scripts, and at what an interpreter is given."""
        words = ["", *re.split(r"[\s;&|()'\"={}@]+", line.partition(" #")[0])[:200]]
        self._tools(words, bases, depth)
        for folder, word in itertools.product(self._on_path, filter(None, words)):
            self._not_made(f"{folder}{word}")
        for before, word in itertools.pairwise(words):
            path = re.sub(r"^\$[^/]*/?|^/", "", word)
            is_started = _STARTS.fullmatch(before) is not None
            if is_started or ("/" in word and _SHELL.fullmatch(path)):
                self._file(
                    path, bases, depth, is_import=is_started and path.endswith((".py", *_OF_JAVASCRIPT))
                )
            if before == "-m":
                self._module(word, bases, depth)

    def _python(self, text: str, path: str, depth: int) -> None:
        for from_, names, modules in _PYTHON_IMPORT.findall(text):
            package = from_.lstrip(".")
            bases = (_beside(path), self._within) if not from_.startswith(".") else (_beside(path),)
            found = [one.split()[0] for one in modules.split(",") if one.split()]
            found += [package] if package else []
            found += [f"{package}.{one.split()[0]}".lstrip(".") for one in names.split(",") if one.split()]
            for module in found:
                self._module(module, bases, depth, is_import=True)

    def _javascript(self, text: str, beside: str, depth: int) -> None:
        for name in _IMPORTED.findall(text):
            self._file(name, (beside,), depth, is_import=True, is_module=True)
        for value in _SETS_UP_TESTS.findall(text):
            for name in _QUOTED.findall(value):  # what these import may be the program
                self._file(name.replace("<rootDir>/", ""), (beside,), _DEEP, is_module=True)

    # --- what is there ---------------------------------------------------------------------------
    def _module(self, name: str, bases: Sequence[str], depth: int, *, is_import: bool = False) -> None:
        parts = name[:_LONGEST].split(".")
        for base in bases:
            stem = f"{base}{'/'.join(parts)}"
            for path in (f"{stem}.py", f"{stem}/__init__.py", f"{stem}/__main__.py"):
                self._take(
                    path, depth, is_module=True, is_import=is_import or not path.endswith(f"{parts[-1]}.py")
                )
            for length in range(1, len(parts)):
                inner = f"{base}{'/'.join(parts[:length])}/__init__.py"
                self._take(inner, _DEEP, is_module=True, is_import=True)

    def _file(
        self, word: str, bases: Sequence[str], depth: int, *, is_import: bool = False, is_module: bool = False
    ) -> None:
        if not word or word.startswith("-") or len(word) > _LONGEST:
            return
        for base in bases:
            path = os.path.normpath(f"{base}{word}")
            for end in ("", *_OF_JAVASCRIPT, "/index.js", "/index.mjs", "/index.ts"):
                if self._take(f"{path}{end}", depth, is_module=is_module, is_import=is_import):
                    break

    def _take(self, path: str, depth: int, *, is_module: bool, is_import: bool) -> bool:
        path = os.path.normpath(path)
        if path in self._known or path in self._found or len(self._found) >= MOST_NAMED:
            return path in self._known or path in self._found
        parts = path.split("/")
        if path.startswith(("/", "..")) or not _TO_ELSEWHERE.isdisjoint(parts):
            return False
        if not self._may_look():
            return False
        sealed = seal(self._top / path, "module" if is_module else "setting")
        if sealed is None or (is_import and self._is_of_tests(path)):
            return False
        self._found[path] = sealed
        if depth < _DEEP:
            self._pending.append((path, depth + 1))
        return True

    def _may_look(self) -> bool:
        self._looks += 1
        return self._looks <= _MOST_LOOKS

    def _is_of_tests(self, path: str) -> bool:
        """Whether tests import a file, or its package: then it is the program."""
        if self._of_tests is None:
            self._of_tests = frozenset(self._imported_by_tests())
        parts = os.path.splitext(path)[0].split("/")
        return any("/".join(parts[:length]) in self._of_tests for length in range(1, len(parts) + 1))

    def _imported_by_tests(self) -> Iterator[str]:
        for path, sealed in self._known.items():
            if sealed.kind != "test" or not path.endswith(WRITTEN_IN):
                continue
            text = (read_bounded(self._top / path, _MOST_TEXT) or b"").decode("utf-8", "replace")
            for from_, names, modules in _PYTHON_IMPORT.findall(text if path.endswith(".py") else ""):
                named = [from_, *(f"{from_}.{one.strip()}" for one in names.split(","))]
                for module in [*named, *(one.strip() for one in modules.split(","))]:
                    parts = module[:_LONGEST].split(".")
                    for part in itertools.accumulate(parts, lambda one, other: f"{one}/{other}"):
                        yield from (part, f"{self._within}{part}", f"{self._within}src/{part}")
            for name in _IMPORTED.findall("" if path.endswith(".py") else text):
                whole = os.path.normpath(f"{_beside(path)}{name}")
                yield from (whole, os.path.splitext(whole)[0])


def _beside(path: str) -> str:
    folder = os.path.dirname(path)
    return f"{folder}/" if folder else ""


def named_before(top: Path, before: Mapping[str, Sealed]) -> dict[str, Sealed]:
    """Return what is there now of the files that settings named, and what is imported in their place."""
    found = dict[str, Sealed]()
    for path, was in before.items():
        if was.seal.startswith(NOT_MADE):
            if (made := _made_at(top / path)) is not None:
                found[path] = replace(was, seal=made)
            continue
        is_whole = was.kind in {"setting", "module"} and os.path.basename(path) not in MANIFESTS
        places = [path] if is_whole else []
        stem, end = os.path.splitext(path)
        if was.kind == "module" and end == ".py" and not stem.endswith("__"):
            folder, name = os.path.split(stem)
            places += [f"{stem}/{one}" for one in _names(top / stem) if one.startswith("__init__.")]
            compiled = [one for one in _names(top / folder) if one.endswith((".so", ".pyd"))]
            places += [f"{_beside(path)}{one}" for one in compiled if one.startswith(f"{name}.")]
        elif was.kind == "module" and end in _OF_JAVASCRIPT:
            places += [f"{stem}{other}" for other in (*_OF_JAVASCRIPT, "/index.js", "/index.ts")]
        for place in places:
            if (sealed := seal(top / place, was.kind)) is not None:
                found[place] = sealed
    return found


def _made_at(path: Path) -> str | None:
    """Return when a file was made, as a seal; None where there is none."""
    with suppress(OSError):
        return f"{NOT_MADE} since {os.lstat(path).st_mtime_ns}"
    return None


def _names(folder: Path) -> list[str]:
    with suppress(OSError):
        return sorted(os.listdir(folder))
    return []
