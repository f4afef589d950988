"""Whether the settings can be used, those that name executors included."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from handoffd.doctor.finding import Finding, fault, fine
from handoffd.errors import InvalidFile

CHECK = "settings"


def check(file: Path | None, invalid: Sequence[InvalidFile]) -> tuple[Finding, ...]:
    """Return each problem of the settings, or which file they are from (None: there is none)."""
    found = [
        fault(CHECK, str(problem), "the daemon does not start with it", error.hint)
        for error in invalid
        for problem in error.problems
    ]
    good = f"{file} can be used" if file is not None else "there is no settings file; the defaults hold"
    return tuple(found) or (fine(CHECK, good),)
