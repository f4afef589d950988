"""Whether the hand-off of a step may have to be checked, guessed from the project's files.

Without a daemon, what is needed to apply a hand-off takes a second or two to be imported. Nobody has
to wait for that if the answer is known before: where nothing can be checked, nothing can fail. Files
are only searched for words; when in doubt, there are checks.
"""

from __future__ import annotations

import os

TESTED_STEPS = frozenset({"scaffold", "impl", "verify"})
"""The steps whose tests are run, by the step table that ships."""

RULES, SETTINGS = "step-rules.yaml", "handoffd.yaml"
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAX_BYTES = 256 * 1024


def may_be_checked(root: str, step: object) -> bool:
    """Return whether something may be run when a hand-off of `step` is applied; never wrongly False."""
    rules, settings = (_words(os.path.join(root, ".ai", name)) for name in (RULES, SETTINGS))
    if rules is None or settings is None:
        return True
    if "post_check" in rules or "tests" in rules or "preset" in settings:
        return True
    return "command" in settings and step in TESTED_STEPS


def concluded(answer: dict[str, object] | None) -> dict[str, object] | None:
    """Return the answer to a hand-off that is asked about again; it has been applied already.

    If its checks ended in between, the daemon says that it was taken before.
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
