"""What is short for the whole daemon: a journal that takes nothing, descriptors, file watches, time.

Nothing is started meanwhile, what runs goes on, people get one notice, and it ends by itself.
"""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.agents import lines, released, shop
from tests.support.daemon import Daemon, running
from tests.support.disks import read_only
from tests.support.eventually import eventually_sync


@contextmanager
def limited(daemon: Daemon, what: int, value: int) -> Iterator[None]:
    """Lower a limit of the running daemon alone."""
    before = resource.prlimit(daemon.pid, what)
    resource.prlimit(daemon.pid, what, (value, before[1]))
    try:
        yield
    finally:
        resource.prlimit(daemon.pid, what, before)


@contextmanager
def unwritable_journal(daemon: Daemon) -> Iterator[None]:
    """Have the kernel refuse to let the journal grow (EFBIG, which SQLite calls an I/O error)."""
    size = (daemon.state_dir / "journal.db-wal").stat().st_size
    with limited(daemon, resource.RLIMIT_FSIZE, size):
        yield


def test_a_journal_that_takes_nothing_starts_nothing_and_ends_nothing(tmp_path: Path) -> None:
    """Its end is applied once when it can be written again; one notice speaks for all projects."""
    project, other = shop(tmp_path), shop(tmp_path / "b")
    with running(tmp_path, released(tmp_path)) as daemon:
        daemon.started(project)
        daemon.verb("start", other, story="US-002", automatic=False)
        with unwritable_journal(daemon):
            assert "error" == daemon.verb("resume", other)["type"]
            (tmp_path / "release").touch()
            eventually_sync(lambda: daemon.condition(project) == "io_error")
            eventually_sync(lambda: daemon.told(daemon.state_dir))
            eventually_sync(lambda: daemon.log().count("journal still unwritable") >= 2)
            assert [] == lines(other, "starts.log")

        daemon.wait_at(project, "review", "needs_human")
        assert [("bdd", 1, "pass")] == daemon.results(project)
        assert ["bdd 1"] == lines(project, "starts.log")
        (told,) = daemon.told(daemon.state_dir)
        assert "nothing is started for the time being" in told["text"]
        assert "the journal cannot be written (cannot" in told["why"]
        assert {"warning", "blocked"}.isdisjoint(notice["kind"] for notice in daemon.told(project))
        assert "ok" == daemon.condition(project)


def test_a_state_directory_that_turns_read_only_under_an_agent_costs_nothing(tmp_path: Path) -> None:
    """Its end is written down and told when it can be; who would be next waits, and goes on by itself."""
    project, other = shop(tmp_path), shop(tmp_path / "b")
    with running(tmp_path, released(tmp_path)) as daemon:
        run_dir = daemon.state_dir / "runs" / daemon.started(project)["dispatch"]
        daemon.verb("init", other)
        with read_only(daemon.state_dir):
            assert "accepted" == daemon.verb("start", other, story="US-002")["type"]
            waiting = daemon.wait_saying(other, "Read-only file system")
            assert ("pending", 1) == (waiting["status"], waiting["attempt"])
            assert "findmnt -O ro" == waiting["next_command"]
            with unwritable_journal(daemon):  # what was open before would still take something
                assert "error" == daemon.verb("note", other, text="Still there?")["type"]
                eventually_sync(lambda: daemon.told(daemon.state_dir))
                assert "executing" == daemon.track(project)["phase"]
                (tmp_path / "release").touch()
                eventually_sync(lambda: is_cut(run_dir / ".exit.json.reserved"))
            assert [] == lines(other, "starts.log")

        for root in (project, other):
            daemon.wait_at(root, "review", "needs_human")
            assert [("bdd", 1, "pass")] == daemon.results(root)
            assert ["bdd 1"] == lines(root, "starts.log")
            assert "ok" == daemon.condition(root)
        assert (run_dir / "exit.json").exists()  # its shim has waited with it
        (told,) = daemon.told(daemon.state_dir)
        assert "nothing is started for the time being" in told["text"]


def is_cut(reserve: Path) -> bool:
    """Tell whether a shim has filled the room it took for its last record: all but the name is there."""
    return reserve.stat().st_size < 8192


def test_the_service_manager_shows_why_nothing_is_started(tmp_path: Path) -> None:
    """In its STATUS line, until it is over."""
    project = shop(tmp_path)
    daemon = Daemon(tmp_path, released(tmp_path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(daemon.runtime_dir / "notify.sock"))
        manager.settimeout(60)
        daemon.environment["NOTIFY_SOCKET"] = str(daemon.runtime_dir / "notify.sock")
        try:
            daemon.start()
            daemon.verb("init", project)
            with unwritable_journal(daemon):
                daemon.verb("note", project, text="Still there?")
                until_status(manager, "STATUS=nothing is started: the journal cannot be written")
            until_status(manager, "STATUS=1 project, 0 executors running")
        finally:
            daemon.close()


def until_status(manager: socket.socket, beginning: str) -> None:
    """Read what the daemon says of itself until it says this."""

    def said() -> bool:
        return any(line.startswith(beginning) for line in manager.recv(4096).decode().splitlines())

    eventually_sync(said)


def test_without_descriptors_people_are_answered_and_dispatches_wait(tmp_path: Path) -> None:
    """No attempt is spent, no person has to act, and it goes on when there are some again."""
    project, other = shop(tmp_path), shop(tmp_path / "b")
    with running(tmp_path, released(tmp_path)) as daemon:
        daemon.started(project)
        with limited(daemon, resource.RLIMIT_NOFILE, used_up(daemon)):
            eventually_sync(lambda: "machine trouble" in daemon.log())
            assert "accepted" == daemon.verb("start", other, story="US-002")["type"]
            waiting = daemon.wait_saying(other, "limit of open files")
            assert ("pending", 1) == (waiting["status"], waiting["attempt"])
            (tmp_path / "release").touch()
            daemon.wait_for(project, lambda track: track["phase"] is None)  # the daemon has seen its end
            assert [] == lines(other, "starts.log")

        daemon.wait_at(other, "review", "needs_human")
        daemon.wait_at(project, "review", "needs_human")
        assert [("bdd", 1, "pass")] == daemon.results(other)
        # The daemon may read its settings meanwhile, which fails, too, and has a notice of its own.
        (told,) = eventually_sync(
            lambda: [one for one in daemon.told(daemon.state_dir) if "reached its limit" in one["why"]]
        )
        assert "the daemon has reached its limit of open files" == told["why"]


def used_up(daemon: Daemon) -> int:
    """Return a limit under which the daemon may open hardly one more file than its reserve."""
    folder = Path(f"/proc/{daemon.pid}/fd")
    names: dict[int, str] = {}
    for entry in folder.iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            names[int(entry.name)] = os.readlink(entry)
    reserve = max(number for number, target in names.items() if target == os.devnull)
    assert list(names.values()).count(os.devnull) >= 32
    return next(number for number in range(reserve, 10_000) if number not in names)
