"""Open files."""

from __future__ import annotations

import os
import resource
import subprocess

from tests.support.children import ending
from tests.support.eventually import eventually_sync

from handoffd.doctor.machine import FileFacts, check_descriptors, most_files
from handoffd.doctor.service import Service

TERMINAL = Service(unit=None)
NEEDED = 1000 + 32 + 32 + 4 * 10 + 64


def facts(most: int | None, service: Service = TERMINAL) -> FileFacts:
    """Return facts about a thousand projects."""
    return FileFacts(projects=1000, slots=4, most=most, service=service, pid=12)


def test_each_project_needs_one_and_runs_some() -> None:
    """What is needed exactly is enough."""
    (enough,), (none,) = check_descriptors(facts(NEEDED)), check_descriptors(facts(None))
    assert ("ok", f"{NEEDED} open files are enough, {NEEDED} are allowed") == (enough.severity, enough.what)
    assert ("ok", f"{NEEDED} open files are enough, no limit") == (none.severity, none.what)


def test_too_few_is_a_fault() -> None:
    """With the command for the way in which the daemon is run."""
    (found,) = check_descriptors(facts(NEEDED - 1))
    assert ("fault", f"the daemon may have only {NEEDED - 1} files open") == (found.severity, found.what)
    assert "1000 projects with 4 slots" in (found.why or "")
    assert "sudo prlimit --nofile=65536:65536 --pid 12" == found.action
    (unit,) = check_descriptors(facts(1, Service(unit="handoffd")))
    assert "LimitNOFILE=65536" in (unit.action or "")


def test_the_hard_limit_of_a_process() -> None:
    """The daemon's; that of this process where there is none."""
    own = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    expected = None if own == resource.RLIM_INFINITY else own
    assert expected == most_files(None) == most_files(os.getpid()) == most_files(2**22 + 1)
    with ending(subprocess.Popen(["sh", "-c", "ulimit -n 77; exec sleep 600"])) as process:
        try:
            eventually_sync(lambda: most_files(process.pid) == 77)
        finally:
            process.kill()
