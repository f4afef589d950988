"""Looking for projects below a folder."""

from __future__ import annotations

import os
import pwd
import tracemalloc
from pathlib import Path

import pytest

from handoffd.inspection import discovery
from handoffd.inspection.discovery import Wanted, discover, of_workspace, resolved_base, unfit, wanted_of
from handoffd.settings.model import Settings, WorkspaceSettings


def project(root: Path, file: str = "STATE.json") -> Path:
    """Make a project of the protocol."""
    (root / ".ai").mkdir(parents=True)
    (root / ".ai" / file).touch()
    return root


def below(base: Path, depth: int = 2) -> Wanted:
    """Return a workspace."""
    return of_workspace(WorkspaceSettings(path=base, depth=depth))


def test_projects_are_found_to_the_depth(tmp_path: Path) -> None:
    """In order; what lies deeper is not, nor what is hidden or other people's code."""
    here = [project(tmp_path / name) for name in ("b", "a", "team/c")]
    for name in ("team/deep/d", ".cache/e", "node_modules/f"):
        project(tmp_path / name)

    found = discover(below(tmp_path), str(tmp_path))

    assert sorted(map(str, here)) == found.roots
    assert not found.stopped


def test_a_project_is_not_looked_into(tmp_path: Path) -> None:
    """What lies in one is part of it: a worktree, an example, a submodule."""
    project(tmp_path / "shop")
    project(tmp_path / "shop" / "examples")

    assert [str(tmp_path / "shop")] == discover(below(tmp_path), str(tmp_path)).roots


@pytest.mark.parametrize("file", ["STATE.json", "HANDOFF.md", "handoffd.yaml", "step-rules.yaml", "states"])
def test_what_names_a_project(tmp_path: Path, file: str) -> None:
    """Any file of the protocol in its `.ai`."""
    project(tmp_path / "shop", file)

    assert [str(tmp_path / "shop")] == discover(below(tmp_path), str(tmp_path)).roots


def test_what_is_no_project(tmp_path: Path) -> None:
    """Another tool's `.ai`, a file or a link of that name; a package without it is counted."""
    project(tmp_path / "other", "prompts.txt")
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / ".ai").touch()
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / ".ai").symlink_to(project(tmp_path / "real") / ".ai")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "pyproject.toml").touch()

    found = discover(below(tmp_path), str(tmp_path))

    assert [str(tmp_path / "real")] == found.roots
    assert 1 == found.others


def test_links_are_not_followed(tmp_path: Path) -> None:
    """They lead out of the base, in circles, or to a project that is found where it lies."""
    outside = project(tmp_path / "outside" / "shop")
    base = tmp_path / "base"
    base.mkdir()
    (base / "shop").symlink_to(outside)
    (base / "loop").symlink_to(base)

    assert [] == discover(below(base), str(base)).roots


def test_a_base_that_is_a_link_is_where_it_leads(tmp_path: Path) -> None:
    """A person named it. One that is gone, or no folder, is nowhere."""
    project(tmp_path / "real" / "shop")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").touch()

    assert str(tmp_path / "real") == resolved_base(below(tmp_path / "link"))
    assert [None, None] == [resolved_base(below(tmp_path / name)) for name in ("gone", "file")]


def test_of_known_projects_the_disk_is_not_asked(tmp_path: Path) -> None:
    """Only what is new is told of, and the others cost no listing."""
    known = {str(project(tmp_path / f"p{number}")) for number in range(20)}
    new = project(tmp_path / "new")

    found = discover(below(tmp_path), str(tmp_path), known)

    assert ([str(new)], 2) == (found.roots, found.folders)


def test_a_pattern_is_walked_where_it_leads(tmp_path: Path) -> None:
    """Nothing else is listed."""
    repo = project(tmp_path / "team" / "repo")
    project(tmp_path / "team" / "other")
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    settings = Settings(state_dir=Path("/s"), runtime_dir=Path("/r"), projects=(Path(f"{tmp_path}/t*/repo"),))
    (wanted,) = wanted_of(settings)

    found = discover(wanted, str(tmp_path))

    assert ([str(repo)], 3) == (found.roots, found.folders)


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    """The others are found all the same. (A folder that goes away counts as one; root may list any.)"""
    project(tmp_path / "shop")

    found = discover(below(tmp_path), str(tmp_path / "gone"))

    assert ([], [str(tmp_path / "gone")]) == (found.roots, found.unread)


@pytest.mark.parametrize("limit", ["MOST_FOLDERS", "MOST_PROJECTS"])
def test_a_walk_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """It says that there was more."""
    for number in range(5):
        project(tmp_path / f"p{number}")
    monkeypatch.setattr(discovery, limit, 3)

    found = discover(below(tmp_path), str(tmp_path))

    assert found.stopped
    assert 0 < len(found.roots) <= 3


def test_a_folder_of_very_many_files_costs_no_memory(tmp_path: Path) -> None:
    """Somebody's data may lie beside the projects, a million files in one folder."""
    (tmp_path / "data").mkdir()
    for number in range(20_000):
        (tmp_path / "data" / f"a-measurement-of-something-{number}").touch()
    root = project(tmp_path / "data" / "shop")

    tracemalloc.start()
    try:
        found = discover(below(tmp_path), str(tmp_path))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert [str(root)] == found.roots
    assert peak_bytes < 500_000


def test_a_long_walk_tells_how_far_it_is(tmp_path: Path) -> None:
    """Every 500 folders."""
    for number in range(discovery.TOLD_EVERY):
        (tmp_path / f"d{number}").mkdir()
    told: list[int] = []

    discover(below(tmp_path), str(tmp_path), progress=lambda found: told.append(found.folders))

    assert [discovery.TOLD_EVERY] == told


def test_a_name_that_is_not_utf8_is_found(tmp_path: Path) -> None:
    """Whoever records it says what is wrong with it."""
    root = os.path.join(os.fsencode(tmp_path), b"caf\xe9")
    os.makedirs(os.path.join(root, b".ai"))
    with open(os.path.join(root, b".ai", b"STATE.json"), "wb"):
        pass

    assert [os.fsdecode(root)] == discover(below(tmp_path), str(tmp_path)).roots


@pytest.mark.parametrize(
    ("root", "why"),
    [
        ("/", "it is your home folder or above that"),
        ("/home", "it is your home folder or above that"),
        ("/home/ann", "it is your home folder or above that"),
        ("/home/ann/shop", None),
        (pwd.getpwuid(os.geteuid()).pw_dir, "it is your home folder or above that"),
        ("/etc", "it belongs to the system"),
        ("/etc/site", None),
        ("/tmp", "it belongs to the system"),
        ("/tmp/shop", None),
        ("/home/anna", None),
        ("/proc", "it belongs to the system"),
        ("/proc/1", "it belongs to the system"),
        ("/procedures", None),
        ("/sys/kernel", "it belongs to the system"),
        ("/run/user/1000", "it belongs to the system"),
        ("/run/media", "it belongs to the system"),
        ("/run/media/ann/stick", None),
        ("/dev", "it belongs to the system"),
        ("/dev/shm/shop", None),
        ("/var/lib", "handoffd keeps its own state there"),
        ("/var/lib/handoffd", "handoffd keeps its own state there"),
        ("/var/lib/handoffd/runs/1", "handoffd keeps its own state there"),
        ("/var/lib/handoffd-site", None),
    ],
)
def test_what_can_be_no_project(monkeypatch: pytest.MonkeyPatch, root: str, why: str | None) -> None:
    """What is the system's, a person's or ours as a whole; what lies beside it can."""
    monkeypatch.setenv("HOME", "/home/ann")

    assert why == unfit(root, Path("/var/lib/handoffd"))
