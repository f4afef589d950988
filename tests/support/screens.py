"""The picture of the README, docs/story.svg: one story on a terminal, drawn from a run of the tutorial.

`python -m tests.support.screens` types the tutorial and draws it anew. A test types it, too, and holds the
lines of the picture against the terminal's.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.support.reader import AT_NIGHT, Person
from tests.support.recording import WIDTH, Shown
from tests.support.walks import DOCS, TUTORIAL, screens

from handoffd.cli.wording import unstyled

PICTURE = DOCS / "story.svg"
DRAWN = (
    ("handoffd start . US-001 --executor rehearsal", 1),
    ("handoffd status", 3),
    ("handoffd gate .", 11),
    ("handoffd approve .", 1),
    ("handoffd status", 3),
    ("git log --oneline HEAD..handoffd/US-001", 7),
    ("handoffd land .", 1),
)
"""Commands of the tutorial, in its order, and how many lines of each are shown: of a message the first one,
of a screen as many as matter.

Of a command that is typed repeatedly, it is the last time before the next one here.
"""

_COLOURS = {"1": "b", "2": "f", "31": "r", "32": "g", "33": "y", "36": "c"}
_STYLE = (
    "text{fill:#d8dee9;white-space:pre}.p{fill:#81a1c1}.b{font-weight:bold}.f{opacity:.6}"
    ".r{fill:#e06c75}.g{fill:#98c379}.y{fill:#e5c07b}.c{fill:#56b6c2}"
)
_FONT = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_COLUMN, _LINE, _MARGIN = 8.43, 20, 16
"""Pixels: of a character of the font, of a line, and around them."""
_PIECES = re.compile(r"\x1b\[([0-9;]*)m")


def pictured(seen: Sequence[Shown]) -> list[str]:
    """Return the lines of the picture, with colours, from what a terminal showed of the tutorial."""
    lines: list[str] = []
    end = len(seen)
    for command, most in reversed(DRAWN):
        end = max(at for at in range(end) if seen[at].command == command)
        shown = [line for line in seen[end].lines if line]
        more = ["..."] if 1 < most < len(shown) else []
        lines[:0] = ["", f"$ {command}", *shown[:most], *more]
    return lines[1:]


def drawn(lines: Sequence[str]) -> str:
    """Return an SVG of a terminal with these lines, in their colours."""
    width = round(WIDTH * _COLUMN) + 2 * _MARGIN
    height = len(lines) * _LINE + 2 * _MARGIN
    heights = range(_MARGIN + _LINE - 5, height, _LINE)
    texts = [
        f'<text x="{_MARGIN}" y="{y}" xml:space="preserve">{"".join(_spans(line))}</text>'
        for y, line in zip(heights, lines, strict=False)
    ]
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
            f' viewBox="0 0 {width} {height}" role="img" font-family="{_FONT}" font-size="14">',
            "<title>One story on a terminal, from its start to the branch that has it</title>",
            f"<style>{_STYLE}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#2b303b"/>',
            *texts,
            "</svg>\n",
        )
    )


def texts_of(picture: str) -> list[str]:
    """Return the lines of a picture, as text."""
    root = ET.fromstring(picture)
    return ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]


def _spans(line: str) -> Iterator[str]:
    if line.startswith("$ "):
        yield f'<tspan class="p">{escape(line)}</tspan>'
        return
    text, *coloured = _PIECES.split(line)
    yield escape(text)
    for codes, piece in zip(coloured[::2], coloured[1::2], strict=True):
        names = " ".join(_COLOURS[code] for code in codes.split(";") if code in _COLOURS)
        if piece:
            yield f'<tspan class="{names}">{escape(piece)}</tspan>' if names else escape(piece)


def _as_alice(line: str, home: Path) -> str:
    return re.sub(r"(?<=approved by )\w+", "alice", line.replace(str(home), "/home/alice"))


def main() -> int:
    """Draw the picture anew; return the exit code."""
    with (
        tempfile.TemporaryDirectory(prefix="handoffd-") as home,
        tempfile.TemporaryDirectory(prefix="handoffd-") as sockets,
    ):
        person = Person(Path(home), Path(sockets))
        person.has(AT_NIGHT)
        try:
            seen = person.sees([command for command, _ in screens(TUTORIAL.read_text(encoding="utf-8"))])
        finally:
            person.types("handoffd stop --executors || true")
        if seen[-1].code:
            print(f"{seen[-1].command} failed:", *map(unstyled, seen[-1].lines), sep="\n")
            return 1
        PICTURE.write_text(drawn([_as_alice(line, Path(home)) for line in pictured(seen)]), encoding="utf-8")
    print(f"written: {PICTURE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
