"""Snapshots of real repositories: what they hold, that they touch nothing of a person's, and the way back."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.repositories import git

from handoffd.errors import Refused, StoreError
from handoffd.git import command
from handoffd.git import worktree as module
from handoffd.git.labels import BEGUN, KEPT, STARTED, Label, Snapshot, of_this_life
from handoffd.git.snapshots import Snapshots
from handoffd.git.worktree import LARGEST, Worktree, shadow_of

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def label(number: int, *, step: str = "impl", result: str = "pass", story: str | None = "US-1") -> Label:
    """Return a label of what attempt `number` has left; a later number is later."""
    at = START + timedelta(seconds=number)
    run = None if result in {BEGUN, KEPT, STARTED} else f"run-{number}"
    return Label(story=story, step=step, result=result, run=run, at=at)


def said(folder: Path, *words: str) -> str:
    """Return what git says of a folder, with no settings of its own taken up."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *words],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def content(root: Path, one: Snapshot, path: str) -> str:
    """Return a file of a snapshot."""
    return said(root, "show", f"{one.ref}:{path}")


def names(root: Path, one: Snapshot) -> list[str]:
    """Return the files of a snapshot."""
    return said(root, "ls-tree", "-r", "--name-only", one.ref).split()


@pytest.fixture
def here(tmp_path: Path, root: Path) -> Snapshots:
    """The snapshots of the repository."""
    return Snapshots(str(root), tmp_path / "state", dict(os.environ))


# --- what one holds -----------------------------------------------------------------------------------
def test_it_holds_the_files_as_they_are(root: Path, here: Snapshots) -> None:
    """New, changed and deleted ones; none that is ignored, and nothing below .ai, which is handoffd's."""
    (root / "kept").write_text("changed\n")
    (root / "new").write_text("new\n")
    (root / "below/one").unlink()
    (root / "some.log").write_text("noise")
    (root / ".ai").mkdir()
    (root / ".ai/STATE.json").write_text("{}")
    (root / "link").symlink_to("kept")
    (root / "run.sh").write_text("true\n")
    (root / "run.sh").chmod(0o755)

    one = here.take(label(1))

    assert [".gitignore", "kept", "link", "new", "run.sh"] == names(root, one)
    assert "changed\n" == content(root, one, "kept")
    modes = {line.split()[3]: line.split()[0] for line in said(root, "ls-tree", one.ref).splitlines()}
    assert ("100755", "120000") == (modes["run.sh"], modes["link"])
    assert ("refs/handoffd/US-1/impl-1", one.commit) == (one.ref, said(root, "rev-parse", one.ref).strip())


def test_it_is_of_what_was_measured_just_now(root: Path, here: Snapshots, tmp_path: Path) -> None:
    """The next one is of the files again, and so is one of another folder."""
    here.take(label(1, result=BEGUN))
    (root / "first").write_text("first\n")
    assert here.measured("US-1", "impl", durable=False) is not None
    (root / "second").write_text("second\n")
    again = Snapshots(str(root), tmp_path / "state", dict(os.environ), here.worktree)

    assert "second" not in names(root, again.take(label(2)))
    assert "second" in names(root, again.take(label(3)))
    elsewhere = Snapshots(str(tmp_path), tmp_path / "state", dict(os.environ), here.worktree)
    assert here.worktree is not elsewhere.worktree


def test_what_a_step_has_changed_is_counted_in_lines(root: Path, here: Snapshots) -> None:
    """Of binary files there are none."""
    (root / "kept").write_text("one\ntwo\n")
    here.take(label(1, result=BEGUN))
    (root / "kept").write_text("one\n2\n3\n")
    (root / "picture").write_bytes(b"\0\1\2\n")
    found = here.measured("US-1", "impl", durable=False)
    assert found is not None
    assert ((b"kept", b"picture"), (2, 1)) == (found.paths, found.lines)


def test_it_says_what_it_is_of_and_stands_on_the_commit_that_is_checked_out(
    root: Path, here: Snapshots
) -> None:
    """So that `git show` has what was not committed."""
    here.take(label(1))
    one = here.take(label(2, result="failing"))

    assert said(root, "rev-parse", "HEAD") == said(root, "rev-parse", f"{one.ref}^")
    assert one == here.all("US-1")[-1]
    message = said(root, "log", "-1", "--format=%an %B", one.ref)
    assert message.startswith("handoffd US-1: impl-2, failing\n\nStory: US-1\nStep: impl\nResult: failing\n")
    assert "Run: run-2" in message


def test_nothing_of_a_person_is_touched(root: Path, here: Snapshots) -> None:
    """Index, HEAD, branches, what is staged, stashes and the state of git."""
    (root / "staged").write_text("staged\n")
    git(root, "add", "staged")
    (root / "kept").write_text("not staged\n")
    ours = {path for path in (root / ".git").rglob("*") if path.is_file() and "objects" not in path.parts}
    before = {path: path.read_bytes() for path in ours}
    status = said(root, "status", "--porcelain")

    here.take(label(1))

    assert before == {path: path.read_bytes() for path in ours}
    assert status == said(root, "status", "--porcelain")
    assert "" == said(root, "fsck", "--no-dangling").strip()


def test_work_that_was_committed_and_files_that_are_tracked_though_ignored_are_in_it(
    root: Path, here: Snapshots
) -> None:
    """HEAD moves between two snapshots: an agent commits, a person checks something else out."""
    here.take(label(1))
    (root / "kept.log").write_text("tracked\n")
    (root / "more").write_text("more\n")
    git(root, "add", "--force", "kept.log", "more")
    git(root, "commit", "--quiet", "-m", "by an agent")

    one = here.take(label(2))

    assert {"kept.log", "more"} <= set(names(root, one))
    assert said(root, "rev-parse", "HEAD^{tree}") == said(root, "rev-parse", f"{one.commit}^{{tree}}")
    git(root, "checkout", "--quiet", "HEAD~1")
    assert "more" not in names(root, here.take(label(3)))


def test_before_the_first_commit_there_are_files_all_the_same(tmp_path: Path) -> None:
    """An agent's first step may come before anyone has committed."""
    root = tmp_path / "new"
    root.mkdir()
    git(root, "init", "--quiet")
    (root / "file").write_text("x")
    here = Snapshots(str(root), tmp_path / "state", dict(os.environ))

    one = here.take(label(1, story=None))

    assert ["file"] == names(root, one)
    assert "refs/handoffd/@project/impl-1" == one.ref
    assert [one] == list(here.all())


def test_a_repository_inside_and_a_file_that_is_too_large_are_left_out(root: Path, here: Snapshots) -> None:
    """They cost nothing, and the rest is kept."""
    (root / "inner").mkdir()
    git(root / "inner", "init", "--quiet")
    with (root / "large").open("wb") as file:
        file.truncate(LARGEST + 1)
    (root / "small").write_text("x")

    assert [".gitignore", "below/one", "kept", "small"] == names(root, here.take(label(1)))


def test_what_the_account_and_the_repository_ignore_is_left_out(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As git does: core.excludesFile, the usual file, and .git/info/exclude."""
    home = tmp_path / "home"
    (home / ".config/git").mkdir(parents=True)
    (home / ".config/git/ignore").write_text("*.usual\n")
    (root / ".git/info/exclude").write_text("*.own\n")
    for name in ("a.usual", "a.own", "a.named", "a.kept"):
        (root / name).write_text("x")
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}

    one = Snapshots(str(root), tmp_path / "state", environment).take(label(1))
    assert ["a.kept", "a.named"] == [name for name in names(root, one) if name.startswith("a.")]

    (home / "ignored").write_text("*.named\n")
    command.ignored_everywhere.cache_clear()
    (home / ".gitconfig").write_text("[core]\n\texcludesFile = ~/ignored\n")
    one = Snapshots(str(root), tmp_path / "another", environment).take(label(2))
    assert ["a.kept", "a.usual"] == [name for name in names(root, one) if name.startswith("a.")]


# --- an agent writes the repository's settings --------------------------------------------------------
def test_nothing_that_a_repository_names_is_run(root: Path, here: Snapshots, tmp_path: Path) -> None:
    """Hooks, filters, a file system monitor, diff programs, and settings that include others."""
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat\n")
    trap.chmod(0o755)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("reference-transaction", "post-index-change", "post-checkout", "pre-auto-gc"):
        shutil.copy(trap, hooks / name)
        shutil.copy(trap, root / ".git/hooks" / name)
    (tmp_path / "included").write_text(f"[core]\n\thooksPath = {hooks}\n\tfsmonitor = {trap}\n")
    (root / ".git/config").write_text(
        f"[core]\n\trepositoryformatversion = 0\n[include]\n\tpath = {tmp_path}/included\n"
        f"[filter \"evil\"]\n\tclean = {trap}\n\tsmudge = {trap}\n\tprocess = {trap}\n\trequired = true\n"
        f"[diff]\n\texternal = {trap}\n[diff \"evil\"]\n\ttextconv = {trap}\n\tcommand = {trap}\n"
        f"[core]\n\teditor = {trap}\n\tpager = {trap}\n\taskPass = {trap}\n\tsshCommand = {trap}\n"
        f"[gpg]\n\tprogram = {trap}\n[commit]\n\tgpgSign = true\n[gc]\n\tauto = 1\n"
    )  # fmt: skip
    (root / ".gitattributes").write_text("a* filter=evil diff=evil\n")
    before = here.take(label(0, result=BEGUN))
    (root / "b").write_text("two")
    last = here.take(label(1))

    here.restore((before, last), label(2, result=KEPT))
    here.counted(here.all())
    here.drop(here.all())

    assert not (tmp_path / "sprung").exists()
    assert not (root / "b").exists()


@pytest.mark.parametrize("way", ["worktree", "link", "account"])
def test_a_repository_that_is_not_the_projects_own_is_left_alone(
    root: Path, here: Snapshots, tmp_path: Path, way: str
) -> None:
    """Its objects would be written elsewhere, or files be taken for deleted."""
    outside = tmp_path / "outside"
    if way == "worktree":  # settings that name another working tree: git is not asked where it is
        outside.mkdir()
        (outside / "secret").write_text("s")
        git(root, "config", "core.worktree", str(outside))
        assert "secret" not in names(root, here.take(label(1)))
        return
    if way == "link":
        (root / ".git").rename(outside)
        (root / ".git").symlink_to(outside)
    if way == "account":
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(root / ".git", 65534, 65534)

    with pytest.raises(StoreError) as caught:
        here.take(label(1))

    assert "NO_REPOSITORY" == caught.value.code
    there = outside if way == "link" else root / ".git"
    assert not (there / "refs/handoffd").exists()


def test_where_there_is_no_repository_it_says_so(tmp_path: Path) -> None:
    """So does a machine without git."""
    (tmp_path / "loose").mkdir()
    with pytest.raises(StoreError, match="is in no git repository") as caught:
        Snapshots(str(tmp_path / "loose"), tmp_path / "state", dict(os.environ)).take(label(1))
    assert f"git -C {tmp_path}/loose init" == caught.value.hint
    git(tmp_path / "loose", "init", "--quiet")
    with pytest.raises(StoreError, match="git is not found"):
        Snapshots(str(tmp_path / "loose"), tmp_path / "state", {"PATH": str(tmp_path)}).take(label(1))


def test_refs_are_not_believed(root: Path, here: Snapshots) -> None:
    """An agent can write any: only what is on our list counts, and the commit that is named there."""
    one = here.take(label(1))
    git(root, "update-ref", "refs/handoffd/US-1/impl-9", "HEAD")
    git(root, "update-ref", one.ref, "HEAD")

    assert [one] == list(here.all("US-1"))
    (root / "new").write_text("x")
    here.restore((one, here.take(label(2))), label(3, result=KEPT))
    assert not (root / "new").exists()


def test_a_ref_that_is_a_link_to_a_branch_or_a_file_is_not_followed(root: Path, here: Snapshots) -> None:
    """Neither by making a snapshot nor by dropping it."""
    branch = said(root, "rev-parse", "main")
    git(root, "symbolic-ref", "refs/handoffd/US-1/impl-1", "refs/heads/main")

    one = here.take(label(1))
    assert (branch, one.commit) == (said(root, "rev-parse", "main"), said(root, "rev-parse", one.ref).strip())
    git(root, "symbolic-ref", one.ref, "refs/heads/main")
    here.drop([one])

    assert branch == said(root, "rev-parse", "main")


def test_nothing_is_fetched_for_a_repository_that_lacks_objects(
    root: Path, here: Snapshots, tmp_path: Path
) -> None:
    """A partial clone has git fetch them, by a command that its settings name."""
    one = here.take(label(1))
    for key, value in (
        ("core.repositoryformatversion", "1"), ("extensions.partialClone", "evil"),
        ("remote.evil.promisor", "true"), ("remote.evil.url", str(root)),
        ("remote.evil.uploadpack", f"touch {tmp_path}/sprung; false"),
    ):  # fmt: skip
        git(root, "config", key, value)
    missing = f"{'12' * 20}\n"
    (root / ".git/refs/handoffd/US-1/impl-1").write_text(missing)
    here.all()
    here.drop([one])
    (root / ".git/refs/heads/main").write_text(missing)

    with pytest.raises(StoreError, match="git "):
        here.take(label(2))

    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["objects", "objects/ab", "refs", "refs/handoffd"])
def test_nothing_is_written_through_a_link(root: Path, here: Snapshots, tmp_path: Path, name: str) -> None:
    """It may lead to another project."""
    outside = tmp_path / "outside"
    place = root / ".git" / name
    if place.exists():
        place.rename(outside)
    else:
        outside.mkdir()
    place.symlink_to(outside)
    before = sorted(outside.rglob("*"))

    with pytest.raises(StoreError):
        here.take(label(1))

    assert before == sorted(outside.rglob("*")) or name == "refs/handoffd"
    assert not any("impl" in path.name for path in outside.rglob("*"))


@pytest.mark.parametrize("way", ["file", "commondir"])
def test_the_git_folder_of_another_project_is_not_used(root: Path, tmp_path: Path, way: str) -> None:
    """Whatever a file of git says."""
    mine = tmp_path / "mine"
    mine.mkdir()
    git(mine, "init", "--quiet")
    if way == "file":
        shutil.rmtree(mine / ".git")
        (mine / ".git").write_text(f"gitdir: {root}/.git\n")
    else:
        (mine / ".git/commondir").write_text(f"{root}/.git\n")

    with pytest.raises(StoreError, match="is elsewhere"):
        Snapshots(str(mine), tmp_path / "state", dict(os.environ)).take(label(1))


def test_a_submodule_and_a_packed_branch_are_no_exception(root: Path, tmp_path: Path) -> None:
    """Its git folder is in that of the repository around it."""
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(root), "inner")
    inner = root / "inner"
    git(inner, "pack-refs", "--all")
    (inner / "kept").write_text("changed\n")

    one = Snapshots(str(inner), tmp_path / "state", dict(os.environ)).take(label(1))

    assert "changed\n" == content(inner, one, "kept")
    assert said(inner, "rev-parse", "HEAD") == said(inner, "rev-parse", f"{one.ref}^")


def test_a_checkout_that_is_sparse_no_longer_is_kept(root: Path, here: Snapshots) -> None:
    """Its file stays."""
    git(root, "sparse-checkout", "set", "below")
    with pytest.raises(StoreError, match="sparse"):
        here.take(label(1))
    git(root, "sparse-checkout", "disable")

    assert "kept" in names(root, here.take(label(1)))


# --- several projects of one repository ---------------------------------------------------------------
def test_a_project_below_the_top_keeps_its_own_files_only(root: Path, tmp_path: Path) -> None:
    """The same story may be in flight in another project of the repository."""
    (root / "kept").write_text("another project's\n")
    (root / "below/one").write_text("changed\n")
    below = Snapshots(str(root / "below"), tmp_path / "state", dict(os.environ))

    one = below.take(label(1))

    assert "refs/handoffd/below/US-1/impl-1" == one.ref
    assert ("kept\n", "changed\n") == (content(root, one, "kept"), content(root, one, "below/one"))
    assert [one] == list(below.all("US-1"))
    assert () == Snapshots(str(root), tmp_path / "state", dict(os.environ)).all("US-1")


def test_a_way_back_below_the_top_leaves_the_rest_alone(root: Path, tmp_path: Path) -> None:
    """Also what was committed there since."""
    below = Snapshots(str(root / "below"), tmp_path / "state", dict(os.environ))
    before = below.take(label(0, result=BEGUN))
    (root / "kept").write_text("another project's\n")
    git(root, "commit", "--quiet", "--all", "-m", "by another")
    (root / "below/one").write_text("changed\n")
    last = below.take(label(1))

    _, changed = below.restore((before, last), label(2, result=KEPT))

    assert (("below/one",), "one\n") == (changed, (root / "below/one").read_text())
    assert "another project's\n" == (root / "kept").read_text()


def test_a_linked_worktree_has_snapshots_of_its_own(root: Path, tmp_path: Path) -> None:
    """It shares objects and refs with the others."""
    linked = tmp_path / "linked"
    git(root, "worktree", "add", "--quiet", "-b", "side", str(linked))
    (linked / "kept").write_text("linked\n")

    one = Snapshots(str(linked), tmp_path / "state", dict(os.environ)).take(label(1))

    assert ("refs/handoffd/@worktree/linked/US-1/impl-1", "linked\n") == (one.ref, content(root, one, "kept"))


# --- the way back -------------------------------------------------------------------------------------
@pytest.fixture
def story(root: Path, here: Snapshots) -> tuple[Snapshot, Snapshot]:
    """A story that changed, added, deleted and replaced files; before it, and after."""
    (root / "edited").write_text("by a person, before\n")
    before = here.take(label(0, result=BEGUN))
    (root / "kept").write_text("changed\n")
    (root / "deep/er").mkdir(parents=True)
    (root / "deep/er/new").write_text("new\n")
    (root / "below/one").unlink()
    (root / "below").rmdir()
    (root / "below").write_text("a file now\n")
    return before, here.take(label(1))


Tree = Callable[[], dict[str, str]]


@pytest.fixture
def tree(root: Path) -> Tree:
    """Return what reads all files but git's and handoffd's."""

    def read() -> dict[str, str]:
        files = (path for path in root.rglob("*") if path.is_file() and ".git" not in path.parts)
        return {str(path.relative_to(root)): path.read_text() for path in files}

    return read


def test_the_files_are_as_they_were(
    root: Path, here: Snapshots, story: tuple[Snapshot, Snapshot], tree: Tree
) -> None:
    """Nothing else has changed: ignored files, the index, HEAD; and empty folders are gone."""
    index = (root / ".git/index").read_bytes()
    (root / "noise.log").write_text("noise")

    kept, changed = here.restore(story, label(2, result=KEPT))

    assert {
        ".gitignore": "*.log\n", "kept": "kept\n", "below/one": "one\n", "noise.log": "noise",
        "edited": "by a person, before\n",
    } == tree()  # fmt: skip
    assert ("below", "below/one", "deep/er/new", "kept") == changed
    assert not (root / "deep").exists()
    assert index == (root / ".git/index").read_bytes()
    assert "changed\n" == content(root, kept, "kept")


def test_what_was_there_is_kept_and_one_can_go_back_to_it(
    root: Path, here: Snapshots, story: tuple[Snapshot, Snapshot], tree: Tree
) -> None:
    """A way back that was not meant costs nothing."""
    was = tree()
    kept, _ = here.restore(story, label(2, result=KEPT))

    restored = here.all("US-1")[-1]
    assert ["impl-0", "impl-1", "kept-20260102T030407Z", "restored-20260102T030407Z"] == [
        one.name for one in here.all("US-1")
    ]
    here.restore((kept, restored), label(3, result=KEPT))

    assert was == tree()


def test_a_file_that_a_person_has_edited_since_is_never_written_over(
    root: Path, here: Snapshots, story: tuple[Snapshot, Snapshot], tree: Tree
) -> None:
    """Nothing is changed then; a person may go over it all the same, as the present is kept first."""
    (root / "kept").write_text("by a person\n")
    (root / "deep/er/new").write_text("by a person\n")
    was = tree()

    with pytest.raises(Refused) as caught:
        here.restore(story, label(2, result=KEPT))

    assert (was, "FILES_EDITED") == (tree(), caught.value.code)
    wanted = "not only attempts have changed deep/er/new, kept; --over goes over that"
    assert caught.value.message.startswith(wanted)

    kept, _ = here.restore(story, label(2, result=KEPT), over=True)
    assert ("kept\n", "by a person\n") == ((root / "kept").read_text(), content(root, kept, "kept"))


def test_a_file_that_a_person_has_added_or_edited_elsewhere_stays(
    root: Path, here: Snapshots, story: tuple[Snapshot, Snapshot]
) -> None:
    """Only what the story has changed is taken back."""
    (root / "edited").write_text("by a person, since\n")
    (root / "added").write_text("by a person\n")

    here.restore(story, label(2, result=KEPT))

    assert "by a person, since\n" == (root / "edited").read_text()
    assert "by a person\n" == (root / "added").read_text()
    assert "kept\n" == (root / "kept").read_text()


def test_an_untracked_file_in_the_way_is_a_persons_as_well(
    root: Path, here: Snapshots, story: tuple[Snapshot, Snapshot]
) -> None:
    """One that is ignored is in no snapshot, so nothing could bring it back."""
    before, last = story
    (root / ".gitignore").write_text("*.log\nkept\n")
    git(root, "rm", "--quiet", "--cached", "kept")
    git(root, "commit", "--quiet", "-m", "kept is no longer tracked")
    (root / "kept").write_text("precious\n")
    last = here.take(label(2))

    with pytest.raises(Refused, match=r"in the way, .*: kept; move") as caught:
        here.restore((before, last), label(3, result=KEPT))

    assert ("FILES_EDITED", "precious\n") == (caught.value.code, (root / "kept").read_text())


def test_ignored_files_in_a_folder_in_the_way_are_seen(root: Path, here: Snapshots) -> None:
    """A file became a folder, with an ignored file in it; or a folder became an ignored file."""
    (root / "a").write_text("a file")
    (root / "b").mkdir()
    (root / "b/file").write_text("in a folder")
    before = here.take(label(0, result=BEGUN))
    (root / "a").unlink()
    (root / "a").mkdir()
    (root / "a/some.log").write_text("precious")
    (root / "b/file").unlink()
    (root / "b").rmdir()
    last = here.take(label(1))
    with pytest.raises(Refused, match=r": a/some\.log; move"):
        here.restore((before, last), label(2, result=KEPT))
    (root / "a/some.log").unlink()
    (root / ".git/info/exclude").write_text("/b\n")
    (root / "b").write_text("precious")
    with pytest.raises(Refused, match=": b; move"):
        here.restore((before, here.take(label(3))), label(4, result=KEPT))
    (root / "b").unlink()

    here.restore((before, here.take(label(5))), label(6, result=KEPT))

    assert ("a file", "in a folder") == ((root / "a").read_text(), (root / "b/file").read_text())


def test_a_way_back_that_was_cut_off_can_be_taken_again(
    root: Path, here: Snapshots, story: tuple[Snapshot, Snapshot], tree: Tree
) -> None:
    """A file that is already as it shall be does not count as edited."""
    (root / "kept").write_text("kept\n")
    (root / "deep/er/new").unlink()

    here.restore(story, label(2, result=KEPT))

    assert "one\n" == tree()["below/one"]


def test_files_of_a_filter_are_not_brought_back(root: Path, here: Snapshots) -> None:
    """A snapshot may have the pointer of git-lfs only, which would be written over the file."""
    (root / ".gitattributes").write_text("*.bin filter=lfs\n")
    (root / "a.bin").write_text("pointer")
    before = here.take(label(0, result=BEGUN))
    (root / "a.bin").write_text("contents")
    last = here.take(label(1))

    with pytest.raises(Refused) as caught:
        here.restore((before, last), label(2, result=KEPT))

    assert ("FILTERED_FILES", "contents") == (caught.value.code, (root / "a.bin").read_text())


# --- what a crash or a slow disk leaves ---------------------------------------------------------------
def test_what_a_kill_has_left_is_cleared_away(root: Path, here: Snapshots, tmp_path: Path) -> None:
    """A lock of our index, half an index, or none."""
    here.take(label(1))
    shadow = shadow_of(str(root), tmp_path / "state")
    (shadow / "index.lock").touch()
    (root / "new").write_text("x")
    assert "new" in names(root, here.take(label(2)))

    (shadow / "index").write_bytes(b"DIRC half an index")
    assert "new" in names(root, here.take(label(3)))

    (shadow / "index").unlink()
    assert "kept" in names(root, here.take(label(4)))


def test_a_broken_state_directory_is_an_error_for_people(root: Path, tmp_path: Path) -> None:
    """Not one that ends the project's loop."""
    (tmp_path / "file").touch()

    with pytest.raises(StoreError) as caught:
        Snapshots(str(root), tmp_path / "file", dict(os.environ)).take(label(1))

    assert "GIT_FAILED" == caught.value.code


def test_git_that_does_not_end_is_killed(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So are the processes that it has started; the error says that."""
    slow = tmp_path / "bin/git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nsleep 60 & sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(module, "FIRST_LIMIT_S", 0.1)

    with pytest.raises(StoreError, match="did not end within") as caught:
        Snapshots(str(root), tmp_path / "state", {"PATH": f"{slow.parent}:/usr/bin:/bin"}).take(label(1))

    assert "GIT_TOO_SLOW" == caught.value.code


def test_a_story_that_is_started_again_replaces_its_snapshots(root: Path, here: Snapshots) -> None:
    """The ones that it has not replaced yet are of its earlier life."""
    for number in range(3):
        here.take(label(number, result=BEGUN if number == 0 else "pass"))
    again = here.take(label(10, result=BEGUN))
    first = here.take(label(11))

    assert ["impl-2", "impl-0", "impl-1"] == [one.name for one in here.all("US-1")]
    assert (again, first) == of_this_life(here.all("US-1"))
    assert first.commit == said(root, "rev-parse", "refs/handoffd/US-1/impl-1").strip()


def test_a_clock_that_is_set_back_changes_no_order(here: Snapshots) -> None:
    """A later snapshot is the later one."""
    here.take(label(100))
    here.take(label(5))

    assert ["run-100", "run-5"] == [one.label.run for one in here.all()]


def test_one_that_could_not_be_made_is_on_the_list(root: Path, here: Snapshots) -> None:
    """Else a way back would pass over it."""
    here.take(label(0, result=BEGUN))
    (root / ".git/HEAD").write_text("nonsense")

    with pytest.raises(StoreError, match="HEAD names no commit"):
        here.take(label(1))

    (_, missing) = here.all()
    assert ("impl-1", "", None) == (missing.name, missing.ref, missing.commit)


def test_a_large_repository_is_looked_at_by_two_gits_and_nothing_is_missed(
    root: Path, here: Snapshots
) -> None:
    """A file that was only touched counts as unchanged, a submodule only where it is at another commit."""
    paths = [root / f"many/{place:0>240}" for place in range(3600)]
    paths[0].parent.mkdir()
    for path in paths:
        path.write_text("")
    git(root, "init", "--quiet", "inner")
    git(root / "inner", "commit", "--quiet", "--allow-empty", "-m", "one")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "-m", "many and a submodule")
    here.take(label(1, result=BEGUN))
    assert module._LARGE_INDEX < (here.worktree.shadow / "index").stat().st_size

    paths[0].write_text("changed")
    paths[1].unlink()
    paths[2].chmod(0o755)
    paths[3].unlink()
    paths[3].symlink_to("kept")
    os.utime(paths[4], (1, 1))
    (root / "inner/untracked").write_text("of the submodule's own")
    (root / "new").write_text("new")
    (root / "some.log").write_text("noise")
    found = here.measured("US-1", "impl", durable=False)

    changed = sorted([*(f"many/{path.name}" for path in paths[:4]), "new"])
    assert found is not None
    assert changed == [os.fsdecode(path) for path in found.paths]
    assert [*changed] == said(root, "diff", "--name-only", here.all()[0].ref, found.tree).split()


def test_what_is_not_made_is_missing_only_beside_others(here: Snapshots, tmp_path: Path) -> None:
    """A project without any has no way back that could pass over it."""
    here.miss(label(1))
    assert () == here.all()
    here.take(label(1))
    here.miss(label(2))

    assert [("impl-1", True), ("impl-2", False)] == [(one.name, bool(one.commit)) for one in here.all()]


def test_a_look_and_a_snapshot_do_not_disturb_each_other(root: Path, here: Snapshots) -> None:
    """Two that are made at once wait for each other."""
    here.take(label(0, result=BEGUN))
    with ThreadPoolExecutor(4) as threads:
        looks = [threads.submit(lambda: here.counted(here.all())) for _ in range(8)]
        made = [threads.submit(here.take, label(number)) for number in range(1, 4)]
        found = {one.result().commit for one in made}
        assert all(look.result() for look in looks)

    assert 3 == len({one.ref for one in here.all()} - {"refs/handoffd/US-1/impl-0"})
    assert found == {one.commit for one in here.all()[1:]}


def test_dropped_ones_are_gone_and_the_others_stay(root: Path, here: Snapshots) -> None:
    """Also packed ones; a ref that is another's by now is left, and one that is gone does no harm."""
    one, two, three = here.take(label(1)), here.take(label(2)), here.take(label(3))
    git(root, "pack-refs", "--all")
    git(root, "update-ref", two.ref, "HEAD")
    git(root, "update-ref", "-d", three.ref)

    here.drop([one, two, three])

    assert [] == list(here.all())
    assert two.ref == said(root, "for-each-ref", "--format=%(refname)", "refs/handoffd").strip()


def test_the_files_that_differ_are_counted(root: Path, here: Snapshots) -> None:
    """Each from the one before it."""
    here.take(label(0, result=BEGUN))
    (root / "kept").write_text("x")
    (root / "new").write_text("x")
    here.take(label(1))
    here.take(label(2))

    assert [None, 2, 0] == [one.files for one in here.counted(here.all())]


def test_a_repository_with_longer_ids_is_no_exception(tmp_path: Path) -> None:
    """git can be asked for SHA-256."""
    root = tmp_path / "long"
    root.mkdir()
    git(root, "init", "--quiet", "--object-format=sha256")
    (root / "file").write_text("one")
    git(root, "add", "file")
    git(root, "commit", "--quiet", "-m", "first")
    here = Snapshots(str(root), tmp_path / "state", dict(os.environ))
    before = here.take(label(0, result=BEGUN))
    (root / "file").write_text("two")
    (root / "new").write_text("new")

    here.restore((before, here.take(label(1))), label(2, result=KEPT))

    assert (64, "one", False) == (
        len(before.commit or ""), (root / "file").read_text(), (root / "new").exists(),
    )  # fmt: skip


def test_a_repository_that_is_made_anew_with_other_ids_is_kept_again(root: Path, here: Snapshots) -> None:
    """Our folder is of the old kind."""
    here.take(label(1))
    shutil.rmtree(root / ".git")
    git(root, "init", "--quiet", "--object-format=sha256")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "-m", "again")

    assert "kept" in names(root, here.take(label(2)))


# --- files of all kinds -------------------------------------------------------------------------------
def test_files_that_change_their_type_are_kept(root: Path, here: Snapshots) -> None:
    """A file becomes a folder, a folder a link or a file, a file a pipe."""
    for name in ("module.py", "pipe", "folder/one", "other/one"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(name)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "-m", "more")
    before = here.take(label(0, result=BEGUN))
    for name in ("module.py", "pipe", "folder/one", "other/one"):
        (root / name).unlink()
    (root / "module.py").mkdir()
    (root / "module.py/__init__.py").write_text("package")
    os.mkfifo(root / "pipe")
    (root / "folder").rmdir()
    (root / "folder").symlink_to("below")
    (root / "other").rmdir()
    (root / "other").write_text("a file")

    one = here.take(label(1))

    assert [
        ".gitignore", "below/one", "folder", "kept", "module.py/__init__.py", "other",
    ] == names(root, one)  # fmt: skip
    (root / "pipe").unlink()
    here.restore((before, one), label(2, result=KEPT))
    assert "folder/one" == (root / "folder/one").read_text()
    assert "module.py" == (root / "module.py").read_text()


def test_a_file_that_git_cannot_take_is_left_out_and_named(root: Path, here: Snapshots) -> None:
    """The others are kept."""
    (root / ".gitattributes").write_text("*.bad working-tree-encoding=UTF-16\n")
    for name in ("a.bad", "b", "c"):
        (root / name).write_text("no byte order mark")

    one = here.take(label(1))

    assert ["a.bad"] == here.left_out
    assert {"b", "c"} <= set(names(root, one))


def test_a_repository_inside_is_never_written_over(root: Path, here: Snapshots) -> None:
    """It has commits of its own, which no snapshot has; where it only moved, it is left as it is."""
    (root / "lib").write_text("a file")
    before = here.take(label(0, result=BEGUN))
    (root / "lib").unlink()
    (root / "lib").mkdir()
    git(root / "lib", "init", "--quiet")
    (root / "lib/own").write_text("precious")
    git(root / "lib", "add", "own")
    git(root / "lib", "commit", "--quiet", "-m", "own")
    git(root, "add", "lib")
    git(root, "commit", "--quiet", "-m", "by an agent")
    (root / "new").write_text("x")
    left = here.take(label(1))

    with pytest.raises(Refused, match="in the way, and in no snapshot: lib"):
        here.restore((before, left), label(2, result=KEPT))
    assert "precious" == (root / "lib/own").read_text()

    git(root / "lib", "commit", "--quiet", "--allow-empty", "-m", "moved")
    git(root, "commit", "--quiet", "--all", "-m", "moved")
    (root / "new").unlink()
    _, changed = here.restore((left, here.take(label(3))), label(4, result=KEPT))
    assert (("new",), "precious") == (changed, (root / "lib/own").read_text())


def test_an_ignored_link_below_a_folder_in_the_way_is_seen(root: Path, here: Snapshots) -> None:
    """A link to a folder is not walked into, and is not kept."""
    (root / "a").write_text("a file")
    before = here.take(label(0, result=BEGUN))
    (root / "a").unlink()
    (root / "a").mkdir()
    (root / "a/some.log").symlink_to(root / "below")

    with pytest.raises(Refused, match=r"no snapshot: a/some\.log"):
        here.restore((before, here.take(label(1))), label(2, result=KEPT))


def test_a_file_that_has_grown_too_large_is_not_written_over(root: Path, here: Snapshots) -> None:
    """No snapshot has what is in it now."""
    before = here.take(label(0, result=BEGUN))
    (root / "kept").write_text("changed\n")
    left = here.take(label(1))
    with (root / "kept").open("ab") as file:
        file.truncate(LARGEST + 1)

    with pytest.raises(Refused, match="no snapshot: kept"):
        here.restore((before, left), label(2, result=KEPT))


@pytest.mark.parametrize("name", ["my app", "a~b:c[d", ".hidden", "x.lock", "two..dots", "end.", "ü"])
def test_a_project_may_have_any_name(root: Path, tmp_path: Path, name: str) -> None:
    """git takes only some in a ref."""
    (root / name).mkdir()
    (root / name / "file").write_text("x")

    one = Snapshots(str(root / name), tmp_path / "state", dict(os.environ)).take(label(1))

    assert f"{name}/file" in said(root, "-c", "core.quotePath=false", "ls-tree", "-r", "--name-only", one.ref)
    assert "x" == content(root, one, f"{name}/file")


# --- who has changed what -----------------------------------------------------------------------------
def test_what_others_change_between_two_attempts_is_not_undone(root: Path, here: Snapshots) -> None:
    """A pull, another story's commit, a person at a gate; the same file in both is refused."""
    begun = here.take(label(0, result=BEGUN))
    (root / "work").write_text("one")
    first = here.take(label(1))
    (root / "pulled").write_text("by others")
    (root / "kept").write_text("by others\n")
    git(root, "add", "pulled", "kept")
    git(root, "commit", "--quiet", "-m", "by others")
    waited = here.take(label(2, result=STARTED))
    (root / "work").write_text("two")
    second = here.take(label(3))

    _, changed = here.restore((begun, first, waited, second), label(4, result=KEPT))

    assert (("work",), False) == (changed, (root / "work").exists())
    assert ("by others", "by others\n") == ((root / "pulled").read_text(), (root / "kept").read_text())


def test_a_file_that_was_touched_only_is_no_obstacle(root: Path, here: Snapshots) -> None:
    """Its content is what git knows; only its times are not."""
    before = here.take(label(0, result=BEGUN))
    (root / "kept").write_text("changed\n")
    left = here.take(label(1))
    os.utime(root / "kept", (1, 1))

    here.restore((before, left), label(2, result=KEPT))

    assert "kept\n" == (root / "kept").read_text()


def test_a_nested_project_is_left_alone(tmp_path: Path, root: Path, here: Snapshots) -> None:
    """Its files and its STATE.json are another story's."""
    projects = [str(root), str(root / "below"), str(tmp_path / "elsewhere")]
    Worktree(str(root), tmp_path / "state", dict(os.environ)).note_others(projects, anew=True)
    (root / "below/.ai").mkdir()
    (root / "below/.ai/STATE.json").write_text("1")
    before = here.take(label(0, result=BEGUN))
    (root / "below/.ai/STATE.json").write_text("2")
    (root / "below/one").write_text("another story's")
    (root / "work").write_text("x")
    left = here.take(label(1))

    assert "below/.ai/STATE.json" not in names(root, left)
    _, changed = here.restore((before, left), label(2, result=KEPT))
    assert (("work",), "another story's") == (changed, (root / "below/one").read_text())


def test_a_folder_is_no_project_because_it_looks_like_one(root: Path, here: Snapshots) -> None:
    """An agent could make any folder look so; all of it is kept and brought back."""
    before = here.take(label(0, result=BEGUN))
    (root / "below/.ai").mkdir()
    (root / "below/.ai/STATE.json").write_text("{}")
    (root / "below/one").write_text("changed\n")
    left = here.take(label(1))

    assert {"below/.ai/STATE.json", "below/one"} < {*names(root, left)}
    _, changed = here.restore((before, left), label(2, result=KEPT))
    assert ("below/.ai/STATE.json", "below/one") == changed
    assert "one\n" == (root / "below/one").read_text()


def test_a_project_that_is_new_below_leaves_the_snapshots(
    tmp_path: Path, root: Path, here: Snapshots
) -> None:
    """A story that begins later does not have what was taken in before; a list that is known is kept."""
    (root / "below/two").write_text("two\n")
    here.take(label(0, result=BEGUN))
    worktree = Worktree(str(root), tmp_path / "state", dict(os.environ))
    worktree.note_others([], anew=False)
    worktree.note_others([str(root / "below")], anew=False)
    assert "below/two" in names(root, here.take(label(1)))

    worktree.note_others([str(root / "below")], anew=True)

    assert "below/two" not in names(root, here.take(label(2)))


def test_a_first_attempt_that_begins_again_keeps_the_beginning(root: Path, here: Snapshots) -> None:
    """What it had done by then does not count; nor do later edits, for an attempt that is judged."""
    begun = here.take(label(0, result=BEGUN))
    (root / "half").write_text("x")
    here.take(Label(story="US-1", step="impl", result=KEPT, run="run-1", at=START))

    assert begun == here.take(label(5, result=BEGUN))
    judged = here.take(label(6))
    (root / "later").write_text("x")
    assert judged == here.take(label(6))


def test_a_way_back_that_fails_half_way_says_where_the_files_are(root: Path, tmp_path: Path) -> None:
    """As in a folder that an agent has made read-only."""
    program = tmp_path / "bin/git"
    program.parent.mkdir()
    real = shutil.which("git")
    program.write_text(f'#!/bin/sh\ncase "$*" in *"read-tree -m -u"*) exit 1;; esac\nexec {real} "$@"\n')
    program.chmod(0o755)
    here = Snapshots(str(root), tmp_path / "state", {"PATH": f"{program.parent}:/usr/bin:/bin"})
    before = here.take(label(0, result=BEGUN))
    (root / "new").write_text("x")
    left = here.take(label(1))

    with pytest.raises(StoreError, match="half done: the files were kept as refs/handoffd/US-1/kept-"):
        here.restore((before, left), label(2, result=KEPT))


def test_a_branch_that_is_a_link_to_another_is_followed(root: Path, here: Snapshots) -> None:
    """But not out of the refs."""
    git(root, "symbolic-ref", "refs/heads/master", "refs/heads/main")
    git(root, "symbolic-ref", "HEAD", "refs/heads/master")
    one = here.take(label(1))
    assert said(root, "rev-parse", "main") == said(root, "rev-parse", f"{one.ref}^")

    (root / ".git/HEAD").write_text(f"ref: ../../{root.name}/kept\n")
    two = here.take(label(2))
    (root / ".git/HEAD").write_text("ref: refs/heads/main\n")
    assert "" == said(root, "log", "-1", "--format=%P", two.ref).strip()


def test_a_long_name_is_shortened_and_half_a_character_is_refused(here: Snapshots) -> None:
    """A file name has 255 bytes; half a character cannot be written, and ends no loop."""
    assert here.take(label(1, story="故" * 60)).ref.startswith("refs/handoffd/%E6")
    with pytest.raises(StoreError):
        here.take(label(2, story="\ud83d"))


def test_a_ref_that_cannot_be_removed_stays_on_the_list(root: Path, here: Snapshots) -> None:
    """Else it would stay for ever."""
    one = here.take(label(1))
    git(root, "pack-refs", "--all")
    (root / ".git/packed-refs.lock").touch()

    with pytest.raises(StoreError):
        here.drop([one])
    assert [one] == list(here.all())
    (root / ".git/packed-refs.lock").unlink()
    here.drop([one])
    assert [] == list(here.all())


# --- comparing ----------------------------------------------------------------------------------------
def test_a_comparison_counts_lines_and_says_whose_attempt_changed_a_file(root: Path, here: Snapshots) -> None:
    """New, changed, removed and binary files, with any name; what a person changed belongs to no step."""
    begun = here.take(label(0, step="bdd", result=BEGUN))
    (root / "kept").write_text("kept\nmore\n")
    (root / "odd\tname\n").write_text("x\n")
    (root / ":(top)\udcff").write_text("x\n")
    first = here.take(label(1, step="bdd"))
    (root / "mine").write_text("by a person\n")
    decided = here.take(replace(label(2, step="review"), run=None, by="mei"))
    (root / "below/one").unlink()
    (root / "picture").write_bytes(b"\0\1")
    (root / "kept").write_text("other\n")
    last = here.take(label(3, step="impl"))

    found = here.compared((begun, first, decided, last))

    assert (begun, last) == (found.since, found.until)
    assert {
        (b":(top)\xff", "added", 1, 0, ("bdd",)),
        (b"below/one", "removed", 0, 1, ("impl",)),
        (b"kept", "changed", 1, 1, ("bdd", "impl")),
        (b"mine", "added", 1, 0, ()),
        (b"odd\tname\n", "added", 1, 0, ("bdd",)),
        (b"picture", "added", None, None, ("impl",)),
    } == {tuple(file) for file in found.files}


def test_a_comparison_is_of_the_project_and_none_beside_it(root: Path, tmp_path: Path) -> None:
    """Paths are below the project's folder; other projects of the repository are left out."""
    here = Snapshots(str(root / "below"), tmp_path / "state", dict(os.environ))
    begun = here.take(label(0, step="bdd", result=BEGUN))
    (root / "below/two").write_text("two\n")
    (root / "kept").write_text("changed\n")
    git(root, "commit", "--quiet", "-a", "-m", "elsewhere")

    found = here.compared((begun, here.take(label(1))))

    assert [b"two"] == [file.path for file in found.files]


def test_what_a_story_has_taken_in_is_not_its_own(root: Path, here: Snapshots) -> None:
    """It merges what has landed meanwhile; of a file that both have changed, its own lines count."""
    git(root, "switch", "--quiet", "--create", "story")
    begun = here.take(label(0, step="bdd", result=BEGUN))
    git(root, "switch", "--quiet", "--create", "news")
    (root / "theirs").write_text("theirs\n")
    (root / "kept").write_text("theirs\nkept\n")
    git(root, "add", "--all")
    assert 0 == git(root, "commit", "--quiet", "-m", "landed")
    news = said(root, "rev-parse", "HEAD").strip()
    git(root, "switch", "--quiet", "story")
    assert 0 == git(root, "merge", "--quiet", "news")
    (root / "kept").write_text("theirs\nkept\nmine\n")
    last = here.take(label(1, step="impl"))

    assert [b"kept", b"theirs"] == [file.path for file in here.compared((begun, last)).files]
    (own,) = here.compared((begun, last), news).files
    assert (b"kept", 1, 0, ("impl",)) == (own.path, own.added, own.removed, own.steps)


def test_around_a_missing_snapshot_no_step_is_blamed(root: Path, here: Snapshots) -> None:
    """It may have been another one; that the file differs is sure."""
    begun = here.take(label(0, step="bdd", result=BEGUN))
    (root / "kept").write_text("changed\n")
    here.miss(label(1, step="bdd"))
    missing = here.all("US-1")[-1]
    last = here.take(label(2, step="impl"))

    found = here.compared((begun, missing, last))

    assert [(b"kept", ())] == [(file.path, file.steps) for file in found.files]


def test_nothing_that_a_repository_names_is_run_by_a_comparison(root: Path, here: Snapshots) -> None:
    """Neither a diff driver, nor textconv, nor an external diff."""
    ran = root.parent / "ran"
    for key in ("diff.bad.command", "diff.bad.textconv", "diff.external"):
        git(root, "config", key, f"touch {ran}; true")
    (root / ".gitattributes").write_text("* diff=bad\n")
    begun = here.take(label(0, step="bdd", result=BEGUN))
    (root / "kept").write_text("changed\n")

    found = here.compared((begun, here.take(label(1))))

    assert [b"kept"] == [file.path for file in found.files]
    assert not ran.exists()
