"""`handoffd backlog` and `handoffd auto`."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from tests.support.commands import Commands
from tests.support.controlled import Controlled
from tests.support.supervision import queued_view

from handoffd.api.verbs import VERBS
from handoffd.cli.stories.backlog import report
from handoffd.cli.wording import no_daemon
from handoffd.engine.events import Approved

AT = datetime(2026, 1, 31, 22, 0, tzinfo=UTC).isoformat()


# --- backlog ----------------------------------------------------------------------------------------
def test_queued_stories_are_shown(control: Controlled, handoffd: Commands) -> None:
    """Each with the reason why it does not start."""
    said = handoffd("backlog", "shop")

    assert (0, "") == (said.code, said.err)
    assert "shop: US-001 is in flight" == said.lines[0]
    assert "US-2" in said.lines[2]
    assert said.lines[3].endswith("waits for US-2 (in the backlog)")
    assert "handoffd backlog auto shop on" in said.out


def test_programs_get_the_answer_of_the_api(control: Controlled, handoffd: Commands, here: Path) -> None:
    """All of it; the project is the current folder unless it is named."""
    control.supervision.projects[str(here)] = control.supervision.projects["/srv/shop"]
    answer = handoffd("backlog", "--json").json

    assert str(here) == answer["project"]
    assert ("US-2", False, None) == (answer["next_story"], answer["auto_continue"], answer["chosen"])
    assert [("US-2", 5, True), ("US-3", 0, False)] == [
        (one["story"], one["priority"], one["startable"]) for one in answer["stories"]
    ]


def test_the_help_of_the_group_has_its_verbs(handoffd: Commands) -> None:
    """Each in a line of its own."""
    said = handoffd("backlog", "--help")

    assert 0 == said.code
    for verb in VERBS:
        if verb.startswith("backlog_"):
            assert f"  {verb.removeprefix('backlog_')} " in said.out


def answer(*stories: Any, **changes: Any) -> dict[str, Any]:
    """Return an answer of the API with `changes`."""
    values = {
        "project": "/srv/shop", "name": "shop", "daemon": True, "story": None, "auto_continue": False,
        "chosen": None, "paused_by": None, "next_story": stories[0].story if stories else None,
        "next_command": "handoffd continue /srv/shop",
        "stories": [{**to_builtins(story), "at": AT} for story in stories],
    }  # fmt: skip
    return {**values, **changes}


def test_an_empty_backlog_has_the_command_that_fills_it() -> None:
    """And says that nothing is in flight."""
    lines = report(answer(next_command=None))
    fill = "No story waits: handoffd start shop STORY STORY"
    assert ["shop: no story is in flight", fill] == lines[:2]


def test_each_story_has_its_line() -> None:
    """Place, priority, size, who asked for it, and when it starts."""
    lines = report(
        answer(
            queued_view("US-2", 1, priority=5, complexity="L", by="mei"),
            queued_view("US-3", 2, schedule="nightly", by="x"),
            queued_view("US-4", 3, waits_for="waits for US-9 (never started)", startable=False),
        )
    )
    assert ["STORY", "PRIORITY", "SIZE"] == lines[1].split()[:3]
    assert ["1", "US-2", "5", "L"] == lines[2].split()[:4]
    assert (True, True) == ("mei" in lines[2], "schedule nightly" in lines[3])
    for line, when in zip(
        lines[2:], ("next", "when its turn comes", "waits for US-9 (never started)"), strict=False
    ):
        assert line.endswith(when)


def test_what_follows_is_explained_with_the_command_that_changes_it() -> None:
    """The next story starts by itself or with `continue`; in a paused project none starts."""
    one = queued_view("US-2", 1)
    assert [
        "The next story waits for `continue`, the default of the settings (handoffd backlog auto shop on).",
        "  next: handoffd continue shop",
    ] == report(answer(one))[-2:]
    assert (
        "The next story starts by itself, as chosen by `backlog auto` (handoffd backlog auto shop off)."
        == report(answer(one, auto_continue=True, chosen=True, next_by_itself=True))[-1]
    )
    fresh = report(answer(one, next_command="handoffd start /srv/shop US-2"))
    assert [
        "The first story waits for `start`. A later one waits for `continue`, the default of the settings"
        " (handoffd backlog auto shop on).",
        "  next: handoffd start shop US-2",
    ] == fresh[-2:]
    paused = report(answer(one, paused_by="mei"))
    assert "No story starts: the project was paused by mei." in paused
    assert no_daemon() == report(answer(daemon=False))[-1]


def test_a_scheduled_story_is_set_apart_from_those_that_wait_for_a_continue() -> None:
    """A person types nothing that is not needed, and sees why another story goes first."""
    night = queued_view("NIGHT", 2, schedule="nightly")
    lines = report(answer(queued_view("US-2", 1), night, next_story="NIGHT", next_by_itself=True))
    assert (True, True) == (lines[2].endswith("when its turn comes"), lines[3].endswith("next"))
    assert [
        "NIGHT starts by itself: a schedule queued it.",
        "Any other waits for `continue`, the default of the settings (handoffd backlog auto shop on).",
    ] == lines[-2:]


# --- auto -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "words", ["shop approve", "/srv/shop approve", "approve @shop", "'shop: approve'", "shop 核准"]
)
def test_a_message_becomes_a_verb(control: Controlled, handoffd: Commands, words: str) -> None:
    """The project is before the text or in it, by name or by path."""
    said = handoffd("auto", *shlex.split(words))

    assert (0, "") == (said.code, said.err)
    [(root, verb)] = control.supervision.given
    assert ("/srv/shop", True) == (root, isinstance(verb, Approved))


def test_a_text_needs_no_quotes(control: Controlled, handoffd: Commands) -> None:
    """Its words are put together."""
    said = handoffd("auto", "what", "is", "the", "status", "of", "shop", "--json")

    assert ("query", "/srv/shop") == (said.json["action"], said.json["project"])


def test_the_report_is_in_the_chosen_language(control: Controlled, handoffd: Commands) -> None:
    """Else in the message's own."""
    assert "審查已核准 ✓" == handoffd("auto", "shop", "approve", "--language", "zh-TW").lines[0]
    assert "審查已核准 ✓" == handoffd("auto", "shop", "核准").lines[0]
    assert 2 == handoffd("auto", "shop", "approve", "--language", "tlh").code


def test_what_could_not_be_done_is_an_error(control: Controlled, handoffd: Commands) -> None:
    """On standard error; it names the verb that was understood."""
    said = handoffd("auto", "shop", "approve US-9")

    assert (1, "") == (said.code, said.out)
    assert "Understood: approve" in said.err
    assert 1 == handoffd("auto", "shop", "approve US-9", "--json").code


def test_a_prompt_follows_the_report(control: Controlled, handoffd: Commands, tmp_path: Path) -> None:
    """An agent carries it out."""
    said = handoffd("auto", str(tmp_path), "review the project")

    assert "a prompt for a read-only review session; give it to an agent" == said.lines[0]
    assert len(said.lines) > 3


def test_auto_works_without_a_daemon(alone: Path, handoffd: Commands, tmp_path: Path) -> None:
    """A question leaves no trace; a start hands out a prompt, and `continue` applies the hand-off."""
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "PROJECT_CONTEXT.md").write_text("A shop.\n")

    def auto(text: str) -> Any:
        return handoffd("auto", str(shop), text, "--json").json

    asked = auto("狀態")
    assert ("query", "not_initialized") == (asked["action"], asked["result"]["status"])
    assert ["PROJECT_CONTEXT.md"] == [path.name for path in shop.iterdir()]

    taken = auto("開始 US-001")
    assert ("dispatched", "bdd", 1) == (taken["action"], taken["result"]["step"], taken["result"]["attempt"])
    assert taken["result"]["prompt"]
    assert "running" == json.loads((shop / ".ai/STATE.json").read_text())["status"]
    assert "already_running" == auto("繼續")["action"]

    (shop / ".ai/HANDOFF.md").write_text(
        "---\nstory: US-001\nstep: bdd\nattempt: 1\nstatus: pass\n---\nDone.\n"
    )
    said = handoffd("auto", str(shop), "繼續")
    assert ["US-001 情境完成 ✓ 進入規格差異", "US-001 規格差異第 1 次：提示詞在這裡"] == said.lines[:2]


def test_a_misspelt_name_before_a_text_is_not_found(control: Controlled, handoffd: Commands) -> None:
    """As a part of the text, it would start work in the current folder."""
    said = handoffd("auto", "shpo", "start US-1")

    assert (4, []) == (said.code, control.supervision.given)
    assert "'shpo'" in said.err
    assert "handoffd projects" in said.err


def test_words_without_quotes_start_nothing_in_a_folder_that_is_not_a_project(
    control: Controlled, handoffd: Commands, here: Path
) -> None:
    """The first of them may be meant as a name."""
    said = handoffd("auto", "shpo", "add", "a", "footer", "--json")
    asked = handoffd("auto", "shpo", "start", "US-1", "--json")

    assert (1, "PROJECT_MISSING") == (said.code, said.json["result"]["code"])
    assert (0, "unclear") == (asked.code, asked.json["intent"]["kind"])
    assert ([], []) == (control.supervision.given, list(here.iterdir()))


def test_a_projects_own_folder_need_not_be_named(control: Controlled, handoffd: Commands, here: Path) -> None:
    """It has a STATE.json, whether or not a daemon supervises it."""
    (here / ".ai").mkdir()
    (here / ".ai/STATE.json").write_text("{}")

    assert str(here) == handoffd("auto", "status", "--json").json["project"]


@pytest.mark.parametrize("words", [("fix the login",), ("start", "US-1"), ("CC, fix it",), ("init project",)])
def test_work_does_not_begin_in_a_folder_that_was_not_named(
    control: Controlled, handoffd: Commands, here: Path, words: tuple[str, ...]
) -> None:
    """Although it is the current one, and looks like a project: the answer shows how to name it."""
    (here / "package.json").write_text("{}")

    said = handoffd("auto", *words, "--json")

    assert (1, []) == (said.code, control.supervision.given)
    assert "FOLDER_NOT_NAMED" == said.json["result"]["code"]
    assert f"handoffd auto {here} " in said.json["report"]
    assert ["package.json"] == [path.name for path in here.iterdir()]


def test_opening_a_project_is_a_question(control: Controlled, handoffd: Commands, here: Path) -> None:
    """It changes neither that project nor the current folder."""
    (here / "package.json").write_text("{}")

    for text in (["開啟專案 shop"], ["open project shop"], ["打開 shop"], ["open", "shop"]):
        said = handoffd("auto", *text, "--json")
        assert ("query", "/srv/shop") == (said.json["action"], said.json["project"]), text
    assert [] == control.supervision.given


def test_a_word_of_the_text_is_not_a_folder(control: Controlled, handoffd: Commands, here: Path) -> None:
    """Unless the folder of that name is a project."""
    (here / "docs").mkdir()

    def project() -> object:
        return handoffd("auto", "docs", "status", "please", "--json").json["project"]

    assert str(here / "docs") != project()
    (here / "docs/go.mod").touch()
    assert str(here / "docs") == project()
