"""The report of `handoffd status`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click
import pytest
from msgspec.structs import replace
from tests.support.supervision import project_view, track_view, whereabouts

from handoffd.cli.status_report import condition_of, report
from handoffd.cli.wording import moment
from handoffd.engine.run import Footprint
from handoffd.engine.views import ProjectView
from handoffd.protocol.state import TestCounts, plain


def _status(*views: ProjectView, daemon: bool = True) -> dict[str, Any]:
    return {"daemon": daemon, "projects": [plain(view) for view in views]}


def _lines(*views: ProjectView, daemon: bool = True, whole: bool = False) -> list[str]:
    return [click.unstyle(line) for line in report(_status(*views, daemon=daemon), whole=whole)]


RUNNING = track_view(
    step="impl", attempt=2, max_attempts=5, status="running", phase="executing", executor="claude",
    dispatch="d1", pid=4711, elapsed_min=3.24, timeout_min=10.0, waits_for=None, next_command=None,
)  # fmt: skip


def test_one_line_a_track_and_what_it_waits_for() -> None:
    """Aligned, with the next command below what needs a person."""
    assert [
        "PROJECT  STORY   STEP        ATTEMPT  STATUS           MINUTES",
        "api      US-001  impl 3/4    2 of 5   running          3.2 of 10",
        "shop     US-001  review 2/4  1 of 1   needs_human      –",
        "    waits for: a person's decision",
        "    to look: handoffd gate /srv/shop",
        "    next: handoffd approve /srv/shop",
        "empty    –       –           –        not_initialized  –",
        "    next: handoffd init /srv/empty",
    ] == _lines(
        project_view("/srv/api", RUNNING), project_view("/srv/shop", track_view()), project_view("/srv/empty")
    )


@pytest.mark.parametrize(
    ("changes", "daemon", "said"),
    [
        ({}, True, "running"),
        ({"phase": "checking"}, True, "running checking"),
        ({}, False, "running (process alive, no daemon)"),
        ({"pid": None}, False, "ended; the next daemon will judge it"),
        ({"dispatch": None, "pid": None}, False, "running"),
        ({"dispatch": None, "step": "done", "status": "pass"}, True, "done"),
        ({"dispatch": None, "story": None, "status": "pending"}, True, "no story"),
    ],
)
def test_only_a_running_process_is_shown_as_running(changes: dict[str, Any], daemon: bool, said: str) -> None:
    """A record alone is not a process; an attempt of another daemon has the status of STATE.json."""
    track = {**plain(project_view("/srv/api", RUNNING))["tracks"][0], **changes}
    project = {"condition": "ok", "paused_by": None}

    assert said == condition_of(project, track, daemon=daemon)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"activity": "calls Bash: pytest -q"}, "calls Bash: pytest -q"),
        (
            {
                "activity": "calls Bash: pytest -q", "tokens": 12_400, "cost_usd": 0.214,
                "last_output_at": "2026-01-31T22:15:06.100Z",
            },
            "calls Bash: pytest -q · 12.4k tokens · $0.21 · 3 s ago",
        ),
        ({"activity": "x" * 99, "tokens": 1}, f"{'x' * 59}… · 1 token"),
        ({"tokens": 7, "last_output_at": "2026-01-31T22:10:09Z"}, "7 tokens · 5 min ago"),
        ({"tokens": 7, "last_output_at": "2026-01-31T20:10:09Z"}, "7 tokens · 2 h ago"),
        ({"tokens": 7, "last_output_at": "2026-01-31T22:16:09Z"}, "7 tokens · 0 s ago"),
        ({"activity": "\x1b[31mred"}, "\\x1b[31mred"),
    ],
)  # fmt: skip
def test_what_a_running_agent_does_is_one_short_line(changes: dict[str, Any], said: str) -> None:
    """What it did last, what it has used, and when it last wrote; always one line."""
    status = _status(project_view("/srv/api", RUNNING)) | {"at": "2026-01-31T22:15:09Z"}
    status["projects"][0]["tracks"][0] |= changes

    assert f"    {said}" == click.unstyle(report(status, whole=False)[2])


def test_one_project_shows_the_model() -> None:
    """It explains the cost."""
    view = project_view("/srv/api", replace(RUNNING, model="opus"))
    assert "    model: opus" in _lines(view, whole=True)
    assert "    model: opus" not in _lines(view)


def test_one_project_shows_the_memory_and_tasks_of_its_last_attempt() -> None:
    """If they were measured."""
    line = "    the last attempt took at most: 812 MiB, 41 tasks"
    took = Footprint(memory_peak=812 << 20, tasks_peak=41)
    assert line in _lines(project_view("/srv/api", replace(RUNNING, footprint=took)), whole=True)
    for unknown in (Footprint(), None):
        view = project_view("/srv/api", replace(RUNNING, footprint=unknown))
        assert not [line for line in _lines(view, whole=True) if "took at most" in line]


def test_a_pause_shows_where_nothing_runs() -> None:
    """What runs ends normally."""
    project = {"condition": "ok", "paused_by": "eve"}

    def said(status: str) -> str:
        track = {"dispatch": None, "step": "impl", "story": "US-1", "status": status, "phase": None}
        return condition_of(project, track, daemon=True)

    assert ["paused", "running"] == [said("pending"), said("running")]


def test_a_project_that_cannot_be_worked_on_has_its_reason() -> None:
    """Before anything else."""
    sick = project_view("/srv/shop", track_view(), condition="missing", detail="/srv/shop is gone")

    assert "missing" in _lines(sick)[1]
    assert "    /srv/shop is gone" in _lines(sick)


def test_a_project_of_another_daemon_has_its_command() -> None:
    """Nothing else is known about it."""
    lines = _lines(replace(project_view("/srv/shop"), condition="locked", detail="it belongs to another one"))

    assert "    it belongs to another one" in lines
    assert any(line.startswith("    next: handoffd remove /srv/shop #") for line in lines)


def test_a_problem_is_shown_once_with_its_local_time() -> None:
    """A file's first problem is the detail; the others are warnings."""
    since = datetime(2026, 11, 22, 14, 19, 48, 951187, tzinfo=UTC)
    sick = project_view(
        "/srv/shop", track_view(), condition="invalid_rules", detail="line 2", warnings=("line 2", "line 3"),
        since=since,
    )  # fmt: skip

    lines = [line.strip() for line in _lines(sick, whole=True)]

    assert ["line 2", f"since {moment(since.isoformat())}", "warning: line 3"] == lines[2:5]


@pytest.mark.parametrize(
    ("by_itself", "said"), [(True, "NIGHT, which starts by itself once US-001 is over"), (False, "NIGHT")]
)
def test_a_next_story_that_starts_by_itself_is_marked(by_itself: bool, said: str) -> None:
    """A schedule's does, while others wait for a `continue`."""
    track = track_view(backlog=("US-2", "NIGHT"), next_story="NIGHT", next_by_itself=by_itself)
    assert f"    backlog: 2 stories, next {said}; US-2" in _lines(project_view("/srv/shop", track))


def test_a_suggested_review_is_shown_with_its_command() -> None:
    """An older daemon does not suggest one."""
    track = track_view(step="done", status="pass", review_suggested=True)
    line = "    a review of the project is suggested: handoffd review /srv/shop"
    assert line in _lines(project_view("/srv/shop", track))
    assert line not in _lines(project_view("/srv/shop", track_view(step="done", status="pass")))


def test_an_error_under_a_running_attempt_is_of_the_last_one() -> None:
    """The running one has not failed yet."""
    running, waiting = (track_view(status=status, last_error="boom") for status in ("running", "failing"))
    assert "    last attempt: boom" in _lines(project_view("/srv/shop", running))
    assert "    last error: boom" in _lines(project_view("/srv/shop", waiting))


def test_one_project_is_shown_whole() -> None:
    """Nothing is cut, and all facts are there."""
    long, failing = "x" * 300, tuple(f"t{n}" for n in range(12))
    track = track_view(
        status="failing", tests=TestCounts(passed=3, failed=1), tests_measured=True, failing_tests=failing,
        lint_pass=False, human_note="be kind", blocked_by=("US-0",), backlog=("US-9",), parked=("US-8",),
        next_story="US-9", last_error=long, reason="scope_warning",
    )  # fmt: skip

    project = project_view("/srv/shop", track, sandbox="namespaces; network: on")
    whole, short = _lines(project, whole=True), _lines(project)

    assert "    sandbox: namespaces; network: on" in whole
    assert not any("sandbox" in line for line in short)
    assert f"    last error: {long}" in whole
    assert f"    last error: {'x' * 99}…" in short
    for said in (
        "root: /srv/shop (level 2)", "reason: scope_warning", "tests: 3 pass, 1 fail, 0 skip",
        "failing: t0, t1, t2, t3, t4, t5, t6, t7, t8, t9 and 2 more", "post check: failed", "note: be kind",
        "blocked by: US-0", "backlog: 1 story, next US-9", "set aside: US-8",
    ):  # fmt: skip
        assert f"    {said}" in whole
    assert "    set aside: US-8" in short


def test_a_story_that_has_no_room_does_not_start_by_itself() -> None:
    """The line has the reason instead."""
    track = track_view(backlog=("US-9",), next_story="US-9", next_by_itself=True, next_waits="US-8 waits")
    assert "    backlog: 1 story, next US-9, but US-8 waits" in _lines(project_view("/srv/shop", track))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "executor: claude, dispatch d1, process 4711"),
        ({"ask": "step"}, "executor: claude, dispatch d1, process 4711"),
        (
            {"ask": "handoff", "session": "s1"},
            "executor: claude, dispatch d1, process 4711, asked only for its hand-off, in its session s1",
        ),
    ],
)
def test_a_running_attempt_is_shown_with_its_request(changes: dict[str, Any], said: str) -> None:
    """If that is not the step's work in a session of its own."""
    whole = _lines(project_view("/srv/shop", replace(RUNNING, **changes)), whole=True)
    assert f"    {said}" in whole


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        (True, "tests: 2 pass, 0 fail, 0 skip"),
        (False, "tests: 2 pass, 0 fail, 0 skip (claimed by the agent, not measured)"),
    ],
)
def test_a_claim_is_not_shown_as_a_fact(measured: bool, said: str) -> None:
    """Numbers that handoffd did not measure are marked."""
    track = track_view(tests=TestCounts(passed=2), tests_measured=measured)

    assert f"    {said}" in _lines(project_view("/srv/shop", track), whole=True)


def test_a_project_without_a_test_command_gets_a_warning() -> None:
    """When it is shown whole, and can be worked on."""
    warning = (
        "    warning: no tests are run: agents' claims count until you set test.command in .ai/handoffd.yaml"
    )
    bare = project_view("/srv/shop", track_view(), test_command=None)

    assert warning in _lines(bare, whole=True)
    assert warning not in _lines(bare)
    assert warning not in _lines(project_view("/srv/shop", track_view()), whole=True)
    assert warning not in _lines(project_view("/srv/shop", test_command=None), whole=True)


def test_an_older_daemon_sends_less() -> None:
    """The report makes nothing up."""
    status = _status(project_view("/srv/shop", track_view(tests=TestCounts(passed=2))))
    del status["projects"][0]["test_command"], status["projects"][0]["tracks"][0]["tests_measured"]

    lines = report(status, whole=True)

    assert "    tests: 2 pass, 0 fail, 0 skip" in lines
    assert not any("measured" in line for line in lines)


def test_two_projects_of_one_name_are_distinguished() -> None:
    """By their paths."""
    lines = _lines(project_view("/a/shop", track_view()), project_view("/b/shop", track_view()))

    assert ["/a/shop", "/b/shop"] == [line.split()[0] for line in lines if line.startswith("/")]


def test_what_agents_wrote_cannot_drive_the_terminal() -> None:
    """Nor look like another line."""
    evil = track_view(last_error="\x1b[2J\nshop US-001 done", story="US-1")

    lines = _lines(project_view("/srv/shop", evil, name="sh\x1b[2Jop"))

    assert not any("\x1b" in line for line in lines)
    assert "    last error: \\x1b[2J shop US-001 done" in lines


def test_no_project_and_no_daemon_are_reported() -> None:
    """With the command that changes it."""
    assert ["No project is supervised. In a project's folder: handoffd init"] == _lines()
    assert "No daemon runs: `handoffd run` goes on from here." == _lines(daemon=False)[-1]


UNDELIVERED = {
    "sink": "webhook", "undelivered": 3, "oldest": "2026-01-31T22:15:09.123Z", "failed_tries": 4,
    "last_error": "https://ntfy.example.org answered 503", "next_try_s": 39.6, "given_up": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "daemon", "said"),
    [
        (
            {},
            True,
            [
                "warning: 3 notices not delivered by webhook, the oldest of 2026-01-31T22:15:09.123Z: "
                "https://ntfy.example.org answered 503; next try in 40 s"
            ],
        ),
        ({"failed_tries": 0, "last_error": None, "next_try_s": None}, True, []),
        (
            {"undelivered": 1, "failed_tries": 0, "last_error": None, "next_try_s": None},
            False,
            ["warning: 1 notice not delivered by webhook, the oldest of 2026-01-31T22:15:09.123Z"],
        ),
        (
            {"undelivered": 0, "oldest": None, "failed_tries": 0, "next_try_s": None, "given_up": 2},
            True,
            ["warning: 2 notices lately given up by webhook: https://ntfy.example.org answered 503"],
        ),
    ],
)
def test_undelivered_notifications_are_a_warning(
    changes: dict[str, Any], daemon: bool, said: list[str]
) -> None:
    """Not on the first try."""
    status = {**_status(project_view("/srv/shop"), daemon=daemon), "notices": [{**UNDELIVERED, **changes}]}

    assert said == [line for line in report(status, whole=False) if line.startswith("warning")]


def test_an_aborted_story_is_thrown_away_or_taken_up_again() -> None:
    """It is not landed."""
    again = "handoffd start /srv/shop US-001"
    where = whereabouts("/srv/shop", says="aborted; 2 commits", command=again, aborted=True)
    given_up = track_view(aborted=True, branch="handoffd/US-001", whereabouts=where)

    lines = [line.strip() for line in report(_status(project_view("/srv/shop", given_up)), whole=True)]

    begin = lines.index("branch: handoffd/US-001, aborted; 2 commits")
    assert [
        "to throw it away: handoffd discard /srv/shop US-001", f"to take it up again: {again}"
    ] == lines[begin + 1 : begin + 3]  # fmt: skip
    assert not any("handoffd land" in line for line in lines)


@pytest.mark.parametrize("whole", [False, True])
def test_where_a_finished_story_is_is_said_beside_its_branch(*, whole: bool) -> None:
    """One line on every screen; what landing would do is known before it is typed."""
    where = whereabouts("/srv/shop", would="conflict", says="2 commits; landing would conflict in a\x1b.py")
    ended = track_view(step="done", status="pass", branch="handoffd/US-001", whereabouts=where)

    lines = [line.strip() for line in report(_status(project_view("/srv/shop", ended)), whole=whole)]

    told = "branch: handoffd/US-001, 2 commits; landing would conflict in a\\x1b.py"
    assert [told] == [line for line in lines if line.startswith("branch")]
