"""The morning's report of a real daemon, held against its journal by a checker of its own.

The checker reads the database with SQL and counts for itself: it shares no code with the report's builder.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.agents import FALSE_CLAIM, project_at, shell_agent
from tests.support.commands import typed
from tests.support.daemon import Daemon, Json, running, sample
from tests.support.eventually import eventually_sync
from tests.support.house import HAND_OVER
from tests.support.recorded import spoil

SHORT = """\
steps:
  bdd: {next_on_pass: scaffold}
  impl: {max_attempts: 3}
"""
"""A table without a person: bdd, scaffold, impl, verify, update-memory."""

SCRIPTS: dict[str, Json | None] = {
    "good": None,
    "twice": {"impl": ["fail", "fail", "pass"]},
    "liar": {"impl": [FALSE_CLAIM] * 3},
}
HOUR = timedelta(hours=1)
PAID = f"""\
cat > /dev/null
{HAND_OVER}printf '{{"type": "result", "is_error": false, "result": "done", "total_cost_usd": 0.5}}\\n'
"""
"""Costs half a dollar a run, and reports it as claude does."""

PAID_RULES = "steps: {bdd: {next_on_pass: contract}, contract: {next_on_pass: done}}\n"


class Night:
    """What a daemon did with five projects, killed in the middle, and its journal."""

    def __init__(self, daemon: Daemon, roots: dict[str, Path]) -> None:
        self.daemon = daemon
        self.roots = roots
        self.names = {str(root): name for name, root in roots.items()}

    def report(self, *words: str) -> Json:
        """Return the report as a program gets it."""
        said = typed(self.daemon, "report", "--json", *words)
        assert 0 == said.code, said.err
        found: Json = said.json
        return found


def journal_of(daemon: Daemon, *statements: str) -> None:
    """Change a journal that no daemon has open."""
    with closing(sqlite3.connect(daemon.state_dir / "journal.db")) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    """Have a daemon live through a night: it is killed while agents work, and away for three hours."""
    base = tmp_path_factory.mktemp("night")
    roots = {name: sample(base / name, script=script, rules=SHORT) for name, script in SCRIPTS.items()}
    roots["gate"] = sample(base / "gate")
    roots["paid"] = project_at(base / "paid", PAID_RULES, "executor: paid\n")
    settings: Json = {
        "executor": "rehearsal-stream",
        "executors": {"paid": shell_agent(base, PAID, extends="claude")},
        "execute": {"slots": 2},
        "caps": {"day_usd": 100},
    }
    with running(base, settings) as daemon:
        for root in roots.values():
            daemon.begin(root)
        daemon.wait_at(roots["gate"], "review", "needs_human")
        daemon.kill()
        away = [(datetime.now(UTC) - hours * HOUR).isoformat() for hours in (5, 4)]  # noqa: TID251
        journal_of(daemon, f"UPDATE lives SET began_at = '{away[0]}', seen_at = '{away[1]}'")
        daemon.start()
        for name, (step, status) in {
            "good": ("done", "pass"), "paid": ("done", "pass"), "twice": ("done", "pass"),
            "liar": ("impl", "needs_human"),
        }.items():  # fmt: skip
            daemon.wait_at(roots[name], step, status)
        yield Night(daemon, roots)


def test_what_came_to_its_end_and_what_waits(night: Night) -> None:
    """Each story once, with the command that leads on."""
    report = night.report()

    done = {root for root, step in night.daemon.rows("SELECT project, step FROM tracks") if step == "done"}
    assert {"good", "paid", "twice"} == {night.names[root] for root in done}
    assert done == {one["project"] for one in report["landed"]}
    waiting = {
        root: step
        for root, step, status in night.daemon.rows("SELECT project, step, status FROM tracks")
        if status == "needs_human"
    }
    assert waiting == {one["project"]: one["step"] for one in report["waiting"]}
    commands = {night.names[one["project"]]: one["command"] for one in report["waiting"]}
    assert f"handoffd gate {night.roots['gate']}" == commands["gate"]
    assert f"handoffd log {night.roots['liar']}" == commands["liar"]


def test_what_failed_is_counted_by_step(night: Night) -> None:
    """With the verdict on the last attempt, and whether the step passed in the end."""
    twice, liar = (str(night.roots[name]) for name in ("twice", "liar"))
    assert {(twice, "US-001", "impl"): 2, (liar, "US-001", "impl"): 3} == failures_that_agree(night)


def failures_that_agree(night: Night) -> Counter[tuple[str, ...]]:
    """Return how often each step has failed, by project and story, once the report says the same."""
    verdicts = night.daemon.rows("SELECT project, story, step, result, why FROM dispatches ORDER BY seq")
    failed = Counter((*key, step) for *key, step, result, _ in verdicts if result in {"failing", "timeout"})
    last = {(*key, step): (result, why) for *key, step, result, why in verdicts}

    told = {(one["project"], one["story"], one["step"]): one for one in night.report()["failed"]}

    assert failed == {key: one["attempts"] for key, one in told.items()}
    for key, one in told.items():
        assert (last[key][0] == "pass") == one["passed"]
        assert one["passed"] or last[key][1] == one["why"]
    return failed


def test_each_false_claim_has_both_numbers(night: Night) -> None:
    """What the hand-off says, and what the daemon counted in the same attempt."""
    assert 3 == len(false_claims_that_agree(night))


def false_claims_that_agree(night: Night) -> set[str]:
    """Return the runs whose agents claimed better tests than there were, once the report says the same."""
    claims, counts = {}, {}
    for kind, text in night.daemon.rows("SELECT kind, event FROM events ORDER BY seq"):
        event = json.loads(text)
        if kind == "executor_exited" and event["reading"]["kind"] == "found":
            claims[event["dispatch"]] = event["reading"]["handoff"]
        if kind == "checks_finished" and event["tests"] is not None:
            counts[event["dispatch"]] = event["tests"]["counts"]
    wrong = {
        run for run, claim in claims.items()
        if counts.get(run) and claim["status"] == "pass" and claim["tests"]
        and (claim["tests"]["fail"], -claim["tests"]["pass"]) < (counts[run]["fail"], -counts[run]["pass"])
    }  # fmt: skip

    told = {one["run"]: one for one in night.report()["false"]}

    assert wrong == {run for run, one in told.items() if one["about"] == "tests"}
    for run in wrong:
        claimed = [int(number) for number in re.findall(r"\d+", told[run]["claimed"])]
        measured = [int(number) for number in re.findall(r"\d+", told[run]["measured"])]
        assert [claims[run]["tests"]["pass"], claims[run]["tests"]["fail"]] == claimed
        assert [counts[run]["pass"], counts[run]["fail"]] == measured
    return wrong


def test_the_cost_is_that_of_every_run_once(night: Night) -> None:
    """Over a restart, in which one was adopted; today's part counts against the cap."""
    exits = [
        json.loads(text)
        for (text,) in night.daemon.rows("SELECT exit FROM dispatches WHERE exit IS NOT NULL")
    ]
    used = [one["usage"] for one in exits if one["usage"]]
    kinds = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    runs, tokens = len(exits), sum(one[kind] for one in used for kind in kinds)
    usd = sum(one["cost_usd"] for one in used)
    assert 1.0 == usd
    cost = night.report("--since", "2d")["cost"]
    assert (runs, tokens, usd, 0) == (cost["runs"], cost["tokens"], cost["usd"], cost["running"])
    assert len(exits) - len(used) == cost["unmeasured"]
    (cap,) = cost["caps"]
    assert ("day", "usd", 100) == (cap["scope"], cap["unit"], cap["cap"])
    assert cap["spent"] in {0, 0.5, usd}  # a run may have ended before midnight


def test_the_time_is_what_each_was_waited_for(night: Night) -> None:
    """Agents by their own records; checks from the end of an agent to the verdict; people until now."""
    exits = [
        json.loads(text)
        for (text,) in night.daemon.rows("SELECT exit FROM dispatches WHERE exit IS NOT NULL")
    ]
    events = night.daemon.rows("SELECT at, project, kind, status_after, event FROM events ORDER BY seq")
    (began_at,) = night.daemon.rows("SELECT began_at FROM lives ORDER BY number DESC LIMIT 1")[0]
    checked = 0.0
    ended: dict[str, datetime] = {}
    gates: dict[str, datetime] = {}
    for at, root, kind, status, text in events:
        moment = datetime.fromisoformat(at)
        if kind == "executor_exited":
            ended[json.loads(text)["dispatch"]] = moment
        if kind == "checks_finished" and ended[json.loads(text)["dispatch"]].isoformat() >= began_at:
            checked += (moment - ended[json.loads(text)["dispatch"]]).total_seconds()
        if status == "needs_human":
            gates.setdefault(root, moment)

    report = night.report()

    time, until = report["time"], datetime.fromisoformat(report["until"])
    assert sum(one["seconds"] for one in exits) == pytest.approx(time["agents"], abs=0.2 * len(exits))
    # The tests before a story are checks, too; what was checked before the kill counts as without a daemon.
    assert time["checks"] >= checked - 0.01
    people = sum((until - since).total_seconds() for since in gates.values())
    assert people == pytest.approx(time["people"], abs=1)
    assert time["slots"] > 0
    assert time["down"] > 0
    assert 0 == time["limits"]


def test_a_night_in_which_the_daemon_was_away_says_since_when(night: Night) -> None:
    """And until when; it was killed."""
    (seen_at,) = night.daemon.rows("SELECT seen_at FROM lives ORDER BY number LIMIT 1")[0]
    (began_at,) = night.daemon.rows("SELECT began_at FROM lives ORDER BY number DESC LIMIT 1")[0]
    (down,) = night.report()["down"]
    assert "died" == down["how"]
    assert datetime.fromisoformat(seen_at) == datetime.fromisoformat(down["since"])
    assert datetime.fromisoformat(began_at) == datetime.fromisoformat(down["until"])
    assert [] == night.report("--since", "2d", "--until", "1d")["down"]


def test_a_person_reads_it_on_one_screen(night: Night) -> None:
    """With every section of it."""
    lines = screen(night, 45)
    for title in (
        "Landed or done (3)",
        "Waits for you (2)",
        "Failed (2)",
        "Claimed, and not so (",
        "Cost",
        "Time",
    ):
        assert any(line.startswith(title) for line in lines), lines
    assert any("No daemon ran from " in line for line in lines)


def screen(night: Night, most: int) -> list[str]:
    """Return the lines that a person reads: of 80 columns, but for a command, which is whole."""
    said = typed(night.daemon, "report")
    assert 0 == said.code, said.err
    assert [] == [line for line in said.lines if len(line) > 80 and not line.startswith("      handoffd ")]
    assert len(said.lines) <= most
    return said.lines


def test_it_is_a_page_and_a_file_as_well(night: Night) -> None:
    """With every entry; the file loads nothing."""
    markdown = typed(night.daemon, "report", "--markdown").out
    assert "## Waits for you" in markdown
    page = typed(night.daemon, "report", "--html").out
    assert page.startswith("<!doctype html>")
    assert f"handoffd gate {night.roots['gate']}" in page
    assert not re.search(r"(?:src|href)=|<script|@import|url\(", page)


def test_a_part_of_the_night_is_of_one_project(night: Night) -> None:
    """By path or name; a time before everything had nothing in it."""
    root = night.roots["liar"]
    report = night.report("--project", str(root))
    assert {str(root)} == {one["project"] for name in ("waiting", "failed", "false") for one in report[name]}
    before = night.report("--since", "4d", "--until", "3d")
    assert (0, [], [], 0) == (before["events"], before["landed"], before["failed"], before["cost"]["runs"])
    assert 1 == typed(night.daemon, "report", "--since", "today", "--until", "yesterday").code


def test_without_a_daemon_it_says_since_when_there_is_none(night: Night) -> None:
    """The numbers are the same as with one."""
    first = night.report()
    night.daemon.terminate()
    journal_of(
        night.daemon,
        f"""UPDATE lives SET seen_at = '{(datetime.now(UTC) - HOUR / 4).isoformat()}'
        WHERE number = (SELECT max(number) FROM lives)""",  # noqa: TID251  (a time)
    )

    report = night.report()

    assert ("stopped", None) == (report["down"][-1]["how"], report["down"][-1]["until"])
    for name in ("landed", "failed", "false", "cost"):
        assert first[name] == report[name]
    assert first["time"]["agents"] == report["time"]["agents"]


def test_the_morning_has_one_notice_whatever_dies(tmp_path: Path) -> None:
    """A daemon that starts after its time sends it, and the next one does not send it again."""
    project = sample(tmp_path, rules=SHORT)
    due = datetime.now(UTC) - HOUR  # noqa: TID251
    with running(tmp_path, {"report": {"at": f"{due:%H:%M}", "timezone": "UTC"}}) as daemon:
        daemon.begin(project)
        daemon.wait_at(project, "done", "pass")
        daemon.kill()
        # All of it happened three hours ago, and its daemon has been away since.
        spoil(daemon.state_dir / "journal.db", *(
            f"UPDATE {table} SET {column} = strftime('%Y-%m-%dT%H:%M:%f000+00:00', {column}, '-3 hours')"
            for table, column in (("events", "at"), ("dispatches", "ended_at"), ("lives", "seen_at"))
        ))  # fmt: skip
        daemon.start()
        eventually_sync(lambda: "report" in daemon.told_kinds(daemon.state_dir))
        daemon.wait_delivered()
        daemon.kill()
        daemon.start()
        eventually_sync(lambda: 2 == daemon.log().count("report made"))
        daemon.terminate()  # which delivers first what it has
        (told,) = (one for one in daemon.told(daemon.state_dir) if one["kind"] == "report")

    assert any(line.startswith("No daemon ran from ") for line in told["lines"])
    assert any(line.startswith("- ") and "US-001, " in line and ": done" in line for line in told["lines"])
    assert told["action"].startswith("handoffd report --since ")
