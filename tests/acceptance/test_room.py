"""The daemon stops dispatching before the disk is full, gives the reason, and goes on when there is room."""

from __future__ import annotations

from pathlib import Path

from tests.support.agents import lines, project_at, released
from tests.support.daemon import Daemon, Json, running
from tests.support.disks import small_disk
from tests.support.eventually import eventually_sync

RULES = """\
steps:
  bdd: {next_on_pass: scaffold, timeout_min: 5}
  scaffold: {next_on_pass: review, timeout_min: 5}
  review: {next_on_pass: update-memory}
"""
ENDLESS_MB = 10**9
"""A petabyte: more than is free anywhere."""


def settings(base: Path, min_free_mb: int) -> Json:
    """Return settings with the agent as executor, which want so much room."""
    return released(base, execute={"min_free_mb": min_free_mb})


def waits_for_room(track: Json) -> bool:
    """Tell whether a track says that the disk is why nothing of it runs."""
    return (track["waits_for"] or "").startswith("room on the disk: ")


def all_told(daemon: Daemon, *projects: Path) -> list[str]:
    """Return the notices about the disk, in all projects and by the daemon."""
    told = [notice for project in projects for notice in daemon.told(project)]
    return [notice["action"] for notice in told if notice["text"].startswith("a disk is almost full")]


def test_a_disk_that_fills_stops_dispatching_and_nothing_else(tmp_path: Path) -> None:
    """Who runs goes on, who would be next waits and says why, and all go on when there is room."""
    disk = tmp_path / "state"
    disk.mkdir()
    busy, late = project_at(tmp_path / "busy", RULES), project_at(tmp_path / "late", RULES)
    with small_disk(disk, 64), running(tmp_path, settings(tmp_path, 32)) as daemon:
        daemon.begin(busy)
        eventually_sync(lambda: lines(busy, "starts.log") == ["bdd 1"])
        (disk / "filling").write_bytes(bytes(40 * 1024 * 1024))

        daemon.begin(late)
        told = daemon.wait_for(late, waits_for_room)
        assert f" MiB are free at {disk}, execute.min_free_mb asks for 32" in told["waits_for"]
        assert f"df -h {disk}" == told["next_command"]
        assert "executing" == daemon.track(busy)["phase"]
        (tmp_path / "release").touch()
        daemon.wait_for(busy, waits_for_room)  # what ran has handed over; its next step waits
        assert (["bdd 1"], []) == (lines(busy, "starts.log"), lines(late, "starts.log"))
        eventually_sync(lambda: all_told(daemon, disk, busy, late))

        (disk / "filling").unlink()

        for project in (busy, late):
            daemon.wait_at(project, "review", "needs_human")
            assert ["bdd 1", "scaffold 1"] == lines(project, "starts.log")
        assert [f"df -h {disk}"] == all_told(daemon, disk, busy, late)


def test_a_disk_that_has_no_more_files_is_full(tmp_path: Path) -> None:
    """Bytes are left on it, and yet nothing could be written."""
    disk = tmp_path / "state"
    disk.mkdir()
    project = project_at(tmp_path / "shop", RULES)
    (tmp_path / "release").touch()
    with small_disk(disk, 64, files=900), running(tmp_path, settings(tmp_path, 1)) as daemon:
        daemon.begin(project)

        told = daemon.wait_for(project, waits_for_room)

        assert f"more files (inodes) fit on the disk of {disk}" in told["waits_for"]
        assert f"df -i {disk}" == told["next_command"]
        assert [] == lines(project, "starts.log")


def test_what_waited_for_room_is_dispatched_by_a_daemon_that_asks_for_less(tmp_path: Path) -> None:
    """The limit is a setting; the wait itself is nothing that has to be undone."""
    project = project_at(tmp_path / "shop", RULES)
    (tmp_path / "release").touch()
    with running(tmp_path, settings(tmp_path, ENDLESS_MB)) as daemon:
        daemon.begin(project)
        assert f"df -h {daemon.state_dir}" == daemon.wait_for(project, waits_for_room)["next_command"]
        assert [] == daemon.runs(project)

    with running(tmp_path, settings(tmp_path, 1)) as daemon:
        daemon.wait_at(project, "review", "needs_human")
        assert ["bdd 1", "scaffold 1"] == lines(project, "starts.log")
