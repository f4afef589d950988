"""The branch of a story in real repositories: commits, and how they come into the project's repository.

An agent owns all of its clone, also git's folder in there; what it does to that must reach nothing outside.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.eventually import eventually_sync
from tests.support.repositories import git, said
from tests.unit.git.conftest import AT, AsAnother, Branch, Crashed, Killed, Make, crash, crashing

from handoffd.engine.track import Workspace
from handoffd.errors import StoreError
from handoffd.git import branches as module
from handoffd.git.branches import LEFT, UNPUBLISHED, StoryBranch, branch_of
from handoffd.git.clones import Clone, Clones
from handoffd.git.repository import repository_at
from handoffd.git.worktree import LARGEST, Worktree

NAME = "handoffd/US-1"
REF = f"refs/heads/{NAME}"


@pytest.fixture
def clone(make: Make) -> Clone:
    """The clone of the story."""
    return make()


@pytest.fixture
def folder(clone: Clone) -> Path:
    """The folder of the clone."""
    return Path(clone.workspace.folder)


@pytest.fixture
def one(clone: Clone, branch: Branch) -> StoryBranch:
    """The branch of the clone."""
    return branch(clone)


def work(folder: Path, text: str = "new\n", *, name: str = "new") -> None:
    """Write a file."""
    (folder / name).write_text(text)


def kept(one: StoryBranch, message: bytes = b"work\n") -> str:
    """Commit what the folder holds."""
    return one.commit(message, None, AT)


def by_an_agent(folder: Path, message: str = "by an agent") -> str:
    """Commit all files, and return the commit."""
    git(folder, "add", "--all")
    assert 0 == git(folder, "commit", "--quiet", "--allow-empty", "-m", message)
    return said(folder, "rev-parse", "HEAD")


def files(folder: Path, commit: str) -> list[str]:
    """Return the files of a commit."""
    return said(folder, "ls-tree", "-r", "--name-only", commit).split()


def untouched(project: Path) -> dict[str, bytes]:
    """Return everything of the project and its git folder but objects, the story's own refs and their log."""
    ours = (project / ".git" / REF, project / ".git/refs/handoffd", project / ".git/logs" / REF)
    return {
        str(path): path.read_bytes()
        for path in project.rglob("*")
        if path.is_file() and "objects" not in path.parts
        and not any(path.is_relative_to(ref) for ref in ours)
    }  # fmt: skip


# --- commits ------------------------------------------------------------------------------------------
def test_a_commit_holds_what_the_folder_holds(folder: Path, one: StoryBranch, clone: Clone) -> None:
    """New, changed and deleted files; none that is ignored, and nothing of handoffd's."""
    work(folder)
    work(folder, "changed\n", name="kept")
    (folder / "below/one").unlink()
    work(folder, name="some.log")
    work(folder, name=".ai/HANDOFF.md")
    work(folder, name=".ai/notes.md")

    made = one.commit(b"US-1 impl: done\n\nStory: US-1\n", "A Person <a@example.org>", AT)

    assert [".gitignore", "kept", "new"] == files(folder, made)
    assert "changed" == said(folder, "show", f"{made}:kept")
    shown = said(folder, "log", "-1", "--format=%an <%ae> %at, %cn <%ce> %ct%n%B%P", made)
    assert shown == (
        f"A Person <a@example.org> {int(AT.timestamp())}, "
        f"handoffd <handoffd@localhost> {int(AT.timestamp())}\n"
        f"US-1 impl: done\n\nStory: US-1\n{clone.workspace.base}"
    )
    assert (made, NAME) == (said(folder, "rev-parse", REF), said(folder, "rev-parse", "--abbrev-ref", "HEAD"))
    assert "?? .ai/" == said(folder, "status", "--porcelain")
    assert () == one.left_out


def test_without_a_change_there_is_no_commit(folder: Path, one: StoryBranch, clone: Clone) -> None:
    """What is ignored or handoffd's is none; nor is a file that was touched only."""
    assert clone.workspace.base == kept(one)
    work(folder)
    made = kept(one)
    work(folder, name="some.log")
    work(folder, name=".ai/HANDOFF.md")
    os.utime(folder / "kept", (1, 1))

    assert made == kept(one) == said(folder, "rev-parse", "HEAD")
    assert "handoffd" == said(folder, "log", "-1", "--format=%an")


def test_a_commit_is_of_what_was_seen_just_now(
    project: Path, folder: Path, clone: Clone, state: Path
) -> None:
    """The next one is of the files again; one whose agent has moved HEAD, and of another folder, too."""

    def after_a_look(at: Path, *, name: str) -> StoryBranch:
        seen = Worktree(str(at), state, os.environ)
        with seen.opened(60) as (repository, program):
            seen.tree(repository, program)
        work(folder, name=name)
        return StoryBranch(str(project), clone.workspace, state, os.environ, seen)

    one = after_a_look(folder, name="first")
    assert "first" not in files(folder, kept(one))
    assert "first" in files(folder, kept(one))
    one = after_a_look(folder, name="second")
    assert 0 == git(folder, "checkout", "--quiet", "--orphan", "elsewhere")
    assert "second" in files(folder, kept(one))
    assert "third" in files(folder, kept(after_a_look(project, name="third")))


def test_a_history_that_git_tracks_is_committed(project: Path, make: Make, branch: Branch) -> None:
    """It is the one paper in .ai that is; in another project the daemon carries it over."""
    (project / ".ai").mkdir()
    work(project, "first\n", name=".ai/history.md")
    by_an_agent(project)
    clone = make()
    folder, one = Path(clone.workspace.folder), branch(clone)
    work(folder, "first\nsecond\n", name=".ai/history.md")
    assert "it has changes that are not committed" == one.unkept()

    made = kept(one)

    assert "first\nsecond" == said(folder, "show", f"{made}:.ai/history.md")
    assert made == one.publish()
    assert one.unkept() is None
    (folder / ".ai/history.md").unlink()
    assert made == kept(one)


@pytest.mark.parametrize("way", ["folder", "file", "pipe", "large"])
def test_a_history_that_is_no_file_is_left_as_it_was(
    project: Path, tmp_path: Path, make: Make, branch: Branch, way: str
) -> None:
    """The rest is committed."""
    (project / ".ai").mkdir()
    work(project, "first\n", name=".ai/history.md")
    by_an_agent(project)
    clone = make()
    folder = Path(clone.workspace.folder)
    work(tmp_path, "secret\n", name="history.md")
    (folder / ".ai/history.md").unlink()
    if way == "folder":
        (folder / ".ai").rmdir()
        (folder / ".ai").symlink_to(tmp_path)
    elif way == "file":
        (folder / ".ai/history.md").symlink_to(tmp_path / "history.md")
    elif way == "pipe":
        os.mkfifo(folder / ".ai/history.md")
    else:
        with (folder / ".ai/history.md").open("wb") as file:
            file.truncate(LARGEST + 1)
    work(folder)

    made = kept(branch(clone))

    assert ("first", "new") == (
        said(folder, "show", f"{made}:.ai/history.md"),
        said(folder, "show", f"{made}:new"),
    )


def test_what_a_commit_cannot_hold_is_named(folder: Path, one: StoryBranch) -> None:
    """A large file, one that git cannot take, a repository of its own; all else is committed."""
    with (folder / "large").open("wb") as file:
        file.truncate(LARGEST + 1)
    work(folder, "*.bad working-tree-encoding=UTF-16\n", name=".gitattributes")
    work(folder, "no byte order mark", name="a.bad")
    (folder / "app").mkdir()
    git(folder / "app", "init", "--quiet")
    work(folder / "app")
    work(folder)

    made = kept(one)

    assert ("a.bad", "large", "app/") == one.left_out
    assert [".gitattributes", ".gitignore", "below/one", "kept", "new"] == files(folder, made)
    one.publish()
    assert "no commit takes a.bad, large, app/: too large, or a repository of its own" == one.unkept()
    with pytest.raises(StoreError, match=r"no ref can keep a\.bad, large, app/: too large"):
        one.discard(AT)
    assert NAME in said(folder, "branch")


def test_a_file_that_cannot_be_read_is_named(project: Path, folder: Path, as_another: AsAnother) -> None:
    """It stays as the last commit has it, and the rest is committed."""
    (folder / "kept").write_text("changed\n")
    (folder / "kept").chmod(0)
    work(folder)

    as_another("""
branch.commit(b"work", None, at)
branch.publish()
assert ("kept",) == branch.left_out
""")

    assert "kept" == said(project, "-c", "safe.directory=*", "show", f"{NAME}:kept")
    assert "new" == said(project, "-c", "safe.directory=*", "show", f"{NAME}:new")


# --- what has landed meanwhile ------------------------------------------------------------------------
def by_a_person(project: Path, **files: str) -> str:
    """Commit files on the project's own branch, and return the commit."""
    for name, text in files.items():
        (project / name).write_text(text)
    assert 0 == git(project, "add", "--all")
    assert 0 == git(project, "commit", "--quiet", "-m", "landed")
    return said(project, "rev-parse", "main")


def test_a_clone_takes_in_what_has_landed(project: Path, folder: Path, one: StoryBranch) -> None:
    """It has the files of both, its branch both commits as parents, and nothing is left to commit."""
    work(folder)
    mine = kept(one)
    (folder / "build.log").write_text("not in git\n")
    theirs = by_a_person(project, other="landed\n", kept="changed\n")
    made = one.take_in(b"take in main\n", AT)

    assert made == one.publish() == said(project, "rev-parse", NAME) == said(folder, "rev-parse", "HEAD")
    assert [mine, theirs] == said(project, "show", "--no-patch", "--format=%P", NAME).split()
    assert ("landed\n", "changed\n", "new\n") == tuple(
        (folder / name).read_text() for name in ("other", "kept", "new")
    )
    assert "" == said(folder, "status", "--porcelain")
    assert (folder / "build.log").exists()
    assert "" == said(project, "fsck", "--strict", "--no-dangling")
    assert one.take_in(b"again\n", AT) is None
    work(folder, "more\n")
    assert made == said(folder, "rev-parse", f"{kept(one)}^")


def test_papers_to_which_both_have_added_are_taken_in(project: Path, folder: Path, one: StoryBranch) -> None:
    """Both lines are kept."""
    work(folder, "- US-1\n", name="PROJECT_MEMORY.md")
    kept(one)
    by_a_person(project, **{"PROJECT_MEMORY.md": "- US-0\n"})

    assert one.take_in(b"take in main\n", AT) is not None
    assert "- US-0\n- US-1\n" == (folder / "PROJECT_MEMORY.md").read_text()


def test_an_agent_that_merges_has_both_lines_of_a_paper(
    project: Path, folder: Path, one: StoryBranch
) -> None:
    """Its git needs no settings of the project for that; what has landed comes first."""
    work(folder, "- US-1\n", name="PROJECT_MEMORY.md")
    kept(one)
    theirs = by_a_person(project, **{"PROJECT_MEMORY.md": "- US-0\n"})

    assert 0 == git(folder, "merge", "--quiet", "--no-edit", theirs)
    assert "- US-0\n- US-1\n" == (folder / "PROJECT_MEMORY.md").read_text()


def conflicting(project: Path, folder: Path, one: StoryBranch) -> None:
    """Have both change a file."""
    work(folder, "mine\n", name="kept")
    kept(one)
    by_a_person(project, kept="theirs\n")


def unfinished(project: Path, folder: Path, one: StoryBranch) -> None:
    """Have the clone hold what is not committed."""
    kept(one)
    by_a_person(project, other="landed\n")
    work(folder, "half\n", name="kept")


@pytest.mark.parametrize("committed", [True, False])
def test_what_an_agent_has_merged_is_known(
    project: Path, folder: Path, one: StoryBranch, committed: bool
) -> None:
    """Only what its base branch has got meanwhile, and only until the next commit of ours."""
    work(folder)
    kept(one)
    theirs = by_a_person(project, other="landed\n", kept="changed\n")
    assert frozenset() == one.taken_in()

    assert 0 == git(folder, "merge", "--quiet", "--no-ff", *([] if committed else ["--no-commit"]), theirs)
    work(folder, "mine\n", name="mine")
    assert {b"other", b"kept"} == one.taken_in()
    kept(one)
    assert frozenset() == one.taken_in()


def test_a_commit_of_papers_has_nothing_else(project: Path, folder: Path, one: StoryBranch) -> None:
    """Another file is named, and nothing is committed; also one that an agent has committed."""
    work(folder, "- US-1\n", name="PROJECT_MEMORY.md")
    end = one.commit(b"papers\n", None, AT, only_papers=True)
    work(folder, "evil\n", name="evil.py")
    for commits in (False, True):
        if commits:
            assert 0 == git(folder, "add", "evil.py")
            assert 0 == git(folder, "commit", "--quiet", "-m", "mine")
        with pytest.raises(StoreError, match=r"PROJECT_MEMORY\.md only, and not evil\.py"):
            one.commit(b"papers\n", None, AT, only_papers=True)
    assert end != said(folder, "rev-parse", "HEAD")


@pytest.mark.parametrize("happens", [conflicting, unfinished])
def test_what_cannot_be_taken_in_leaves_the_clone_as_it_is(
    project: Path, folder: Path, one: StoryBranch, happens: Callable[[Path, Path, StoryBranch], None]
) -> None:
    """A conflict is the landing's matter; what is not committed is in the next commit."""
    happens(project, folder, one)
    before = standing(folder)
    assert one.take_in(b"take in main\n", AT) is None
    assert before == standing(folder)


def standing(folder: Path) -> tuple[str, ...]:
    """Return where a clone is, and what is in it."""
    return (
        said(folder, "rev-parse", "HEAD"),
        said(folder, "status", "--porcelain"),
        (folder / "kept").read_text(),
    )


def test_what_git_cannot_take_is_not_written_over(project: Path, folder: Path, one: StoryBranch) -> None:
    """A repository that an agent has made in the clone is in the way: all stays, and can be committed."""
    mine = kept(one)
    by_a_person(project, other="landed\n", kept="changed\n")
    (folder / "other").mkdir()
    assert 0 == git(folder / "other", "init", "--quiet")
    work(folder / "other", "theirs\n")
    with pytest.raises(StoreError, match="other"):
        one.take_in(b"take in main\n", AT)

    assert ("kept\n", "theirs\n") == ((folder / "kept").read_text(), (folder / "other/new").read_text())
    work(folder)
    assert mine == said(folder, "rev-parse", f"{kept(one)}^")
    assert "kept" == said(folder, "show", "HEAD:kept")


@pytest.mark.parametrize("point", ["before_taking_in", "after_taking_in"])
def test_a_taking_in_that_is_cut_off_is_done_anew(
    project: Path, folder: Path, one: StoryBranch, point: str
) -> None:
    """Nothing that has landed is undone by the next commit, and nothing is taken for the story's own."""
    work(folder)
    mine = kept(one)
    theirs = by_a_person(project, other="landed\n", kept="changed\n")
    with crashing(point, crash), pytest.raises(Crashed):
        one.take_in(b"take in main\n", AT)
    made = one.take_in(b"take in main\n", AT)

    assert [mine, theirs] == said(folder, "show", "--no-patch", "--format=%P", "HEAD").split()
    assert made == kept(one) == one.publish()
    assert ("landed", "changed") == (
        said(project, "show", f"{NAME}:other"),
        said(project, "show", f"{NAME}:kept"),
    )


# --- commits of agents --------------------------------------------------------------------------------
def test_commits_of_agents_are_kept(project: Path, folder: Path, one: StoryBranch) -> None:
    """Ours follows theirs; without a change there is none, and theirs is published."""
    work(folder)
    theirs = by_an_agent(folder)
    assert theirs == kept(one) == one.publish()
    work(folder, "more\n")
    made = kept(one)

    assert theirs == said(folder, "rev-parse", f"{made}^")
    assert made == one.publish() == said(project, "rev-parse", NAME)


def test_what_is_packed_is_not_lost_with_the_clones_objects(
    project: Path, folder: Path, one: StoryBranch
) -> None:
    """The next agent owns the clone. Nothing of the pack is left when the project has it."""
    assert one.publish(ours=True) is None
    work(folder)
    made = kept(one)
    assert 0 < one.pack() < 1000
    shutil.rmtree(folder / ".git/objects")

    assert made == one.publish(ours=True) == said(project, "rev-parse", NAME)
    assert "new" == said(project, "show", f"{NAME}:new")
    assert [] == [*one._worktree.shadow.glob("brought-*"), *one._worktree.shadow.glob("kept-*")]
    assert 0 == one.pack()
    assert made == one.publish(ours=True)


def indexing(base: Path, how: str) -> dict[str, str]:
    """Return an environment whose git does something else before, or in place of, index-pack."""
    program = base / "other/git"
    program.parent.mkdir()
    case = f'case " $* " in *" index-pack "*) {how};; esac'
    program.write_text(f'#!/bin/sh\n{case}\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}


def test_who_brings_commits_into_the_project_keeps_no_one_from_the_clone(
    project: Path, folder: Path, one: StoryBranch, clone: Clone, tmp_path: Path
) -> None:
    """However long git takes for it. A newer pack takes the place of the one that is read meanwhile."""
    work(folder)
    first = kept(one)
    one.pack()
    there = indexing(tmp_path, f"touch {tmp_path}/at; until test -e {tmp_path}/go; do sleep 0.02; done")
    slow = StoryBranch(str(project), clone.workspace, tmp_path / "state", there)
    with ThreadPoolExecutor(1) as beside:
        publishing = beside.submit(slow.publish, ours=True)
        eventually_sync((tmp_path / "at").exists)
        work(folder, "more\n")
        second = kept(one)
        one.pack()
        (tmp_path / "go").touch()
        assert first == publishing.result()
    assert first == said(project, "rev-parse", NAME)
    shutil.rmtree(folder / ".git/objects")
    assert second == one.publish(ours=True) == said(project, "rev-parse", NAME)


def test_a_pack_that_is_gone_is_made_again(project: Path, folder: Path, one: StoryBranch) -> None:
    """A person may tidy up the state directory."""
    work(folder)
    made = kept(one)
    one.pack()
    for path in one._worktree.shadow.glob("kept-*"):
        path.unlink()
    assert made == one.publish(ours=True) == said(project, "rev-parse", NAME)


def test_what_the_next_agent_has_committed_meanwhile_is_not_brought_along(
    project: Path, folder: Path, one: StoryBranch
) -> None:
    """It is not accepted yet."""
    work(folder)
    made = kept(one)
    work(folder, "more\n")
    theirs = by_an_agent(folder)

    assert made == one.publish(ours=True) == said(project, "rev-parse", NAME)
    assert theirs == said(folder, "rev-parse", "HEAD")
    assert made == one.publish(ours=True)
    assert theirs == kept(one) == one.publish()


# --- what agents have committed for themselves ----------------------------------------------------------
def test_what_an_agent_has_committed_is_accepted_and_nothing_that_it_commits_later(
    project: Path, folder: Path, one: StoryBranch, clone: Clone
) -> None:
    """Nor what it has not committed. Without a commit of its own there is none."""
    assert clone.workspace.base == one.accept(b"impl\n", None, AT)
    work(folder)
    theirs = by_an_agent(folder)
    work(folder, "not committed\n", name="draft")
    assert theirs == one.accept(b"impl\n", None, AT)
    later = by_an_agent(folder)

    assert theirs == one.publish(ours=True) == said(project, "rev-parse", NAME)
    assert later == said(folder, "rev-parse", "HEAD")


@pytest.mark.parametrize("way", ["amend", "rebase", "elsewhere"])
def test_what_an_agent_has_rewritten_is_accepted_by_a_merge_that_has_both(
    project: Path, folder: Path, one: StoryBranch, way: str
) -> None:
    """The branch holds what the agent has by now, and goes on from what was accepted before."""
    work(folder)
    by_an_agent(folder, "first")
    first = one.accept(b"bdd\n", None, AT)
    one.publish(ours=True)
    work(folder, "better\n")
    if way == "amend":
        assert 0 == git(folder, "commit", "--quiet", "--all", "--amend", "-m", "first, better")
    elif way == "elsewhere":
        assert 0 == git(folder, "checkout", "--quiet", "--orphan", "mine")
        by_an_agent(folder)
    else:
        git(folder, "commit", "--quiet", "--all", "-m", "second")
        git(folder, "branch", "base", f"{first}~1")
        git(folder, "-c", "sequence.editor=sed -i '2s/pick/fixup/'", "rebase", "--quiet", "-i", "base")
    theirs = said(folder, "rev-parse", "HEAD")

    made = one.accept(b"US-1 impl: rewritten\n", "A Person <a@example.org>", AT)

    assert [first, theirs] == said(folder, "log", "-1", "--format=%P", made or "").split()
    assert "" == said(folder, "diff", theirs, made or "")
    assert made == said(folder, "rev-parse", REF) == said(folder, "rev-parse", "HEAD")
    assert made == one.publish(ours=True) == said(project, "rev-parse", NAME)
    assert one.unkept() is None
    assert made == one.accept(b"again\n", None, AT)


def test_an_agent_that_goes_back_behind_what_was_accepted_undoes_it(folder: Path, one: StoryBranch) -> None:
    """By a commit, as everything that it does; a HEAD that leads nowhere changes nothing."""
    work(folder)
    by_an_agent(folder)
    first = one.accept(b"bdd\n", None, AT)
    git(folder, "reset", "--quiet", "--hard", "HEAD~1")
    made = one.accept(b"impl\n", None, AT)
    assert (first, "") == (
        said(folder, "log", "-1", "--format=%P", made or ""),
        said(folder, "diff", "HEAD~2", "HEAD"),
    )
    (folder / ".git" / REF).write_text(f"{'ab' * 20}\n")
    assert made == one.accept(b"verify\n", None, AT)


MOVES = {
    "switched": (("switch", "--quiet", "-c", "feature"),),
    "detached": (("checkout", "--quiet", "--detach"),),
    "rewound": (("reset", "--hard", "--quiet", "HEAD~1"),),
    "elsewhere": (
        ("checkout", "--quiet", "--orphan", "alone"),
        ("commit", "--quiet", "--allow-empty", "-m", "x"),
    ),
    "amended": (("commit", "--quiet", "--amend", "-m", "amended"),),
    "rebased": (("rebase", "--quiet", "--force-rebase", "HEAD~1"),),
    "no branch": (("update-ref", "-d", REF),),
    "packed": (("pack-refs", "--all"), ("switch", "--quiet", "--detach")),
    "deleted": (("switch", "--quiet", "--detach", "HEAD~1"), ("branch", "-D", NAME)),
    "no HEAD": (("symbolic-ref", "HEAD", "refs/heads/nowhere"),),
}


@pytest.mark.parametrize("way", MOVES)
def test_an_agent_may_move_its_head_anywhere(project: Path, folder: Path, one: StoryBranch, way: str) -> None:
    """No commit is lost by that, published or not: the next one follows, with the files as they are."""
    work(folder, "1\n")
    first = kept(one)
    one.publish()
    work(folder, "2\n")
    second = kept(one)
    for words in MOVES[way]:
        assert 0 == git(folder, *words)
    work(folder, "3\n")

    made = kept(one)

    assert (second, first) == (said(folder, "rev-parse", f"{made}^"), said(folder, "rev-parse", f"{made}^^"))
    assert "3" == said(folder, "show", f"{made}:new")
    assert made == one.publish() == said(project, "rev-parse", NAME)
    assert (NAME, made) == (
        said(folder, "rev-parse", "--abbrev-ref", "HEAD"), said(folder, "rev-parse", "HEAD"),
    )  # fmt: skip
    assert "" == said(folder, "status", "--porcelain")


def test_commits_on_another_branch_are_taken_if_they_go_on_from_ours(
    project: Path, folder: Path, one: StoryBranch
) -> None:
    """An agent works on a branch of its own."""
    git(folder, "switch", "--quiet", "-c", "feature")
    work(folder)
    theirs = by_an_agent(folder)

    assert theirs == kept(one) == one.publish() == said(project, "rev-parse", NAME)
    assert NAME == said(folder, "rev-parse", "--abbrev-ref", "HEAD")


@pytest.mark.parametrize("begun", ["merge", "rebase", "cherry-pick"])
def test_what_an_agent_has_left_unfinished_is_over(folder: Path, one: StoryBranch, begun: str) -> None:
    """The next one can commit; a lock of a git that was killed with its agent is gone, too."""
    git(folder, "switch", "--quiet", "-c", "side")
    work(folder, "side\n")
    by_an_agent(folder)
    git(folder, "switch", "--quiet", NAME)
    work(folder, "ours\n")
    by_an_agent(folder)
    assert 0 != git(folder, begun, "side")
    work(folder, "both\n")
    for name in ("index.lock", "HEAD.lock", f"{REF}.lock"):
        (folder / ".git" / name).touch()

    made = kept(one)

    assert "both" == said(folder, "show", f"{made}:new")
    assert f"## {NAME}" == said(folder, "status", "--porcelain", "--branch")
    assert "git" not in " ".join(said(folder, "status").replace(NAME, "").split())
    work(folder, "next\n")
    assert made == said(folder, "rev-parse", f"{by_an_agent(folder)}^")


@pytest.mark.parametrize(
    "head",
    ["nonsense", "", "ref: ref: refs/heads/main", "12" * 20, "ab" * 32, f"ref: {REF}\0x", "link", "gone"],
)
def test_a_head_that_leads_nowhere_is_put_right(
    project: Path, folder: Path, one: StoryBranch, tmp_path: Path, head: str
) -> None:
    """It holds up no commit; a link is not written through."""
    work(folder)
    made = kept(one)
    work(folder, "more\n")
    outside = tmp_path / "outside"
    outside.write_text("theirs")
    if head in {"link", "gone"}:
        (folder / ".git/HEAD").unlink()
    if head == "link":
        (folder / ".git/HEAD").symlink_to(outside)
    elif head != "gone":
        (folder / ".git/HEAD").write_text(f"{head}\n")
        (folder / ".git/config").write_text("[core]\nbare = false\n[extensions]\nobjectFormat = sha256\n")

    assert kept(one) == one.publish()

    assert made == said(project, "rev-parse", f"{NAME}^")
    assert f"ref: {REF}\n" == (folder / ".git/HEAD").read_text()
    assert "theirs" == outside.read_text()


def test_a_branch_that_names_no_commit_is_put_right(folder: Path, one: StoryBranch) -> None:
    """The clone's own."""
    work(folder)
    made = kept(one)
    (folder / ".git" / REF).write_text("nonsense\n")
    work(folder, "more\n")

    assert made == said(folder, "rev-parse", f"{kept(one)}^")


def test_a_tag_is_no_commit(project: Path, folder: Path, one: StoryBranch) -> None:
    """A branch must not end at one."""
    work(folder)
    made = kept(one)
    git(folder, "tag", "-a", "-m", "tag", "v1")
    (folder / ".git/HEAD").write_text(said(folder, "rev-parse", "v1") + "\n")

    assert made == kept(one) == one.publish()
    assert "" == said(project, "fsck", "--strict")


def test_objects_that_an_agent_has_removed_are_done_without(
    project: Path, folder: Path, one: StoryBranch
) -> None:
    """The last commit is gone; what the folder holds is not."""
    work(folder)
    first = kept(one)
    one.publish()
    work(folder, "more\n")
    lost = kept(one)
    git(folder, "update-ref", REF, first)
    git(folder, "reflog", "expire", "--expire=now", "--all")
    git(folder, "prune", "--expire=now")

    made = kept(one)

    assert (first, lost) == (said(folder, "rev-parse", f"{made}^"), one.lost)
    assert made == one.publish() == said(project, "rev-parse", NAME)


def test_a_pack_is_kept_until_the_project_has_it_whatever_the_agent_removes(
    project: Path, folder: Path, one: StoryBranch, clone: Clone, tmp_path: Path
) -> None:
    """A full disk keeps it out at first; meanwhile the agent takes the accepted commit out of its clone."""
    work(folder)
    made = kept(one)
    one.pack()
    there = indexing(tmp_path, "echo fatal: No space left on device >&2; exit 128")
    with pytest.raises(StoreError, match="No space left on device") as caught:
        StoryBranch(str(project), clone.workspace, tmp_path / "state", there).publish(ours=True)
    assert f"df -h {project}" == caught.value.hint
    git(folder, "update-ref", REF, said(project, "rev-parse", "main"))
    shutil.rmtree(folder / ".git/objects")
    assert UNPUBLISHED == one.unkept()
    work(folder, "more\n")

    again = kept(one)
    assert (made, "") == (said(folder, "rev-parse", f"{again}^"), one.lost)
    assert again == one.publish() == said(project, "rev-parse", NAME)


@pytest.mark.parametrize("left", [(), ("config",), None])
def test_work_is_kept_though_the_git_folder_of_the_clone_is_gone(
    project: Path, folder: Path, one: StoryBranch, left: tuple[str, ...] | None
) -> None:
    """An agent has removed it, but for what its sandbox keeps, or moved it; one above is not taken for it."""
    work(folder)
    first = kept(one)
    one.publish()
    above = folder.parent / ".git"
    (folder / ".git").rename(above)
    if left is not None:
        (folder / ".git").mkdir()
        for name in left:
            (above / name).rename(folder / ".git" / name)
        shutil.rmtree(above)
    work(folder, name="more")

    second = kept(one)
    assert second == one.publish() == said(project, "rev-parse", NAME)
    assert first == said(project, "rev-parse", f"{NAME}~1")
    assert "more" in files(project, second)
    assert (None, second) == (one.unkept(), said(folder, "rev-parse", "HEAD"))


def test_a_new_repository_in_place_of_the_clones_borrows_again(
    project: Path, folder: Path, one: StoryBranch
) -> None:
    """`rm -rf .git; git init` is something that agents do."""
    work(folder)
    made = kept(one)
    one.publish()
    shutil.rmtree(folder / ".git")
    git(folder, "init", "--quiet")
    work(folder, "more\n")
    by_an_agent(folder)

    again = kept(one)

    assert made == said(folder, "rev-parse", f"{again}^")
    assert again == one.publish() == said(project, "rev-parse", NAME)


# --- published ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("count", [1, 150])
def test_a_branch_is_brought_into_the_projects_repository(
    project: Path, folder: Path, one: StoryBranch, count: int
) -> None:
    """A few objects one by one, many in a pack. Nothing else changes there."""
    for number in range(count):
        work(folder, f"{number}\n", name=f"file{number}")
    made = kept(one)
    before = untouched(project)

    assert made == one.publish() == said(project, "rev-parse", NAME)

    assert before == untouched(project)
    assert "" == said(project, "fsck", "--strict")
    assert (count > 1) == bool([*(project / ".git/objects/pack").glob("*.pack")])
    shutil.rmtree(folder)
    assert "0" == said(project, "show", f"{NAME}:file0")


def test_publishing_again_changes_nothing(
    project: Path, folder: Path, one: StoryBranch, clone: Clone
) -> None:
    """Nor does it where nothing was done."""
    assert clone.workspace.base == one.publish()
    work(folder)
    made = kept(one)
    one.publish()
    before = (project / ".git" / REF).stat().st_mtime_ns

    assert made == one.publish()
    assert before == (project / ".git" / REF).stat().st_mtime_ns


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_lock_of_a_git_that_was_killed_with_the_daemon_is_removed(
    project: Path, folder: Path, one: StoryBranch, *, goes_on: bool
) -> None:
    """It would have moved the branch to the last commit, or to an earlier one of the story."""
    work(folder)
    kept(one)
    one.publish()
    work(folder, "more\n")
    meant = kept(one)
    lock = project / ".git" / f"{REF}.lock"
    lock.write_text(f"{meant}\n")
    if goes_on:
        work(folder, "much more\n")
        kept(one)
    assert one.publish() == said(project, "rev-parse", NAME)
    assert not lock.exists()


@pytest.mark.parametrize("theirs", ["1" * 40, "ref: refs/heads/main", "{commit}"])
def test_a_lock_of_a_person_stays(project: Path, folder: Path, one: StoryBranch, theirs: str) -> None:
    """They move the branch elsewhere."""
    work(folder)
    tree = said(project, "rev-parse", "main^{tree}")
    lock = project / ".git" / f"{REF}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text(theirs.format(commit=said(project, "commit-tree", tree, "-m", "by a person")))
    kept(one)
    with pytest.raises(StoreError, match=r"US-1\.lock"):
        one.publish()
    assert lock.exists()


def test_locks_of_a_removal_that_was_killed_are_removed(
    project: Path, folder: Path, one: StoryBranch, state: Path
) -> None:
    """What a person holds is not: nothing says that we were at work."""
    work(folder)
    kept(one)
    one.publish()
    git(project, "pack-refs", "--all")
    packed, loose = project / ".git/packed-refs.lock", project / ".git" / f"{REF}.lock"
    packed.touch()
    with pytest.raises(StoreError, match="packed-refs"):
        one.discard(AT)
    (note,) = state.glob("snapshots/*/deleting")
    for lock in (packed, loose):
        lock.touch()
        os.utime(lock, ns=(note.stat().st_mtime_ns + 1,) * 2)
    one.discard(AT + timedelta(seconds=1))
    assert "" == said(project, "for-each-ref", REF, f"refs/{NAME}/left-*")
    assert not [*(project / ".git").rglob("*.lock"), *state.glob("snapshots/*/deleting")]


def test_commits_that_a_person_has_added_stay(project: Path, folder: Path, one: StoryBranch) -> None:
    """The story's next ones are refused, until its clone has them."""
    work(folder)
    first = kept(one)
    one.publish()
    tree = said(project, "rev-parse", f"{NAME}^{{tree}}")
    theirs = said(project, "commit-tree", tree, "-p", first, "-m", "by a person")
    git(project, "branch", "-f", NAME, theirs)
    assert theirs == one.publish()
    work(folder, "more\n")
    second = kept(one)

    with pytest.raises(StoreError, match="has commits that the story's clone has not") as caught:
        one.publish()

    assert ("BRANCH_DIVERGED", theirs) == (caught.value.code, said(project, "rev-parse", NAME))
    assert first == said(folder, "rev-parse", f"{second}^")
    assert 0 == git(folder, "merge", "--quiet", "-m", "both", theirs)
    assert one.publish() == said(project, "rev-parse", NAME) == said(folder, "rev-parse", "HEAD")


def test_a_branch_that_a_person_has_rewound_or_deleted_is_there_again(
    project: Path, folder: Path, one: StoryBranch
) -> None:
    """With the story's next commit."""
    work(folder)
    kept(one)
    one.publish()
    git(project, "branch", "-D", NAME)
    work(folder, "more\n")
    made = kept(one)

    assert made == one.publish() == said(project, "rev-parse", NAME)


USES = {
    "here": (("switch", "--quiet", NAME),),
    "worktree": (("worktree", "add", "--quiet", "../linked", NAME),),
    "rebase": (("switch", "--quiet", NAME), ("rebase", "--exec", "false", "main")),
    "another name": (("symbolic-ref", "refs/heads/mine", REF), ("switch", "--quiet", "mine")),
    "link": (("switch", "--quiet", NAME),),
}


@pytest.mark.parametrize("way", USES)
def test_a_branch_that_a_person_works_on_stays(
    project: Path, folder: Path, one: StoryBranch, way: str
) -> None:
    """Its checkout would differ from it at once; the hint leads out of that."""
    work(folder)
    first = kept(one)
    one.publish()
    for words in USES[way]:
        git(project, *words)
    if way == "link":
        (project / ".git/HEAD").unlink()
        (project / ".git/HEAD").symlink_to(REF)
    work(folder, "more\n")
    kept(one)
    before = untouched(project)

    with pytest.raises(StoreError, match="is checked out in") as caught:
        one.publish()

    assert ("BRANCH_CHECKED_OUT", first) == (caught.value.code, said(project, "rev-parse", NAME))
    assert before == untouched(project)


def test_what_is_unkept_is_said(project: Path, folder: Path, one: StoryBranch) -> None:
    """Files that are not committed, and commits that are not in the project's repository."""
    assert one.unkept() is None
    work(folder)
    assert "it has changes that are not committed" == one.unkept()
    kept(one)
    assert "its commits are not in the project's repository" == one.unkept()
    one.publish()
    assert one.unkept() is None
    work(folder, name="some.log")
    assert one.unkept() is None


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("way", ["branch", "stash"])
def test_commits_on_other_branches_of_the_clone_are_unkept(
    project: Path, folder: Path, one: StoryBranch, way: str, packed: bool
) -> None:
    """An agent has left them there; ones that were taken over are kept."""
    git(folder, "branch", "old")
    work(folder)
    if way == "stash":
        git(folder, "stash", "--include-untracked")
    else:
        git(folder, "switch", "--quiet", "-c", "feature/one")
        by_an_agent(folder)
        git(folder, "switch", "--quiet", NAME)
    if packed:
        git(folder, "pack-refs", "--all")
    one.publish()

    assert LEFT == one.unkept()

    git(folder, "stash", "pop") if way == "stash" else git(folder, "merge", "--quiet", "feature/one")
    kept(one)
    one.publish()
    assert one.unkept() is None


@pytest.mark.parametrize("way", ["branch", "stashes", "nothing"])
def test_commits_on_other_branches_are_kept_by_refs(
    project: Path, folder: Path, one: StoryBranch, way: str
) -> None:
    """Each once, all stashes among them; the branch of the story is as it was, and discarding loses none."""
    if way == "branch":
        git(folder, "switch", "--quiet", "-c", "feature/one")
        by_an_agent(folder)
        git(folder, "switch", "--quiet", NAME)
    for number in range(2 if way == "stashes" else 0):
        (folder / f"new-{number}").write_text("new\n")
        assert 0 == git(folder, "stash", "--include-untracked")
    left = sorted(
        {*said(folder, "log", "-g", "--format=%H", "refs/stash").split()}
        if way == "stashes"
        else {said(folder, "rev-parse", "feature/one")}
        if way == "branch"
        else {}
    )
    one.publish()
    before = said(project, "rev-parse", NAME)
    for _ in range(2):
        one.keep_others()

    kept_by = said(project, "for-each-ref", "--format=%(refname) %(objectname)", f"refs/{NAME}/left-*")
    assert [f"refs/{NAME}/left-{commit[:12]} {commit}" for commit in left] == kept_by.splitlines()
    assert (before, None) == (said(project, "rev-parse", NAME), one.unkept())
    assert "" == said(project, "fsck", "--strict", "--no-dangling")


def test_discarding_keeps_commits_on_other_branches(project: Path, folder: Path, one: StoryBranch) -> None:
    """The clone is removed behind it."""
    work(folder)
    git(folder, "stash", "--include-untracked")
    one.discard(AT)

    assert 1 == len(said(project, "for-each-ref", f"refs/{NAME}/left-*").splitlines())


@pytest.mark.parametrize("name", ["refs/heads/nowhere", "refs/stash", "logs/refs/stash"])
def test_what_names_no_commit_keeps_nothing(project: Path, folder: Path, one: StoryBranch, name: str) -> None:
    """An agent may write anything there."""
    (folder / ".git" / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / ".git" / name).write_text("0 no-commit x\n")
    kept(one)
    one.publish()
    one.keep_others()

    assert ("", None) == (said(project, "for-each-ref", f"refs/{NAME}/left-*"), one.unkept())


def test_a_branch_is_landed_when_the_checkout_has_all_of_it(
    project: Path, folder: Path, one: StoryBranch
) -> None:
    """Not when it has a part; a branch that is not there has nothing to land."""
    assert one.is_landed()
    work(folder)
    kept(one)
    one.publish()
    assert not one.is_landed()
    git(project, "merge", "--quiet", NAME)
    assert one.is_landed()
    work(folder, "more\n")
    kept(one)
    one.publish()
    assert not one.is_landed()


# --- what a kill leaves -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "words", ["!write-tree", "commit-tree", "pack-objects", "index-pack", "unpack-objects"]
)
def test_a_kill_at_any_point_loses_nothing(
    project: Path, folder: Path, one: StoryBranch, killed_at: Killed, words: str
) -> None:
    """The next call ends what was begun, once."""
    work(folder)
    killed_at(words, 'branch.commit(b"work", None, at); branch.publish()')
    assert "" == said(project, "branch", "--list", "handoffd/*")

    made = kept(one)

    assert made == one.publish() == said(project, "rev-parse", NAME)
    assert "1" == said(project, "rev-list", "--count", f"main..{NAME}")
    assert "" == said(project, "fsck", "--strict", "--no-dangling")
    assert "" == said(folder, "status", "--porcelain")


def test_a_kill_between_the_parts_of_a_commit_loses_nothing(
    folder: Path, one: StoryBranch, killed_at: Killed
) -> None:
    """The branch has it, the clone's HEAD or index has not."""
    killed_at("nothing", f"""
import os
from handoffd.git import branches
def write(common, name, text, **how):
    real(common, name, text, **how)
    if name == "{REF}":
        os.kill(os.getpid(), 9)
real, branches.write_project_file = branches.write_project_file, write
Path(clone.workspace.folder, "new").write_text("new")
branch.commit(b"work", None, at)
""")  # fmt: skip
    ours = said(folder, "rev-parse", REF)

    assert ours == kept(one)
    assert "" == said(folder, "status", "--porcelain")


# --- in the project's own folder ----------------------------------------------------------------------
@pytest.fixture
def at_home(project: Path, state: Path) -> StoryBranch:
    """The branch of a story that works in the project's own folder."""
    repository = repository_at(str(project))
    place = Workspace(folder=str(project), branch=branch_of(repository, "US-1"), base=repository.head())
    return StoryBranch(str(project), place, state, dict(os.environ))


def test_in_the_projects_own_folder_only_the_branch_is_written(project: Path, at_home: StoryBranch) -> None:
    """A person's index, HEAD and branches stay as they are; each commit follows the last."""
    work(project)
    git(project, "add", "new")
    before = untouched(project)

    first = kept(at_home)
    work(project, "more\n")
    second = kept(at_home)

    (project / "new").write_text("new\n")
    assert before == untouched(project)
    assert (second, first) == (said(project, "rev-parse", NAME), said(project, "rev-parse", f"{NAME}^"))
    assert said(project, "rev-parse", "main") == said(project, "rev-parse", f"{first}^")
    assert second == at_home.publish()
    assert "" == said(project, "fsck", "--strict")


def test_before_the_first_commit_of_a_repository_there_can_be_one(tmp_path: Path, state: Path) -> None:
    """It is the first."""
    root = tmp_path / "empty"
    root.mkdir()
    git(root, "init", "--quiet", "-b", "main")
    work(root)
    one = StoryBranch(str(root), Workspace(folder=str(root), branch=NAME), state, dict(os.environ))

    assert kept(one) == said(root, "rev-parse", NAME)
    assert ["new"] == files(root, NAME)


def test_in_its_own_folder_the_branch_of_a_person_stays(project: Path, at_home: StoryBranch) -> None:
    """A person who has checked it out, or has made it another name of a branch."""
    work(project)
    first = kept(at_home)
    git(project, "stash", "--all", "--quiet")
    git(project, "switch", "--quiet", NAME)
    work(project, "more\n")
    with pytest.raises(StoreError, match="is checked out"):
        kept(at_home)
    assert first == said(project, "rev-parse", NAME)
    git(project, "checkout", "--quiet", "--force", "main")
    git(project, "symbolic-ref", REF, "refs/heads/main")
    main = said(project, "rev-parse", "main")

    with pytest.raises(StoreError, match="is not a branch of its own"):
        kept(at_home)

    assert main == said(project, "rev-parse", "main")


# --- a malicious agent --------------------------------------------------------------------------------
def object_of(kind: str, content: bytes) -> tuple[str, bytes]:
    """Return the name of an object, and the bytes of its file."""
    data = f"{kind} {len(content)}\0".encode() + content
    return hashlib.sha1(data, usedforsecurity=False).hexdigest(), zlib.compress(data)


def plant(objects: Path, name: str, data: bytes) -> None:
    """Have a folder of objects hold a file under any name."""
    place = objects / name[:2] / name[2:]
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    place.write_bytes(data)


def test_nothing_that_the_clone_names_is_run(
    project: Path, folder: Path, tmp_path: Path, one: StoryBranch, clone: Clone, state: Path
) -> None:
    """Hooks, settings also by inclusion, filters, a monitor, programs; by commit, publish, looks, removal."""
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat\n")
    trap.chmod(0o755)
    (folder / ".git/hooks").mkdir()
    for name in ("reference-transaction", "post-index-change", "pre-commit", "commit-msg", "post-commit"):
        shutil.copy(trap, folder / ".git/hooks" / name)
    (tmp_path / "included").write_text(f"[core]\n\thooksPath = {folder}/.git/hooks\n\tfsmonitor = {trap}\n")
    (folder / ".git/config").write_text(
        f"[include]\n\tpath = {tmp_path}/included\n[core]\n\trepositoryformatversion = 1\n"
        f"\tworktree = {project}\n\tfsmonitor = {trap}\n\tsshCommand = {trap}\n"
        f"\talternateRefsCommand = {trap}\n[extensions]\n\tpartialClone = evil\n\tworktreeConfig = true\n"
        f"[remote \"evil\"]\n\tpromisor = true\n\turl = ext::{trap}\n\tuploadpack = {trap}\n"
        f"[filter \"evil\"]\n\tclean = {trap}\n\tsmudge = {trap}\n\tprocess = {trap}\n\trequired = true\n"
        f"[gpg]\n\tprogram = {trap}\n[commit]\n\tgpgSign = true\n[uploadpack]\n\tpackObjectsHook = {trap}\n"
    )  # fmt: skip
    shutil.copy(folder / ".git/config", folder / ".git/config.worktree")
    (folder / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    work(folder)

    made = kept(one)
    one.publish()
    one.unkept()
    one.is_landed()
    Clones(str(project), state, dict(os.environ)).remove(clone)

    assert not (tmp_path / "sprung").exists()
    assert "new" == said(project, "show", f"{made}:new")


@pytest.mark.parametrize("way", ["link", "file", "worktree", "common"])
def test_the_git_folder_of_another_is_never_taken_for_the_clones(
    project: Path, folder: Path, tmp_path: Path, one: StoryBranch, way: str
) -> None:
    """Neither the project's nor one above the state directory, as of a home that is a repository."""
    git(tmp_path, "init", "--quiet", "-b", "main")
    by_an_agent(tmp_path)
    work(folder)
    (folder / ".git").rename(folder / ".was")
    if way == "link":
        (folder / ".git").symlink_to(project / ".git")
    elif way == "file":
        (folder / ".git").write_text(f"gitdir: {project}/.git\n")
    elif way == "worktree":
        git(project, "worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
        (folder / ".git").write_text(f"gitdir: {project}/.git/worktrees/linked\n")
        (project / ".git/worktrees/linked/gitdir").write_text(f"{folder}/.git\n")
    elif way == "common":
        (folder / ".was").rename(folder / ".git")
        (folder / ".git/commondir").write_text(f"{project}/.git\n")
    before = (untouched(project), untouched(tmp_path / ".git"), said(tmp_path, "for-each-ref"))

    for act in (lambda: kept(one), one.publish, one.unkept, one.is_landed):
        with pytest.raises(StoreError) as caught:
            act()
        assert "NO_REPOSITORY" == caught.value.code

    assert before == (untouched(project), untouched(tmp_path / ".git"), said(tmp_path, "for-each-ref"))
    assert "new\n" == (folder / "new").read_text()


@pytest.mark.parametrize("target", ["the top of the project", "another clone", "the folder of the project"])
def test_a_folder_below_the_top_that_became_a_link_leads_nowhere(
    project: Path, make: Make, branch: Branch, target: str
) -> None:
    """The repository that it leads to would get our commit, HEAD and index."""
    clone, other = make(project / "below"), make(story="US-2")
    folder = Path(clone.workspace.folder)
    to = {"the top of the project": project, "another clone": Path(other.workspace.folder)}
    shutil.rmtree(folder)
    folder.symlink_to(to.get(target, project / "below"))
    before = (untouched(project), untouched(Path(other.workspace.folder)))
    one = branch(clone, project / "below")

    for act in (lambda: kept(one), one.publish, one.unkept):
        with pytest.raises(StoreError, match="no longer the repository"):
            act()

    assert before == (untouched(project), untouched(Path(other.workspace.folder)))


@pytest.mark.parametrize(
    "name", ["refs", "refs/heads", "refs/heads/handoffd", REF, "objects", "objects/pack"]
)
@pytest.mark.parametrize("to", ["project", "outside"])
def test_links_in_the_clones_git_folder_are_not_written_through(
    project: Path, folder: Path, tmp_path: Path, one: StoryBranch, name: str, to: str
) -> None:
    """They lead to the project's refs, or to any file."""
    work(folder)
    kept(one)
    one.publish()
    outside = tmp_path / "outside"
    shutil.copytree(project / ".git", outside)
    place = folder / ".git" / name
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    main = name == REF and to == "project"
    place.symlink_to(
        project / ".git/refs/heads/main"
        if main
        else (project / ".git" if to == "project" else outside) / name
    )
    work(folder, "more\n")
    before = (untouched(project), said(project, "rev-parse", NAME), untouched(outside))

    with pytest.raises(StoreError, match="link"):
        kept(one)

    assert before == (untouched(project), said(project, "rev-parse", NAME), untouched(outside))


def test_index_and_locks_that_are_links_are_replaced(folder: Path, project: Path, one: StoryBranch) -> None:
    """A person's index is not written over."""
    before = (project / ".git/index").read_bytes()
    for name in ("index", "index.lock", "handoffd.index", "MERGE_HEAD"):
        (folder / ".git" / name).unlink(missing_ok=True)
        (folder / ".git" / name).symlink_to(project / ".git/index")
    (folder / ".git/rebase-merge").symlink_to(project / ".git")
    work(folder)

    kept(one)

    assert before == (project / ".git/index").read_bytes()
    assert not (folder / ".git/index").is_symlink()


def test_objects_of_others_are_not_brought(
    project: Path, folder: Path, tmp_path: Path, one: StoryBranch
) -> None:
    """An agent may name any folder of objects, also of a repository that it must not read."""
    private = tmp_path / "private"
    private.mkdir()
    git(private, "init", "--quiet")
    work(private, "secret\n")
    theirs = by_an_agent(private)
    alternates = folder / ".git/objects/info/alternates"
    wanted = alternates.read_bytes()
    alternates.write_text(f"{project}/.git/objects\n{private}/.git/objects\n")
    tree = said(folder, "rev-parse", f"{theirs}^{{tree}}")
    mine = said(folder, "commit-tree", tree, "-p", "HEAD", "-m", "mine")
    git(folder, "update-ref", REF, mine)

    one.publish()
    kept(one)
    one.publish()

    assert wanted == alternates.read_bytes()
    assert 0 != git(project, "cat-file", "-e", tree)
    alternates.unlink()
    os.mkfifo(alternates)
    work(folder)
    assert kept(one) == one.publish()


def test_made_up_ancestors_take_no_commit_away(project: Path, folder: Path, one: StoryBranch) -> None:
    """A clone's objects may say what they like: that a commit follows the project's last one, too."""
    git(project, "commit", "--quiet", "--allow-empty", "-m", "second")
    base = said(project, "rev-parse", "main~1")
    old = said(project, "rev-parse", "main")
    work(folder)
    kept(one)
    known = one.publish() or ""
    tree = said(folder, "rev-parse", f"{base}^{{tree}}")
    git(folder, "read-tree", base)
    mine = said(folder, "commit-tree", tree, "-p", old, "-m", "mine")
    made_up = f"tree {tree}\nparent {known}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nx\n"
    plant(folder / ".git/objects", old, object_of("commit", made_up.encode())[1])
    assert 0 == git(folder, "merge-base", "--is-ancestor", known, mine)
    git(folder, "update-ref", REF, mine)

    with pytest.raises(StoreError, match="has commits that the story's clone has not"):
        one.publish()

    assert known == said(project, "rev-parse", NAME)
    assert "" == said(project, "fsck", "--strict", "--no-dangling")


UNSOUND = {
    "a name of git": ("tree", b"100644 .git\0" + b"%BLOB%"),
    "a climbing name": ("tree", b"100644 ..\0" + b"%BLOB%"),
    "a name with a slash": ("tree", b"100644 a/b\0" + b"%BLOB%"),
    "not in order": ("tree", b"100644 b\0%BLOB%100644 a\0%BLOB%"),
    "a module that runs": ("tree", b"100644 .gitmodules\0%MODULES%"),
    "a missing file": ("tree", b"100644 a\0" + b"\x12" * 20),
    "a missing parent": ("commit", b"tree %TREE%\nparent " + b"12" * 20 + b"\nauthor a <a@b> 1 +0000\n"
                         b"committer a <a@b> 1 +0000\n\nx\n"),
    "a missing tree": ("commit", b"tree " + b"12" * 20 + b"\nparent %HEAD%\nauthor a <a@b> 1 +0000\n"
                       b"committer a <a@b> 1 +0000\n\nx\n"),
    "no author": ("commit", b"tree %TREE%\nparent %HEAD%\ncommitter a <a@b> 1 +0000\n\nx\n"),
}  # fmt: skip


@pytest.mark.parametrize("count", [1, 150])
@pytest.mark.parametrize("way", UNSOUND)
def test_objects_that_are_not_sound_stay_out(
    project: Path, folder: Path, one: StoryBranch, way: str, count: int
) -> None:
    """No object of the commit that has one comes into the project's repository."""
    for number in range(count):
        work(folder, f"{number}", name=f"file{number}")
    head = by_an_agent(folder)
    objects, (kind, content) = folder / ".git/objects", UNSOUND[way]
    modules = object_of("blob", b'[submodule "a"]\n\tpath = a\n\turl = -u./evil\n')
    blob = object_of("blob", b"x")
    for name, data in (modules, blob):
        plant(objects, name, data)
    tree = said(folder, "rev-parse", "HEAD^{tree}")
    for mark, value in (
        (b"%BLOB%", bytes.fromhex(blob[0])), (b"%MODULES%", bytes.fromhex(modules[0])),
        (b"%TREE%", tree.encode()), (b"%HEAD%", head.encode()),
    ):  # fmt: skip
        content = content.replace(mark, value)
    name, data = object_of(kind, content)
    plant(objects, name, data)
    if kind == "tree":
        text = f"tree {name}\nparent {head}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nx\n"
        name, data = object_of("commit", text.encode())
        plant(objects, name, data)
    (folder / ".git" / REF).write_text(f"{name}\n")
    before = said(project, "count-objects", "-v")

    if way.startswith("a missing"):  # nothing goes on from there
        assert said(project, "rev-parse", "main") == one.publish()
        git(project, "branch", "-D", NAME)
    else:
        with pytest.raises(
            StoreError, match=f"could not take the commits of {NAME} into the project: "
        ) as caught:
            one.publish()
        assert "GIT_FAILED" == caught.value.code
    assert (before, "") == (
        said(project, "count-objects", "-v"),
        said(project, "branch", "--list", "handoffd/*"),
    )
    assert "" == said(project, "fsck", "--strict")


def test_objects_under_a_wrong_name_or_damaged_stay_out(
    project: Path, folder: Path, one: StoryBranch
) -> None:
    """git reads some of them without a look at their names."""
    work(folder)
    made = kept(one)
    blob = said(folder, "rev-parse", f"{made}:new")
    for data in (object_of("blob", b"other")[1], b"damaged", object_of("blob", b"new\n")[1][:-4]):
        plant(folder / ".git/objects", blob, data)
        with pytest.raises(StoreError):
            one.publish()
    assert "" == said(project, "fsck", "--strict")
    assert "" == said(project, "branch", "--list", "handoffd/*")


def test_grafts_replacements_and_forged_graphs_are_not_believed(
    project: Path, folder: Path, one: StoryBranch
) -> None:
    """git would take their word for what a commit is."""
    work(folder)
    made = kept(one)
    one.publish()
    other = said(folder, "commit-tree", "HEAD^{tree}", "-m", "other")
    (folder / ".git/info/grafts").write_text(f"{other} {made}\n")
    git(folder, "replace", other, made)
    (folder / ".git/objects/info/commit-graph").write_bytes(b"CGPH\1\1\0\0" + b"\0" * 64)
    (folder / ".git/objects/pack").mkdir(exist_ok=True)
    (folder / ".git/objects/pack/multi-pack-index").write_bytes(b"MIDX\1\1\0\0" + b"\0" * 64)
    git(folder, "update-ref", REF, other)
    (folder / ".git" / REF).write_text(f"{other}\n")
    work(folder, "more\n")

    again = kept(one)

    (folder / ".git/objects/pack/multi-pack-index").unlink()
    assert made == said(folder, "--no-replace-objects", "rev-parse", f"{again}^")
    assert again == one.publish()


@pytest.mark.parametrize(
    "name", [".gitignore", ".gitattributes", ".git/info/exclude", ".git/packed-refs", "object"]
)
def test_a_pipe_holds_nothing_up(
    folder: Path, one: StoryBranch, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """git waits for a writer, and is ended at its limit."""
    work(folder)
    kept(one)
    place = folder / name
    if name == "object":
        tip = said(folder, "rev-parse", "HEAD")
        place = folder / ".git/objects" / tip[:2] / tip[2:]
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    work(folder, "more\n")
    monkeypatch.setattr("handoffd.git.worktree.LIMIT_S", 0.5)
    monkeypatch.setattr(module, "LIMIT_S", 0.5)

    try:
        kept(one)
        one.publish()
    except StoreError as error:
        assert error.code in {"GIT_TOO_SLOW", "GIT_FAILED"}  # noqa: PT017  (some are not read at all)


def test_names_of_all_kinds_are_committed(project: Path, folder: Path, one: StoryBranch) -> None:
    """Options, line breaks, not even text."""
    names = [b"-rf", b"--exec=x", b"a\nb", b"\xff\xfe", b"..x", b":(top)x", b"\\", b"*"]
    for name in names:
        with open(os.path.join(os.fsencode(folder), name), "wb") as file:
            file.write(b"x")

    made = kept(one)

    listed = said(folder, "ls-tree", "--name-only", made).splitlines()
    assert len(names) + 3 == len(listed)
    assert made == one.publish()
    assert "" == said(project, "fsck", "--strict")


@pytest.mark.parametrize("value", ["ref: refs/heads/main", "--all", "nonsense", "1" * 39])
def test_a_branch_of_the_project_that_names_no_commit_stays(
    project: Path, folder: Path, one: StoryBranch, value: str
) -> None:
    """The branch that it means is not moved."""
    work(folder)
    kept(one)
    (project / ".git/refs/heads/handoffd").mkdir()
    (project / ".git" / REF).write_text(f"{value}\n")
    before = untouched(project)

    with pytest.raises(StoreError, match="is not a branch of its own"):
        one.publish()

    assert before == untouched(project)
    assert f"{value}\n" == (project / ".git" / REF).read_text()


@pytest.mark.parametrize("name", [REF, "refs/heads/handoffd", "refs/heads", "objects/pack", "objects/ab"])
def test_links_of_the_project_are_not_written_through(
    project: Path, folder: Path, tmp_path: Path, one: StoryBranch, name: str
) -> None:
    """Another program put them there; they lead to another repository."""
    for number in range(120 if name.startswith("objects") else 1):
        work(folder, f"{number}", name=f"file{number}")
    kept(one)
    place, outside = project / ".git" / name, tmp_path / "outside"
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        place.rename(outside)
    elif name == REF:
        outside.write_text(said(project, "rev-parse", "main") + "\n")
    else:
        outside.mkdir()
    place.symlink_to(outside)
    before = {path: path.read_bytes() for path in (outside, *outside.rglob("*")) if path.is_file()}

    with pytest.raises(StoreError):
        one.publish()

    assert before == {path: path.read_bytes() for path in (outside, *outside.rglob("*")) if path.is_file()}
