"""The steps that write tests and code, and the languages they do it in: Python, Go, JavaScript, Rust.

scaffold makes the tests fail, impl makes them pass. In the sample they belong to the real feature. In any
other project they are two small files named after the story, in its own language and beside everything that
is there, that the project's own test command runs: first the tests alone, then the code. Where nothing
tells how that command could be made to run them, none are written; the evidence is a page under
docs/rehearsal/ then, with the reason.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from handoffd.rehearsal import placeholders
from handoffd.rehearsal.assignment import Assignment, Counts, Report
from handoffd.rehearsal.documents import belongs_to_sample
from handoffd.rehearsal.workspace import MARK, Workspace, is_sample, project_file, story_file

_SAMPLE_TEST = "tests/test_discounts.py"
_SAMPLE_CODE = ("shop/pricing.py", "shop/receipt.py")


def scaffold(workspace: Workspace, assignment: Assignment) -> Report:
    """Write tests that fail because the behaviour is missing."""
    plan = _plan(workspace, assignment)
    if isinstance(plan, str):
        return _page(workspace, assignment, "tests", plan)
    sample, name = belongs_to_sample(workspace, assignment), plan.test
    if not (sample and workspace.exists(name)) and not workspace.write_new(name, plan.test_text):
        return _left_alone(name)
    tests = ids_of_tests(workspace, (name,))
    return Report(
        summary=f"{len(tests)} tests for the scenarios of {assignment.label}, all failing",
        files=(name,),
        tests=Counts(failed=len(tests)),
        failing=tests,
        notes=("The counts are claimed, not measured: the behaviour under test is not written yet.",),
    )


def impl(workspace: Workspace, assignment: Assignment) -> Report:
    """Write the least code that makes the story's tests pass."""
    if isinstance(plan := _plan(workspace, assignment), str):
        return _page(workspace, assignment, "code", plan)
    code = _planned_code(workspace, assignment)
    for path, (text, accepted) in code.items():
        present = workspace.read(path)
        if present is not None and present not in accepted and MARK not in present:
            return _left_alone(path)
        workspace.write(path, text)
    return Report(
        summary=f"the tests of {assignment.label} pass",
        files=tuple(code),
        tests=Counts(passed=len(ids_of_tests(workspace, story_tests(workspace, assignment)))),
        notes=("The counts are claimed, not measured: verify runs the tests.",),
    )


WORK = {"scaffold": scaffold, "impl": impl}


def _plan(workspace: Workspace, assignment: Assignment) -> Plan | str:
    """Return the files of a story, or why there are none; of the sample's code, only the first of two."""
    if belongs_to_sample(workspace, assignment):
        code = _SAMPLE_CODE[0]
        return Plan(_SAMPLE_TEST, story_file(_SAMPLE_TEST), code, story_file(code), by_pytest=True)
    return plan_for(workspace, assignment)


def file_of_tests(workspace: Workspace, assignment: Assignment) -> str | None:
    """Return where the story's tests are, or None where the rehearsal writes none."""
    plan = _plan(workspace, assignment)
    return None if isinstance(plan, str) else plan.test


def by_pytest(workspace: Workspace, assignment: Assignment) -> bool:
    """Whether pytest can be asked about the story's tests alone."""
    plan = _plan(workspace, assignment)
    return not isinstance(plan, str) and plan.by_pytest


def story_tests(workspace: Workspace, assignment: Assignment) -> tuple[str, ...]:
    """Return the test files a story is judged by: all of the sample's, elsewhere only its own."""
    name = file_of_tests(workspace, assignment)
    if name is None:
        return ()
    if not is_sample(workspace):
        return (name,)
    return tuple(f"tests/{each}" for each in workspace.names("tests") if re.fullmatch(r"test_.*\.py", each))


def code_files(workspace: Workspace, assignment: Assignment) -> tuple[str, ...]:
    """Return the source files that impl answers for."""
    return tuple(_planned_code(workspace, assignment))


def ids_of_tests(workspace: Workspace, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ids of the test functions written in those files."""
    return tuple(
        f"{name}::{test}" for name in names for test in names_of_tests(name, workspace.read(name) or "")
    )


def _planned_code(workspace: Workspace, assignment: Assignment) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return for each source file its new text, and the texts it may have had before."""
    if belongs_to_sample(workspace, assignment):
        new = {name: story_file(name) for name in _SAMPLE_CODE}
        return {name: (text, (text, project_file(name))) for name, text in new.items()}
    plan = plan_for(workspace, assignment)
    return {} if isinstance(plan, str) else {plan.code: (plan.code_text, (plan.code_text,))}


def _page(workspace: Workspace, assignment: Assignment, what: str, why: str) -> Report:
    name = f"docs/rehearsal/{assignment.label}-{what}.md"
    page = placeholders.PAGE.format(label=assignment.label, what=what, note=placeholders.NOTE, why=why)
    workspace.write_new(name, page)
    return Report(
        summary=f"no {what} written: {why}",
        files=(name,),
        notes=("The claim is pass, so that the steps after it can be rehearsed, too.",),
    )


def _left_alone(name: str) -> Report:
    return Report(
        summary=f"{name} was changed by a person; the rehearsal leaves it alone",
        status="failing",
        notes=(f"Move {name} away, or bring back the text that was there before.",),
    )


# --- languages ---------------------------------------------------------------------------------------
WRITTEN = "Python, Go, Rust and JavaScript (node:test, jest, vitest)"

_SIGNS_OF_PYTHON = ("pyproject.toml", "setup.py", "setup.cfg", "pytest.ini", "tox.ini", "requirements.txt")
_NODE_PROGRAMS = r"npm|npx|pnpm|yarn|bun|node|jest|vitest"
_COMMANDS = (
    ("python", r"python[\d.]*|pytest"),
    ("go", "go"),
    ("rust", "cargo"),
    ("javascript", _NODE_PROGRAMS),
)
_ELSEWHERE = re.compile(r"(?<![\w-])(?:cd|mvnw?|gradlew?)(?![\w-])")
"""What runs tests of folders below, or in languages that are not written."""
_TEST_SECTION = re.compile(r"^test:(.*(?:\n(?:[ \t].*)?)*)", re.MULTILINE)
_TEST_FILE = re.compile(r".+\.(?:test|spec)\.(?P<extension>[cm]?js|jsx|tsx?)")
_MOST_FOLDERS = 300
_TESTS = {
    "py": r"^def (test_\w+)", "go": r"^func (Test\w+)", "rs": r"^fn (\w+)\(\) \{", "js": r'^test\("([^"]+)"',
    "ts": r'^test\("([^"]+)"',
}  # fmt: skip


class Plan(NamedTuple):
    """The two files of a story, by name and text; `by_pytest` when pytest can be asked about them alone."""

    test: str
    test_text: str
    code: str
    code_text: str
    by_pytest: bool = False


def plan_for(workspace: Workspace, assignment: Assignment) -> Plan | str:
    """Return the files that are written for a story, or in words why none are."""
    if elsewhere := _ELSEWHERE.search(_test_command(workspace)):
        return f"the rehearsal writes tests in {WRITTEN}, and this project's are run with {elsewhere[0]}"
    language = _language_of(workspace)
    if language == "python":
        return _python(workspace, assignment)
    if language == "go":
        return _go(assignment)
    if language == "rust":
        return _rust(workspace, assignment)
    if language == "javascript":
        return _javascript(workspace, assignment)
    return f"the rehearsal writes tests in {WRITTEN}, and nothing shows that this project has such"


def names_of_tests(name: str, text: str) -> list[str]:
    """Return the names of the tests that are written in a file."""
    return re.findall(_TESTS.get(name.rpartition(".")[2], r"(?!)"), text, re.MULTILINE)


def _language_of(workspace: Workspace) -> str | None:
    """Return the language of the test command, else the one that the files of the root show."""
    command = _test_command(workspace)
    for language, programs in _COMMANDS:
        if re.search(rf"(?<![\w-])(?:{programs})(?![\w-])", command):
            return language
    folder = _python_folder(workspace)
    if any(map(workspace.exists, _SIGNS_OF_PYTHON)) or any(
        n.endswith(".py") for n in workspace.names(folder)
    ):
        return "python"
    signs = {"go.mod": "go", "package.json": "javascript", "Cargo.toml": "rust"}
    return next((language for name, language in signs.items() if workspace.exists(name)), None)


def _test_command(workspace: Workspace) -> str:
    """Return the settings of the tests as they are written, without comments."""
    text = re.sub(r"(?:^|\s)#.*", "", workspace.read(".ai/handoffd.yaml") or "", flags=re.MULTILINE)
    found = _TEST_SECTION.search(text)
    return found[1] if found else ""


def _filled(template: str, assignment: Assignment, **more: str) -> str:
    camel = "".join(part.capitalize() for part in assignment.slug.split("_"))
    return template.format(label=assignment.label, slug=assignment.slug, camel=camel, mark=MARK, **more)


def _python_folder(workspace: Workspace) -> str:
    return "test" if workspace.exists("test") and not workspace.exists("tests") else "tests"


def _python(workspace: Workspace, assignment: Assignment) -> Plan:
    return Plan(
        f"{_python_folder(workspace)}/test_{assignment.slug}_rehearsal.py",
        _filled(placeholders.TEST, assignment),
        f"rehearsal_{assignment.slug}.py",
        _filled(placeholders.MODULE, assignment),
        by_pytest=True,
    )


def _go(assignment: Assignment) -> Plan:
    # A package of its own: the project's packages may have any name and content.
    folder = f"rehearsal_{assignment.slug}"
    test, code = _filled(placeholders.GO_TEST, assignment), _filled(placeholders.GO_CODE, assignment)
    return Plan(f"{folder}/story_test.go", test, f"{folder}/story.go", code)


def _rust(workspace: Workspace, assignment: Assignment) -> Plan | str:
    manifest = workspace.read("Cargo.toml") or ""
    if not re.search(r"^\s*\[package\]", manifest, re.MULTILINE) or "autotests" in manifest:
        return "cargo finds no test by its name in the root of this workspace"
    name = f"rehearsal_{assignment.slug}.rs"
    return Plan(
        f"tests/{name}",
        _filled(placeholders.RUST_TEST, assignment),
        name,
        _filled(placeholders.RUST_CODE, assignment),
    )


# --- JavaScript ------------------------------------------------------------------------------------


def _javascript(workspace: Workspace, assignment: Assignment) -> Plan | str:
    package = _package(workspace)
    runner, asked = _runner(workspace, package)
    if runner is None and (patterns := _members(workspace, package)):
        return _in_member(workspace, assignment, patterns)
    if runner is None:
        return "its tests are run by neither node:test, jest nor vitest, of which the rehearsal knows"
    folder, extension = _where_tests_are(workspace)
    if extension in {"ts", "tsx"} and runner != "vitest":
        return f"its tests are in TypeScript, and run by {runner}"
    language = "ts" if extension in {"ts", "tsx"} else "js"
    name, code = f"rehearsal_{assignment.slug}.test.{language}", f"rehearsal_{assignment.slug}.{language}"
    test = f"{folder}/{name}" if folder else name
    if asked and not any(_reaches(word, test) for word in asked):
        return f"its test command names what it tests ({' '.join(asked)[:100]})"
    module = runner == "vitest" or package.get("type") == "module"
    to_code = os.path.relpath(code, folder or ".")
    to_code = to_code if to_code.startswith(".") else f"./{to_code}"
    text = placeholders.JS_TEST_OF_MODULE if module else placeholders.JS_TEST
    head = placeholders.JS_HEADS[runner, module]
    code_text = placeholders.JS_MODULE if module else placeholders.JS_CODE
    return Plan(
        test, _filled(text, assignment, head=head, code=to_code), code, _filled(code_text, assignment)
    )


def _members(workspace: Workspace, package: dict[str, Any]) -> list[str]:
    """Return the patterns of the folders that belong to a workspace; none where it is none."""
    found = package.get("workspaces")
    found = found.get("packages") if isinstance(found, dict) else found
    if workspace.exists("pnpm-workspace.yaml"):
        return ["**"]  # regardless of its text: a folder that is not a package has no test script
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _in_member(workspace: Workspace, assignment: Assignment, patterns: list[str]) -> Plan | str:
    """Return what is written in the first package of a workspace whose tests can be written."""
    for folder, files in islice(_folders(workspace), _MOST_FOLDERS):
        if folder and "package.json" in files and any(_reaches(one, folder) for one in patterns):
            member = Workspace(workspace.path(folder))
            plan = _javascript(member, assignment) if _runner(member, _package(member))[0] else ""
            if isinstance(plan, Plan):
                return plan._replace(test=f"{folder}/{plan.test}", code=f"{folder}/{plan.code}")
    return (
        "it is a workspace, and the tests of none of its packages are run by node:test, jest or vitest"
        " in a way that the rehearsal knows"
    )


def _package(workspace: Workspace) -> dict[str, Any]:
    try:
        package = json.loads(workspace.read("package.json") or "")
    except (ValueError, RecursionError):
        return {}
    return package if isinstance(package, dict) else {}


def _runner(workspace: Workspace, package: dict[str, Any]) -> tuple[str | None, list[str]]:
    """Return the runner of the package's tests, and its operands."""
    scripts = package.get("scripts")
    script = scripts.get("test") if isinstance(scripts, dict) else None
    script = script if isinstance(script, str) else ""
    for runner, sign in (
        ("vitest", r"vitest"),
        ("jest", r"jest|react-scripts"),
        ("node:test", r"node\b.*\s--test"),
    ):
        for text in (script, _test_command(workspace)):
            if found := re.search(rf"(?<![\w-])(?:{sign})(?![\w-])(.*)", text):
                return runner, _operands(found[1]) if text is script else []
    return None, []


def _operands(words: str) -> list[str]:
    """Return the words of a call that are not options, up to the end of the command."""
    found = re.split(r"[;&|<>]", words)[0].split()
    return [word.strip("\"'") for word in found if not word.startswith("-") and word not in {"run", "test"}]


def _reaches(operand: str, test: str) -> bool:
    """Whether a runner with the operand `operand` (a file, a folder, a pattern) runs the file `test`."""
    plain = operand.removeprefix("./").rstrip("/")
    pattern = re.escape(plain).replace(r"\*\*/", "(?:.*/)?").replace(r"\*\*", ".*").replace(r"\*", "[^/]*")
    return test.startswith(f"{plain}/") or re.fullmatch(pattern, test) is not None


def _where_tests_are(workspace: Workspace) -> tuple[str, str]:
    """Return the folder of the project's own tests and the extension that their files have."""
    for folder, files in islice(_folders(workspace), _MOST_FOLDERS):
        for file in files:
            if found := _TEST_FILE.fullmatch(file):
                return folder, found["extension"]
    return next((name for name in ("test", "tests", "__tests__") if workspace.exists(name)), ""), "js"


def _folders(workspace: Workspace) -> Iterator[tuple[str, list[str]]]:
    for place, folders, files in os.walk(workspace.root):
        folders[:] = sorted(name for name in folders if name != "node_modules" and not name.startswith("."))
        relative = os.path.relpath(place, workspace.root)
        yield "" if relative == "." else relative, sorted(n for n in files if not n.startswith("rehearsal_"))
