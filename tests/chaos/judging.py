"""The verdict on a house whose last daemon has ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.chaos.branches import left_of_clones, look_at
from tests.chaos.checker import Violation, check
from tests.chaos.clones import Cloned
from tests.chaos.driver import Campaign
from tests.chaos.evidence import gather
from tests.chaos.house import House
from tests.chaos.processes import alive
from tests.chaos.report import Found

_GONE_S = 20.0
"""How long whatever is left may take to end by itself after the last daemon."""

_VERIFY_S = 300


def judged(seed: str, campaign: Campaign) -> Found:
    """Return what is found in a house whose last daemon has ended."""
    house = campaign.house
    left = until_gone(house)
    evidence = gather(house.base, house.projects, frozenset(campaign.killer.hit), left)
    broken = (*check(evidence), *replayed(house), *cleaned(house))
    notices = len({notice.get("id") for notice in evidence.told})
    return Found(
        seed=seed,
        toll=campaign.toll,
        stories=sum(len(project.stories) for project in house.projects),
        dispatches=len(evidence.dispatches),
        events=len(evidence.events),
        notices=notices,
        repeated=len(evidence.told) - notices,
        violations=[_placed(violation, campaign) for violation in broken],
        faults=campaign.faults,
    )


def replayed(house: House) -> Iterator[Violation]:
    """Ask the product itself: everything that was decided is decided again."""
    told = _typed(house, "journal", "verify")
    if told.returncode != 0:
        lines = (told.stdout + told.stderr).splitlines()
        yield Violation("decided otherwise", "`handoffd journal verify` complains", tuple(lines))


def cleaned(house: House) -> Iterator[Violation]:
    """Have the product clean up: the clones of landed stories go, and no branch with them."""
    told = _typed(house, "--config", str(house.config), "gc")
    if told.returncode != 0:
        yield Violation("not cleaned up", "`handoffd gc` fails", tuple(told.stderr.splitlines()))
    for project in house.projects:
        if isinstance(project, Cloned):
            found = look_at(project, house.state_dir)
            troubles = (*found.trouble, *left_of_clones(project, house.state_dir))
            yield from (Violation("left behind", f"{project.root}: {one}") for one in troubles)


def _typed(house: House, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "handoffd", *words],
        env={**os.environ, "HANDOFFD_STATE_DIR": str(house.state_dir)},
        capture_output=True, text=True, timeout=_VERIFY_S, check=False,
    )  # fmt: skip


def until_gone(house: House) -> list[str]:
    """Return the processes that have not ended by themselves in time."""
    limit = time.monotonic() + _GONE_S
    while (left := alive(house.base, house.runs)) and time.monotonic() < limit:
        time.sleep(0.05)
    return [str(process) for process in left]


def _placed(violation: Violation, campaign: Campaign) -> Violation:
    """Return a violation with the rounds around the event where it shows."""
    if violation.seq is None:
        return violation
    seq = violation.seq
    near = [str(one) for one in campaign.rounds if one.first - 3 <= seq <= one.last + 3]
    return Violation(violation.rule, violation.text, (*violation.lines, *near[:6]), seq)
