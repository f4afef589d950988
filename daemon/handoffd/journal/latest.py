"""One question to the journal, for callers that cannot wait for its other modules to be imported.

It imports little more than SQLite, cannot write, and gives up when the answer does not come at once.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

EXTERNAL = "external"
"""In place of an executor's name: the attempt is made by a person or another tool."""

_BUSY_S = 0.05


class Latest:
    """A project as the journal has it: is it looked after, and did others make its latest attempt?"""

    def __init__(self, *, known: bool, theirs: bool) -> None:
        self.known = known
        self.theirs = theirs


def latest(journal: str, root: str) -> Latest | None:
    """Return how the journal at the path `journal` has the project at `root`; None if it does not tell."""
    address = journal.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    try:
        with closing(sqlite3.connect(f"file:{address}?mode=ro", uri=True, timeout=_BUSY_S)) as db:
            known = "SELECT 1 FROM projects WHERE root = ? AND removed_at IS NULL"
            if db.execute(known, (root,)).fetchone() is None:
                return Latest(known=False, theirs=False)
            return Latest(known=True, theirs=_is_theirs(db, root))
    except (sqlite3.Error, ValueError, TypeError, AttributeError, RecursionError):
        return None


def _is_theirs(db: sqlite3.Connection, root: str) -> bool:
    """Return whether no executor of ours has the main track, or had it last."""
    track = "SELECT body, status FROM tracks WHERE project = ? AND track = 'main'"
    body, status = db.execute(track, (root,)).fetchone() or ("{}", None)
    dispatch = (json.loads(body).get("ledger") or {}).get("dispatch")
    if dispatch is not None:
        return bool(dispatch.get("executor") == EXTERNAL)
    if status == "running":
        return True
    last = db.execute(
        "SELECT executor FROM dispatches WHERE project = ? AND track = 'main' ORDER BY seq DESC LIMIT 1",
        (root,),
    ).fetchone()
    return last is not None and last[0] == EXTERNAL
