"""`handoffd projects` and `handoffd scan`."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.commands import Commands
from tests.support.controlled import Controlled
from tests.support.supervision import MemorySupervision, project_view, track_view

from handoffd.cli import projects
from handoffd.cli.projects import Scanned, report
from handoffd.engine.events import TestEvidence
from handoffd.engine.views import Tried, WorkspaceTrial
from handoffd.errors import Refused
from handoffd.protocol.state import TestCounts

STATE = '{"project": "shop", "story": "US-001", "step": "impl", "status": "running"}'


def test_projects_are_listed(control: Controlled, handoffd: Commands) -> None:
    """A line for each story: level, status, root; the condition where there is no story."""
    stories = (track_view(), track_view(track="US-002", story="US-002", step="done", status="pass"))
    control.supervision.projects["/srv/pool"] = project_view("/srv/pool", *stories)

    assert [
        "PROJECT  LEVEL  STORY   STATUS           ROOT",
        "shop     2      US-001  needs_human      /srv/shop",
        "empty    0      –       not_initialized  /srv/empty",
        "pool     2      US-001  needs_human      /srv/pool",
        "pool     2      US-002  done             /srv/pool",
    ] == handoffd("projects").lines
    (*_, pool) = handoffd("projects", "--json").json["projects"]
    assert [("US-001", "review"), ("US-002", "done")] == [
        (one["story"], one["step"]) for one in pool["stories"]
    ]


def test_without_projects_it_is_one_sentence(handoffd: Commands) -> None:
    """Also without a daemon."""
    assert ["No project is supervised. In a project's folder: handoffd init"] == handoffd("projects").lines


# --- scan -------------------------------------------------------------------------------------------
@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with a project that works, one that is new, one that is broken, and a package."""
    for name, text in (("a", STATE), ("b", None), ("deep/er/c", None), ("broken", "{")):
        (tmp_path / name / ".ai").mkdir(parents=True)
        (tmp_path / name / ".ai" / ("STATE.json" if text else "handoffd.yaml")).write_text(text or "")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "go.mod").touch()
    return tmp_path


def test_a_scan_lists_projects(control: Controlled, handoffd: Commands, work: Path) -> None:
    """The state of each, whether it is supervised, what is wrong with it."""
    root = str(work / "a")
    control.supervision.projects[root] = replace(project_view(root), condition="locked")

    said = handoffd("scan", str(work))

    assert 0 == said.code
    assert [
        ["PROJECT", "STORY", "STEP", "STATUS", "SUPERVISED", "ROOT"],
        ["shop", "US-001", "impl", "running", "yes", root],
        ["locked"],
        ["b", "–", "–", "not_initialized", "no", str(work / "b")],
    ] == [line.split() for line in said.lines[:4]]
    assert "    its STATE.json cannot be read" in said.lines
    assert f"3 projects below {work}" in said.lines
    assert "1 more folder without an .ai; set one up: handoffd init" in said.lines
    assert f"  next: handoffd scan {work} --add" == said.lines[-1]


def test_programs_get_all_of_it(control: Controlled, handoffd: Commands, work: Path) -> None:
    """To the depth that was given."""
    said = handoffd("scan", str(work), "--depth", "3", "--json").json

    assert ["a", "b", "broken", "deep/er/c"] == [
        str(Path(one["project"]).relative_to(work)) for one in said["projects"]
    ]
    assert {
        "project": str(work / "b"), "name": "b", "story": None, "step": None,
        "status": "not_initialized", "supervised": False, "wrong": None,
    } == said["projects"][1]  # fmt: skip
    assert (1, [], False, [], []) == tuple(
        said[name] for name in ("others", "unread", "stopped", "added", "refused")
    )


def test_all_of_them_are_added_at_once(
    control: Controlled, handoffd: Commands, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In few requests; supervised ones are left as they are."""
    monkeypatch.setattr(projects, "_AT_ONCE", 2)

    said = handoffd("scan", str(work), "--depth", "3", "--add")
    again = handoffd("scan", str(work), "--depth", "3", "--add", "--json").json

    assert (0, f"4 projects below {work}, 4 added") == (said.code, said.lines[-2])
    added = [root for root in control.supervision.projects if root.startswith(str(work))]
    assert [str(work / name) for name in ("a", "b", "broken", "deep/er/c")] == added
    assert ([], True) == (again["added"], all(one["supervised"] for one in again["projects"]))


def test_without_a_daemon_they_are_added_all_the_same(handoffd: Commands, work: Path) -> None:
    """The answer names what cannot be used, with exit code 1."""
    (work / "b/.ai/handoffd.yaml").write_text("auto: maybe\n")

    said = handoffd("scan", str(work), "--add", "--json")

    assert 1 == said.code
    assert [str(work / "b")] == [one["project"] for one in said.json["refused"]]
    (wrong,) = [one["wrong"] for one in said.json["projects"] if one["name"] == "b"]
    assert "auto" in wrong
    added = {str(work / "a"), str(work / "broken")}
    assert added == set(said.json["added"])
    assert added == {one["project"] for one in handoffd("projects", "--json").json["projects"]}


def test_the_next_command_leaves_out_the_same(handoffd: Commands, work: Path) -> None:
    """It adds what was listed, and nothing else."""
    said = handoffd("scan", str(work), "--depth", "3", "--exclude", "broken/", "--exclude", "b")

    assert [str(work / "a"), str(work / "deep/er/c")] == [line.split()[-1] for line in said.lines[1:3]]
    assert f"  next: handoffd scan {work} --depth 3 --exclude broken/ --exclude b --add" == said.lines[-1]
    refused = handoffd("scan", str(work), "--exclude", "!")
    assert (2, True) == (refused.code, "'!' is not a pattern as in .gitignore" in refused.err)


def test_a_folder_that_does_not_exist_is_not_found(handoffd: Commands, tmp_path: Path) -> None:
    """Exit code 4; an empty one has no projects."""
    assert 4 == handoffd("scan", str(tmp_path / "gone")).code
    assert f"no projects below {tmp_path}" in handoffd("scan", str(tmp_path)).lines


def test_a_scan_reports_what_it_did_not_read() -> None:
    """Folders that cannot be listed, and a limit."""
    found = Scanned(folder="/w", adding="", projects=(), others=0, unread=("/w/secret",), stopped=True)

    lines = list(report(found, [], {"added": [], "refused": []}, daemon=True))

    assert "not read: /w/secret" in lines
    assert "The folder is too large for one scan; scan a folder further down." in lines


def test_a_name_that_is_not_utf8_is_wrong(handoffd: Commands, tmp_path: Path) -> None:
    """The journal cannot hold it."""
    (tmp_path / "caf\udce9" / ".ai" / "states").mkdir(parents=True)

    (one,) = handoffd("scan", str(tmp_path), "--json").json["projects"]

    assert "not UTF-8" in one["wrong"]


def test_a_long_scan_shows_its_progress_on_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And wipes it out afterwards."""
    for number in range(500):  # with the folder itself, one more than it counts silently
        (tmp_path / str(number)).mkdir()

    projects.look(str(tmp_path), 1, progress=True)

    shown = capsys.readouterr().err
    assert "500 folders, 0 projects" in shown
    assert shown.endswith("\r")  # colours and the like are for a terminal alone


# --- what `init` tries --------------------------------------------------------------------------------
PASSED = Tried(
    command=("make", "test"), path="/bin",
    evidence=TestEvidence(counts=TestCounts(passed=2), collected=2, seconds=1),
)  # fmt: skip
FITS = WorkspaceTrial(kind="clone", fits=True, possible=True, link=("node_modules",), tried=PASSED)
RED = WorkspaceTrial(
    possible=True, why="in a clone 1 test fails: till", remedy="install it", command="vi x",
    tried=replace(PASSED, evidence=TestEvidence(failing=("till",), collected=2)),
)  # fmt: skip


@pytest.fixture
def fresh(tmp_path: Path) -> str:
    """A folder with tests that handoffd does not have yet."""
    (tmp_path / "Makefile").write_text("test:\n")
    return str(tmp_path)


def test_a_new_project_is_tried_in_a_clone(control: Controlled, handoffd: Commands, fresh: str) -> None:
    """Standard error has what goes on, once each; the tests are not run a second time."""
    going = [WorkspaceTrial(doing=what) for what in ("making a clone", "making a clone", "running make test")]
    control.supervision.trials = [*going, FITS]
    said = handoffd("init", fresh)

    assert (["auto"] * 4, 0) == (control.supervision.wanted, said.code)
    where = said.lines.index(
        "  workspace: clone; each story works in a clone of its own with links to node_modules; "
        f"to merge it: handoffd land {fresh}"
    )
    assert (
        f"    in the project's folder instead: handoffd init {fresh} --workspace root"
        == said.lines[where + 1]
    )
    assert (
        "  tried: make test works in the daemon's environment: 2 pass, 0 fail, 0 skipped (in 1 s)"
        in said.lines
    )
    assert ["making a clone", "running make test"] == [
        line.strip(" .") for line in said.err.splitlines() if line.startswith("  ")
    ]
    assert "at most 40 s" not in said.err


@pytest.mark.parametrize(
    ("here", "expected"),
    [
        (Tried(command=("make", "test"), evidence=RED.tried.evidence), "first"),  # type: ignore[union-attr]
        (PASSED, "install it"),
    ],
)
def test_what_does_not_fit_says_why(
    control: Controlled, handoffd: Commands, fresh: str, here: Tried, expected: str
) -> None:
    """Tests that fail in the project's own folder, too, must be repaired there."""
    control.supervision.trials, control.supervision.tried = [RED], here
    said = handoffd("init", fresh, "--json").json

    place = said["workspace"]
    assert ("root", False, "in a clone 1 test fails: till") == (place["kind"], place["fits"], place["why"])
    assert place["remedy"].endswith(expected)
    assert place["command"] == ("vi x" if here is PASSED else f"handoffd init {fresh} --workspace auto")


def test_a_project_that_is_known_stays_where_it_is(
    control: Controlled, handoffd: Commands, fresh: str
) -> None:
    """Until a person asks; an answer that a person did not get is an error for scripts."""
    control.supervision.trials = [RED]
    handoffd("init", fresh)
    again, asked = handoffd("init", fresh, "--json"), handoffd("init", fresh, "--workspace", "clone")

    assert (False, None) == (again.json["new"], again.json["workspace"])
    assert (["auto", "clone"], 1) == (control.supervision.wanted, asked.code)
    control.supervision.trials = [WorkspaceTrial()]
    back = handoffd("init", fresh, "--workspace", "root")
    assert (0, "root") == (back.code, control.supervision.wanted[-1])
    assert "  workspace: root; stories work in the project's own folder" in back.lines


class Refusing(MemorySupervision):
    """Projects whose settings wait for a person."""

    async def try_workspace(self, project: str, wanted: str, *_: object, **__: object) -> WorkspaceTrial:
        """Refuse."""
        raise Refused("an edit waits", code="HELD", hint="handoffd trust shop")


@pytest.mark.parametrize("supervision", [Refusing(project_view("/srv/shop", track_view()))])
def test_where_no_clone_can_be_tried_a_new_project_is_there(
    control: Controlled, handoffd: Commands, fresh: str
) -> None:
    """For a person who asked for one it is an error."""
    new, asked = handoffd("init", fresh), handoffd("init", fresh, "--workspace", "auto", "--json")

    assert (0, 1) == (new.code, asked.code)
    assert "    why: no clone was tried: an edit waits" in new.lines
    assert ("HELD", "handoffd trust shop") == (asked.json["code"], asked.json["hint"])


def test_without_tests_no_clone_is_tried(control: Controlled, handoffd: Commands, fresh: str) -> None:
    """Their code may not have been read yet; a choice that needs them is refused."""
    said, both = (
        handoffd("init", fresh, "--no-tests"),
        handoffd("init", fresh, "--no-tests", "--workspace", "auto"),
    )

    assert ([], 0, 2) == (control.supervision.wanted, said.code, both.code)
    assert f"    next: handoffd init {fresh} --workspace auto" in said.lines


def test_a_project_with_a_state_of_its_own_is_not_new(
    control: Controlled, handoffd: Commands, fresh: str
) -> None:
    """Others have worked there before."""
    state = Path(fresh, ".ai/STATE.json")
    state.parent.mkdir()
    state.write_text(STATE)

    assert (False, None) == ((said := handoffd("init", fresh, "--json").json)["new"], said["workspace"])
    assert [] == control.supervision.wanted
