"""A person lifts an account's limit: nobody waits for it any more, and that stands in everybody's history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from handoffd.engine.requests import LimitLifted
from handoffd.engine.track import TrackKey
from handoffd.engine.views import Lifted
from handoffd.errors import HandoffdError, NotFound
from handoffd.supervise.services import Services

Record = Callable[[TrackKey, LimitLifted], Awaitable[None]]


async def lift(account: str, by: str, services: Services, record: Record, *, daemon: bool) -> Lifted:
    """Lift a limit, have `record` tell the tracks that had met it; return their projects.

    Raises NotFound when it is not limited, HandoffdError when it is only on record, because no `daemon`
    runs, and that can be changed nowhere.
    """
    now = services.clock.now()
    keys = services.accounts.tracks(account)
    if not keys:
        known = ", ".join(view.account for view in services.accounts.views(now)) or "none"
        raise NotFound(f"{account[:80]!r} is not limited (limited: {known})", hint="handoffd limits")
    services.accounts.lift(account, now)
    failed: dict[str, HandoffdError] = {}
    event = LimitLifted(account=account, by=by)

    async def tell(key: TrackKey) -> None:
        try:
            await record(key, event)
        except HandoffdError as error:
            failed[key.project] = error

    async with anyio.create_task_group() as tasks:  # one that does not answer keeps no other one waiting
        for key in keys:
            tasks.start_soon(tell, key)
    recorded = tuple(sorted({key.project for key in keys} - failed.keys()))
    if failed and not recorded and not daemon:
        raise next(iter(failed.values()))
    problems = tuple(f"{root}: {error.message}" for root, error in sorted(failed.items()))
    return Lifted(projects=recorded, problems=problems)
