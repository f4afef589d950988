"""What is wrong with a project at the moment, said once: in the log, and to people."""

from __future__ import annotations

from datetime import datetime

import structlog

from handoffd.engine.views import Condition
from handoffd.errors import HandoffdError, InvalidFile, Locked
from handoffd.notify.notice import sign_of
from handoffd.store.faults import PROJECT_GONE
from handoffd.supervise.notices import CONDITION, condition_notice, trust_notice
from handoffd.supervise.project_files import ProjectFiles
from handoffd.supervise.services import Services

log = structlog.get_logger(__name__)


_MOST = 10
"""So many things that are wrong with one project are told in a notice: an agent may have written the file."""


class Health:
    """The condition of one project."""

    def __init__(self, root: str, services: Services) -> None:
        self._root = root
        self._services = services
        self.condition: Condition = "ok"
        self.detail: str | None = None
        self._why: str | None = None
        self._since: datetime | None = None
        self._sign = ""
        """What people were told of its condition; empty when they were not."""
        self._edit: str | None = None
        """The edit that waits for trust, if one does."""

    @property
    def since(self) -> datetime | None:
        """Since when its condition is not good: also in earlier lives, as far as people were told."""
        known = self._services.notifier.stands_since(self._root, CONDITION, self._sign)
        return self._since if self._since is None or known is None else min(self._since, known)

    def mark(self, condition: Condition, *details: str) -> None:
        """Take a condition; what is news is logged, and people are told unless it is good.

        `details`: all that is wrong, in words, the first of them for whoever has room for one.
        """
        more = (f"and {len(details) - _MOST} more",) if len(details) > _MOST else ()
        why = "; ".join((*details[:_MOST], *more)) or None
        if (condition, why) != (self.condition, self._why):
            write = log.info if condition == "ok" else log.warning
            write("project condition", project=self._root, condition=condition, detail=why)
            self._sign = self._told(condition, why)
        if condition == "ok":
            self._services.notifier.settle(self._root, CONDITION)  # also what an earlier life told of
            self._since = None
        elif condition != self.condition:
            self._since = self._services.clock.now()
        self.condition, self.detail, self._why = condition, next(iter(details), None), why

    def _told(self, condition: Condition, detail: str | None) -> str:
        """Tell people of what is wrong with the project itself; return what the notice is about."""
        if condition == "ok" or self._is_the_machines(condition):
            return ""
        notice = condition_notice(self._root, condition, detail, self._services.clock)
        self._services.notifier.stand(notice, CONDITION)
        return sign_of(notice.id)

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
        else:
            self.mark("missing" if error.code == PROJECT_GONE else "io_error", error.message)

    def _is_the_machines(self, condition: Condition) -> bool:
        """Return whether people are told of the cause by itself, once for all projects."""
        return condition == "io_error" and (
            self._services.journal.outage is not None or self._services.descriptors.short()
        )
