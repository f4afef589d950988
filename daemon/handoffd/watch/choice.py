"""By what folders are watched on this machine."""

from __future__ import annotations

import errno

import structlog

from handoffd.settings.model import WatchSettings
from handoffd.watch.backend import Backend
from handoffd.watch.demand import reads_inotify
from handoffd.watch.inotify import Inotify
from handoffd.watch.inotify_backend import InotifyBackend

log = structlog.get_logger(__name__)


def backend_of(settings: WatchSettings) -> Backend:
    """Return the back end that `settings` name; `auto` is inotify where the kernel has one."""
    if reads_inotify(settings) and (settings.backend == "inotify" or _there()):
        return InotifyBackend()
    from handoffd.watch.watchfiles_backend import WatchfilesBackend  # noqa: PLC0415  (0.1 s, hardly needed)

    return WatchfilesBackend(settings)


def _there() -> bool:
    """Return whether the kernel answers, be it that a limit is reached."""
    try:
        Inotify().close()
    except OSError as error:
        if error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOMEM}:
            return True
        log.warning("no inotify here, watchfiles is used instead", error=error.strerror)
        return False
    return True
