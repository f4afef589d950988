"""How the run of an executor can end, and what follows when it left no valid hand-off.

A hand-off that is there is heard however the run ended. Without one the class of the end decides, by one
row of `POLICIES`. Every row is bounded: repetitions that cost no attempt are counted in a row, whatever
they were for, and what comes after them either costs an attempt or waits for a person or a time. What
follows is done in `faults.py` and `limits.py`; here is also what a track remembers of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal


# --- classes of ends, and what follows from each ------------------------------------------------------
class End(StrEnum):
    """A class of ends that the run itself tells: by exit code, signal, stream and last words.

    They are told apart by what `config/executors.yaml` says about the executor.
    """

    CLEAN = "clean"
    """It ended by itself and reported no error. Whether it handed over is another question."""
    FAILED = "failed"
    """It reported an error, or an exit code, that none of the other classes explains."""
    MISSING_BINARY = "missing_binary"
    """There is no such program, or it cannot be executed."""
    LOGGED_OUT = "logged_out"
    """Nobody is logged in, or the key is not accepted."""
    NO_CREDIT = "no_credit"
    """The account cannot pay. Unlike a limit that does not pass by itself."""
    BAD_CALL = "bad_call"
    """It does not know a flag or a model: the definition does not fit the program's version."""
    CRASH = "crash"
    """A signal that nobody of us sent, or an error inside the program."""
    OUT_OF_MEMORY = "out_of_memory"
    """The kernel ended it for want of memory."""
    MEMORY_LIMIT = "memory_limit"
    """The kernel ended it at the most memory that a run may have, `execute.memory_max`."""
    LIMIT = "limit"
    """The account's quota is used up, or it asks too often."""
    OVERLOAD = "overload"
    """The provider cannot answer just now."""
    REFUSED = "refused"
    """The provider answered with an error before any work: no tool was called, no file changed."""
    SESSION_GONE = "session_gone"
    """The session that was to be continued is not there any more."""


class OwnEnd(StrEnum):
    """A class of ends that our own records tell, whatever the run said."""

    TIMEOUT = "timeout"
    """Its time was over."""
    STALL = "stall"
    """It gave no sign of life."""
    INTERRUPTED = "interrupted"
    """We ended it for our own reasons."""
    WITHDRAWN = "withdrawn"
    """We ended it because its hand-off was there, and then it was not."""
    LOST = "lost"
    """Its process vanished, or was ended from outside: the machine went down."""
    NOT_STARTED = "not_started"
    """It could not be started, for another reason than its program."""


AnyEnd = End | OwnEnd


class Then(StrEnum):
    """What follows from an end, when no free repetition is left."""

    FAILING = "failing"
    """The attempt has failed and counts."""
    ASK = "ask"
    """It is asked once more, for just the hand-off; after that the attempt has failed and counts."""
    PAUSE = "pause"
    """The project is paused until a person has mended its environment. No attempt is spent."""
    PERSON = "needs_human"
    """A person is asked. No attempt is spent."""
    PARK = "park"
    """It waits for a time. No attempt is spent."""
    TIMEOUT = "timeout"
    """The status is `timeout`: `retry_on_timeout` of the step says whether it is tried again."""
    REPEAT = "repeat"
    """It is made again, as often as it takes: a person ordered the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What follows from one class of ends."""

    then: Then
    free: int = 0
    """Repetitions of the same attempt, in a row, that come before `then` and cost nothing."""
    fresh: bool = False
    """Whether the agent's session may be the cause, so that the next run begins a new one."""
    fault: str = ""
    """What is wrong with the environment, said of the executor. Of a pause only."""
    remedy: str = ""
    """The command that finds out more, with `{executor}` in it. Of a pause only."""


FREE_REPEATS: Final = 3
"""The most repetitions in a row that cost no attempt, before a person is asked."""

_CHECK: Final = "handoffd executors check {executor}"


POLICIES: Final[Mapping[AnyEnd, Policy]] = {
    End.CLEAN: Policy(then=Then.ASK),
    End.FAILED: Policy(then=Then.FAILING, fresh=True),
    End.MISSING_BINARY: Policy(then=Then.PAUSE, fault="is not to be found", remedy=_CHECK),
    End.LOGGED_OUT: Policy(then=Then.PAUSE, fault="is not logged in", remedy=_CHECK),
    End.NO_CREDIT: Policy(then=Then.PAUSE, fault="has no credit left", remedy=_CHECK),
    End.BAD_CALL: Policy(then=Then.PAUSE, fault="does not take its arguments", remedy=_CHECK),
    End.CRASH: Policy(then=Then.FAILING, free=1, fresh=True),
    End.OUT_OF_MEMORY: Policy(
        then=Then.PAUSE, free=1, fresh=True, fault="ran out of memory", remedy="handoffd doctor"
    ),
    End.MEMORY_LIMIT: Policy(
        then=Then.PAUSE,
        free=1,
        fresh=True,
        fault="needs more memory than execute.memory_max allows",
        remedy="handoffd config show",
    ),
    End.LIMIT: Policy(then=Then.PARK),
    End.OVERLOAD: Policy(then=Then.PARK),
    End.REFUSED: Policy(then=Then.PARK, fresh=True),
    End.SESSION_GONE: Policy(then=Then.FAILING, free=1, fresh=True),
    OwnEnd.TIMEOUT: Policy(then=Then.TIMEOUT),
    OwnEnd.STALL: Policy(then=Then.FAILING),
    OwnEnd.INTERRUPTED: Policy(then=Then.REPEAT),
    OwnEnd.WITHDRAWN: Policy(then=Then.PERSON, free=FREE_REPEATS),
    OwnEnd.LOST: Policy(then=Then.PERSON, free=FREE_REPEATS),
    OwnEnd.NOT_STARTED: Policy(then=Then.PERSON, free=FREE_REPEATS),
}
"""What follows from each class of ends. The table in docs/protocol.md is made from it."""


# --- faults of executors ------------------------------------------------------------------------------
REMOTE: Final = frozenset({End.LOGGED_OUT, End.NO_CREDIT})
"""Faults that may end at the provider, where nothing on this machine changes."""


SOONER: Final = 10
"""By this factor a fault is tried sooner once its account has worked elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why an executor cannot be used, until that is over. `end` is of those that pause."""

    executor: str
    end: End
    since: datetime
    sign: str = ""
    """What could be seen here of its program, its login and its definition: another sign, and it is tried."""
    answers: int = 1
    """How often in a row it was met."""
    again_at: datetime | None = None
    """When it is tried although nothing has changed here: a key may be valid again. None: it is not."""
    trying: bool = False
    """Whether it is just being tried, so that the next attempt may be its executor's."""
    met_at: datetime | None = None
    """When it was met last; None: in a release that did not keep that."""

    @property
    def text(self) -> str:
        """The fault in words: `claude is not logged in`."""
        return f"{self.executor} {POLICIES[self.end].fault}"

    def is_due(self, now: datetime, worked: datetime | None = None) -> bool:
        """Return whether it is to be tried now although nothing has changed here.

        `worked` is when the latest run began that shows that its account works elsewhere. That is not worth
        every trial: this project may have a key of its own.
        """
        if self.again_at is None or self.trying:
            return False
        if worked is None or self.met_at is None or worked <= self.met_at or self.end not in REMOTE:
            return self.again_at <= now
        return self.met_at + (self.again_at - self.met_at) / SOONER <= now


@dataclass(frozen=True, slots=True, kw_only=True)
class Standby:
    """Who else could have the attempt of an executor that just ended."""

    sign: str = ""
    """What can be seen of the executor that ended; see `Fault`."""
    instead: str | None = None
    """The next of those that are named; None: there is none."""
    until: datetime | None = None
    """When that one's limit is over; None: it can begin at once."""
    lacking: tuple[Fault, ...] = ()
    """The others that are named and cannot be used."""
    tries_again: bool = False
    """Whether its fault may end where nothing here shows it; False: of a release that waited for a change."""


# --- limits of accounts -------------------------------------------------------------------------------
LIMITS: Final = frozenset({End.LIMIT, End.OVERLOAD})
"""Ends that say nothing about the work, only that the account cannot be asked now."""


LimitKind = Literal["limit", "overload", "refusal"]
"""A refusal concerns the track that met it; the others everything that uses the account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """An account that answered one of a track's executors with a limit, and has not answered better since."""

    account: str
    executor: str
    kind: LimitKind
    since: datetime
    """When it did so first, by the end of the executor that met it."""
    until: datetime
    """When it is asked again."""
    answers: int = 1
    """How often in a row it did so."""
    why: str = ""
    """What the agent said last, in one line."""
    told: bool = False
    """Whether a person was told of it."""
    reminded: bool = False
    """Whether a person was told that it lasts long."""
