"""`handoffd backlog import`: files and folders of stories, and what is wrong with them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import LIMIT_S, Commands, cells, environment
from tests.support.controlled import Controlled

from handoffd.cli.stories.backlog import import_report
from handoffd.cli.stories.sources import found_in
from handoffd.engine.decision import Accepted, AskedFor, Refusal
from handoffd.engine.events import BacklogAdded
from handoffd.errors import InvalidFile, NotFound


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two stories, and files that are none."""
    stories = tmp_path / "stories"
    (stories / "deeper").mkdir(parents=True)
    (stories / "b-refunds.md").write_text("Pay back.")
    (stories / "a-cards.MD").write_text(
        "---\nid: GC-1\npriority: 5\nblocked_by: [GC-0]\n---\n# Gift cards\n\nGive."
    )
    (stories / ".hidden.md").write_text("x")
    (stories / "notes.txt").write_text("x")
    (stories / "deeper" / "c.md").write_text("x")
    return stories


def added(control: Controlled) -> BacklogAdded:
    """Return the import that reached the project."""
    ((root, event),) = control.supervision.given
    assert "/srv/shop" == root
    assert isinstance(event, BacklogAdded)
    return event


def test_a_folder_reaches_the_project_in_the_order_of_its_names(
    control: Controlled, handoffd: Commands, folder: Path
) -> None:
    """Each file is a story; the answer lists them."""
    control.supervision.answer = Accepted(
        step="bdd", status="pending", message="1 story added to the backlog, 1 known already",
        caller_instruction="x",
        stories=(
            AskedFor(story="GC-1", title="Gift cards", outcome="known"),
            AskedFor(story="US-4", title="\x1b[2Jrefunds", outcome="added"),
        ),
        warnings=("GC-1: text not taken",),
    )  # fmt: skip
    said = handoffd("backlog", "import", "shop", str(folder))

    cards, refunds = added(control).stories
    assert ("GC-1", 5, ("GC-0",), "Gift cards") == (
        cards.story, cards.priority, cards.blocked_by, cards.described.title,
    )  # fmt: skip
    assert ("", 0, "b-refunds", "Pay back.") == (
        refunds.story, refunds.priority, refunds.described.title, refunds.described.text,
    )  # fmt: skip
    assert not added(control).dry_run
    assert (0, "") == (said.code, said.err)
    assert ["known already", "GC-1", "Gift cards"] == cells(said.lines[1])
    assert "\x1b" not in said.out
    assert [
        "1 story added to the backlog, 1 known already",
        "  warning: GC-1: text not taken",
        "  next: handoffd backlog /srv/shop",
    ] == said.lines[3:]


def test_a_list_of_issues_comes_from_standard_input(control: Controlled) -> None:
    """As `gh issue list` prints it; `--dry-run` changes nothing, `--json` is the answer of the API."""
    issues = [
        {"number": number, "title": f"Issue {number}", "body": "", "url": f"https://x.org/{number}"}
        for number in (1, 2)
    ]
    ended = subprocess.run(
        [sys.executable, "-m", "handoffd", "backlog", "import", "shop", "-", "--dry-run", "--json"],
        env=environment(control.runtime), input=json.dumps(issues), capture_output=True, text=True,
        timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert "accepted" == json.loads(ended.stdout)["type"]
    assert added(control).dry_run
    assert ["https://x.org/1", "https://x.org/2"] == [one.described.source for one in added(control).stories]


def test_every_problem_is_listed_and_nothing_is_added(
    control: Controlled, handoffd: Commands, folder: Path
) -> None:
    """With file, line and key."""
    (folder / "c.md").write_text("---\nprio: 1\n---\nx")
    (folder / "d.md").write_bytes(b"a\n\xff")
    (folder / "e.md").write_text(" \n")
    (folder / "f.md").write_text("# b-refunds\n\nTwice.")

    said = handoffd("backlog", "import", "shop", str(folder))

    assert (1, "") == (said.code, said.out)
    for part in (
        "c.md:2: prio: unknown key (allowed: id, title, blocked_by, priority)",
        "d.md: the text of the story cannot be used: line 2 is not UTF-8",
        "e.md:1: the text of the story cannot be used: it is empty",
        f"f.md:1: 'b-refunds' is another story, too, in {folder}/b-refunds.md:1",
        "c.md # then import again; nothing was added",
    ):
        assert part in said.err
    assert [] == control.supervision.given


@pytest.mark.parametrize(("name", "kind"), [("empty", NotFound), ("gone", NotFound), ("list.json", NotFound)])
def test_where_there_is_no_story_that_is_said(tmp_path: Path, name: str, kind: type[Exception]) -> None:
    """An empty folder, no file, an empty list."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(kind):
        found_in(str(tmp_path / name))


def test_the_same_id_or_address_twice_is_a_problem(tmp_path: Path) -> None:
    """In one file, too."""
    plan = tmp_path / "plan.md"
    plan.write_text("## US-1: a\n\nx\n\n## US-1: b\n\ny\n")
    with pytest.raises(InvalidFile) as caught:
        found_in(str(plan))
    assert f"{plan}:5: 'US-1' is another story, too, in {plan}:1" in caught.value.message


def test_a_refusal_is_reported(control: Controlled, handoffd: Commands, folder: Path) -> None:
    """With exit code 1, and the next command."""
    control.supervision.answer = Refusal(
        code="BACKLOG_FULL", message="full", caller_instruction="x", next_command="handoffd backlog {project}"
    )
    said = handoffd("backlog", "import", "shop", str(folder))
    assert (1, "", "handoffd: full [BACKLOG_FULL]\n  next: handoffd backlog /srv/shop\n") == (
        said.code, said.out, said.err,
    )  # fmt: skip


def test_a_dry_run_names_the_command_that_imports() -> None:
    """What came from standard input is for the user to give again."""
    answer: Any = {
        "type": "accepted", "message": "m", "stories": [], "project": "/srv/shop", "called": "shop",
        "next_command": None,
    }  # fmt: skip
    assert "  next: handoffd backlog import shop plan.md" == import_report(answer, dry_run="plan.md")[-1]
    assert "m" == import_report(answer, dry_run="-")[-1]
    assert "  next: handoffd backlog shop" == import_report(answer)[-1]
