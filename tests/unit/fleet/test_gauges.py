"""The gauges of real parts."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from tests.support.eventually import eventually
from tests.support.house import NoWatch, begun, daemon, house, make_project

from handoffd.engine.events import Started
from handoffd.fleet.gauges import gauges
from handoffd.metrics.recorder import Gauge
from handoffd.settings.model import SchedulingSettings


def values(found: tuple[Gauge, ...], name: str) -> dict[tuple[str, ...], float]:
    """Return the values of a series."""
    [one] = [gauge for gauge in found if gauge.name == name]
    return one.values


async def test_a_scrape_has_all_series(tmp_path: Path) -> None:
    """A story at its gate, a free slot, a writable journal, no trouble of the machine."""
    async with house(tmp_path) as lent, daemon(lent) as roster:
        root = make_project(tmp_path)
        await begun(roster, root)
        await roster.give(root, Started(story="US-001", automatic=True))

        await eventually(
            lambda: roster.running == 0 and lent.told.notices
        )  # at its gate, with a delivered notice
        lent.clock.ahead_s = 90_000
        limited = SchedulingSettings(per_executor={"claude": 2})
        lent.services.slots.configure(lent.services.slots.total, limited)
        found = await gauges(lent.services, roster, NoWatch(), None)

    assert {(): 1} == values(found, "waiting_for_people")
    assert 90_000 <= values(found, "waiting_longest_seconds")[()] < 90_300
    assert {(): 0} == values(found, "backlog_stories")
    assert {("ok",): 1} == values(found, "projects")
    assert {("review", "needs_human"): 1} == values(found, "tracks")
    assert {(): 4} == values(found, "slots")
    assert {(): 0} == values(found, "slots_in_use") == values(found, "slots_queue")
    assert {("executor", "claude"): 2} == values(found, "pool_slots")
    assert {("executor", "claude"): 0} == values(found, "pool_slots_in_use")
    assert values(found, "journal_events")[()] > 3
    assert {(): 1} == values(found, "journal_writable") == values(found, "starting")
    assert values(found, "state_free_bytes")[()] > 0


async def test_faults_are_numbers(tmp_path: Path) -> None:
    """A fault of the machine, and an unwatched folder."""

    class Deaf(NoWatch):
        degraded = MappingProxyType({"/srv/shop": "no watch is left"})

    async with house(tmp_path) as lent, daemon(lent) as roster:
        found = await gauges(lent.services, roster, Deaf(), "the journal cannot be written")

    assert ({(): 0}, {(): 1}) == (values(found, "starting"), values(found, "watch_degraded"))
    assert {(): 0} == values(found, "waiting_longest_seconds")
    assert {} == values(found, "tracks")
