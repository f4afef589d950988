"""What a folder lies on."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.disks import small_disk

from handoffd.doctor.machine import is_memory, is_network, kind_in, kind_of, mount_number

TABLE = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
36 21 0:30 / /home rw,noatime - nfs4 server:/home rw,vers=4.2
37 36 0:31 / /home rw master:1 shared:2 - tmpfs tmpfs rw
broken
"""


def test_a_mount_is_known_by_its_number() -> None:
    """The path is no name: one mount may hide another."""
    assert "nfs4" == kind_in(TABLE, "36")
    assert "tmpfs" == kind_in(TABLE, "37")
    assert None is kind_in(TABLE, "99")
    assert None is kind_in(TABLE, None)


def test_the_number_of_an_open_folder() -> None:
    """As fdinfo has it."""
    assert "36" == mount_number("pos:\t0\nflags:\t012100000\nmnt_id:\t36\nino:\t2\n")
    assert None is mount_number("pos:\t0\n")


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "9p", "ceph", "fuse.sshfs", "lustre"])
def test_network_file_systems(kind: str) -> None:
    """Several of them, by themselves and by FUSE."""
    assert is_network(kind)
    assert not is_memory(kind)


@pytest.mark.parametrize(
    "kind", ["ext4", "btrfs", "xfs", "overlay", "zfs", "tmpfs", "fuse.gocryptfs", "fuseblk"]
)
def test_local_file_systems(kind: str) -> None:
    """Some are in memory only."""
    assert not is_network(kind)
    assert (kind == "tmpfs") == is_memory(kind)


def test_of_a_real_folder(tmp_path: Path) -> None:
    """Whatever it is, it has a name; what is mounted over it is seen."""
    assert kind_of(tmp_path)
    with pytest.raises(FileNotFoundError):
        kind_of(tmp_path / "none")
    with small_disk(tmp_path, 1):
        assert "tmpfs" == kind_of(tmp_path)
