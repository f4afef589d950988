"""Limits of memory and tasks in both forms of the service: one run meets its limit, the others go on."""

from __future__ import annotations

import base64
import enum
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.support.eventually import eventually_sync
from tests.systemd.vm.image import PROGRAM
from tests.systemd.vm.machine import Machine

AGENT = Path(__file__).with_name("agent.sh")
PROJECTS = ("greedy", "builder", "forker", "calm")
MIB = 1 << 20
LIMIT_MIB, TASKS = 96, 40
WITHIN_S = 900
"""The machine is 80 times slower than others."""

SETTINGS = """\
workspaces: [/srv/{account}]
executor: agent
executors:
  agent: {{extends: command, argv: [/usr/local/bin/agent]}}
execute: {{slots: 8, memory_max: {limit}, tasks_max: {tasks}, min_free_mb: 0}}
scheduling: {{min_free_memory_mb: 0}}
schedule: {{poll_s: 2}}
"""


class Form(enum.StrEnum):
    """How the service is installed."""

    SYSTEM = "system"
    USER = "user"


class Service:
    """The service of one account, with a project for each thing that an agent can do."""

    def __init__(self, machine: Machine, form: Form) -> None:
        """Install it, with a story in each project."""
        self.machine, self.form, self.account = machine, form, f"by-{form}"
        instance = "" if form is Form.USER else f"@{self.account}"
        self.launcher, self.daemon = f"handoffd-launcher{instance}", f"handoffd{instance}"
        machine.must(
            f"useradd --create-home --shell /bin/bash {self.account}; loginctl enable-linger {self.account}\n"
            f"install -d -o {self.account} /srv/{self.account} /var/tmp/{self.account}"
        )
        self._put("/usr/local/bin/agent", AGENT.read_text("utf-8"), mode=755)
        self.settle(f"{LIMIT_MIB}M")
        if form is Form.USER:
            self.types("handoffd service install")
        else:
            machine.must(f"{PROGRAM} service install --system --user {self.account}")
        for project in PROJECTS:
            root = f"/srv/{self.account}/{project}"
            self.types(f"git init -q {root} && handoffd init {root} && handoffd start {root} US-001")

    def settle(self, limit: str) -> None:
        """Write the settings with this limit of memory."""
        home = f"/home/{self.account}/.config/handoffd"
        text = SETTINGS.format(account=self.account, limit=limit, tasks=TASKS)
        self.machine.must(f"install -d -o {self.account} /home/{self.account}/.config {home}")
        self._put(f"{home}/handoffd.yaml", text, mode=644)

    def _put(self, path: str, text: str, *, mode: int) -> None:
        raw = base64.b64encode(text.encode()).decode()
        self.machine.must(f"base64 -d <<< {raw} > {path}; chmod {mode} {path}")

    def types(self, script: str) -> str:
        """Return what commands print that succeed, typed by the account."""
        places = (
            ""
            if self.form is Form.USER
            else f"export HANDOFFD_STATE_DIR=/var/lib/handoffd/{self.account}"
            f" HANDOFFD_RUNTIME_DIR=/run/handoffd/{self.account}\n"
        )
        return self.machine.must(f"export PATH=/opt/handoffd/bin:$PATH\n{places}{script}", user=self.account)

    def systemctl(self, words: str) -> str:
        """Return what systemctl says to its manager."""
        if self.form is Form.SYSTEM:
            return self.machine.must(f"systemctl {words}")
        return self.machine.must(f"systemctl --user {words}", user=self.account)

    def limits(self) -> list[int]:
        """Return the memory limits of the current runs."""
        group = shlex.quote(
            "/sys/fs/cgroup" + self.systemctl(f"show -P ControlGroup {self.launcher}").strip()
        )
        said = self.machine.must(f"cat {group}/handoffd-run-*/memory.max || true").split()
        return [int(word) for word in said if word.isdigit()]

    def runs(self) -> dict[str, list[dict[str, Any]]]:
        """Return the runs of each project, the latest first."""
        found: dict[str, list[dict[str, Any]]] = {}
        for run in json.loads(self.types("handoffd runs --json"))["runs"]:
            found.setdefault(run["name"], []).append(run)
        return found

    def waiting(self) -> dict[str, str]:
        """Return why each project goes on with nothing: it is paused, or a person has to look at it."""
        told = json.loads(self.types("handoffd status --json"))["projects"]
        found = {one["name"]: (one["paused_by"], one["tracks"][0]) for one in told if one["tracks"]}
        return {
            name: f"{paused}: {track['last_error']}"
            for name, (paused, track) in found.items()
            if paused or track["status"] == "needs_human"
        }


@pytest.fixture(scope="module", params=list(Form), ids=str)
def service(request: pytest.FixtureRequest, machine: Machine) -> Service:
    """A service of each form; each test goes on where the one before has left it."""
    return Service(machine, request.param)


def test_a_run_that_meets_a_limit_is_told_as_that_and_the_others_go_on(service: Service) -> None:
    """The agent, a tool of its, and one that wants too many tasks; each run says how much it had at most."""
    eventually_sync(lambda: set(PROJECTS) - {"calm"} <= service.waiting().keys(), within_s=WITHIN_S)
    runs = service.runs()

    assert ["memory_limit"] * 2 == [run["result"] for run in runs["greedy"]]
    for run in runs["greedy"]:
        assert LIMIT_MIB * MIB == run["exit"]["footprint"]["memory_max"]
        assert 90 * MIB < run["memory_peak"] <= LIMIT_MIB * MIB
    builder = runs["builder"][-1]
    assert ("pass", 1) == (builder["result"], builder["exit"]["footprint"]["memory_kills"])
    forker = runs["forker"][-1]
    assert TASKS == forker["tasks_peak"]
    assert f"execute.tasks_max: {TASKS}" in forker["why"]

    why = service.waiting()["greedy"]
    assert "agent needs more memory than execute.memory_max allows" in why
    assert f"ended by the kernel at its memory limit (execute.memory_max: {LIMIT_MIB} MiB)" in why
    assert [None] == [run["result"] for run in runs["calm"]], "it runs"
    assert ["0", "0"] == service.systemctl(f"show -P NRestarts {service.daemon} {service.launcher}").split()
    assert "enforced for each run" in service.types("handoffd doctor || true")


def test_a_launcher_that_is_restarted_or_killed_leaves_a_run_its_limits(service: Service) -> None:
    """The kernel lets the next one in, and what was counted before is not lost."""
    for ended in ("restart", "kill --signal=KILL --kill-who=main"):
        before = service.systemctl(f"show -P MainPID {service.launcher}")
        service.systemctl(f"{ended} {service.launcher}")

        def is_followed(before: str = before) -> bool:
            pid, state = service.systemctl(f"show -P MainPID -P ActiveState {service.launcher}").split()
            return pid not in (before.strip(), "0") and state == "active"

        eventually_sync(is_followed, within_s=WITHIN_S)
        eventually_sync(lambda: service.limits() == [LIMIT_MIB * MIB], within_s=WITHIN_S)
    assert [None] == [run["result"] for run in service.runs()["calm"]], "it runs"

    service.machine.must(f"touch /var/tmp/{service.account}/go")
    eventually_sync(lambda: "calm" in service.waiting(), within_s=WITHIN_S)
    calm = service.runs()["calm"][-1]
    assert ("pass", LIMIT_MIB * MIB) == (calm["result"], calm["exit"]["footprint"]["memory_max"])
    assert calm["memory_peak"] > MIB


def test_another_limit_ends_the_pause(service: Service) -> None:
    """The daemon follows its settings' file, and the next run has the new limit; no person types anything."""
    service.settle("512M")

    eventually_sync(lambda: "None: " in service.waiting().get("greedy", ""), within_s=WITHIN_S)
    run = service.runs()["greedy"][0]
    assert ("pass", 512 * MIB) == (run["result"], run["exit"]["footprint"]["memory_max"])
    assert run["memory_peak"] > 300 * MIB
