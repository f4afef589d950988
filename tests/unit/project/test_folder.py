"""Which folder is a project's: its own, a copy with its STATE.json, or one that a person accepts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from handoffd.errors import InvalidFile, Locked, StoreError
from handoffd.files.errors import PROJECT_GONE
from handoffd.files.locks import acquire_project, project_lock_path
from handoffd.project.folder import Folder, Found, visit
from handoffd.track.services import Claims


def take(folder: Folder, path: Path, *, bare: bool) -> None:
    """Claim and lock a folder."""
    if (lock := folder.claim(path, bare=bare)) is not None:
        folder.hold(lock())


class Place:
    """A project's root, and the daemon's record of its folder."""

    def __init__(self, base: Path) -> None:
        self.root = base / "shop"
        self.state_dir = base / "state"
        self.folder = Folder(str(self.root), self.state_dir)
        self.root.mkdir()
        self.hold()

    def hold(self, *, bare: bool = False) -> None:
        """Look at the current folder."""
        take(self.folder, project_lock_path(self.state_dir, self.root), bare=bare)

    def replace(self) -> None:
        """Move the project away, and make another folder in its place."""
        self.root.rename(self.root.with_name("moved"))
        (self.root / ".ai").mkdir(parents=True)

    def bring_back(self) -> None:
        """Move it back."""
        shutil.rmtree(self.root)
        self.root.with_name("moved").rename(self.root)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return a project that is held."""
    return Place(tmp_path)


def test_the_same_folder_is_the_project_even_without_its_files(place: Place) -> None:
    """`.ai` may have been deleted: the journal has its contents."""
    place.hold(bare=True)

    assert (True, True) == (place.folder.held, place.folder.is_there())
    with pytest.raises(Locked):
        take(
            Folder(str(place.root), place.state_dir),
            project_lock_path(place.state_dir, place.root),
            bare=False,
        )


def test_a_bare_folder_in_its_place_is_not_the_project(place: Place) -> None:
    """The error has the next command; the lock is released, and taken again when the project is back."""
    place.replace()

    with pytest.raises(
        StoreError, match="move that one back, or go on in this one with `handoffd trust"
    ) as told:
        place.hold(bare=True)

    assert (PROJECT_GONE, f"handoffd trust {place.root}") == (told.value.code, told.value.hint)
    assert (False, False) == (place.folder.held, place.folder.is_there())
    place.bring_back()
    place.hold()
    assert (True, True) == (place.folder.held, place.folder.is_there())


@pytest.mark.parametrize("accepted", [False, True], ids=["a clone, or a mount that returned", "accepted"])
def test_a_copy_with_its_state_is_the_project(place: Place, accepted: bool) -> None:
    """So is any other folder, from the moment a person accepts it."""
    place.replace()
    if accepted:
        place.folder.accept()
    else:
        (place.root / ".ai/STATE.json").write_text("{}")

    assert place.folder.is_there()
    for _ in range(2):
        place.hold(bare=accepted)
        assert place.folder.held


def test_a_deleted_folder_is_not_there(place: Place) -> None:
    """Whatever the daemon knew about it."""
    place.root.rmdir()

    assert not place.folder.is_there()


def test_a_project_at_rest_keeps_its_claim_and_no_lock(tmp_path: Path) -> None:
    """Another path to the same folder is refused until the project is released."""
    claims, other = Claims(), tmp_path / "other"
    (tmp_path / "shop").mkdir()
    other.symlink_to(tmp_path / "shop")
    path = project_lock_path(tmp_path / "state", tmp_path / "shop")
    first, second = (Folder(str(root), tmp_path / "state", claims) for root in (tmp_path / "shop", other))
    take(first, path, bare=False)

    first.rest()

    assert (False, path.name) == (first.held, first.name)
    acquire_project(path, tmp_path / "shop").release()
    with pytest.raises(Locked, match="is the same folder"):
        take(second, path, bare=False)
    first.let_go()
    take(second, path, bare=False)
    second.let_go()


def test_a_folder_is_recognised_after_a_rest(tmp_path: Path) -> None:
    """A bare folder in its place is still refused, and a claim can be dropped only by its owner."""
    claims = Claims()
    root, state_dir = tmp_path / "shop", tmp_path / "state"
    root.mkdir()
    claims.take("0-1.lock", str(root))
    folder = Folder(str(root), state_dir, claims)
    folder.remember("0-1.lock")

    with pytest.raises(StoreError):
        take(folder, project_lock_path(state_dir, root), bare=True)
    claims.take("0-1.lock", "/srv/other")
    claims.drop("0-1.lock", str(root))
    with pytest.raises(Locked):
        claims.take("0-1.lock", str(root))
    claims.drop(None, "/srv/other")


# --- one visit of a project's folder --------------------------------------------------------------
TABLE, SETTINGS, STATE = ".ai/step-rules.yaml", ".ai/handoffd.yaml", ".ai/STATE.json"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a project with a step table and a STATE.json."""
    root = tmp_path / "shop"
    (root / ".ai").mkdir(parents=True)
    (root / TABLE).write_text("steps: {}\n")
    (root / STATE).write_text("{}\n")
    return root


def visited(root: Path, *, texts: bool = True, first: bool = True) -> Found:
    """Return the result of a visit for the main track alone."""
    return visit(root.parent, root, ("main",), texts=texts, first=first)


def test_a_visit_reads_everything_for_a_look(root: Path) -> None:
    """A missing file is found missing."""
    found = visited(root)

    assert project_lock_path(root.parent, root) == found.lock
    assert {SETTINGS: None, TABLE: "steps: {}\n"} == found.texts
    assert {"main": "{}\n"} == {name: seen and seen.text for name, seen in found.states.items()}
    assert (False, None, ()) == (found.halves, found.error, found.strays)


def test_of_several_tracks_all_have_a_file_of_their_own(root: Path) -> None:
    """And STATE.json is what they share; alone, `main` has that, and the file of its own is a stray."""
    own = root / ".ai/states/main.json"
    own.parent.mkdir()
    own.write_text("[]\n")
    found = visit(root.parent, root, ("main", "US-007"), texts=True, first=True)
    assert [("main", "[]\n"), ("US-007", None)] == [
        (key, one and one.text) for key, one in found.states.items()
    ]
    assert found.desk is not None
    assert ("{}\n", ()) == (found.desk.text, found.strays)
    assert (None, ("main",)) == (visited(root).desk, visited(root).strays)


def test_later_visits_read_less(root: Path) -> None:
    """Without the files of a running project, and without half-written files after the first visit."""
    (root / ".ai/.STATE.json.0123456789abcdef.tmp").touch()

    assert (True, None) == (visited(root).halves, visited(root, texts=False).texts)
    assert not visited(root, first=False).halves


def test_a_visit_keeps_everything_before_an_unreadable_file(root: Path) -> None:
    """An unsafe table hides the tracks; a binary STATE.json hides neither lock nor table."""
    (root / STATE).write_bytes(b"\xff")
    found = visited(root)
    assert (True, {}) == (found.texts is not None, found.states)
    assert isinstance(found.error, InvalidFile)

    (root / TABLE).unlink()
    (root / TABLE).symlink_to("/etc/passwd")
    found = visited(root)
    assert (None, {}) == (found.texts, found.states)
    assert "symbolic link" in str(found.error)


def test_a_missing_folder_is_an_error(root: Path) -> None:
    """It has no lock."""
    with pytest.raises(StoreError) as gone:
        visited(root / "nowhere")

    assert PROJECT_GONE == gone.value.code
