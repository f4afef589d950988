"""One process that gives a target input after input, for some seconds, and keeps what goes wrong.

`python -m tests.fuzz.hunt WAY TARGET SECONDS FOLDER`; `campaign.py` starts it. The ways:

- `guided`: atheris changes inputs and keeps the ones that reach new code;
- `mutated`: what `guided` becomes without atheris, which has no wheel for every Python: changes by chance;
- `stretched`: pieces of the corpus, repeated until the input is as long as the reader allows;
- `again`: each file that is named on standard input once, to see how long it takes without instruments.

The last input is in a file that outlives the process, in case it dies of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import mmap
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

SLOW_S: Final = 1.0
"""Of CPU: no reader may take longer for one input."""
GIVEN_UP_S: Final = 15.0
INSTRUMENTED: Final = 4.0
"""How many times longer a reader may take while its coverage is measured."""
MOST_KEPT: Final = 40
REPORT: Final = "report.json"
LAST: Final = "last"
_MOST_INPUT: Final = 8 * 1024 * 1024
_OURS: Final = f"{os.sep}handoffd{os.sep}"


class GivenUp(BaseException):
    """The reader was stopped, because it takes too long."""


@dataclass(slots=True)
class Hunt:
    """What a process has done so far. `factor`: how many times longer than `SLOW_S` is slow."""

    target: Any
    folder: Path
    until: float
    factor: float = 1.0
    executions: int = 0
    slowest_s: float = 0.0
    found: dict[str, str] = field(default_factory=dict)
    """The file of each finding, by what went wrong and where."""
    _last: mmap.mmap | None = None
    _place: str = ""
    _reported: float = 0.0

    def begin(self) -> None:
        """Prepare the folder, and what tells where a slow reader is."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / LAST).open("w+b") as file:
            file.truncate(_MOST_INPUT)
            self._last = mmap.mmap(file.fileno(), _MOST_INPUT)
        signal.signal(signal.SIGPROF, self._too_slow)
        self.report()

    def give(self, body: bytes) -> None:
        """Have the target read one input."""
        assert self._last is not None
        self._last[: len(body) + 8] = len(body).to_bytes(8, "little") + body
        self._place = ""
        signal.setitimer(signal.ITIMER_PROF, SLOW_S * self.factor, GIVEN_UP_S)
        before = time.process_time()
        try:
            self.target.read(body)
        except GivenUp:
            pass
        except Exception as error:
            self._keep(body, f"{type(error).__name__} at {_innermost(error)}", traceback.format_exc())
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        took = time.process_time() - before
        self.executions += 1
        if took > self.slowest_s:
            self.slowest_s = took
            (self.folder / "slowest").write_bytes(body)
        if took > SLOW_S * self.factor:
            self._keep(body, f"slow at {self._place}", f"{took:.1f} s of CPU for {len(body):,} bytes")
        if time.monotonic() > self._reported + 2:
            self.report()

    def is_over(self) -> bool:
        """Whether its time has passed."""
        return time.monotonic() >= self.until

    def report(self) -> None:
        """Write down what has been done so far."""
        self._reported = time.monotonic()
        told = {
            "executions": self.executions, "cpu_s": time.process_time(), "slowest_s": self.slowest_s,
            "found": self.found,
        }  # fmt: skip
        (self.folder / REPORT).write_text(json.dumps(told))

    def _keep(self, body: bytes, what: str, details: str) -> None:
        if what in self.found or len(self.found) >= MOST_KEPT:
            return
        name = f"{what.split(maxsplit=1)[0].lower()}-{hashlib.sha256(body).hexdigest()[:12]}"
        place = self.folder / "findings" / name
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(body)
        Path(f"{place}.txt").write_text(f"{what}\n{details}\n")
        self.found[what] = str(place)
        self.report()

    def _too_slow(self, _: int, frame: FrameType | None) -> None:
        if self._place:
            raise GivenUp
        while frame is not None and _OURS not in frame.f_code.co_filename:
            frame = frame.f_back
        self._place = _place(frame.f_code.co_filename, frame.f_lineno) if frame is not None else "?"


def _innermost(error: BaseException) -> str:
    """Return the last place in our code that an error went through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if _OURS in frame.filename] or frames
    return _place(ours[-1].filename, ours[-1].lineno or 0)


def _place(file: str, line: int) -> str:
    return f"{file.rsplit(_OURS, 1)[-1]}:{line}"


# --- the ways -------------------------------------------------------------------------------------------
def guided(hunt: Hunt, corpus: Path, words: Sequence[str]) -> None:
    """Have atheris choose the inputs; it never returns, so the process ends here."""
    import atheris

    def one(body: bytes) -> None:
        hunt.give(body)
        if hunt.is_over():
            hunt.report()
            os._exit(0)

    listed = corpus.parent / "words"
    listed.write_text("".join(f'"{_escaped(word)}"\n' for word in words if word))
    options = (
        "-timeout=3600",
        "-rss_limit_mb=0",
        f"-max_len={min(hunt.target.most, 16384)}",
        f"-dict={listed}",
    )
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={hunt.folder}/", str(corpus)], one)
    atheris.Fuzz()


def _escaped(word: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word.encode("utf-8", "surrogatepass"))


def mutated(hunt: Hunt, corpus: Path, words: Sequence[str]) -> None:
    """Change inputs by chance."""
    from tests.fuzz import mutations

    chance, bodies = random.Random(), _bodies(corpus)
    while not hunt.is_over():
        hunt.give(mutations.mutated(chance.choice(bodies), words, chance, bodies)[: hunt.target.most])


def stretched(hunt: Hunt, corpus: Path, words: Sequence[str]) -> None:
    """Repeat pieces of inputs, short of the limit first: what takes the square shows there, too."""
    from tests.fuzz import mutations

    for body in hunt.target.long():
        hunt.give(body)
    chance, bodies = random.Random(), _bodies(corpus)
    while not hunt.is_over():
        most = min(hunt.target.most, chance.choice((16, 64, 64, 256, 1024, 4096)) * 1024)
        hunt.give(mutations.stretched(chance.choice(bodies), words, most, chance))


def again(hunt: Hunt, _: Path, __: Sequence[str]) -> None:
    """Give it each file that standard input names."""
    for name in sys.stdin.read().split("\n"):
        if name:
            hunt.give(Path(name).read_bytes())


def _bodies(corpus: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(corpus.iterdir())] or [b""]


WAYS: Final = {"guided": guided, "mutated": mutated, "stretched": stretched, "again": again}


@contextlib.contextmanager
def _instruments(way: str) -> Iterator[None]:
    """Measure the coverage of what is imported inside."""
    if way != "guided":
        yield
        return
    import atheris

    with atheris.instrument_imports(include=["handoffd"]):
        yield


def main(words: Sequence[str]) -> None:
    """Hunt."""
    way, name, seconds, folder = words
    if way == "guided" and importlib.util.find_spec("atheris") is None:
        way = "mutated"
    with _instruments(way):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]
    corpus = Path(folder).parent / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        (corpus / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
    hunt = Hunt(
        target, Path(folder), time.monotonic() + float(seconds), INSTRUMENTED if way == "guided" else 1.0
    )
    hunt.begin()
    WAYS[way](hunt, corpus, target.words)
    hunt.report()


if __name__ == "__main__":
    main(sys.argv[1:])
