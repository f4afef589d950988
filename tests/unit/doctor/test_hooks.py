"""Hooks of others."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from handoffd.doctor.finding import is_sound
from handoffd.doctor.projects import check_hooks, hook_facts
from handoffd.hooks.claude_settings import with_ours
from handoffd.hooks.event import EVENTS


def _settings(root: Path, *commands: str, name: str = "settings.json") -> Path:
    """Write a settings file with these commands at the end of each turn."""
    hooks = [{"hooks": [{"type": "command", "command": command}]} for command in commands]
    path = root / ".claude" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"hooks": {"Stop": hooks}}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("command", "foreign"),
    [
        ("jq '.status = \"pass\"' .ai/STATE.json > x", True),
        ("npx @agentic-coding-framework/orchestrator-core apply-handoff .", True),
        ("orchestrator dispatch .", True),
        ("/opt/bin/my-dispatch .", True),
        ("python3 $CLAUDE_PROJECT_DIR/.claude/hooks/stop.py", True),
        ('"${CLAUDE_PROJECT_DIR}"/.claude/hooks/stop.py', True),
        (".claude/hooks/stop.py", True),
        (".claude/hooks/harmless.sh", False),
        ("$CLAUDE_PROJECT_DIR/a.sh; .claude/hooks/stop.py", True),
        ("handoffd dispatch .", False),
        ("handoffd dispatch . 2>/dev/null || true", False),
        ("handoffd hook && orchestrator apply-handoff .", True),
        ("handoffd hook; .claude/hooks/stop.py", True),
        ("handoffd query . > .ai/STATE.json", True),
        ("/usr/bin/python3 -I -m handoffd hook", False),
        ("say done", False),
        ("prettier --write 'unclosed", False),
        ("", False),
    ],
)
def test_one_that_may_write_state_is_told(tmp_path: Path, command: str, foreign: bool) -> None:
    """By its command, or by the script of the project that it calls."""
    file = _settings(tmp_path, command)
    (tmp_path / ".claude/hooks").mkdir()
    (tmp_path / ".claude/hooks/stop.py").write_text("open('.ai/STATE.json', 'w')", encoding="utf-8")
    (tmp_path / ".claude/hooks/harmless.sh").write_text("echo done", encoding="utf-8")
    found = check_hooks(hook_facts("/nowhere", [str(tmp_path)]))

    assert ["warning" if foreign else "ok"] == [one.severity for one in found]
    assert is_sound(found)
    if foreign:
        assert f"{file} has a hook at Stop that is not handoffd's: {command}" == found[0].what
        assert f"${{EDITOR:-vi}} {file}" == found[0].action


def test_a_person_s_and_each_project_s_are_looked_at(tmp_path: Path) -> None:
    """Shared and local settings; a project that is the home is told of once."""
    home, shop = tmp_path / "home", tmp_path / "shop"
    files = [
        _settings(home, "orchestrator auto", name="settings.local.json"),
        _settings(shop, "orchestrator auto", "orchestrator dispatch"),
    ]
    facts = hook_facts(str(home), [str(home), str(shop), str(tmp_path / "none")])

    assert [str(files[0]), str(files[1]), str(files[1])] == [one.file for one in facts.foreign]


def test_ours_are_no_trouble(tmp_path: Path) -> None:
    """Wherever they come from."""
    file = _settings(tmp_path, "say done")
    file.write_text(with_ours(file.read_text("utf-8"), "f", "/x/bin/handoffd hook", EVENTS), encoding="utf-8")

    assert ["ok"] == [one.severity for one in check_hooks(hook_facts(str(tmp_path), []))]


def test_what_claude_code_cannot_read_is_told(tmp_path: Path) -> None:
    """None of its hooks is run, ours neither."""
    file = _settings(tmp_path)
    file.write_text('{\n"hooks": [],\n}', encoding="utf-8")
    (finding,) = check_hooks(hook_facts(str(tmp_path), []))

    assert ("warning", True) == (finding.severity, f"{file}:3" in finding.what)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """Nor does a pipe keep anybody waiting."""
    (tmp_path / "shop/.claude").mkdir(parents=True)
    os.mkfifo(tmp_path / "shop/.claude/settings.json")
    (tmp_path / "shop/.claude/settings.local.json").symlink_to(_settings(tmp_path, "orchestrator auto"))

    found = check_hooks(hook_facts("/nowhere", [str(tmp_path / "shop")]))
    assert ["warning"] * 2 == [one.severity for one in found]
    for finding, name in zip(found, ("settings.json", "settings.local.json"), strict=True):
        assert finding.what.startswith(f"{tmp_path}/shop/.claude/{name} was not read")


def test_a_folder_that_is_a_link_is_told(tmp_path: Path) -> None:
    """As one has it who keeps their settings elsewhere; what is not there is no trouble."""
    _settings(tmp_path / "dotfiles", "orchestrator auto")
    for name in ("home", "gone"):
        (tmp_path / name).mkdir()
    (tmp_path / "home/.claude").symlink_to(tmp_path / "dotfiles/.claude")
    (tmp_path / "gone/.claude").symlink_to(tmp_path / "nowhere")
    (finding,) = check_hooks(hook_facts(str(tmp_path / "home"), [str(tmp_path / "gone")]))

    assert f"{tmp_path}/home/.claude/settings.json was not read" in finding.what


@pytest.mark.parametrize(
    "command",
    [
        "~/.claude/hooks/a.sh", "$HOME/.claude/hooks/a.sh", '"${HOME}"/.claude/hooks/a.sh',
        "bash ~/.claude/hooks/a.sh", 'bash -c "~/.claude/hooks/a.sh"',
        "bash -c 'cd /; $HOME/.claude/hooks/a.sh'",
    ],
)  # fmt: skip
@pytest.mark.parametrize("whose", ["home", "shop"])
def test_a_script_in_the_home_is_looked_at(tmp_path: Path, command: str, whose: str) -> None:
    """However its path is written, and whosever the settings are."""
    _settings(tmp_path / whose, command)
    script = tmp_path / "home/.claude/hooks/a.sh"
    script.parent.mkdir(parents=True)
    (tmp_path / "shop").mkdir(exist_ok=True)
    facts = str(tmp_path / "home"), [str(tmp_path / "shop")]

    script.write_text("echo done", encoding="utf-8")
    assert ["ok"] == [one.severity for one in check_hooks(hook_facts(*facts))]
    script.write_text("jq . > .ai/STATE.json", encoding="utf-8")
    assert ["warning"] == [one.severity for one in check_hooks(hook_facts(*facts))]


def test_a_command_cannot_paint_the_terminal(tmp_path: Path) -> None:
    """It is a stranger's text."""
    _settings(tmp_path, "orchestrator \x1b[2J" + "x" * 500)
    (finding,) = check_hooks(hook_facts(str(tmp_path), []))

    assert "\x1b" not in finding.what
    assert len(finding.what) < 300
