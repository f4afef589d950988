"""Which project an agent works in, what a first look finds there, and whether a hand-off may need checks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.hooking import standing

from handoffd.api.folders import settings_text
from handoffd.hooks.project import MAX_BYTES, TESTED_STEPS, concluded, find_root, look, may_be_checked
from handoffd.inspection.suites import Suites
from handoffd.protocol.rule_merge import Layer
from handoffd.protocol.rulebook import build_rulebook
from handoffd.settings.paths import shared


def test_the_nearest_project_upwards_is_found(tmp_path: Path) -> None:
    """Also from a folder that was removed, and through a link."""
    outer = standing(tmp_path / "outer")
    inner = standing(outer / "packages/inner")
    (inner / "src").mkdir()
    (tmp_path / "link").symlink_to(inner / "src")

    for folder in (inner / "src", inner / "src/gone/deeper", tmp_path / "link"):
        assert str(inner) == find_root(str(folder), "/home/eve")
    assert str(outer) == find_root(str(outer / "packages"), "/home/eve")
    assert find_root(str(tmp_path), "/home/eve") is None


def test_the_search_ends_at_home(tmp_path: Path) -> None:
    """A project above it belongs to another user; a home that is a project is found."""
    standing(tmp_path)
    home = tmp_path / "home"
    (home / "code").mkdir(parents=True)

    assert find_root(str(home / "code"), str(home)) is None
    assert str(tmp_path) == find_root(str(tmp_path / "home"), str(tmp_path))


@pytest.mark.skipif(not os.path.ismount("/proc"), reason="needs a second file system")
def test_the_search_ends_at_the_file_system() -> None:
    """A folder on another file system does not belong to a project on this one."""
    assert find_root("/proc/self", "/home/eve") is None


def test_a_look_finds_the_state_and_the_time_of_the_handoff(tmp_path: Path) -> None:
    """The later time of the two files of a hand-off; a status that is not text is empty."""
    root = standing(tmp_path)
    nothing = look(str(root))
    for name, written_ns in (("HANDOFF.md", 5), ("executor-result", 7)):
        (root / ".ai" / name).write_text("x", encoding="utf-8")
        os.utime(root / ".ai" / name, ns=(written_ns, written_ns))
    found, odd = look(str(root)), look(str(standing(tmp_path, status=["running"])))

    assert nothing is not None
    assert found is not None
    assert odd is not None
    assert ("running", None) == (nothing.status, nothing.written_ns)
    assert ("bdd", 7) == (found.state["step"], found.written_ns)
    assert "" == odd.status


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "[" * 100_000, " " * (MAX_BYTES + 1) + "{}"])
def test_a_state_that_cannot_be_read_is_ignored(tmp_path: Path, text: str) -> None:
    """The daemon reports it."""
    standing(tmp_path)
    (tmp_path / ".ai/STATE.json").write_text(text, encoding="utf-8")

    assert look(str(tmp_path)) is None


def test_nothing_is_read_through_a_link_or_from_a_pipe(tmp_path: Path) -> None:
    """A pipe would keep the agent waiting for ever."""
    real = standing(tmp_path / "real")
    linked, piped, other = tmp_path / "linked", tmp_path / "piped", tmp_path / "other"
    linked.mkdir()
    (linked / ".ai").symlink_to(real / ".ai")
    for root in (piped, other):
        (root / ".ai").mkdir(parents=True)
    os.mkfifo(piped / ".ai/STATE.json")
    (other / ".ai/STATE.json").symlink_to(real / ".ai/STATE.json")

    assert [None, None, None] == [look(str(root)) for root in (linked, piped, other)]
    assert [None, None] == [find_root(str(root), "/home/eve") for root in (piped, other)]


# --- whether a hand-off may need checks --------------------------------------------------------------
def test_the_tested_steps_are_those_of_the_shipped_table() -> None:
    """A project without rules of its own has that table; nothing in it has a post_check."""
    table = shared("config", "step-rules.yaml").read_text("utf-8")
    rules = build_rulebook([Layer("config/step-rules.yaml", table)])

    assert TESTED_STEPS == {name for name, rule in rules.steps.items() if rule.tests is not None}
    assert not [name for name, rule in rules.steps.items() if rule.post_check]


@pytest.mark.parametrize(
    ("name", "text", "step", "may"),
    [
        ("handoffd.yaml", settings_text(Suites()), "impl", False),
        ("handoffd.yaml", "", "impl", False),
        ("handoffd.yaml", "# preset: go\n# test:\n#   command: [make, test]\n", "impl", False),
        ("handoffd.yaml", "test:\n  command: [make, test]\n", "bdd", False),
        ("handoffd.yaml", "test:\n  command: [make, test]\n", "impl", True),
        ("handoffd.yaml", "preset: go\n", "bdd", True),
        ("handoffd.yaml", '"pre\\x73et": go\n', "bdd", True),
        ("step-rules.yaml", "steps:\n  bdd:\n    max_attempts: 4\n", "bdd", False),
        ("step-rules.yaml", "steps:\n  bdd:\n    post_check: make lint\n", "bdd", True),
        ("step-rules.yaml", "steps:\n  bdd: {tests: green}\n", "bdd", True),
        ("step-rules.yaml", "\udcff", "bdd", True),
        ("step-rules.yaml", " " * 300_000, "bdd", True),
    ],
)
def test_words_decide(tmp_path: Path, name: str, text: str, step: str, may: bool) -> None:
    """Comments do not count; a file that cannot be searched may say anything."""
    (tmp_path / ".ai").mkdir()
    (tmp_path / ".ai" / name).write_text(text, encoding="utf-8", errors="surrogateescape")

    assert may == may_be_checked(str(tmp_path), step)


def test_a_link_is_not_followed_and_may_say_anything(tmp_path: Path) -> None:
    """A project without any file of ours has no checks."""
    assert not may_be_checked(str(tmp_path), "impl")
    (tmp_path / ".ai").mkdir()
    os.symlink("/dev/null", tmp_path / ".ai/step-rules.yaml")

    assert may_be_checked(str(tmp_path), "bdd")


@pytest.mark.parametrize("kind", ["taken", "stale"])
def test_a_handoff_whose_checks_ended_meanwhile_counts_as_applied(kind: str) -> None:
    """Asked again, the daemon answers `taken` (`stale` in older releases). Other answers stay."""
    state = {"step": "impl", "attempt": 2, "status": "pass"}
    told = concluded({"type": kind, "message": "taken already", "state": state})

    assert {"type": "applied", "message": "impl attempt 2 is pass", "state": state} == told
    assert {"type": "pending"} == concluded({"type": "pending"})
    assert concluded(None) is None
