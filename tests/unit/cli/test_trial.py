"""Tests that are tried: by `init`, and by `doctor` for a project that is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import Commands
from tests.support.controlled import Controlled
from tests.support.supervision import MemorySupervision, project_view, track_view

from handoffd.engine.events import TestEvidence
from handoffd.engine.views import Tried
from handoffd.errors import Refused
from handoffd.protocol.state import TestCounts

COUNTED = Tried(
    command=("npm", "test"),
    path="/bin",
    evidence=TestEvidence(counts=TestCounts(passed=2), collected=2, seconds=1),
)
WORKS = "npm test works in the daemon's environment: 2 pass, 0 fail, 0 skipped (in 1 s)"


class Busy(MemorySupervision):
    """Projects in which an attempt is in flight."""

    async def try_tests(self, project: str) -> Tried:
        """Refuse."""
        raise Refused("d-1 is at work there", code="ALREADY_RUNNING", hint="handoffd status shop")


def fake(folder: Path, name: str, text: str) -> None:
    """Put a program into a folder."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


def test_init_tries_the_tests_it_found(control: Controlled, handoffd: Commands, tmp_path: Path) -> None:
    """It says so before, since that may take a while, and tells in one line what came of it."""
    control.supervision.tried = COUNTED
    (tmp_path / "package.json").write_text('{"scripts": {"test": "mocha"}}', encoding="utf-8")

    said, told = handoffd("init", str(tmp_path)), handoffd("init", str(tmp_path), "--json")

    assert f"  tried: {WORKS}" in said.lines
    assert "Running the tests once as the daemon would, for at most 40 s ...\n" == said.err
    assert {"severity": "ok", "what": WORKS, "why": None, "action": None} == told.json["tried"]
    assert "" == told.err


def test_without_tests_there_is_nothing_to_try(
    control: Controlled, handoffd: Commands, tmp_path: Path
) -> None:
    """And nothing to wait for."""
    said = handoffd("init", str(tmp_path), "--json")

    assert (None, None, "") == (said.json["test_command"], said.json["tried"], said.err)


def test_the_tests_of_a_clone_are_not_run_where_that_is_not_wanted(
    tmp_path: Path, handoffd: Commands
) -> None:
    """Whose they are, and what they do, a person may want to read first; all else is set up."""
    root = tmp_path / "clone"
    root.mkdir()
    (root / "Makefile").write_text(f"test:\n\ttouch {tmp_path}/ran\n")

    said = handoffd("init", str(root), "--no-tests", "--json")

    assert (0, ["make", "test"], None, "") == (
        said.code, said.json["test_command"], said.json["tried"], said.err
    )  # fmt: skip
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("supervision", [Busy(project_view("/srv/shop", track_view()))])
def test_where_an_agent_works_nothing_is_tried(
    control: Controlled, handoffd: Commands, tmp_path: Path
) -> None:
    """The project is initialised all the same, and can be examined."""
    (tmp_path / "Makefile").write_text("test:\n", encoding="utf-8")

    said, examined = handoffd("init", str(tmp_path)), handoffd("doctor", "shop")

    assert 0 == said.code
    assert "  tried: handoffd could not try the tests: d-1 is at work there" in said.lines
    assert "    next: handoffd status shop" in said.lines
    assert "warning  tests        handoffd could not try the tests: d-1 is at work there" in examined.lines


@pytest.mark.parametrize("supervision", [MemorySupervision(project_view("/srv/shop", track_view()))])
def test_doctor_tries_the_tests_of_those_that_are_named(control: Controlled, handoffd: Commands) -> None:
    """Without a name it looks for programs only."""
    control.supervision.tried = COUNTED

    assert any(line.endswith(WORKS) for line in handoffd("doctor", "shop").lines)
    assert not any(line.endswith(WORKS) for line in handoffd("doctor").lines)
    assert 4 == handoffd("doctor", "no-such-project").code


def test_without_a_daemon_it_is_what_its_service_would_find(
    alone: Path, handoffd: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program that only this terminal has is missing there."""
    fake(alone / "bin", "mocha-like", "exit 0")
    monkeypatch.setenv("PATH", f"{alone}/bin:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(alone / "home"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(alone))
    monkeypatch.delenv("HANDOFFD_RUNTIME_DIR")
    monkeypatch.delenv("HANDOFFD_STATE_DIR")
    root = alone / "shop"
    (root / ".ai").mkdir(parents=True)
    (root / ".ai/handoffd.yaml").write_text("test: {command: [mocha-like]}\n", encoding="utf-8")

    by_terminal = handoffd("init", str(root), "--json").json["tried"]
    units = alone / "home/.config/systemd/user"
    units.mkdir(parents=True)
    (units / "handoffd.service").write_text('[Service]\nEnvironment="PATH=/usr/bin:/bin"\n', encoding="utf-8")
    by_service = handoffd("init", str(root), "--json").json["tried"]

    assert "ok" == by_terminal["severity"]
    assert by_terminal["what"].startswith("mocha-like works in the daemon's environment: exit code 0")
    assert "mocha-like is not in the daemon's PATH" == by_service["what"]
    assert 'handoffd service install --path "$PATH"' == by_service["action"]
