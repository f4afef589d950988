"""`handoffd doctor`, with a daemon and without."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import Commands
from tests.support.controlled import Controlled
from tests.support.supervision import MemorySupervision, project_view, track_view

from handoffd.watch.backend import LIMIT_REACHED


@pytest.fixture(autouse=True)
def _agent_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the disk of the machine is like, and without an agent that costs."""
    monkeypatch.setenv("HANDOFFD_EXECUTOR", "rehearsal")
    monkeypatch.setenv("HANDOFFD_EXECUTE__MIN_FREE_MB", "0")


def test_without_a_daemon_nothing_is_left_behind(alone: Path, handoffd: Commands) -> None:
    """A look is not a reason to make folders; a daemon that does not run is a warning."""
    said = handoffd("doctor")

    assert (0, "") == (said.code, said.err)
    assert "warning  daemon       no daemon runs" in said.lines
    assert "    next: handoffd run" in said.lines
    assert said.lines[-1].endswith("; nothing keeps handoffd from working.")
    assert [] == list(alone.iterdir())


def test_json_is_documented_and_stable(alone: Path, handoffd: Commands) -> None:
    """An object with the findings and whether they are sound."""
    told = handoffd("doctor", "--json").json

    assert {"findings", "ok"} == set(told)
    assert told["ok"] is True
    assert {frozenset({"check", "severity", "what", "why", "action"})} == {
        frozenset(f) for f in told["findings"]
    }
    assert {"ok", "warning"} >= {found["severity"] for found in told["findings"]}
    none = next(found for found in told["findings"] if found["check"] == "daemon")
    assert ("warning", "handoffd run") == (none["severity"], none["action"])


@pytest.mark.parametrize(
    "supervision", [MemorySupervision(project_view("/srv/b", track_view(), swept=LIMIT_REACHED))]
)
def test_with_a_daemon_it_tells_which_projects_are_swept(control: Controlled, handoffd: Commands) -> None:
    """With the command that raises the limit, and the file that makes it lasting."""
    said = handoffd("doctor")

    assert 0 == said.code
    at = said.lines.index("warning  watches      1 of 1 project is only looked at every 30 s: /srv/b")
    assert said.lines[at + 1].startswith(f"    why:  {LIMIT_REACHED}")
    assert said.lines[at + 2].startswith("    next: sudo sysctl fs.inotify.max_user_")
    assert said.lines[at + 2].endswith("| sudo tee /etc/sysctl.d/60-handoffd.conf")


def test_a_fault_is_an_exit_code(alone: Path, handoffd: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a timer, or a script."""
    monkeypatch.setenv("HANDOFFD_EXECUTOR", "no-such")

    said, told = handoffd("doctor"), handoffd("doctor", "--json")

    assert (1, 1) == (said.code, told.code)
    assert "fault    executors    there is no executor no-such" in said.lines
    assert any("HANDOFFD_EXECUTOR: executor: there is no executor 'no-such'" in line for line in said.lines)
    assert told.json["ok"] is False


def test_settings_that_are_wrong_are_a_finding(alone: Path, handoffd: Commands) -> None:
    """No error of the command: what else can be looked at, is."""
    file = alone / "handoffd.yaml"
    file.write_text("execute:\n  slots: none\n", encoding="utf-8")

    said = handoffd("--config", str(file), "doctor")

    assert (1, "") == (said.code, said.err)
    assert any(line.startswith(f"fault    settings     {file}:2: execute.slots") for line in said.lines)
    assert f"    next: ${{EDITOR:-vi}} +2 {file}" in said.lines
    assert any("no daemon runs" in line for line in said.lines)


def test_projects_of_the_journal_are_looked_at(alone: Path, handoffd: Commands) -> None:
    """One that is gone is a fault; nothing is recorded about it."""
    project = alone / "shop"
    project.mkdir()
    assert 0 == handoffd("add", str(project)).code
    assert any("has no STATE.json (not_initialized)" in line for line in handoffd("doctor").lines)
    project.rmdir()
    before = sorted(path.name for path in (alone / "state").iterdir())

    said = handoffd("doctor")

    assert 1 == said.code
    assert any(f"{project} is gone (missing)" in line for line in said.lines)
    assert before == sorted(path.name for path in (alone / "state").iterdir())


def test_a_project_cannot_speak_through_the_terminal(alone: Path, handoffd: Commands) -> None:
    """Control characters in a path are shown."""
    project = alone / "a\x1b[31mb"
    project.mkdir()
    assert 0 == handoffd("add", str(project)).code
    assert "\x1b[31mb" not in handoffd("doctor").out
    told = handoffd("doctor", "--json").json["findings"]
    assert any(str(project) in found["what"] for found in told)
