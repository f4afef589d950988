"""The thread that writes, and the connections that read."""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import TaskGroup
from tests.support.eventually import eventually
from tests.unit.journal.making import NOW

from handoffd.errors import StoreError
from handoffd.journal.connections import Readers, Work, Writer
from handoffd.journal.database import open_database
from handoffd.journal.journal import Journal

Batches = list[Sequence[object]]


# --- writing ------------------------------------------------------------------------------------------
@pytest.fixture
def batches() -> Batches:
    """What the writer reported, a list of values for each batch."""
    return []


@pytest.fixture
async def writer(place: Path, batches: Batches) -> AsyncIterator[Writer]:
    """A writer on a new journal."""
    writer = Writer(open_database(place), place, batches.append)
    yield writer
    await writer.close()


@asynccontextmanager
async def one_batch(writer: Writer, count: int) -> AsyncIterator[TaskGroup]:
    """Keep the writing thread busy until the block has queued `count` requests, which become one batch."""
    entered, go_on = threading.Event(), threading.Event()

    def hold(_: sqlite3.Connection) -> str:
        entered.set()
        assert go_on.wait(60)
        return "held"

    async with anyio.create_task_group() as group:
        group.start_soon(writer.run, "hold", hold)
        await eventually(entered.is_set)
        yield group
        await eventually(lambda: writer._requests.qsize() == count)
        go_on.set()


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


async def test_queued_requests_are_written_in_one_transaction(
    writer: Writer, batches: Batches, place: Path
) -> None:
    """One sync to the disk serves all callers that queued up meanwhile, in order."""
    wanted = [f"p{number:02}" for number in range(20)]
    async with one_batch(writer, 20) as group:
        for name in wanted:
            group.start_soon(writer.run, "add", add(name))

    assert [["held"], wanted] == batches
    assert wanted == names(place)


async def test_a_large_batch_is_answered_a_few_at_a_time(writer: Writer) -> None:
    """Between the callers of one transaction, the event loop gets to other tasks."""
    answered, seen = 0, set[int]()

    async def ask(name: str) -> None:
        nonlocal answered
        await writer.run("add", add(name))
        answered += 1

    async def watch() -> None:
        while answered < 100:
            seen.add(answered)
            await anyio.lowlevel.checkpoint()

    async with one_batch(writer, 100) as group:
        for number in range(100):
            group.start_soon(ask, f"p{number}")
        group.start_soon(watch)

    steps = sorted(seen | {100})
    assert max(after - before for before, after in itertools.pairwise(steps)) <= 32


async def test_one_bad_request_does_not_fail_its_neighbours(writer: Writer, place: Path) -> None:
    """A batch that fails is tried again one by one, and only the culprit gets the error."""
    answers, errors = list[object](), list[Exception]()

    async def ask(work: Work[Any]) -> None:
        try:
            answers.append(await writer.run("add a project", work))
        except (StoreError, ZeroDivisionError) as error:
            errors.append(error)

    async with one_batch(writer, 5) as group:
        for work in (add("a"), add("a"), add("b"), lambda _: 1 / 0, add("c")):
            group.start_soon(ask, work)

    assert ["a", "b", "c"] == answers
    assert [StoreError, ZeroDivisionError] == [type(error) for error in errors]
    assert "UNIQUE constraint failed" in str(errors[0])
    assert ["a", "b", "c"] == names(place)


async def test_a_cancelled_caller_harms_no_other(writer: Writer, place: Path) -> None:
    """Its neighbours in the batch and later requests are written as ever."""
    async with one_batch(writer, 2) as neighbours, anyio.create_task_group() as impatient:
        impatient.start_soon(writer.run, "add", add("impatient"))
        neighbours.start_soon(writer.run, "add", add("patient"))
        await eventually(lambda: writer._requests.qsize() == 2)
        impatient.cancel_scope.cancel()

    assert "later" == await writer.run("add", add("later"))
    assert ["impatient", "later", "patient"] == names(place)


async def test_closing_writes_what_is_queued_first(writer: Writer, place: Path) -> None:
    """A stop loses no earlier request."""
    async with one_batch(writer, 2) as group:
        group.start_soon(writer.run, "add", add("last"))
        await eventually(lambda: writer._requests.qsize() == 1)
        group.start_soon(writer.close)

    assert ["last"] == names(place)
    assert ["journal.db"] == os.listdir(place.parent)
    with pytest.raises(StoreError, match="closed"):
        await writer.run("add", add("too late"))
    await writer.close()


async def test_a_full_database_is_reported_and_forgotten(writer: Writer, place: Path) -> None:
    """The error names path, activity and cause; when there is room again, writing works again."""

    def limit(pages: int) -> Work[Any]:
        return lambda db: db.execute(f"PRAGMA max_page_count = {pages}").fetchone()

    def fill(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO baselines VALUES ('/p', 'main', 'US-1', ?)", (b"x" * 500_000,))

    await writer.run("limit", limit(40))
    with pytest.raises(StoreError) as caught:
        await writer.run("keep a baseline of /p", fill)
    assert "DISK_FULL" == caught.value.code
    assert f"cannot keep a baseline of /p: {place}: database or disk" in caught.value.message

    await writer.run("limit", limit(100_000))
    await writer.run("keep a baseline of /p", fill)


_FAILING_DISK = """
import anyio, json, resource, sys
from pathlib import Path
from handoffd.errors import StoreError
from handoffd.journal.database import open_database
from handoffd.journal.connections import Writer

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


def test_a_disk_that_refuses_writes_loses_nothing_acknowledged(place: Path) -> None:
    """While the disk fails every commit is an error; each acknowledged one is there afterwards."""
    done = subprocess.run(
        [sys.executable, "-c", _FAILING_DISK, place], capture_output=True, text=True, timeout=60, check=True
    )

    acknowledged, errors = json.loads(done.stdout.splitlines()[-1])
    assert 60 == len(acknowledged) + len(errors)
    assert {*range(20), *range(40, 60)} <= set(acknowledged)
    assert errors
    assert all(error.startswith(f"cannot add a project: {place}: ") for error in errors)
    with closing(sqlite3.connect(place)) as db:
        found = {int(root) for (root,) in db.execute("SELECT root FROM projects")}
        assert [("ok",)] == db.execute("PRAGMA integrity_check").fetchall()
    assert set(acknowledged) == found


async def test_a_journal_moved_away_is_noticed(writer: Writer, place: Path) -> None:
    """A write into a file without its name would be lost, so it is an error."""
    elsewhere = place.with_name("moved.db")
    os.rename(place, elsewhere)

    with pytest.raises(StoreError, match=r"journal\.db: No such file"):
        await writer.run("add", add("a"))
    os.mknod(place)
    with pytest.raises(StoreError, match="moved or replaced"):
        await writer.run("add", add("a"))

    os.replace(elsewhere, place)
    assert "a" == await writer.run("add", add("a"))


async def test_it_shows_since_when_callers_wait_without_an_answer(writer: Writer) -> None:
    """Nothing while no caller waits; every answer is progress, and so is a failure."""
    assert writer.waiting_since is None
    before = time.monotonic()
    async with one_batch(writer, 1) as group:
        since = writer.waiting_since
        group.start_soon(writer.run, "add", add("a"))
        await anyio.lowlevel.checkpoint()
        assert since == writer.waiting_since  # another caller is not progress
    with pytest.raises(StoreError):
        await writer.run("fail", lambda db: db.execute("nonsense"))

    assert since is not None
    assert before <= since <= time.monotonic()
    assert writer.waiting_since is None


# --- reading ------------------------------------------------------------------------------------------
@pytest.fixture
def readers(place: Path) -> Iterator[Readers]:
    """Connections to a journal that may not be there."""
    readers = Readers(place)
    yield readers
    readers.close()


def count(db: sqlite3.Connection) -> int:
    """Return how many projects there are."""
    return int(db.execute("SELECT count(*) FROM projects").fetchone()[0])


async def test_a_slow_reader_neither_waits_nor_blocks(journal: Journal, readers: Readers) -> None:
    """A reader in the middle of a question sees the past; the writer goes on."""
    entered, go_on, seen = threading.Event(), threading.Event(), list[int]()

    def slowly(db: sqlite3.Connection) -> None:
        db.execute("BEGIN")
        seen.append(count(db))
        entered.set()
        assert go_on.wait(60)
        seen.append(count(db))
        db.execute("COMMIT")

    async with anyio.create_task_group() as group:
        group.start_soon(readers.run, "count", slowly)
        await eventually(entered.is_set)
        await journal.add_project("/srv/shop", "shop", NOW)
        assert 1 == await readers.run("count", count)
        go_on.set()

    assert [0, 0] == seen


@pytest.mark.usefixtures("journal")
async def test_a_question_that_fails_is_explained(readers: Readers) -> None:
    """Errors of reading name the file and what was asked."""
    with pytest.raises(StoreError, match=r"cannot read the weather: .*journal\.db: no such table"):
        await readers.run("read the weather", lambda db: db.execute("SELECT * FROM weather"))
    assert 0 == await readers.run("count", count)


async def test_a_journal_that_is_gone_is_not_created_by_reading(readers: Readers, place: Path) -> None:
    """A question to nothing is an error, and leaves nothing behind."""
    with pytest.raises(StoreError, match="unable to open"):
        await readers.run("count", count)

    assert [] == os.listdir(place.parent)


async def test_closed_readers_answer_no_more(readers: Readers) -> None:
    """After closing, a question is an error and not a leaked connection."""
    readers.close()

    with pytest.raises(StoreError, match="closed"):
        await readers.run("count", count)
