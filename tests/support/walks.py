"""The commands of pages that a reader follows from the first line to the last, as they are typed there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
INSTALL, TUTORIAL = DOCS / "how-to/install.md", DOCS / "tutorials/first-night.md"
PIPELINES, FLOW = DOCS / "how-to/pipelines.md", DOCS / "tutorials/first-flow.md"
OWN_MACHINE, SERVER = "Your own machine", "A server, with an account for agents"

_COMMAND = re.compile(r"^\$ (.*<<'END'.*\n(?:.*\n)*?END|.*)$", re.MULTILINE)


def typed(heading: str) -> list[str]:
    """Return the commands below a heading of docs/how-to/install.md."""
    text = INSTALL.read_text(encoding="utf-8")
    return commands(text.partition(f"\n### {heading}\n")[2].partition("\n### ")[0])


def commands(text: str) -> list[str]:
    """Return the commands of a page, a here-document with the command that reads it."""
    return _COMMAND.findall(text)


def screens(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands of a page's blocks, each with the lines that the page shows below it."""
    for block in re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        _, *parts = _COMMAND.split(block)
        yield from (
            (command, lines.splitlines()) for command, lines in zip(parts[::2], parts[1::2], strict=True)
        )


def is_like(page: Iterable[str], shown: Iterable[str]) -> bool:
    """Return whether a page shows these lines, but for empty ones, and for gaps, which are `...`."""
    left = [line for line in shown if line]
    anywhere = False
    for line in filter(None, page):
        if line == "...":
            anywhere = True
        elif line not in (left if anywhere else left[:1]):
            return False
        else:
            left, anywhere = left[left.index(line) + 1 :], False
    return anywhere or not left


def script(commands: Sequence[str]) -> str:
    """Return a bash script (`-ux`) that types commands up to the first that fails."""
    return "".join(f"{command}\n[ $? = 0 ] || exit 1\n" for command in commands)
