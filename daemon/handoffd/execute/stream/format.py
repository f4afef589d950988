"""How an agent's output is read, as data: which lines tell something, and under which keys.

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
"""One path or several; of texts the first that is there counts, of numbers the sum."""

Conditions = dict[Path, Annotated[tuple[bool | int | str, ...], BeforeValidator(_listed)]]
"""By path, the values of which one must be there. An empty mapping fits everything."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PartRule(_Model):
    """What a thing that fits `where` tells. Each of the keys that is given makes a part of its own."""

    where: Conditions = {}
    session: Paths = ()
    """The session has begun; all of the texts."""
    told: Paths = ()
    """What was said to the agent."""
    thought: Paths = ()
    said: Paths = ()
    tool: Paths = ()
    """The name of a tool that is called."""
    argument: Paths = ()
    """What tells most about the call; what is no text is given as JSON."""
    tool_result: Paths = ()
    tool_error: Paths = ()
    file: Paths = ()
    """Files that are written; all of them."""


class UsageRule(_Model):
    """Where tokens and costs stand.

    `total` says what the whole run has used so far, `add` what has come since the last such line. Lines
    with the same value at `per` tell of the same thing: of these the last counts.
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
    """The number of input tokens has those in it that a cache had, read or written."""
    counts: Literal["run", "session"] = "run"
    """Of a session that is continued, whether what earlier runs of it have used is in the numbers again."""


class ResultRule(_Model):
    """How the run went: `is_error` is a path, or the answer itself."""

    is_error: bool | Path
    text: Paths = ()
    """The last message; without one it is what was said last."""
    error: Paths = ()
    """What went wrong; without it, it is `text`."""
    denied: Paths = ()
    """The names of all tools that it wanted and was not permitted to use."""


class LineRule(_Model):
    """One kind of line: a JSON object that fits `when`, or a plain line in which `match` is found.

    Of a plain line, the named groups of the expression are what the paths lead to.
    """

    when: Conditions | None = None
    match: re.Pattern[str] | None = None
    each: Path | None = None
    """The list whose items `parts` speak of, one after the other; without it, the line."""
    parts: tuple[PartRule, ...] = ()
    """Of each thing, the first whose `where` fits."""
    usage: UsageRule | None = None
    error: Paths = ()
    """A text that reports an error, which need not be the end."""
    resets: Paths = ()
    """When a usage limit that this line reports will be over, in seconds since 1970."""
    result: ResultRule | None = None


class StreamFormat(_Model):
    """Everything about one agent's output. Of a line, the first rule that fits counts."""

    session: Paths = ()
    """Where the agent's own session id stands, in whatever line."""
    model: Paths = ()
    cause: Paths = ()
    """Where the name or the number of a provider's error stands, in whatever line."""
    lines: tuple[LineRule, ...] = ()
    partial: tuple[str, ...] = ()
    """How lines begin that tell an answer word by word: signs of life, which are not kept."""

    @cached_property
    def for_objects(self) -> Mapping[object, tuple[LineRule, ...]]:
        """The rules for JSON objects that may fit one with this value at `type`; None: with any other."""
        # Nearly every line of nearly every format is told apart by its type, at the price of one look.
        rules = [(rule, rule.when.get("type")) for rule in self.lines if rule.when is not None]
        kinds = {kind for _, wanted in rules for kind in wanted or ()}
        return {
            kind: tuple(rule for rule, wanted in rules if wanted is None or kind in wanted)
            for kind in (*kinds, None)
        }
