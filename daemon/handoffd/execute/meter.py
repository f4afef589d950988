"""Reads one run's output while it grows, and computes what its tokens cost.

The middle of a long output is not kept (`runner.capture`), and the facts in it are lost with it. So the meter
saves what it has read in the run's folder, and a daemon that adopts the run continues from there. Without a
saved note it reads the output from its beginning, as far as it is kept, and counts the bytes that were lost.

Prices are data: the table that ships, and the settings over it. An agent's own cost always takes precedence,
because it includes tiers, discounts and cache lifetimes. A model without a price has no cost: zero would look
like spending below the cap.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict

from handoffd.engine.run import Usage
from handoffd.execute import base
from handoffd.execute.executor import Executor
from handoffd.execute.output import output_bytes, read_from
from handoffd.execute.runner import records
from handoffd.execute.stream.reader import Checkpoint, Seen, StreamReader
from handoffd.protocol import yamltext
from handoffd.settings.model import Price
from handoffd.settings.paths import shared

# --- prices ------------------------------------------------------------------------------------------
_MILLION = 1_000_000
_BEFORE_NAME = re.compile(r"[/.]")
"""Separates a provider or a region from the name of a model."""


class PriceTable(Struct, frozen=True):
    """Prices by patterns of model names. Each layer takes precedence over the ones after it."""

    layers: tuple[Mapping[str, Price], ...] = ()

    def price_of(self, model: str) -> Price | None:
        """Return the price of a model's tokens; None if it is unknown."""
        names = tuple(_names(model.lower()))
        for layer in self.layers:
            fitting = [
                pattern for pattern in layer if any(fnmatchcase(name, pattern.lower()) for name in names)
            ]
            if fitting:
                return layer[max(fitting, key=len)]
        return None

    def priced(self, usage: Usage, model: str | None) -> Usage:
        """Return a usage with its cost, if the model has a price and the usage has no cost yet."""
        if usage.cost_usd is not None or usage.tokens == 0 or model is None:
            return usage
        price = self.price_of(model)
        return usage if price is None else replace(usage, cost_usd=cost_of(usage, price), priced="table")


def cost_of(usage: Usage, price: Price) -> float:
    """Return the cost of a usage, in US dollars."""
    cache_read = price.input if price.cache_read is None else price.cache_read
    cache_write = price.input if price.cache_write is None else price.cache_write
    return (
        usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + usage.cache_read_tokens * cache_read
        + usage.cache_write_tokens * cache_write
    ) / _MILLION


def load_prices(own: Mapping[str, Price]) -> PriceTable:
    """Return a table of `own` prices over the shipped ones."""
    families = shipped_families()
    shipped = {pattern: price for family in families for pattern, price in family.prices.items()}
    return PriceTable((own, shipped))


class Family(BaseModel):
    """The prices of one provider, their source, and the day on which they were read there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    seen: date
    prices: Mapping[str, Price]


@cache
def shipped_families() -> tuple[Family, ...]:
    """Return the prices that ship with handoffd."""
    path = shared("config", "prices.yaml")
    data = yamltext.load(path.read_bytes(), str(path)).data
    return tuple(Family.model_validate(family) for family in data["families"])


def _names(model: str) -> Iterator[str]:
    """Yield a model's name, with and without each prefix (provider, region)."""
    yield model
    for found in _BEFORE_NAME.finditer(model):
        yield model[found.end() :]


# --- one run's output --------------------------------------------------------------------------------
METER = "meter.json"

MOST_BYTES = 4 * 1024 * 1024
"""How much one look reads: other runs wait for the thread."""
_PIECE_BYTES = 256 * 1024


class Source(Struct, frozen=True, kw_only=True):
    """Where a run's output is, and how to read it."""

    executor: Executor
    run_dir: Path
    output: str
    before: Usage | None = None
    """Usage of earlier runs of the session that it continues: some agents count it again."""
    prices: PriceTable = field(default_factory=PriceTable)
    """Prices for agents that do not report their cost."""
    folder: Path | None = None
    """The folder in which the run works, if known."""

    def priced(self, seen: Seen) -> Seen:
        """Return `seen` with its cost, if that is known."""
        usage = self.prices.priced(seen.usage, seen.model or self.executor.model)
        return seen if usage is seen.usage else replace(seen, usage=usage)


class Live(Struct, frozen=True, kw_only=True):
    """The state of a run while it is running. `heard_at`: when it last printed anything, in UTC."""

    seen: Seen = field(default_factory=Seen)
    heard_at: datetime | None = None


class Note(Struct, frozen=True, kw_only=True):
    """A position at the end of a line of the output, and the reader's state there."""

    position: int
    standing: Checkpoint


class Meter:
    """Reads one run's output. Its methods block; any thread may call them and read `live` at any time."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._run_dir = source.run_dir
        self._reader: StreamReader | None = None
        self._position = 0
        self._noted = 0
        self._reading = threading.Lock()
        self.live = Live()
        """As of the last look."""

    def look(self) -> None:
        """Read what has come since the last look, up to a limit; return at once if another thread reads.

        So a project on a disk that does not answer blocks one thread, however often the daemon looks.
        """
        if self._reading.acquire(blocking=False):
            try:
                self._read(self._opened(), MOST_BYTES)
            finally:
                self._reading.release()

    def finish(self) -> Seen:
        """Read the rest of an ended run's output and return everything it reported."""
        with self._reading:
            reader = self._opened()
            while self._advance(reader, MOST_BYTES):
                pass
            reader.end()
            return self._source.priced(reader.seen)

    def note(self) -> None:
        """Save the position, unless it is saved already. A full disk costs the note, never the run."""
        if not self._reading.acquire(blocking=False):
            return
        try:
            reader = self._opened()
            position = self._position - reader.held
            if position != self._noted:
                note = Note(position=position, standing=reader.standing)
                records.write(str(self._run_dir), METER, msgspec.json.encode(note).decode(), durable=False)
                self._noted = position
        except OSError:
            return
        finally:
            self._reading.release()

    def _opened(self) -> StreamReader:
        if self._reader is None:
            note = _noted(self._run_dir)
            if note is None:
                self._reader = StreamReader(self._source.executor, self._source.before)
            else:
                self._reader = StreamReader.resumed(self._source.executor, note.standing)
                self._position = self._noted = note.position
            self.live = Live(seen=self._source.priced(self._reader.seen))
        return self._reader

    def _read(self, reader: StreamReader, most: int) -> None:
        """Read up to about `most` bytes, and report them."""
        if self._advance(reader, most):
            self.live = Live(seen=self._source.priced(reader.seen), heard_at=heard_at(self._run_dir))
        else:  # it may have printed parts of an answer, which are not kept
            self.live = replace(self.live, heard_at=heard_at(self._run_dir))

    def _advance(self, reader: StreamReader, most: int) -> bool:
        """Read up to about `most` bytes; return whether there were any."""
        start, left = self._position, most
        while left > 0 and output_bytes(self._run_dir) > self._position:
            chunk = read_from(self._run_dir, self._source.output, self._position, _PIECE_BYTES)
            if chunk.next == self._position:
                break
            reader.feed(chunk.data, chunk.left_out)
            self._position = chunk.next
            left -= len(chunk.data)
        return self._position != start


def noted(run_dir: Path) -> Live:
    """Return the last saved state of a run; for offline readers, while no meter reads it."""
    note = _noted(run_dir)
    return Live(seen=note.standing.seen if note else Seen(), heard_at=heard_at(run_dir))


def _noted(run_dir: Path) -> Note | None:
    """Return the saved note; None without one, or if a power cut damaged it: it is not synced to the disk."""
    try:
        return msgspec.json.decode(records.read(str(run_dir), METER) or "", type=Note)
    except (OSError, ValueError):
        return None


def heard_at(run_dir: Path) -> datetime | None:
    """Return when the run last printed anything; its shim writes the position file at each output."""
    try:
        changed = (run_dir / base.POSITION).stat().st_mtime
    except OSError:
        return None
    return datetime.fromtimestamp(changed, UTC) if output_bytes(run_dir) else None
