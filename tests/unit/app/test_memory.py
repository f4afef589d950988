"""Freed memory returns to the system, and undelivered notices take none."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from tests.support.eventually import eventually
from tests.unit.journal.making import opened
from tests.unit.notify.making import QUICK, Recording, notices

from handoffd.clock import SystemClock
from handoffd.engine.notice import Parcel
from handoffd.journal.journal import Journal
from handoffd.notify.notifier import Notifier
from handoffd.notify.ports import Undelivered

MANY = 10_000

PROGRAM = """
from pathlib import Path
from handoffd.app.daemon import give_back, share_heaps

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])

share_heaps()
texts = [bytes(3000) for _ in range(20_000)]  # from the C library's heap
last = bytes(3000)
before = resident()
texts.clear()
gaps = resident()
give_back()
print(before, gaps, resident(), len(last))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library knows no such calls")
def test_gaps_return_to_the_system() -> None:
    """Freed texts leave sixty megabytes of gaps below the remaining one, which alone is kept."""
    command = [sys.executable, "-c", PROGRAM]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    before, gaps, after, _ = map(int, output.split())

    assert gaps > 0.9 * before
    assert after < before - 0.8 * 20_000 * 3000 / 4096


# --- undelivered notices -------------------------------------------------------------------------------
@asynccontextmanager
async def running(journal: Journal, *sinks: Recording) -> AsyncIterator[Notifier]:
    """Run a notifier on a journal."""
    notifier = Notifier(QUICK, SystemClock(), journal.outbox, sinks=sinks)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notifier.run)
        yield notifier
        tasks.cancel_scope.cancel()


def resident_bytes() -> int:
    """Return the memory usage of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * resource.getpagesize()


@pytest.mark.slow
async def test_ten_thousand_undelivered_notices_cost_neither_memory_nor_a_slow_start(tmp_path: Path) -> None:
    """They stay in the journal; a working sink gets them one after the other."""
    path = tmp_path / "journal.db"
    long = "x" * 2000
    async with opened(path) as journal:
        parcels = [
            Parcel(notice=replace(one, why=long), sinks=("web", "mail"))
            for one in notices(MANY, str(os.getpid()))
        ]
        for start in range(0, MANY, 1000):
            await journal.outbox.keep(parcels[start : start + 1000], 1)
        del parcels

    web, mail = Recording("web"), Recording("mail")
    web.dead = Undelivered("no route")
    before = resident_bytes()
    async with opened(path) as journal, running(journal, web, mail):
        await eventually(lambda: len(mail.got) > 400 and web.tries > 3, within_s=60)
        assert resident_bytes() - before < 10 * 2**20  # all their texts would be twice that
        assert [] == web.got
        web.dead = None
        await eventually(lambda: len(web.got) > 400, within_s=60)

    assert [str(number) for number in range(len(mail.got))] == mail.got
    assert sorted(map(int, web.got)) == list(range(len(web.got)))
