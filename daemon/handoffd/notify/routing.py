"""Which sinks a notice goes to: the first route that fits decides, as in a firewall's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from handoffd.notify.notice import Notice
from handoffd.settings_notify import GROUP, NotifySettings, RouteSettings

GroupOf = Callable[[str], str | None]
"""Returns the group of the project at a root."""


def sinks_for(
    notice: Notice, settings: NotifySettings, sinks: Iterable[str], group_of: GroupOf
) -> tuple[str, ...]:
    """Return those of `sinks` that are told of a notice. What no route fits goes to all of them."""
    if notice.kind not in settings.events:
        return ()
    return _routed(notice, settings.routes, sinks, group_of)


def _routed(
    notice: Notice, routes: Sequence[RouteSettings], sinks: Iterable[str], group_of: GroupOf
) -> tuple[str, ...]:
    route = next((route for route in routes if _fits(route, notice, group_of)), None)
    return tuple(sinks) if route is None else tuple(name for name in sinks if name in route.to)


def _fits(route: RouteSettings, notice: Notice, group_of: GroupOf) -> bool:
    if route.kinds is not None and notice.kind not in route.kinds:
        return False
    if route.projects is None:
        return True
    return any(_means(pattern, notice, group_of) for pattern in route.projects)


def _means(pattern: str, notice: Notice, group_of: GroupOf) -> bool:
    if pattern.startswith(GROUP):
        return group_of(notice.project) == pattern.removeprefix(GROUP)
    return any(fnmatchcase(name, pattern) for name in (notice.name, notice.project))
