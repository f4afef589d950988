"""`doctor` for people: a line for each check that is fine; else what, why, and the next command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from handoffd.cli.wording import plain, styled
from handoffd.doctor.finding import Finding
from handoffd.engine.usage import counted

_WIDTHS = (len("warning"), len("descriptors"))


def report(findings: Sequence[Finding]) -> list[str]:
    """Return the lines for findings, and in the end how many of them there are."""
    lines = [line for finding in findings for line in _lines(finding)]
    return [*lines, "", _summary(findings)]


def _lines(finding: Finding) -> Iterator[str]:
    word, check = (
        text.ljust(width) for text, width in zip((finding.severity, finding.check), _WIDTHS, strict=True)
    )
    yield f"{styled(word)}  {check}  {plain(finding.what)}"
    if finding.why is not None:
        yield f"    why:  {plain(finding.why)}"
    if finding.action is not None:
        yield f"    next: {plain(finding.action)}"


def _summary(findings: Sequence[Finding]) -> str:
    severities = [finding.severity for finding in findings]
    faults, warnings = severities.count("fault"), severities.count("warning")
    if not faults and not warnings:
        return "Nothing is wrong."
    keeps = "" if faults else "; nothing keeps handoffd from working"
    return f"{counted(faults, 'fault')}, {counted(warnings, 'warning')}{keeps}."
