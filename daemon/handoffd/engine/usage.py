"""What an attempt has used up: tokens, what they cost, what it took of the machine; and caps on that.

Providers count differently; here each token is counted once, under what it was billed as. A cost is what
the agent's own program reports, or a reckoning from the price table, and says which. A cap is a number of
dollars or of tokens for a scope: one run of an executor, a story, a project, a day, all that this
daemon's journal has ever seen. What a cost is not known of counts its tokens only. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

# --- what was used ------------------------------------------------------------------------------------
TOKEN_KINDS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one attempt, or the sum of several. The four counts do not overlap."""

    input_tokens: int = 0
    """Sent, without those that a cache had."""
    output_tokens: int = 0
    """Answered, reasoning included."""
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None
    """None: not known. Of a sum: of those attempts of which it is known."""
    priced: Literal["provider", "table", "mixed"] | None = None
    """Who reckoned the cost; None without one."""

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens

    def __add__(self, other: Usage) -> Usage:
        """Return the sum of both."""
        known = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        pricers = {priced for priced in (self.priced, other.priced) if priced is not None}
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            cost_usd=sum(known) if known else None,
            priced=pricers.pop() if len(pricers) == 1 else "mixed" if pricers else None,
        )

    def __sub__(self, earlier: Usage) -> Usage:
        """Return what came to `earlier`, a sum that is a part of this one."""
        return Usage(
            input_tokens=self.input_tokens - earlier.input_tokens,
            output_tokens=self.output_tokens - earlier.output_tokens,
            cache_read_tokens=self.cache_read_tokens - earlier.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens - earlier.cache_write_tokens,
            cost_usd=None if self.cost_usd is None else self.cost_usd - (earlier.cost_usd or 0),
            priced=self.priced,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What the processes of one run took of the machine at most, and its limits.

    None: it is not known, or there was no limit.
    """

    memory_peak: int | None = None
    """Bytes."""
    memory_max: int | None = None
    """Bytes (`execute.memory_max`)."""
    memory_kills: int = 0
    """How many processes the kernel ended at that limit."""
    tasks_peak: int | None = None
    """Processes and threads."""
    tasks_max: int | None = None
    """Processes and threads (`execute.tasks_max`)."""
    tasks_refused: int = 0
    """How often one more was refused at that limit."""

    @property
    def memory_limit(self) -> str:
        """The limit of memory as the setting that it comes from: `execute.memory_max: 4 GiB`."""
        limit = "" if self.memory_max is None else f": {size_in_words(self.memory_max)}"
        return f"execute.memory_max{limit}"

    @property
    def limits_met(self) -> str:
        """What a run that went on was refused; nothing for nothing."""
        met = []
        if self.memory_kills:
            processes = "a process" if self.memory_kills == 1 else f"{self.memory_kills} processes"
            met.append(f"the kernel ended {processes} of it at its memory limit ({self.memory_limit})")
        if self.tasks_refused:
            met.append(f"it may not have more processes and threads (execute.tasks_max: {self.tasks_max})")
        return ", and ".join(met)


# --- caps on it ---------------------------------------------------------------------------------------
Scope = Literal["attempt", "story", "project", "day", "daemon"]

Unit = Literal["usd", "tokens"]


SCOPES: Final[tuple[Scope, ...]] = ("attempt", "story", "project", "day", "daemon")
"""From the narrowest to the widest."""

UNITS: Final[tuple[Unit, ...]] = ("usd", "tokens")


SHARED: Final = frozenset[Scope]({"day", "daemon"})
"""Scopes that several projects spend from: when one is used up, people are told once, not by each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """How much one scope may spend. None: as much as it likes."""

    usd: float | None = None
    tokens: int | None = None


NO_CAP: Final = Cap()


Caps = Mapping[Scope, Cap]
"""The caps in force; a scope that is missing has none."""


_POSSESSIVE: Final[Mapping[Scope, str]] = {
    "attempt": "the attempt's", "story": "the story's", "project": "the project's", "day": "the day's",
    "daemon": "the daemon's",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a scope has spent of a cap that is near or reached. Both numbers are dollars, or tokens."""

    scope: Scope
    unit: Unit
    spent: float
    cap: float

    @property
    def over(self) -> bool:
        """Whether it is reached; else it is only near."""
        return self.spent >= self.cap

    @property
    def text(self) -> str:
        """It in words: `the story's budget: $4.10 of $4.00 spent`."""
        return f"{self.budget}: {amount(self.spent, self.unit)} of {amount(self.cap, self.unit)} spent"

    @property
    def budget(self) -> str:
        """Whose budget it is: `the story's budget`."""
        return f"{_POSSESSIVE[self.scope]} budget"

    @property
    def used_up(self) -> str:
        """Its end in words that stay the same while the sum goes on growing."""
        return f"{self.budget} of {amount(self.cap, self.unit)} is used up"


# --- both in words ------------------------------------------------------------------------------------


def counted(count: float, one: str, many: str | None = None) -> str:
    """Return a count with its noun and what agrees with that: `1 project`, `0.5 days`, `3 stories wait`.

    `many` is the plural, where it is not `one` with an s. Every report counts by this; but what a decision is
    journaled with stays as it is, since it has to come out again as it was recorded.
    """
    number = str(count) if isinstance(count, int) else f"{count:g}"
    return f"{number} {one if count == 1 else many or f'{one}s'}"


def footprint_in_words(memory_peak: int | None, tasks_peak: int | None) -> str:
    """Return both for people, as far as they are known: `812 MiB, 41 tasks`."""
    memory = None if memory_peak is None else size_in_words(memory_peak)
    tasks = None if tasks_peak is None else counted(tasks_peak, "task")
    return ", ".join(part for part in (memory, tasks) if part)


def size_in_words(count: int) -> str:
    """Return bytes in few digits: `812 MiB`, `1.5 GiB`."""
    mib = count / (1 << 20)
    return f"{mib:.0f} MiB" if mib < 1024 else f"{mib / 1024:.3g} GiB"


def usage_in_words(tokens: int | None, cost_usd: float | None) -> str:
    """Return both for people, as far as they are known: `12.4k tokens, $0.21`; nothing for nothing."""
    told = None if not tokens else f"{_short(tokens)} token{'' if tokens == 1 else 's'}"
    return ", ".join(part for part in (told, None if cost_usd is None else f"${cost_usd:.2f}") if part)


def _short(count: int) -> str:
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


def amount(number: float, unit: Unit) -> str:
    """Return an amount for people: `$4.00`, `12,400 tokens`."""
    return dollars(number) if unit == "usd" else f"{number:,.0f} tokens"


def dollars(number: float) -> str:
    """Return dollars in cents; below a cent with what makes them more than nothing."""
    return f"${number:.2f}" if number >= 0.01 or number == 0 else f"${number:.4f}"
