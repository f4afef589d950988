"""handoffd's service in a box, in either of its forms, as the person knows it who looks after it."""

from __future__ import annotations

import contextlib
import enum
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.eventually import eventually_sync
from tests.systemd.box import Box, Done

PROGRAM = "/opt/tested/bin/handoffd"
SECRET = "sk-secret"

_SETTINGS = """\
workspaces: [{projects}]
execute:
  keys:
    ANTHROPIC_API_KEY: {{credential: anthropic}}
"""


class Form(enum.StrEnum):
    """Whose systemd has the units."""

    USER = "user"
    SYSTEM = "system"


class Begun(NamedTuple):
    """A start of the agent, as it noted it down."""

    run: str
    step: str
    pid: int


class Service:
    """The service of an account of its own. What differs between the forms is in here, and nowhere else."""

    def __init__(self, box: Box, form: Form) -> None:
        """Make the account; nothing is installed yet."""
        self.box = box
        self.form = form
        own = form is Form.USER
        self.account = "bob" if own else "robots"
        self.login = self.account
        self.program = PROGRAM
        home = f"/home/{self.account}"
        self.settings = f"{home}/.config/handoffd/handoffd.yaml" if own else "/etc/handoffd/handoffd.yaml"
        self.secret = f"{home}/.secrets/anthropic" if own else "/etc/handoffd/secrets/anthropic"
        self.projects = f"{home}/projects"
        self.state_dir = f"{home}/.local/state/handoffd" if own else f"/var/lib/handoffd/{self.account}"
        self.units = f"{home}/.config/systemd/user" if own else "/etc/systemd/system"
        self.daemon = "handoffd" if own else f"handoffd@{self.account}"
        self.launcher = "handoffd-launcher" if own else f"handoffd-launcher@{self.account}"
        box.must(f"useradd --create-home --shell /bin/bash {self.account}; install -d -m 755 /etc/handoffd")
        if own:
            box.must(f"loginctl enable-linger {self.account}")

    # --- what is typed --------------------------------------------------------------------------------
    def types(self, script: str) -> Done:
        """Return what came of a shell script that the account types, with `handoffd` on its PATH."""
        script = f"PATH={Path(self.program).parent}:$PATH; {script}"
        if self.form is Form.USER:
            return self.box.run(script, user=self.account)
        folders = f"HANDOFFD_STATE_DIR={self.state_dir} HANDOFFD_RUNTIME_DIR=/run/handoffd/{self.account}"
        return self.box.run(f"cd /; sudo -H -u {self.login} env {folders} bash -c {shlex.quote(script)}")

    def must(self, script: str) -> str:
        """Return what a script of the account printed, which has to succeed."""
        done = self.types(script)
        assert done.returncode == 0, f"{script}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def administers(self, script: str) -> Done:
        """Return what came of a script of the one who may start and stop the units."""
        return self.box.run(script, user=self.account if self.form is Form.USER else None)

    def service(self, words: str) -> Done:
        """Return what `handoffd service` answered."""
        verb, _, options = words.partition(" ")
        scope = "" if self.form is Form.USER else f"--system --user {self.account}"
        return self.administers(f"{self.program} service {verb} {scope} {options}")

    def systemctl(self, words: str) -> Done:
        """Return what systemctl answered, about this service's systemd."""
        return self.administers(f"{self.manager} {words}")

    @property
    def manager(self) -> str:
        """The command that speaks to its systemd."""
        return self._of("systemctl")

    def _of(self, program: str) -> str:
        return f"{program} --user" if self.form is Form.USER else program

    def analyze(self, words: str) -> Done:
        """Return what systemd-analyze answered."""
        return self.administers(f"{self._of('systemd-analyze')} {words}")

    @contextlib.contextmanager
    def drop_in(self, unit: str, text: str) -> Iterator[None]:
        """Have a unit begin anew with other settings of systemd's, for a while."""
        file = self.box.path(f"{self.units}/{unit}.service.d/tested.conf")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        anew = f"{self.manager} daemon-reload && {self.manager} restart {unit}"
        try:
            assert 0 == self.administers(anew).returncode
            yield
        finally:
            file.unlink()
            self.systemctl("daemon-reload")

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit, as systemd has it."""
        return self.systemctl(f"show --value -p {name} {unit}").stdout.strip()

    def main_pid(self, unit: str) -> int:
        """Return the main process of a unit; 0: none."""
        return int(self.show(unit, "MainPID"))

    def log(self, unit: str) -> str:
        """Return what a unit, and systemd about it, has logged in this boot."""
        return self.administers(f"{self._of('journalctl')} -b -o cat -u {unit}").stdout

    @property
    def exposure(self) -> float:
        """How exposed systemd finds the daemon's unit, of 10."""
        judged = self.analyze(f"security --no-pager {self.daemon}").stdout
        (level,) = re.findall(r"Overall exposure level for \S+: ([0-9.]+)", judged)
        return float(level)

    def json(self, words: str) -> Any:
        """Return what a verb with --json answered."""
        return json.loads(self.must(f"handoffd {words} --json"))

    # --- its life -------------------------------------------------------------------------------------
    def install(self) -> None:
        """Have it installed and running, as the page says; does nothing when it runs."""
        if self.show(self.daemon, "ActiveState") != "active":
            self._install()
        self.answers()

    def _install(self) -> None:
        folders = f"{Path(self.settings).parent} {Path(self.secret).parent}"
        made = self.administers(f"mkdir -p {folders} && install -m 600 /dev/null {self.secret}")
        assert made.returncode == 0, made.stderr
        self.box.must(f"install -d -o {self.account} -g {self.account} {self.projects}")
        self.box.path(self.secret).write_text(SECRET, encoding="utf-8")
        settings = _SETTINGS.format(projects=self.projects)
        self.box.path(self.settings).write_text(settings, encoding="utf-8")
        done = self.service(f"install --credential anthropic={self.secret}")
        assert done.returncode == 0, done.stdout + done.stderr

    def answers(self) -> None:
        """Wait until the daemon answers."""
        eventually_sync(lambda: '"daemon": true' in self.types("handoffd status --json").stdout)

    def remove(self) -> None:
        """End it and what it runs, and forget it."""
        self.types("handoffd stop --executors")
        self.service("uninstall --purge")


class Story:
    """A project with a story in flight, whose agent waits for the word to finish."""

    def __init__(self, service: Service, name: str, *, leaves: int | None = None) -> None:
        """Start it, and wait for its agent, which answers SIGTERM with the exit code `leaves`, if any."""
        self.service = service
        self.path = f"{service.projects}/{name}"
        self._desk = f"/var/tmp/desks/{service.account}-{name}"
        if leaves is not None:
            service.box.must(f"install -d -m 1777 {self._desk} && echo {leaves} > {self._desk}/leaves")
        service.must(
            f"git init -q {self.path} && handoffd init {self.path} && handoffd start {self.path} US-001"
        )
        self.agent = self.after(0)

    @property
    def begun(self) -> list[Begun]:
        """Every start of its agent."""
        file = self.service.box.path(f"{self._desk}/begun")
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [Begun(run, step, int(pid)) for run, step, pid in map(str.split, lines)]

    def after(self, starts: int) -> Begun:
        """Wait for the start after the first `starts`, and return it."""
        return eventually_sync(lambda: self.begun[starts:])[0]

    @property
    def works(self) -> bool:
        """Whether the agent that was started first works; after a reboot another process may have its pid."""
        return f"HANDOFFD_RUN={self.agent.run}" in self.service.box.environment(self.agent.pid)

    def finish(self, step: str = "bootstrap") -> None:
        """Let the agent hand over a step."""
        self.service.box.path(f"{self._desk}/{step}").touch()

    @property
    def key(self) -> str:
        """The key that the latest agent was given."""
        return self.service.box.path(f"{self._desk}/key").read_text(encoding="utf-8")

    @property
    def track(self) -> dict[str, Any]:
        """Its only track, by `handoffd status`."""
        projects = self.service.json("status")["projects"]
        (project,) = [project for project in projects if project["project"] == self.path]
        track: dict[str, Any] = project["tracks"][0]
        return track

    @property
    def runs(self) -> list[dict[str, Any]]:
        """Its runs, the latest first."""
        runs: list[dict[str, Any]] = self.service.json(f"runs {self.path}")["runs"]
        return runs

    def goes_on(self) -> None:
        """Have its agent finish: the result is applied once, and the next step begins."""
        assert [self.agent] == self.begun, "it was started once"
        assert self.works
        self.finish()
        assert "bdd" == self.after(1).step
        assert self.agent.run == self.runs[1]["run"]
        assert "pass" == self.runs[1]["result"]
        assert 2 == len(self.begun)

    def is_begun_again(self) -> None:
        """See its first run lost: the same step is begun again, once, and has cost no attempt."""
        again = self.after(1)
        assert again.step == self.agent.step
        assert again.run != self.agent.run
        assert not self.works
        track = self.track
        assert ("bootstrap", 1, "running") == (track["step"], track["attempt"], track["status"])
        assert [again.run, self.agent.run] == [run["run"] for run in self.runs]
        assert self.runs[1]["exit"]["by"] in {"lost", "outside", "stop"}
        assert 2 == len(self.begun)

    def close(self) -> None:
        """End it, and have the daemon forget it."""
        self.service.types(f"handoffd abort {self.path}")
        remove = f"handoffd remove {self.path} 2>&1"
        eventually_sync(lambda: "has an executor running" not in self.service.types(remove).stdout)
        self.service.types(f"rm -rf {self.path}")
