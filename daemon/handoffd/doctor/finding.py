"""What a check found out. The JSON is documented in docs/cli.md, and stable."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["ok", "warning", "fault"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at. `ok` has neither `why` nor `action`; `action` is a command to type."""

    check: str
    severity: Severity
    what: str
    why: str | None = None
    action: str | None = None


def fine(check: str, what: str) -> Finding:
    """Return that all is well."""
    return Finding(check=check, severity="ok", what=what)


def warning(check: str, what: str, why: str | None, action: str | None) -> Finding:
    """Return what will be a nuisance, or a fault one day."""
    return Finding(check=check, severity="warning", what=what, why=why, action=action)


def fault(check: str, what: str, why: str | None, action: str | None) -> Finding:
    """Return what keeps handoffd from working, as a whole or in one project."""
    return Finding(check=check, severity="fault", what=what, why=why, action=action)


def is_sound(findings: Iterable[Finding]) -> bool:
    """Return whether nothing keeps handoffd from working."""
    return all(finding.severity != "fault" for finding in findings)


def as_json(findings: Iterable[Finding]) -> dict[str, Any]:
    """Return findings as programs are told of them."""
    found = tuple(findings)
    return {"findings": [asdict(finding) for finding in found], "ok": is_sound(found)}
