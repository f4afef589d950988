"""Reminders of the real daemon, at the right time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.agents import GATED
from tests.support.daemon import Daemon, running, sample
from tests.support.eventually import eventually_sync
from tests.support.notices import Server, serving

from handoffd.engine.wording import repair_command

Json = dict[str, Any]
KEY = "s3cr3t-k3y"
SOON_MIN = 0.02


def telling(server: Server, **more: object) -> Callable[[Daemon], Json]:
    """Return settings that tell a web address, and what `more` says."""
    return lambda _: {"notify": {"webhook": {"url": server.address("/hook")}, **more}}


def told(server: Server) -> list[tuple[str, str]]:
    """Return kind and id of every notice that the address got."""
    return [(body["kind"], body["id"]) for _, _, _, body in server.requests]


def test_a_gate_has_one_reminder_for_each_rung_also_by_the_next_daemon(tmp_path: Path) -> None:
    """Until it is decided: without a daemon, too."""
    project = sample(tmp_path, rules=GATED)
    ladder = {"after_min": [SOON_MIN, 2 * SOON_MIN], "escalate": [{"after_min": SOON_MIN, "to": ["boss"]}]}
    with serving(200) as server, serving(200) as boss:
        sinks = {"boss": {"webhook": {"url": boss.address("/boss")}}}
        routes = [{"to": ["webhook"]}]
        with running(tmp_path, telling(server, remind=ladder, sinks=sinks, routes=routes)) as daemon:
            daemon.to_review(project)
            eventually_sync(lambda: "reminder" in dict(told(server)) and boss.requests)
            (waiting,) = daemon.get("/v1/notices")["waiting"]
            assert f"handoffd gate {project}" == waiting["next"]
            assert "US-001" == waiting["story"]
            daemon.kill()
            daemon.start()
            # What was sent just before the kill may come twice, under one id.
            eventually_sync(lambda: 2 == len({name for kind, name in told(server) if kind == "reminder"}))
            daemon.verb("approve", project, story="US-001")
            eventually_sync(lambda: [] == daemon.get("/v1/notices")["waiting"])

        assert 2 == len({name for kind, name in told(server) if kind == "reminder"})
        assert {"escalation"} == {body["kind"] for _, _, _, body in boss.requests}


def test_a_blocked_project_has_reminders_also_by_the_next_daemon(tmp_path: Path) -> None:
    """Until it goes on; the stall itself has one notice."""
    project, away = sample(tmp_path, rules=GATED), tmp_path / "away"
    with serving(200) as server:
        again = telling(server, remind={"after_min": [SOON_MIN, 4 * SOON_MIN]})
        with running(tmp_path, lambda daemon: {**again(daemon), "watch": {"sweep_s": 0.5}}) as daemon:
            daemon.verb("init", project)
            project.rename(away)
            eventually_sync(lambda: "reminder" in dict(told(server)))
            (waiting,) = daemon.get("/v1/notices")["waiting"]
            assert ("blocked", repair_command(str(project), "missing")) == (waiting["kind"], waiting["next"])
            daemon.kill()
            daemon.start()
            eventually_sync(lambda: 3 == len(set(told(server))))
            away.rename(project)
            eventually_sync(lambda: [] == daemon.get("/v1/notices")["waiting"])

        assert ["blocked", "reminder", "reminder"] == [kind for kind, _ in dict.fromkeys(told(server))]


def test_what_the_quiet_hours_hold_back_is_told_when_they_are_over_in_one_notice(tmp_path: Path) -> None:
    """By the next daemon, whose settings have none: it is held back in the journal."""
    project = sample(tmp_path, rules=GATED)
    now = datetime.now(UTC)  # noqa: TID251  (the daemon goes by the real clock)
    quiet = {
        "start": f"{now - timedelta(hours=2):%H:%M}",
        "end": f"{now + timedelta(hours=6):%H:%M}",
        "timezone": "UTC",
    }
    with serving(200) as server:
        with running(tmp_path, telling(server, quiet=quiet, remind={"after_min": [SOON_MIN]})) as daemon:
            daemon.to_review(project)
            (held,) = eventually_sync(
                lambda: [one for one in daemon.get("/v1/notices")["held"] if one["count"] > 1]
            )
            assert ("webhook", "quiet", quiet["end"]) == (held["sink"], held["reason"], held["until"][11:16])
            assert [] == server.requests
            assert [] == daemon.get("/v1/status")["notices"]  # nothing failed, so there is no warning

        with running(tmp_path, telling(server)) as daemon:
            eventually_sync(lambda: server.requests)
            eventually_sync(lambda: [] == daemon.get("/v1/notices")["held"])

        ((_, _, _, digest),) = server.requests
        assert ("digest", "handoffd") == (digest["kind"], digest["name"])
        assert f"handoffd approve {project}" in "".join(digest["lines"])


def test_other_settings_count_under_the_running_daemon(tmp_path: Path) -> None:
    """A corrected address gets what waited for the old one, without a restart; a new sink is there, too."""
    project = sample(tmp_path, rules=GATED)
    with serving(500) as dead, serving(200) as server:
        settings = {"webhook": {"url": dead.address("/hook")}, "backoff_s": 0.2, "backoff_max_s": 0.2}
        with running(tmp_path, {"notify": settings}) as daemon:
            daemon.to_review(project)
            eventually_sync(lambda: dead.requests)
            pid = daemon.pid
            corrected = {"webhook": {"url": server.address("/hook")}}
            daemon.configure(
                {"notify": {**corrected, "sinks": {"more": {"webhook": {"url": server.address("/more")}}}}}
            )
            eventually_sync(lambda: "needs_human" in dict(told(server)))
            daemon.wait_delivered()
            eventually_sync(
                lambda: "more" in [one["sink"] for one in daemon.post("/v1/notices/test", {})["sinks"]]
            )
            assert pid == daemon.pid

        assert {"/hook", "/more"} == {path for _, path, _, _ in server.requests}


@pytest.mark.slow
def test_apprise_runs_beside_the_daemon_and_its_secrets_are_nowhere_to_be_seen(tmp_path: Path) -> None:
    """Neither in arguments nor in environments, nor in the log, nor in what status says when it fails."""
    project = sample(tmp_path, rules=GATED)
    with serving(500) as server:
        url = f"json://127.0.0.1:{server.server_address[1]}/{KEY}"
        settings = {"notify": {"apprise": {"urls": [url]}, "backoff_s": 0.2, "backoff_max_s": 0.2}}
        with running(tmp_path, settings) as daemon:
            daemon.to_review(project)
            eventually_sync(lambda: daemon.get("/v1/status")["notices"], within_s=120)
            eventually_sync(lambda: daemon.get("/v1/status")["notices"][0]["failed_tries"], within_s=120)
            assert f"/{KEY}" in {path for _, path, _, _ in server.requests}
            error = daemon.get("/v1/status")["notices"][0]["last_error"]
            assert "JSON: " in error
            seen = [error, daemon.log(), shown_of(daemon)]
            assert not [text for text in seen if KEY in text]
            assert "apprise_worker" in seen[2]
            assert "/apprise/" not in Path(f"/proc/{daemon.pid}/maps").read_text()
            server.status = 200
            eventually_sync(lambda: not daemon.get("/v1/status")["notices"], within_s=120)


def shown_of(daemon: Daemon) -> str:
    """Return the arguments and environments of the daemon's children, as others of this account see them."""
    shown = b""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if f"\nPPid:\t{daemon.pid}\n" in status.read_text():
                shown += (status.parent / "cmdline").read_bytes() + (status.parent / "environ").read_bytes()
        except OSError:  # it has ended
            continue
    return shown.decode("utf-8", "replace")
