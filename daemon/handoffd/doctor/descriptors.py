"""Whether the daemon may have as many files open as its projects need."""

from __future__ import annotations

import resource
from dataclasses import dataclass

from handoffd.capacity.machine import HEADROOM, RESERVE
from handoffd.doctor.finding import Finding, fault, fine
from handoffd.doctor.service import Service
from handoffd.engine.usage import counted

CHECK = "descriptors"

_OWN = 64
"""What a daemon has open besides: sockets, the journal, watches, libraries."""
_PER_RUN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """`most` is the hard limit of the daemon (or of whoever would start one), None without any."""

    projects: int
    slots: int
    most: int | None
    service: Service
    pid: int | None = None


def most_files(pid: int | None) -> int | None:
    """Return how many files a process may have open at most: the hard limit. None: as many as it likes.

    Without `pid`, or when it cannot be looked at, that of this process.
    """
    try:
        hard = resource.prlimit(pid or 0, resource.RLIMIT_NOFILE)[1]
    except OSError:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def check(facts: FileFacts) -> tuple[Finding, ...]:
    """Return whether each project's lock, and what runs besides, has a descriptor."""
    needed = facts.projects + RESERVE + HEADROOM + _PER_RUN * facts.slots + _OWN
    if facts.most is None or needed <= facts.most:
        most = "no limit" if facts.most is None else f"{facts.most} are allowed"
        return (fine(CHECK, f"{needed} open files are enough, {most}"),)
    projects = counted(facts.projects, "project")
    why = f"{projects} with {counted(facts.slots, 'slot')} need {needed}; what is beyond the limit waits"
    action = facts.service.allow_files(facts.pid)
    return (fault(CHECK, f"the daemon may have only {counted(facts.most, 'file')} open", why, action),)
