"""Verbs and reads without a daemon: the real parts, in this process."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.support.commands import Commands, environment, program
from tests.support.refusals import refused

from handoffd.entrance import offline
from handoffd.entrance.offline import peek
from handoffd.entrance.place import Place
from handoffd.errors import InvalidFile, Locked, StoreError
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


@pytest.fixture
def begun(root: Path, settings: Settings) -> Path:
    """The project with a story."""
    offline.give(settings, "start", str(root), {"story": "US-1"}, "eve")
    return root


def test_the_name_of_a_project_is_no_story_of_the_current_folder(
    begun: Path, alone: Path, handoffd: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused before the folder becomes a project; also the project's own name, in its folder."""
    other = alone / "other"
    other.mkdir()
    for folder in (other, begun):
        monkeypatch.chdir(folder)
        for verb, name in (("start", "STORY"), ("note", "TEXT"), ("backlog move", "STORY")):
            said = handoffd(*verb.split(), "shop", "--json")
            told = (said.json["code"], said.json["hint"])
            assert (1, ("BAD_ARGUMENT", f"handoffd {verb} shop {name}")) == (said.code, told)
    assert [] == list(other.iterdir())
    assert ["shop"] == [one["name"] for one in handoffd("projects", "--json").json["projects"]]


def test_a_story_that_the_project_here_has_is_meant(
    begun: Path, alone: Path, handoffd: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though a project has the same name."""
    (alone / "US-1").mkdir()
    handoffd("add", str(alone / "US-1"))
    monkeypatch.chdir(begun)

    assert "US-1 is in flight at bdd [ALREADY_RUNNING]" in handoffd("start", "US-1").err
    assert "'US-1' names a project, and TEXT is missing: the note" in handoffd("note", "US-1").err


def test_a_story_can_be_started_and_looked_at(root: Path, handoffd: Commands) -> None:
    """Nothing is dispatched, and every command says that no daemon runs."""
    said = handoffd("start", str(root), "US-1")
    first, held, *rest = said.lines
    assert held.startswith("  sandbox: ")
    assert [
        "US-1 starts at bdd (bdd, pending)",
        "  warning: nothing describes US-1: it has no text, PROJECT_MEMORY.md and docs/bdd/US-1.md say "
        "nothing of it",
        "No daemon runs: `handoffd run` goes on from here.",
    ] == [first, *rest]

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


def test_a_look_finds_what_is_wrong_on_the_disk(begun: Path, settings: Settings) -> None:
    """A broken STATE.json or a lost project, unless its folder is silent; and always the journal's story."""

    def condition(*silent: str) -> str:
        told = offline.look(settings, lambda service: service.status(), frozenset(silent))
        (project,) = told.projects
        assert "US-1" == project.tracks[0].story
        return project.condition

    (begun / ".ai/STATE.json").write_text("{broken", encoding="utf-8")
    assert ("invalid_state", "ok") == (condition(), condition(str(begun)))
    begun.rename(begun.with_name("elsewhere"))
    assert "missing" == condition()


def test_a_look_needs_no_lock_and_changes_nothing(begun: Path, settings: Settings) -> None:
    """It works beside a daemon that holds the lock, and cannot write; a verb needs the lock."""
    (begun.parent / "new").mkdir()

    with acquire(daemon_lock_path(settings.state_dir), "a test"):
        told = offline.look(settings, lambda service: service.status())
        with pytest.raises(StoreError):
            offline.look(settings, lambda service: service.add(str(begun.parent / "new")))
        with pytest.raises(Locked):
            offline.give(settings, "note", str(begun), {"text": "Hello."}, "eve")

    assert "bdd" == told.projects[0].tracks[0].step


def test_a_look_at_a_daemon_that_starts_for_the_first_time_finds_nothing_yet(settings: Settings) -> None:
    """Its journal is a file before it has tables."""
    settings.state_dir.mkdir(parents=True)
    settings.journal.touch()

    assert [] == [*offline.look(settings, lambda service: service.status()).projects]
    assert 0 == settings.journal.stat().st_size


def test_a_verb_keeps_nothing_open(begun: Path, settings: Settings) -> None:
    """A process may give many, one after the other."""
    before = set(os.listdir("/proc/self/fd"))

    offline.give(settings, "note", str(begun), {"text": "Hello."}, "eve")

    assert before == set(os.listdir("/proc/self/fd"))


def test_a_story_begins_where_another_tool_left_a_state(root: Path, settings: Settings) -> None:
    """The project was not supervised; its STATE.json is adopted first."""
    (root / ".ai").mkdir()
    state = {"project": "shop", "story": "US-1", "step": "done", "status": "pass"}
    (root / ".ai/STATE.json").write_text(json.dumps(state))

    answer = offline.give(settings, "start", str(root), {"story": "US-2"}, "eve")

    assert ("accepted", "bdd") == (answer["type"], answer["step"])


WRONG = {".ai/handoffd.yaml": "language: en\nauto: [\n", ".ai/step-rules.yaml": "steps:\n- impl\n"}


@pytest.mark.parametrize("file", WRONG)
@pytest.mark.parametrize("words", [("add",), ("init",), ("start", "US-1"), ("trust",), ("rules", "check")])
def test_a_file_that_is_wrong_always_has_an_editor(
    root: Path, handoffd: Commands, words: tuple[str, ...], file: str
) -> None:
    """For each verb that reads it: the command with the line, and every problem for programs."""
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
    assert all({"file", "line", "key", "message", "allowed", "meant"} == set(one) for one in told["problems"])
    assert file == told["problems"][0]["file"]


def test_gates_stay_shut_for_executors_without_a_daemon_too(root: Path) -> None:
    """The guard is the same."""
    said = program("approve", str(root), "--json", env=environment(root.parent, HANDOFFD_RUN="d1"))

    assert (1, "INSIDE_EXECUTOR") == (said.code, said.json["code"])


# --- a look at a folder that is not supervised -------------------------------------------------------
BDD = '{"project": "shop", "story": "US-2", "step": "bdd", "status": "pending"}'


def shop(folder: Path, state: str) -> str:
    """Make a project with this STATE.json, and return its root."""
    (folder / ".ai").mkdir()
    (folder / ".ai/STATE.json").write_text(state)
    return str(folder)


def files(folder: Path) -> dict[Path, tuple[bytes, int]]:
    """Return every file below a folder, with when it was written."""
    return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


def test_a_peek_shows_the_prompt_and_changes_nothing(tmp_path: Path) -> None:
    """The prompt names no dispatch: there is none."""
    root = shop(tmp_path, BDD)
    before = files(tmp_path)

    seen = peek(root, "en")

    assert ("bdd", 1, "dispatched") == (seen["step"], seen["attempt"], seen["result"]["type"])
    assert "US-2" in seen["prompt"]
    assert "dispatch: null" in seen["prompt"]
    assert ["PROJECT_CONTEXT.md is missing", "PROJECT_MEMORY.md is missing"] == seen["warnings"]
    assert before == files(tmp_path)


@pytest.mark.parametrize(
    ("more", "kind", "step"),
    [
        ('"step": "contract", "status": "pass"', "needs_human", "review"),
        ('"step": "update-memory", "status": "pass"', "done", "done"),
        ('"step": "impl", "status": "pending", "blocked_by": ["US-9"]', "blocked", "impl"),
        ('"step": "impl", "status": "pending", "blocked_by": ["US-1"]', "dispatched", "impl"),
        ('"step": "impl", "status": "failing", "max_attempts": 5', "dispatched", "impl"),
        ('"step": "impl", "status": "running"', "already_running", "impl"),
    ],
)
def test_a_peek_has_the_outcome_of_the_next_turn(tmp_path: Path, more: str, kind: str, step: str) -> None:
    """Stories that were done before count; a command in the answer is for this project."""
    root = shop(tmp_path, f'{{"project": "shop", "story": "US-2", {more}}}')
    (tmp_path / "PROJECT_MEMORY.md").write_text("## DONE\n- US-1: prices\n")

    seen = peek(root, "en")

    assert (kind, step) == (seen["result"]["type"], seen["step"])
    assert (kind in {"dispatched", "already_running"}) == (seen["prompt"] is not None)
    assert "{project}" not in str(seen)


@pytest.mark.parametrize(("context", "step"), [(False, "bootstrap"), (True, "bdd")])
def test_a_peek_without_a_story_has_no_prompt(tmp_path: Path, context: bool, step: str) -> None:
    """The step is the one at which it would begin."""
    root = shop(tmp_path, '{"project": "shop", "step": "bootstrap", "status": "pending"}')
    if context:
        (tmp_path / "PROJECT_CONTEXT.md").write_text("A shop.\n")

    seen = peek(root, "en")

    assert ("blocked", step, None) == (seen["result"]["type"], seen["step"], seen["prompt"])


def test_a_peek_uses_the_files_of_the_project(tmp_path: Path) -> None:
    """Its table and its language; without the latter, the given one."""
    root = shop(tmp_path, BDD.replace("bdd", "audit"))
    (tmp_path / ".ai/step-rules.yaml").write_text(
        "steps:\n  bdd: {next_on_pass: audit}\n"
        "  audit: {next_on_pass: done, next_on_fail: bdd, step_instruction: {en: Count the cents.}}\n"
    )
    assert "Count the cents." in peek(root, "en")["prompt"]
    assert "步驟：audit" in peek(root, "zh-TW")["prompt"]
    (tmp_path / ".ai/handoffd.yaml").write_text("language: zh-TW\n")
    assert "步驟：audit" in peek(root, "en")["prompt"]


def test_a_peek_needs_a_state(tmp_path: Path) -> None:
    """With a meaning."""
    with refused("NOT_INITIALIZED"):
        peek(str(tmp_path), "en")
    with pytest.raises(InvalidFile):
        peek(shop(tmp_path, BDD.replace("pending", "finished")), "en")
