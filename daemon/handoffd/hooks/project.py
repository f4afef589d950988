"""The project an agent works in: its state, and whether its hand-off may need checks.

It is only a first look, which spares most hooks the rest; the engine decides whether a hand-off counts. The
files are a stranger's: we follow no link, read at most a cap, and ignore anything odd.

Without a daemon, applying a hand-off takes a second or two of imports. A person need not wait for them if
the answer is known before: where nothing can be checked, nothing can fail. To find that out, we only search
files for words; in doubt, there are checks.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress

STATE = "STATE.json"
HANDOFFS = ("HANDOFF.md", "executor-result")
MAX_BYTES = 1024 * 1024

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Standing:
    """What a first look at `root` found: its `state` as written, and when its hand-off was written last.

    `written_ns` is None when there is no hand-off.
    """

    def __init__(self, root: str, state: dict[str, object], written_ns: int | None) -> None:
        self.root = root
        self.state = state
        self.written_ns = written_ns

    @property
    def status(self) -> str:
        """The status in STATE.json; empty if it is not a string."""
        status = self.state.get("status")
        return status if isinstance(status, str) else ""

    @property
    def meant(self) -> dict[str, str]:
        """The argument of a verb that says which story it is for: others may be in flight beside it."""
        story = self.state.get("story")
        return {"story": story} if isinstance(story, str) else {}


def find_root(cwd: str, home: str) -> str | None:
    """Return the nearest folder from `cwd` upwards that has a STATE.json.

    The search goes neither beyond `home` nor to another file system.
    """
    folder, device = os.path.realpath(cwd), None
    home = os.path.realpath(home)
    while True:
        with suppress(OSError):  # an agent may have removed its own folder
            here = os.stat(folder).st_dev
            if device not in {None, here}:
                return None
            device = here
            if stat.S_ISREG(os.lstat(os.path.join(folder, ".ai", STATE)).st_mode):
                return folder
        above = os.path.dirname(folder)
        if above == folder or folder == home:
            return None
        folder = above


def look(root: str) -> Standing | None:
    """Return what is in a project's files; None when its STATE.json cannot be read."""
    try:
        folder = os.open(os.path.join(root, ".ai"), _FOLDER)
    except OSError:
        return None
    try:
        state = json.loads(_read(folder, STATE))
        return Standing(root, state, _written(folder)) if isinstance(state, dict) else None
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(folder)


def _read(folder: int, name: str) -> bytes:
    handle = os.open(name, _FILE, dir_fd=folder)
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError(f"{name} is not a regular file")
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise ValueError(f"{name} is too long")
    return text


def _written(folder: int) -> int | None:
    """Return when a hand-off was written last, nanoseconds since the epoch."""
    times = []
    for name in HANDOFFS:
        with suppress(OSError):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                times.append(found.st_mtime_ns)
    return max(times, default=None)


# --- whether a hand-off may have to be checked -------------------------------------------------------
TESTED_STEPS = frozenset({"scaffold", "impl", "verify"})
"""The steps whose tests the shipped step table runs."""

RULES, SETTINGS = "step-rules.yaml", "handoffd.yaml"
_MAX_BYTES = 256 * 1024


def may_be_checked(root: str, step: object) -> bool:
    """Return whether applying a hand-off of `step` may run something; never wrongly False."""
    rules, settings = (_words(os.path.join(root, ".ai", name)) for name in (RULES, SETTINGS))
    if rules is None or settings is None:
        return True
    if "post_check" in rules or "tests" in rules or "preset" in settings:
        return True
    return "command" in settings and step in TESTED_STEPS


def concluded(answer: dict[str, object] | None) -> dict[str, object] | None:
    """Return the answer about a hand-off that was applied before and is asked about again.

    If its checks ended in between, the daemon answers that it took the hand-off before.
    """
    if answer is None or answer.get("type") not in {"taken", "stale"}:
        return answer
    found = answer.get("state")
    state = found if isinstance(found, dict) else {}
    message = f"{state.get('step')} attempt {state.get('attempt')} is {state.get('status')}"
    return {**answer, "type": "applied", "message": message}


def _words(path: str) -> str | None:
    """Return a file without its comments; empty if it is missing, None if it cannot be searched."""
    try:
        with open(os.open(path, _FILE), "rb") as file:
            text = file.read(_MAX_BYTES + 1).decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        return None
    if len(text) > _MAX_BYTES or "\\" in text:
        return None  # an escape may spell any word
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
