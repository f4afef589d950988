"""Projects and their files as resources."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.controlled import Controlled, controlled
from tests.support.supervision import MemorySupervision, project_view, track_view

from handoffd.entrance.place import Place
from handoffd.errors import NotFound, StoreError
from handoffd.mcp.reads import ROSTER, address, content_of, roster, templates

ODD = "shop / 100% 商店?#"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with its protocol files."""
    folder = tmp_path / "odd" / ".ai"
    folder.mkdir(parents=True)
    (folder / "STATE.json").write_text('{"step": "review"}')
    (folder / "HANDOFF.md").write_bytes(b"---\nstep: bdd\n---\n\xff done")
    return folder.parent


def _place(control: Controlled) -> Place:
    return Place(config=None, environ={"HANDOFFD_RUNTIME_DIR": str(control.runtime)})


def test_files_are_read_by_a_projects_name(project: Path) -> None:
    """However odd the name is; its address is made for it."""
    view = project_view(str(project), track_view(), name=ODD)
    with controlled(MemorySupervision(view)) as control:
        place = _place(control)
        known = roster(place)

        state = content_of(place, address(known[0], known, "state"))
        handoff = content_of(place, address(known[0], known, "handoff"))

        assert ('{"step": "review"}', "application/json") == (state.text, state.mime_type)
        assert handoff.text.endswith("� done")
        with pytest.raises(NotFound, match="has no history yet"):
            content_of(place, address(known[0], known, "history"))


def test_where_several_share_a_name_the_root_is_the_address(tmp_path: Path, project: Path) -> None:
    """So each address leads to one project."""
    views = [project_view(str(root), track_view(), name="shop") for root in (project, tmp_path / "other")]
    with controlled(MemorySupervision(*views)) as control:
        known = roster(_place(control))

        addresses = {address(one, known, "state") for one in known}

        assert 2 == len(addresses)
        assert "%2Fodd/state" in min(addresses)
        assert content_of(_place(control), min(addresses)).text


def test_of_a_history_the_end_is_read(project: Path) -> None:
    """It grows for as long as a project lives."""
    (project / ".ai/history.md").write_text("old\n" * 50_000 + "new\n")
    with controlled(MemorySupervision(project_view(str(project), track_view()))) as control:
        text = content_of(_place(control), "handoffd://project/odd/history").text

        assert text.startswith("[134,468 bytes before this are left out]\n")
        assert text.endswith("old\nnew\n")
        assert len(text) < 70_000


def test_no_file_outside_the_project_is_read(project: Path, tmp_path: Path) -> None:
    """An agent decides what lies there."""
    secret = tmp_path / "secret"
    secret.write_text("key")
    for name in ("HANDOFF.md", "history.md"):
        (project / ".ai" / name).unlink(missing_ok=True)
        (project / ".ai" / name).symlink_to(secret)
    (project / ".ai/STATE.json").write_text(" " * 2_000_000)
    with controlled(MemorySupervision(project_view(str(project), track_view()))) as control:
        for part in ("handoff", "history", "state"):
            with pytest.raises(StoreError) as unsafe:
                content_of(_place(control), f"handoffd://project/odd/{part}")
            assert "UNSAFE_FILE" == unsafe.value.code


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
def test_what_is_no_resource_is_not_found(control: Controlled, uri: str) -> None:
    """With what there is."""
    with pytest.raises(NotFound, match=r"handoffd://project/\{name\}/state"):
        content_of(_place(control), uri)


def test_the_roster_is_a_resource(control: Controlled) -> None:
    """As the read of that name tells it; and each template is one for a part."""
    told = json.loads(content_of(_place(control), ROSTER).text)

    assert ["shop", "empty"] == [one["name"] for one in told["projects"]]
    assert 3 == len(templates())
