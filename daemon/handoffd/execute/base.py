"""The records that the daemon and the runner programs exchange, as values and as JSON.

A run is one process tree under one shim. Its run directory, in the daemon's own state directory, holds
everything known about it: `spec.json` (what to start), `claim` (which shim has taken it), `start.json`,
`output.pos` and `exit.json`. This module needs the standard library alone, because the launcher and the
shim import it in an interpreter without site-packages. Readers ignore unknown keys: a daemon adopts runs
that a shim of another version has begun.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from handoffd.execute.sandbox.plan import Plan

if TYPE_CHECKING:
    from handoffd.execute.runner.proc_probe import Received

SignalName = Literal["INT", "TERM", "KILL"]
By = Literal["itself", "deadline", "stop", "lost"]

SPEC = "spec.json"
CLAIM = "claim"
START = "start.json"
EXIT = "exit.json"
POSITION = "output.pos"

TAIL_BYTES = 4096
"""How much of the end of the output an exit record carries."""


def _plain(value: object) -> object:
    """Return `value` as JSON can hold it; called only for the mappings and dataclasses in a record."""
    if isinstance(value, Mapping):
        return dict(value)
    return {field.name: getattr(value, field.name) for field in fields(value)}  # type: ignore[arg-type]


def _known(cls: type, text: str) -> dict[str, Any]:
    """Return the entries of the JSON object `text` that `cls` has a field for."""
    raw = json.loads(text)
    if not isinstance(raw, dict):
        raise ValueError(f"{cls.__name__} must be a JSON object, not {type(raw).__name__}")  # noqa: TRY004
    return {field.name: raw[field.name] for field in fields(cls) if field.name in raw}


class _Record:
    """A frozen dataclass of plain values, stored in a file as one JSON object."""

    def to_json(self) -> str:
        """Return the record as one line of JSON."""
        entries = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return json.dumps(entries, default=_plain, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the record in `text`; raises ValueError for any other text."""
        try:
            return cls(**_known(cls, text))
        except TypeError as error:
            raise ValueError(f"{cls.__name__}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One step of a stop ladder: `signal` to every process, then up to `grace_s` seconds."""

    signal: SignalName
    grace_s: float

    def __post_init__(self) -> None:
        if self.signal not in get_args(SignalName):
            raise ValueError(f"signal must be one of {', '.join(get_args(SignalName))}, not {self.signal!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec(_Record):
    """All a shim needs to know to run a program without the daemon.

    `env` is the complete environment of the program. `stdin` is the path of a file (None:
    /dev/null). `output` is an absolute path; the shim follows no symbolic link on the way to it, except
    in `home` itself when the output is below that. KILL always follows the last rung of `ladder`.
    """

    run_id: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    stdin: str | None
    output: str
    deadline_s: float | None
    ladder: tuple[Rung, ...]
    head_bytes: int = 512 * 1024
    tail_bytes: int = 512 * 1024
    drain_s: float = 0.3
    partial: tuple[str, ...] = ()
    """Beginnings of output lines that count as signs of life and are not kept."""
    memory_max: int | None = None
    """Bytes; None: no limit. Limits need a control group that has the controller."""
    tasks_max: int | None = None
    """Processes and threads."""
    project: str | None = None
    """The root of its project, if the program works elsewhere; None: it is `cwd`."""
    sandbox: Plan | None = None
    """None: the program may do all that its account may."""

    @property
    def home(self) -> str:
        """The root of its project."""
        return self.project or self.cwd

    def __post_init__(self) -> None:
        if not self.argv:
            raise ValueError("argv is empty: name a program")
        if self.head_bytes < 0 or self.tail_bytes < 1:
            raise ValueError("head_bytes must be at least 0 and tail_bytes at least 1")

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the specification in `text`; raises ValueError for any other text."""
        known = _known(cls, text)
        try:
            known["argv"] = tuple(known["argv"])
            known["ladder"] = tuple(Rung(**rung) for rung in known["ladder"])
            known["partial"] = tuple(known.get("partial", ()))
            if known.get("sandbox") is not None:
                known["sandbox"] = Plan.from_raw(known["sandbox"])
            return cls(**known)
        except KeyError as error:
            raise ValueError(f"RunSpec: {error} is missing") from error
        except TypeError as error:
            raise ValueError(f"RunSpec: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Which process is the shim of a run; a pid alone does not say, because the kernel reuses pids.

    `started` is in clock ticks since boot (field 22 of /proc/PID/stat).
    """

    pid: int
    started: int
    boot_id: str

    def to_text(self) -> str:
        """Return the claim as three words, short enough for a file system to store in an inode."""
        return f"{self.pid} {self.started} {self.boot_id}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the claim in `text`; raises ValueError for any other text."""
        pid, started, boot_id = text.split(" ")
        return cls(pid=int(pid), started=int(started), boot_id=boot_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecord(_Record):
    """Written as soon as the program runs, before the shim answers its caller.

    The modification time of its file is earlier than the program's first instruction.

    `shim_started` and `pid_started` are in clock ticks since boot; `monotonic` in seconds. `sandbox` is the
    level that holds the program: `strict`, `namespaces`, `landlock`; None: none does.
    """

    run_id: str
    shim_pid: int
    shim_started: int
    pid: int
    pid_started: int
    boot_id: str
    monotonic: float
    sandbox: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRecord(_Record):
    """How a run ended; once it exists, no process of the run is left but the `survived` ones.

    Exactly one of `code`, `signal` and `spawn_error` is set, except for `lost` runs, which have at most
    `spawn_error` (why the shim failed). `output_bytes` counts everything the run wrote, kept or not.
    `killed` counts processes that the shim ended after the main one; `survived` counts processes of another
    user, which it cannot end. `no_program` marks a `spawn_error` whose cause is a program that is missing or
    not executable. `output_error` says why output could not be written to its file.
    `out_of_memory`: the kernel most likely killed the run for lack of memory; `at_own_limit`: because the run
    reached its own memory limit. `ended_ns` is when the main process ended, in nanoseconds since the epoch;
    None for `lost` runs and in records of older shims.

    Counted by the run's control group: `memory_peak` (bytes) and `tasks_peak` (processes and threads) are the
    highest values, `memory_max` and `tasks_max` the limits that applied; `memory_kills` counts processes
    killed at the run's own limit, `tasks_refused` processes and threads that the kernel refused to start.
    None: nothing counted it, or there was no limit.
    """

    run_id: str
    code: int | None = None
    signal: int | None = None
    by: By = "itself"
    seconds: float = 0.0
    tail: str = ""
    output_bytes: int = 0
    killed: int = 0
    spawn_error: str | None = None
    no_program: bool = False
    survived: int = 0
    output_error: str | None = None
    out_of_memory: bool = False
    ended_ns: int | None = None
    at_own_limit: bool = False
    memory_peak: int | None = None
    memory_max: int | None = None
    memory_kills: int = 0
    tasks_peak: int | None = None
    tasks_max: int | None = None
    tasks_refused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """Signs of life of a whole process tree. Compare two of them: a single value means nothing."""

    output_bytes: int
    cpu_s: float
    written_bytes: int
    """Passed to write calls of any target: idle runtimes wake their own threads that way."""
    stored_bytes: int = 0
    """Written to files on a disk; a file system in memory does not count."""
    heard_ns: int = 0
    """When it last printed anything, kept or not; nanoseconds since 1970. 0: nothing yet."""
    received: tuple[Received, ...] = ()
    """What each of its TCP connections has received."""
