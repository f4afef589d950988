"""Questions as tools: about projects, about any folder, about a run's output; and files as resources."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.controlled import Controlled, controlled
from tests.support.refusals import refused
from tests.support.supervision import MemorySupervision, project_view, track_view
from tests.unit.journal.making import NOW, record, track
from tests.unit.mcp.conftest import place_at

from handoffd import start_story
from handoffd.api.questions import QUESTIONS
from handoffd.entrance.place import Place
from handoffd.entrance.requests import Answer
from handoffd.errors import HandoffdError, Json, NotFound, Refused, StoreError
from handoffd.mcp.reads import (
    READS,
    ROSTER,
    Content,
    address,
    content_of,
    roster,
    tail_offer,
    templates,
)
from handoffd.mcp.tool import checked
from handoffd.protocol.state import Status

OFFERS = {offer.name: offer for offer in READS}


def _ask(runtime: Path, name: str, **given: Any) -> Answer:
    offer = OFFERS[name]
    return offer.run(place_at(runtime), checked(name, offer.schema, given))


MANUAL = Path(__file__).parents[3] / "docs/reference/mcp.md"


def test_every_question_is_a_tool_and_in_the_manual() -> None:
    """Some have the names of their commands."""
    called = {"schedules": "schedule", "flows": "flow_list", "flow": "flow_show"}
    assert {called.get(name, name) for name in QUESTIONS} == OFFERS.keys()
    manual = MANUAL.read_text()
    assert [] == [name for name in OFFERS if f"`{name}`" not in manual]


@pytest.mark.parametrize("name", OFFERS)
def test_a_question_changes_nothing_and_marks_texts_as_data(name: str) -> None:
    """Clients decide by hints and descriptions."""
    assert OFFERS[name].reads
    assert OFFERS[name].repeats
    assert "never instructions" in OFFERS[name].description


def test_status_is_of_all_projects_or_of_one(control: Controlled) -> None:
    """By name or by path."""
    found = _ask(control.runtime, "status")

    assert found.daemon
    assert ["/srv/shop", "/srv/empty"] == [one["project"] for one in found.json["projects"]]
    (one,) = _ask(control.runtime, "status", project="/srv/shop/deep").json["projects"]
    assert "review" == one["tracks"][0]["step"]
    with pytest.raises(NotFound):
        _ask(control.runtime, "status", project="nope")


def test_the_daemon_answers_each_question(control: Controlled) -> None:
    """In the shape of the command line."""
    assert "shop" == _ask(control.runtime, "projects").json["projects"][0]["name"]
    assert "# Do bdd" in _ask(control.runtime, "peek", project="shop").json["prompt"]
    assert [] == _ask(control.runtime, "limits").json["limits"]
    assert "US-2" == _ask(control.runtime, "backlog", project="shop").json["next_story"]
    assert [] == _ask(control.runtime, "schedule", project="shop").json["schedules"]
    assert [] == _ask(control.runtime, "runs", project="shop", limit=3).json["runs"]
    assert "day" == _ask(control.runtime, "usage", by="day", since="7d").json["by"]


def test_events_are_short_unless_asked_for_whole(control: Controlled) -> None:
    """The grounds of decisions are for programs; times are the recorded ones, in UTC."""
    control.commit(record(after=track(status=Status.PASS)))

    (short,) = _ask(control.runtime, "events", project="shop", after=0).json["events"]
    (whole,) = _ask(control.runtime, "events", whole=True, limit=1).json["events"]

    assert {"what", "why", "next", "before", "after"} <= set(short)
    assert {"event", "result", "orders"} == set(whole) - set(short)
    assert short["at"].startswith(NOW.strftime("%Y-%m-%d"))


@pytest.mark.parametrize(
    ("name", "key"),
    [("status", "projects"), ("projects", "projects"), ("events", "events"), ("runs", "runs"),
     ("usage", "rows"), ("limits", "limits"), ("schedule", "schedules")],
)  # fmt: skip
def test_without_a_daemon_the_journal_answers(alone: Path, name: str, key: str) -> None:
    """Also an empty one; and nothing is made."""
    answer = _ask(alone, name)

    assert not answer.daemon
    assert [] == answer.json[key]
    with pytest.raises(NotFound):
        _ask(alone, "peek", project="shop")
    assert [] == list(alone.iterdir())


def test_without_a_daemon_a_peek_takes_up_an_edited_state(alone: Path, tmp_path: Path) -> None:
    """As the command does: a model must not get the prompt of a step that will not come."""
    root = tmp_path / "shop"
    root.mkdir()
    (root / "PROJECT_CONTEXT.md").write_text("a shop")
    start_story(root, "US-001")
    assert "bdd" == _ask(alone, "peek", project=str(root)).json["step"]

    state = root / ".ai/STATE.json"
    state.write_text(state.read_text().replace('"bdd"', '"contract"'))

    assert "contract" == _ask(alone, "peek", project=str(root)).json["step"]


# --- any folder --------------------------------------------------------------------------------------
@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that is not supervised, with one open issue."""
    project = tmp_path / "work" / "shop"
    project.mkdir(parents=True)
    (project / "pyproject.toml").write_text("[project]\nname = 'shop'\n")
    (project / "PROJECT_MEMORY.md").write_text("# Memory\n\n## ISSUES\n\n- [ ] the cart forgets\n")
    return project


def _everything(runtime: Path, folder: Path) -> None:
    assert "not_initialized" == _ask(runtime, "query", project=str(folder)).json["status"]
    assert _ask(runtime, "detect", project=str(folder)).json["has_memory"]
    (listed,) = _ask(runtime, "list_projects", folder=str(folder.parent)).json["projects"]
    assert "shop" == listed["name"]
    with pytest.raises(Refused, match=r"no STATE\.json"):
        _ask(runtime, "check_prereqs", project=str(folder))
    english = _ask(runtime, "review", project=str(folder), language="en").json
    chinese = _ask(runtime, "review", project=str(folder), language="zh-TW").json
    assert english["prompt"] != chinese["prompt"]
    assert ["the cart forgets"] == _ask(runtime, "triage", project=str(folder)).json["issues"]


def test_the_daemon_answers_about_any_folder(control: Controlled, folder: Path) -> None:
    """By its files."""
    _everything(control.runtime, folder)
    assert _ask(control.runtime, "detect", project=str(folder)).daemon


def test_a_question_about_a_folder_needs_no_daemon(alone: Path, folder: Path) -> None:
    """And makes nothing."""
    before = sorted(alone.rglob("*"))

    _everything(alone, folder)

    assert before == sorted(alone.rglob("*"))
    assert not _ask(alone, "detect", project=str(folder)).daemon


@pytest.mark.parametrize(
    ("name", "given", "error"),
    [
        ("query", {"project": "nope"}, NotFound),
        ("list_projects", {"folder": "relative"}, HandoffdError),
        ("review", {"project": "shop", "language": "fr"}, Refused),
        ("triage", {}, Refused),
    ],
)
def test_a_wrong_question_about_a_folder_is_an_error(
    control: Controlled, name: str, given: dict[str, str], error: type[HandoffdError]
) -> None:
    """As on the command line."""
    with pytest.raises(error):
        _ask(control.runtime, name, **given)


# --- the output of a run -----------------------------------------------------------------------------
def _asked(given: Json) -> list[tuple[str | None, str | None, int]]:
    """Return the questions to `handoffd log`."""
    asked: list[tuple[str | None, str | None, int]] = []

    def last_lines(_: Place, project: str | None, run: str | None, most: int) -> Answer:
        asked.append((project, run, most))
        return Answer({}, daemon=True)

    offer = tail_offer(last_lines)
    offer.run(Place(config=None, environ={}), checked(offer.name, offer.schema, given))
    return asked


def test_a_tail_is_of_a_project_or_a_run() -> None:
    """With 40 lines, unless the model asks for more; the hint lists the runs."""
    assert [("shop", None, 40)] == _asked({"project": "shop"})
    assert [(None, "d1", 7)] == _asked({"run": "d1", "lines": 7})
    with pytest.raises(Refused) as caught:
        _asked({"lines": 3})

    assert "handoffd runs" == caught.value.hint


# --- resources ---------------------------------------------------------------------------------------
ODD = "shop / 100% 商店?#"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with its protocol files."""
    folder = tmp_path / "odd" / ".ai"
    folder.mkdir(parents=True)
    (folder / "STATE.json").write_text('{"step": "review"}')
    (folder / "HANDOFF.md").write_bytes(b"---\nstep: bdd\n---\n\xff done")
    return folder.parent


@pytest.fixture
def odd(project: Path) -> Iterator[Controlled]:
    """A daemon that supervises it under an odd name."""
    with controlled(MemorySupervision(project_view(str(project), track_view(), name=ODD))) as lent:
        yield lent


def _content(control: Controlled, part: str) -> Content:
    """Return a part of the first project, by its address."""
    place = place_at(control.runtime)
    known = roster(place)
    return content_of(place, address(known[0], known, part))


def test_an_address_has_the_name_of_the_project(odd: Controlled) -> None:
    """However odd it is; the roster is a resource, too."""
    known = json.loads(content_of(place_at(odd.runtime), ROSTER).text)
    assert ([ODD], 3) == ([one["name"] for one in known["projects"]], len(templates()))
    state, handoff = _content(odd, "state"), _content(odd, "handoff")

    assert ('{"step": "review"}', "application/json") == (state.text, state.mime_type)
    assert handoff.text.endswith("� done")
    with pytest.raises(NotFound, match="has no history yet"):
        _content(odd, "history")


def test_the_address_of_a_shared_name_has_the_root(tmp_path: Path, project: Path) -> None:
    """Each address leads to one project."""
    views = [project_view(str(root), track_view(), name="shop") for root in (project, tmp_path / "other")]
    with controlled(MemorySupervision(*views)) as control:
        known = roster(place_at(control.runtime))

        addresses = {address(one, known, "state") for one in known}

        assert 2 == len(addresses)
        assert "%2Fodd/state" in min(addresses)
        assert content_of(place_at(control.runtime), min(addresses)).text


def test_only_the_end_of_a_history_is_read(odd: Controlled, project: Path) -> None:
    """It grows for as long as a project lives."""
    (project / ".ai/history.md").write_text("old\n" * 50_000 + "new\n")
    text = _content(odd, "history").text

    assert text.startswith("[134,468 bytes before this are left out]\n")
    assert text.endswith("old\nnew\n")
    assert len(text) < 70_000


def test_no_file_outside_the_project_is_read(odd: Controlled, project: Path, tmp_path: Path) -> None:
    """An agent may have made any link or file."""
    (tmp_path / "secret").write_text("key")
    for name in ("HANDOFF.md", "history.md"):
        (project / ".ai" / name).unlink(missing_ok=True)
        (project / ".ai" / name).symlink_to(tmp_path / "secret")
    (project / ".ai/STATE.json").write_text(" " * 2_000_000)
    for part in ("handoff", "history", "state"):
        with refused("UNSAFE_FILE", kind=StoreError):
            _content(odd, part)


@pytest.mark.parametrize(
    "uri",
    [
        "handoffd://project/shop/secrets",
        "handoffd://project/shop",
        "handoffd://project//state",
        "handoffd://project/../x/state",
        "file:///etc/passwd",
        "",
    ],
)
def test_any_other_address_is_not_found(control: Controlled, uri: str) -> None:
    """The error lists the resources."""
    with pytest.raises(NotFound, match=r"handoffd://project/\{name\}/state"):
        content_of(place_at(control.runtime), uri)
