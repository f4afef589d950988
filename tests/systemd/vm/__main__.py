"""`make test-systemd-vm`: limits of memory and tasks under a systemd and a kernel that have them. As root.

python -m tests.systemd.vm [PYTEST ARGUMENTS...]

Ends with 2, and prints the reason, on a machine that cannot run a virtual machine.
"""

from __future__ import annotations

import os
import sys

import pytest
from tests.systemd.vm.image import CACHE, NoMachine, disk, obstacle

DISK = "HANDOFFD_TEST_DISK"
"""Names the disk that the virtual machine boots; without it, nothing here is collected."""


def main(arguments: list[str]) -> int:
    """Make what is missing, then test."""
    if (why := obstacle()) is not None:
        sys.stderr.write(f"test-systemd-vm: {why}\n")
        return 2
    sys.stderr.write("test-systemd-vm: making the disk (minutes the first time, half of one later)\n")
    try:
        os.environ[DISK] = str(disk())
    except NoMachine as error:
        sys.stderr.write(f"test-systemd-vm: {error}\n")
        return 2
    options = ["-p", "no:cacheprovider", f"--basetemp={CACHE}/tests"]
    options += ["--timeout=3600", "-o", "faulthandler_timeout=3660"]
    return int(pytest.main([*options, "-v", "tests/systemd/vm", *arguments]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
