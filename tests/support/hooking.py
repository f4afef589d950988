"""Hook events as Claude Code writes them, and projects as a hook finds them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.commands import LIMIT_S, Said

ARGV = (sys.executable, "-I", "-m", "handoffd", "hook")

DISPATCHED = "2026-01-01T10:00:00Z"
DISPATCHED_NS = 1767261600 * 10**9


def event(cwd: Path | str, name: str = "Stop", **fields: Any) -> bytes:
    """Return what Claude Code would write to a hook's standard input."""
    told: dict[str, Any] = {
        "session_id": "00893aaf-19fa-41d2-8238-13269b9b3ca0",
        "transcript_path": "/home/eve/.claude/projects/-srv-shop/00893aaf.jsonl",
        "cwd": str(cwd),
        "permission_mode": "default",
        "hook_event_name": name,
    }
    if name in {"Stop", "SubagentStop"}:
        told |= {"stop_hook_active": False, "last_assistant_message": "Done."}
    return json.dumps(told | fields).encode()


def standing(root: Path, **state: Any) -> Path:
    """Write a STATE.json of a running attempt, changed by `state`, and return the project's root."""
    whole: dict[str, Any] = {
        "project": "shop",
        "story": "US-001",
        "step": "bdd",
        "attempt": 1,
        "max_attempts": 3,
        "status": "running",
        "reason": None,
        "dispatched_at": DISPATCHED,
        "completed_at": None,
        "last_error": None,
    }
    (root / ".ai").mkdir(parents=True, exist_ok=True)
    (root / ".ai/STATE.json").write_text(json.dumps(whole | state), encoding="utf-8")
    return root


def hook(raw: bytes, env: Mapping[str, str], *words: str) -> Said:
    """Run `handoffd hook` on an event, to its end."""
    ended = subprocess.run(
        [*ARGV[:-1], *words, "hook"],
        input=raw,
        env=dict(env),
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    return Said(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


@contextmanager
def daemon_saying(*answers: Mapping[str, Any]) -> Iterator[Path]:
    """Lend the runtime directory of a daemon that gives these answers, one to each question."""
    # Not pytest's folders: the path of a socket has room for about a hundred bytes only.
    with tempfile.TemporaryDirectory(prefix="handoffd-") as name, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(Path(name, "control.sock")))
        listening.listen()
        listening.settimeout(LIMIT_S)

        def serve() -> None:
            for answer in answers:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps(answer).encode())

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Path(name)
        finally:
            thread.join()


def hand_over(root: Path, **front: Any) -> None:
    """Write a HANDOFF.md for the attempt that runs; it passes unless `front` says otherwise."""
    state = json.loads((root / ".ai/STATE.json").read_text(encoding="utf-8"))
    whole = {
        "story": state["story"],
        "step": state["step"],
        "attempt": state["attempt"],
        "status": "pass",
        **front,
    }
    lines = "".join(f"{name}: {value}\n" for name, value in whole.items())
    (root / ".ai/HANDOFF.md").write_text(f"---\n{lines}---\nDone.\n", encoding="utf-8")


def state_in(root: Path) -> dict[str, Any]:
    """Return what STATE.json says."""
    state: dict[str, Any] = json.loads((root / ".ai/STATE.json").read_text(encoding="utf-8"))
    return state
