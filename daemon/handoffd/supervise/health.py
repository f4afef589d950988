"""What is wrong with a project at the moment, said once: in the log, and to people."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import structlog

from handoffd.engine.views import WORKABLE, Condition
from handoffd.errors import Foreign, HandoffdError, InvalidFile, Locked
from handoffd.files.errors import PROJECT_GONE, UNSOUND
from handoffd.notify.notice import Notice, sign_of
from handoffd.notify.notices import CONDITION, condition_notice, trust_notice
from handoffd.supervise.project_files import ProjectFiles
from handoffd.track.services import Services

log = structlog.get_logger(__name__)


LASTING_S = 120.0
"""So long nothing can be dispatched before people are told: what is unmounted for a minute wakes nobody."""
_LASTING_POLLS = 4
"""It does not take more looks of the poll than so many to see that something lasts."""
_MOST = 10
"""So many things that are wrong with one project are told in a notice: an agent may have written the file."""


class Health:
    """The condition of one project."""

    def __init__(self, root: str, services: Services) -> None:
        self._root = root
        self._services = services
        self.condition: Condition = "ok"
        self.detail: str | None = None
        self.foreign = False
        """Whether it is locked because it belongs to another daemon: no waiting helps."""
        self._why: str | None = None
        self._since: datetime | None = None
        self._sign = ""
        """What people are told of its condition; empty when they are not."""
        self._untold: Notice | None = None
        """What they are told of it, as soon as it has lasted."""
        self._stuck_s: float | None = None
        """Since when nothing can be dispatched, by the clock that nobody puts; None while something can."""
        self._edit: str | None = None
        """The edit that waits for trust, if one does."""

    @property
    def since(self) -> datetime | None:
        """Since when its condition is not good: also in earlier lives, as far as people were told."""
        known = self._services.notifier.stands_since(self._root, CONDITION, self._sign)
        return self._since if self._since is None or known is None else min(self._since, known)

    def mark(self, condition: Condition, *details: str) -> None:
        """Take a condition; what is news is logged, and people are told unless it is good, or soon over.

        `details`: all that is wrong, in words, the first of them for whoever has room for one.
        """
        more = (f"and {len(details) - _MOST} more",) if len(details) > _MOST else ()
        why = "; ".join((*details[:_MOST], *more)) or None
        if (condition, why) != (self.condition, self._why):
            write = log.info if condition == "ok" else log.warning
            write("project condition", project=self._root, condition=condition, detail=why)
            self._untold = self._notice_of(condition, why)
            self._sign = sign_of(self._untold.id) if self._untold is not None else ""
        if condition == "ok":
            self._services.notifier.settle(self._root, CONDITION)  # also what an earlier life told of
            self._since = None
        elif condition != self.condition:
            self._since = self._services.clock.now()
        self.condition, self.detail, self._why = condition, next(iter(details), None), why
        if self._has_lasted() and self._untold is not None:
            told, self._untold = replace(self._untold, at=self._services.clock.now()), None
            self._services.notifier.stand(told, CONDITION)

    def _notice_of(self, condition: Condition, detail: str | None) -> Notice | None:
        """Return what people are told of a condition that is news; None: they are not."""
        if condition == "ok" or self._is_the_machines(condition):
            return None
        return condition_notice(self._root, condition, detail, self._services.clock)

    def _has_lasted(self) -> bool:
        """Return whether people may be told by now: what stops everything may be over in a moment."""
        now_s = self._services.clock.monotonic()
        if self.condition == "invalid_journal":
            return True  # it does not pass by itself
        if self.condition in WORKABLE:
            self._stuck_s = None
            return True
        if self._stuck_s is None:
            self._stuck_s = now_s
        poll_s = self._services.settings.schedule.poll_s
        return now_s - self._stuck_s >= min(LASTING_S, _LASTING_POLLS * poll_s)

    def mark_held(self, files: ProjectFiles) -> None:
        """Take whether edits wait for trust; people are told of each such edit, and again while it waits."""
        before, self._edit = self._edit, files.edit if files.held else None
        if self._edit is None:
            self._services.notifier.settle(self._root)
        elif self._edit != before:
            notice = trust_notice(self._root, files.held, files.edit, self._services.clock)
            self._services.notifier.send(notice, waits=True)

    def mark_error(self, error: HandoffdError) -> None:
        """Take the condition that an error on looking at the project stands for."""
        if isinstance(error, InvalidFile):
            self.mark("invalid_state", str(error))
        elif isinstance(error, Locked):
            self.mark("locked", error.message)
            self.foreign = isinstance(error, Foreign)
        elif error.code == UNSOUND:
            self.mark("invalid_journal", error.message)
        else:
            self.mark("missing" if error.code == PROJECT_GONE else "io_error", error.message)

    def _is_the_machines(self, condition: Condition) -> bool:
        """Return whether people are told of the cause by itself, once for all projects."""
        return condition == "io_error" and (
            self._services.journal.outage is not None or self._services.descriptors.short()
        )
