"""A wall clock that a test may set, for real processes: a preloaded library gives them a false time."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "wallclock.c"


class WallClock:
    """The wall clock of all processes that are started with `environment`."""

    def __init__(self, base: Path) -> None:
        """Compile the library into `base`; without a C compiler the test is skipped."""
        self._off = base / "wallclock.off"
        self.set_off(0)
        library = base / "wallclock.so"
        compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
        if compiler is None:
            pytest.skip("there is no C compiler here; the unit tests of each clock run everywhere")
        command = [compiler, "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        self.environment: Mapping[str, str] = {"LD_PRELOAD": str(library), "WALLCLOCK": str(self._off)}

    def set_off(self, seconds: int) -> None:
        """Have the clock differ from the machine's by so much; in place, as others have the file mapped."""
        with self._off.open("r+b" if self._off.exists() else "wb") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))
