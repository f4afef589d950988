"""`handoffd runs`, `claims` and `usage`."""

from __future__ import annotations

import csv
import json
from typing import Any

from msgspec.structs import replace
from tests.support.commands import Commands
from tests.support.controlled import Controlled
from tests.support.supervision import whereabouts
from tests.unit.journal.making import NOW, dispatch, record, track

from handoffd.cli.runs import claims_report, run_report, runs_report, stories_report, usage_report
from handoffd.cli.wording import moment, unstyled
from handoffd.engine.events import Advanced, Approved, ExecutorExited, Landed
from handoffd.engine.run import Exit, Usage
from handoffd.protocol.handoff import Absent
from handoffd.protocol.state import Status

USED = Usage(
    input_tokens=1000, output_tokens=9000, cache_read_tokens=90_000, cost_usd=0.42, priced="provider"
)


def begin(control: Controlled) -> None:
    """Have a run of `shop` begin."""
    begun = track(status=Status.RUNNING, dispatch=dispatch())
    control.commit(record(Advanced(dispatch="d1", executor="claude"), after=begun))


def ran(control: Controlled, run: str, usage: Usage | None, story: str = "US-1") -> None:
    """Have a run end that used something."""
    begun = replace(dispatch(run), story=story)
    control.commit(record(after=track(status=Status.RUNNING, story=story, dispatch=begun)))
    event = ExecutorExited(dispatch=run, exit=Exit(code=0, usage=usage), reading=Absent())
    control.commit(record(event, after=track(status=Status.PASS)))


# --- report ------------------------------------------------------------------------------------------
def test_a_report_is_text_a_page_or_json(control: Controlled, handoffd: Commands) -> None:
    """Of all projects or of one, as far back as the person says."""
    ran(control, "d1", USED)
    control.commit(record(after=track("done", status=Status.PASS)))
    since = ("--since", "2026-01-01")

    said = handoffd("report", *since)
    assert (0, True) == (said.code, "Landed or done (1)" in said.lines)
    assert "  $0.42, 100,000 tokens in 1 run" in said.lines
    assert "Nothing has happened." in handoffd("report").out
    (one,) = handoffd("report", "shop", *since, "--json").json["landed"]
    assert ("US-1", "Dark mode") == (one["story"], one["title"])
    assert [] == handoffd("report", "-p", "empty", *since, "--json").json["landed"]
    assert handoffd("report", *since, "--markdown").out.startswith("# Report")
    assert handoffd("report", *since, "--html").out.startswith("<!doctype html>")
    for pair in (("--json", "--html"), ("--markdown", "--html")):
        two = handoffd("report", *pair)
        assert (2, True) == (two.code, "--html and --json exclude each other" in two.err + two.out)
    wrong = handoffd("report", "--since", "soon")
    assert (1, True) == (wrong.code, "next: handoffd report --since 12h" in wrong.err)


# --- tonight -----------------------------------------------------------------------------------------
def test_a_plan_is_a_screen_or_json(control: Controlled, handoffd: Commands) -> None:
    """Of all projects or of some, until a time; `--dry-run` changes nothing, as without it."""
    said = handoffd("tonight", "--until", "8h")
    assert (0, True) == (said.code, said.lines[0].startswith("Until "))
    assert "(8 h): 1 story stops" in said.lines[0]
    assert "What stops it (1)" in said.lines
    whole = handoffd("tonight", "--json", "--dry-run").json
    assert ["US-001"] == [one["story"] for one in whole["stories"]]
    assert whole["stories"] == handoffd("tonight", "shop", "empty", "--json").json["stories"]
    assert [] == handoffd("tonight", "empty", "--json").json["stories"]
    wrong = handoffd("tonight", "--until", "soon")
    assert (1, True) == (wrong.code, "next: handoffd tonight --until 08:00" in wrong.err)
    assert 4 == handoffd("tonight", "nosuch").code


# --- stories -----------------------------------------------------------------------------------------
def test_stories_have_their_outcome_and_cost(control: Controlled, handoffd: Commands) -> None:
    """One line a story; the commit is that of a landing."""
    assert ["No story has run yet."] == handoffd("stories").lines
    ran(control, "d1", USED)
    ran(control, "d2", None, story="US-2")
    landed = Landed(story="US-2", onto="main", commit="c0ffee" * 7)
    control.commit(record(landed, after=track("done", status=Status.PASS)))

    head, *lines = handoffd("stories", "shop").lines
    heads = ["LATEST", "PROJECT", "STORY", "OUTCOME", "RUNS", "TOKENS", "COST", "COMMIT", "TITLE"]
    assert heads == head.split()
    told = {line.split()[3]: line.split()[4:] for line in lines}
    assert {
        "US-1": ["bdd", "pass", "1", "100,000", "$0.42", "–", "Dark", "mode"],
        "US-2": ["landed", "1", "–", "–", "main", "c0ffeec0ffee", "Dark", "mode"],
    } == told
    assert ["landed"] == [
        one["outcome"] for one in handoffd("stories", "--story", "US-2", "--json").json["stories"]
    ]
    assert ["Nothing of such a story has run."] == handoffd("stories", "--story", "US-3").lines


def test_of_80_columns_a_title_is_worth_more_than_counts(control: Controlled, handoffd: Commands) -> None:
    """An id that was given by number says nothing; where no story has a title, there is no column for it."""
    ran(control, "d1", USED)
    found = handoffd("stories", "--json").json["stories"]

    told = [unstyled(line) for line in stories_report(found, 80)]
    assert "Dark mode" in told[1]
    assert all(len(line) <= 80 for line in told)
    assert "TITLE" not in stories_report([{**one, "title": None} for one in found])[0]


def test_a_finished_story_that_has_not_landed_says_where_it_is(
    control: Controlled, handoffd: Commands
) -> None:
    """With both commands; one that is landed says that in its row."""
    control.supervision.where = whereabouts("/srv/shop", command="handoffd land /srv/shop --story US-1")
    ran(control, "d1", USED)
    control.commit(record(Approved(), after=track("done", story="US-1", status=Status.PASS)))

    lines = handoffd("stories").lines
    assert [
        "shop US-1: handoffd/US-001, 2 commits; landing merges 3 files into main, which has moved on",
        "    to throw it away: handoffd discard shop US-1",
        "    next: handoffd land shop --story US-1",
    ] == lines[2:]
    here = {"branch": None, "would": "folder", "says": "in the project's folder", "command": "git status"}
    control.supervision.where = whereabouts("/srv/shop", **here)
    assert ["shop US-1: in the project's folder", "    to look: git status"] == handoffd("stories").lines[2:]
    control.commit(record(Landed(story="US-1", onto="main", commit="c0ffee" * 7), after=track("done")))
    assert 2 == len(handoffd("stories").lines)


# --- runs -------------------------------------------------------------------------------------------
def test_one_line_a_dispatch(control: Controlled, handoffd: Commands) -> None:
    """Newest first; a run without a result is running."""
    begin(control)

    decided = moment("2026-01-31T22:15:09.123Z")
    assert [
        "DECIDED              PROJECT  STORY  STEP  ATTEMPT  RESULT   TOKENS  COST  RUN",
        f"{decided}  shop     US-1   bdd   1        running  –       –     d1",
    ] == handoffd("runs", "shop").lines
    assert ["d1"] == [run["run"] for run in handoffd("runs", "--json").json["runs"]]
    assert ["d1"] == [run["run"] for run in handoffd("runs", "--story", "US-1", "--json").json["runs"]]
    assert ["Nothing of that has run."] == handoffd("runs", "--step", "impl").lines
    assert ["Nothing of that has run."] == handoffd("runs", "--until", "2026-01-30").lines


def test_every_command_calls_a_project_the_same(control: Controlled, handoffd: Commands) -> None:
    """By its own name, not its folder's: a name from one output can be typed in another command."""
    view = control.supervision.projects["/srv/shop"]
    control.supervision.projects = {"/srv/shop": replace(view, name="corner")}
    begin(control)

    for words in ("status", "projects", "runs", "runs corner", "events", "events -p corner"):
        said = handoffd(*words.split())
        assert 0 == said.code, words
        assert "corner" in said.out, words
        assert "shop" not in said.out.replace("/srv/shop", ""), words
    (run,) = handoffd("runs", "--json").json["runs"]
    assert ("/srv/shop", "corner") == (run["project"], run["name"])
    assert "corner" == json.loads(handoffd("events", "--json").out)["name"]


def test_a_project_that_is_not_supervised_any_more_has_its_folders_name(
    control: Controlled, handoffd: Commands
) -> None:
    """Its history stays."""
    control.supervision.projects.clear()
    begin(control)

    assert ["shop"] == [run["name"] for run in handoffd("runs", "--json").json["runs"]]


def test_without_runs_it_is_one_sentence(control: Controlled, handoffd: Commands) -> None:
    """Neither command prints an empty table; programs get an empty list."""
    assert ["Nothing has run yet."] == handoffd("runs").lines
    assert {"runs": []} == handoffd("runs", "--json").json
    assert ["No run has ended yet."] == handoffd("usage").lines
    assert "" == handoffd("usage", "--csv").out


def test_a_small_screen_gets_what_fits() -> None:
    """The run's name stays, for the next command needs it; a pipe gets every column."""
    run = {
        "decided_at": "2026-01-31T22:15:09.123Z", "project": "/srv/portal", "name": "customer-portal",
        "story": "US-001", "step": "update-memory", "attempt": 1, "result": "failing",
        "usage": None, "run": "20260131T221509.123-4711",
    }  # fmt: skip

    *lines, last = runs_report([run], 80)

    assert all(len(unstyled(line)) <= 80 for line in [*lines, last])
    assert "20260131T221509.123-4711" in lines[1]
    assert last.startswith("Not on this screen: DECIDED, ")
    assert 2 == len(runs_report([run]))


def test_runs_show_what_each_used(control: Controlled, handoffd: Commands) -> None:
    """In columns, and in JSON."""
    ran(control, "d1", USED)
    assert "pass    100,000  $0.42  d1" in handoffd("runs").out
    (run,) = handoffd("runs", "--json").json["runs"]
    assert (100_000, 0.42, "provider") == tuple(run["usage"][key] for key in ("tokens", "cost_usd", "priced"))


# --- claims -----------------------------------------------------------------------------------------
def test_claims_are_a_table(control: Controlled, handoffd: Commands) -> None:
    """With the share that was met, and where each of the others is."""
    assert ["No run has ended since then."] == handoffd("claims").lines
    ran(control, "d1", USED)
    said = handoffd("claims", "shop", "--since", "2026-01-01", "--by", "executor", "--json").json
    assert ("executor", "/srv/shop", 1, 0) == (
        said["by"], said["project"], said["total"]["runs"], said["total"]["claims"],
    )  # fmt: skip
    (row,) = said["rows"]
    assert ("claude", None) == (row["executor"], row["step"])
    assert ["all", "1", "0", "0", "0", "–"] == handoffd("claims", "--since", "2026-01-01").lines[-1].split()

    row |= {"step": "impl", "runs": 9, "claims": 8, "measured": 7, "met": 5}
    row["false"] = {"tests": 1, "outcome": 0, "files": 2}
    lines = claims_report({**said, "rows": [row], "total": {**row, "step": None}}, 80)
    assert ["claude", "impl", "9", "8", "7", "5", "71", "%", "tests", "1,", "files", "2"] == lines[1].split()
    assert f"each that was not met: handoffd report --since {said['since']}" == lines[-1]
    of_one = claims_report({**said, "rows": [row], "total": {**row, "step": None}}, 80, "my shop")
    assert f"each that was not met: handoffd report 'my shop' --since {said['since']}" == of_one[-1]
    wrong = handoffd("claims", "--since", "soon")
    assert (1, True) == (wrong.code, "next: handoffd claims --since 7d" in wrong.err)


# --- usage ------------------------------------------------------------------------------------------
def test_steps_are_listed_beside_what_is_expected(control: Controlled, handoffd: Commands) -> None:
    """With their sum below, and for how many runs there is no usage."""
    ran(control, "d1", USED)
    ran(control, "d2", None)

    assert [
        "STEP  RUNS  INPUT  OUTPUT  CACHE READ  CACHE WRITE  TOKENS   COST   NEW PER RUN  REFERENCE",
        "bdd   2     1,000  9,000   90,000      0            100,000  $0.42  10,000       2,000–5,000  above",
        "all   2     1,000  9,000   90,000      0            100,000  $0.42",
        "Tokens and cost of 1 of 2 runs are not known: the agents did not report them.",
    ] == handoffd("usage").lines


def test_tokens_that_nobody_reported_are_a_dash(control: Controlled, handoffd: Commands) -> None:
    """Nothing was measured, which is not nothing used."""
    ran(control, "d1", None)
    assert ["bdd", "1", *"––––––"] == handoffd("usage").lines[1].split()[:8]
    assert ["1", "–", "–", "–"] == handoffd("stories").lines[1].split()[6:10]


def test_runs_without_a_price_are_counted(control: Controlled, handoffd: Commands) -> None:
    """The message names the setting for it."""
    ran(control, "d1", Usage(output_tokens=5))
    said = handoffd("usage", "--by", "project")
    assert "shop     1     0      5       0           0            5       –" == said.lines[1]
    assert "The cost of 1 of 1 run is not known: see `prices` in the settings." == said.lines[-1]


def test_it_can_be_grouped_and_narrowed(control: Controlled, handoffd: Commands) -> None:
    """By what, since when, of which project; a group or a time that does not exist is an error."""
    ran(control, "d1", USED)
    by_story = handoffd("usage", "shop", "--by", "story", "--json").json
    assert ("story", "/srv/shop", None) == (by_story["by"], by_story["project"], by_story["since"])
    assert ["US-1"] == [row["story"] for row in by_story["rows"]]
    later = (NOW.replace(year=NOW.year + 1)).date().isoformat()
    assert ["No run has ended since then."] == handoffd("usage", "--since", later).lines
    assert [] == handoffd("usage", "empty", "--json").json["rows"]
    assert 2 == handoffd("usage", "--by", "month").code
    said = handoffd("usage", "--since", "tomorrow")
    assert (1, True) == (said.code, "next: handoffd usage --since 7d" in said.err)


def test_comma_separated_values_are_for_spreadsheets(control: Controlled, handoffd: Commands) -> None:
    """A name from a project does not become a formula there."""
    ran(control, "d1", USED, story='=HYPERLINK("x")')
    (row,) = csv.DictReader(handoffd("usage", "--by", "story", "--csv").lines)
    assert ("""'=HYPERLINK("x")""", "0.42", "10000", "15000") == (
        row["story"], row["cost_usd"], row["new_tokens"], row["reference_low"],
    )  # fmt: skip


def test_a_small_screen_gets_the_sums(control: Controlled, handoffd: Commands) -> None:
    """The kinds of tokens are left out first; the last line names the missing columns."""
    ran(control, "d1", Usage(input_tokens=1_234_567, output_tokens=7_654_321, cache_read_tokens=987_654_321))
    found = handoffd("usage", "--json").json

    lines = usage_report(found, 80)

    assert all(len(unstyled(line)) <= 80 for line in lines), lines
    assert "TOKENS" in lines[0]
    assert any(line.startswith("Not on this screen: ") for line in lines)
    assert "CACHE WRITE" in usage_report(found)[0]


# --- one attempt --------------------------------------------------------------------------------------
RUN: dict[str, Any] = {
    "run": "20260131T221509-1f2e3d4c",
    "project": "/srv/shop",
    "name": "shop",
    "story": "US-001",
    "step": "impl",
    "attempt": 2,
    "result": "failing",
    "executor": "claude",
    "why": "pass claimed, but 1 test fails: test_b",
    "model": "opus",
    "started_at": "2026-01-31T22:15:09Z",
    "ended_at": "2026-01-31T22:17:09Z",
    "usage": {"tokens": 1200, "cost_usd": 0.5},
    "tests": {
        "pass": 3,
        "fail": 1,
        "skip": 0,
        "verified": True,
        "fault": None,
        "failing": ["test_b"],
        "regressed": [],
        "unproven": None,
        "note": None,
    },
}
SHOWN: dict[str, Any] = {
    "run": RUN,
    "handoff": {
        "status": "pass",
        "reason": None,
        "tests": {"pass": 5, "fail": 0},
        "summary": "All \x1b[2Jgreen.",
    },
    "untouched": ["a.py"],
    "changed": {
        "count": 2,
        "added_lines": 60,
        "removed_lines": 4,
        "strays": 1,
        "outside": ["b.py"],
        "reverted": [],
        "files": ["b.py", "c.py"],
        "unknown": None,
    },
    "before": {"pass": 3, "fail": 0, "skip": 1},
    "post_check": {"passed": False, "timed_out": True, "fault": None},
    "commands": [
        {
            "what": "executor",
            "argv": ["claude", "-p"],
            "folder": "/srv/shop",
            "code": 0,
            "signal": None,
            "by": "itself",
            "seconds": 120.0,
            "sandbox": "strict",
        },
        {
            "what": "tests",
            "argv": ["pytest"],
            "folder": "/srv/shop",
            "code": None,
            "signal": 9,
            "by": "itself",
            "seconds": 1.25,
            "sandbox": "strict",
        },
        {
            "what": "post",
            "argv": ["ruff"],
            "folder": "/srv/shop",
            "code": None,
            "signal": 15,
            "by": "deadline",
            "seconds": 60.0,
            "sandbox": "strict",
        },
    ],
    "events": [{"at": "2026-01-31T22:17:10Z", "what": "20260131T221509-1f2e3d4c was checked"}],
}


def test_an_attempt_is_shown_with_its_claim_beside_what_was_measured() -> None:
    """And its commands with how each ended, and what to type for its output; nothing is printed raw."""
    lines = [unstyled(line) for line in run_report(SHOWN)]
    assert "shop US-001, impl, attempt 2: failing" == lines[0]
    for wanted in (
        "claimed: pass; tests: 5 passed", "  it did not change: a.py",
        "measured: 3 passed, 1 failed; before the story: 3 passed, 1 skipped", "  failing: test_b",
        "post_check: did not end in time",
        "changed: 2 files (+60 -4 lines), 1 of them outside of what the step may write", "  outside: b.py",
        "used: 1,200 tokens, cost $0.50", "next: handoffd log --run 20260131T221509-1f2e3d4c",
    ):  # fmt: skip
        assert wanted in lines, wanted
    assert any(
        line.startswith("executor: claude (opus), ") and line.endswith("; sandbox: strict") for line in lines
    )
    ends = [line.split()[:3] for line in lines if line.split()[:1] in (["executor"], ["tests"], ["post"])]
    assert [["executor", "exit", "0"], ["tests", "signal", "9"], ["post", "timeout", "60.0"]] == ends
    assert any(line.endswith("  it was checked") for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_each_of_several_checks_of_an_attempt_is_shown() -> None:
    """With its exit code; nothing is printed raw."""
    checks = [
        {"name": "lint", "passed": True, "code": 0},
        {"name": "types", "passed": False, "code": 2, "line": "\x1b[2J1 error"},
        {"name": "slow", "passed": False, "signal": 15, "timed_out": True},
    ]
    lines = list(run_report({**SHOWN, "post_check": None, "post_checks": checks}))
    assert [
        "post_check: lint passed",
        r"post_check: types failed with exit code 2 (\x1b[2J1 error)",
        "post_check: slow did not end in time",
    ] == [line for line in lines if line.startswith("post_check")]


def test_an_attempt_without_records_is_shown_by_what_the_journal_has() -> None:
    """After months, or while it runs."""
    bare = {
        **SHOWN, "handoff": None, "untouched": [], "changed": None, "before": None, "post_check": None,
        "commands": [], "events": [], "run": {**RUN, "tests": None, "usage": None, "model": None},
    }  # fmt: skip
    lines = [unstyled(line) for line in run_report(bare)]
    assert "measured: nothing, no check was run" in lines
    assert "used: not known, as its agent did not say" in lines
    assert any(line.endswith("; sandbox: unknown") for line in lines)
    running = {
        **bare,
        "run": {**bare["run"], "result": None, "why": None, "started_at": None, "ended_at": None},
    }
    assert "shop US-001, impl, attempt 2: running" == unstyled(next(run_report(running)))
    assert not any(line.startswith("measured") for line in run_report(running))
