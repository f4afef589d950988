"""Which sinks a notice goes to: the first route that fits decides, as in a firewall's rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from handoffd.notify.notice import Notice
from handoffd.settings_notify import NotifySettings, RouteSettings


def sinks_for(notice: Notice, settings: NotifySettings, sinks: Iterable[str]) -> tuple[str, ...]:
    """Return those of `sinks` that are told of a notice. What no route fits goes to all of them."""
    if notice.kind not in settings.events:
        return ()
    return routed(notice, settings.routes, sinks)


def routed(notice: Notice, routes: Sequence[RouteSettings], sinks: Iterable[str]) -> tuple[str, ...]:
    """Return where the routes lead."""
    route = next((route for route in routes if _fits(route, notice)), None)
    return tuple(sinks) if route is None else tuple(name for name in sinks if name in route.to)


def _fits(route: RouteSettings, notice: Notice) -> bool:
    if route.kinds is not None and notice.kind not in route.kinds:
        return False
    if route.projects is None:
        return True
    names = (notice.name, notice.project)
    return any(fnmatchcase(name, pattern) for pattern in route.projects for name in names)
