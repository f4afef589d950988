"""An agent that tries to get out of its sandbox, under the real daemon; and one that stays behind."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.agents import GATED, project_at, shell_agent
from tests.support.commands import environment_of, program, typed
from tests.support.daemon import Daemon, Json, running
from tests.support.eventually import eventually_sync
from tests.support.house import HAND_OVER
from tests.support.runs import PYTHON, launchers, processes, script
from tests.support.sandboxes import require_namespaces

from handoffd.execute.base import StartRecord
from handoffd.execute.run import claimed
from handoffd.execute.runner import proc
from handoffd.execute.sandbox.kernel import landlock_version
from handoffd.execute.sandbox.plan import SCOPES_SINCE

pytestmark = pytest.mark.usefixtures("namespaces")

ONLY_THE_PROJECT: Json = {"writable": []}
"""As a daemon has it whose settings say nothing."""


@pytest.fixture
def namespaces() -> None:
    """Skip the test where no sandbox can be made."""
    require_namespaces()


def repository(root: Path) -> Path:
    """Return a project with a git repository, and one step before its review."""
    project = project_at(root, rules=GATED)
    (project / ".git/hooks").mkdir(parents=True)
    (project / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (project / ".git/config").write_text("[core]\n")
    return project


def home(base: Path) -> Path:
    """Return a home with a key in it."""
    (base / "home/.ssh").mkdir(parents=True)
    (base / "home/.ssh/id").write_text("a key\n")
    return base / "home"


class Intruder:
    """A daemon with two projects, and an agent that tries to get out of the first."""

    def __init__(self, base: Path, sandbox: Json) -> None:
        self.project, self.other = repository(base / "shop"), project_at(base / "blog", rules=GATED)
        self.home = home(base)
        self.abstract = f"handoffd-test-{os.getpid()}"
        self.outside = base / "outside"
        self.daemon = Daemon(base, lambda daemon: self._settings(daemon, sandbox))
        self.daemon.environment["HOME"] = str(self.home)

    def _settings(self, daemon: Daemon, sandbox: Json) -> Json:
        self._facts: dict[str, Any] = {
            "state": str(daemon.state_dir),
            "socket": str(daemon.socket),
            "settings": str(daemon.config) if hasattr(daemon, "_config") else "",
            "other": str(self.other),
            "home": str(self.home),
            "outside": str(self.outside),
            "abstract": self.abstract,
            "pid": 0,
            "only": [],
        }
        return self.settings(sandbox)

    def settings(self, sandbox: Json) -> Json:
        """Return the daemon's settings, with the facts that the agent gets."""
        argv = [*script("intruder"), json.dumps(self._facts)]
        agent = {"extends": "command", "argv": argv}
        return {"executors": {"intruder": agent}, "executor": "intruder", "sandbox": sandbox}

    def loot(self, sandbox: Json, *only: str) -> list[str]:
        """Return what the agent has achieved, of all that it knows or of what is named."""
        self.daemon.start()
        self.daemon.post("/v1/projects", {"project": str(self.other)})
        self._facts |= {"pid": self.daemon.pid, "settings": str(self.daemon.config), "only": only}
        self.daemon.configure(self.settings(sandbox))
        self.daemon.post("/v1/reload", {})
        self.daemon.to_review(self.project)
        found: list[str] = json.loads((self.project / "loot.json").read_text())
        return found


@pytest.fixture
def intruder(tmp_path: Path) -> Iterator[Intruder]:
    """The intruder, whose daemon is ended afterwards."""
    made = Intruder(tmp_path, ONLY_THE_PROJECT)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"\0{made.abstract}")
            listener.listen()
            yield made
    finally:
        made.daemon.close()


@pytest.mark.skipif(landlock_version() < SCOPES_SINCE, reason="this kernel's Landlock has no scopes")
def test_an_intruder_gets_nothing(intruder: Intruder) -> None:
    """And none of its attempts had an effect."""
    loot = intruder.loot(ONLY_THE_PROJECT)

    assert ["write outside"] == loot  # it was in a /tmp of its own
    assert "needs_human" == intruder.daemon.track(intruder.project)["status"]
    assert not intruder.outside.exists()
    assert "A shop.\n" == (intruder.other / "PROJECT_CONTEXT.md").read_text()
    assert {".ai", ".git"} <= set(os.listdir(intruder.project))
    assert [] == os.listdir(intruder.project / ".git/hooks")
    assert "[core]\n" == (intruder.project / ".git/config").read_text()


def test_without_a_sandbox_the_same_intruder_gets_it_all(intruder: Intruder) -> None:
    """So the attempts are real ones; what would harm the machine is left out."""
    harmless = [
        "write outside", "read the journal", "list the state directory", "list the runtime directory",
        "read the settings", "read another project", "read a key", "write a hook", "write git's settings",
        "see the daemon", "reach an abstract socket",
    ]  # fmt: skip

    assert harmless == intruder.loot({"level": "off"}, *harmless)


def test_checks_run_in_the_same_sandbox(tmp_path: Path) -> None:
    """The tests were written by the agent; they report, and see no more than it does."""
    project = repository(tmp_path / "shop")
    tests = "ls {0} {1} > seen 2>&1; echo evil >> .git/config; printf '1..1\\nok 1\\n' > $1"
    command = [
        "/bin/sh",
        "-c",
        tests.format(home(tmp_path) / ".ssh", tmp_path / "state"),
        "tests",
        "{report}",
    ]
    settings = {"test": {"command": command, "report": "tap"}}
    (project / ".ai/handoffd.yaml").write_text(json.dumps(settings))
    (project / ".ai/step-rules.yaml").write_text(
        "steps: {bdd: {next_on_pass: review, tests: green, post_check: 'ls /proc | grep -c ^[0-9] > post'}, "
        "review: {next_on_pass: done}}\n"
    )
    agent = {
        "executors": {"agent": shell_agent(tmp_path, f"cat > /dev/null\n{HAND_OVER}")},
        "executor": "agent",
    }
    with running(tmp_path, {**agent, "sandbox": ONLY_THE_PROJECT}, HOME=str(tmp_path / "home")) as daemon:
        daemon.to_review(project)

        assert 1 == daemon.runs(project)[0]["tests"]["pass"]
    seen = (project / "seen").read_text()
    assert "home/.ssh': No such file or directory" in seen
    assert "journal.db" not in seen
    assert int((project / "post").read_text()) < 10
    assert "[core]\n" == (project / ".git/config").read_text()


def test_a_person_sees_what_the_sandbox_refused(tmp_path: Path) -> None:
    """By the words of the program that met it, and only what is outside of the project."""
    project, outside = repository(tmp_path / "shop"), "/usr/local/bin/handoffd-evil"
    text = f"cat > /dev/null\ntouch {outside} $PWD/.git/hooks/x\n{HAND_OVER}"
    agent = {"executors": {"agent": shell_agent(tmp_path, text)}, "executor": "agent"}
    with running(tmp_path, agent) as daemon:
        daemon.to_review(project)
        run = daemon.runs(project)[0]["run"]

        assert [outside] == daemon.get("/v1/run", run=run)["commands"][0]["refused"]
        assert f"out of reach, as its output says: {outside}" in typed(daemon, "show", run).out


def test_nothing_stays_when_daemon_launcher_and_shim_are_killed(tmp_path: Path) -> None:
    """Not even a process that has done everything to be forgotten: the namespace ends with its shim."""
    project = repository(tmp_path / "shop")
    word = f"handoffd-left-{os.getpid()}"
    fork = "if os.fork(): os._exit(0)\nos.setsid()\n"
    hide = f"import os, time\n{fork}{fork}time.sleep(600) # {word}"
    text = f"cat > /dev/null\nenv -i {PYTHON} -I -S -c '{hide}'\ntouch ready\nsleep 600\n"
    agent = {"executors": {"agent": shell_agent(tmp_path, text)}, "executor": "agent"}
    with running(tmp_path, agent) as daemon:
        daemon.begin(project)
        eventually_sync((project / "ready").exists)
        eventually_sync(lambda: processes(word))
        run = claimed(next((daemon.state_dir / "runs").iterdir()))
        assert run is not None
        daemon.kill()
        for pid in (*launchers(daemon.runtime_dir / "launcher.sock"), run.shim_pid):
            os.kill(pid, signal.SIGKILL)

        eventually_sync(lambda: processes(word) == [])


APPROVER = """
import http.client, json, os, socket, sys
class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
asking = Connection("handoffd")
asking.request("POST", "/v1/verbs/approve", json.dumps({"project": sys.argv[2], "by": "a person"}))
with open(sys.argv[3], "ab") as file:
    file.write(asking.getresponse().read() + b"\\n")
"""
"""A command of notices that opens a gate: the daemon's socket, the project, and a file for the answer."""


def test_settings_that_an_agent_writes_run_nothing(tmp_path: Path) -> None:
    """Without a sandbox it can write them: they wait for a person. And the daemon's children give no verb."""
    project, said = repository(tmp_path / "shop"), tmp_path / "said"
    (tmp_path / "approver.py").write_text(APPROVER)
    edit = f"cp {tmp_path}/evil.yaml {tmp_path}/handoffd.yaml"
    agent = shell_agent(tmp_path, f"cat > /dev/null\n{edit}\n{HAND_OVER}")
    settings: Json = {"executors": {"agent": agent}, "executor": "agent", "sandbox": {"level": "off"}}
    with running(tmp_path, settings) as daemon:
        given = map(str, (tmp_path / "approver.py", daemon.socket, project, said))
        command = ["env", "-i", PYTHON, *given]
        evil = json.loads(daemon.config.read_text()) | {"notify": {"command": command}}
        (tmp_path / "evil.yaml").write_text(json.dumps(evil))
        daemon.to_review(project)
        eventually_sync(lambda: "notify.command" in str(daemon.get("/v1/status")["warnings"]))
        daemon.kill()
        daemon.start()
        eventually_sync(lambda: "notify.command" in str(daemon.get("/v1/status")["warnings"]))
        daemon.post("/v1/notices/test", {})
        assert not said.exists()

        assert 1 == typed(daemon, "trust", "--daemon").code
        shown = typed(daemon, "trust", "--daemon", "--yes")
        assert (0, True) == (shown.code, f"-> {json.dumps(command)}" in shown.out)
        daemon.post("/v1/notices/test", {})
        assert "INSIDE_EXECUTOR" in said.read_text()
        assert "needs_human" == daemon.track(project)["status"]


def test_without_a_daemon_a_program_of_a_run_is_no_person_either(tmp_path: Path) -> None:
    """It gets no token, trusts no settings, and gives no verb."""
    project = repository(tmp_path / "shop")
    with running(tmp_path, {"sandbox": {"level": "off"}}) as daemon:
        daemon.verb("add", project)
    daemon.edit({"sandbox": {"level": "off"}, "auto_continue": True})
    marked = {**environment_of(daemon), "HANDOFFD_RUN": "20260131T221509-1f2e3d4c"}
    for words in (("token",), ("trust", "--daemon", "--yes"), ("pause", str(project))):
        said = program("--config", str(daemon.config), *words, env=marked)
        assert (1, True) == (said.code, "for people" in said.out + said.err), words


def test_the_recorded_program_is_the_agents_own_and_so_is_its_level(tmp_path: Path) -> None:
    """A person who looks for it in `ps` finds it, and a signal reaches it."""
    project = repository(tmp_path / "shop")
    agent = {"executors": {"agent": shell_agent(tmp_path, "exec sleep 600\n")}, "executor": "agent"}
    with running(tmp_path, agent) as daemon:
        track = daemon.started(project)

        (record,) = daemon.state_dir.glob("runs/*/start.json")
        assert b"sleep\x00600\x00" == eventually_sync(lambda: _sleeping(track["pid"]))
        assert StartRecord.from_json(record.read_text()).sandbox in {"strict", "namespaces"}
        os.kill(track["pid"], signal.SIGTERM)
        eventually_sync(lambda: daemon.runs(project)[0]["ended_at"] is not None)


def _sleeping(pid: int) -> bytes | None:
    command = proc.read(f"/proc/{pid}/cmdline") or b""
    return command if command.startswith(b"sleep") else None
