"""Which work belongs to which step. Only the module that a step needs is imported."""

# ruff: noqa: PLC0415  (start-up time: the rehearsal is started hundreds of times in a test run)

from __future__ import annotations

from collections.abc import Callable

from handoffd.rehearsal.assignment import Assignment
from handoffd.rehearsal.handover import Report
from handoffd.rehearsal.workspace import Workspace

Work = Callable[[Workspace, Assignment], Report]


def work_of(step: str, *, run_tests: bool = True) -> Work:
    """Return the work of a step. `run_tests` False: verify claims its counts instead of measuring them."""
    match step:
        case "bootstrap" | "bdd" | "sdd-delta" | "contract" | "custom":
            from handoffd.rehearsal import documents

            return documents.WORK[step]
        case "scaffold" | "impl":
            from handoffd.rehearsal import coding

            return coding.WORK[step]
        case "verify":
            from handoffd.rehearsal import verification

            return verification.measured if run_tests else verification.claimed
        case "commit":
            from handoffd.rehearsal import committing

            return committing.commit
        case "update-memory":
            from handoffd.rehearsal import memory

            return memory.update_memory
        case _:
            return _unknown


def _unknown(workspace: Workspace, assignment: Assignment) -> Report:
    return Report(
        summary=f"nothing was changed: the rehearsal knows no work for the step {assignment.step}",
        notes=(
            f"An agent would follow the instruction of {assignment.step} in its prompt "
            f"({len(assignment.prompt)} characters) and hand over what it did.",
            "The claim is pass, so that the steps after it can be rehearsed, too.",
        ),
    )
