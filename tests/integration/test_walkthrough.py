"""The commands of the tutorials and of two how-to pages, typed as they are there.

A shell types them in a home of its own, with the real program and a real daemon, started in place of a unit.
The screens of tutorial and README are held against a real terminal.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.installing import FOR_A_PERSON
from tests.support.reader import AT_A_FLOW, AT_NIGHT, AT_SOME_NIGHT, Person
from tests.support.screens import PICTURE, pictured, texts_of
from tests.support.walks import FLOW, INSTALL, OWN_MACHINE, PIPELINES, TUTORIAL, is_like, screens, typed

from handoffd.cli.wording import unstyled

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, FOR_A_PERSON]


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    """A user; a daemon that they leave behind is ended."""
    with tempfile.TemporaryDirectory(prefix="handoffd-") as sockets:  # pytest's folders are too deep for one
        user = Person(tmp_path, Path(sockets))
        yield user
        user.types("handoffd stop --executors || true")


def test_each_command_works_in_its_order_and_the_last_leave_nothing(person: Person) -> None:
    """From the installation to a story in a workspace, and back; the projects stay."""
    commands = typed(OWN_MACHINE)
    page = dict(screens(INSTALL.read_text(encoding="utf-8")))

    seen = person.sees(commands)

    assert [(command, 0) for command in commands] == [(shown.command, shown.code) for shown in seen], seen[-1]
    told = [line for shown in seen for line in shown.text]
    assert any("handoffd.yaml can be used" in line for line in told)
    assert "now in effect: test.command" in told
    (status,) = (shown.text for shown in seen if shown.command == "handoffd status")
    assert is_like(map(person.lasting, page["handoffd status"]), map(person.lasting, status)), status
    assert (person.home / "projects/shop/.ai/STATE.json").exists()
    left = (".secrets", ".config/handoffd", ".config/systemd/user/handoffd.service", ".local/state/handoffd")
    assert [] == [name for name in left if (person.home / name).exists()]


def test_the_tutorial_leads_through_a_night(person: Person) -> None:
    """Each screen is what a terminal shows; the reader's branch has the story that was reviewed twice.

    Nothing else has changed for the reader's git.
    """
    person.has(AT_NIGHT)
    page = list(screens(TUTORIAL.read_text(encoding="utf-8")))

    seen = person.sees([*(command for command, _ in page), "git log -1 --format=%s", "git status --short"])

    assert len(page) + 2 == len(seen), seen[-1]
    assert [] == [
        (command, shown.text)
        for (command, lines), shown in zip(page, seen, strict=False)
        if not is_like(map(person.lasting, lines), map(person.lasting, shown.text))
    ]
    assert [["Land US-001"], []] == [shown.text for shown in seen[-2:]]
    picture = texts_of(PICTURE.read_text(encoding="utf-8"))
    assert [person.lasting(unstyled(line)) for line in pictured(seen)] == list(map(person.lasting, picture))


def test_a_first_pipeline_is_written_checked_and_counted(person: Person) -> None:
    """Each screen of the page is what a terminal shows, number by number."""
    page = list(screens(PIPELINES.read_text(encoding="utf-8")))

    seen = person.sees([command for command, _ in page])

    assert len(page) == len(seen), seen[-1]
    assert [] == [
        (command, shown.text)
        for (command, lines), shown in zip(page, seen, strict=True)
        if not is_like(lines, shown.text)
    ]


def test_a_first_flow_is_rehearsed_started_answered_and_found_on_its_branch(person: Person) -> None:
    """Each screen of the tutorial is what a terminal shows; the reader types the id of their own flow."""
    person.has(AT_A_FLOW)
    page = list(screens(FLOW.read_text(encoding="utf-8")))
    own = {"flow=page-7k2q": "flow=$(ls .ai/flows)"}

    seen = person.sees([own.get(command, command) for command, _ in page])

    assert len(page) == len(seen), seen[-1]
    assert [] == [
        (command, shown.text)
        for (command, lines), shown in zip(page, seen, strict=True)
        if not is_like(map(person.lasting, lines), map(person.lasting, shown.text))
    ]


PROJECT = """new() {
    mkdir -p ~/projects/$1/.ai && cd ~/projects/$1 && git init -q -b main
    echo "# $1" > PROJECT_CONTEXT.md && echo "- $2 A story." > PROJECT_MEMORY.md
    echo "$3" > .ai/rehearsal.json && echo 'workspace: clone' > .ai/handoffd.yaml
    git add . && git commit -qm begin && handoffd init --no-tests
}"""
UNTIL = """until_status() {
    until handoffd status $1 --json | tr -d '\\n' | grep -q "$2"; do sleep 0.1; done
}"""
SOME_NIGHT = (
    "handoffd run",
    PROJECT,
    UNTIL,
    *(f"new idle{number} US-000 {{}}" for number in range(4)),
    "new blog US-004 {} && handoffd start . US-004 --executor rehearsal",
    "new shop US-001 {} && handoffd start . US-001 --executor rehearsal",
    """new site US-012 '{"impl": "slow:600"}' && handoffd start . US-012 --executor rehearsal""",
    """new docs US-002 '{"impl": "limit:7200"}' && handoffd start . US-002 --executor rehearsal-stream""",
    *(f"""until_status {one} '"gate": true' && handoffd approve {one}""" for one in ("shop", "site", "docs")),
    *(f"until_status {name} '{text}'" for name, text in (
        ("blog", '"gate": true'), ("shop", "handoffd land"), ("site", "still at it"), ("docs", "usage limit"),
    )),
)  # fmt: skip
"""What the README's projects went through before it asks for their status."""


def test_the_readme_shows_the_status_of_some_projects_as_it_is(person: Person) -> None:
    """With a story that waits for a person, and ones that land, work, wait and rest."""
    person.has(AT_SOME_NIGHT)
    ((command, page),) = screens((ROOT / "README.md").read_text(encoding="utf-8"))

    *_, shown = person.sees([*SOME_NIGHT, command])

    assert ("handoffd status", 0) == (shown.command, shown.code), shown
    assert is_like(map(person.lasting, page), map(person.lasting, shown.text)), shown.text
