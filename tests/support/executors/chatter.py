"""An agent that never stops telling: `chatter.py FIRST_MIB ALL_MIB MIB_PER_S FOLDER`.

It prints JSON lines as claude does, of about 1 KiB, each with a session, tokens and a file of its own, and
another kind of line now and then: torn ones, long ones, plain ones. After the first part and after all it
prints a mark, and waits for a file (`on`, `over`) in the folder. Then it hands over.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

MIB = 1024 * 1024
PIECE = 64
"""Lines that are written at once."""


def message(number: int, *content: dict[str, object]) -> str:
    """Return the line of one message."""
    usage = {"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 7}
    told = {
        "id": f"msg_{number}",
        "role": "assistant",
        "model": "chatter",
        "content": content,
        "usage": usage,
    }
    return json.dumps({"type": "assistant", "session_id": "s-1", "message": told}) + "\n"


def says(number: int, text: str) -> str:
    """Return the line of something said."""
    return message(number, {"type": "text", "text": text})


def line(number: int) -> str:
    """Return the `number`th line."""
    match number % 64:
        case 0:
            return "a tool printed this into the stream\n"
        case 1:
            return '{"type": "assistant", "message": {"content": [{"type"\n'
        case 2:
            return says(number, "long " * 4000)
        case kind if kind % 2:
            return says(number, f"step {number} " + "and so on " * 80)
    given = {"file_path": f"/srv/shop/file_{number}.py", "content": "x = 1\n" * 120}
    return message(number, {"type": "tool_use", "id": f"t{number}", "name": "Write", "input": given})


def pieces() -> Iterator[bytes]:
    """Yield lines, a good many at once, for ever."""
    number = 0
    while True:
        yield "".join(line(one) for one in range(number, number + PIECE)).encode()
        number += PIECE


def main(first_mib: int, all_mib: int, mib_per_s: float, folder: Path) -> None:
    """Talk, hand over, and leave."""
    sys.stdin.buffer.read()
    source, written, began = pieces(), 0, time.monotonic()
    for part, (mib, go_on) in enumerate(((first_mib, "on"), (all_mib, "over"))):
        while written < mib * MIB:
            piece = next(source)
            os.write(1, piece)
            written += len(piece)
            time.sleep(max(0.0, began + written / (mib_per_s * MIB) - time.monotonic()))
        os.write(1, says(-1 - part, f"part {part} is over").encode())
        while not (folder / go_on).exists():
            time.sleep(0.02)
        began = time.monotonic() - written / (mib_per_s * MIB)
    step, run = os.environ["HANDOFFD_STEP"], os.environ["HANDOFFD_RUN"]
    Path(".ai/new").write_text(f"---\nstep: {step}\ndispatch: {run}\nstatus: pass\n---\n", encoding="utf-8")
    os.replace(".ai/new", ".ai/HANDOFF.md")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))
