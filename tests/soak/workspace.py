"""A workspace of many projects and the daemons that have it, one after the other, as a service has them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count, islice
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.chaos.house import House
from tests.chaos.stories import Odds
from tests.support.eventually import eventually_sync

from handoffd.errors import HandoffdError
from handoffd.settings.paths import shared

REPOSITORY = Path(__file__).parents[2]
GENTLE = Odds(lost=0, fail=0.012, elsewhere=0.004, asks=0.004, odd=0.05, refusals=False)
"""Two attempts in a hundred go wrong, as a good night goes."""
STOP_S = 60.0

Buckets = dict[str, dict[float, float]]
_HISTOGRAMS = ("handoffd_loop_lag_seconds", "handoffd_handoff_seconds", "handoffd_journal_commit_seconds")


def kinds(number: int) -> Iterator[int]:
    """Return the kinds of `number` projects: without the kinds that always exceed a time limit.

    Half of them have tests, three in four a post_check.
    """
    return islice((kind for kind in count() if kind % 4 != 3 and kind % 3), number)


def workspace(base: Path, projects: int, slots: int) -> House:
    """Return a house below `base` with `projects` projects; nothing runs."""
    return House(base, kinds(projects), None, slots, GENTLE, schedule={"poll_s": 30})


def unit_environment() -> dict[str, str]:
    """Return the variables that the unit of the service sets, whatever the installation."""
    lines = shared("systemd", "handoffd.service").read_text(encoding="utf-8").splitlines()
    given = [line.removeprefix("Environment=") for line in lines if line.startswith("Environment=")]
    return dict(one.split("=", 1) for one in given)


class Service:
    """The daemon of a house: begun and ended as systemd does it. Counts its lives."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._process: subprocess.Popen[bytes] | None = None
        self.lives = 0
        self.began = 0.0
        self.ready_s: list[float] = []
        """How long each life took until it answered."""
        self.faults: list[str] = []
        self.buckets: Buckets = {name: {} for name in _HISTOGRAMS}
        """What the histograms of all lives have counted, by upper bound in seconds."""

    @property
    def pid(self) -> int:
        """The process of the daemon that lives."""
        assert self._process is not None
        return self._process.pid

    @property
    def age_s(self) -> float:
        """How long it has lived."""
        return time.monotonic() - self.began

    def start(self) -> None:
        """Begin a daemon and wait until it answers."""
        environment = {
            **self._house.order()["environ"], **unit_environment(), "PYTHONPATH": str(REPOSITORY / "daemon"),
        }  # fmt: skip
        self.began = time.monotonic()
        with self._house.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "handoffd", "run", "--config", str(self._house.config)],
                stdout=log, stderr=log, env=environment, start_new_session=True,
            )  # fmt: skip
        self.lives += 1
        eventually_sync(self._answers, within_s=120)
        self.ready_s.append(round(self.age_s, 2))

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"life {self.lives} ended with {self._process.returncode} at its beginning")
        return self._house.answers()

    def stop(self) -> None:
        """End the daemon as `systemctl stop` does; executors go on."""
        assert self._process is not None
        self._take_in(self._scraped())
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code != 0:
            self.faults.append(f"life {self.lives}, asked to end, ended with {code}")

    def dead(self) -> bool:
        """Return whether it ended without having been asked to."""
        assert self._process is not None
        return self._process.poll() is not None

    def _scraped(self) -> str:
        with suppress(HandoffdError, OSError), self._house.client.stream("/metrics") as stream:
            return b"".join(stream.pieces()).decode()
        return ""

    def _take_in(self, text: str) -> None:
        for family in text_string_to_metric_families(text):
            for sample in family.samples if family.name in _HISTOGRAMS else ():
                if sample.name.endswith("_bucket"):
                    bound, known = float(sample.labels["le"]), self.buckets[family.name]
                    known[bound] = known.get(bound, 0.0) + sample.value


def quantile(buckets: dict[float, float], part: float) -> float | None:
    """Return the upper bound, in seconds, of the quantile `part`; None without any count."""
    total = max(buckets.values(), default=0.0)
    within: Iterable[float] = (bound for bound in sorted(buckets) if buckets[bound] >= part * total)
    return next(iter(within), None) if total else None
