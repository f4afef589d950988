"""What the daemon has measured of an executor's claim, as values: its tests, its post_check."""

from __future__ import annotations

from dataclasses import dataclass

from handoffd.protocol.state import TestCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class TestEvidence:
    """What a test run proved, already compared with the baseline.

    `fault` is set when the runner itself was unusable: then nothing was proved. `new_failing`
    counts ids outside the baseline that fail or error; `regressed` are those that passed in the
    baseline and fail now; `failing` leaves baseline failures out.
    """

    __test__ = False

    counts: TestCounts = TestCounts()
    failing: tuple[str, ...] = ()
    known_failing: tuple[str, ...] = ()
    new_failing: int = 0
    new_collected: int = 0
    regressed: tuple[str, ...] = ()
    collected: int = 0
    verified: bool = True
    """False when only the exit code was to be had."""
    timed_out: bool = False
    fault: str | None = None
    tail: str = ""
    seconds: float = 0.0
    line: str | None = None
    """What was printed last, for lists; None: of a release that had the whole `tail` quoted there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostCheck:
    """How the rule's post_check ended; with a `fault` it could not be run and proved nothing."""

    passed: bool
    tail: str = ""
    timed_out: bool = False
    fault: str | None = None
    line: str | None = None
    """As that of a test run."""
