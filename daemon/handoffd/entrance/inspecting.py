"""Asking about folders: through the daemon, else by the journal, else by the files alone.

Nothing is needed for it and nothing is made: where there was never a journal, there is none afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from handoffd.api.client import Json
from handoffd.entrance.asking import Answer, either
from handoffd.entrance.place import Place

if TYPE_CHECKING:
    from handoffd.api.folders import Inspecting


def inspect(
    place: Place, path: str, query: dict[str, str | None], ask: Callable[[Inspecting], Awaitable[Json]]
) -> Answer:
    """Return what the daemon answers at `path`, or, while none runs, what `ask` does.

    Raises HandoffdError for what cannot be answered.
    """

    def without() -> Json:
        settings = place.settings()
        if settings.journal.exists():
            from handoffd.entrance import offline

            return offline.look(settings, ask)
        import anyio

        from handoffd.api.folders import Inspecting

        return anyio.run(ask, Inspecting(None, settings.language))

    return either(place, lambda client: client.get(path, **query), without)
