"""A usage limit under the real daemon: it costs nothing, outlives a kill, and lets another one take over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Any

from tests.support.agents import project_at, shell_agent
from tests.support.daemon import Daemon, Json, running
from tests.support.eventually import eventually_sync
from tests.support.house import HAND_OVER
from tests.support.wallclock import WallClock

HOUR_S = 3600
A_LITTLE_S = 300
"""More than times that agents name are rounded by."""
AGENT = f"""\
cat > /dev/null
if test -e {{base}}/$1-says; then
  echo "usage limit reached, try again at $(date +%H:%M)" >&2
  rm {{base}}/$1-says
  exit 1
fi
if test -e {{base}}/$1-refuses; then
  echo "API Error: 403 the zebra is not amused"
  exit 1
fi
if test -e {{base}}/$1-is-limited; then
  echo "Claude AI usage limit reached|$(($(date +%s) + 3600))" >&2
  exit 1
fi
{HAND_OVER}"""
"""Hands over, unless the test says that its account is at its limit for an hour."""

SHORT = """\
steps:
  bdd: {next_on_pass: review, timeout_min: 5, max_attempts: 2}
"""


def settings(base: Path, **more: Any) -> Json:
    """Return settings with two agents, each with an account of its own."""
    limit = r"usage limit reached(?:\||, try again at )(?P<reset>\d{10}|\d\d:\d\d)"
    script = AGENT.format(base=quote(str(base)))

    def agent(name: str) -> Json:
        return shell_agent(base, script, name, limits=[limit], account=name)

    return {"executor": "first", "executors": {name: agent(name) for name in ("first", "second")}, **more}


@contextmanager
def at_its_limit(base: Path, name: str, how: str = "is-limited") -> Iterator[None]:
    """Have an agent answer with a limit."""
    mark = base / f"{name}-{how}"
    mark.touch()
    try:
        yield
    finally:
        mark.unlink()


def waiting(daemon: Daemon, project: Path) -> Json:
    """Return the track once it waits for the first agent's account."""
    return daemon.wait_saying(project, "first's usage limit")


def limits(daemon: Daemon) -> list[Json]:
    """Return the limited accounts."""
    found: list[Json] = daemon.get("/v1/limits")["limits"]
    return found


def test_a_limit_is_waited_for_over_a_kill_and_costs_no_attempt(tmp_path: Path) -> None:
    """Also by another project on the same account, which has not met it; both go on by themselves."""
    clock = WallClock(tmp_path)
    met, other = project_at(tmp_path / "met", SHORT), project_at(tmp_path / "other", SHORT)
    with running(tmp_path, settings(tmp_path)) as daemon:
        with at_its_limit(tmp_path, "first"):
            daemon.begin(met)
            track = waiting(daemon, met)
            assert ("bdd", "pending", 1) == (track["step"], track["status"], track["attempt"])
            daemon.begin(other)
            waiting(daemon, other)
            eventually_sync(lambda: ["warning"] == daemon.told_kinds(met))
            [limit] = limits(daemon)
            assert ("first", 2) == (limit["account"], limit["waiting"])

            daemon.kill()
            daemon.environment.update(clock.environment)
            daemon.start()
            waiting(daemon, met)
            waiting(daemon, other)
            assert limit["until"] == limits(daemon)[0]["until"]
            assert ([1], []) == ([run["attempt"] for run in daemon.runs(met)], daemon.runs(other))

        clock.set_off(HOUR_S + A_LITTLE_S)
        for project in (met, other):
            assert 1 == daemon.wait_at(project, "review", "needs_human")["attempt"]
        assert [1, 1] == [run["attempt"] for run in daemon.runs(met)]
        assert ["limit", "pass"] == [run["result"] for run in daemon.runs(met)]
        eventually_sync(lambda: [] == limits(daemon))


def test_a_limit_that_ends_within_the_running_minute_is_over_in_the_next(tmp_path: Path) -> None:
    """A time of day names no seconds: when it is read, it has begun."""
    clock, project = WallClock(tmp_path), project_at(tmp_path / "shop", SHORT)
    (tmp_path / "first-says").touch()
    with running(tmp_path, settings(tmp_path)) as daemon:
        daemon.begin(project)
        waiting(daemon, project)
        daemon.kill()
        daemon.environment.update(clock.environment)
        daemon.start()
        clock.set_off(A_LITTLE_S)
        assert 1 == daemon.wait_at(project, "review", "needs_human")["attempt"]


def test_another_executor_takes_over(tmp_path: Path) -> None:
    """The event says who was passed over; when both are limited, the one that is free first is waited for."""
    project, later = project_at(tmp_path / "shop", SHORT), project_at(tmp_path / "later", SHORT)
    with (
        running(tmp_path, settings(tmp_path, executor=["first", "second"])) as daemon,
        at_its_limit(tmp_path, "first"),
    ):
        daemon.begin(project)
        daemon.wait_at(project, "review", "needs_human")
        assert ["first", "second"] == [run["executor"] for run in daemon.runs(project)]
        told = [event["what"] for event in daemon.events(project) if event["kind"] == "advanced"]
        assert any("executor second for the next step; first is limited until" in words for words in told)

        with at_its_limit(tmp_path, "second"):
            daemon.begin(later)
            daemon.wait_saying(later, "usage limit, until")
        assert ["second"] == [run["executor"] for run in daemon.runs(later)]
        assert {"first", "second"} == {limit["account"] for limit in limits(daemon)}


def test_a_person_ends_a_wait_or_chooses_another_executor(tmp_path: Path) -> None:
    """At once, without a restart."""
    project, other = project_at(tmp_path / "shop", SHORT), project_at(tmp_path / "other", SHORT)
    with running(tmp_path, settings(tmp_path)) as daemon:
        with at_its_limit(tmp_path, "first"):
            daemon.begin(project)
            daemon.begin(other)
            waiting(daemon, project)
            waiting(daemon, other)
            assert "accepted" == daemon.verb("use", other, executor="second")["type"]
            daemon.wait_at(other, "review", "needs_human")

        answer = daemon.post("/v1/limits/lift", {"account": "first", "by": "mei"})
        assert "lifted" == answer["type"]
        daemon.wait_at(project, "review", "needs_human")
        assert "limit_lifted" in [event["kind"] for event in daemon.events(project)]
        assert "NOT_FOUND" == daemon.post("/v1/limits/lift", {"account": "first"})["code"]


def test_without_waiting_a_limit_is_a_failed_attempt(tmp_path: Path) -> None:
    """`limits.wait: false`: a person is asked when there is none left."""
    project = project_at(tmp_path / "shop", SHORT)
    with (
        running(tmp_path, settings(tmp_path, limits={"wait": False})) as daemon,
        at_its_limit(tmp_path, "first"),
    ):
        daemon.begin(project)
        track = daemon.wait_at(project, "bdd", "needs_human")
        assert ([1, 2], []) == ([run["attempt"] for run in daemon.runs(project)], limits(daemon))
        assert "usage limit reached" in track["last_error"]


def refused(daemon: Daemon, project: Path, times: int) -> Json:
    """Return the track once the first agent's provider has refused it so often, and it waits again."""

    def waits(track: Json) -> bool:
        waiting = "first's refusing provider, until" in (track["waits_for"] or "")
        return waiting and track["last_error"] is not None  # status has it at its next turn, a moment later

    eventually_sync(lambda: times == len(daemon.runs(project)))
    return daemon.wait_for(project, waits)


def test_a_refusal_in_unknown_words_costs_no_attempt_and_is_tried_ever_more_rarely(tmp_path: Path) -> None:
    """The second sends a notice; a restart begins no pause anew; another project goes on."""
    clock, project, other = (
        WallClock(tmp_path),
        project_at(tmp_path / "shop", SHORT),
        project_at(tmp_path / "other", SHORT),
    )
    with running(tmp_path, settings(tmp_path), **clock.environment) as daemon:
        with at_its_limit(tmp_path, "first", "refuses"):
            daemon.begin(project)
            first = refused(daemon, project, 1)
            assert (1, "API Error: 403 the zebra is not amused") == (first["attempt"], first["last_error"])
            assert [] == daemon.told(project)
            clock.set_off(31)
            assert 1 == refused(daemon, project, 2)["attempt"]
            eventually_sync(lambda: ["warning"] == daemon.told_kinds(project))
            assert "API Error: 403 the zebra is not amused" == daemon.told(project)[0]["why"]
            [limit] = limits(daemon)
            daemon.kill()
            daemon.start()
            refused(daemon, project, 2)
            assert limit["until"] == limits(daemon)[0]["until"]
            clock.set_off(31 + 121)
            assert 1 == refused(daemon, project, 3)["attempt"]
            [third] = limits(daemon)
            assert ("refusal", limit["since"]) == (third["kind"], third["since"])
        daemon.begin(other)
        daemon.wait_at(other, "review", "needs_human")
        clock.set_off(31 + 121 + 601)
        assert 1 == daemon.wait_at(project, "review", "needs_human")["attempt"]
        assert [1, 1, 1, 1] == [run["attempt"] for run in daemon.runs(project)]


def test_at_a_refusal_the_next_executor_takes_over(tmp_path: Path) -> None:
    """At once, and nothing waits."""
    project = project_at(tmp_path / "shop", SHORT)
    with (
        running(tmp_path, settings(tmp_path, executor=["first", "second"])) as daemon,
        at_its_limit(tmp_path, "first", "refuses"),
    ):
        daemon.begin(project)
        assert 1 == daemon.wait_at(project, "review", "needs_human")["attempt"]
        assert ["first", "second"] == [run["executor"] for run in daemon.runs(project)]
