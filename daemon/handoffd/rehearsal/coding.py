"""The steps that write tests and code: scaffold makes them fail, impl makes them pass.

In the sample they belong to the real feature. In any other project they are two small files named after
the story, in its own language and beside everything that is there; where the rehearsal cannot write any,
the evidence is a page under docs/rehearsal/.
"""

from __future__ import annotations

import re

from handoffd.rehearsal import placeholders, shipped
from handoffd.rehearsal.assignment import Assignment
from handoffd.rehearsal.documents import belongs_to_sample
from handoffd.rehearsal.handover import Counts, Report
from handoffd.rehearsal.languages import Plan, names_of_tests, plan_for
from handoffd.rehearsal.workspace import MARK, Workspace

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
        return Plan(
            _SAMPLE_TEST, shipped.story_file(_SAMPLE_TEST), code, shipped.story_file(code), by_pytest=True
        )
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
    if not shipped.is_sample(workspace):
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
        new = {name: shipped.story_file(name) for name in _SAMPLE_CODE}
        return {name: (text, (text, shipped.project_file(name))) for name, text in new.items()}
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
