"""The sink of a house: a program that records each notice, and sometimes refuses.

Which notices it refuses at first, takes but says otherwise, or takes its time with follows from the number
of their order, so that the same house has the same troubles. It may be killed in the middle of a line:
each line begins on a new one, and what cannot be read was not delivered.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]

_PROGRAM = """\
cd "$1" || exit 1
tried=tried-$HANDOFFD_NOTICE_ID
write_down() { { echo; cat; } >> told.jsonl; }
case $HANDOFFD_NOTICE_ID in
*[37]) [ -e "$tried" ] || { : > "$tried"; exit 1; } ;;
*5) [ -e "$tried" ] || { : > "$tried"; write_down; exit 1; } ;;
*9) sleep 0.2 ;;
esac
write_down
"""
_WILLING = """\
{ echo; cat; } >> "$1/told.jsonl"
"""


def install(base: Path, *, rough: bool = True) -> Json:
    """Put the program below `base`; return the settings of this sink, with short pauses between retries.

    One that is not `rough` takes everything at once.
    """
    folder = base / "people"
    folder.mkdir()
    program = base / "sink.sh"
    program.write_text(_PROGRAM if rough else _WILLING)
    return {
        "command": ["/bin/sh", str(program), str(folder)],
        "backoff_s": 0.05,
        "backoff_max_s": 0.2,
    }


def told(base: Path) -> list[Json]:
    """Return every notice that was written down whole, in order, repetitions included."""
    path = base / "people/told.jsonl"
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    return [notice for line in lines if (notice := _notice(line)) is not None]


def _notice(line: bytes) -> Json | None:
    try:
        notice = json.loads(line)
    except ValueError:  # also half a character
        return None
    return notice if isinstance(notice, dict) else None
