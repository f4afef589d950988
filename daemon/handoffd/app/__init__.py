"""The daemon itself: this package builds its parts, once, and runs its one top-level task group.

`wiring.py` builds the graph of parts, also for verbs without a daemon, `daemon.py` runs and ends them in
order, `service_manager.py` reports to systemd, `logs.py` formats log lines. The package relies on everything
below it and hands each part its own section of the settings. Nothing here decides about a project, and only
the entry points (`entrance/`, `cli/`) import it.
"""

from __future__ import annotations

import sys


def _import_structlog_without_rich() -> None:
    """Import structlog as on a machine without rich: a tenth of the daemon's start.

    structlog imports rich, if it is there, for a console format that `logs.py` does not use.
    """
    if "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # documented: importing it fails now
    try:
        import structlog  # noqa: F401, PLC0415  (must not come before this)
    finally:
        del sys.modules["rich"]


_import_structlog_without_rich()  # all modules of the package, and what they import, come after this
