"""`make test-systemd`: handoffd's services under a real systemd, in boxes on this machine. As root.

python -m tests.systemd [PYTEST ARGUMENTS...]

Ends with 2, and prints the reason, on a machine that cannot run a box.
"""

from __future__ import annotations

import os
import sys

import pytest
from tests.systemd.root import CACHE, NoBox, root

SYSTEM = "HANDOFFD_TEST_SYSTEM"
"""Names the folder of the system that boxes boot; without it, nothing here is collected."""


def main(arguments: list[str]) -> int:
    """Make what is missing, then test."""
    try:
        os.environ[SYSTEM] = str(root())
    except NoBox as error:
        sys.stderr.write(f"test-systemd: {error}\n")
        return 2
    # Several of these run installers, which are slow on a loaded machine, and wait with limits of their own.
    options = ["-p", "no:cacheprovider", f"--basetemp={CACHE}/tests"]
    options += ["--timeout=1800", "-o", "faulthandler_timeout=1860"]
    return int(pytest.main([*options, "tests/systemd", *arguments]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
