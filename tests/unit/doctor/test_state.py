"""The state directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.disks import small_disk

from handoffd.doctor.machine import StateFacts, check_state, silent_state, state_facts, unseen_state
from handoffd.errors import StoreError
from handoffd.journal.journal import Journal
from handoffd.journal.schema import VERSION

MIB = 1024 * 1024


def facts(**changes: Any) -> StateFacts:
    """Return facts in which all is well, with `changes`."""
    values: dict[str, Any] = {
        "folder": "/var/state", "exists": True, "is_folder": True, "owned": True, "mode": 0o700,
        "writable": True, "free_bytes": 5000 * MIB, "free_inodes": 100_000, "kind": "ext4", "schema": 3,
    }  # fmt: skip
    return StateFacts(**values | changes)


def told(**changes: Any) -> tuple[str, str, str | None]:
    """Return severity, what and action of the one finding for facts with `changes`."""
    (found,) = check_state(facts(**changes), 512)
    return found.severity, found.what, found.action


def test_all_is_well() -> None:
    """In one line; before the first start, too."""
    assert ("ok", "/var/state, journal of schema 3, 5000 MiB free", None) == told()
    assert ("ok", "/var/state, no journal yet, 5000 MiB free", None) == told(schema=None)
    new = "/var/state will be made at the first start; 5000 MiB free"
    # The folder above it may be anybody's and open to all, as /var/tmp is.
    assert ("ok", new, None) == told(exists=False, owned=False, mode=0o1777)


@pytest.mark.parametrize(
    ("changes", "what", "action"),
    [
        ({"is_folder": False}, "/var/state is not a folder", "ls -ld /var/state"),
        (
            {"owned": False},
            "/var/state belongs to another account",
            'sudo -u "$(stat -c %U /var/state)" handoffd doctor',
        ),
        ({"writable": False}, "/var/state cannot be written", "namei -l /var/state"),
        (
            {"writable": False, "exists": False},
            "/var/state cannot be made",
            "sudo install -d -m 700 -o $(id -un) /var/state",
        ),
        (
            {"free_bytes": 511 * MIB},
            "511 MiB are free at /var/state: no executor is started",
            "df -h /var/state",
        ),
        ({"free_inodes": 0}, "0 inodes are free at /var/state", "df -i /var/state"),
        (
            {"kind": "nfs4"},
            "/var/state is on a network file system (nfs4)",
            "handoffd config show  # then set state_dir to a folder on a local disk",
        ),
        (
            {"error": StoreError("it is damaged", hint="handoffd journal verify")},
            "the journal cannot be used",
            "handoffd journal verify",
        ),
        ({"error": StoreError("unreadable")}, "the journal cannot be used", "ls -l /var/state"),
    ],
)
def test_faults(changes: dict[str, Any], what: str, action: str) -> None:
    """Each keeps handoffd from working."""
    assert ("fault", what, action) == told(**changes)


@pytest.mark.parametrize(
    ("changes", "what", "action"),
    [
        ({"mode": 0o750}, "/var/state is open to others", "chmod 700 /var/state"),
        ({"free_bytes": 1023 * MIB}, "only 1023 MiB are free at /var/state", "df -h /var/state"),
        ({"free_inodes": 999}, "999 inodes are free at /var/state", "df -i /var/state"),
        (
            {"kind": "tmpfs"},
            "/var/state is kept in memory only (tmpfs)",
            "handoffd config show  # then set state_dir to a folder on a disk",
        ),
    ],
)
def test_warnings(changes: dict[str, Any], what: str, action: str) -> None:
    """Each works for now."""
    assert ("warning", what, action) == told(**changes)


def test_where_the_edges_are() -> None:
    """What is asked for exactly is enough; 0 asks for nothing; some disks do not count inodes."""
    assert "warning" == told(free_bytes=512 * MIB)[0]
    assert "ok" == told(free_bytes=1024 * MIB)[0]
    assert "ok" == told(free_inodes=1000)[0]
    assert "ok" == told(free_inodes=None)[0]
    assert "ok" == told(kind=None)[0]
    assert ["ok"] == [found.severity for found in check_state(facts(free_bytes=0), 0)]


def test_several_findings_are_all_told() -> None:
    """But the journal of another account is not ours to judge."""
    error = StoreError("permission denied")
    found = check_state(facts(owned=False, error=error, kind="nfs", free_bytes=0), 512)

    assert [
        "/var/state belongs to another account",
        "/var/state is on a network file system (nfs)",
        "0 MiB are free at /var/state: no executor is started",
    ] == [one.what for one in found]


def test_a_folder_that_cannot_be_seen() -> None:
    """Because it is silent, or refuses."""
    assert ("fault", "stat '/mnt/a b'") == (
        silent_state("/mnt/a b").severity,
        silent_state("/mnt/a b").action,
    )
    found = unseen_state("/root/x", PermissionError(13, "Permission denied"))
    assert ("fault", "Permission denied", "namei -l /root/x") == (found.severity, found.why, found.action)


async def test_what_is_gathered_of_a_real_one(tmp_path: Path) -> None:
    """Mode, room, file system and journal; before it is there, the folder above it."""
    folder = tmp_path / "a" / "state"
    before = state_facts(folder, folder / "journal.db")
    assert (False, True, None) == (before.exists, before.writable, before.schema)

    journal = await Journal.open(folder / "journal.db")
    await journal.close()
    found = state_facts(folder, folder / "journal.db")

    assert (True, True, True, True) == (found.exists, found.is_folder, found.owned, found.writable)
    assert (0o700, VERSION, None) == (found.mode, found.schema, found.error)
    assert found.kind
    assert 0 < found.free_bytes


def test_a_journal_that_is_none_is_found_out(tmp_path: Path) -> None:
    """And what is no folder."""
    (tmp_path / "journal.db").write_text("a letter, and no journal at all " * 10)
    found = state_facts(tmp_path, tmp_path / "journal.db")
    assert found.error is not None
    assert "NOT_A_JOURNAL" == found.error.code
    assert not state_facts(tmp_path / "journal.db", tmp_path / "none").is_folder


def test_a_disk_that_is_full_is_found_out(tmp_path: Path) -> None:
    """By the room and the inodes that are left."""
    with small_disk(tmp_path, 1):
        (tmp_path / "big").write_bytes(b"x" * MIB)
        found = state_facts(tmp_path, tmp_path / "journal.db")
        assert (0, "tmpfs") == (found.free_bytes // MIB, found.kind)
        assert found.free_inodes is not None
