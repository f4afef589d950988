"""The environment of a child process, built from an empty one.

A child gets the allow-listed variables and the ones that the daemon sets for it, nothing else: the
daemon's own environment may hold the tokens of its sinks, and under systemd it holds sockets and
credentials of the service. Variables in `NEVER` do not pass even if an allow-list names them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(
    r"\$(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?::-(?P<instead>[^}]*))?\})", re.ASCII
)
_OUR_PREFIX = "HANDOFFD_"

NEVER = frozenset(
    {
        "CREDENTIALS_DIRECTORY", "INVOCATION_ID", "JOURNAL_STREAM", "LISTEN_FDNAMES", "LISTEN_FDS",
        "LISTEN_PID", "MAINPID", "MANAGERPID", "NOTIFY_SOCKET", "SYSTEMD_EXEC_PID", "WATCHDOG_PID",
        "WATCHDOG_USEC",
    }
)  # fmt: skip
"""Variables that systemd sets for the daemon alone."""


MARK = "HANDOFFD_RUN"
"""The variable that holds a run's id; it identifies orphaned processes of the run."""


def child_environment(
    source: Mapping[str, str],
    *allowed: Iterable[str],
    project: Iterable[str] = (),
    variables: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the complete environment of a child.

    It has the variables of `source` that are named in `allowed` (the settings of the daemon and of the
    executor) or in `project` (a project's own list, which cannot name the daemon's variables), then
    `variables`. There is always a PATH. Invalid names are left out.
    """
    wanted = {name for names in allowed for name in names}
    wanted |= {name for name in project if not name.startswith(_OUR_PREFIX)}
    environment = {"PATH": DEFAULT_PATH}
    for name in sorted(wanted - NEVER):
        if name in source and is_variable_name(name):
            environment[name] = source[name]
    environment.update(variables or {})
    return environment


def run_variables(
    *, run_id: str, story: str | None, step: str, attempt: int, workspace: int
) -> dict[str, str]:
    """Return the variables that describe a run to itself. The run id also marks its processes as ours.

    `workspace` is a number that no other clone of the project has, for ports and databases.
    """
    return {
        MARK: run_id,
        "HANDOFFD_STORY": story or "",
        "HANDOFFD_STEP": step,
        "HANDOFFD_ATTEMPT": str(attempt),
        "HANDOFFD_WORKSPACE": str(workspace),
    }


def is_variable_name(name: str) -> bool:
    """Whether `name` can be the name of an environment variable."""
    return _NAME.fullmatch(name) is not None


def expanded(path: str, environment: Mapping[str, str]) -> str | None:
    """Return a path with `~`, `$NAME` and `${NAME:-instead}` expanded.

    None if the result is not absolute, or a variable is not set: `$NOWHERE/x` is not `/x`.
    """
    lacking: list[str] = []

    def value(found: re.Match[str]) -> str:
        text = environment.get(found["name"] or found["braced"]) or found["instead"] or ""
        lacking.extend([] if text else [found[0]])
        return text

    path = _REFERENCE.sub(value, path)
    home = environment.get("HOME", "")
    path = home + path[1:] if path == "~" or path.startswith("~/") else path
    return path if path.startswith("/") and not lacking else None
