"""Which executor an attempt gets: the one that its step, its story, its project or the daemon names first.

Each of them names one executor, several with the best first, or `auto`: any agent that is installed,
in the order in which they are defined. Of several, the first is taken that is installed and whose
account is not limited; if all are limited, the one that can be asked first is waited for. An unknown
name is passed over where there is another one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import NamedTuple

from anyio import to_thread

from handoffd.capacity.accounts import Wait
from handoffd.engine.run import End
from handoffd.engine.track import Fault, Standby, Track, TrackKey
from handoffd.engine.wording import until_words
from handoffd.execute.environment import child_environment, expanded
from handoffd.execute.executor import Executor
from handoffd.execute.registry import (
    AUTO,
    ExecutorBook,
    candidates_of,
    find_program,
    found_at,
    is_own,
    names_in,
)
from handoffd.track.services import Files, Services


class Choice(NamedTuple):
    """The executor of an attempt, whose quota it uses, and why the ones named before it were passed over."""

    executor: str
    account: str
    passed_over: tuple[str, ...] = ()


def quota_of(executor: Executor) -> str:
    """Return whose quota an executor uses."""
    return executor.account or executor.name


class ExecutorChoice:
    """Chooses the executors of one track."""

    def __init__(self, key: TrackKey, files: Files, services: Services) -> None:
        self._key = key
        self._files = files
        self._services = services

    async def choose(self, track: Track) -> Choice:
        """Return which executor gets the next attempt of the current step of `track`.

        An unknown one is returned unchanged if there is no other: preparing the attempt then reports it.
        """
        names = self._named(track)
        book = self._services.executors
        if len(names) == 1 and names[0] != AUTO:
            known = book.executors.get(names[0])
            return Choice(names[0], quota_of(known) if known else names[0])
        candidates = await to_thread.run_sync(candidates_of, names, book, self._is_installed)
        faulty = {fault.executor for fault in track.ledger.faults if not fault.trying}
        usable = [one for one in candidates if isinstance(one, str) or one.name not in faulty]
        chosen = first_free(usable or candidates, self._wait_for, self._services.clock.now())
        if chosen is None:
            return Choice(names[0], names[0])
        passed_over = tuple(
            fault.text
            for fault in track.ledger.faults
            if fault.executor != chosen.executor and not fault.trying
        )
        return chosen._replace(passed_over=(*passed_over, *chosen.passed_over))

    async def standby(self, track: Track, executor: str) -> Standby:
        """Return who else could have the attempt that `executor` cannot make, and why others cannot."""
        names = self._named(track)
        return await to_thread.run_sync(self._standby, track, executor, names)

    def _standby(self, track: Track, executor: str, names: Sequence[str]) -> Standby:
        """Look the others up on the disk, in a thread."""
        now, book = self._services.clock.now(), self._services.executors
        known = {fault.executor: fault for fault in track.ledger.faults if not fault.trying}
        free: list[tuple[datetime, int, str]] = []
        lacking: list[Fault] = []
        for place, name in enumerate(_expanded(names, book)):
            one = book.executors.get(name)
            if name == executor:
                continue
            if name in known:
                lacking.append(known[name])
            elif one is None or not self._is_installed(one):
                if name not in names:
                    continue  # one of `auto`, which no setting names
                sign = self.sign(name)
                lacking.append(Fault(executor=name, end=End.MISSING_BINARY, since=now, sign=sign))
            else:
                wait = self._wait_for(quota_of(one))
                free.append(
                    (wait.until if wait is not None else datetime.min.replace(tzinfo=UTC), place, name)
                )
        if not free:
            return Standby(sign=self.sign(executor), lacking=tuple(lacking), tries_again=True)
        at, _, instead = min(free)
        until = at if at > now else None
        return Standby(
            sign=self.sign(executor), instead=instead, until=until, lacking=tuple(lacking), tries_again=True
        )

    def sign(self, executor: str) -> str:
        """Return what can be seen of an executor and of what the project says of it; blocks on the disk."""
        files = self._files.settings
        own = repr((names_in(files.executor), files.env))
        return f"{shared_sign(executor, self._services)}{SIGNS}{_digest(own)}"

    def _named(self, track: Track) -> tuple[str, ...]:
        """Return the executors named by the step, else the story, else the project, else the daemon."""
        rule = self._files.rules.steps.get(track.state.step) if track.state is not None else None
        return (
            names_in(rule.executor if rule is not None else None)
            or track.ledger.executor
            or names_in(self._files.settings.executor)
            or names_in(self._services.settings.executor)
        )

    def is_over(self, fault: Fault) -> bool:
        """Return whether what keeps an executor from working may be over; blocks on the disk."""
        return self.sign(fault.executor) != fault.sign

    def _is_installed(self, executor: Executor) -> bool:
        allowed = self._services.settings.execute.env_allow
        return found_at(executor, self._services.environment, allowed) is not None

    def _wait_for(self, account: str) -> Wait | None:
        return self._services.accounts.wait_for(account, self._key, self._services.clock.now())


SIGNS = "-"
"""Between what all projects see of an executor and what only this one gives it."""


def shared_sign(name: str, services: Services) -> str:
    """Return a digest of an executor's definition, program and login, and of the daemon's own choice.

    Blocks on the disk. Of `auto` it is which agents are installed.
    """
    book, settings = services.executors, services.settings
    one = book.executors.get(name)
    if name == AUTO or one is None or not one.argv:
        agents = [_expanded((AUTO,), book)] if name == AUTO else []
        there = [
            agent for names in agents for agent in names
            if found_at(book.executors[agent], services.environment, settings.execute.env_allow)
        ]  # fmt: skip
        return _digest(repr((names_in(settings.executor), there, one is None)))
    environment = child_environment(services.environment, settings.execute.env_allow, one.env)
    login = one.login.files if one.login is not None else ()
    seen = [
        _stat(find_program(one, environment)),
        *(_stat(expanded(file, environment)) for file in login),
        *(environment.get(variable) for variable in (one.login.env if one.login is not None else ())),
        # One that met its limit of memory is tried with another; without one it is as in earlier releases.
        *([settings.execute.memory_max] if settings.execute.memory_max is not None else []),
    ]
    return _digest(repr((names_in(settings.executor), one.model_dump_json(), seen)))


def worked(fault: Fault, services: Services) -> datetime | None:
    """Return when the latest run began that shows that the account of a faulty executor works; None: none."""
    known = services.executors.executors.get(fault.executor)
    return services.accounts.worked_since(quota_of(known)) if known is not None else None


def _stat(path: str | None) -> tuple[str | None, int, int, int] | None:
    """Return what changes when a file is put there, removed or written anew."""
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return (path, 0, 0, 0)
    return (path, found.st_ino, found.st_size, found.st_mtime_ns)


def _digest(text: str) -> str:
    """Return a digest too short to learn a key from."""
    return blake2b(text.encode("utf-8", "replace"), digest_size=4).hexdigest()


def _expanded(names: Sequence[str], book: ExecutorBook) -> tuple[str, ...]:
    """Return the names with every agent there is in the place of `auto`."""
    agents = [name for name, one in book.executors.items() if one.argv and not is_own(one)]
    found = [inner for name in names for inner in (agents if name == AUTO else [name])]
    return tuple(dict.fromkeys(found))


def first_free(
    candidates: Sequence[Executor | str], wait_for: Callable[[str], Wait | None], now: datetime
) -> Choice | None:
    """Return the first whose account can be asked, else the one that can be first; None without any.

    An unknown name is only returned where there is nothing else.
    """
    waits: list[tuple[Wait, Executor]] = []
    passed_over: list[str] = []
    for one in candidates:
        if isinstance(one, str):
            passed_over.append(_unknown(one))
            continue
        wait = wait_for(quota_of(one))
        if wait is None:
            return Choice(one.name, quota_of(one), tuple(passed_over))
        waits.append((wait, one))
        passed_over.append(_passed_over(wait, one, now))
    unknown = [one for one in candidates if isinstance(one, str)]
    if not waits:
        return Choice(unknown[0], unknown[0]) if unknown else None
    _, soonest = min(waits, key=lambda other: other[0].until)
    return Choice(soonest.name, quota_of(soonest), tuple(_unknown(name) for name in unknown))


def _unknown(name: str) -> str:
    return f"no executor is called {name!r}"


def _passed_over(wait: Wait, executor: Executor, now: datetime) -> str:
    if wait.tried_by is not None:
        return f"{executor.name} is just being tried after its limit"
    return f"{executor.name} is limited {until_words(wait.until, now)}"


def installed_names(services: Services) -> tuple[str, ...]:
    """Return what can be chosen and is there, `auto` first where an agent is; blocks on the disk."""
    book, allowed = services.executors, services.settings.execute.env_allow
    there = [name for name in book.names if found_at(book.executors[name], services.environment, allowed)]
    agents = any(not is_own(book.executors[name]) for name in there)
    return (AUTO, *there) if agents else tuple(there)
