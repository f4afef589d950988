"""The screen of an open gate: what is measured, what is only claimed, and what is not known."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.eventually import eventually
from tests.support.house import NOW, House, at, house, make_project, track_of
from tests.support.repositories import git
from tests.unit.project.living import living, shown
from tests.unit.project.test_stories import all_at, beside

from handoffd.engine.events import Approved, Initialised, Paused, Rejected, Started
from handoffd.engine.track import Facts, TrackKey
from handoffd.engine.views import GateView
from handoffd.errors import Refused
from handoffd.inspection.own_files import shipped_layers
from handoffd.journal.records import StoredRun
from handoffd.project.gate import claim_of, gate_of, handoffs_of, may_write, of_this_life
from handoffd.project.project import Project
from handoffd.project.status import view_of
from handoffd.protocol.rule_merge import Layer
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.state import Reason, TestCounts
from handoffd.protocol.story_text import story_text

RULES = """\
steps:
  bdd: {next_on_pass: review, timeout_min: 1}
  review: {next_on_pass: impl}
  impl: {next_on_pass: update-memory, timeout_min: 1, max_attempts: 1}
"""
AGENT = """\
mkdir -p docs/bdd
if ! test -e docs/bdd/US-001.md; then
  printf '# US-001\\n\\n[Needs clarification] Which zone?\\n' > docs/bdd/US-001.md
  printf 'a\\nb\\n' > shop.py
  printf -- '---\\nstep: bdd\\nstatus: failing\\nsummary: no\\n---\\n' > .ai/HANDOFF.md; exit
fi
test "$HANDOFFD_STEP" = impl && printf 'c\\n' >> shop.py
printf -- '---\\nstep: %s\\nstatus: pass\\ntests_pass: 9\\nsummary: "all \\\\e[31m done"\\n---\\n' \
  "$HANDOFFD_STEP" > .ai/new
mv .ai/new .ai/HANDOFF.md
"""


def in_git(base: Path, settings: str | None = None) -> str:
    """Return the root of a project in a repository with one commit."""
    root = make_project(base, rules=RULES, settings=settings)
    git(Path(root), "init", "--quiet", "--initial-branch", "main")
    git(Path(root), "add", "PROJECT_CONTEXT.md")
    assert 0 == git(Path(root), "commit", "--quiet", "-m", "first")
    return root


@asynccontextmanager
async def at_review(base: Path, root: str, agent: str = AGENT) -> AsyncIterator[tuple[House, Project]]:
    """Lend a project whose story waits at its review."""
    async with house(base, agent) as here, living(here, root) as project:
        await project.main.give(Initialised(project="shop"))
        text = story_text("Dark mode\n\nFor the night.")
        await project.main.give(Started(story="US-001", described=text))
        await eventually(lambda: shown(project)["status"] == "needs_human")
        yield here, project


async def seen(here: House, project: Project, *, since_last: bool = False) -> GateView:
    """Return the screen."""
    return await gate_of(project, here.services, since_last=since_last)


async def test_what_was_done_is_measured_by_git_and_the_records(tmp_path: Path) -> None:
    """Files, lines and scope; attempts and why they failed; the question, and where each answer leads."""
    async with at_review(tmp_path, in_git(tmp_path)) as (here, project):
        gate = await seen(here, project)

        assert ("US-001", "review", "Dark mode") == (gate.story, gate.step, gate.title)
        assert "approve review of US-001, and impl begins; or reject it with a reason" == gate.asked
        assert (("bdd",), ("impl", "update-memory")) == (gate.done, gate.ahead)
        changes = gate.changes
        assert changes is not None
        assert ("bdd-0", "bdd-2", 2, 5, 0, 1) == (
            changes.since, changes.until, changes.count, changes.added, changes.removed, changes.outside,
        )  # fmt: skip
        assert [("shop.py", "added", 2, ("bdd",)), ("docs/bdd/US-001.md", "added", 3, ())] == [
            (file.path, file.status, file.added, file.outside) for file in changes.files
        ]
        assert [("bdd", 1, "failing", True), ("bdd", 2, "pass", False)] == [
            (one.step, one.attempt, one.result, one.why is not None) for one in gate.attempts
        ]
        leads = {one.reason: one.leads_to for one in gate.answers}
        assert ("impl", "bdd", "sdd-delta") == (
            leads[None], leads["needs_clarification"], leads["scope_warning"],
        )  # fmt: skip
        assert f"handoffd approve {project.root} --story US-001" == gate.answers[0].command
        assert ("docs/bdd/US-001.md",) == gate.scenarios


async def test_what_is_open_is_found_in_the_files_and_a_claim_is_called_one(tmp_path: Path) -> None:
    """Unclear points in any case; boxes of the steps behind; counts of tests that nothing has measured."""
    async with at_review(tmp_path, in_git(tmp_path)) as (here, project):
        gate = await seen(here, project)

        assert [("docs/bdd/US-001.md", 3, "[Needs clarification] Which zone?")] == [
            (point.file, point.line, point.text) for point in gate.unclear
        ]
        assert gate.unticked
        assert {"(bdd)"} == {str(point.section).rpartition(" ")[2] for point in gate.unticked}
        assert ("all \x1b[31m done", TestCounts(passed=9), None) == (
            gate.claim, gate.tests.claimed, gate.tests.measured,
        )  # fmt: skip
        assert any("an agent's claim" in one for one in gate.unknown)
        assert gate.sandbox is not None


async def test_a_story_that_only_the_memory_describes_has_its_words(tmp_path: Path) -> None:
    """And where they come from: agents write there, too."""
    root = in_git(tmp_path)
    Path(root, "PROJECT_MEMORY.md").write_text("## NEXT\n- US-001: Light mode\n- US-002: Other\n")  # noqa: ASYNC240
    async with house(tmp_path, AGENT) as here, living(here, root) as project:
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001"))
        await eventually(lambda: shown(project)["status"] == "needs_human")
        gate = await seen(here, project)
    assert ("Light mode", "Light mode", "PROJECT_MEMORY.md") == (gate.title, gate.text, gate.source)


async def test_what_is_open_is_found_behind_many_files(tmp_path: Path) -> None:
    """A list of two hundred files must not hide it. What was not read is called unknown."""
    agent = """\
mkdir -p docs
for number in $(seq 100 399); do echo x > "docs/$number.md"; done
echo '[NEEDS CLARIFICATION] Which zone?' > docs/zone.md
printf -- '---\nstep: %s\nstatus: pass\n---\n' "$HANDOFFD_STEP" > .ai/HANDOFF.md
"""
    async with at_review(tmp_path, in_git(tmp_path), agent) as (here, project):
        gate = await seen(here, project)
        assert gate.changes is not None
        assert (301, 200) == (gate.changes.count, len(gate.changes.files))
        assert ["docs/zone.md"] == [point.file for point in gate.unclear]
        assert not any("were not read" in one for one in gate.unknown)

        for number in range(100, 400):
            (Path(project.root) / f"docs/{number}.md").write_text("[NEEDS CLARIFICATION] Which one?\n")
        gate = await seen(here, project)
        assert 200 == len(gate.unclear)
        assert "101 changed files were not read" in " ".join(gate.unknown)


async def test_measured_tests_stand_beside_the_claim(tmp_path: Path) -> None:
    """With the ones before the story; the attempt after which they were measured is named."""
    settings = "test: {command: [/bin/sh, -c, 'exit 0'], report: exit}\n"
    root = in_git(tmp_path, settings)
    at(root, ".ai/step-rules.yaml").write_text(RULES.replace("bdd: {", "bdd: {tests: green, "))
    async with at_review(tmp_path, root) as (here, project):
        before = (
            b"""{"version": 1, "results": {"a": "passed"}, "unloadable": ["b"], "unnamed_failure": null}"""
        )
        await here.journal.save_baseline(project.main.key, "US-001", before)

        gate = await seen(here, project)

        tests = gate.tests
        assert (TestCounts(passed=1, failed=1), TestCounts(passed=9)) == (tests.before, tests.claimed)
        assert (None, False) == (tests.measured, tests.verified)  # of an exit code, nothing is counted
        assert gate.attempts[-1].run == tests.run
        assert () == tests.failing


async def test_a_gate_that_is_seen_again_shows_what_came_since(tmp_path: Path) -> None:
    """Where it was not decided before, the screen shows all and the reason."""
    async with at_review(tmp_path, in_git(tmp_path)) as (here, project):
        first = await seen(here, project, since_last=True)
        assert first.changes is not None
        assert ("bdd-0", False) == (first.changes.since, first.changes.again)
        assert any("was never decided before" in one for one in first.unknown)
        at(project.root, "mine.txt").write_text("by a person\n")

        assert () == first.rejections
        await project.main.give(Rejected(reason=Reason.NEEDS_CLARIFICATION, note="UTC?", by="mei"))
        await eventually(
            lambda: (shown(project)["step"], shown(project)["status"]) == ("review", "needs_human")
        )

        again = await seen(here, project, since_last=True)
        assert again.changes is not None
        assert ("review-1", True, 0) == (again.changes.since, again.changes.again, again.changes.count)
        assert [("review", "needs_clarification", "UTC?", "mei")] == [
            (one.step, one.reason, one.note, one.by) for one in again.rejections
        ]
        whole = await seen(here, project)
        assert whole.changes is not None
        # A person's own file belongs to no step.
        assert ("mine.txt", ()) in [(file.path, file.outside) for file in whole.changes.files]


async def test_without_git_the_rest_is_shown_and_the_reason_given(tmp_path: Path) -> None:
    """As where snapshots are off."""
    async with at_review(tmp_path, make_project(tmp_path, rules=RULES)) as (here, project):
        gate = await seen(here, project)

        assert gate.changes is None
        assert any("is in no git repository" in one for one in gate.unknown)
        assert 2 == len(gate.attempts)


async def test_without_snapshots_the_reason_is_the_setting(tmp_path: Path) -> None:
    """The person can change that."""
    async with at_review(tmp_path, in_git(tmp_path, "snapshots: false\n")) as (here, project):
        gate = await seen(here, project)

        assert gate.changes is None
        assert any("`snapshots: false` is set" in one for one in gate.unknown)


async def test_a_link_in_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    """A project's files are its agents' to make."""
    outside = tmp_path / "secret"
    outside.write_text("[NEEDS CLARIFICATION] secret\n")
    async with at_review(tmp_path, in_git(tmp_path)) as (here, project):
        at(project.root, "docs/bdd/US-001.md").unlink()
        at(project.root, "docs/bdd/US-001.md").symlink_to(outside)

        assert () == (await seen(here, project)).unclear


async def test_there_is_no_screen_where_no_gate_is_open(tmp_path: Path) -> None:
    """The refusal says where the story is."""
    async with at_review(tmp_path, in_git(tmp_path)) as (here, project):
        await project.main.give(Paused(by="mei"))
        await project.main.give(Approved(by="mei"))

        with pytest.raises(Refused, match=r"waits at no gate: US-001 is at review \(pass\)") as caught:
            await seen(here, project)

        assert "NO_GATE" == caught.value.code
        assert not (await view_of(project, here.services.slots)).tracks[0].gate


async def test_of_several_gates_one_is_named(tmp_path: Path) -> None:
    """Each shows its own story, in its own clone; its commands name it."""
    async with beside(tmp_path, stories=2) as (here, project):
        await all_at(project, "review", "US-002")
        await eventually(lambda: project.main.track.ledger.gate == "review")

        with pytest.raises(Refused) as caught:
            await seen(here, project)
        assert ("AMBIGUOUS", f"handoffd gate {project.root} --story US-001") == (
            caught.value.code, caught.value.hint,
        )  # fmt: skip
        first = await gate_of(project, here.services, story="US-001")
        second = await gate_of(project, here.services, story="US-002")
        assert ("US-001", "US-002") == (first.story, second.story)
        for gate in (first, second):
            assert f"handoffd gate {project.root} --story {gate.story}" == gate.command
        assert first.folder != second.folder
        for gate in (first, second):
            assert gate.changes is not None
            assert [f"{gate.story}.txt"] == [file.path for file in gate.changes.files]
            assert gate.unticked
            assert 1 == len(gate.attempts)
        with pytest.raises(Refused, match="US-003 is at none"):
            await gate_of(project, here.services, story="US-003")


# --- parts -------------------------------------------------------------------------------------------
def stored(number: int, step: str, result: str | None, story: str = "US-001") -> StoredRun:
    """Return a run; a higher number is a later one."""
    return StoredRun(
        id=f"d{number}", key=TrackKey("/srv/shop"), story=story, step=step, attempt=1, executor="agent",
        decided_at=NOW, started_at=None, ended_at=None, exit=None, tests=None, result=result, why=None,
    )  # fmt: skip


def test_runs_of_an_earlier_start_of_the_story_are_left_out() -> None:
    """The ledger counts the judged ones; cut-short attempts between them are shown."""
    track = track_of()
    facts = Facts(attempts={"bdd": 2})
    track = replace(track, ledger=track.ledger.with_(facts=facts))
    old = [stored(1, "bdd", "pass"), stored(2, "impl", "pass")]
    other = stored(4, "bdd", "pass", story="US-002")
    ours = [stored(3, "bdd", "failing"), stored(5, "bdd", "timeout"), stored(6, "bdd", "pass")]
    runs = sorted([*old, other, *ours], key=lambda run: run.id, reverse=True)

    assert ["d6", "d5", "d3"] == [run.id for run in of_this_life(runs, track, "main")]


def test_a_claim_is_the_last_one_of_these_runs() -> None:
    """Hand-offs without counts, and of other runs, are passed over."""

    def told(run: str, passed: int | None) -> dict[str, object]:
        tests = None if passed is None else {"pass": passed, "fail": 0, "skip": 0}
        return {"dispatch": run, "reading": {"kind": "found", "handoff": {"tests": tests}}}

    absent: dict[str, object] = {"dispatch": "d3", "reading": {"kind": "absent"}}
    events = [told("d9", 7), absent, told("d2", None), told("d1", 3)]

    runs = [stored(number, "impl", "pass") for number in (3, 2, 1)]
    assert TestCounts(passed=3) == claim_of(handoffs_of(events), runs)
    assert claim_of(handoffs_of(events), runs[1:2]) is None


@pytest.mark.parametrize(
    ("step", "path", "may"),
    [
        ("bdd", "docs/bdd/US-001.md", True),
        ("bdd", "docs/bdd/US-002.md", False),
        ("contract", "docs/api/v1/openapi.yaml", True),
        ("review", "src/a.py", False),
        ("scaffold", "src/test_a.py", True),
        ("scaffold", "src/a.py", False),
        ("impl", "src/a.py", True),
        ("impl", "docs/sdd.md", False),
        ("unheard-of", "any", True),
    ],
)
def test_the_step_table_says_who_may_write_what(step: str, path: str, may: bool) -> None:
    """By the patterns of git; the last one that fits decides."""
    rules = build_rulebook((*shipped_layers(None), Layer("own", "")))

    assert may == may_write(rules, step, "US-001", path)
