"""Files a step wants to read and cannot: said as a warning, never a reason to stop."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from handoffd.protocol.rules import Rule
from handoffd.protocol.story import expand, relative_path

HANDOFF = ".ai/HANDOFF.md"

_MADE_BY = (
    ("docs/bdd/", "bdd"),
    ("docs/deltas/", "sdd-delta"),
    ("docs/api/", "contract"),
    ("docs/sdd.md", "bootstrap"),
    ("PROJECT_MEMORY.md", "bootstrap"),
)
"""Which step makes what is missing, by the beginning of the path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prerequisites:
    """What a step reads, what of it is missing, and the step that would make that."""

    reads: tuple[str, ...]
    missing: tuple[str, ...]
    rollback_target: str | None


def prerequisites(root: str, rule: Rule, story: str | None, attempt: int) -> Prerequisites:
    """Return what `rule` reads for `story`; patterns and a first attempt's hand-off are not looked for."""
    reads = tuple(expand(path, story) for path in rule.claude_reads)
    concrete = [path for path in reads if not any(char in path for char in "*?[")]
    wanted = [path for path in concrete if not (path == HANDOFF and attempt == 1)]
    missing = tuple(path for path in wanted if relative_path(path) and not Path(root, path).exists())
    return Prerequisites(reads=reads, missing=missing, rollback_target=_target(missing))


def _target(missing: tuple[str, ...]) -> str | None:
    for beginning, step in reversed(_MADE_BY):
        if any(path.startswith(beginning) for path in missing):
            return step
    return None
