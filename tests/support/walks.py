"""The commands of pages that a reader follows from the first line to the last, as they are typed there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
INSTALL, TUTORIAL = DOCS / "how-to/install.md", DOCS / "tutorials/first-night.md"
OWN_MACHINE, SERVER = "Your own machine", "A server, with an account for agents"

_COMMAND = re.compile(r"^\$ (.*<<'END'.*\n(?:.*\n)*?END|.*)$", re.MULTILINE)


def typed(heading: str) -> list[str]:
    """Return the commands below a heading of docs/how-to/install.md."""
    text = INSTALL.read_text(encoding="utf-8")
    return commands(text.partition(f"\n### {heading}\n")[2].partition("\n### ")[0])


def commands(text: str) -> list[str]:
    """Return the commands of a page, a here-document with the command that reads it."""
    return _COMMAND.findall(text)


def answers(text: str) -> list[str]:
    """Return the lines of a page that show what its commands print; `...` means lines left out."""
    blocks = "".join(re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    return [line for line in _COMMAND.sub("", blocks).splitlines() if line not in {"", "..."}]


def script(commands: Sequence[str]) -> str:
    """Return a bash script (`-ux`) that types commands up to the first that fails."""
    return "".join(f"{command}\n[ $? = 0 ] || exit 1\n" for command in commands)
