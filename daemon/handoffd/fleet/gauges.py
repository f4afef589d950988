"""The gauges for Prometheus, collected at each scrape.

Cheap values come from memory, the rest from one query of the journal; so a scrape costs the same with ten
projects and with ten thousand, except for the sums that SQLite computes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from handoffd.journal.queries import Counts
from handoffd.metrics.recorder import MOST_VALUES, Gauge, Values, among, single
from handoffd.track.services import Services


class Fleet(Protocol):
    """The part of the roster that the gauges count."""

    @property
    def running(self) -> int:
        """How many attempts of ours are in flight."""

    @property
    def resting(self) -> int:
        """How many projects are rows and no more."""

    def conditions(self) -> Mapping[str, int]:
        """Return how many projects are in which condition."""


class Watched(Protocol):
    """The part of the watcher that the gauges count."""

    @property
    def degraded(self) -> Mapping[str, str]:
        """The projects whose changes only the sweep sees."""


async def gauges(
    services: Services, fleet: Fleet, watched: Watched, trouble: str | None
) -> tuple[Gauge, ...]:
    """Return every series except counters of events.

    Raises StoreError when the journal cannot be read.
    """
    counts = await services.journal.counts()
    return (
        *_of_projects(fleet, counts, services.clock.now()),
        *_of_waiting(services),
        *_of_notices(counts, services.notifier.next_tries()),
        *_of_journal(services, counts),
        *_of_machine(services, watched, trouble),
    )


def _of_projects(fleet: Fleet, counts: Counts, now: datetime) -> tuple[Gauge, ...]:
    conditions: Values = {(name,): count for name, count in fleet.conditions().items()}
    tracks: Values = dict(counts.tracks.items())
    longest_s = 0.0 if counts.waiting_since is None else (now - counts.waiting_since).total_seconds()
    return (
        Gauge(name="projects", help="Supervised projects.", labels=("condition",), values=conditions),
        Gauge(
            name="tracks", help="Stories and tasks, by where they stand.", labels=("step", "status"),
            values=among(tracks, MOST_VALUES),
        ),
        single("waiting_for_people", "Tracks that go on when a person acts.", counts.waiting_for_people),
        single("waiting_longest_seconds", "How long the oldest of them has waited.", max(longest_s, 0.0)),
        single("blocked_tracks", "Tracks that are paused, capped or wait for another story.", counts.blocked),
        single("projects_at_rest", "Projects of which there is a row and no more.", fleet.resting),
        single("backlog_stories", "Stories that wait in a backlog.", counts.backlog),
        single("attempts_in_flight", "Attempts that are being executed or checked.", fleet.running),
    )  # fmt: skip


def _of_waiting(services: Services) -> tuple[Gauge, ...]:
    accounts = services.accounts.views(services.clock.now())
    limited: Values = {(view.account, view.kind): view.waiting for view in accounts}
    return (
        single("slots", "How many executors may run at once.", services.slots.total),
        single("slots_in_use", "How many of them run.", services.slots.in_use),
        single("slots_queue", "Tracks that wait for a slot.", services.slots.queued),
        Gauge(
            name="pool_slots", help="How many may run at once of an executor, an account or a group.",
            labels=("kind", "name"), values=dict(services.slots.limits.items()),
        ),
        Gauge(
            name="pool_slots_in_use", help="How many of them run.", labels=("kind", "name"),
            values=dict(services.slots.in_pools().items()),
        ),
        Gauge(
            name="account_queue", help="Tracks parked until an account's limit is over.",
            labels=("account", "kind"), values=limited,
        ),
        single("accounts_limited", "Accounts that met a limit.", len(accounts)),
        single("runs_read_along", "Runs whose output is read as it comes.", len(services.meters.usage())),
    )  # fmt: skip


def _of_notices(counts: Counts, next_tries: Mapping[str, float]) -> tuple[Gauge, ...]:
    by_outcome: Values = dict(counts.deliveries.items())
    return (
        Gauge(
            name="deliveries", help="Notices on record, by sink and outcome (held: delivered later).",
            labels=("sink", "outcome"), values=by_outcome,
        ),
        single("sinks_resting", "Sinks that failed and are tried again later.", len(next_tries)),
    )  # fmt: skip


def _of_journal(services: Services, counts: Counts) -> tuple[Gauge, ...]:
    return (
        single("journal_bytes", "Size of the journal's database.", counts.database_bytes),
        single("journal_wal_bytes", "Size of its write-ahead log.", counts.wal_bytes),
        single("journal_events", "Number of the latest event.", counts.newest_event),
        single("journal_orders_pending", "Orders that are not carried out yet.", counts.orders_pending),
        single("journal_writable", "1 while the journal takes commits.", services.journal.outage is None),
    )


def _of_machine(services: Services, watched: Watched, trouble: str | None) -> tuple[Gauge, ...]:
    return (
        single("watch_degraded", "Projects whose changes only the sweep sees.", len(watched.degraded)),
        single(
            "starting", "1 while executors may be started, 0 when the machine forbids it.", trouble is None
        ),
        single("state_free_bytes", "Room on the disk of the state directory.", _free(services)),
        single(
            "spent_usd", "US dollars that the journal has booked ever.", services.budgets.booked.cost_usd or 0
        ),
        single("spent_tokens", "Tokens that it has booked ever.", services.budgets.booked.tokens),
    )


def _free(services: Services) -> float:
    try:
        seen = os.statvfs(services.settings.state_dir)
    except OSError:  # the journal's own gauges report the fault
        return 0.0
    return float(seen.f_bavail * seen.f_frsize)
