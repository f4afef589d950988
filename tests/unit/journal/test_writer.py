from __future__ import annotations

import itertools
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from tests.support.eventually import eventually

from handoffd.errors import StoreError
from handoffd.journal.connections import Work, Writer
from handoffd.journal.database import open_database

Batches = list[Sequence[object]]


@pytest.fixture
def batches() -> Batches:
    """What the writer reported, a list of values for each batch."""
    return []


@pytest.fixture
async def writer(tmp_path: Path, batches: Batches) -> AsyncIterator[Writer]:
    """A writer on a new journal."""
    path = tmp_path / "journal.db"
    writer = Writer(open_database(path), path, batches.append)
    yield writer
    await writer.close()


class Held:
    """Keeps the writing thread busy, so that what is asked meanwhile becomes one batch."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, db: sqlite3.Connection) -> str:
        """Wait inside a transaction until told to go on."""
        self.entered.set()
        assert self.go_on.wait(60)
        return "held"


def add(name: str) -> Work[str]:
    """Return the work of adding a project."""

    def work(db: sqlite3.Connection) -> str:
        db.execute("INSERT INTO projects (root, name, added_at) VALUES (?, ?, '2026')", (f"/{name}", name))
        return name

    return work


def names(path: Path) -> list[str]:
    """Return the projects that are on the disk."""
    with closing(sqlite3.connect(path)) as db:
        return [name for (name,) in db.execute("SELECT name FROM projects ORDER BY name")]


async def test_what_waits_is_written_in_one_transaction(
    writer: Writer, batches: Batches, tmp_path: Path
) -> None:
    """One sync to the disk serves everybody who queued up meanwhile, in order."""
    held = Held()

    async with anyio.create_task_group() as group:
        group.start_soon(writer.run, "hold", held)
        await eventually(held.entered.is_set)
        for number in range(20):
            group.start_soon(writer.run, "add", add(f"p{number:02}"))
        await eventually(lambda: writer._requests.qsize() == 20)
        held.go_on.set()

    assert [["held"], [f"p{number:02}" for number in range(20)]] == batches
    assert 20 == len(names(tmp_path / "journal.db"))


async def test_a_large_batch_is_answered_a_few_at_a_time(writer: Writer) -> None:
    """Between the callers of one transaction, the event loop gets to everybody else."""
    held, answered, seen = Held(), 0, set[int]()

    async def ask(name: str) -> None:
        nonlocal answered
        await writer.run("add", add(name))
        answered += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run, "hold", held)
        await eventually(held.entered.is_set)
        for number in range(100):
            tasks.start_soon(ask, f"p{number}")
        await anyio.wait_all_tasks_blocked()
        held.go_on.set()
        while answered < 100:
            seen.add(answered)
            await anyio.lowlevel.checkpoint()

    steps = sorted(seen | {100})
    assert max(after - before for before, after in itertools.pairwise(steps)) <= 32


async def test_one_bad_request_does_not_fail_its_neighbours(writer: Writer, tmp_path: Path) -> None:
    """A batch that fails is tried again one by one, and only the culprit hears of it."""
    held, answers, errors = Held(), list[object](), list[Exception]()

    async def ask(work: Work[Any]) -> None:
        try:
            answers.append(await writer.run("add a project", work))
        except (StoreError, ZeroDivisionError) as error:
            errors.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(ask, held)
        await eventually(held.entered.is_set)
        for work in (add("a"), add("a"), add("b"), lambda _: 1 / 0, add("c")):
            group.start_soon(ask, work)
        await eventually(lambda: writer._requests.qsize() == 5)
        held.go_on.set()

    assert ["held", "a", "b", "c"] == answers
    assert [StoreError, ZeroDivisionError] == [type(error) for error in errors]
    assert "UNIQUE constraint failed" in str(errors[0])
    assert ["a", "b", "c"] == names(tmp_path / "journal.db")


async def test_a_cancelled_caller_harms_nobody(writer: Writer, tmp_path: Path) -> None:
    """Whoever stops waiting leaves the batch, its neighbours and later requests alone."""
    held = Held()

    async with anyio.create_task_group() as neighbours:
        async with anyio.create_task_group() as impatient:
            neighbours.start_soon(writer.run, "hold", held)
            await eventually(held.entered.is_set)
            impatient.start_soon(writer.run, "add", add("impatient"))
            neighbours.start_soon(writer.run, "add", add("patient"))
            await eventually(lambda: writer._requests.qsize() == 2)
            impatient.cancel_scope.cancel()
        held.go_on.set()

    assert "later" == await writer.run("add", add("later"))
    assert ["impatient", "later", "patient"] == names(tmp_path / "journal.db")


async def test_closing_writes_what_is_queued_first(tmp_path: Path) -> None:
    """A stop loses nothing that was asked before it."""
    path, held = tmp_path / "journal.db", Held()
    writer = Writer(open_database(path), path, lambda _: None)

    async with anyio.create_task_group() as group:
        group.start_soon(writer.run, "hold", held)
        await eventually(held.entered.is_set)
        group.start_soon(writer.run, "add", add("last"))
        await eventually(lambda: writer._requests.qsize() == 1)
        group.start_soon(writer.close)
        await eventually(lambda: writer._requests.qsize() == 2)
        held.go_on.set()

    assert ["last"] == names(path)
    assert ["journal.db"] == os.listdir(tmp_path)
    with pytest.raises(StoreError, match="closed"):
        await writer.run("add", add("too late"))
    await writer.close()


async def test_a_full_database_is_reported_and_forgotten(writer: Writer, tmp_path: Path) -> None:
    """The error names path, activity and cause; when there is room again, writing works again."""

    def limit(pages: int) -> Work[Any]:
        return lambda db: db.execute(f"PRAGMA max_page_count = {pages}").fetchone()

    def fill(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO baselines VALUES ('/p', 'main', 'US-1', ?)", (b"x" * 500_000,))

    await writer.run("limit", limit(40))
    with pytest.raises(StoreError) as caught:
        await writer.run("keep a baseline of /p", fill)
    assert "DISK_FULL" == caught.value.code
    assert f"cannot keep a baseline of /p: {tmp_path}/journal.db: database or disk" in caught.value.message

    await writer.run("limit", limit(100_000))
    await writer.run("keep a baseline of /p", fill)


_FAILING_DISK = """
import anyio, json, resource, sys
from pathlib import Path
from typing import Any
from handoffd.errors import StoreError
from handoffd.journal.database import open_database
from handoffd.journal.connections import Work, Writer

def add(number):
    values = (str(number), "x" * 3000)
    return lambda db: db.execute("INSERT INTO projects (root, name, added_at) VALUES (?, ?, '2026')", values)

async def main(path):
    writer, acknowledged, errors = Writer(open_database(path), path, lambda values: None), [], []
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    for number in range(60):
        if number == 20:
            resource.setrlimit(resource.RLIMIT_FSIZE, (Path(f"{path}-wal").stat().st_size + 9000, hard))
        if number == 40:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        try:
            await writer.run("add a project", add(number))
            acknowledged.append(number)
        except StoreError as error:
            errors.append(error.message)
    await writer.close()
    print(json.dumps([acknowledged, errors]))

anyio.run(main, Path(sys.argv[1]))
"""


def test_a_disk_that_refuses_writes_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """While the disk fails every commit says so; before and after, each one acknowledged is there."""
    path = tmp_path / "journal.db"

    done = subprocess.run(
        [sys.executable, "-c", _FAILING_DISK, path], capture_output=True, text=True, timeout=60, check=True
    )

    acknowledged, errors = json.loads(done.stdout.splitlines()[-1])
    assert 60 == len(acknowledged) + len(errors)
    assert {*range(20), *range(40, 60)} <= set(acknowledged)
    assert errors
    assert all(error.startswith(f"cannot add a project: {path}: ") for error in errors)
    with closing(sqlite3.connect(path)) as db:
        found = {int(root) for (root,) in db.execute("SELECT root FROM projects")}
        assert [("ok",)] == db.execute("PRAGMA integrity_check").fetchall()
    assert set(acknowledged) == found


async def test_a_journal_moved_away_is_noticed(writer: Writer, tmp_path: Path) -> None:
    """Nothing is acknowledged that went into a file nobody will find again."""
    path, elsewhere = tmp_path / "journal.db", tmp_path / "moved.db"
    path.rename(elsewhere)

    with pytest.raises(StoreError, match=r"journal\.db: No such file"):
        await writer.run("add", add("a"))
    path.touch()
    with pytest.raises(StoreError, match="moved or replaced"):
        await writer.run("add", add("a"))

    elsewhere.replace(path)
    assert "a" == await writer.run("add", add("a"))


async def test_it_says_since_when_nobody_has_been_answered(writer: Writer) -> None:
    """Nothing while nobody waits; every answer is progress, and so is a failure."""
    assert writer.waiting_since is None
    held = Held()
    before = time.monotonic()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run, "wait", held)
        await anyio.to_thread.run_sync(held.entered.wait)
        since = writer.waiting_since
        tasks.start_soon(writer.run, "add", add("a"))
        await anyio.lowlevel.checkpoint()
        assert since == writer.waiting_since  # one more who waits is no progress
        held.go_on.set()
    with pytest.raises(StoreError):
        await writer.run("fail", lambda db: db.execute("nonsense"))

    assert since is not None
    assert before <= since <= time.monotonic()
    assert writer.waiting_since is None
