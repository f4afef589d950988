"""Whether the settings can be used, those that name executors included."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from handoffd.doctor.finding import Finding, fault, fine, warning
from handoffd.doctor.openness import too_open
from handoffd.errors import InvalidFile

CHECK = "settings"


def check(
    file: Path | None,
    invalid: Sequence[InvalidFile],
    warnings: Sequence[str] = (),
    open_files: Sequence[str] = (),
) -> tuple[Finding, ...]:
    """Return each problem of the settings, or which file they are from (None: there is none).

    `warnings` is what a daemon that runs says of those it has in force; `open_files` are those with secrets
    that others may read.
    """
    found = [
        fault(CHECK, str(problem), "the daemon does not start with it", error.hint)
        for error in invalid
        for problem in error.problems
    ]
    told = [str(problem) for error in invalid for problem in error.problems]
    found += [
        warning(CHECK, one, "the daemon that runs says so", "handoffd reload")
        for one in warnings
        if not any(problem in one for problem in told)
    ]
    found += [too_open(CHECK, one) for one in open_files]
    good = f"{file} can be used" if file is not None else "there is no settings file; the defaults hold"
    return tuple(found) or (fine(CHECK, good),)
