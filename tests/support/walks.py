"""The ways from nothing to a supervised workspace in docs/how-to/install.md, as they are typed there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs/how-to/install.md"
OWN_MACHINE, SERVER = "Your own machine", "A server, with an account for agents"

_COMMAND = re.compile(r"^\$ (.*<<'END'.*\n(?:.*\n)*?END|.*)$", re.MULTILINE)


def typed(heading: str) -> list[str]:
    """Return the commands below a heading of the document, a here-document with the one it is for."""
    section = DOCUMENT.read_text(encoding="utf-8").partition(f"\n### {heading}\n")[2].partition("\n### ")[0]
    return _COMMAND.findall(section)


def script(commands: Sequence[str]) -> str:
    """Return a bash script (`-ux`) that types commands up to the first that fails."""
    return "".join(f"{command}\n[ $? = 0 ] || exit 1\n" for command in commands)
