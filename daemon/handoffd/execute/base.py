"""What the daemon and the runner programs tell each other, as values and as JSON.

A run is one process tree under one shim. Everything known about it lies in its run directory, in
the daemon's own state directory: `spec.json` (what to start), `claim` (which shim has taken it),
`start.json`, `output.pos` and `exit.json`. Relies on the standard library alone, because the
launcher and the shim import it in an interpreter without site-packages. Reading is lenient about
unknown keys: a daemon adopts runs that a shim of another version has begun.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

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
    """Return what JSON has a form for; for the few values in a record that are not plain already."""
    if isinstance(value, Mapping):
        return dict(value)
    return asdict(value)  # type: ignore[call-overload]


def _known(cls: type, text: str) -> dict[str, Any]:
    """Return the entries of the JSON object `text` that `cls` has a field for."""
    raw = json.loads(text)
    if not isinstance(raw, dict):
        raise ValueError(f"{cls.__name__} must be a JSON object, not {type(raw).__name__}")  # noqa: TRY004
    return {field.name: raw[field.name] for field in fields(cls) if field.name in raw}


class _Record:
    """A frozen dataclass of plain values that lives in a file as one JSON object."""

    def to_json(self) -> str:
        """Return the record as one line of JSON."""
        entries = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return json.dumps(entries, default=_plain, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the record in `text`; raises ValueError when it is none."""
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
    /dev/null). `output` is an absolute path; no symbolic link is followed on the way to it, except
    in `cwd` itself when it lies below that. KILL follows the last rung of `ladder` in any case.
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
    """How lines of the output begin that show that it works, and are not kept."""
    memory_max: int | None = None
    """Bytes; None: no limit. Limits need a control group that has the controller."""
    tasks_max: int | None = None
    """Processes and threads."""

    def __post_init__(self) -> None:
        if not self.argv:
            raise ValueError("argv is empty: name a program")
        if self.head_bytes < 0 or self.tail_bytes < 1:
            raise ValueError("head_bytes must be at least 0 and tail_bytes at least 1")

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the specification in `text`; raises ValueError when it is none."""
        known = _known(cls, text)
        try:
            known["argv"] = tuple(known["argv"])
            known["ladder"] = tuple(Rung(**rung) for rung in known["ladder"])
            known["partial"] = tuple(known.get("partial", ()))
            return cls(**known)
        except KeyError as error:
            raise ValueError(f"RunSpec: {error} is missing") from error
        except TypeError as error:
            raise ValueError(f"RunSpec: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Which process is the shim of a run: a pid alone may be used again by a stranger.

    `started` is in clock ticks since boot (field 22 of /proc/PID/stat).
    """

    pid: int
    started: int
    boot_id: str

    def to_text(self) -> str:
        """Return the claim as a few words, short enough for a file system to keep them in an inode."""
        return f"{self.pid} {self.started} {self.boot_id}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the claim in `text`; raises ValueError when it is none."""
        pid, started, boot_id = text.split(" ")
        return cls(pid=int(pid), started=int(started), boot_id=boot_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecord(_Record):
    """Written as soon as the program runs, before anybody is told of it.

    Its file's modification time is from before the program's first instruction.

    `shim_started` and `pid_started` are in clock ticks since boot; `monotonic` in seconds.
    """

    run_id: str
    shim_pid: int
    shim_started: int
    pid: int
    pid_started: int
    boot_id: str
    monotonic: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRecord(_Record):
    """How a run ended; once it exists, no process of the run is left but the `survived` ones.

    Exactly one of `code`, `signal` and `spawn_error` is set, except for `lost` runs, where it is at
    most `spawn_error` (why the shim failed). `output_bytes` is all that was written, not what was
    kept. `killed` counts processes ended after the main one; `survived` those that belong to another
    user and could not be. `no_program` tells of a `spawn_error` that there is no such program, or none
    that can be executed. `output_error` says why output could not be written to its file.
    `out_of_memory`: the kernel has most likely ended it for want of memory; `at_own_limit`: of the memory
    that the run itself may take. `ended_ns` is when the main process ended, in nanoseconds since the epoch;
    None for `lost` runs, and from a shim that did not tell.

    What its control group counted: `memory_peak` (bytes) and `tasks_peak` (processes and threads) are the
    most that was there at once, `memory_max` and `tasks_max` the limits that were in force; `memory_kills`
    are processes ended at the run's own limit, `tasks_refused` those (and threads) that could not be started
    at it. None: nothing counted it, or there was no limit.
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
    """Signs of life of a whole process tree; compare two of them, the absolute values drift."""

    output_bytes: int
    cpu_s: float
    written_bytes: int
    """Given to write calls, whatever they wrote to: idle runtimes wake their own threads that way."""
    stored_bytes: int = 0
    """Written into files on a disk; those of a file system in memory are not counted here."""
    heard_ns: int = 0
    """When it printed something last, also what is not kept; since 1970. 0: nothing yet."""
    received: tuple[Received, ...] = ()
    """What each of its TCP connections has received."""
