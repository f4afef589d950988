"""How many notices of one kind a sink was given lately; what goes beyond that is folded into one."""

from __future__ import annotations

from collections import deque

from handoffd.settings_notify import BurstSettings


class Bursts:
    """Counts by sink and kind. Times are seconds of a clock that only goes forward."""

    def __init__(self) -> None:
        self._lately: dict[tuple[str, str], deque[float]] = {}

    def admit(self, sink: str, kind: str, now_s: float, settings: BurstSettings) -> bool:
        """Return whether one more may be told by itself, and count it then."""
        lately = self._lately.setdefault((sink, kind), deque())
        while lately and now_s - lately[0] >= settings.within_s:
            lately.popleft()
        if len(lately) >= settings.most:
            return False
        lately.append(now_s)
        return True
