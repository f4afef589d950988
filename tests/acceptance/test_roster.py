"""Which projects a real daemon supervises, by its settings: found, let go, edited, vanished and back."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.agents import project_at, scripted
from tests.support.daemon import Daemon, removed, running, sample
from tests.support.eventually import eventually_sync

Json = dict[str, Any]

GATED = scripted("gated")
QUICK = {"roster": {"scan_s": 0.3}, "watch": {"sweep_s": 0.5}, **GATED}


def found_at(root: Path, settings: Json | None = None) -> Path:
    """Return a project that a workspace takes for one: it has a file of settings."""
    return project_at(root, settings=json.dumps(settings or {}))


def roots(daemon: Daemon) -> list[str]:
    """Return the roots of the supervised projects."""
    return [one["project"] for one in daemon.get("/v1/projects")["projects"]]


def warnings(daemon: Daemon) -> list[str]:
    """Return what the daemon says of its settings."""
    found: list[str] = daemon.get("/v1/status")["warnings"]
    return found


def test_a_workspace_is_supervised_and_what_appears_in_it(tmp_path: Path) -> None:
    """What a person removes stays away, also after a restart; what one adds stays when the entry goes."""
    work = tmp_path / "work"
    a, b = found_at(work / "a"), found_at(work / "team" / "b")
    outside = found_at(tmp_path / "outside")
    with running(tmp_path, {**QUICK, "workspaces": [str(work)]}) as daemon:
        eventually_sync(lambda: roots(daemon) == [str(a), str(b)])
        assert [str(work)] * 2 == [daemon.view(root)["brought_by"] for root in (a, b)]
        c, kept = found_at(work / "c"), found_at(work / "kept")
        eventually_sync(lambda: roots(daemon) == sorted(map(str, (a, b, c, kept))))

        daemon.verb("remove", b)
        daemon.verb("add", kept)
        daemon.verb("add", outside)
        assert daemon.view(kept)["brought_by"] is None
        daemon.terminate()
        daemon.start()
        eventually_sync(lambda: daemon.post("/v1/reload", {})["settings"]["taken"])
        assert sorted(map(str, (a, c, kept, outside))) == roots(daemon)

        daemon.configure(QUICK)
        eventually_sync(lambda: roots(daemon) == sorted(map(str, (kept, outside))))
        daemon.configure({**QUICK, "workspaces": [str(work)]})
        eventually_sync(lambda: roots(daemon) == sorted(map(str, (a, c, kept, outside))))
        daemon.verb("add", b)
        assert str(b) in roots(daemon)


def test_what_is_found_runs_nothing_of_its_own(tmp_path: Path) -> None:
    """Neither `auto` nor a command of its file, before a person trusts it; what is named is trusted."""
    wishes = {"auto": True, "executor": "gated", "test": {"command": ["touch", str(tmp_path / "ran")]}}
    found = found_at(tmp_path / "work" / "found", wishes)
    named = found_at(tmp_path / "named", wishes)
    settings = {**QUICK, "projects": [str(tmp_path / "w*" / "*"), str(named)]}
    with running(tmp_path, settings) as daemon:
        eventually_sync(lambda: roots(daemon) == [str(named), str(found)])
        daemon.verb("init", named)

        eventually_sync(lambda: "test.command" in daemon.view(found)["held"])
        assert {"auto", "executor", "test.command"} == set(daemon.view(found)["held"])
        assert daemon.view(found)["test_command"] is None
        assert wishes["test"] == {"command": daemon.view(named)["test_command"]}

        daemon.verb("trust", found)
        assert daemon.view(found)["test_command"] == daemon.view(named)["test_command"]


def test_a_project_that_runs_is_let_go_when_that_is_over(tmp_path: Path) -> None:
    """Its attempt ends and is judged, nothing more is started; then it goes."""
    (tmp_path / "work").mkdir()
    root = sample(tmp_path / "work", executor="gated", rules=SHORT)
    with running(tmp_path, {**QUICK, "workspaces": [str(tmp_path / "work")]}) as daemon:
        eventually_sync(lambda: roots(daemon) == [str(root)])
        daemon.verb("trust", root)
        daemon.verb("start", root, story="US-001")
        daemon.wait_for(root, lambda track: track["pid"] is not None)

        daemon.configure(QUICK)
        eventually_sync(
            lambda: any(
                "supervision ends with its current run" in one for one in daemon.view(root)["warnings"]
            )
        )
        assert [str(root)] == roots(daemon)
        (root / ".ai/release").touch()
        eventually_sync(lambda: roots(daemon) == [])

        daemon.configure({**QUICK, "workspaces": [str(tmp_path / "work")]})
        eventually_sync(lambda: roots(daemon) == [str(root)])
        assert [("bdd", "pass")] == [(run["step"], run["result"]) for run in daemon.runs(root)][:1]


SHORT = """\
steps:
  bdd: {next_on_pass: update-memory}
"""


def test_an_edit_that_is_wrong_is_told_with_all_its_problems(tmp_path: Path) -> None:
    """The last good settings still apply, and a good edit is taken by itself, whole."""
    with running(tmp_path, {**QUICK, "execute": {"slots": 1}}) as daemon:
        daemon.configure({**QUICK, "execute": {"slots": 0}, "lnguage": "en", "executors": {"x": {"argv": 7}}})

        eventually_sync(lambda: len(warnings(daemon)) == 3)
        assert all("the last good ones still apply" in one for one in warnings(daemon))
        answer = daemon.post("/v1/reload", {})
        assert not answer["settings"]["taken"]
        told = {one["key"]: one for one in answer["settings"]["problems"]}
        assert {"execute.slots", "executors.x.argv", "lnguage"} == told.keys()
        assert (str(daemon.config), 1) == (told["lnguage"]["file"], told["lnguage"]["line"])
        assert "language" in told["lnguage"]["allowed"]
        refused = eventually_sync(lambda: daemon.told(daemon.state_dir))
        assert ["handoffd config check"] == [one["action"] for one in refused]
        assert "settings refused" in daemon.log()

        daemon.configure({**QUICK, "execute": {"slots": 3}, "log": {"level": "debug"}})
        eventually_sync(lambda: warnings(daemon) == [])
        assert "execute.slots" in daemon.log().split("settings read again")[-1]
        assert daemon.post("/v1/reload", {})["settings"]["changed"] == []


def test_a_daemon_outlives_the_folder_that_it_was_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings are read again although it is deleted, and nothing keeps its disk from being unmounted."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    with running(tmp_path, {**QUICK, "execute": {"slots": 1}}) as daemon:
        assert "/" == os.readlink(f"/proc/{daemon.pid}/cwd")
        monkeypatch.chdir(tmp_path)
        (tmp_path / "gone").rmdir()
        daemon.configure({**QUICK, "execute": {"slots": 3}})

        eventually_sync(lambda: daemon.post("/v1/reload", {})["settings"]["taken"])


def test_an_executor_that_cannot_be_used_is_a_problem_with_its_line(tmp_path: Path) -> None:
    """A fault that only the whole settings show is found before they apply."""
    with running(tmp_path, QUICK) as daemon:
        daemon.config.write_text(daemon.config.read_text()[:-1] + ',\n"language": "en"}')
        text = daemon.config.read_text().replace('"gated": {', '"mine": {"extends": "missing"},\n"gated": {')
        daemon.config.write_text(text)

        (problem,) = daemon.post("/v1/reload", {})["settings"]["problems"]

        assert ("executors.mine.extends", 1) == (problem["key"], problem["line"])
        assert "claude" in problem["allowed"]


def test_what_needs_a_restart_is_named_until_then(tmp_path: Path) -> None:
    """No half of it applies; afterwards all of it does."""
    with running(tmp_path, QUICK) as daemon:
        daemon.configure({**QUICK, "watch": {"sweep_s": 0.5, "backend": "watchfiles"}, "language": "zh-TW"})
        os.kill(daemon.pid, signal.SIGHUP)

        (told,) = eventually_sync(lambda: warnings(daemon))
        assert "after a restart of the daemon: watch.backend" in told
        assert ["watch.backend"] == daemon.post("/v1/reload", {})["settings"]["restart"]
        daemon.terminate()
        daemon.start()
        eventually_sync(lambda: warnings(daemon) == [])


def test_a_settings_file_that_is_gone_is_no_edit(tmp_path: Path) -> None:
    """An editor, or a deployment, takes it away for a moment; the settings still apply."""
    root = found_at(tmp_path / "named")
    with running(tmp_path, {**QUICK, "projects": [str(root)]}) as daemon:
        eventually_sync(lambda: roots(daemon) == [str(root)])
        away = daemon.config.rename(tmp_path / "away.yaml")

        told = eventually_sync(lambda: warnings(daemon))
        assert "handoffd.yaml" in told[0]
        assert [str(root)] == roots(daemon)
        away.rename(daemon.config)
        eventually_sync(lambda: warnings(daemon) == [])


def test_a_cap_that_is_raised_lets_go_on_what_waited(tmp_path: Path) -> None:
    """New settings count for waiting stories, without a restart."""
    root = sample(tmp_path, executor="gated", rules=SHORT)
    capped = {**QUICK, "execute": {"slots": 1}}
    other = sample(tmp_path / "other", executor="gated", rules=SHORT)
    with running(tmp_path, capped) as daemon:
        for one in (root, other):
            daemon.verb("start", one, story="US-001")
        eventually_sync(lambda: sum(daemon.track(one)["pid"] is not None for one in (root, other)) == 1)

        daemon.configure({**QUICK, "execute": {"slots": 2}})
        eventually_sync(lambda: sum(daemon.track(one)["pid"] is not None for one in (root, other)) == 2)


def vanish(root: Path, how: str, away: Path) -> None:
    """Take a project away."""
    if how == "unmounted":
        root.parent.rename(away)
        return
    if how == "deleted":  # and cloned, later
        shutil.copytree(root, away, symlinks=True)
        away = away.with_name("trash")
    root.rename(away)


def come_back(root: Path, how: str, away: Path) -> None:
    """Bring it back: the same folder, or a copy as a clone is."""
    away.rename(root.parent if how == "unmounted" else root)


@pytest.mark.parametrize("how", ["moved", "deleted", "unmounted"])
def test_a_project_that_vanishes_comes_back_by_itself(tmp_path: Path, how: str) -> None:
    """Status says what and since when, the others go on, and it is not let go meanwhile."""
    work, away = tmp_path / "mount" / "work", tmp_path / "away"
    root, other = found_at(work / "a"), found_at(tmp_path / "elsewhere" / "b")
    settings = {**QUICK, "workspaces": [str(work), str(other.parent)]}
    with running(tmp_path, settings) as daemon:
        eventually_sync(lambda: len(roots(daemon)) == 2)
        daemon.verb("init", root)
        eventually_sync(lambda: daemon.condition(root) == "ok")

        vanish(root, how, away)
        eventually_sync(lambda: daemon.condition(root) == "missing")
        gone = daemon.view(root)
        assert gone["since"] is not None
        daemon.verb("init", other)
        assert "ok" == daemon.condition(other)
        assert daemon.post("/v1/reload", {})["let_go"] == 0
        daemon.terminate()
        daemon.start()
        eventually_sync(lambda: daemon.condition(root) == "missing")

        come_back(root, how, away)
        eventually_sync(lambda: daemon.condition(root) == "ok")
        back = daemon.view(root)
        assert (None, 1) == (back["since"], back["level"])


def test_a_project_that_loses_its_ai_gets_it_back(tmp_path: Path) -> None:
    """STATE.json is written again from the journal, without a verb."""
    root = found_at(tmp_path / "work" / "a")
    with running(tmp_path, {**QUICK, "workspaces": [str(tmp_path / "work")]}) as daemon:
        eventually_sync(lambda: roots(daemon) == [str(root)])
        daemon.verb("init", root)
        eventually_sync(lambda: removed(root / ".ai"))

        eventually_sync((root / ".ai/STATE.json").exists)
        eventually_sync(lambda: daemon.condition(root) == "ok")
        assert [str(root)] == roots(daemon)
