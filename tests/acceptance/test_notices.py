"""Notices under the real daemon: none is lost, whatever dies, and a repetition has the same id."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.acceptance.test_journal import journal
from tests.support.agents import GATED
from tests.support.daemon import Daemon, running, sample
from tests.support.eventually import eventually_sync
from tests.support.notices import Server, serving

Json = dict[str, Any]
QUICK = {"backoff_s": 0.2, "backoff_max_s": 0.5}


def telling(server: Server, **more: object) -> Callable[[Daemon], Json]:
    """Return settings with the person's command and a web address."""

    def settings(daemon: Daemon) -> Json:
        command = [str(daemon.base / "sink.sh")]
        return {"notify": {"command": command, "webhook": {"url": server.address("/hook")}, **QUICK, **more}}

    return settings


def to_review(daemon: Daemon, project: Path) -> None:
    """Go to the first step that needs a person, and wait until the command has sent its notice."""
    daemon.to_review(project)
    eventually_sync(lambda: "needs_human" in daemon.told_kinds(project))


def ids(server: Server) -> list[str]:
    """Return under which ids the server was asked to take a notice."""
    return [headers["Idempotency-Key"] for _, _, headers, _ in server.requests]


def untold(daemon: Daemon, sink: str) -> Json:
    """Return what status says about a sink."""
    found = [one for one in daemon.get("/v1/status")["notices"] if one["sink"] == sink]
    return found[0] if found else {}


def test_a_notice_in_flight_when_the_daemon_is_killed_is_sent_again_under_its_id(tmp_path: Path) -> None:
    """Recorded before it is sent: the server had received it, and the daemon cannot know more."""
    project = sample(tmp_path, rules=GATED)
    with serving(200) as server, running(tmp_path, telling(server)) as daemon:
        server.hold.clear()
        to_review(daemon, project)
        eventually_sync(lambda: server.requests)
        eventually_sync(lambda: not untold(daemon, "command"))
        daemon.kill()
        before = set(ids(server))
        server.hold.set()

        daemon.start()

        told = {one["id"] for one in daemon.told(project)}
        eventually_sync(lambda: told <= set(ids(server)[1:]))
        assert before <= told
        daemon.wait_delivered()
        assert len(told) == len(daemon.told(project))  # what the command had taken, it did not get again


def test_a_notice_in_flight_when_the_daemon_is_ended_is_told_once(tmp_path: Path) -> None:
    """The slow address is waited for, so that the next daemon knows that it has taken the notice."""
    project = sample(tmp_path, rules=GATED)
    with serving(200) as server, running(tmp_path, telling(server)) as daemon:
        server.hold.clear()
        to_review(daemon, project)
        eventually_sync(lambda: server.requests)
        os.kill(daemon.pid, signal.SIGTERM)
        eventually_sync(lambda: "notices are left" in daemon.log())
        server.hold.set()
        daemon.lost()

        daemon.start()

        told = {one["id"] for one in daemon.told(project)}
        eventually_sync(lambda: told <= set(ids(server)))
        daemon.wait_delivered()
        assert len(set(ids(server))) == len(ids(server))


def test_what_was_undelivered_at_a_backup_is_sent_again_after_a_restore_under_its_id(tmp_path: Path) -> None:
    """Also if it was delivered since, of which the backup knows nothing; what had been taken is not."""
    project = sample(tmp_path, rules=GATED)
    with serving(500) as server, running(tmp_path, telling(server)) as daemon:
        to_review(daemon, project)
        eventually_sync(lambda: untold(daemon, "webhook").get("failed_tries"))
        eventually_sync(lambda: not untold(daemon, "command"))
        assert 0 == journal(daemon, "backup", str(tmp_path / "backup.db")).code
        told = [one["id"] for one in daemon.told(project)]
        server.status = 200
        eventually_sync(lambda: not untold(daemon, "webhook"))
        daemon.kill()
        before = len(server.requests)
        assert set(told) == set(ids(server))

        assert 0 == journal(daemon, "restore", str(tmp_path / "backup.db")).code
        daemon.start()

        eventually_sync(lambda: set(told) == set(ids(server)[before:]))
        daemon.wait_delivered()
        assert sorted(told) == sorted(ids(server)[before:])
        assert told == [one["id"] for one in daemon.told(project)]


def test_a_dead_address_delays_no_other_sink_and_gets_all_when_it_works_again(tmp_path: Path) -> None:
    """Over a restart as well; until then `status` lists it."""
    project = sample(tmp_path, rules=GATED)
    with serving(500) as server, running(tmp_path, telling(server)) as daemon:
        log = tmp_path / "daemon.log"
        to_review(daemon, project)  # the command gets it at once
        eventually_sync(lambda: untold(daemon, "webhook").get("failed_tries"))
        said = untold(daemon, "webhook")
        assert said["undelivered"] >= 1
        assert said["last_error"].endswith("answered 500")
        eventually_sync(lambda: "notice not delivered, trying again" in log.read_text())
        eventually_sync(lambda: not untold(daemon, "command"))
        daemon.kill()
        daemon.start()
        eventually_sync(lambda: untold(daemon, "webhook"))
        server.status = 204

        eventually_sync(lambda: not untold(daemon, "webhook"))

        told = [one["id"] for one in daemon.told(project)]
        assert told == sorted(set(told), key=told.index)
        assert set(told) == set(ids(server))


def test_what_is_given_up_is_told_by_log_status_and_history(tmp_path: Path) -> None:
    """Not by a notice: that would go the same way."""
    project = sample(tmp_path, rules=GATED)
    with serving(500) as server, running(tmp_path, telling(server, give_up_h=1 / 3600)) as daemon:
        to_review(daemon, project)

        eventually_sync(lambda: untold(daemon, "webhook").get("given_up"))
        lost = eventually_sync(
            lambda: [one for one in daemon.events(project) if one["kind"] == "notice_given_up"]
        )
        assert "webhook" == lost[0]["event"]["sink"]
        assert "given up, webhook did not take" in lost[0]["why"]
        assert lost[0]["before"] == lost[0]["after"]
        eventually_sync(lambda: "notice given up" in daemon.log())


def test_an_address_that_is_taken_out_of_the_settings_is_told_nothing_more(tmp_path: Path) -> None:
    """The next daemon drops what waited for it, and logs that."""
    project = sample(tmp_path, rules=GATED)
    with serving(500) as server, running(tmp_path, telling(server)) as daemon:
        to_review(daemon, project)
        eventually_sync(lambda: untold(daemon, "webhook").get("failed_tries"))
        daemon.kill()

    with running(tmp_path) as daemon:
        daemon.wait_delivered()
        log = tmp_path / "daemon.log"
        eventually_sync(lambda: "their sink is not in the settings" in log.read_text())
