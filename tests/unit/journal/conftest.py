"""A new journal for each test: as a daemon has it open, as a connection, or of an earlier release."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.recorded import story, write
from tests.unit.journal.making import GOLDEN, opened

from handoffd.journal.database import open_database
from handoffd.journal.journal import Journal

Golden = Callable[[int], Path]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the journal of a test is, or will be."""
    return tmp_path / "journal.db"


@pytest.fixture
async def journal(place: Path) -> AsyncIterator[Journal]:
    """An empty journal, open as a daemon has it."""
    async with opened(place) as lent:
        yield lent


@pytest.fixture
def db(place: Path) -> Iterator[sqlite3.Connection]:
    """The writing connection to an empty journal."""
    with closing(open_database(place)) as connection:
        yield connection


@pytest.fixture
def recorded(place: Path) -> Path:
    """The journal of one story."""
    write(place, story())
    return place


@pytest.fixture
def golden(place: Path) -> Golden:
    """Puts the journal of an earlier schema at `place`."""
    return lambda schema: Path(shutil.copy(GOLDEN / f"schema-{schema}.db", place))
