"""Which handoffd a project belongs to: as long as that one's journal says so, at this very folder."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from tests.support.children import ending

from handoffd.errors import Locked
from handoffd.store.holders import DAEMON_LOCK
from handoffd.store.journal import Journal
from handoffd.store.ownership import own

AT = datetime(2026, 7, 4, 22, 0, tzinfo=UTC)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Return a project's folder."""
    (tmp_path / "shop").mkdir()
    return str(tmp_path / "shop")


def supervising(state_dir: Path, root: str, *, removed: bool = False) -> Path:
    """Return a state directory whose journal has a project, or had it."""

    async def write() -> None:
        journal = await Journal.open(state_dir / "journal.db")
        try:
            await journal.add_project(root, "shop", AT)
            if removed:
                await journal.remove_project(root, AT)
        finally:
            await journal.close()

    anyio.run(write)
    return state_dir


def test_a_project_belongs_to_the_daemon_that_supervises_it(tmp_path: Path, root: str) -> None:
    """Whether that one runs or not; the message names it, and how to take the project from it."""
    first = supervising(tmp_path / "first", root)
    own(root, first)

    own(root, first)
    with pytest.raises(Locked) as refused:
        own(root, tmp_path / "second")

    message = f"the project {root} belongs to the handoffd whose state directory is {first} (it does not run)"
    assert message == refused.value.message
    assert (refused.value.hint or "").startswith(f"handoffd add {root} --take  #")


def test_a_running_owner_is_named(tmp_path: Path, root: str) -> None:
    """By its process."""
    own(root, supervising(tmp_path / "first", root))
    hold = "import sys; from pathlib import Path; from handoffd.store.lock import acquire\n"
    hold += "lock = acquire(Path(sys.argv[1]), 'it'); print(flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", hold, str(tmp_path / "first" / DAEMON_LOCK)]
    with ending(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)) as process:
        assert process.stdout
        process.stdout.readline()
        with pytest.raises(Locked, match=rf"first \(process {process.pid} \("):
            own(root, tmp_path / "second")
        assert process.stdin
        process.stdin.close()


def test_a_person_may_take_it(tmp_path: Path, root: str) -> None:
    """Then the other one has lost it."""
    first = supervising(tmp_path / "first", root)
    own(root, first)

    own(root, supervising(tmp_path / "second", root), take=True)

    with pytest.raises(Locked, match="second"):
        own(root, first)


def test_it_is_free_when_the_owner_has_removed_it(tmp_path: Path, root: str) -> None:
    """Or was uninstalled with its state."""
    own(root, supervising(tmp_path / "first", root, removed=True))
    own(root, supervising(tmp_path / "second", root))

    shutil.rmtree(tmp_path / "second")

    own(root, tmp_path / "third")


def test_a_copy_is_free(tmp_path: Path, root: str) -> None:
    """It carries the name of the owner, but it is another folder; so is one that lies there by now."""
    own(root, supervising(tmp_path / "first", root))
    shutil.copytree(root, tmp_path / "copy")
    assert b"first" in os.getxattr(tmp_path / "copy", "user.handoffd")

    own(str(tmp_path / "copy"), tmp_path / "second")

    Path(root).rename(tmp_path / "moved")
    own(str(tmp_path / "moved"), tmp_path / "second")


def test_the_owner_knows_itself_by_another_path(tmp_path: Path, root: str) -> None:
    """A state directory behind a link, or a project that it has moved with `mv`."""
    first = supervising(tmp_path / "first", root)
    (tmp_path / "link").symlink_to(first)
    own(root, tmp_path / "link")

    own(root, first)

    assert os.fsencode(first) in os.getxattr(root, "user.handoffd")


@pytest.mark.parametrize(
    "forged", [b"", b"\0", b"/x", b"x\0y", b"/a\0/b\0/c", b"\xff\xfe\0\0", b"/nowhere\0/nowhere", b"/" * 3000]
)
def test_what_an_agent_wrote_there_keeps_nobody_away(tmp_path: Path, root: str, forged: bytes) -> None:
    """It is written over."""
    os.setxattr(root, "user.handoffd", forged)

    own(root, tmp_path / "mine")

    assert os.fsencode(tmp_path / "mine") in os.getxattr(root, "user.handoffd")


@pytest.mark.parametrize("kind", ["pipe", "folder", "text", "endless"])
def test_a_forged_journal_is_not_waited_for(tmp_path: Path, root: str, kind: str) -> None:
    """What is no file is none; what cannot be understood may be a journal of another version."""
    state_dir = tmp_path / "forged"
    state_dir.mkdir()
    _forge(state_dir / "journal.db", kind)
    os.mkfifo(state_dir / DAEMON_LOCK)
    (tmp_path / "mine").mkdir()
    os.setxattr(root, "user.handoffd", os.fsencode(state_dir) + b"\0" + os.fsencode(root))

    if kind in {"pipe", "folder"}:
        own(root, tmp_path / "mine")
    else:
        with pytest.raises(Locked, match="forged"):
            own(root, tmp_path / "mine")


def _forge(journal: Path, kind: str) -> None:
    match kind:
        case "pipe":
            os.mkfifo(journal)
        case "folder":
            journal.mkdir()
        case "text":
            journal.write_text("no journal\n" * 100)
        case _:
            rows = "SELECT 1 AS root, NULL AS removed_at UNION ALL SELECT root + 1, NULL FROM n"
            with closing(sqlite3.connect(journal)) as db:
                db.execute(f"CREATE VIEW projects AS WITH RECURSIVE n AS ({rows}) SELECT * FROM n")


def test_where_no_attribute_can_be_written_the_locks_have_to_do(tmp_path: Path) -> None:
    """As below /proc, or on a disk that can only be read."""
    own("/proc/self/task", tmp_path)
