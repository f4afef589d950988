"""`handoffd doctor` beside a real daemon, and where a disk does not answer."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.acceptance.test_faults import hanging_mount
from tests.acceptance.test_project_faults import in_a_house_of_its_own
from tests.support.agents import released, shop
from tests.support.commands import Said, environment_of, program, typed
from tests.support.daemon import Daemon, running
from tests.support.eventually import eventually_sync

import handoffd


def examined(daemon: Daemon) -> Said:
    """Return what doctor says of a daemon's house, as a program of its own."""
    return typed(daemon, "doctor", "--json")


def findings(daemon: Daemon, check: str) -> list[dict[str, Any]]:
    """Return what one check of it found: nothing, where it had to read the journal itself and had no time."""
    return [found for found in examined(daemon).json["findings"] if found["check"] == check]


def test_a_daemon_that_is_well(tmp_path: Path) -> None:
    """Every check is fine, and the exit code 0; after it was killed, it says how to start one."""
    project = shop(tmp_path)
    with running(tmp_path, released(tmp_path)) as daemon:
        daemon.verb("init", project)
        # Whether the limits of this machine are enough, and its disk is one, is not the test's to say.
        (said,) = eventually_sync(lambda: _answer(daemon))
        assert (0, True) == (said.code, said.json["ok"])
        told = {found["check"]: found for found in said.json["findings"]}
        assert f"runs (process {daemon.pid}, version {handoffd.__version__})" == told["daemon"]["what"]
        assert "1 project can be worked on" == told["projects"]["what"]
        assert "ok" == told["executors"]["severity"]

        daemon.kill()
        (after,) = findings(daemon, "daemon")
        assert ("warning", "handoffd run") == (after["severity"], after["action"])
        (same,) = eventually_sync(lambda: findings(daemon, "projects"))
        assert "1 project can be worked on" == same["what"]


def _answer(daemon: Daemon) -> list[Said]:
    """Return what doctor says, once the daemon, which may be busy, has answered in time."""
    said = examined(daemon)
    answered = any(found["what"].startswith("runs (process") for found in said.json["findings"])
    return [said] if answered else []


def test_at_the_limit_of_file_watches_it_names_the_projects_and_the_command(tmp_path: Path) -> None:
    """The limit of a namespace is as real as the machine's; without it doctor is silent."""
    projects = [shop(tmp_path), shop(tmp_path / "b")]
    daemon = Daemon(tmp_path, released(tmp_path, watch={"sweep_s": 0.5}))
    try:
        daemon.start()
        for project in projects:
            daemon.verb("init", project)
        daemon.terminate()  # in a namespace of its own it cannot see who asks, and refuses every `add`
        daemon.prefix = in_a_house_of_its_own("echo 1 > /proc/sys/user/max_inotify_watches")
        daemon.start()

        def limited() -> list[dict[str, Any]]:
            found = findings(daemon, "watches")
            return [one for one in found if "limit of file watches is reached" in (one["why"] or "")]

        (found,) = eventually_sync(limited)
        swept = [str(project) for project in projects if str(project) in found["what"]]
        assert "warning" == found["severity"]
        assert f"{len(swept)} of 2 projects" in found["what"]
        assert "only looked at every 0.5 s" in found["what"]
        assert swept
        assert found["action"].startswith("sudo sysctl fs.inotify.max_user_")
        assert "max_user_watches=" in found["action"]
        assert found["action"].endswith("| sudo tee /etc/sysctl.d/60-handoffd.conf")
        daemon.terminate()  # by a signal: it would refuse `stop`
    finally:
        daemon.close()


def test_a_mount_that_hangs_is_reported_and_ends_nothing(tmp_path: Path) -> None:
    """Without a daemon each folder is asked, and a silent one is left behind; the program ends."""
    mount = tmp_path / "mount"
    (mount / "lost/.ai").mkdir(parents=True)
    project = shop(tmp_path)
    with running(tmp_path, released(tmp_path, projects=[str(mount / "lost")])) as daemon:
        daemon.verb("init", project)
        eventually_sync(lambda: len(daemon.get("/v1/status")["projects"]) == 2)
        daemon.terminate()
        with hanging_mount(mount):
            found = eventually_sync(lambda: findings(daemon, "projects"))

    silent, rest = found
    assert ("fault", f"stat {mount / 'lost'}") == (silent["severity"], silent["action"])
    assert "does not answer" in silent["why"]
    assert "1 project can be worked on" == rest["what"]


def test_a_project_that_goes_while_the_daemon_runs(tmp_path: Path) -> None:
    """Doctor reports a fault until the project is back or removed."""
    project = shop(tmp_path)
    with running(tmp_path, released(tmp_path, watch={"sweep_s": 0.5})) as daemon:
        daemon.verb("init", project)
        shutil.move(project, tmp_path / "away")
        gone = eventually_sync(
            lambda: [one for one in findings(daemon, "projects") if "(missing)" in one["what"]]
        )
        assert "fault" == gone[0]["severity"]
        assert f"handoffd remove {project}" in gone[0]["action"]


def test_tests_that_only_the_terminal_could_run(tmp_path: Path) -> None:
    """`init` and `doctor` try them where the daemon runs them; with its PATH repaired they work."""
    project, terminal = shop(tmp_path), tmp_path / "terminal"
    (project / "package.json").write_text('{"scripts": {"test": "mocha"}}')
    terminal.mkdir()
    (terminal / "npm").write_text('#!/bin/sh\ntest "$1" = test && test -n "$HANDOFFD_RUN"\n')
    (terminal / "npm").chmod(0o755)
    daemon = Daemon(tmp_path, released(tmp_path))
    path = f"{terminal}:/usr/bin:/bin"
    env = environment_of(daemon, PATH=path)
    config = ("--config", str(daemon.config))
    try:
        daemon.environment["PATH"] = str(tmp_path / "nothing")
        daemon.start()
        tried = program(*config, "init", str(project), "--json", env=env).json["tried"]
        assert ("fault", "npm is not in the daemon's PATH") == (tried["severity"], tried["what"])
        assert f"it is {terminal}/npm in this terminal" in tried["why"]
        assert "handoffd stop && handoffd run" == tried["action"]
        examined = program(*config, "doctor", env=env)
        assert "fault    tests        npm is not in the daemon's PATH" in examined.lines

        daemon.terminate()
        daemon.environment["PATH"] = path
        daemon.start()
        examined = program(*config, "doctor", str(project), env=env)
        works = "npm test works in the daemon's environment: exit code 0"
        assert any(line.startswith(f"ok       tests        {works}") for line in examined.lines)
        daemon.terminate()
    finally:
        daemon.close()
