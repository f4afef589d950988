"""What file system a folder lies on, by the kernel's own table of mounts."""

from __future__ import annotations

import os
from pathlib import Path

_NETWORK = frozenset(
    {
        "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gpfs", "lustre",
        "ncpfs", "nfs", "nfs4", "orangefs", "smb3", "smbfs",
    }
)  # fmt: skip
_NETWORK_FUSE = frozenset(
    {
        "fuse.ceph", "fuse.ceph-fuse", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs", "fuse.goofys",
        "fuse.juicefs", "fuse.rclone", "fuse.s3fs", "fuse.seaweedfs", "fuse.sshfs",
    }
)  # fmt: skip
_IN_MEMORY = frozenset({"ramfs", "tmpfs"})


def is_network(kind: str) -> bool:
    """Return whether a type of file system is served by another machine (or, `9p`, by the host)."""
    return kind in _NETWORK or kind in _NETWORK_FUSE


def is_memory(kind: str) -> bool:
    """Return whether what lies on such a file system is gone after a restart of the machine."""
    return kind in _IN_MEMORY


def kind_of(folder: Path) -> str | None:
    """Return the type of the file system that `folder` lies on; None if the kernel does not tell.

    Raises OSError. By the mount's number, because one mount may hide another of the same path.
    """
    opened = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        info = Path(f"/proc/self/fdinfo/{opened}").read_text()
    finally:
        os.close(opened)
    table = Path("/proc/self/mountinfo").read_text(errors="replace")
    return kind_in(table, mount_number(info))


def mount_number(info: str) -> str | None:
    """Return the number of the mount in the text of an `fdinfo`."""
    numbers = [line.split()[1] for line in info.splitlines() if line.startswith("mnt_id:")]
    return numbers[0] if numbers else None


def kind_in(table: str, number: str | None) -> str | None:
    """Return the type of the mount `number` in the text of a `mountinfo`."""
    for line in table.splitlines():
        head, dash, tail = line.partition(" - ")
        if dash and head.split()[:1] == [number]:
            return tail.split()[0]
    return None
