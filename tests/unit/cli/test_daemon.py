"""Commands of the daemon itself: `run`, `stop`, `reload`, `token`, `metrics`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.children import ending
from tests.support.commands import Commands, environment, program, started
from tests.support.controlled import Controlled
from tests.support.eventually import eventually_sync

from handoffd.api.client import Client
from handoffd.api.outcomes import reloaded
from handoffd.cli.daemon import cause_of, report
from handoffd.engine.views import WORKABLE
from handoffd.entrance.requests import account
from handoffd.errors import Locked, NoDaemon, Problem
from handoffd.protocol import yamltext
from handoffd.protocol.state import plain
from handoffd.settings.loading import HeldSetting, Renewed, SettingsView


# --- run --------------------------------------------------------------------------------------------
@pytest.fixture
def place() -> Iterator[Path]:
    """A short folder for sockets and state."""
    with tempfile.TemporaryDirectory(prefix="handoffd-") as name:
        yield Path(name)


def _answers(place: Path) -> bool:
    try:
        Client(place / "control.sock").get("/v1/health")
    except NoDaemon:
        return False
    return True


def test_a_daemon_answers_until_a_signal_ends_it(place: Path) -> None:
    """A second one is refused, and the end is clean: code 0, no socket, a line in the log."""
    env, log = environment(place), place / "daemon.log"
    with (
        log.open("wb") as output,
        started("run", "--log-format", "json", env=env, stdout=output, stderr=output) as process,
    ):
        eventually_sync(lambda: _answers(place) or process.poll() is not None)
        assert process.poll() is None, log.read_text(encoding="utf-8")
        second = program("run", env=env)
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(60)

    assert 1 == second.code
    assert f"process {process.pid}" in second.err
    assert not (place / "control.sock").exists()
    assert '"event": "stopped"' in log.read_text(encoding="utf-8")


def test_settings_that_cannot_be_used_are_78(place: Path) -> None:
    """systemd must not try again and again; every problem is listed."""
    config = place / "handoffd.yaml"
    config.write_text("execute:\n  slots: 0\nnonsense: 1\n", encoding="utf-8")

    said = program("run", "--config", str(config), env=environment(place))

    assert 78 == said.code
    assert f"{config}:2: execute.slots" in said.err
    assert f"{config}:3: nonsense" in said.err
    assert "next: " in said.err


def test_options_are_checked_like_settings(handoffd: Commands) -> None:
    """They have precedence over them."""
    said = handoffd("run", "--log-level", "loud")

    assert 2 == said.code
    assert "debug" in said.err


def test_the_error_that_ends_the_daemon_is_taken_out_of_its_groups() -> None:
    """One that a person can act on, before a bug."""
    locked, bug = Locked("taken"), ValueError("bug")

    assert locked is cause_of(BaseExceptionGroup("", [BaseExceptionGroup("", [locked]), bug]))
    assert bug is cause_of(BaseExceptionGroup("", [bug]))


# --- stop -------------------------------------------------------------------------------------------
_DAEMON = """
import os, sys
from tests.support.controlled import controlled
from tests.support.supervision import MemorySupervision
import threading
asked = threading.Event()
with controlled(MemorySupervision(), on_stop=asked.set) as control:
    print(control.runtime, flush=True)
    asked.wait(60)
    if control.stopped_with != [sys.argv[1] == "--executors"]:
        os._exit(9)
"""


@pytest.mark.parametrize("option", ["", "--executors"])
def test_stop_returns_when_the_daemon_is_gone(
    alone: Path, handoffd: Commands, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """It ends the executors only with the option."""
    with ending(subprocess.Popen(
        [sys.executable, "-c", _DAEMON, option],
        stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3],
    )) as process:  # fmt: skip
        assert process.stdout is not None
        monkeypatch.setenv("HANDOFFD_RUNTIME_DIR", process.stdout.readline().strip())

        said = handoffd("stop", *option.split())

        assert (0, 0) == (said.code, process.poll())
    if not option:
        assert "The daemon has stopped; running executors go on." == said.lines[0]
    assert 3 == handoffd("stop").code


# --- reload -----------------------------------------------------------------------------------------
PROBLEM = Problem(file="/etc/h.yaml", line=3, key="language", message="must be one", allowed=("en", "zh-TW"))


def answer(*problems: str, brought: int = 0, let_go: int = 0, **view: Any) -> dict[str, Any]:
    """Return what a daemon answers."""
    settings = SettingsView(file="/etc/h.yaml", **view)
    renewed = Renewed(settings=settings, brought=brought, let_go=let_go, problems=problems)
    return plain(reloaded(renewed, (*settings.warnings, "projects: /x is not a folder")))


def test_a_reload_lists_what_has_changed() -> None:
    """What needs a restart, which projects were found or let go, and warnings."""
    changed = answer(
        "/srv/a: bad", brought=2, let_go=1, changed=("execute.slots",), restart=("watch.shards",)
    )

    assert [
        "Now in effect: execute.slots",
        "  /srv/a: bad",
        "Needs a restart of the daemon: watch.shards",
        "2 projects found",
        "1 project let go",
        "warning: projects: /x is not a folder",
    ] == list(report(changed))
    assert "The file says what is already in effect." == next(iter(report(answer())))


def test_refused_settings_are_listed_with_the_next_command() -> None:
    """Every problem with its place and what is allowed."""
    lines = list(report(answer(problems=(PROBLEM,))))

    assert "The settings are invalid; the daemon keeps the last valid ones:" == lines[0]
    assert "  /etc/h.yaml:3: language: must be one (allowed: en, zh-TW)" == lines[1]
    assert "  next: handoffd config check" == lines[-1]
    assert 1 == sum("language" in line for line in lines)


def test_the_daemon_reloads_its_settings(control: Controlled, handoffd: Commands) -> None:
    """Its answer is printed; refused settings are exit code 1."""
    control.renewing.view = SettingsView(file="/etc/h.yaml", changed=("execute.slots",))
    good = handoffd("reload")
    control.renewing.view = SettingsView(file="/etc/h.yaml", problems=(PROBLEM,))
    bad, as_json = handoffd("reload"), handoffd("reload", "--json")

    assert (0, "Now in effect: execute.slots") == (good.code, good.lines[0])
    assert (1, 1, "") == (bad.code, as_json.code, bad.out)
    assert not as_json.json["settings"]["taken"]
    assert "language" in bad.err


def test_without_a_daemon_there_is_nothing_to_reload(handoffd: Commands) -> None:
    """It reads all of it when it starts."""
    said = handoffd("reload")

    assert 3 == said.code
    assert "handoffd run" in said.err


# --- token ------------------------------------------------------------------------------------------
def test_a_token_is_made_printed_and_replaced(handoffd: Commands) -> None:
    """It is the same until it is rotated."""
    first = handoffd("token").out.strip()
    printed = handoffd("token", "--json").json
    second = handoffd("token", "--rotate").out.strip()

    assert first == printed["token"]
    assert first != second
    assert second == handoffd("token").out.strip()


def test_a_token_from_the_settings_is_not_printed(handoffd: Commands, tmp_path: Path) -> None:
    """Perhaps only the daemon can read it."""
    file = tmp_path / "handoffd.yaml"
    file.write_text("control: {tcp: {port: 8321, token: {credential: token}}}\n", encoding="utf-8")

    said = handoffd("--config", str(file), "token")

    assert (1, "") == (said.code, said.out)
    assert "control.tcp.token" in said.err


# --- metrics ----------------------------------------------------------------------------------------
@pytest.fixture
def dashboard(handoffd: Commands) -> dict[str, Any]:
    """The dashboard for Grafana."""
    found: dict[str, Any] = json.loads(handoffd("metrics", "--dashboard").out)
    return found


def test_the_dashboard_can_be_imported(dashboard: dict[str, Any]) -> None:
    """With a data source that Grafana asks for, and no panel without a query."""
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]

    assert len(panels) > 15
    assert all(target["expr"] for panel in panels for target in panel["targets"])
    assert "datasource" == dashboard["templating"]["list"][0]["type"]


def test_a_panel_shows_bytes_as_bytes(dashboard: dict[str, Any]) -> None:
    """Anything else in it has an axis of its own."""
    for panel in dashboard["panels"]:
        targets = panel.get("targets", [])
        if not any("_bytes" in target["expr"] for target in targets):
            continue
        config = panel["fieldConfig"]
        apart = {
            one["matcher"]["options"]
            for one in config["overrides"]
            if "custom.axisPlacement" in {changed["id"] for changed in one["properties"]}
        }
        assert "bytes" == config["defaults"]["unit"], panel["title"]
        assert {one["legendFormat"] for one in targets if "_bytes" not in one["expr"]} == apart


def test_spending_outlives_a_restart(dashboard: dict[str, Any]) -> None:
    """The sum of a day comes from the journal, not from what one process has counted."""
    (spent,) = [panel for panel in dashboard["panels"] if panel["title"] == "Spent in 24 h"]

    assert ["handoffd_spent_usd"] == [
        name for one in spent["targets"] for name in re.findall(r"handoffd_\w+", one["expr"])
    ]


def test_the_alerts_say_what_to_type(handoffd: Commands) -> None:
    """One of them fires in every condition in which nothing is dispatched, but before the first story."""
    text = handoffd("metrics", "--alerts").out

    groups = yamltext.load(text, file="alerts.yaml").data["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) >= 5
    assert all(rule["annotations"].keys() == {"summary", "description"} for rule in rules)
    (left_out,) = re.findall(r'handoffd_projects\{condition!~"([a-z_|]*)"\}', text)
    assert WORKABLE | {"not_initialized"} == set(left_out.split("|"))


def test_a_refusal_of_the_daemon_is_shown(control: Controlled, handoffd: Commands) -> None:
    """As by every command."""
    said = handoffd("metrics")

    assert 4 == said.code
    assert "handoffd run" in said.err


# --- trust ------------------------------------------------------------------------------------------
HELD = (
    HeldSetting(key="caps.story_usd", before=5.0, now=20.0),
    HeldSetting(key="language", before="en", now="zh-TW", guarded=False),
)


def test_an_edit_that_waits_is_shown_and_trusted_only_by_a_word(
    control: Controlled, handoffd: Commands
) -> None:
    """All of it; without a terminal only `--yes` is an answer."""
    control.renewing.view = SettingsView(file="/etc/h.yaml", held=HELD)

    seen, as_json = handoffd("trust", "--daemon"), handoffd("trust", "--daemon", "--json")
    again = handoffd("reload")
    assert [
        "This edit of /etc/h.yaml waits for you (* for these):",
        "* caps.story_usd: 5.0 -> 20.0",
        '  language: "en" -> "zh-TW"',
        "  next: handoffd trust --daemon --yes",
    ] == seen.lines
    assert (1, 1, False) == (seen.code, as_json.code, as_json.json["trusted"])
    assert (1, True) == (again.code, again.err.rstrip().endswith("next: handoffd trust --daemon"))

    given = handoffd("trust", "--daemon", "--yes")
    assert (0, "Trusted: it applies to a running daemon now.") == (given.code, given.lines[-1])
    assert "No edit of the daemon's settings waits for you." == handoffd("trust", "--daemon").lines[0]
    assert 2 == handoffd("trust", "--daemon", "shop").code


def test_a_terminal_is_recorded_with_the_account() -> None:
    """So a person knows which of several gave a verb; a script has none."""
    code = "from handoffd.entrance.requests import asker; print(asker())"
    ours, theirs = os.openpty()
    terminal = os.ttyname(theirs).removeprefix("/dev/")
    command = [sys.executable, "-c", code]
    told = [
        subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=True).stdout
        for stdin in (theirs, subprocess.DEVNULL)
    ]
    os.close(ours)
    os.close(theirs)

    assert [f"{account()} on {terminal}\n", f"{account()}\n"] == told
