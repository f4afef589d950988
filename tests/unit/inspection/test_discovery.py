"""Finding projects: below a folder, by patterns of the settings, in a folder of projects."""

from __future__ import annotations

import os
import pwd
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from tests.unit.inspection.making import hostile_states, write, write_state

from handoffd.errors import NotFound
from handoffd.inspection import discovery
from handoffd.inspection.discovery import (
    MARKERS,
    MOST_LEVELS,
    ListedProject,
    Wanted,
    discover,
    folders_called,
    list_projects,
    looks_like_project,
    of_workspace,
    others_in,
    resolved_base,
    unfit,
    wanted_of,
)
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
    """In order; deeper or hidden folders and other people's code are left out."""
    here = [project(tmp_path / name) for name in ("b", "a", "team/c")]
    for name in ("team/deep/d", ".cache/e", "node_modules/f"):
        project(tmp_path / name)

    found = discover(below(tmp_path), str(tmp_path))

    assert sorted(map(str, here)) == found.roots
    assert not found.stopped


def test_a_folder_in_a_project_is_not_a_project(tmp_path: Path) -> None:
    """It is a part of it: a worktree, an example, a submodule."""
    project(tmp_path / "shop")
    project(tmp_path / "shop" / "examples")

    assert [str(tmp_path / "shop")] == discover(below(tmp_path), str(tmp_path)).roots


@pytest.mark.parametrize("file", ["STATE.json", "HANDOFF.md", "handoffd.yaml", "step-rules.yaml", "states"])
def test_any_file_of_the_protocol_makes_a_project(tmp_path: Path, file: str) -> None:
    """In the folder `.ai`."""
    project(tmp_path / "shop", file)

    assert [str(tmp_path / "shop")] == discover(below(tmp_path), str(tmp_path)).roots


def test_other_folders_are_not_projects(tmp_path: Path) -> None:
    """Another tool's `.ai`, a file or a link of that name; a package without `.ai` is counted."""
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
    """They lead out of the base, in circles, or to a project that is found at its own path."""
    outside = project(tmp_path / "outside" / "shop")
    base = tmp_path / "base"
    base.mkdir()
    (base / "shop").symlink_to(outside)
    (base / "loop").symlink_to(base)

    assert [] == discover(below(base), str(base)).roots


def test_a_base_may_be_a_link(tmp_path: Path) -> None:
    """A person named it. A missing one, or a file, resolves to None."""
    project(tmp_path / "real" / "shop")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").touch()

    assert str(tmp_path / "real") == resolved_base(below(tmp_path / "link"))
    assert [None, None] == [resolved_base(below(tmp_path / name)) for name in ("gone", "file")]


def test_known_projects_are_not_listed(tmp_path: Path) -> None:
    """Only new ones are reported."""
    known = {str(project(tmp_path / f"p{number}")) for number in range(20)}
    new = project(tmp_path / "new")

    found = discover(below(tmp_path), str(tmp_path), known)

    assert ([str(new)], 2) == (found.roots, found.folders)


def test_only_folders_that_a_pattern_may_match_are_listed(tmp_path: Path) -> None:
    """Others cost nothing."""
    repo = project(tmp_path / "team" / "repo")
    project(tmp_path / "team" / "other")
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    settings = Settings(state_dir=Path("/s"), runtime_dir=Path("/r"), projects=(Path(f"{tmp_path}/t*/repo"),))
    (wanted,) = wanted_of(settings)

    found = discover(wanted, str(tmp_path))

    assert ([str(repo)], 3) == (found.roots, found.folders)


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    """A missing one is an example; root may list any other."""
    found = discover(below(tmp_path), str(tmp_path / "gone"))

    assert ([], [str(tmp_path / "gone")]) == (found.roots, found.unread)


@pytest.mark.parametrize("limit", ["MOST_FOLDERS", "MOST_PROJECTS"])
def test_a_walk_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """The result tells that there is more."""
    for number in range(5):
        project(tmp_path / f"p{number}")
    monkeypatch.setattr(discovery, limit, 3)

    found = discover(below(tmp_path), str(tmp_path))

    assert found.stopped
    assert 0 < len(found.roots) <= 3


def test_a_folder_of_very_many_files_costs_no_memory(tmp_path: Path) -> None:
    """A million data files may be in a folder beside the projects."""
    (tmp_path / "data").mkdir()
    for number in range(10_000):
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


def test_a_long_walk_reports_its_progress(tmp_path: Path) -> None:
    """Every 500 folders."""
    for number in range(discovery.TOLD_EVERY):
        (tmp_path / f"d{number}").mkdir()
    reported: list[int] = []

    discover(below(tmp_path), str(tmp_path), progress=lambda found: reported.append(found.folders))

    assert [discovery.TOLD_EVERY] == reported


def test_a_name_that_is_not_utf8_is_found(tmp_path: Path) -> None:
    """Its caller refuses to record it."""
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
def test_some_folders_cannot_be_projects(monkeypatch: pytest.MonkeyPatch, root: str, why: str | None) -> None:
    """The system's, a person's whole home, and our own; their neighbours can."""
    monkeypatch.setenv("HOME", "/home/ann")

    assert why == unfit(root, Path("/var/lib/handoffd"))


def wanted(**sections: Any) -> tuple[Wanted, ...]:
    """Return the entries of settings with these sections."""
    return wanted_of(Settings.model_validate({"state_dir": "/s", "runtime_dir": "/r", **sections}))


def pattern(text: str) -> Wanted:
    """Return one entry of `projects`."""
    (found,) = wanted(projects=[text])
    return found


@pytest.mark.parametrize(
    ("text", "root", "matches"),
    [
        ("/srv/shop", "/srv/shop", True),
        ("/srv/*", "/srv/shop", True),
        ("/srv/s?op", "/srv/shop", True),
        ("/srv/[a-s]hop", "/srv/shop", True),
        ("/srv/*/repo", "/srv/shop/repo", True),
        ("/srv/**/repo", "/srv/repo", True),
        ("/srv/**/repo", "/srv/a/b/c/repo", True),
        ("/srv/**", "/srv/a/b", True),
        ("/srv/.*", "/srv/.dotfiles", True),
        ("/srv/.config/*", "/srv/.config/shop", True),
        ("/srv/*/node_modules/own", "/srv/shop/node_modules/own", True),
        ("/srv/shop", "/srv/shop/deeper", False),
        ("/srv/shop", "/srv", False),
        ("/srv/*", "/srv", False),
        ("/srv/**", "/srv", False),
        ("/srv/*", "/srv/shop/deeper", False),
        ("/srv/*", "/other/shop", False),
        ("/srv/*", "/srvx/shop", False),
        ("/srv/*", "/srv/.hidden", False),
        ("/srv/**/repo", "/srv/.cache/repo", False),
        ("/srv/**/repo", "/srv/node_modules/repo", False),
        ("/srv/*/own", "/srv/node_modules/own", False),
        ("/srv/s?op", "/srv/Shop", False),
        ("/srv/**/repo", "/srv/" + "a/" * MOST_LEVELS + "repo", False),
    ],
)
def test_a_pattern_matches_as_in_a_shell(text: str, root: str, matches: bool) -> None:
    """Hidden folders and other people's code match only their own names; depth is bounded."""
    one = pattern(text)

    assert matches == one.covers(root, [one.base])


def test_repeated_double_stars_mean_one() -> None:
    """Matching takes no longer: each further one would double the ways to match."""
    one = pattern("/srv/" + "**/" * 200 + "repo")

    assert (pattern("/srv/**/repo").parts, "/srv") == (one.parts, one.base)
    assert one.covers("/srv/a/b/c/d/e/f/g/repo", [one.base])


def test_every_folder_is_below_the_root() -> None:
    """Except the root itself."""
    one = of_workspace(WorkspaceSettings(path=Path("/"), depth=2))

    assert one.covers("/projects/a", ["/"])
    assert not one.covers("/", ["/"])


def test_a_walk_skips_folders_without_matches() -> None:
    """Below a folder that cannot match any more, and below a match."""
    assert (False, True) == pattern("/srv/*/repo").fit(("shop",))
    assert (True, False) == pattern("/srv/*/repo").fit(("shop", "repo"))
    assert (False, False) == pattern("/srv/a*/repo").fit(("shop",))


def test_a_workspace_matches_folders_below_it() -> None:
    """To its depth, and without excluded ones, by the rules of .gitignore."""
    one = of_workspace(WorkspaceSettings(path=Path("/projects"), exclude=("/old/", "attic", "!old/keep")))

    assert one.covers("/projects/a", ["/projects"])
    assert one.covers("/projects/a/b", ["/projects"])
    assert one.covers("/data/a/b", ["/projects", "/data"])  # by another name of the same folder
    outside = ("/", "/a/b/c", "/.git/a", "/old/a", "/a/attic", "/old/keep")
    assert [] == [path for path in outside if one.covers(f"/projects{path}".rstrip("/"), ["/projects"])]
    assert (True, True) == one.fit(("a",))
    assert (True, False) == one.fit(("a", "b"))


def test_whole_paths_of_the_settings_come_first() -> None:
    """A person named them, and so trusts them. A repeated entry counts once."""
    found = wanted(
        projects=["/srv/*", "/srv/shop", "/srv/*"],
        workspaces=["/projects", {"path": "/more", "depth": 1, "add": "ask"}],
    )

    entries = [(one.kind, one.section, one.text, one.base, one.ask) for one in found]
    assert [
        ("path", "projects", "/srv/shop", "/srv/shop", False),
        ("pattern", "projects", "/srv/*", "/srv", False),
        ("workspace", "workspaces", "/projects", "/projects", False),
        ("workspace", "workspaces", "/more", "/more", True),
    ] == entries


def test_any_marker_makes_a_project(tmp_path: Path) -> None:
    """Other folders, hidden ones and files are left out."""
    for number, marker in enumerate(MARKERS[1:]):
        write(tmp_path / f"p{number}", marker)
    (tmp_path / "plain").mkdir()
    write(tmp_path / ".hidden", "go.mod")
    write(tmp_path, "go.mod")

    found = list_projects(str(tmp_path))

    assert [f"p{number}" for number in range(len(MARKERS) - 1)] == [one.dir for one in found]
    assert {"not_initialized"} == {one.status for one in found}


def test_a_listed_project_has_its_status(tmp_path: Path) -> None:
    """It has its own name, the name of its folder, and its story."""
    write_state(tmp_path / "s")

    expected = ListedProject(
        name="shop", dir="s", step="impl", status="running", story="US-005", has_framework=True
    )
    assert (expected,) == list_projects(str(tmp_path))


def test_a_project_with_an_invalid_state_is_listed(tmp_path: Path) -> None:
    """Every other project is listed, too."""
    for number, content in enumerate(hostile_states()):
        write(tmp_path / f"bad{number}", ".ai/STATE.json", content)
    (tmp_path / "folder/.ai/STATE.json").mkdir(parents=True)
    write_state(tmp_path / "good")

    found = {one.dir: one.status for one in list_projects(str(tmp_path))}

    assert "running" == found.pop("good")
    assert {"invalid_state"} == set(found.values())
    assert len(hostile_states()) + 1 == len(found)


def test_a_folders_name_may_be_any_bytes(tmp_path: Path) -> None:
    """The listed name can be printed."""
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    write(root, "setup.py")

    (found,) = list_projects(str(tmp_path))

    assert ("�", "�") == (found.name, found.dir)


def test_only_a_folder_can_be_listed(tmp_path: Path) -> None:
    """A file and a missing path are refused."""
    write(tmp_path, "file")

    for name in ("file", "gone"):
        with pytest.raises(NotFound):
            list_projects(str(tmp_path / name))


def test_a_word_may_be_the_name_of_a_project_folder(tmp_path: Path) -> None:
    """The first base with such a folder counts; without a marker only a `sure` name does."""
    write(tmp_path / "one/shop", "go.mod")
    write(tmp_path / "two/shop", "go.mod")
    (tmp_path / "one/plain").mkdir()
    bases = (str(tmp_path / "one"), str(tmp_path / "two"))

    assert {"shop": f"{bases[0]}/shop"} == folders_called(("shop", "plain", "../one", "", ".", "no"), bases)
    assert {"plain": f"{bases[0]}/plain"} == folders_called(("plain",), bases, sure="plain")


def test_other_projects_of_a_folder_are_named(tmp_path: Path) -> None:
    """Known ones are left out, and so are other folders and unreadable ones."""
    write(tmp_path / "a", "go.mod")
    write(tmp_path / "b", ".git")
    (tmp_path / "plain").mkdir()

    found = others_in((str(tmp_path), str(tmp_path / "nowhere")), {str(tmp_path / "a")})

    assert ("b",) == found
    assert (True, False, False) == tuple(
        looks_like_project(path) for path in (str(tmp_path / "a"), str(tmp_path / "plain"), "\0")
    )
