"""Whether what agents change can be looked at and taken back: git, and projects that are kept in it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from handoffd.doctor.finding import Finding, fine, warning
from handoffd.inspection.repository import repository_of

CHECK = "git"

_ANSWER_S = 2.0
_NAMED = 3
"""Projects that are named; of more, their number says enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitFacts:
    """`version` is None when git is not found or silent; `loose` are roots outside of repositories."""

    version: str | None
    loose: Sequence[str] = ()


def gather(roots: Sequence[str], environ: Mapping[str, str]) -> GitFacts:
    """Return what there is of git. Looks into the folders of `roots` and above."""
    return GitFacts(
        version=_version(environ), loose=tuple(root for root in roots if repository_of(root) is None)
    )


def check(facts: GitFacts) -> tuple[Finding, ...]:
    """Return what of the agents' work could not be taken back."""
    if facts.version is None:
        why = "what an agent has changed can then be neither looked at nor taken back"
        return (warning(CHECK, "git is not found", why, "sudo apt install git"),)
    if not facts.loose:
        return (fine(CHECK, facts.version),)
    count = len(facts.loose)
    named = ", ".join(facts.loose[:_NAMED]) + (f" and {count - _NAMED} more" if count > _NAMED else "")
    what = f"{named} {'is' if count == 1 else 'are'} in no git repository"
    why = "what an agent has changed there can be neither looked at nor taken back"
    return (warning(CHECK, what, why, f"git -C {quote(facts.loose[0])} init"),)


def _version(environ: Mapping[str, str]) -> str | None:
    program = shutil.which("git", path=environ.get("PATH"))
    if program is None:
        return None
    try:
        answer = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=_ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
