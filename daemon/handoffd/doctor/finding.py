"""What a check found out, and looks that may never end.

The JSON of findings is stable; docs/reference/cli/daemon.md has it. A network mount that hangs keeps every
thread that touches it: so each look is taken by a thread of its own, which is left behind when it is silent
for too long, and which the end of the program does not wait for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct, field, to_builtins

Severity = Literal["ok", "warning", "fault"]


class Finding(Struct, frozen=True, kw_only=True):
    """The result of one check. `ok` has neither `why` nor `action`; `action` is a command to type."""

    check: str
    severity: Severity
    what: str
    why: str | None = None
    action: str | None = None


def fine(check: str, what: str) -> Finding:
    """Return that all is well."""
    return Finding(check=check, severity="ok", what=what)


def warning(check: str, what: str, why: str | None, action: str | None) -> Finding:
    """Return what will be a nuisance, or a fault one day."""
    return Finding(check=check, severity="warning", what=what, why=why, action=action)


def fault(check: str, what: str, why: str | None, action: str | None) -> Finding:
    """Return what keeps handoffd from working, as a whole or in one project."""
    return Finding(check=check, severity="fault", what=what, why=why, action=action)


def is_sound(findings: Iterable[Finding]) -> bool:
    """Return whether nothing keeps handoffd from working."""
    return all(finding.severity != "fault" for finding in findings)


def as_json(findings: Iterable[Finding]) -> dict[str, Any]:
    """Return findings in the form of `doctor --json`."""
    found = tuple(findings)
    return {"findings": [to_builtins(finding) for finding in found], "ok": is_sound(found)}


# --- looks --------------------------------------------------------------------------------------------
_T = TypeVar("_T")


class _Look(Struct, Generic[_T]):
    take: Callable[[], _T]
    ended: threading.Event = field(default_factory=threading.Event)
    found: list[_T] = field(default_factory=list)
    error: Exception | None = None

    def run(self) -> None:
        try:
            self.found.append(self.take())
        except Exception as error:
            self.error = error
        finally:
            self.ended.set()


class Begun(Generic[_T]):
    """Looks that are being taken, all at once, while their caller does something else."""

    def __init__(self, looks: Mapping[str, Callable[[], _T]]) -> None:
        self._began = time.monotonic()
        self._looks = {name: _Look(take) for name, take in looks.items()}
        for look in self._looks.values():
            threading.Thread(target=look.run, name="look", daemon=True).start()

    @property
    def names(self) -> Collection[str]:
        """The names of the looks."""
        return self._looks.keys()

    def within(self, limit_s: float) -> dict[str, _T]:
        """Return what the looks found that end within `limit_s` seconds of the beginning.

        Raises what the first of them raised.
        """
        give_up_at = self._began + limit_s
        found = {}
        for name, look in self._looks.items():
            if look.ended.wait(max(give_up_at - time.monotonic(), 0)):
                if look.error is not None:
                    raise look.error
                found[name] = look.found[0]
        return found


def answers(looks: Mapping[str, Callable[[], _T]], limit_s: float) -> dict[str, _T]:
    """Take all `looks` at once and return what they found within `limit_s` seconds; see `Begun.within`."""
    return Begun(looks).within(limit_s)
