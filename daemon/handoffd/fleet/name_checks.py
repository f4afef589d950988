"""Names used in the settings (executors, accounts, groups), and whether they exist.

An unknown name would limit nothing, start nothing, or keep every project waiting. It is reported together
with all other problems of the settings, so the checks read the settings as written, not as accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from handoffd.errors import InvalidFile, Problem
from handoffd.execute.registry import AUTO, ExecutorBook, Layer, load_book, shipped_layer
from handoffd.schedule.plan import GROUP

Locate = Callable[[str], tuple[str, int | None]]
"""Takes a dotted key; returns the file (variable, flag) it was given in, and the line there."""


class _Mention(NamedTuple):
    key: str
    name: str
    allowed: tuple[str, ...]
    what: str = "executor"

    @property
    def is_known(self) -> bool:
        """Whether the name exists."""
        return self.name in self.allowed


class _Known(NamedTuple):
    executors: tuple[str, ...]
    accounts: tuple[str, ...] | None = None
    """None: unknown, because an executor is invalid itself."""

    @classmethod
    def in_book(cls, book: ExecutorBook) -> _Known:
        """Return the names of the usable executors."""
        accounts = {one.account or one.name for one in book.executors.values() if one.argv}
        return cls(executors=book.names, accounts=tuple(sorted(accounts)))


def misfits(written: Mapping[str, Any], locate: Locate) -> tuple[Problem, ...]:
    """Return the problems of the executors in settings as written, and of the names used in them.

    `written` may have any form; other checks report values of the wrong type.
    """
    own = written.get("executors", {})
    if not isinstance(own, Mapping):
        return ()
    wrong: tuple[Problem, ...] = ()
    try:
        known = _Known.in_book(load_book(shipped_layer(), Layer(file="", definitions=own)))
    except InvalidFile as invalid:  # the names are known even so
        wrong = tuple(_placed(problem, *locate(problem.key or "executors")) for problem in invalid.problems)
        shipped = load_book(shipped_layer()).names
        known = _Known(executors=tuple(sorted({*shipped, *map(str, own)})))
    unknown = (one for one in _mentions(written, known) if not one.is_known)
    return (*wrong, *(_unknown(one, *locate(one.key)) for one in unknown))


def _placed(problem: Problem, file: str, line: int | None) -> Problem:
    return replace(problem, file=file, line=line)


def _unknown(mention: _Mention, file: str, line: int | None) -> Problem:
    message = f"there is no {mention.what} {mention.name[:80]!r}"
    return Problem(file=file, line=line, key=mention.key, message=message, allowed=mention.allowed)


def _mentions(written: Mapping[str, Any], known: _Known) -> Iterator[_Mention]:
    chosen = (AUTO, *known.executors)
    for key, name in _names(written.get("executor"), "executor"):
        yield _Mention(key, name, chosen)
    scheduling = _section(written.get("scheduling"))
    for name in _section(scheduling.get("per_executor")):
        yield _Mention(f"scheduling.per_executor.{name}", str(name), known.executors)
    for name in _section(scheduling.get("per_account")) if known.accounts is not None else ():
        yield _Mention(f"scheduling.per_account.{name}", str(name), known.accounts or (), "account")
    starts = _section(written.get("schedule")).get("starts")
    groups = tuple(_section(scheduling.get("groups")))
    for number, start in enumerate(starts if isinstance(starts, list | tuple) else ()):
        key = f"schedule.starts.{number}"
        yield from _in_start(_section(start), key, chosen, groups)


def _in_start(
    start: Mapping[Any, Any], at: str, chosen: tuple[str, ...], groups: tuple[str, ...]
) -> Iterator[_Mention]:
    named = start.get("executor")
    listed = [one.strip() for one in named.split(",")] if isinstance(named, str) else named
    for key, name in _names(listed, f"{at}.executor"):
        yield _Mention(key, name, chosen)
    for key, pattern in _names(start.get("projects"), f"{at}.projects"):
        if pattern.startswith(GROUP):
            yield _Mention(key, pattern.removeprefix(GROUP), groups, "group")


def _section(value: object) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _names(value: object, key: str) -> Iterator[tuple[str, str]]:
    """Yield the names in a choice of executors, each with its key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, list | tuple):
        yield from ((f"{key}.{at}", name) for at, name in enumerate(value) if isinstance(name, str))
