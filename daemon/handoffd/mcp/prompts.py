"""Questions that people ask every day, as prompts that a client can offer by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PROMPTS: Final[Mapping[str, tuple[str, str]]] = {
    "morning-report": (
        "What happened overnight, what waits for me, and what it cost",
        "Call `projects`, then `status` for each project that is not at rest, `limits`, and `usage` with "
        "since 12h. Tell me in short lines, the most urgent first: what waits for me and the command that "
        "answers it; what failed and why; what went well; what runs now; what it cost. Give every number as "
        "the tools give it, say so where a tool gave an error, and change nothing.",
    ),
}
"""By name: what it is for, and what is asked."""
