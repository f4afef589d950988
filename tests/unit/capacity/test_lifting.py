"""A limit that a person lifts: gone for everybody, and recorded with all that can be told."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.house import NOW, House, house, track_of

from handoffd.capacity.accounts import lift
from handoffd.engine.events import LimitLifted
from handoffd.engine.track import Limit, TrackKey
from handoffd.errors import NotFound, StoreError

A, B = TrackKey("/srv/a"), TrackKey("/srv/b")


class Recorded:
    """Keeps whom the lift was told; some cannot be told."""

    def __init__(self, *deaf: TrackKey) -> None:
        self.told: list[TrackKey] = []
        self._deaf = deaf

    async def __call__(self, key: TrackKey, event: LimitLifted) -> None:
        """Take it in."""
        assert ("purse", "mei") == (event.account, event.by)
        if key in self._deaf:
            raise StoreError(f"{key.project} cannot be written")
        self.told.append(key)


def limited(here: House) -> None:
    """Have two tracks have met the limit of the account `purse`."""
    limit = Limit(account="purse", executor="agent", kind="limit", since=NOW, until=NOW + timedelta(hours=1))
    for key in (A, B):
        here.services.accounts.learn(key, track_of().with_ledger(limited=(limit,)), NOW)


async def test_everybody_who_met_it_is_told(tmp_path: Path) -> None:
    """And nobody waits for it any more."""
    async with house(tmp_path) as here:
        limited(here)
        recorded = Recorded()

        lifted = await lift(here.services.accounts, "purse", "mei", NOW, recorded, daemon=True)

        assert (("/srv/a", "/srv/b"), ()) == (lifted.projects, lifted.problems)
        assert ({A, B}, ()) == (set(recorded.told), here.services.accounts.views(NOW))


async def test_one_that_cannot_be_told_is_named(tmp_path: Path) -> None:
    """It keeps no other one from hearing of it."""
    async with house(tmp_path) as here:
        limited(here)

        lifted = await lift(here.services.accounts, "purse", "mei", NOW, Recorded(B), daemon=True)

        assert ("/srv/a",) == lifted.projects
        assert ("/srv/b: /srv/b cannot be written",) == lifted.problems


@pytest.mark.parametrize("daemon", [True, False])
async def test_recorded_nowhere_it_counts_in_a_daemon_only(tmp_path: Path, daemon: bool) -> None:
    """Without one, there is nobody who would know."""
    async with house(tmp_path) as here:
        limited(here)
        if daemon:
            assert (
                ()
                == (
                    await lift(here.services.accounts, "purse", "mei", NOW, Recorded(A, B), daemon=True)
                ).projects
            )
        else:
            with pytest.raises(StoreError):
                await lift(here.services.accounts, "purse", "mei", NOW, Recorded(A, B), daemon=False)


async def test_what_is_not_limited_cannot_be_lifted(tmp_path: Path) -> None:
    """What is, is named."""
    async with house(tmp_path) as here:
        limited(here)
        with pytest.raises(NotFound, match="limited: purse"):
            await lift(here.services.accounts, "wallet", "mei", NOW, Recorded(), daemon=True)
