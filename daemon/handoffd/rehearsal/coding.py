"""The steps that write tests and code: scaffold makes them fail, impl makes them pass.

In the sample they belong to the real feature. In any other Python project they are two small files
named after the story, beside everything that is there; in a project of another language the evidence
is a page under docs/rehearsal/.
"""

from __future__ import annotations

import re

from handoffd.rehearsal import placeholders, shipped
from handoffd.rehearsal.assignment import Assignment
from handoffd.rehearsal.documents import belongs_to_sample
from handoffd.rehearsal.handover import Counts, Report
from handoffd.rehearsal.workspace import MARK, Workspace

_SIGNS_OF_PYTHON = ("pyproject.toml", "setup.py", "setup.cfg", "pytest.ini", "tox.ini", "requirements.txt")
_SAMPLE_TEST = "tests/test_discounts.py"
_SAMPLE_CODE = ("shop/pricing.py", "shop/receipt.py")


def scaffold(workspace: Workspace, assignment: Assignment) -> Report:
    """Write tests that fail because the behaviour is missing."""
    name = file_of_tests(workspace, assignment)
    if name is None:
        return _page(workspace, assignment, "tests")
    sample = belongs_to_sample(workspace, assignment)
    text = shipped.story_file(_SAMPLE_TEST) if sample else _filled(placeholders.TEST, assignment)
    if not (sample and workspace.exists(name)) and not workspace.write_new(name, text):
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
    name = file_of_tests(workspace, assignment)
    if name is None:
        return _page(workspace, assignment, "code")
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


def file_of_tests(workspace: Workspace, assignment: Assignment) -> str | None:
    """Return where the story's tests are, or None in a project that is not one in Python."""
    if belongs_to_sample(workspace, assignment):
        return _SAMPLE_TEST
    folder = "test" if workspace.exists("test") and not workspace.exists("tests") else "tests"
    python = any(map(workspace.exists, _SIGNS_OF_PYTHON)) or any(
        name.endswith(".py") for name in workspace.names(folder)
    )
    return f"{folder}/test_{assignment.slug}_rehearsal.py" if python else None


def story_tests(workspace: Workspace, assignment: Assignment) -> tuple[str, ...]:
    """Return the test files a story is judged by: all of the sample's, elsewhere only its own."""
    name = file_of_tests(workspace, assignment)
    if name is None:
        return ()
    if not shipped.is_sample(workspace):
        return (name,)
    return tuple(f"tests/{each}" for each in workspace.names("tests") if re.fullmatch(r"test_.*\.py", each))


def code_files(workspace: Workspace, assignment: Assignment) -> tuple[str, ...]:
    """Return the source files that impl answers for."""
    return tuple(_planned_code(workspace, assignment))


def ids_of_tests(workspace: Workspace, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ids of the test functions written in those files."""
    return tuple(
        f"{name}::{test}"
        for name in names
        for test in re.findall(r"^def (test_\w+)", workspace.read(name) or "", re.MULTILINE)
    )


def _planned_code(workspace: Workspace, assignment: Assignment) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return for each source file its new text, and the texts it may have had before."""
    if belongs_to_sample(workspace, assignment):
        new = {name: shipped.story_file(name) for name in _SAMPLE_CODE}
        return {name: (text, (text, shipped.project_file(name))) for name, text in new.items()}
    text = _filled(placeholders.MODULE, assignment)
    return {f"rehearsal_{assignment.slug}.py": (text, (text,))}


def _filled(template: str, assignment: Assignment) -> str:
    return template.format(label=assignment.label, slug=assignment.slug, mark=MARK)


def _page(workspace: Workspace, assignment: Assignment, what: str) -> Report:
    name = f"docs/rehearsal/{assignment.label}-{what}.md"
    workspace.write_new(
        name, placeholders.PAGE.format(label=assignment.label, what=what, note=placeholders.NOTE)
    )
    return Report(
        summary=f"no {what} written: not a Python project; {name} says so",
        files=(name,),
        notes=("The claim is pass, so that the steps after it can be rehearsed, too.",),
    )


def _left_alone(name: str) -> Report:
    return Report(
        summary=f"{name} was changed by a person; the rehearsal leaves it alone",
        status="failing",
        notes=(f"Move {name} away, or bring back the text that was there before.",),
    )
