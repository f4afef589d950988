"""Facts are gathered, though some look may never end, and every check is made."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.controlled import controlled
from tests.support.supervision import MemorySupervision, project_view, track_view

from handoffd.doctor.examination import Subject, examine
from handoffd.doctor.finding import Finding
from handoffd.errors import InvalidFile, Problem
from handoffd.files.locks import acquire, daemon_lock_path
from handoffd.journal.journal import Journal
from handoffd.settings.model import ExecuteSettings, Settings
from handoffd.watch.backend import LIMIT_REACHED

CHECKS = ["settings", "daemon", "state", "projects", "watches", "descriptors", "executors"]
CHECKS += ["notices", "git", "hooks", "account", "sandbox", "supervision"]
WITH_TESTS = [*CHECKS[:7], "tests", *CHECKS[7:]]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="handoffd-") as name:
        yield Path(name)


def never(*_: object) -> dict[str, Any]:
    """Fail: the projects must not be read."""
    raise AssertionError("the projects were read")


def subject(folder: Path, **changes: Any) -> Subject:
    """Return what is examined when all is well below `folder`, with `changes`."""
    settings = Settings(
        state_dir=folder / "state", runtime_dir=folder, executor="rehearsal",
        execute=ExecuteSettings(min_free_mb=0),
    )  # fmt: skip
    values: dict[str, Any] = {
        "settings": settings, "file": None, "invalid": None, "socket": settings.control_socket,
        "environ": {"HOME": str(folder), "PATH": "/usr/bin:/bin"}, "look": lambda *_: {"projects": []},
    }  # fmt: skip
    return Subject(**values | changes)


def of(findings: tuple[Finding, ...], check: str) -> Finding:
    """Return the one finding of a check."""
    (found,) = [finding for finding in findings if finding.check == check]
    return found


def checks(findings: tuple[Finding, ...]) -> list[str]:
    """Return which checks were made, in order."""
    return list(dict.fromkeys(finding.check for finding in findings))


async def remember(journal: Path, *roots: Path) -> None:
    """Have a journal that knows projects."""
    opened = await Journal.open(journal)
    for root in roots:
        await opened.add_project(str(root), root.name, datetime(2026, 1, 2, tzinfo=UTC))
    await opened.close()


def test_without_anything_every_check_is_made_and_nothing_is_changed(folder: Path) -> None:
    """Before the first start."""
    found = examine(subject(folder))

    assert CHECKS == checks(found)
    assert ("warning", "handoffd run") == (of(found, "daemon").severity, of(found, "daemon").action)
    assert "ok" == of(found, "state").severity
    assert [] == list(folder.iterdir())


def test_a_daemon_answers_for_its_projects(folder: Path) -> None:
    """They are not read here; swept ones are named."""
    swept = project_view("/srv/b", track_view(), swept=LIMIT_REACHED, executor="no-such")
    with controlled(MemorySupervision(project_view("/srv/a", track_view()), swept)) as lent:
        found = examine(subject(folder, socket=lent.socket, look=never))

    assert WITH_TESTS == checks(found)
    assert "ok" == of(found, "daemon").severity
    assert "2 projects can be worked on" == of(found, "projects").what
    assert "1 of 2 projects is only looked at every 30 s: /srv/b" == of(found, "watches").what
    assert "there is no executor no-such, which /srv/b uses" == of(found, "executors").what


def test_programs_of_post_checks_are_looked_up(folder: Path) -> None:
    """Where the daemon runs them; a step table without any needs none."""
    lacking = project_view("/srv/b", track_view(), post_checks={"impl": "true && no-such-linter ."})
    with controlled(MemorySupervision(project_view("/srv/a", track_view()), lacking)) as lent:
        found = examine(subject(folder, socket=lent.socket, look=never))

    assert "no-such-linter is not in the daemon's PATH" == of(found, "post_check").what


async def test_without_a_daemon_the_journal_is_read(folder: Path) -> None:
    """And the folders that answer are read."""
    await remember(folder / "state/journal.db", folder / "a")
    looked: list[frozenset[str]] = []

    def look(_: Settings, silent: frozenset[str]) -> dict[str, Any]:
        looked.append(silent)
        return {"projects": [{"project": str(folder / "a"), "condition": "missing", "detail": "it is gone"}]}

    found = examine(subject(folder, look=look))

    assert [frozenset()] == looked
    assert ("fault", "it is gone") == (of(found, "projects").severity, of(found, "projects").why)


async def test_a_look_that_hangs_ends_nothing(folder: Path) -> None:
    """The other checks are made; nothing is claimed about the projects."""
    await remember(folder / "state/journal.db", folder / "a")
    ever = threading.Event()
    try:
        found = examine(subject(folder, look=lambda *_: ever.wait(), answer_s=0.5))
    finally:
        ever.set()

    assert [name for name in CHECKS if name != "projects"] == checks(found)
    assert "1 project needs" in of(found, "watches").what


def test_a_daemon_that_hangs_is_reported_and_its_projects_are_left_alone(folder: Path) -> None:
    """It is known by its process, and so is its service."""
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(str(folder / "control.sock"))
        listening.listen()
        found = examine(subject(folder, look=never, answer_s=1.0))

    hung = next(one for one in found if one.check == "daemon")
    assert ("fault", f"the daemon (process {os.getpid()}) does not answer") == (hung.severity, hung.what)
    assert "projects" not in checks(found)


def test_the_holder_of_the_state_directory_is_named(folder: Path) -> None:
    """From the lock's text, without taking the lock."""
    lock = acquire(daemon_lock_path(folder / "state"), "the state directory")
    try:
        found = of(examine(subject(folder)), "daemon")
    finally:
        lock.release()

    assert ("fault", f"process {os.getpid()} holds the state directory, and cannot be asked") == (
        found.severity,
        found.what,
    )


def test_a_journal_that_cannot_be_used_is_reported(folder: Path) -> None:
    """Its projects are unknown then."""
    (folder / "state").mkdir(mode=0o700)
    (folder / "state/journal.db").write_text("a letter, and not a journal at all " * 10)
    found = examine(subject(folder, look=never))

    assert ("fault", "the journal cannot be used") == (of(found, "state").severity, of(found, "state").what)
    assert "projects" not in checks(found)


def test_a_state_directory_that_cannot_be_seen(folder: Path) -> None:
    """A file is in its place."""
    (folder / "state").write_text("")
    settings = Settings(state_dir=folder / "state/below", runtime_dir=folder)
    assert "fault" == of(examine(subject(folder, settings=settings, look=never)), "state").severity


def test_settings_that_cannot_be_used(folder: Path) -> None:
    """What does not depend on them is checked all the same."""
    invalid = InvalidFile((Problem(file="/h.yaml", message="wrong"),), hint="vi /h.yaml")
    with controlled(MemorySupervision(project_view("/srv/a", track_view()))) as lent:
        found = examine(subject(folder, settings=None, invalid=invalid, socket=lent.socket))
    assert ["settings", "daemon", "projects", "supervision"] == checks(found)
    assert ["settings", "supervision"] == checks(
        examine(subject(folder, settings=None, invalid=invalid, socket=None))
    )


def test_files_of_secrets_are_checked(folder: Path) -> None:
    """Which the settings only name."""
    key = folder / "key"
    key.write_text("x")
    key.chmod(0o644)

    found = of(examine(subject(folder, secret_files=(key,))), "settings")

    assert f"{key} is open to others" == found.what


def test_executors_of_the_settings_that_cannot_be_used(folder: Path) -> None:
    """They belong to the settings, and are a finding there."""
    settings = Settings(state_dir=folder / "s", runtime_dir=folder, executors={"mine": {"argv": 7}})
    invalid = InvalidFile((Problem(file="/h.yaml", key="executors.mine.argv", message="must be a list"),))
    found = examine(subject(folder, settings=settings, invalid=invalid))
    assert ("fault", "/h.yaml: executors.mine.argv: must be a list") == (
        of(found, "settings").severity,
        of(found, "settings").what,
    )
    assert "executors" not in checks(found)
