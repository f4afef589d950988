"""Clones of real repositories: what they hold, what is refused, and what a kill or an agent leaves."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from tests.support.repositories import git, said
from tests.unit.git.conftest import AT, AsAnother, Branch, Killed, Make

from handoffd.errors import StoreError
from handoffd.git.clones import Clone, Clones, clones_in, number_of
from handoffd.git.worktree import shadow_of


@pytest.fixture
def clones(project: Path, state: Path) -> Clones:
    """The clones of the repository."""
    return Clones(str(project), state, dict(os.environ))


def everything(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder, also git's, by path."""
    files = (path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
    return {str(path.relative_to(folder)): b"" if path.is_symlink() else path.read_bytes() for path in files}


def commit(root: Path, message: str = "more") -> str:
    """Commit all files, and return the commit."""
    git(root, "add", "--all")
    assert 0 == git(root, "commit", "--quiet", "--allow-empty", "-m", message)
    return said(root, "rev-parse", "HEAD")


# --- what one holds -----------------------------------------------------------------------------------
def test_it_is_on_a_branch_of_its_story_at_the_commit_that_is_checked_out(
    project: Path, state: Path, make: Make, clones: Clones
) -> None:
    """Its files are the commit's; what is not committed is not there."""
    head = said(project, "rev-parse", "HEAD")
    (project / "kept").write_text("not committed\n")

    clone = make()

    folder = Path(clone.workspace.folder)
    assert ("clone", "handoffd/US-1", head) == (
        clone.workspace.kind, clone.workspace.branch, clone.workspace.base,
    )  # fmt: skip
    assert folder.is_relative_to(state / "workspaces")
    assert "shop" == folder.name
    assert ("handoffd/US-1", head) == (
        said(folder, "rev-parse", "--abbrev-ref", "HEAD"), said(folder, "rev-parse", "HEAD"),
    )  # fmt: skip
    assert ("kept\n", "one\n") == ((folder / "kept").read_text(), (folder / "below/one").read_text())
    assert "" == said(folder, "status", "--porcelain")
    assert "" == said(folder, "remote")
    assert "" == said(folder, "fsck", "--strict")
    assert (clone, (clone,)) == (clones.of("US-1"), clones_in(state))
    assert (None, 0o700) == (clones.of("US-2"), stat.S_IMODE(folder.parent.stat().st_mode))


def test_it_borrows_what_the_project_has_and_a_ref_keeps_that(project: Path, make: Make) -> None:
    """It has no object of its own, and a gc in the project after its branch is gone does no harm."""
    git(project, "checkout", "--quiet", "-b", "side")
    (project / "kept").write_text("side\n")
    commit(project)
    clone = make()
    folder = Path(clone.workspace.folder)

    git(project, "checkout", "--quiet", "main")
    git(project, "branch", "-D", "side")
    git(project, "reflog", "expire", "--expire=now", "--all")
    git(project, "gc", "--quiet", "--prune=now")

    assert "0 objects, 0 kilobytes" == said(folder, "count-objects")
    assert clone.workspace.base == said(project, "rev-parse", "refs/handoffd/US-1/base")
    assert "" == said(folder, "fsck", "--strict")


def test_a_clone_made_from_its_branch_keeps_that_too(
    project: Path, make: Make, branch: Branch, clones: Clones
) -> None:
    """A person may delete the branch; the clone borrows its commits since it was made anew."""
    clone = make()
    Path(clone.workspace.folder, "kept").write_text("done\n")
    end = branch(clone).commit(b"done", None, AT)
    branch(clone).publish()
    clones.remove(clone)
    again = make()

    git(project, "branch", "-D", "handoffd/US-1")
    git(project, "gc", "--quiet", "--prune=now")

    assert end == said(Path(again.workspace.folder), "rev-parse", "HEAD")
    assert "done\n" == said(Path(again.workspace.folder), "show", "HEAD:kept") + "\n"


def test_agents_commit_in_it_with_the_projects_name(project: Path, make: Make) -> None:
    """Nothing else of the project's settings is there: they may name programs."""
    git(project, "config", "user.name", 'A "B" \\ C')
    git(project, "config", "user.email", "a@example.org")
    git(project, "config", "core.hooksPath", "/somewhere")
    git(project, "remote", "add", "origin", "https://example.org/")
    folder = Path(make().workspace.folder)

    asked = ("user.name", "user.email")
    assert ['A "B" \\ C', "a@example.org"] == [said(folder, "config", "--local", key) for key in asked]
    listed = said(folder, "config", "--local", "--list")
    assert "hookspath" not in listed
    assert "remote." not in listed
    assert "[include]" not in (folder / ".git/config").read_text()


def test_links_lead_to_the_project_and_are_no_new_files(project: Path, make: Make) -> None:
    """Whatever their names; git ignores them in the clone."""
    names = ("node_modules", "below/.env", "odd *?[!# name")
    (project / names[0]).mkdir()
    (project / names[1]).write_text("KEY=1\n")
    (project / names[2]).write_text("odd")

    folder = Path(make(links=names).workspace.folder)

    assert [str(project / name) for name in names] == [os.readlink(folder / name) for name in names]
    assert "" == said(folder, "status", "--porcelain")
    (folder / "odd x name").touch()
    assert '?? "odd x name"' == said(folder, "status", "--porcelain")


@pytest.mark.parametrize(("name", "why"), [("nothing", "is not in"), ("kept", "is in the repository")])
def test_a_link_that_cannot_be_is_refused(
    make: Make, clones: Clones, state: Path, name: str, why: str
) -> None:
    """With the reason, and nothing is left."""
    with pytest.raises(StoreError, match=why) as caught:
        make(links=(name,))

    assert ("NO_CLONE", None) == (caught.value.code, clones.of("US-1"))
    assert [] == [path for path in (state / "workspaces").rglob("*") if path.is_file()]


def test_what_a_person_ignores_and_what_is_handed_over_is_left_out(project: Path, make: Make) -> None:
    """Of an agent that adds all files: the project's own list of ignored files counts here, too."""
    (project / ".git/info/exclude").write_text("*.local")
    folder = Path(make().workspace.folder)
    papers = (
        "HANDOFF.md",
        "executor-result",
        "CHECKLIST.md",
        "history.md",
        "handoffd.yaml",
        "step-rules.yaml",
    )
    for name in (*papers, "notes.md"):
        (folder / ".ai" / name).write_text("x")
    (folder / "my.local").touch()
    (folder / "new").touch()

    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "by an agent")

    assert [".ai/notes.md", "new"] == said(folder, "show", "--format=", "--name-only").split()


# --- made again ---------------------------------------------------------------------------------------
def test_a_story_goes_on_from_its_branch(project: Path, make: Make, branch: Branch, clones: Clones) -> None:
    """Its clone is gone; what it has published is not, nor where it began."""
    first = make()
    Path(first.workspace.folder, "new").write_text("new\n")
    end = branch(first).commit(b"work", None, AT)
    branch(first).publish()
    shutil.rmtree(first.workspace.folder)
    (project / "kept").write_text("later\n")
    commit(project)
    assert clones.of("US-1") is None

    again = clones.make("US-1", (), first.workspace, AT)

    assert first.workspace == again.workspace
    folder = Path(again.workspace.folder)
    assert (end, "new\n") == (said(folder, "rev-parse", "HEAD"), (folder / "new").read_text())
    assert branch(again).unkept() is None


def test_without_a_branch_it_begins_where_it_began(project: Path, make: Make, clones: Clones) -> None:
    """A kill may come before anything was published."""
    first = make()
    commit(project)

    again = clones.make("US-1", (), first.workspace, AT)

    assert first.workspace.base == again.workspace.base
    assert first.workspace.base == said(Path(again.workspace.folder), "rev-parse", "HEAD")


@pytest.mark.parametrize("landed", [True, False])
def test_a_story_that_is_started_again(project: Path, make: Make, branch: Branch, landed: bool) -> None:
    """After its branch has landed it begins at the checkout, else it goes on from the branch."""
    first = make()
    Path(first.workspace.folder, "new").write_text("new\n")
    end = branch(first).commit(b"work", None, AT)
    branch(first).publish()
    if landed:
        git(project, "merge", "--quiet", "--no-ff", "handoffd/US-1")
    head = commit(project)
    assert landed == branch(first).is_landed()

    again = make()

    expected = (head, head) if landed else (end, first.workspace.base)
    assert expected == (said(Path(again.workspace.folder), "rev-parse", "HEAD"), again.workspace.base)
    Path(again.workspace.folder, "more").write_text("more\n")
    made = branch(again).commit(b"more work", None, AT)
    assert made == branch(again).publish() == said(project, "rev-parse", "handoffd/US-1")


def test_a_branch_with_a_history_of_its_own_is_gone_on_from(project: Path, make: Make) -> None:
    """It has no commit in common with the checkout."""
    tree = said(project, "rev-parse", "HEAD^{tree}")
    orphan = said(project, "commit-tree", tree, "-m", "alone")
    git(project, "branch", "handoffd/US-1", orphan)

    clone = make()

    assert (orphan, orphan) == (clone.workspace.base, said(Path(clone.workspace.folder), "rev-parse", "HEAD"))


# --- repositories of all kinds ------------------------------------------------------------------------
def test_a_project_below_the_top_has_its_place_in_a_clone_of_all(
    project: Path, make: Make, branch: Branch
) -> None:
    """Only its own files are committed, and what is handed over is left out there."""
    below = project / "below"
    (below / "deps").mkdir()
    clone = make(below, links=("deps",))
    folder = Path(clone.workspace.folder)

    assert ("below", "handoffd/below/US-1") == (folder.name, clone.workspace.branch)
    assert "kept\n" == (folder.parent / "kept").read_text()
    (folder / ".ai/HANDOFF.md").write_text("x")
    assert "" == said(folder, "status", "--porcelain")
    (folder / "one").write_text("changed\n")
    (folder.parent / "kept").write_text("another project's\n")
    branch(clone, below).commit(b"work", None, AT)
    branch(clone, below).publish()
    assert "below/one" == said(project, "diff", "--name-only", "main", "handoffd/below/US-1")


def test_a_project_that_no_commit_has_gets_its_folder(project: Path, make: Make) -> None:
    """It may be new."""
    (project / "new").mkdir()

    assert Path(make(project / "new").workspace.folder, ".ai").is_dir()


def test_a_linked_worktree_has_clones_of_its_own(
    project: Path, tmp_path: Path, make: Make, branch: Branch
) -> None:
    """At what is checked out there; the branch is in the repository that they share."""
    linked = tmp_path / "linked"
    git(project, "worktree", "add", "--quiet", "-b", "side", str(linked))
    (linked / "kept").write_text("side\n")
    head = commit(linked)

    clone = make(linked)

    assert ("handoffd/@worktree/linked/US-1", head) == (clone.workspace.branch, clone.workspace.base)
    Path(clone.workspace.folder, "new").write_text("x")
    end = branch(clone, linked).commit(b"work", None, AT)
    branch(clone, linked).publish()
    assert end == said(project, "rev-parse", "handoffd/@worktree/linked/US-1")


def test_a_repository_with_longer_ids(tmp_path: Path, make: Make, branch: Branch) -> None:
    """git can be asked for SHA-256."""
    root = tmp_path / "long"
    root.mkdir()
    git(root, "init", "--quiet", "--object-format=sha256")
    (root / "file").write_text("one")
    commit(root)

    clone = make(root)

    folder = Path(clone.workspace.folder)
    assert (64, "") == (len(clone.workspace.base or ""), said(folder, "status", "--porcelain"))
    (folder / "file").write_text("two")
    end = branch(clone, root).commit(b"work", None, AT)
    assert end == branch(clone, root).publish() == said(root, "rev-parse", "handoffd/US-1")
    assert "" == said(root, "fsck", "--strict")


@pytest.mark.parametrize("depth", [1, 2])
def test_a_shallow_repository(project: Path, tmp_path: Path, make: Make, branch: Branch, depth: int) -> None:
    """Its history has no beginning; it is whole all the same."""
    for number in range(4):
        (project / "kept").write_text(f"{number}\n")
        commit(project)
    root = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", f"--depth={depth}", f"file://{project}", str(root))
    clone = make(root)
    folder, one = Path(clone.workspace.folder), branch(clone, root)

    assert str(depth) == said(folder, "rev-list", "--count", "HEAD")
    end = ""
    for number in range(2):
        (folder / "new").write_text(f"{number}\n")
        end = one.commit(b"work", None, AT)
        assert end == one.publish() == said(root, "rev-parse", "handoffd/US-1")
    assert (None, False) == (one.unkept(), one.is_landed())
    assert "" == said(root, "fsck", "--strict") == said(folder, "fsck", "--strict")
    assert end == said(Path(make(root).workspace.folder), "rev-parse", "HEAD")
    git(root, "merge", "--quiet", "handoffd/US-1")
    assert one.is_landed()


def test_packed_refs(project: Path, make: Make, branch: Branch) -> None:
    """Of the project, and of the branch that it has."""
    clone = make()
    Path(clone.workspace.folder, "new").write_text("x")
    end = branch(clone).commit(b"work", None, AT)
    branch(clone).publish()
    git(project, "pack-refs", "--all")
    git(Path(clone.workspace.folder), "pack-refs", "--all")
    assert branch(clone).unkept() is None

    assert end == said(Path(make().workspace.folder), "rev-parse", "HEAD")


def test_an_empty_repository_has_nothing_to_begin_at(tmp_path: Path, make: Make) -> None:
    """The hint makes one."""
    root = tmp_path / "empty"
    root.mkdir()
    git(root, "init", "--quiet")

    with pytest.raises(StoreError, match="has no commit to begin at") as caught:
        make(root)

    assert ("NO_CLONE", f"git -C {root} commit --allow-empty -m 'Begin'") == (
        caught.value.code, caught.value.hint,
    )  # fmt: skip


def test_each_clone_of_a_project_has_a_number_of_its_own(
    project: Path, state: Path, make: Make, clones: Clones
) -> None:
    """The lowest that is free: tests that run at once take their ports by it."""
    one, other = make(story="US-1"), make(story="US-2")
    assert [0, 1] == [number_of(clone.workspace.folder, state) for clone in (one, other)]
    clones.remove(one)
    again, more = make(story="US-3"), make(story="US-1")
    assert [0, 2] == [number_of(clone.workspace.folder, state) for clone in (again, more)]
    assert 0 == number_of(str(project), state)


def test_no_story_begins_at_a_storys_branch(project: Path, make: Make) -> None:
    """A person looks at one: the next story would land there, and have half of it in its own."""
    assert 0 == git(project, "switch", "--quiet", "--create", "handoffd/US-9")
    with pytest.raises(StoreError, match="handoffd/US-9, which is checked out") as caught:
        make()
    assert ("NO_CLONE", f"git -C {project} switch -") == (caught.value.code, caught.value.hint)
    assert 0 == git(project, "switch", "--quiet", "-")
    make()


@pytest.mark.parametrize("packed", [True, False])
def test_a_branch_called_handoffd_is_in_the_way(project: Path, make: Make, packed: bool) -> None:
    """git can have no branch below another; the hint renames it."""
    git(project, "branch", "handoffd")
    if packed:
        git(project, "pack-refs", "--all")

    with pytest.raises(StoreError, match="is called handoffd") as caught:
        make()

    assert "NO_CLONE" == caught.value.code
    assert 0 == subprocess.run(shlex.split(caught.value.hint or ""), check=False).returncode
    make()


def test_submodules_and_filters_are_refused(project: Path, make: Make, state: Path) -> None:
    """A clone would be without them; nothing is left of it, also no ref in the project."""
    git(project, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(project), "inner")
    commit(project)
    with pytest.raises(StoreError, match=r"without its submodules \(inner\)"):
        make()
    git(project, "rm", "--quiet", "inner")
    (project / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    (project / "a.bin").write_text("pointer")
    commit(project)

    with pytest.raises(StoreError, match=r"filter makes the contents of a\.bin") as caught:
        make()

    assert "NO_CLONE" == caught.value.code
    assert [] == [path for path in (state / "workspaces").rglob("*") if path.is_file()]
    assert "" == said(project, "for-each-ref", "refs/handoffd")


@pytest.mark.parametrize("name", ["my app", "a'b\"c", "-rf", "ü", "#x", "clone.json"])
def test_a_project_may_have_any_name(tmp_path: Path, make: Make, branch: Branch, name: str) -> None:
    """Its folder has the same in the state directory."""
    root = tmp_path / "names" / name
    root.mkdir(parents=True)
    git(root, "init", "--quiet")
    (root / "file").write_text("x")
    commit(root)

    clone = make(root)

    Path(clone.workspace.folder, "new").write_text("x")
    assert branch(clone, root).commit(b"work", None, AT) == branch(clone, root).publish()


# --- what a kill leaves -------------------------------------------------------------------------------
@pytest.mark.parametrize("words", ["!read-tree", "read-tree", "check-attr"])
def test_a_clone_is_made_anew_after_a_kill(
    project: Path, clones: Clones, make: Make, killed_at: Killed, words: str
) -> None:
    """At any point before it is known; what is there is no clone yet."""
    killed_at(words, 'clones.make("US-1", (), None, at)')
    assert clones.of("US-1") is None

    clone = make()

    assert "" == said(Path(clone.workspace.folder), "status", "--porcelain")
    assert (clone, "") == (clones.of("US-1"), said(project, "fsck", "--strict"))


def test_a_git_that_outlives_its_daemon_is_waited_for(
    tmp_path: Path, project: Path, state: Path, make: Make
) -> None:
    """It lays out files still; what it makes could not be cleared away, or would be in the new clone."""
    program, over = tmp_path / "slow/git", tmp_path / "over"
    program.parent.mkdir()
    outlives = f"kill -KILL $PPID; for n in $(seq 100); do echo > stray-$n; sleep 0.005; done; touch {over}"
    case = f'case " $* " in *" read-tree "*) {outlives};; esac'
    program.write_text(f'#!/bin/sh\n{case}\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    code = f"""
import os
from datetime import UTC, datetime
from pathlib import Path
from handoffd.git.clones import Clones
Clones({str(project)!r}, Path({str(state)!r}), dict(os.environ)).make("US-1", (), None, datetime.now(UTC))
"""
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    died = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PATH": path}, check=False)
    clone = make()

    assert (-9, True) == (died.returncode, over.exists())
    assert "" == said(Path(clone.workspace.folder), "status", "--porcelain")


def test_half_of_an_old_clone_is_none(clones: Clones, make: Make, killed_at: Killed) -> None:
    """A kill may come when the clone of an earlier life of the story is cleared away."""
    clone = make()
    code = """
import os
from handoffd.git import clones as module
module.remove_tree = lambda *_: os.kill(os.getpid(), 9)
clones.make("US-1", (), None, at)
"""
    killed_at("nothing", code)

    assert os.path.isdir(clone.workspace.folder)
    assert clones.of("US-1") is None


# --- removed ------------------------------------------------------------------------------------------
def test_a_clone_is_removed_with_what_kept_for_it(
    project: Path, state: Path, make: Make, branch: Branch, clones: Clones
) -> None:
    """Its branch stays, and so do the clones of others."""
    clone, other = make(), make(story="US-2")
    Path(clone.workspace.folder, "new").write_text("x")
    end = branch(clone).commit(b"work", None, AT)
    branch(clone).publish()
    assert clones.size_of(clone) > 0

    clones.remove(clone)

    assert (None, other) == (clones.of("US-1"), clones.of("US-2"))
    assert not Path(clone.workspace.folder).parent.exists()
    refs = said(project, "for-each-ref", "--format=%(refname)", "refs/handoffd", "refs/heads").split()
    assert ["refs/handoffd/US-2/base", "refs/heads/handoffd/US-1", "refs/heads/main"] == refs
    assert end == said(project, "rev-parse", "handoffd/US-1")
    left = {shadow_of(str(project), state).name, shadow_of(other.workspace.folder, state).name}
    assert left == {folder.name for folder in (state / "snapshots").iterdir()}


def test_a_clone_of_a_project_that_is_gone_is_removed(project: Path, make: Make, clones: Clones) -> None:
    """There is no ref to remove then."""
    clone = make()
    shutil.rmtree(project)

    clones.remove(clone)

    assert not Path(clone.workspace.folder).exists()


def test_folders_without_end_are_counted_and_removed(make: Make, branch: Branch, clones: Clones) -> None:
    """An agent has nested them deeper than a function can call itself."""
    clone = make()
    for name in ("deep", ".git/rebase-merge", ".git/refs/heads/deep"):
        place = os.open(clone.workspace.folder, os.O_RDONLY)
        for part in (*name.split("/"), *["d"] * 1500):
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=place)
            below = os.open(part, os.O_RDONLY, dir_fd=place)
            os.close(place)
            place = below
        os.close(place)
    Path(clone.workspace.folder, "new").write_text("x")

    assert clones.size_of(clone) > 1500 * 512
    branch(clone).commit(b"work", None, AT)
    branch(clone).publish()
    assert branch(clone).unkept() is None
    clones.remove(clone)

    assert not Path(clone.workspace.folder).parent.exists()


def test_folders_that_may_not_be_written_or_read_are_removed(
    project: Path, make: Make, as_another: AsAnother
) -> None:
    """Package managers keep them so. A link in them is not followed."""
    clone = make()
    closed = Path(clone.workspace.folder, "cache/module")
    (closed / "deep").mkdir(parents=True)
    (closed / "deep/file").touch()
    outside = project.parent / "outside"
    outside.mkdir(mode=0o500)
    (closed / "link").symlink_to(outside)
    for path, mode in ((closed / "deep", 0o000), (closed, 0o500)):
        path.chmod(mode)

    as_another("clear(Path(clone.workspace.folder).parent)")

    assert not Path(clone.workspace.folder).parent.exists()
    assert 0o500 == stat.S_IMODE(outside.stat().st_mode)


# --- a hostile project or agent -----------------------------------------------------------------------
def trap_of(tmp_path: Path) -> Path:
    """Make a program that leaves a mark when it is run."""
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat\n")
    trap.chmod(0o755)
    return trap


def test_nothing_that_the_project_names_is_run(
    project: Path, tmp_path: Path, make: Make, clones: Clones
) -> None:
    """Neither its hooks nor what its settings name, also by inclusion; nor templates."""
    trap = trap_of(tmp_path)
    for name in ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"):
        shutil.copy(trap, project / ".git/hooks" / name)
    (tmp_path / "included").write_text(f"[core]\n\tfsmonitor = {trap}\n[user]\n\tname = included\n")
    with (project / ".git/config").open("a") as file:
        file.write(
            f"[include]\n\tpath = {tmp_path}/included\n[core]\n\tfsmonitor = {trap}\n"
            f"\tsshCommand = {trap}\n\tpager = {trap}\n[init]\n\ttemplateDir = {tmp_path}\n"
            f"[filter \"evil\"]\n\tsmudge = {trap}\n\tprocess = {trap}\n[gc]\n\tauto = 1\n"
        )  # fmt: skip

    clone = make()
    clones.remove(clone)

    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("way", ["below", "link", ".ai", "dangling"])
def test_links_in_the_repository_lead_nowhere(project: Path, tmp_path: Path, make: Make, way: str) -> None:
    """Nothing is made outside of the clone by a link that was committed."""
    outside, root = tmp_path / "outside", project
    links: tuple[str, ...] = ()
    outside.mkdir()
    name = {"below": "below", "link": "deps", ".ai": ".ai", "dangling": ".ai"}[way]
    shutil.rmtree(project / name, ignore_errors=True)
    (project / name).symlink_to(outside / "nowhere" if way == "dangling" else outside)
    commit(project)
    (project / name).unlink()
    if way == "below":
        root = project / "below"
        root.mkdir()
    if way == "link":
        (project / "deps/inner").mkdir(parents=True)
        links = ("deps/inner",)

    with pytest.raises(StoreError, match="it is a symbolic link"):
        make(root, links=links)

    assert [] == [*outside.iterdir()]


@pytest.mark.parametrize("name", ["shallow", "info/exclude"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_only_files_of_the_project_are_copied(
    project: Path, tmp_path: Path, make: Make, name: str, kind: str
) -> None:
    """A link could lead to a secret, and a pipe has no end."""
    (tmp_path / "secret").write_text("secret\n")
    place = project / ".git" / name
    place.unlink(missing_ok=True)
    place.symlink_to(tmp_path / "secret") if kind == "link" else os.mkfifo(place)

    if name == "shallow":
        with pytest.raises(StoreError, match="regular file"):
            make()
        return
    assert "secret" not in Path(make().workspace.folder, ".git", name).read_text()


@pytest.mark.parametrize("value", ["ref: refs/heads/main", "--all", "nonsense", "a" * 40 + "\nb"])
def test_a_branch_that_names_no_commit_is_refused(project: Path, make: Make, value: str) -> None:
    """It is another's, or an option of git."""
    (project / ".git/refs/heads/handoffd").mkdir()
    (project / ".git/refs/heads/handoffd/US-1").write_text(f"{value}\n")

    with pytest.raises(StoreError, match="is not a branch of its own"):
        make()


@pytest.mark.parametrize("folder", ["refs/handoffd", "refs/handoffd/US-1"])
def test_a_link_among_the_projects_refs_is_not_followed(
    project: Path, tmp_path: Path, make: Make, folder: str
) -> None:
    """Nothing is written where it leads."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (project / ".git/refs/handoffd").mkdir()
    if folder == "refs/handoffd":
        (project / ".git/refs/handoffd").rmdir()
    (project / ".git" / folder).symlink_to(outside)

    with pytest.raises(StoreError, match="symbolic link"):
        make()

    assert [] == [*outside.iterdir()]


@pytest.mark.parametrize("story", ["..", ".", "a/b", "../US-2", "US-2", "x" * 300])
def test_no_story_reaches_the_clone_of_another(project: Path, make: Make, story: str) -> None:
    """Whatever it is called, and whatever the state of both."""
    other = make(story="US-3")
    before = everything(Path(other.workspace.folder))

    clone = make(story=story)

    assert Path(clone.workspace.folder).parent.parent == Path(other.workspace.folder).parent.parent
    assert before == everything(Path(other.workspace.folder))


def test_a_clone_that_is_known_to_be_elsewhere_is_not_there(
    project: Path, state: Path, make: Make, clones: Clones
) -> None:
    """An agent that can write beside its clone gets no other place by that."""
    clone, other = make(), make(story="US-2")
    note = Path(clone.workspace.folder).parent / "clone.json"
    for folder in (other.workspace.folder, str(project), f"{clone.workspace.folder}/../../US-2/shop", "/"):
        place = replace(clone.workspace, folder=folder)
        note.write_bytes(msgspec.json.encode(replace(clone, workspace=place)))
        assert clones.of("US-1") is None
    note.write_bytes(msgspec.json.encode(replace(clone, story="US-2")))
    assert clones.of("US-1") is None
    note.write_bytes(b"{")
    assert (None, (other,)) == (clones.of("US-1"), clones_in(state))


def test_a_folder_that_became_a_link_is_no_clone(project: Path, state: Path, make: Make) -> None:
    """An agent of a project below the top could lead the next one out of the clone."""
    below = Clones(str(project / "below"), state, dict(os.environ))
    clone: Clone = make(project / "below")
    assert clone == below.of("US-1")
    shutil.rmtree(clone.workspace.folder)

    Path(clone.workspace.folder).symlink_to(project)

    assert below.of("US-1") is None


# --- what is remembered -------------------------------------------------------------------------------
def test_the_steps_of_a_story_outlive_its_clone(project: Path, make: Make, clones: Clones) -> None:
    """A step that is accepted anew takes along what came behind it; a story that begins anew has none."""
    clone = make()
    where = replace(clone.workspace, onto="main")
    for step, end in (("bdd", "a1"), ("impl", "b2"), ("verify", "c3"), ("impl", "d4")):
        clones.note_step("US-1", where, step, end)
    clones.remove(clone)

    trail = clones.trail("US-1")
    assert trail is not None
    assert ("main", "a1", "d4", None) == (trail.onto, *map(trail.end_of, ("bdd", "impl", "verify")))
    clones.note_step("US-1", replace(where, base="e5"), "bdd", "f6")
    trail = clones.trail("US-1")
    assert trail is not None
    assert (("bdd", "f6"),) == trail.steps
    assert clones.trail("US-2") is None


def test_a_clone_that_goes_before_its_first_step_leaves_the_branch_that_it_began_at(
    make: Make, clones: Clones
) -> None:
    """As one does that an earlier handoffd has made."""
    clones.remove(make())

    trail = clones.trail("US-1")
    assert trail is not None
    assert ("main", ()) == (trail.onto, trail.steps)


def test_only_so_many_stories_are_remembered(project: Path, state: Path, make: Make, clones: Clones) -> None:
    """The one that was at work longest ago is forgotten."""
    folder, place = shadow_of(str(project), state) / "stories", make().workspace
    folder.mkdir(parents=True)
    for number in range(1000):
        (folder / f"US-{number}.json").write_text("{}")
        os.utime(folder / f"US-{number}.json", (1_000_000 + number % 999, 1_000_000 + number % 999))
    os.utime(folder / "US-500.json", (1, 1))
    clones.note_step("US-2000", place, "bdd", "a1")

    assert 1000 == len([*folder.iterdir()])
    assert not (folder / "US-500.json").exists()
    assert clones.trail("US-2000") is not None
