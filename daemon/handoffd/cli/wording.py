"""How text looks on a terminal: its width, tables, times, and untrusted text made harmless.

Projects and agents choose names, notes and errors, so all of these are escaped before printing. Users and
scripts run `status` often, so this imports nothing slow.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence

from handoffd.engine.wording import beginning, columns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from handoffd.entrance.place import Place

UNMEASURED = "agents' claims count until you set test.command in .ai/handoffd.yaml"
"""The consequence of a missing test command."""

_GREEN, _YELLOW, _RED = 32, 33, 31
_STYLES = {
    "running": _GREEN,
    "pass": _GREEN,
    "done": _GREEN,
    "ok": _GREEN,
    "warning": _YELLOW,
    "fault": _RED,
    "failing": _RED,
    "timeout": _RED,
    "needs_human": _YELLOW,
    **dict.fromkeys(
        (
            "interrupted",
            "not_started",
            "no_handoff",
            "lost",
            "limit",
            "overload",
            "refused",
            "logged_out",
            "no_credit",
            "missing_binary",
            "bad_call",
            "crash",
            "out_of_memory",
            "memory_limit",
            "session_gone",
        ),
        _YELLOW,
    ),
}
_CODES = re.compile(r"\x1b\[[;?0-9]*[a-zA-Z]")


def no_daemon() -> str:
    """Return the line below an answer without a daemon: how to start one, or what prevents it."""
    from handoffd.entrance.absence import closing

    return closing(_place())


def start_command() -> str:
    """Return the command that starts the daemon: its service, if one is installed."""
    from handoffd.doctor.service import installed

    place = _place()
    return installed(place.environ, place.config).start


def _place() -> Place:
    import click

    from handoffd.entrance.place import Place

    context = click.get_current_context(silent=True)
    place = context.find_object(Place) if context is not None else None
    return place or Place(config=None, environ=os.environ)


def plain(text: str, *, lines: bool = False) -> str:
    """Return `text` with all characters escaped that are not printable.

    `lines`: keep line breaks; otherwise they become blanks.
    """
    if not lines:
        text = " ".join(text.split())
    return "".join(sign if sign.isprintable() or sign == "\n" else _escape(sign) for sign in text)


def terminal_text(raw: bytes) -> str:
    """Return an agent's output for a terminal: lines and tabs stay, control sequences are escaped."""
    text = raw.decode("utf-8", "replace").replace("\r\n", "\n")
    return "".join(sign if sign.isprintable() or sign in "\n\t" else _escape(sign) for sign in text)


def shorten(text: str, width: int) -> str:
    """Return `text` in one line of at most `width` columns."""
    line = plain(text)
    return line if columns(line) <= width else f"{beginning(line, width - 1)}…"


def shorten_path(path: str, width: int) -> str:
    """Return a path or a name in at most `width` columns; a path keeps its end, which tells it apart."""
    line = plain(path)
    if "/" not in line or columns(line) <= width:
        return shorten(line, width)
    return f"…{beginning(line[::-1], width - 1)[::-1]}"


def moment(at: str | None) -> str:
    """Return a time of the API as local time; a dash for None."""
    if at is None:
        return "–"
    from datetime import datetime

    return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def waits(why: str) -> str:
    """Return a line with the reason for waiting: a thing, or a place in line (`3rd for a slot`)."""
    return f"waits, {why}" if why[:1].isdigit() else f"waits for: {why}"


def minutes(value: float) -> str:
    """Return minutes in few digits: `0.4`, `3.5`, `12`."""
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def called(entry: Mapping[str, Any]) -> str:
    """Return the name of the project of an event or a run, short enough for a column."""
    name = str(entry.get("name") or entry["project"].rsplit("/", 1)[-1])  # older daemons send no names
    return shorten(name, 60 if name.startswith("/") else 24)


def used(usage: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return tokens and cost for two columns; a dash if not known, as with agents that report no tokens."""
    if usage is None or not usage["tokens"]:
        return "–", "–"
    from handoffd.engine.run import dollars

    cost = usage["cost_usd"]
    return f"{usage['tokens']:,}", "–" if cost is None else dollars(cost)


def styled(word: str) -> str:
    """Return a status in its colour; click removes the colour outside a terminal."""
    colour = _STYLES.get(word.split(maxsplit=1)[0] if word else "")
    return painted(word, colour) if colour else word


def painted(text: str, *codes: int) -> str:
    """Return `text` in a colour or another rendition, by ECMA-48's numbers (1 bold, 2 faint, 32 green)."""
    return f"\x1b[{';'.join(map(str, codes))}m{text}\x1b[0m"


def unstyled(text: str) -> str:
    """Return `text` without colours."""
    return _CODES.sub("", text) if "\x1b" in text else text


def wants_colour(environ: Mapping[str, str]) -> bool:
    """Return whether the user lets programs print in colours (https://no-color.org)."""
    return not environ.get("NO_COLOR")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines with aligned columns. Colour codes in cells do not count for the width."""
    everything = [list(head), *map(list, rows)]
    widths = [max(columns(unstyled(row[column])) for row in everything) for column in range(len(head))]
    return [_line(row, widths) for row in everything]


_ENOUGH, _LEAST = 24, 12
"""Columns that a text keeps in a narrow table: while others can be left out, and after that."""


def fitting(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    spare: Sequence[str],
    width: int | None,
    text: Sequence[str] = (),
) -> list[str]:
    """Return a table of at most `width` columns, and a line that lists the columns left out for that.

    First the columns of `text` are shortened, then others left out in the order of `spare`; both are by their
    heads. `width` None: as wide as needed, for a pipe.
    """
    left = list(range(len(head)))
    lines = _narrowed(head, rows, text, width, _ENOUGH)
    for name, least in (*((name, _ENOUGH) for name in spare if name in head), ("", _LEAST)):
        if width is None or _widest(lines) <= width:
            break
        left = [at for at in left if not name or head[at] != name]
        part = [head[at] for at in left], [[row[at] for at in left] for row in rows]
        lines = _narrowed(*part, text, width, least)
    gone = [name for at, name in enumerate(head) if at not in left and name]
    return [*lines, f"Not on this screen: {', '.join(gone)}"] if gone else lines


def _narrowed(
    head: Sequence[str], rows: Sequence[Sequence[str]], text: Sequence[str], width: int | None, least: int
) -> list[str]:
    """Return a table whose columns of `text` are as short as `width` needs, but for `least` columns each."""
    lines, cells = table(head, rows), [list(row) for row in rows]
    for at in (list(head).index(name) for name in text if name in head):
        if width is None or (over := _widest(lines) - width) <= 0:
            break
        room = max(_widest([row[at] for row in cells]) - over, least)
        for row in cells:
            row[at] = shorten_path(row[at], room) if row[at].startswith("/") else shorten(row[at], room)
        lines = table(head, cells)
    return lines


def _widest(lines: Sequence[str]) -> int:
    return max((columns(unstyled(line)) for line in lines), default=0)


_PIECE = re.compile(r"`[^`]*`\S*|(?:(?<=: )|\()handoffd [a-z](?:'[^']*'|(?! \[)[^';,)`])*[;,)`.]*|\S+")
"""What stays on one line: a command to type, or a word."""
_WHOLE = re.compile(r" *(?:next: |(?:[^:;,.]{1,60}: )?(?:handoffd [a-z]|/\S*(?: \(.*\))?$)|.* {3}\()")
"""A line that is a command or a path, behind a label, maybe with a remark."""


def folded(lines: Sequence[str], width: int | None) -> list[str]:
    """Return lines of at most `width` columns, broken between words. `width` None: as they are, for a pipe.

    A command is not broken, as half of it would be another one; nor is a path, or a text of several lines.
    """
    return list(lines) if width is None else [part for line in lines for part in _folded(line, width)]


def _folded(line: str, width: int) -> Iterator[str]:
    if columns(unstyled(line)) <= width or "\n" in line or _WHOLE.match(line):
        yield line
        return
    text = line.lstrip(" ")
    indent, begin, end = line[: len(line) - len(text)], 0, 0
    deeper = f"{indent}  "
    for piece in _PIECE.finditer(text):
        if end and columns(unstyled(f"{indent}{text[begin : piece.end()]}")) > width:
            yield f"{indent}{text[begin:end]}"
            begin, indent = piece.start(), deeper
        end = piece.end()
    yield f"{indent}{text[begin:end]}"


def screen_width(*, err: bool = False) -> int | None:
    """Return the width of the terminal that we print to, with `err` errors; None for a pipe or a file."""
    size = screen_size(err=err)
    return None if size is None else size[0]


def screen_size(*, err: bool = False) -> tuple[int, int] | None:
    """Return columns and lines of the terminal that we print to; None for a pipe or a file.

    As `shutil` has them, which takes milliseconds to import.
    """
    stream = sys.stderr if err else sys.stdout
    if not stream.isatty():
        return None
    told = [os.environ.get(name, "") for name in ("COLUMNS", "LINES")]
    found = os.get_terminal_size(stream.fileno())
    width, height = (int(text) if text.isdecimal() else 0 for text in told)
    return width or found.columns or 80, height or found.lines or 24


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(padded(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()


def padded(cell: str, width: int) -> str:
    """Return a cell with blanks up to `width` columns; colour codes take none."""
    return cell + " " * (width - columns(unstyled(cell)))


def _escape(sign: str) -> str:
    return sign.encode("unicode_escape", "backslashreplace").decode("ascii")


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_of(count: int) -> str:
    """Return a number of bytes in a readable unit."""
    size, unit = float(count), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 or size >= 10 else f"{size:.1f} {_UNITS[unit]}"
