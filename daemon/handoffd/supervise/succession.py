"""Whether one story follows another without anybody asking for it."""

from __future__ import annotations

from handoffd.engine.track import Ledger
from handoffd.settings.model import ProjectSettings, Settings


def goes_on_by_itself(ledger: Ledger, project: ProjectSettings, daemon: Settings) -> bool:
    """Return whether the next story starts without being asked for: a person's choice, else the settings'.

    The project's own settings go before the daemon's.
    """
    if ledger.auto_continue is not None:
        return ledger.auto_continue
    return daemon.auto_continue if project.auto_continue is None else project.auto_continue
