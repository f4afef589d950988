"""Tests in a virtual machine are collected by `make test-systemd-vm` alone, which sees to what they need."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.systemd.vm.__main__ import DISK
from tests.systemd.vm.machine import Machine

collect_ignore_glob = [] if DISK in os.environ else ["test_*.py"]


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A booted virtual machine, which all tests share."""
    disk = Path(os.environ[DISK])
    machine = Machine(disk, disk.with_name("kernel"), tmp_path_factory.mktemp("machine"))
    with contextlib.closing(machine):
        yield machine
