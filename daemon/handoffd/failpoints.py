"""The instants at which a crash leaves something different behind, by name.

Each is one line where it is reached: `reached("before_commit")`. In a daemon that is one comparison
and nothing follows from it, whatever its environment or settings say; only a program that imports
this module and calls `arm` makes something of it, as the crash tests do in the daemons that they
start. What stands between two points in the code may be cut off by a crash, and must then be found
and finished by the next daemon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, get_args

Point = Literal[
    "before_commit",
    "after_commit",
    "before_rename",
    "after_rename",
    "before_spawn",
    "after_spawn",
    "before_exit_taken",
    "after_exit_taken",
    "before_effect_done",
    "after_effect_done",
]
"""A transaction of the journal, a file replaced whole, a run's start, the end of an executor being
handed to its track, an order being marked done. Reached on whichever thread does it."""

POINTS: Final[tuple[Point, ...]] = get_args(Point)

Action = Callable[[Point, str], None]
"""What happens at a point. The text says what it is about, where that is known: a file's name."""


class _Armed:
    action: Action | None = None


def reached(point: Point, subject: str = "") -> None:
    """Say that `point` is reached. Does nothing unless this process was armed."""
    if _Armed.action is not None:
        _Armed.action(point, subject)


def arm(action: Action | None) -> None:
    """Have `action` called at every point from now on, in this process; None: nothing any more."""
    _Armed.action = action
