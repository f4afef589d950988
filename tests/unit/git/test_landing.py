"""Landings in real repositories: what is merged, when a checkout follows, and what is in the way."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from tests.support.repositories import git
from tests.unit.git.conftest import Crashed, crash, crashing
from tests.unit.git.test_snapshots import said

from handoffd.errors import Refused, StoreError
from handoffd.git.landing import Landing, Merge, Outlook, cut_off
from handoffd.git.worktree import shadow_of

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MESSAGE = b"Land US-1\n\nStory: US-1\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository on `main` whose story has changed `kept` and added `new` on its branch."""
    root = tmp_path / "shop"
    root.mkdir()
    (root / "kept").write_text("kept\n")
    (root / "other").write_text("other\n")
    assert 0 == git(root, "init", "--quiet", "--initial-branch", "main")
    commit(root, "first")
    branch(root, "US-1", kept="changed\n", new="new\n")
    return root


@pytest.fixture
def landing(tmp_path: Path, root: Path) -> Landing:
    """The landings of the repository."""
    return Landing(str(root), tmp_path / "state", dict(os.environ))


def commit(root: Path, text: str) -> None:
    """Commit everything."""
    git(root, "add", "--all")
    assert 0 == git(root, "commit", "--quiet", "-m", text)


def branch(root: Path, story: str, **files: str) -> None:
    """Give a story a branch from main with these files, and be on main again."""
    assert 0 == git(root, "switch", "--quiet", "--create", f"handoffd/{story}", "main")
    for name, text in files.items():
        (root / name).write_text(text)
    commit(root, story)
    assert 0 == git(root, "switch", "--quiet", "main")


def landed(landing: Landing, story: str = "US-1", onto: str | None = None) -> str:
    """Land a story, and return where its branch ends now."""
    merge = landing.prepare(story, onto, MESSAGE, AT)
    landing.land(merge)
    return merge.commit


def refusal(landing: Landing, story: str = "US-1", onto: str | None = None) -> Refused:
    """Return why a story cannot be landed."""
    with pytest.raises(Refused) as caught:
        landed(landing, story, onto)
    return caught.value


# --- what is merged -----------------------------------------------------------------------------------
def test_a_branch_of_one_commit_is_followed(root: Path, landing: Landing) -> None:
    """No commit of ours is made; the checkout has the files, and nothing is left to commit."""
    merge = landing.prepare("US-1", None, MESSAGE, AT)
    landing.land(merge)

    assert ("main", 2) == (merge.onto, merge.files)
    assert said(root, "rev-parse", "handoffd/US-1").strip() == said(root, "rev-parse", "main").strip()
    assert ("changed\n", "new\n") == ((root / "kept").read_text(), (root / "new").read_text())
    assert "" == said(root, "status", "--porcelain")
    assert "handoffd" in said(root, "reflog", "main")


def test_several_commits_are_one_on_the_line_of_the_branch(root: Path, landing: Landing) -> None:
    """`git bisect --first-parent` meets no step whose tests were meant to fail; the files are the story's."""
    assert 0 == git(root, "switch", "--quiet", "handoffd/US-1")
    (root / "red").write_text("not yet\n")
    commit(root, "scaffold")
    assert 0 == git(root, "switch", "--quiet", "main")
    was, end = said(root, "rev-parse", "main", "handoffd/US-1").split()
    made = landed(landing)

    assert [made, was] == said(root, "rev-list", "--first-parent", "--max-count=2", "main").split()
    assert [was, end] == said(root, "show", "--no-patch", "--format=%P", made).split()
    assert "" == said(root, "diff", "main", "handoffd/US-1") + said(root, "status", "--porcelain")


def test_branches_that_have_both_gone_on_are_merged(root: Path, landing: Landing) -> None:
    """The merge has the person's commit as its first parent, and our message."""
    (root / "other").write_text("mine\n")
    commit(root, "mine")
    was = said(root, "rev-parse", "main").strip()
    made = landed(landing)

    assert [was, said(root, "rev-parse", "handoffd/US-1").strip()] == (
        said(root, "show", "--no-patch", "--format=%P", made).split()
    )
    assert "Land US-1" in said(root, "log", "-1", "--format=%B", "main")
    assert ("changed\n", "mine\n") == ((root / "kept").read_text(), (root / "other").read_text())
    assert "" == said(root, "status", "--porcelain")
    assert "" == said(root, "fsck", "--strict", "--no-dangling")


def test_what_is_there_already_is_not_landed_again(root: Path, landing: Landing) -> None:
    """Also where a person has merged it."""
    assert 0 == git(root, "merge", "--quiet", "--no-ff", "--no-edit", "handoffd/US-1")
    merge = landing.prepare("US-1", None, MESSAGE, AT)

    assert merge.was == merge.commit == said(root, "rev-parse", "main").strip()


def ends(root: Path, one: str, other: str) -> tuple[str, str]:
    """Return where two branches end."""
    return said(root, "rev-parse", one).strip(), said(root, "rev-parse", other).strip()


def test_what_a_landing_would_do_is_foreseen_and_nothing_is_written(root: Path, landing: Landing) -> None:
    """Neither an object, nor a ref, nor an index: a look at the status changes nothing."""
    (root / "kept").write_text("kept\n\nmine\n")
    branch(root, "US-2", kept="theirs\n")
    branch(root, "US-3", fresh="x\n")
    assert 0 == git(root, "switch", "--quiet", "main")
    before = {path: path.read_bytes() for path in (root / ".git").rglob("*") if path.is_file()}

    forward = landing.foreseen("US-1", None)

    tips = ends(root, "handoffd/US-1", "main")
    assert forward == Outlook(
        branch="handoffd/US-1", onto="main", commits=1, would="forward", files=2, tips=tips
    )
    assert landing.foreseen("US-9", None) is None
    unknown = landing.foreseen("US-1", "nowhere")
    assert unknown is not None
    assert (None, "unknown") == (unknown.onto, unknown.would)
    assert before == {path: path.read_bytes() for path in (root / ".git").rglob("*") if path.is_file()}


def test_a_merge_and_its_conflicts_are_foreseen_as_they_come(root: Path, landing: Landing) -> None:
    """After that, it is landed; a path with a colon is none of git's lists."""
    branch(root, "US-2", kept="theirs\n")
    (root / "other").write_text("mine\n")
    commit(root, "mine")
    before = sorted((root / ".git/objects").rglob("*"))

    merge = landing.foreseen("US-1", None)

    tips = ends(root, "handoffd/US-1", "main")
    assert merge == Outlook(branch="handoffd/US-1", onto="main", commits=1, would="merge", files=2, tips=tips)
    assert before == sorted((root / ".git/objects").rglob("*"))
    landed(landing)
    there, conflict = landing.foreseen("US-1", "main"), landing.foreseen("US-2", "main")
    assert there is not None
    assert (0, "landed", 0) == (there.commits, there.would, there.files)
    assert conflict is not None
    assert ("conflict", ("kept",)) == (conflict.would, conflict.conflicts)
    assert "CONFLICT" == refusal(landing, "US-2").code


def test_it_is_foreseen_in_a_folder_with_any_name(tmp_path: Path) -> None:
    """Also one that git's own list of folders would take for two."""
    root = tmp_path / 'a:"b\\c'
    root.mkdir()
    (root / "kept").write_text("kept\n")
    git(root, "init", "--quiet", "--initial-branch", "main")
    commit(root, "first")
    branch(root, "US-1", new="new\n")
    (root / "other").write_text("mine\n")
    commit(root, "mine")

    found = Landing(str(root), tmp_path / "state", dict(os.environ)).foreseen("US-1", None)

    assert found is not None
    assert ("merge", 1) == (found.would, found.files)


@pytest.mark.parametrize("paper", ["PROJECT_MEMORY.md", ".ai/history.md"])
def test_stories_that_add_to_the_same_paper_do_not_conflict(root: Path, landing: Landing, paper: str) -> None:
    """Each story ends with such lines, at the same place; both are kept."""
    (root / ".ai").mkdir()
    (root / paper).write_text("# Shop\n")
    commit(root, "papers")
    for story in ("US-2", "US-3"):
        branch(root, story, **{paper: f"# Shop\n- {story} is done\n"})
    landed(landing, "US-2")
    landed(landing, "US-3")

    assert "# Shop\n- US-2 is done\n- US-3 is done\n" == (root / paper).read_text()


def test_lines_that_a_story_has_moved_in_a_paper_are_moved_once(root: Path, landing: Landing) -> None:
    """Each takes its own from what is next to what is done, as it is asked; also below a new heading."""
    (root / "PROJECT_MEMORY.md").write_text("# Shop\n\n## NEXT\n- US-2 b\n- US-3 c\n- US-4 d\n")
    commit(root, "plans")
    branch(
        root, "US-2", **{"PROJECT_MEMORY.md": "# Shop\n\n## NEXT\n- US-3 c\n- US-4 d\n\n## DONE\n- US-2 b\n"}
    )
    branch(
        root, "US-3", **{"PROJECT_MEMORY.md": "# Shop\n\n## NEXT\n- US-2 b\n- US-4 d\n\n## DONE\n- US-3 c\n"}
    )
    landed(landing, "US-2")
    landed(landing, "US-3")

    done = "\n## DONE\n- US-2 b\n\n- US-3 c\n"
    assert f"# Shop\n\n## NEXT\n- US-4 d\n{done}" == (root / "PROJECT_MEMORY.md").read_text()


def test_papers_that_only_a_merge_by_hand_conflicts_in_are_named(root: Path, landing: Landing) -> None:
    """As git itself finds them; where the story could be landed, they do not conflict."""
    paper = "PROJECT_MEMORY.md"
    for story in ("US-2", "US-3"):
        branch(root, story, kept=f"{story}\n", **{paper: f"# Shop\n- {story} is done\n"})
    branch(root, "US-4", **{paper: "# Shop\n- US-4 is done\n"})
    landed(landing, "US-2")

    foreseen, other = landing.foreseen("US-3", None), landing.foreseen("US-4", None)

    assert foreseen is not None
    assert other is not None
    assert (("kept", paper), ()) == (foreseen.conflicts, other.conflicts)
    told = f"handoffd/US-3 conflicts in kept; by hand also in {paper}: keep both sides"
    assert told == refusal(landing, "US-3").message
    assert 1 == git(root, "merge", "--quiet", "handoffd/US-3")
    conflicts = said(root, "diff", "--name-only", "--diff-filter=U").split()
    assert sorted(foreseen.conflicts) == sorted(conflicts)


def test_a_conflict_is_refused_and_leaves_everything(root: Path, landing: Landing) -> None:
    """The files are named, and the command that merges by hand."""
    (root / "kept").write_text("mine\n")
    commit(root, "mine")
    before = said(root, "for-each-ref")

    refused = refusal(landing)
    assert ("CONFLICT", "handoffd/US-1 conflicts in kept") == (refused.code, refused.message)
    assert f"git -C {root} merge handoffd/US-1" == refused.hint
    assert (before, "", "mine\n") == (
        said(root, "for-each-ref"),
        said(root, "status", "--porcelain"),
        (root / "kept").read_text(),
    )


def test_what_a_person_has_not_committed_is_known_and_not_touched(root: Path, landing: Landing) -> None:
    """Staged or not, and new files; nothing that is ignored, inside another repository, or handoffd's own."""
    (root / ".git/info/exclude").write_text("*.log\n")
    assert () == landing.uncommitted()
    (root / "kept").write_text("being written\n")
    (root / "staged").write_text("staged\n")
    git(root, "add", "staged")
    (root / "other").unlink()
    for name in ("new", "noise.log", ".ai/STATE.json", "inner/file"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(name)
    git(root / "inner", "init", "--quiet")
    before = (root / ".git/index").read_bytes()

    assert ("kept", "new", "other", "staged") == landing.uncommitted()
    assert before == (root / ".git/index").read_bytes()


def test_a_merge_by_hand_goes_into_the_branch_that_the_story_lands_on(root: Path, landing: Landing) -> None:
    """Git merges into what is checked out: so that comes first. Changes in the way are named."""
    (root / "kept").write_text("mine\n")
    commit(root, "mine")
    foreseen = landing.foreseen("US-1", "main")
    assert 0 == git(root, "switch", "--quiet", "--create", "feature")
    (root / "other").write_text("not committed\n")
    told = (
        "handoffd/US-1 conflicts in kept; your checkout has changes: commit or stash them before you switch"
    )
    assert told == refusal(landing, onto="main").message
    assert 0 == git(root, "stash", "push", "--quiet")

    hint = f"git -C {root} switch main && git -C {root} merge handoffd/US-1"
    refused, again = refusal(landing, onto="main"), landing.foreseen("US-1", "main", foreseen)
    assert again is not None
    assert ("handoffd/US-1 conflicts in kept", hint, hint) == (refused.message, refused.hint, again.by_hand)
    typed(root, hint)
    assert ("main", "kept") == (
        said(root, "branch", "--show-current").strip(),
        said(root, "diff", "--name-only", "--diff-filter=U").strip(),
    )


def test_a_merge_by_hand_goes_where_another_working_tree_has_the_branch(root: Path, landing: Landing) -> None:
    """Git switches to no branch that is checked out elsewhere."""
    (root / "kept").write_text("mine\n")
    commit(root, "mine")
    assert 0 == git(root, "switch", "--quiet", "--create", "feature")
    linked = root.parent / "a linked one"
    assert 0 == git(root, "worktree", "add", "--quiet", str(linked), "main")

    hint = refusal(landing, onto="main").hint
    assert f"git -C '{linked}' merge handoffd/US-1" == hint
    typed(root, hint)
    assert "kept" == said(linked, "diff", "--name-only", "--diff-filter=U").strip()


def typed(root: Path, command: str) -> None:
    """Type a command that ends in a conflict."""
    assert 1 == subprocess.run(["sh", "-c", command], cwd=root, capture_output=True, check=False).returncode


@pytest.mark.parametrize(
    ("story", "onto", "message"),
    [
        ("US-2", None, "US-2 has no branch here: handoffd/US-2"),
        ("US-1", "nowhere", "nowhere is not a branch to land on"),
        ("US-1", "handoffd/US-1", "handoffd/US-1 is not a branch to land on"),
        ("US-1", "../../HEAD", "../../HEAD is not a branch to land on"),
    ],
)
def test_only_a_branch_lands_on_a_branch(
    landing: Landing, story: str, onto: str | None, message: str
) -> None:
    """Each refusal says what is none."""
    assert ("NO_BRANCH", message) == ((refused := refusal(landing, story, onto)).code, refused.message)


def test_a_detached_head_is_no_branch(root: Path, landing: Landing) -> None:
    """The hint is the way to one."""
    git(root, "switch", "--quiet", "--detach", "main")
    refused = refusal(landing)
    again = f"git -C {root} branch --list  # then again, with --onto BRANCH"
    assert ("NO_BRANCH", again) == (refused.code, refused.hint)


def test_a_commit_that_a_person_has_taken_out_does_not_come_back(root: Path, landing: Landing) -> None:
    """The story began at it; only what it has changed since lands, in one commit."""
    begun = said(root, "rev-parse", "main").strip()
    (root / "secret").write_text("a key\n")
    commit(root, "a mistake")
    base = said(root, "rev-parse", "main").strip()
    branch(root, "US-2", other="changed\n", more="more\n")
    for onto in ("gone", "amended"):
        git(root, "reset", "--quiet", "--hard", begun)
        if onto == "amended":
            (root / "kept").write_text("kept on\n")
            commit(root, "no mistake")
        found = landing.foreseen("US-2", "main", base=base)
        assert found is not None
        assert found.in_words(aborted=False) == (
            "1 commit; landing brings 2 files in one commit: main was rewritten since it began"
        )
        merge = landing.prepare("US-2", "main", MESSAGE, AT, base=base)
        landing.land(merge)
        assert not (root / "secret").exists()
        assert ("changed\n", "more\n") == ((root / "other").read_text(), (root / "more").read_text())
        assert base not in said(root, "rev-list", "main").split()
        found = landing.foreseen("US-2", "main", base=base)
        assert found is not None
        assert "landed" == found.would
        assert merge.commit == landing.prepare("US-2", "main", MESSAGE, AT, base=base).commit


def test_a_conflict_with_a_rewritten_branch_is_one_of_the_storys_own_changes(
    root: Path, landing: Landing
) -> None:
    """What a person took out is not one."""
    (root / "secret").write_text("a key\n")
    commit(root, "a mistake")
    base = said(root, "rev-parse", "main").strip()
    branch(root, "US-2", other="changed\n")
    git(root, "reset", "--quiet", "--hard", "HEAD~1")
    (root / "other").write_text("mine\n")
    commit(root, "mine")
    with pytest.raises(Refused, match=r"handoffd/US-2 conflicts in other$"):
        landing.prepare("US-2", "main", MESSAGE, AT, base=base)


# --- the checkout -------------------------------------------------------------------------------------
def test_another_working_tree_that_is_on_the_branch_follows(root: Path, landing: Landing) -> None:
    """Else its next commit would undo the story; where it cannot follow, nothing moves."""
    assert 0 == git(root, "switch", "--quiet", "--create", "feature")
    linked = root.parent / "a linked one"
    assert 0 == git(root, "worktree", "add", "--quiet", str(linked), "main")
    (linked / "kept").write_text("half done\n")
    was = said(root, "rev-parse", "main")
    refused = refusal(landing, onto="main")
    assert ("CHECKOUT_IN_THE_WAY", was) == (refused.code, said(root, "rev-parse", "main"))
    assert refused.hint == f"git -C '{linked}' stash push -- kept"
    assert 0 == git(linked, "checkout", "--quiet", "kept")

    landed(landing, onto="main")
    assert ("", "new\n") == (said(linked, "status", "--porcelain"), (linked / "new").read_text())
    assert "" == said(root, "status", "--porcelain")
    assert not (root / "new").exists()


@pytest.mark.parametrize("name", ["new", "new/deep.txt"])
@pytest.mark.parametrize("rules", [".gitignore", ".git/info/exclude", "none"])
def test_a_file_that_git_does_not_know_is_not_written_over(
    root: Path, landing: Landing, name: str, rules: str
) -> None:
    """An ignored one least of all: git would do so, and no snapshot has it either."""
    (root / rules).write_text("/new\n")
    (root / "other").write_text("more\n")
    commit(root, "rules")
    assert 0 == git(root, "switch", "--quiet", "--create", "handoffd/US-2", "main")
    (root / rules).write_text("")
    (root / "new").write_text("new\n")
    commit(root, "US-2")
    assert 0 == git(root, "switch", "--quiet", "main")
    (root / rules).write_text("/new\n")
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text("my secret\n")
    was = said(root, "rev-parse", "main")
    refused = refusal(landing, "US-2")

    assert ("CHECKOUT_IN_THE_WAY", was) == (refused.code, said(root, "rev-parse", "main"))
    assert f"your checkout of main has {name}, which git does not know" in refused.message
    assert "my secret\n" == (root / name).read_text()
    assert refused.hint == f"git -C {root} stash push --all -- {name}"
    assert 0 == git(root, *refused.hint.split()[3:])
    landed(landing, "US-2")


def test_a_file_in_place_of_a_folder_is_named(root: Path, landing: Landing) -> None:
    """The command to type must never be a `git stash` of everything."""
    assert 0 == git(root, "switch", "--quiet", "--create", "handoffd/US-2", "main")
    (root / "docs").mkdir()
    (root / "docs/US-2.md").write_text("a plan\n")
    commit(root, "US-2")
    assert 0 == git(root, "switch", "--quiet", "main")
    (root / "docs").write_text("mine\n")
    assert refusal(landing, "US-2").hint == f"git -C {root} stash push --all -- docs"
    assert "mine\n" == (root / "docs").read_text()


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_file_that_git_shall_not_look_at_is_in_the_way(root: Path, landing: Landing, flag: str) -> None:
    """No list of changes has it: git marks it where it lists its flags."""
    assert 0 == git(root, "update-index", flag, "kept")
    (root / "kept").write_text("mine, and longer\n")
    refused = refusal(landing)
    assert ("CHECKOUT_IN_THE_WAY", f"git -C {root} ls-files -v") == (refused.code, refused.hint)
    assert "kept" in refused.message
    assert "mine, and longer\n" == (root / "kept").read_text()


def test_a_split_index_follows_as_a_whole(root: Path, landing: Landing) -> None:
    """What it is based on is a file beside it."""
    assert 0 == git(root, "update-index", "--split-index")
    landed(landing)
    assert ("", "changed\n") == (said(root, "status", "--porcelain"), (root / "kept").read_text())


def test_a_branch_that_a_person_rebases_stays(root: Path, landing: Landing) -> None:
    """The end of a rebase, or its abort, would move it back."""
    (root / "other").write_text("more\n")
    commit(root, "second")
    stop = ("-c", "sequence.editor=sed -i s/^pick/edit/")
    assert 0 == git(root, *stop, "rebase", "--interactive", "HEAD~1")
    refused = refusal(landing, onto="main")
    assert ("CHECKOUT_IN_THE_WAY", f"git -C {root} status") == (refused.code, refused.hint)
    assert f"main is being rebased in {root}" == refused.message
    assert 0 == git(root, "rebase", "--continue")
    landed(landing, onto="main")


def test_changes_of_a_person_stay(root: Path, landing: Landing) -> None:
    """In files that the story has not changed: in the index, beside it, and in new files."""
    (root / "other").write_text("half done\n")
    (root / "notes").write_text("mine\n")
    (root / "staged").write_text("staged\n")
    git(root, "add", "staged")
    landed(landing)

    assert {"A  staged", " M other", "?? notes"} == {*said(root, "status", "--porcelain").splitlines()}
    assert "half done\n" == (root / "other").read_text()


def test_a_change_in_the_way_is_not_written_over(root: Path, landing: Landing) -> None:
    """Of a file that the story has changed; nothing moves."""
    (root / "kept").write_text("half done\n")
    was = said(root, "rev-parse", "main")

    refused = refusal(landing)
    assert ("CHECKOUT_IN_THE_WAY", f"git -C {root} stash push -- kept") == (refused.code, refused.hint)
    assert "changes of kept in your checkout of main are in the way" in refused.message
    assert ("half done\n", was) == ((root / "kept").read_text(), said(root, "rev-parse", "main"))


def test_an_edit_after_the_tests_is_not_written_over(root: Path, landing: Landing) -> None:
    """The checkout is checked again before the branch moves."""
    merge = landing.prepare("US-1", None, MESSAGE, AT)
    (root / "kept").write_text("half done\n")

    with pytest.raises(Refused, match="in the way"):
        landing.land(merge)
    assert ("half done\n", merge.was) == (
        (root / "kept").read_text(),
        said(root, "rev-parse", "main").strip(),
    )


def test_a_branch_that_is_not_checked_out_moves_alone(root: Path, landing: Landing) -> None:
    """The files and the index of the checkout stay, whatever is changed there."""
    git(root, "switch", "--quiet", "--create", "mine")
    (root / "kept").write_text("half done\n")
    made = landed(landing, onto="main")

    assert made == said(root, "rev-parse", "main").strip()
    assert (" M kept\n", "half done\n") == (said(root, "status", "--porcelain"), (root / "kept").read_text())


def test_a_git_of_a_person_is_told_from_their_changes(root: Path, landing: Landing) -> None:
    """Before the tests, too: it is over in a moment, and there is nothing to commit or stash."""
    (root / ".git/index.lock").touch()
    refused = refusal(landing)
    assert ("CHECKOUT_BUSY", f"git -C {root} status --short") == (refused.code, refused.hint)
    (root / ".git/index.lock").unlink()
    landed(landing)


def test_an_unfinished_merge_is_in_the_way(root: Path, landing: Landing) -> None:
    """Its person finishes it first."""
    branch(root, "US-2", other="contested\n")
    (root / "other").write_text("mine\n")
    commit(root, "mine")
    assert 0 != git(root, "merge", "handoffd/US-2")

    refused = refusal(landing)
    assert ("CHECKOUT_IN_THE_WAY", f"git -C {root} status") == (refused.code, refused.hint)
    assert "in the middle of a merge" in refused.message


def test_a_branch_that_was_moved_meanwhile_stays(root: Path, landing: Landing) -> None:
    """The person's commit is not lost, and the checkout is as before."""
    merge = landing.prepare("US-1", None, MESSAGE, AT)
    (root / "other").write_text("mine\n")
    commit(root, "mine")
    mine, written = said(root, "rev-parse", "main"), (root / "kept").stat().st_ino

    with pytest.raises(Refused) as caught:
        landing.land(merge)
    assert "BRANCH_MOVED" == caught.value.code
    assert written == (root / "kept").stat().st_ino  # not even for a moment
    assert (mine, "", "kept\n") == (
        said(root, "rev-parse", "main"),
        said(root, "status", "--porcelain"),
        (root / "kept").read_text(),
    )
    assert () == cut_off(root.parent / "state")


# --- a landing that was cut off -----------------------------------------------------------------------
def test_a_landing_that_was_cut_off_before_the_branch_moved_is_finished(
    tmp_path: Path, root: Path, landing: Landing
) -> None:
    """The note is there; the files may have followed already, or not."""
    merge = landing.prepare("US-1", None, MESSAGE, AT)
    note = shadow_of(str(root), tmp_path / "state") / "landing.json"
    note.write_bytes(msgspec.json.encode(merge))
    (root / "kept").write_text("changed\n")  # read-tree was at work

    assert (str(root),) == cut_off(tmp_path / "state")
    git(root, "checkout", "--quiet", "--", "kept")
    assert merge == Landing(str(root), tmp_path / "state", dict(os.environ)).finish()
    assert merge.commit == said(root, "rev-parse", "main").strip()
    assert ("", "changed\n") == (said(root, "status", "--porcelain"), (root / "kept").read_text())
    assert () == cut_off(tmp_path / "state")


def test_a_landing_that_was_cut_off_after_the_branch_moved_is_over(
    tmp_path: Path, root: Path, landing: Landing
) -> None:
    """Nothing is done a second time."""
    merge = landing.prepare("US-1", None, MESSAGE, AT)
    landing.land(merge)
    (shadow_of(str(root), tmp_path / "state") / "landing.json").write_bytes(msgspec.json.encode(merge))

    assert merge == landing.finish()
    assert () == cut_off(tmp_path / "state")


def test_a_landing_that_was_overtaken_is_given_up(tmp_path: Path, root: Path, landing: Landing) -> None:
    """A person has committed since: that stays, and the story can be landed anew."""
    merge = landing.prepare("US-1", None, MESSAGE, AT)
    (shadow_of(str(root), tmp_path / "state") / "landing.json").write_bytes(msgspec.json.encode(merge))
    (root / "other").write_text("mine\n")
    commit(root, "mine")
    mine = said(root, "rev-parse", "main")

    assert landing.finish() is None
    assert (mine, ()) == (said(root, "rev-parse", "main"), cut_off(tmp_path / "state"))
    assert landing.finish() is None


@pytest.fixture
def between(root: Path, landing: Landing) -> Merge:
    """A landing that was cut off when the checkout had moved, and the branch had not."""
    merge = landing.prepare("US-1", None, MESSAGE, AT)
    with crashing("after_landing", crash), pytest.raises(Crashed):
        landing.land(merge)
    assert "M  kept\nA  new\n" == said(root, "status", "--porcelain")
    return merge


@pytest.mark.usefixtures("between")
def test_a_checkout_that_was_ahead_of_a_branch_that_a_person_has_moved_goes_back(
    root: Path, landing: Landing
) -> None:
    """The person has committed a file of their own meanwhile, and nothing of the story."""
    (root / "other").write_text("mine\n")
    assert 0 == git(root, "commit", "--quiet", "-m", "mine", "--", "other")

    assert landing.finish() is None
    assert ("", "kept\n") == (said(root, "status", "--porcelain"), (root / "kept").read_text())
    assert "mine\n" == (root / "other").read_text()
    landed(landing)
    assert ("", "changed\n") == (said(root, "status", "--porcelain"), (root / "kept").read_text())


@pytest.mark.usefixtures("between")
def test_what_a_person_has_committed_of_a_story_stays(root: Path, landing: Landing) -> None:
    """It was there, staged, when they committed everything."""
    commit(root, "mine")

    assert landing.finish() is None
    assert ("", "changed\n") == (said(root, "status", "--porcelain"), (root / "kept").read_text())


def test_the_next_landing_finishes_one_that_was_cut_off(
    tmp_path: Path, root: Path, landing: Landing, between: Merge
) -> None:
    """No daemon has to begin anew for that."""
    merge = landing.prepare("US-1", None, MESSAGE, AT)

    assert between.commit == merge.was == merge.commit == said(root, "rev-parse", "main").strip()
    assert () == cut_off(tmp_path / "state")


@pytest.mark.usefixtures("between")
def test_one_that_cannot_be_finished_says_what_is_in_the_way(root: Path, landing: Landing) -> None:
    """A person's git is at work."""
    (root / ".git/index.lock").touch()
    refused = refusal(landing)

    assert ("CHECKOUT_BUSY", True) == (refused.code, "index.lock" in refused.message)


KILLED = """\
#!/bin/sh
case " $* " in *" read-tree -m "*) ulimit -f 8;; esac
exec {git} "$@"
"""
"""A git that the kernel kills while it writes the first file that is not small."""


@pytest.fixture
def half_there(tmp_path: Path, root: Path) -> Iterator[Merge]:
    """A landing whose git was killed in the middle of the checkout, and the daemon with it."""
    at = tmp_path / "bin/git"
    at.parent.mkdir()
    at.write_text(KILLED.format(git=shutil.which("git")))
    at.chmod(0o755)
    branch(root, "US-3", a="new\n", kept="changed\n", large="0123456\n" * 8192, other="too\n")
    killed = Landing(
        str(root), tmp_path / "state", {**os.environ, "PATH": f"{at.parent}:{os.environ['PATH']}"}
    )
    merge = killed.prepare("US-3", None, MESSAGE, AT)
    with pytest.raises(StoreError, match="signal"):
        killed.land(merge)
    assert ("new\n", True) == ((root / "a").read_text(), 0 < (root / "large").stat().st_size < 65536)
    shadow = shadow_of(str(root), tmp_path / "state")
    (root / ".git/index.lock").symlink_to(shadow / "lock")
    for name in ("handoffd.index", "handoffd.index.lock"):
        (root / ".git" / name).write_bytes(b"half")
    yield merge
    assert () == cut_off(tmp_path / "state")
    assert not [*(root / ".git").rglob("*.lock"), *(root / ".git").glob("handoffd*")]


def test_a_checkout_whose_git_was_killed_in_the_middle_is_finished(
    root: Path, landing: Landing, half_there: Merge
) -> None:
    """Files that are there, that are there in part, and not yet; the lock is known as ours."""
    assert half_there == landing.finish()
    assert half_there.commit == said(root, "rev-parse", "main").strip()
    assert ("", "") == (said(root, "status", "--porcelain"), said(root, "diff", "main", "handoffd/US-3"))


def test_what_a_person_has_written_meanwhile_is_not_written_over(
    root: Path, landing: Landing, half_there: Merge
) -> None:
    """It is in the way until they have put it aside; what was there stays there."""
    (root / "other").write_text("mine\n")
    refused = refusal(landing, "US-3")
    assert ("CHECKOUT_IN_THE_WAY", True) == (refused.code, "other" in refused.message)
    assert ("new\n", "mine\n") == ((root / "a").read_text(), (root / "other").read_text())
    assert not (root / ".git/index.lock").is_symlink()
    (root / "other").write_text("other\n")
    assert half_there == landing.finish()


@pytest.mark.parametrize("written", ["", "{commit}\n"])
def test_locks_of_a_git_that_was_killed_while_it_moved_the_branch_are_removed(
    root: Path, landing: Landing, half_there: Merge, written: str
) -> None:
    """It would have written our commit, or nothing yet."""
    (root / ".git/refs/heads/main.lock").write_text(written.format(commit=half_there.commit))
    (root / ".git/HEAD.lock").touch()
    assert half_there == landing.finish()


@pytest.mark.usefixtures("half_there")
def test_locks_of_a_persons_git_stay(root: Path, landing: Landing) -> None:
    """A branch that they move elsewhere, and an index at which they are."""
    ours, theirs = root / ".git/index.lock", root / ".git/refs/heads/main.lock"
    theirs.write_text(f"{'1' * 40}\n")
    ours.unlink()
    ours.touch()
    for lock in (ours, theirs):
        with pytest.raises(StoreError, match=r"\.lock"):
            landing.finish()
        lock.unlink()
    assert landing.finish() is not None


def test_a_git_of_a_person_is_waited_for_and_nothing_goes_on_behind_their_back(
    tmp_path: Path, root: Path, landing: Landing
) -> None:
    """It has begun just before the checkout is moved."""
    was = said(root, "rev-parse", "main")
    with crashing("before_landing", (root / ".git/index.lock").touch):
        refused = refusal(landing)
    (root / ".git/index.lock").unlink()

    assert ("CHECKOUT_BUSY", ()) == (refused.code, cut_off(tmp_path / "state"))
    assert (was, "") == (said(root, "rev-parse", "main"), said(root, "status", "--porcelain"))
    landed(landing)


def test_nothing_lands_without_a_repository(tmp_path: Path) -> None:
    """The reason is that there is none."""
    with pytest.raises(StoreError) as caught:
        landed(Landing(str(tmp_path), tmp_path / "state", dict(os.environ)))
    assert "NO_REPOSITORY" == caught.value.code


def test_no_hook_runs(root: Path, landing: Landing) -> None:
    """An agent may have put one there."""
    for name in ("reference-transaction", "post-checkout", "post-merge", "pre-commit"):
        hook = root / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {root.parent}/ran\n")
        hook.chmod(0o755)
    landed(landing)

    assert not (root.parent / "ran").exists()
