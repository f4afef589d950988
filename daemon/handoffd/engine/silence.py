"""The facts about an executor that shows no sign of life. What follows from them is in `stalling`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """For how long a process tree has shown no sign of life, and the signs that were looked at.

    `output_bytes` is all it has printed so far; `cpu_s`, `written_bytes` and `received_bytes` (without pings)
    what it used, wrote and was sent during the silence, no more than an idle program.
    """

    quiet_min: float
    limit_min: float
    output_bytes: int
    cpu_s: float
    written_bytes: int
    received_bytes: int | None = None
    """None: an older release did not look."""

    @property
    def signs(self) -> str:
        """The signs of life that were looked for, with what was there of each."""
        received = (
            "" if self.received_bytes is None else f", {self.received_bytes:,} bytes of content received"
        )
        return (
            f"no output (after {self.output_bytes:,} bytes), {self.cpu_s:.1f} s of processor time,"
            f" {self.written_bytes:,} bytes written{received}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorQuiet:
    """An executor has shown no sign of life for half of the time that is allowed."""

    dispatch: str
    silence: Silence
    kind: Literal["executor_quiet"] = "executor_quiet"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorStalled:
    """An executor has shown no sign of life for longer than is allowed."""

    dispatch: str
    silence: Silence
    kind: Literal["executor_stalled"] = "executor_stalled"
