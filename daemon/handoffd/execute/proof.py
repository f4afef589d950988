"""Which tests a red step has left to be built, and whether a green step has made them pass. Pure.

A suite in which nothing fails proves little: the tests that a story began with may be gone, renamed, skipped
or left out. So a green step is held to the ids that its story's last red step left failing, to the tests that
are written in files which could not be loaded then and had no ids yet, and to what passed before the story
and is still written in the red step's files.

A report is as hostile here as anywhere: at most `MAX_RED` ids are held.
"""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import Literal

from msgspec import Struct

from handoffd.engine.wording import counted, first_few
from handoffd.execute.reports.report import BAD, Outcome, TestReport, bounded_id

MAX_RED = 20_000
MAX_RED_FILES = 500
MAX_DECLARED = 5_000

CHANGED = "tests_changed"
"""How the failure begins of an attempt whose tests are not the red step's."""


Kind = Literal["test", "setting", "module", "hook", "runner"]
"""What a file decides: a test itself, how tests are run (also a module that settings name), what runs with
the runner, or the runner."""


class Sealed(Struct, frozen=True, kw_only=True, array_like=True):
    """What a file was that decides what tests prove."""

    kind: Kind
    seal: str
    """Tells whether it is the same, as far as the tests are concerned."""
    content: str
    """The digest of the whole file; where a link leads."""
    mode: Literal["file", "exec", "link"]
    blob: str | None = None
    """The object of git that has its content; None: it is not kept."""


class Declared(Struct, frozen=True, kw_only=True, array_like=True):
    """A test that is written in a file: its name and its class, or its title."""

    file: str
    name: str
    group: str = ""
    may_skip: bool = False
    """Whether the file itself may skip it."""
    times: int = 1


class Red(Struct, frozen=True, kw_only=True):
    """What a red step has left: ids of tests that failed, and files of tests that could not be loaded."""

    ids: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    more: int = 0
    """How many further ids failed that are not held."""
    tests: dict[str, Sealed] | None = None
    """The files that decide what the tests prove, by path from the workspace; None: they are not known."""
    patterns: tuple[str, ...] = ()
    """What the red step may write: these are files of its tests."""
    why_not: str | None = None
    """Why they are not known."""
    beyond: str | None = None
    """That there are too many of them."""
    only_code: bool = False
    """Of too many test files, only the ones with code are known."""
    declared: tuple[Declared, ...] = ()
    """The tests that `files` have, as far as their text shows it."""
    held: dict[str, tuple[str, ...]] = {}
    """What passed before the story and must still: ids by their test file from the workspace; by "", where
    several may have them."""


class Unmet(Struct, frozen=True, kw_only=True):
    """A test of the red step that did not run and pass. `name` is its id, or its file."""

    name: str
    why: str
    was: Literal["red", "passed"] = "red"

    def __str__(self) -> str:
        return f"{self.name} {self.why}"


def red_of(
    report: TestReport, known: Mapping[str, Outcome], known_files: Collection[str], before: Red
) -> Red:
    """Return what a red step has left, and what is still there of an earlier one of the story.

    `known` and `known_files` are of the baseline: its results, and what could not be loaded then.
    """
    results = report.results
    old, files = frozenset(before.ids), Files(before.files)
    failing = [test_id for test_id, outcome in results.items() if outcome in BAD and test_id not in known]
    kept = [
        test_id
        for test_id, outcome in results.items()
        if outcome == "passed" and test_id not in known and (test_id in old or files.has(test_id))
    ]
    ids = tuple(dict.fromkeys((*failing, *kept)))
    unloadable = (error.file for error in report.load_errors if error.file not in known_files)
    return Red(
        ids=ids[:MAX_RED],
        files=tuple(islice(unloadable, MAX_RED_FILES)),
        more=max(0, len(ids) - MAX_RED),
    )


def unmet(
    red: Red,
    report: TestReport,
    known: Mapping[str, Outcome],
    own_skips: Collection[str] = frozenset(),
    changed: Collection[str] = (),
) -> tuple[Unmet, ...]:
    """Return the tests of the red step that did not run and pass; a failure has its own words elsewhere.

    `own_skips` are tests that the red step's own files skip; of a file that could not be loaded then, no
    other test may be skipped. `known` are the results of the baseline. `changed` are test files that are not
    as the red step left them: of these, tests that passed before the story may be gone.
    """
    found = [
        Unmet(name=test_id, why="is missing" if outcome is None else "is skipped")
        for test_id in red.ids
        if (outcome := report.results.get(test_id)) is None or outcome == "skipped"
    ]
    found += _unmet_in_files(red, report, known, own_skips)
    if report.verified:
        found += _undeclared(red, report, known)
        found += _unheld(red, report, changed)
    return tuple(found)


def _unmet_in_files(
    red: Red, report: TestReport, known: Mapping[str, Outcome], own_skips: Collection[str]
) -> Iterator[Unmet]:
    files, ids = Files(red.files), frozenset(red.ids)
    never = {_place(one) for one in red.declared if not one.may_skip}
    ran = set[str]()
    new = False
    for test_id, outcome in report.results.items():
        if test_id in known or test_id in red.files:  # node reports a file in which no test ran by its name
            continue
        new = new or outcome != "skipped"
        file = files.of(test_id)
        if file is None:
            continue
        if outcome != "skipped":
            ran.add(file)
        elif test_id not in ids and (test_id not in own_skips or _place_of(test_id, file) in never):
            yield Unmet(name=test_id, why="is skipped")
    broken = {error.file for error in report.load_errors}
    # Some runners' ids do not say the file: then any new test that ran may be one of it.
    named = bool(ran) or any(files.of(test_id) for test_id in report.results)
    for file in red.files:
        if file not in ran and file not in broken and (named or not new):
            yield Unmet(name=file, why="has no test that ran")


def _undeclared(red: Red, report: TestReport, known: Mapping[str, Outcome]) -> Iterator[Unmet]:
    """Yield the tests that are written in files of the red step, and of which no case ran."""
    files = Files(tuple({one.file for one in red.declared}))
    broken = {error.file for error in report.load_errors}
    places = set[tuple[str, str, str]]()
    titles: dict[str, list[tuple[str | None, str, Outcome]]] = {}
    for test_id, outcome in report.results.items():
        if test_id in red.files:
            continue
        if (file := files.of(test_id)) is not None:
            places.add(_place_of(test_id, file))
        titles.setdefault(_title(test_id), []).append((file, test_id, outcome))
    said = {file for file, _, _ in places}
    held = {test_id for ids in red.held.values() for test_id in ids}
    for one in red.declared:
        if one.file in broken:
            continue
        if one.file.endswith(".py"):
            # Where no id says its file, this runner's names are others.
            is_there = _place(one) in places or not (said or any(red.held))
        else:
            ran = [
                test_id
                for file, test_id, outcome in titles.get(one.name, ())
                if file in {None, one.file} and (one.may_skip or outcome != "skipped")
            ]
            before = sum(test_id in held and known.get(test_id) == "passed" for test_id in ran)
            is_there = bool(ran) if one.file in said else len(ran) - before >= one.times
        if not is_there:
            yield Unmet(name=f"{one.file}::{one.group and f'{one.group}::'}{one.name}", why="is missing")


def _unheld(red: Red, report: TestReport, changed: Collection[str]) -> Iterator[Unmet]:
    """Yield what passed before the story and neither passes nor fails by now."""
    passed = {_stem(test_id) for test_id, outcome in report.results.items() if outcome == "passed"}
    for file, ids in red.held.items():
        if file in changed or (changed and not file):
            continue
        for test_id in ids:
            outcome = report.results.get(test_id)
            # Another case of it passed: its cases may come from the program.
            if outcome is None and (_stem(test_id) == test_id or _stem(test_id) not in passed):
                yield Unmet(name=test_id, why="is missing", was="passed")
            elif outcome == "skipped":
                yield Unmet(name=test_id, why="is skipped", was="passed")


def lost(first: TestReport, second: TestReport, known: Mapping[str, Outcome]) -> tuple[Unmet, ...]:
    """Return the new tests that pass in a second run, with the red step's files, and not in the first."""
    return tuple(
        Unmet(name=test_id, why="is missing" if test_id not in first.results else "is skipped")
        for test_id, outcome in second.results.items()
        if outcome == "passed" and test_id not in known and first.results.get(test_id) in {None, "skipped"}
    )


def skipped(report: TestReport) -> frozenset[str]:
    """Return the tests that were skipped."""
    return frozenset(test_id for test_id, outcome in report.results.items() if outcome == "skipped")


def said_of(missed: Collection[Unmet]) -> str:
    """Return in words that tests of the red step did not run and pass."""
    red, before = ([str(one) for one in missed if one.was == was] for was in ("red", "passed"))
    number = counted(len(red), "test that was red", "tests that were red")
    said = [f"{number} did not run and pass: {first_few(red)}"] if red else []
    number = counted(len(before), "test that passed before this story", "tests that passed before this story")
    said += [f"{number} did not run: {first_few(before)}"] if before else []
    return f"{CHANGED}: {'; '.join(said)}"


def nothing_passes(report: TestReport, excused: int) -> str | None:
    """Return that not one test passes; None when one does, or none was collected. `excused` failed before."""
    if not report.verified or not report.results or "passed" in report.results.values():
        return None
    rest = [f"{len(skipped(report))} skipped"] if skipped(report) else []
    rest += [f"{excused} failed before this story"] if excused else []
    return f"no test passes: {', '.join(rest)}"


class Files:
    """Tells which of some test files an id is of, for runners whose ids begin with a path or a module."""

    def __init__(self, files: Collection[str]) -> None:
        self._by_head: dict[str, str] = {}
        for file in files:
            self._by_head.setdefault(file, file)
            parts = file.rsplit(".", 1)[0].split("/")
            for start in range(len(parts)):  # a runner may begin below the root
                self._by_head.setdefault(".".join(parts[start:]), file)

    def of(self, test_id: str) -> str | None:
        """Return the file of a test; None when it is of none of them, or its id does not say."""
        head = test_id.partition("::")[0]
        while head:
            if (file := self._by_head.get(head)) is not None:
                return file
            head = head[: max(head.rfind("."), head.rfind("$"), 0)]  # `shop.CartTest$Empty` is in CartTest
        return None

    def has(self, test_id: str) -> bool:
        """Return whether a test is of one of the files."""
        return self.of(test_id) is not None


def _stem(test_id: str) -> str:
    """Return an id without the parameters that pytest appends."""
    return test_id.partition("[")[0] if test_id.endswith("]") else test_id


def _title(test_id: str) -> str:
    """Return the last name of an id, without what numbers several of one name, or calls it."""
    name = re.split(r"::| > ", test_id)[-1]
    return re.sub(r" \(\d+\)\Z|\(\)\Z", "", name)


def _place(one: Declared) -> tuple[str, str, str]:
    return one.file, one.group or os.path.basename(one.file).rpartition(".")[0], one.name


def _place_of(test_id: str, file: str) -> tuple[str, str, str]:
    head, _, name = test_id.partition("::")
    return file, head.rpartition(".")[2], _stem(name)


# --- what is written in test files --------------------------------------------------------------------
_OF_JAVA = (".java", ".kt")
WRITTEN_IN = (".py", ".go", ".js", ".cjs", ".mjs", ".jsx", ".ts", ".cts", ".mts", ".tsx", *_OF_JAVA)
"""Files in whose text tests are looked for."""
_NAMED = re.compile(r"^[ \t]*(?:async[ \t]+)?(?:def|func)[ \t]+(\w+)", re.MULTILINE)
_ESCAPED = re.compile(r"\\.")
_TITLED = re.compile(r"""(["'`])((?:(?!\1)[^\n]){0,500})\1""")
"""In a text without escaped quotes: with these, each of a long row of quotes may begin a title."""
_CALLED = re.compile(
    r"""^[ \t]*(?:await[ \t]+)?(?:test|it)[ \t]*\(\s*(["'`])((?:\\.|(?!\1)[^\\\n]){0,500})\1""",
    re.MULTILINE,
)
_OF_CLASSES = re.compile(r"\b(?:void|fun)[ \t]+(`[^`\n]{1,300}`|\w{1,300})[ \t]*\(")
_JAVA_TEST = re.compile(
    r"@Test\s+(?:@\w+(?:\([^()]{0,300}\))?\s+){0,5}(?:public\s+|internal\s+)?"
    r"(?:void|fun)\s+(`[^`\n]{1,300}`|\w{1,300})\s*\("
)
_JAVA_ELSEWHERE = re.compile(
    r"@(?:RunWith|Parameterized|ExtendWith|DisplayName|Tag)|\b(?:abstract|extends|open)\b"
)
_JAVA_SKIPS = re.compile(r"@(?:Disabled|Ignore|Enabled)|[aA]ssum|Abort")
_GO_TEST = re.compile(r"^func[ \t]+(Test\w*)\(\w+[ \t]+\*testing\.T\)", re.MULTILINE)
_GO_ELSEWHERE = re.compile(
    r"^//(?:go:build| ?\+build)|_(?:windows|darwin|js|wasm|arm64?|386)_test\.go\Z", re.MULTILINE
)
_CHOOSES = re.compile(
    r"(?<![\w-])(?:-k|-t|--deselect|--lf|--last-failed|--sw|--stepwise|--test-?[nN]ame-?[pP]attern"
    r"|--test-only)(?![\w-])|python_(?:functions|classes)"
)
_IGNORED = re.compile(r"(?<![\w-])--ignore(?:-glob)?[=\s]+[\"']?([^\s\"',\]]{1,300})")
_CHOOSES_MARKS = re.compile(r"(?<![\w-])-m(?![\w-])")
_PLAIN_MARKS = frozenset({"anyio", "asyncio", "django_db", "parametrize", "trio", "usefixtures"})
_PLAIN = frozenset({"given", "mark", "mock", "patch", "pytest", "unittest"})
"""Roots of decorators that skip nothing, unless `_SKIPS` is in them."""


class Choice(Struct, frozen=True, kw_only=True):
    """What a project's settings say about which tests run: a test that is written may never run then."""

    names: bool = False
    """Tests are chosen by their names, or in other ways that cannot be known."""
    marks: bool = False
    skips: Literal["none", "marked", "any"] = "none"
    """Which tests fixtures and hooks may skip."""
    ignored: tuple[str, ...] = ()
    """Patterns of files that are left out."""


def choice_of(settings: str, hooks: str) -> Choice:
    """Return what settings choose, the command and the files of a runner, and what conftests do."""
    return Choice(
        names=_CHOOSES.search(settings) is not None or "deselect" in hooks or "_ignore" in hooks,
        marks=_CHOOSES_MARKS.search(settings) is not None,
        skips=_skipped_by(hooks),
        ignored=tuple(_IGNORED.findall(settings)),
    )


def _skipped_by(hooks: str) -> Literal["none", "marked", "any"]:
    """Return which tests conftests may skip: with hooks that look at marks, only the ones that have some."""
    if _SKIPS.search(hooks) is None:
        return "none"
    if (body := _parsed(hooks)) is None:
        return "any"
    skipping = [node for node in body if not isinstance(node, _IMPORTS) and _mentions(node, _SKIPS)]
    if all(map(_looks_at_marks, map(_written, skipping))):
        return "marked" if skipping else "none"
    return "any"


def _looks_at_marks(code: str) -> bool:
    hook = re.search(r"def pytest_collection_modifyitems\b", code)
    return hook is not None and re.search(r"keywords|_marker", code[hook.end() :]) is not None


def names_in(file: str, text: str) -> frozenset[str]:
    """Return the names that functions have in a test file, or in JavaScript the texts that may be titles."""
    if file.endswith((".py", ".go")):
        return frozenset(_NAMED.findall(text))
    if file.endswith(_OF_JAVA):
        return frozenset(name.strip("`") for name in _OF_CLASSES.findall(text))
    plain = _ESCAPED.sub("  ", text)
    titles = {text[found.start(2) : found.end(2)] for found in _TITLED.finditer(plain)}
    return frozenset(_title(bounded_id(_unescaped(title).strip())) for title in titles)


def last_names(known: Mapping[str, Outcome]) -> frozenset[str]:
    """Return the names that ids end in, with and without their parameters."""
    return frozenset(name for test_id in known for name in (_title(test_id), _title(_stem(test_id))))


def held_of(
    report: TestReport, known: Mapping[str, Outcome], names: Mapping[str, frozenset[str]], red: Red
) -> dict[str, tuple[str, ...]]:
    """Return what passed before the story and must still, by test file; `names` are what is written in each.

    That is what passes at the red step, or could not run there because of a file that could not be loaded.
    A test whose name is in no file comes from the program, which may take it away.
    """
    files, found = Files(tuple(names)), dict[str, list[str]]()
    written: dict[str, list[str]] = {}
    for file, all_names in names.items():
        for name in all_names:
            written.setdefault(name, []).append(file)
    for test_id, outcome in islice(known.items(), MAX_RED):
        now = report.results.get(test_id)
        if outcome != "passed" or now not in {None, "passed"}:
            continue
        name = next((one for one in (_title(test_id), _title(_stem(test_id))) if one in written), "")
        places = [file for file in written.get(name, ()) if files.of(test_id) in {None, file}]
        if now is None:
            places = [file for file in places if file not in red.files]
        if places and (now is not None or red.files):
            found.setdefault(places[0] if len(places) == 1 else "", []).append(test_id)
    return {file: tuple(ids) for file, ids in found.items()}


def declared_in(file: str, text: str, choice: Choice) -> tuple[Declared, ...]:
    """Return the tests that are written in a file; nothing where that cannot be known."""
    if choice.names or any(_is_below(file, pattern) for pattern in choice.ignored):
        return ()
    if file.endswith(".py"):
        return tuple(_of_python(file, text, choice))
    if file.endswith(".go"):
        elsewhere = _GO_ELSEWHERE.search(text) or _GO_ELSEWHERE.search(file)
        return () if elsewhere else tuple(_of_go(file, text))
    if file.endswith(_OF_JAVA):
        return tuple(_of_java(file, text))
    return () if ".only(" in text else tuple(_of_javascript(file, text))


def _is_below(file: str, pattern: str) -> bool:
    pattern = os.path.normpath(pattern)
    return fnmatchcase(file, pattern) or file.startswith(f"{pattern}/")


def _of_go(file: str, text: str) -> Iterator[Declared]:
    parts = re.split(r"^(?=func\b)", text, flags=re.MULTILINE)
    helper_skips = any(".Skip" in part for part in parts if not _GO_TEST.match(part))
    for part in parts:
        for name in _GO_TEST.findall(part):
            yield Declared(file=file, name=name, may_skip=helper_skips or ".Skip" in part)


def _of_java(file: str, text: str) -> Iterator[Declared]:
    if _JAVA_ELSEWHERE.search(text) is None:
        may_skip = _JAVA_SKIPS.search(text) is not None
        for name in dict.fromkeys(_JAVA_TEST.findall(text)):
            yield Declared(file=file, name=name.strip("`"), may_skip=may_skip)


def _of_javascript(file: str, text: str) -> Iterator[Declared]:
    last = text.rfind("*/") + len("*/")  # behind it every beginning of a comment is looked through in vain
    text = re.sub(r"^[ \t]*/\*.*?\*/", "", text[:last], flags=re.MULTILINE | re.DOTALL) + text[last:]
    may_skip = _SKIPS_OF_JAVASCRIPT.search(text) is not None
    times: dict[str, int] = {}
    for called in _CALLED.finditer(text):
        line_before = text[max(0, called.start() - 200) : called.start()].rstrip().rpartition("\n")[2]
        if "${" in called[2] or re.search(r"\b(?:if|else|for|while|switch|case|forEach)\b", line_before):
            continue
        name = _title(bounded_id(_unescaped(called[2]).strip()))
        times[name] = times.get(name, 0) + 1
    for name, count in times.items():
        yield Declared(file=file, name=name, may_skip=may_skip, times=count)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _of_python(file: str, text: str, choice: Choice) -> Iterator[Declared]:
    body = _parsed(text)
    if body is None or "__test__" in text:
        return
    of = _Python(body, text, choice)
    for node in body:
        if isinstance(node, ast.ClassDef) and _is_collected(node) and not of.is_marked(node):
            may_skip = of.skips(node.body) or of.may_skip(node)
            for inner in node.body:
                if isinstance(inner, _FUNCTIONS) and of.is_test(inner):
                    skips = may_skip or of.may_skip(inner)
                    yield Declared(file=file, name=inner.name, group=node.name, may_skip=skips)
        elif isinstance(node, _FUNCTIONS) and of.is_test(node):
            yield Declared(file=file, name=node.name, may_skip=of.may_skip(node))


MAX_PYTHON = 128 * 1024
"""Characters of a module: while a longer one is parsed, nothing else in the daemon goes on."""


def _parsed(text: str) -> list[ast.stmt] | None:
    """Return the statements of a module; None where it is none, or too long."""
    if len(text) > MAX_PYTHON:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its escapes
        try:
            return ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


def _written(node: ast.AST) -> str:
    """Return code as text; nothing, where it is nested too deep to be written out."""
    try:
        return ast.unparse(node)
    except RecursionError:
        return ""


def _mentions(node: ast.AST, wanted: re.Pattern[str]) -> bool:
    """Return whether code uses such a name: not as the name of a test alone, nor in a text."""
    used = (
        one.id if isinstance(one, ast.Name) else one.attr if isinstance(one, ast.Attribute) else one.arg or ""
        for one in ast.walk(node)
        if isinstance(one, (ast.Name, ast.Attribute, ast.arg, ast.keyword))
    )
    return any(map(wanted.search, used))


def _is_collected(node: ast.ClassDef) -> bool:
    """Whether pytest takes a class for one of tests, as it does by default."""
    has_init = any(isinstance(inner, _FUNCTIONS) and inner.name == "__init__" for inner in node.body)
    is_case = any(_written(base).endswith("TestCase") for base in node.bases)
    return is_case or (node.name.startswith("Test") and not has_init)


class _Python:
    """What a module of tests says about them: only what pytest certainly collects is a test."""

    def __init__(self, body: Sequence[ast.stmt], text: str, choice: Choice) -> None:
        self._choice = choice
        self._has_skips = _SKIPS.search(text) is not None
        self._has_marks = _MARKS_ALL.search(text) is not None
        self._plain = set(_PLAIN)
        for node in body:
            if isinstance(node, ast.Assign) and not self._skips(node):
                self._plain |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        self._all_skip = choice.skips == "any" or self.skips(body)
        self._chosen = choice.marks and self._has_marks

    def is_test(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """Return whether a function is a test that runs, whatever marks are chosen."""
        if not node.name.startswith("test") or self._chosen or self.is_marked(node):
            return False
        words = [_written(one) for one in node.decorator_list]
        return not any(re.search(r"fixture|overload|contextmanager|property", word) for word in words)

    def is_marked(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
        """Return whether the marks that are chosen may leave it out."""
        return self._choice.marks and not all(map(self._is_plain_mark, node.decorator_list))

    def may_skip(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
        """Return whether a test, or a class of tests, may skip itself."""
        if self._all_skip or (isinstance(node, _FUNCTIONS) and self._skips(node)):
            return True
        marked = self._choice.skips == "marked" and not all(map(self._is_plain_mark, node.decorator_list))
        words = [re.split(r"\W", _written(one), maxsplit=1)[0] for one in node.decorator_list]
        return marked or any(map(self._skips, node.decorator_list)) or not self._plain.issuperset(words)

    def skips(self, nodes: Sequence[ast.stmt]) -> bool:
        """Return whether a helper, a fixture or a mark of all may skip tests."""
        for node in nodes:
            is_helper = isinstance(node, _FUNCTIONS) and not node.name.startswith("test")
            is_mark = self._has_marks and isinstance(node, ast.Assign) and _mentions(node, _MARKS_ALL)
            if (is_helper or is_mark) and self._skips(node):
                return True
            if is_mark and self._choice.skips == "marked":
                return True
        return False

    def _skips(self, node: ast.AST) -> bool:
        return self._has_skips and _mentions(node, _SKIPS)

    def _is_plain_mark(self, node: ast.expr) -> bool:
        code = _written(node)
        found = re.match(r"(?:pytest\.)?mark\.(\w+)", code)
        return code != "" and (found is None or found[1] in _PLAIN_MARKS)


_MARKS_ALL = re.compile("pytestmark")
_SKIPS = re.compile(r"skip|xfail|expectedFailure", re.IGNORECASE)
_SKIPS_OF_JAVASCRIPT = re.compile(
    r"\.(?:skip|todo|runIf)\w*\s*\(|,\s*\{[^{}]{0,200}\b(?:skip|todo)\s*[:,}]|\bx(?:it|test|describe)\s*\("
)
