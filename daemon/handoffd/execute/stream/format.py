"""The format of an agent's output, as data: which lines count, and under which keys their values are.

A path is a key, or several joined by dots: `message.usage.output_tokens`. A number is a place in a list,
`*` is every item of a list or every value of a mapping, and `.` is the thing itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _listed(value: object) -> object:
    return value if isinstance(value, list | tuple) else (value,)


Path = Annotated[str, Field(min_length=1, max_length=200)]
Paths = Annotated[tuple[Path, ...], BeforeValidator(_listed)]
"""One path or several; for texts the first existing one counts, for numbers the sum."""

Conditions = dict[Path, Annotated[tuple[bool | int | str, ...], BeforeValidator(_listed)]]
"""By path, the allowed values. An empty mapping fits everything."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PartRule(_Model):
    """The content of an item that fits `where`. Each given key makes one part."""

    where: Conditions = {}
    session: Paths = ()
    """The session has begun; all texts count."""
    told: Paths = ()
    """A message to the agent."""
    thought: Paths = ()
    said: Paths = ()
    tool: Paths = ()
    """The name of a called tool."""
    argument: Paths = ()
    """The most informative argument of the call; other values than text become JSON."""
    tool_result: Paths = ()
    tool_error: Paths = ()
    file: Paths = ()
    """Files that the agent writes; all texts count."""


class UsageRule(_Model):
    """Where tokens and costs are.

    `total` is the usage of the whole run so far, `add` the usage since the last such line. Of lines with the
    same value at `per`, which report the same usage again, the last one counts.
    """

    mode: Literal["total", "add"] = "total"
    per: Path | None = None
    input: Paths = ()
    output: Paths = ()
    cache_read: Paths = ()
    cache_write: Paths = ()
    cost: Paths = ()
    """US dollars."""
    input_includes_cache: bool = False
    """Whether the number of input tokens includes the tokens read from and written to a cache."""
    counts: Literal["run", "session"] = "run"
    """`session`: in a continued session, the numbers include the usage of its earlier runs again."""


class ResultRule(_Model):
    """The result of the run: `is_error` is a path, or the answer itself."""

    is_error: bool | Path
    text: Paths = ()
    """The agent's last message; without it, the last `said` part counts."""
    error: Paths = ()
    """The error; without it, `text` counts."""
    denied: Paths = ()
    """The names of all tools that the agent was not permitted to use."""


class LineRule(_Model):
    """One kind of line: a JSON object that fits `when`, or a plain line in which `match` is found.

    In a plain line, the paths are the named groups of the expression.
    """

    when: Conditions | None = None
    match: re.Pattern[str] | None = None
    each: Path | None = None
    """The list to whose items `parts` apply, one after the other; without it, they apply to the line."""
    parts: tuple[PartRule, ...] = ()
    """For each item, the first rule whose `where` fits applies."""
    usage: UsageRule | None = None
    error: Paths = ()
    """A text that reports an error, from which the agent may recover."""
    resets: Paths = ()
    """When the usage limit that this line reports ends, in seconds since 1970."""
    result: ResultRule | None = None


class StreamFormat(_Model):
    """The format of one agent's output. For each line, the first rule that fits applies."""

    session: Paths = ()
    """The agent's own session id, in any line."""
    model: Paths = ()
    cause: Paths = ()
    """The name or number of a provider's error, in any line."""
    lines: tuple[LineRule, ...] = ()
    partial: tuple[str, ...] = ()
    """Beginnings of lines that print an answer word by word: signs of life, which are not kept."""

    @cached_property
    def for_objects(self) -> Mapping[object, tuple[LineRule, ...]]:
        """The rules that may fit a JSON object, by its value at `type`; under None, for all other values."""
        # In nearly every format the type alone selects the rule, so most lines cost one dictionary look-up.
        rules = [(rule, rule.when.get("type")) for rule in self.lines if rule.when is not None]
        kinds = {kind for _, wanted in rules for kind in wanted or ()}
        return {
            kind: tuple(rule for rule, wanted in rules if wanted is None or kind in wanted)
            for kind in (*kinds, None)
        }
