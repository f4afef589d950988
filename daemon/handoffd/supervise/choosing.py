"""Which executor an attempt gets: whom its step, its story, its project or the daemon names first.

Each of them names one executor, several with the best first, or `auto`: any agent that is installed,
in the order in which they are defined. Of several, the first is taken that is installed and whose
account is not limited; if all are limited, the one that can be asked first is waited for. A name that
nobody knows is passed over where there is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from anyio import to_thread

from handoffd.engine.limits import until_words
from handoffd.engine.track import Track, TrackKey
from handoffd.errors import NotFound
from handoffd.execute.executor import Executor
from handoffd.execute.installed import found_at, is_own
from handoffd.execute.registry import AUTO, NONE_INSTALLED, ExecutorBook
from handoffd.settings import ExecutorChoice
from handoffd.supervise.accounts import Wait
from handoffd.supervise.project_files import ProjectFiles
from handoffd.supervise.services import Services


class Choice(NamedTuple):
    """The executor of an attempt, whose quota it uses, and why those named before it were passed over."""

    executor: str
    account: str
    passed_over: tuple[str, ...] = ()


def names_in(choice: ExecutorChoice | None) -> tuple[str, ...]:
    """Return the names that a setting holds, the best first."""
    return (choice,) if isinstance(choice, str) else tuple(choice or ())


def quota_of(executor: Executor) -> str:
    """Return whose quota an executor uses."""
    return executor.account or executor.name


class Choosing:
    """Chooses the executors of one track."""

    def __init__(self, key: TrackKey, files: ProjectFiles, services: Services) -> None:
        self._key = key
        self._files = files
        self._services = services

    async def choose(self, track: Track) -> Choice:
        """Return who gets the next attempt of the step at which `track` stands.

        One that is not known is returned as it is if there is no other: whoever prepares the attempt says so.
        """
        names = self._named(track)
        book = self._services.executors
        if len(names) == 1 and names[0] != AUTO:
            known = book.executors.get(names[0])
            return Choice(names[0], quota_of(known) if known else names[0])
        candidates = await to_thread.run_sync(candidates_of, names, book, self._is_installed)
        return first_free(candidates, self._wait_for, self._services.clock.now()) or Choice(
            names[0], names[0]
        )

    def _named(self, track: Track) -> tuple[str, ...]:
        """Return whom the most particular of those names who have a say."""
        rule = self._files.rules.steps.get(track.state.step) if track.state is not None else None
        return (
            names_in(rule.executor if rule is not None else None)
            or track.ledger.executor
            or names_in(self._files.settings.executor)
            or names_in(self._services.settings.executor)
        )

    def _is_installed(self, executor: Executor) -> bool:
        allowed = self._services.settings.execute.env_allow
        return found_at(executor, self._services.environment, allowed) is not None

    def _wait_for(self, account: str) -> Wait | None:
        return self._services.accounts.wait_for(account, self._key, self._services.clock.now())


def candidates_of(
    names: Sequence[str], book: ExecutorBook, installed: Callable[[Executor], bool]
) -> tuple[Executor | str, ...]:
    """Return the executors that come into question, in order; a name that nobody knows as it is.

    Of those that are named one by one, the first stays even if none is installed: its start then says
    what is missing.
    """
    found: list[Executor | str] = []
    for name in names:
        if name == AUTO:
            agents = (one for one in book.executors.values() if one.argv and not is_own(one))
            found += [one for one in agents if installed(one)]
        elif (known := book.executors.get(name)) is None:
            found.append(name)
        elif installed(known):
            found.append(known)
    return tuple(found) or tuple(book.executors.get(name, name) for name in names[:1] if name != AUTO)


def first_free(
    candidates: Sequence[Executor | str], wait_for: Callable[[str], Wait | None], now: datetime
) -> Choice | None:
    """Return the first whose account can be asked, else the one that can be first; None without any.

    A name that nobody knows is only returned where there is nothing else.
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


def no_agent(book: ExecutorBook) -> NotFound:
    """Return the error for `auto` on a machine without any agent."""
    agents = ", ".join(name for name, one in book.executors.items() if one.argv and not is_own(one))
    message = f"executor: auto, and none is installed of {agents}"
    return NotFound(message, code=NONE_INSTALLED, hint="handoffd doctor")
