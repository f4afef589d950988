"""Chooses among the plays of flows, and keeps what is left of the ones that broke a promise.

    python -m tests.chaos.flows [PLAY ...] [--kills 60] [--seed 1] [--keep FOLDER]

The exit code is 1 when a promise was broken.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.chaos.flows.campaign import play_all
from tests.chaos.flows.plays import PLAYS


def main() -> int:
    """Play, kill, judge; return the exit code."""
    parser = argparse.ArgumentParser(prog="chaos of flows", description=str(__doc__).splitlines()[0])
    parser.add_argument("plays", nargs="*", default=[*PLAYS], help=f"of {', '.join(PLAYS)}")
    parser.add_argument("--kills", type=int, default=60, help="of the daemons of each play (60)")
    parser.add_argument("--seed", default="1", help="what is drawn follows from it (1)")
    parser.add_argument("--keep", type=Path, help="a folder for what is left of plays that broke a promise")
    given = parser.parse_args()
    if given.keep is not None:
        given.keep.mkdir(exist_ok=True)
        return play_all(given.keep, given.plays, given.seed, given.kills)
    with tempfile.TemporaryDirectory(prefix="handoffd-") as base:
        return play_all(Path(base), given.plays, given.seed, given.kills)


if __name__ == "__main__":
    sys.exit(main())
