"""What a clone of a repository costs, its commits, and their way into the project's repository.

    python -m tests.benchmarks.clones [--files 1000,50000] [--rounds 10] [--json]

Beside them: `git clone --shared`, and `git commit --all` in that clone. Before each commit, 20 files are
changed. The two take turns, so that a busy machine slows both.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.benchmarks.measures import summary
from tests.benchmarks.rows import Row, ratio
from tests.benchmarks.snapshots import CHANGED, lap, measured, repository
from tests.support.repositories import git

from handoffd.clock import SystemClock
from handoffd.git.branches import StoryBranch
from handoffd.git.clones import Clones


def rows(base: Path, files: int, rounds: int) -> list[Row]:
    """Return what clones of a repository with `files` files cost, below `base`."""
    root, other, chance = base / f"repository-{files}", base / f"clone-{files}", Random(files)
    names, at = [path.relative_to(root) for path in repository(root, files)], SystemClock().now()
    clones = Clones(str(root), base / "state", dict(os.environ))
    laps: dict[str, list[float]] = {}

    def beside(what: str, folder: Path, *words: str) -> None:
        laps.setdefault(what, []).append(lap(lambda: git(folder, *words)))

    for number in range(rounds):
        shutil.rmtree(other, ignore_errors=True)
        laps.setdefault("make", []).append(lap(lambda: clones.make(f"US-{number}", (), None, at)))  # noqa: B023
        beside("git clone --shared", base, "clone", "--shared", "--quiet", str(root), str(other))
    clone = clones.make("US-x", (), None, at)
    branch = StoryBranch(str(root), clone.workspace, base / "state", dict(os.environ))
    for number in range(rounds):
        changed = chance.sample(names, CHANGED)
        for name in changed:
            for folder in (Path(clone.workspace.folder), other):
                (folder / name).write_text(f"{number} {name} {chance.random()}")
        laps.setdefault("commit", []).append(lap(lambda: branch.commit(b"work\n", None, at)))
        beside("git commit --all", other, "commit", "--all", "--quiet", "-m", "work")
        laps.setdefault("publish", []).append(lap(branch.publish))
    middles = {what: summary(some).p50 for what, some in laps.items()}
    return [
        *(Row(what=f"{what}, p50", value=middle, unit="ms") for what, middle in middles.items()),
        Row(what="make ÷ git clone", value=ratio(middles["make"], middles["git clone --shared"]), unit="×"),
        Row(
            what="commit ÷ git commit", value=ratio(middles["commit"], middles["git commit --all"]), unit="×"
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure clones and print."""
    return measured("clones", str(__doc__).splitlines()[0], rows, 10, arguments)


if __name__ == "__main__":
    sys.exit(main())
