"""One run's output, read along while it grows, and what its tokens cost.

Of a long output the middle is not kept (`runner.capture`), and with it goes what only those lines told. So
what was read is noted in the run's folder, and a daemon that takes the run over goes on from there. Without a
note the output is read from its beginning, as far as it is there. What was lost before it could be read is
counted.

Prices are data: the table that ships, and what the settings say instead. An agent's own reckoning always goes
before it, for that knows of tiers, discounts and cache lifetimes. What has no price here stays without a
cost, because a cost of nothing would look like a cap that holds.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

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
"""What can stand between a provider, or a region, and the name of a model."""


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices by patterns of model names. Each layer goes before the ones after it."""

    layers: tuple[Mapping[str, Price], ...] = ()

    def price_of(self, model: str) -> Price | None:
        """Return what tokens of a model cost; None when that is not known."""
        names = tuple(_names(model.lower()))
        for layer in self.layers:
            fitting = [
                pattern for pattern in layer if any(fnmatchcase(name, pattern.lower()) for name in names)
            ]
            if fitting:
                return layer[max(fitting, key=len)]
        return None

    def priced(self, usage: Usage, model: str | None) -> Usage:
        """Return a usage with its cost, if the model is known and nobody has told a cost before."""
        if usage.cost_usd is not None or usage.tokens == 0 or model is None:
            return usage
        price = self.price_of(model)
        return usage if price is None else replace(usage, cost_usd=cost_of(usage, price), priced="table")


def cost_of(usage: Usage, price: Price) -> float:
    """Return what a usage costs, in dollars."""
    cache_read = price.input if price.cache_read is None else price.cache_read
    cache_write = price.input if price.cache_write is None else price.cache_write
    return (
        usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + usage.cache_read_tokens * cache_read
        + usage.cache_write_tokens * cache_write
    ) / _MILLION


def load_prices(own: Mapping[str, Price]) -> PriceTable:
    """Return the shipped table below `own` prices."""
    families = shipped_families()
    shipped = {pattern: price for family in families for pattern, price in family.prices.items()}
    return PriceTable((own, shipped))


class Family(BaseModel):
    """The prices of one provider: where they stand, and when they were read there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    seen: date
    prices: Mapping[str, Price]


@cache
def shipped_families() -> tuple[Family, ...]:
    """Return the prices that come with handoffd."""
    path = shared("config", "prices.yaml")
    data = yamltext.load(path.read_bytes(), str(path)).data
    return tuple(Family.model_validate(family) for family in data["families"])


def _names(model: str) -> Iterator[str]:
    """Yield a model's name, with and without what may stand before it."""
    yield model
    for found in _BEFORE_NAME.finditer(model):
        yield model[found.end() :]


# --- one run's output --------------------------------------------------------------------------------
METER = "meter.json"

MOST_BYTES = 4 * 1024 * 1024
"""How much is read at one look: others wait for their turn."""
_PIECE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a run's output is, and how it is to be read."""

    executor: Executor
    run_dir: Path
    output: str
    before: Usage | None = None
    """What earlier runs of the session that it continues have used: some agents count that again."""
    prices: PriceTable = field(default_factory=PriceTable)
    """What tokens cost where the agent does not tell."""
    project: Path | None = None
    """The folder that the run works in, where that is known."""

    def priced(self, seen: Seen) -> Seen:
        """Return what was seen with its cost, as far as that is known."""
        usage = self.prices.priced(seen.usage, seen.model or self.executor.model)
        return seen if usage is seen.usage else replace(seen, usage=usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What is known of a run while it goes on. `heard_at`: when it printed something last, in UTC."""

    seen: Seen = field(default_factory=Seen)
    heard_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """How far the output was read, to the end of a line, and what it had told by then."""

    position: int
    standing: Checkpoint


_NOTE: Final = TypeAdapter(Note)


class Meter:
    """Reads one run's output. Its methods block; any thread may call them, `live` at any time."""

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
        """Read what has come since the last look, within a limit; nothing while another thread does.

        So a project on a disk that does not answer costs one thread, however often it is looked at.
        """
        if self._reading.acquire(blocking=False):
            try:
                self._read(self._opened(), MOST_BYTES)
            finally:
                self._reading.release()

    def finish(self) -> Seen:
        """Return what the whole output of a run that is over has told."""
        with self._reading:
            reader = self._opened()
            while self._read(reader, MOST_BYTES):
                pass
            reader.end()
            return self._source.priced(reader.seen)

    def note(self) -> None:
        """Write down how far it was read, unless that is known. A full disk costs the note, never the run."""
        if not self._reading.acquire(blocking=False):
            return
        try:
            reader = self._opened()
            position = self._position - reader.held
            if position != self._noted:
                note = Note(position=position, standing=reader.standing)
                records.write(str(self._run_dir), METER, _NOTE.dump_json(note).decode(), durable=False)
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
            self.live = Live(seen=self._source.priced(self._reader.seen), heard_at=heard_at(self._run_dir))
        return self._reader

    def _read(self, reader: StreamReader, most: int) -> bool:
        """Read up to about `most` bytes; return whether there were any."""
        start, left = self._position, most
        while left > 0 and output_bytes(self._run_dir) > self._position:
            chunk = read_from(self._run_dir, self._source.output, self._position, _PIECE_BYTES)
            if chunk.next == self._position:
                break
            reader.feed(chunk.data, chunk.left_out)
            self._position = chunk.next
            left -= len(chunk.data)
        if self._position != start:
            self.live = Live(seen=self._source.priced(reader.seen), heard_at=heard_at(self._run_dir))
        else:  # words of an answer may have come that are not kept
            self.live = replace(self.live, heard_at=heard_at(self._run_dir))
        return self._position != start


def noted(run_dir: Path) -> Live:
    """Return what was noted of a run last; for whoever only looks, while nobody reads along."""
    note = _noted(run_dir)
    return Live(seen=note.standing.seen if note else Seen(), heard_at=heard_at(run_dir))


def _noted(run_dir: Path) -> Note | None:
    """Return the note; None without one, or when it is not whole: it was not synced to the disk."""
    try:
        return _NOTE.validate_json(records.read(str(run_dir), METER) or "")
    except (OSError, ValidationError):
        return None


def heard_at(run_dir: Path) -> datetime | None:
    """Return when the run printed something last; its shim notes the position at each write."""
    try:
        changed = (run_dir / base.POSITION).stat().st_mtime
    except OSError:
        return None
    return datetime.fromtimestamp(changed, UTC) if output_bytes(run_dir) else None
