"""Verbs and reads without a daemon: the real parts, in this process."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.support.commands import Commands, environment, program

from handoffd.entrance import offline
from handoffd.entrance.place import Place
from handoffd.errors import Locked, StoreError
from handoffd.files.locks import acquire, daemon_lock_path
from handoffd.settings.model import Settings


@pytest.fixture
def settings(alone: Path) -> Settings:
    """The settings of a daemon that does not run."""
    return Place(config=None, environ=environment(alone)).settings()


@pytest.fixture
def root(alone: Path) -> Path:
    """A project that has its context."""
    folder = alone / "shop"
    folder.mkdir()
    (folder / "PROJECT_CONTEXT.md").write_text("a shop", encoding="utf-8")
    return folder


def test_a_story_can_be_started_and_looked_at(root: Path, handoffd: Commands) -> None:
    """Nothing is dispatched, and every command says that no daemon runs."""
    said = handoffd("start", str(root), "US-1")
    assert [
        "US-1 starts at bdd (bdd, pending)",
        "No daemon runs: `handoffd run` goes on from here.",
    ] == said.lines

    told = handoffd("status", str(root), "--json").json
    assert (False, "bdd", "pending") == (
        told["daemon"], told["projects"][0]["tracks"][0]["step"], told["projects"][0]["tracks"][0]["status"],
    )  # fmt: skip
    assert "bdd" == json.loads((root / ".ai/STATE.json").read_text(encoding="utf-8"))["step"]
    assert ["initialised", "started"] == [
        json.loads(line)["kind"] for line in handoffd("events", "--json").lines
    ]
    assert ["Nothing has run yet."] == handoffd("runs").lines
    assert "# shop: " in handoffd("peek", str(root)).out


def test_a_folder_that_is_silent_is_not_looked_into(root: Path, settings: Settings) -> None:
    """What the journal knows of the project is told all the same."""
    offline.give(settings, "start", str(root), {"story": "US-1"}, "eve")
    (root / ".ai/STATE.json").write_text("broken", encoding="utf-8")

    def condition(*silent: str) -> str:
        told = offline.look(settings, lambda service: service.status(), frozenset(silent))
        (project,) = told["projects"]
        assert "US-1" == project["tracks"][0]["story"]
        return str(project["condition"])

    assert ("invalid_state", "ok") == (condition(), condition(str(root)))


def test_a_look_needs_no_lock_and_changes_nothing(root: Path, settings: Settings) -> None:
    """It works beside a daemon that holds the lock, and cannot write."""
    offline.give(settings, "start", str(root), {"story": "US-1"}, "eve")
    (root.parent / "new").mkdir()

    with acquire(daemon_lock_path(settings.state_dir), "a test"):
        told = offline.look(settings, lambda service: service.status())
        with pytest.raises(StoreError):
            offline.look(settings, lambda service: service.add(str(root.parent / "new")))

    assert "bdd" == told["projects"][0]["tracks"][0]["step"]


def test_a_verb_keeps_nothing_open(root: Path, settings: Settings) -> None:
    """A process may give many, one after the other."""
    offline.give(settings, "start", str(root), {"story": "US-1"}, "eve")
    before = set(os.listdir("/proc/self/fd"))

    offline.give(settings, "note", str(root), {"text": "Hello."}, "eve")

    assert before == set(os.listdir("/proc/self/fd"))


def test_a_story_begins_where_another_tool_left_a_state(root: Path, settings: Settings) -> None:
    """The project was not supervised; its STATE.json is adopted first."""
    (root / ".ai").mkdir()
    state = {"project": "shop", "story": "US-1", "step": "done", "status": "pass"}
    (root / ".ai/STATE.json").write_text(json.dumps(state))

    answer = offline.give(settings, "start", str(root), {"story": "US-2"}, "eve")

    assert ("accepted", "bdd") == (answer["type"], answer["step"])


def test_a_verb_needs_the_lock(root: Path, settings: Settings) -> None:
    """While a daemon has it, the daemon is to be asked."""
    settings.state_dir.mkdir()
    with acquire(daemon_lock_path(settings.state_dir), "a test"), pytest.raises(Locked):
        offline.give(settings, "start", str(root), {"story": "US-1"}, "eve")


WRONG = {".ai/handoffd.yaml": "language: en\nauto: [\n", ".ai/step-rules.yaml": "steps:\n- impl\n"}


@pytest.mark.parametrize("file", WRONG)
@pytest.mark.parametrize("words", [("add",), ("init",), ("start", "US-1"), ("trust",), ("rules", "check")])
def test_a_file_that_is_wrong_always_has_an_editor(
    root: Path, handoffd: Commands, words: tuple[str, ...], file: str
) -> None:
    """Whoever finds it: the place in full, and every problem for programs."""
    if words == ("trust",):
        handoffd("add", str(root))
    (root / ".ai").mkdir(exist_ok=True)
    (root / file).write_text(WRONG[file], encoding="utf-8")
    verb, *rest = words
    named = [verb, *rest, str(root)] if verb == "rules" else [verb, str(root), *rest]

    told = handoffd(*named, "--json").json

    assert "INVALID_FILE" == told["code"]
    line = told["problems"][0]["line"]
    place = "" if line is None else f"+{line} "
    assert f"${{EDITOR:-vi}} {place}{root}/{file}" == told["hint"]
    assert all({"file", "line", "key", "message", "allowed"} == set(one) for one in told["problems"])
    assert file == told["problems"][0]["file"]


def test_a_look_tells_of_what_is_wrong_on_the_disk(root: Path, settings: Settings) -> None:
    """A STATE.json that cannot be read, a project that is gone."""
    offline.give(settings, "start", str(root), {"story": "US-1"}, "eve")

    def condition() -> str:
        found: str = offline.look(settings, lambda service: service.status())["projects"][0]["condition"]
        return found

    (root / ".ai/STATE.json").write_text("{broken", encoding="utf-8")
    assert "invalid_state" == condition()
    root.rename(root.with_name("elsewhere"))
    assert "missing" == condition()


def test_gates_stay_shut_for_executors_without_a_daemon_too(root: Path) -> None:
    """The guard is the same."""
    said = program("approve", str(root), "--json", env=environment(root.parent, HANDOFFD_RUN="d1"))

    assert (1, "INSIDE_EXECUTOR") == (said.code, said.json["code"])
