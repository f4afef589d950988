"""A real daemon in its own process, with its own state, for tests that need all of it.

Talks to it over the real socket with a foreign HTTP client. Everything lives below one temporary
folder; leaving the context ends the daemon, its executors and its launcher.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
from tests.support.eventually import eventually_sync
from tests.support.leaks import FOLDERS
from tests.support.nursery import Forked, Nursery
from tests.support.sandboxes import is_possible

from handoffd.api.unix_socket import listener_of
from handoffd.rehearsal.sample import create

Json = dict[str, Any]
REPOSITORY = Path(__file__).parents[2]
EXECUTORS = Path(__file__).parent / "executors"

_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""In place of one for each request, which would read the machine's certificates: 15 ms each time."""

PYTEST = [sys.executable, "-m", "pytest", "-q", "--continue-on-collection-errors", "--junitxml={report}"]
"""The sample's tests by the runner that a user would take."""
QUICK = [sys.executable, "-I", "-S", str(EXECUTORS / "quick_tests.py"), "{report}"]
"""The same in a twentieth of the time, where the runner is not the point."""


class Daemon:
    """One state directory and, while it runs, the daemon that owns it."""

    def __init__(self, base: Path, settings: Callable[[Daemon], Json] | Json | None = None) -> None:
        self.base = base
        self.state_dir = base / "state"
        # A socket's path has room for about a hundred bytes, and pytest's folders are deep.
        self.runtime_dir = Path(tempfile.mkdtemp(prefix=FOLDERS))
        self.socket = self.runtime_dir / "control.sock"
        self.notices = base / "notices.jsonl"
        self.start_log = base / "starts.jsonl"
        self.environment: dict[str, str] = {}
        """What the daemon finds in its environment beside what every test has there."""
        self.prefix: tuple[str, ...] = ()
        """Words before the daemon's command."""
        self.module: tuple[str, ...] = ("handoffd", "run", "--config")
        """What is run, up to the settings file."""
        self.fresh = False
        """Whether it begins in an interpreter of its own though nothing above asks for that."""
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._edited = True
        """Whether a person has to trust the settings before the next start."""
        self._config = base / "handoffd.yaml"
        self._write_config(settings(self) if callable(settings) else settings or {})

    def _write_config(self, settings: Json) -> None:
        sink = self.base / "sink.sh"
        sink.write_text(f"#!/bin/sh\ncat >> {self.notices}\n")
        sink.chmod(0o755)
        whole: Json = {
            "state_dir": str(self.state_dir),
            "runtime_dir": str(self.runtime_dir),
            "executor": "rehearsal",
            "notify": {"command": [str(sink)]},
            "schedule": {"poll_s": 0.2},
            **settings,
        }
        execute = whole.setdefault("execute", {})
        execute.setdefault("env_allow", [*_ALLOWED, "HANDOFFD_REHEARSAL_LOG", *_PYTEST])
        execute.setdefault("min_free_mb", 0)  # tests also run on small disks
        # Agents of tests keep their diaries beside their projects, and some scripts run this checkout.
        sandbox = whole.setdefault("sandbox", {})
        sandbox.setdefault("level", "auto" if is_possible() else "off")
        sandbox.setdefault("writable", [str(self.base)])
        sandbox.setdefault("visible", [sys.prefix, str(REPOSITORY / "daemon"), str(REPOSITORY / "config")])
        whole.setdefault("scheduling", {}).setdefault("min_free_memory_mb", 0)
        self._config.write_text(json.dumps(whole))  # JSON is YAML

    def configure(self, settings: Json) -> None:
        """Replace the settings, like an editor, and trust them, as a person does."""
        self.edit(settings)
        if self._process is None:
            self._edited = True
        elif "sign" in (seen := self.post("/v1/settings/trust", {})):  # else they cannot be used
            self.post("/v1/settings/trust", {"sign": seen["sign"]})

    def edit(self, settings: Json) -> None:
        """Replace the settings, like an editor."""
        before = self._config
        self._config = before.with_suffix(".new")
        self._write_config(settings)
        self._config = self._config.rename(before)

    @property
    def config(self) -> Path:
        """The settings file."""
        return self._config

    # --- its life --------------------------------------------------------------------------------
    def start(self) -> None:
        """Start the daemon and wait until it answers."""
        self.launch()
        eventually_sync(self._answers)

    def refusal(self) -> int:
        """Start a daemon that will not stay; return its exit code."""
        process = self.launch()
        self._process = None
        return process.wait(60)

    def launch(self) -> subprocess.Popen[bytes] | Forked:
        """Start the daemon, whether it comes to answering or not."""
        if self._edited and self.state_dir.joinpath("journal.db").exists():
            words = ("--config", str(self._config), "trust", "--daemon", "--yes")
            path = {**os.environ, "PYTHONPATH": str(REPOSITORY / "daemon"), **self.environment}
            command = [sys.executable, "-m", "handoffd", *words]
            subprocess.run(command, env=path, capture_output=True, check=False)
        self._edited = False
        environment = {
            **os.environ,
            "HANDOFFD_REHEARSAL_LOG": str(self.start_log),
            **_PYTEST,
            "PYTHONPATH": str(REPOSITORY / "daemon"),
            **self.environment,
        }
        log = self.base / "daemon.log"
        if Nursery.lent is not None and self._may_be_forked:
            arguments = [*self.module[1:], str(self._config)]
            self._process = Nursery.lent.bear(arguments, environment, str(log))
            return self._process
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", *self.module, str(self._config)],
                stdout=output, stderr=output, env=environment, start_new_session=True,
            )  # fmt: skip
        return self._process

    @property
    def _may_be_forked(self) -> bool:
        """Whether neither its interpreter nor the kernel's record of its environment matters."""
        usual = not self.fresh and not self.prefix and self.module[0] == "handoffd"
        return usual and self.environment.keys().isdisjoint({"LD_PRELOAD", "PYTHONPATH", "PATH"})

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        with socket.socket(socket.AF_UNIX) as probe:  # a refused connection, httpx leaves open
            if probe.connect_ex(str(self.socket)) != 0:
                return False
            # A killed daemon's socket lives on for a moment in a child that has not begun its program.
            if not psutil.pid_exists(listener_of(probe)):
                return False
        return bool(self.get("/v1/health")["api"] == 1)

    def terminate(self) -> None:
        """Ask the daemon to end, and wait for it."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the daemon without any chance to tidy up."""
        self._end(signal.SIGKILL)

    def lost(self) -> None:
        """Wait for a daemon that ends by something else than us."""
        assert self._process is not None
        self._process.wait(60)
        self._process = None

    def stop(self, *, executors: bool) -> None:
        """Ask the daemon over its API to end, and wait for it."""
        assert self._process is not None
        self.post("/v1/stop", {"executors": executors})
        self._process.wait(60)
        self._process = None

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(60)
        self._process = None

    @property
    def pid(self) -> int:
        """The daemon's process id."""
        assert self._process is not None
        return self._process.pid

    def close(self) -> None:
        """End everything that belongs to this daemon, gently or not."""
        if self._process is not None and self._process.poll() is None:
            try:
                self.stop(executors=True)
            except (httpx.HTTPError, ValueError, subprocess.TimeoutExpired):
                self._end(signal.SIGKILL)
        left = self.processes()
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, 10)
        eventually_sync(lambda: not self.runtime_dir.exists() or removed(self.runtime_dir))

    def processes(self) -> list[psutil.Process]:
        """Return every process that names this daemon's folders in its command line."""
        mine = (str(self.state_dir), str(self.runtime_dir))
        return [p for p in psutil.process_iter() if any(name in word for word in _words(p) for name in mine)]

    # --- its API ---------------------------------------------------------------------------------
    def get(self, path: str, **query: str) -> Json:
        """Return the JSON at a path of the API."""
        with self._client() as client:
            answer: Json = client.get(path, params=query).json()
            return answer

    def post(self, path: str, body: Json) -> Json:
        """Return the answer to a POST."""
        with self._client() as client:
            answer: Json = client.post(path, json=body).json()
            return answer

    def verb(self, verb: str, project: Path, **arguments: Any) -> Json:
        """Give a verb and return what it said."""
        return self.post(f"/v1/verbs/{verb}", {"project": str(project), **arguments})

    def _client(self) -> httpx.Client:
        transport = httpx.HTTPTransport(uds=str(self.socket), verify=_NO_TLS)
        return httpx.Client(transport=transport, base_url="http://handoffd", timeout=60)

    def track(self, project: Path) -> Json:
        """Return the main track of a project, as `status` tells it."""
        track: Json = self.view(project)["tracks"][0]
        return track

    def wait_for(self, project: Path, done: Callable[[Json], bool], within_s: float = 120) -> Json:
        """Return the track once `done` accepts it."""
        latest: Json = {}

        def reached() -> bool:
            nonlocal latest
            latest = self.track(project)
            return done(latest)

        try:
            eventually_sync(reached, within_s=within_s)
        except AssertionError as error:
            told = f"last seen: {json.dumps(latest, indent=1)}\n{self.log()[-6000:]}"
            raise AssertionError(f"{error}\n{told}") from error
        return latest

    def wait_at(self, project: Path, step: str, status: str, within_s: float = 120) -> Json:
        """Return the track once it is at `step` with `status`."""
        return self.wait_for(project, lambda t: (t["step"], t["status"]) == (step, status), within_s)

    def wait_saying(self, project: Path, words: str) -> Json:
        """Return the track once it says that it waits for something in these words."""
        return self.wait_for(project, lambda track: words in (track["waits_for"] or ""))

    def wait_executing(self, project: Path, step: str | None = None) -> Json:
        """Return the track once an executor runs, of that step if one is named."""
        return self.wait_for(
            project, lambda t: t["phase"] == "executing" and t["pid"] and step in {None, t["step"]}
        )

    def begin(self, project: Path, story: str = "US-001", **more: Any) -> None:
        """Start a story."""
        answer = self.verb("start", project, story=story, **more)
        assert "accepted" == answer["type"], answer

    def started(self, project: Path) -> Json:
        """Start a story, and return its track once its first executor runs."""
        self.begin(project)
        return self.wait_executing(project)

    def to_review(self, project: Path) -> Json:
        """Start a story, and return its track once it waits for a person at the review."""
        self.begin(project)
        return self.wait_at(project, "review", "needs_human")

    def view(self, project: Path) -> Json:
        """Return a project's status."""
        found: Json = self.get("/v1/status", project=str(project))["projects"][0]
        return found

    def condition(self, project: Path) -> str:
        """Return what is wrong with a project."""
        return str(self.view(project)["condition"])

    def events(self, project: Path) -> list[Json]:
        """Return everything recorded about a project."""
        found: list[Json] = self.get("/v1/events", project=str(project), limit="1000")["events"]
        return found

    def runs(self, project: Path) -> list[Json]:
        """Return a project's dispatches, oldest first."""
        found: list[Json] = self.get("/v1/runs", project=str(project), limit="1000")["runs"]
        return found[::-1]

    def results(self, project: Path) -> list[tuple[str, int, str]]:
        """Return step, attempt and result of a project's dispatches, oldest first."""
        return [(run["step"], run["attempt"], run["result"]) for run in self.runs(project)]

    def told(self, project: Path) -> list[Json]:
        """Return the notices about a project that reached the person's command."""
        return [notice for notice in _lines(self.notices) if notice["project"] == str(project)]

    def told_kinds(self, project: Path) -> list[str]:
        """Return the kinds of these notices."""
        return [notice["kind"] for notice in self.told(project)]

    def wait_delivered(self) -> None:
        """Wait until no sink has a notice left to deliver."""
        eventually_sync(lambda: not self.get("/v1/status")["notices"])

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return rows of the journal, read past handoffd."""
        with contextlib.closing(sqlite3.connect(self.state_dir / "journal.db")) as db:
            return db.execute(query, values).fetchall()

    def log(self) -> str:
        """Return what the daemon has logged."""
        return (self.base / "daemon.log").read_text()

    def starts(self, project: Path) -> list[str]:
        """Return the dispatch ids under which a project's executors say they were started."""
        mine = {run["run"] for run in self.runs(project)}
        return [start["dispatch"] for start in _lines(self.start_log) if start["dispatch"] in mine]


def _lines(file: Path) -> list[Json]:
    if not file.exists():
        return []
    whole, _, _ = file.read_text().rpartition("\n")  # the last line may be half-written
    return [json.loads(line) for line in whole.splitlines() if line.strip()]


def removed(folder: Path) -> bool:
    """Remove a folder that others may write into meanwhile, and return whether it is gone."""
    try:
        shutil.rmtree(folder)
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.ENOENT}:
            raise
        return False
    return True


def prompts(project: Path, step: str) -> list[str]:
    """Return the prompts a project's executors were given for a step, oldest first."""
    texts = [path.read_text() for path in sorted((project / ".ai/runs").glob("*/prompt.md"), key=_written)]
    return [text for text in texts if f"step: {step}\n" in text]


def sample(
    base: Path,
    *,
    script: Json | None = None,
    rules: str | None = None,
    executor: str | None = "rehearsal",
    preset: str | None = None,
    tests: list[str] = QUICK,
) -> Path:
    """Return a fresh copy of the sample project, with a script for its rehearsals."""
    project = create(base / "shop")
    folder = project / ".ai"
    folder.mkdir(exist_ok=True)
    settings: Json = {
        "executor": executor,
        "preset": preset,
        "test": {"command": tests, "report": "junit"},
    }
    (folder / "handoffd.yaml").write_text(json.dumps(settings))
    if script is not None:
        (folder / "rehearsal.json").write_text(json.dumps(script))
    if rules is not None:
        (folder / "step-rules.yaml").write_text(rules)
    return project


@contextlib.contextmanager
def running(
    base: Path, settings: Callable[[Daemon], Json] | Json | None = None, **environment: str
) -> Iterator[Daemon]:
    """Lend a running daemon; `environment` is what it finds there beside the usual."""
    daemon = Daemon(base, settings)
    daemon.environment.update(environment)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.close()


_PYTEST = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""For the pytest of agents and checks: loading this project's own plugins takes a second of each run."""

_ALLOWED = ("HOME", "LANG", "LC_ALL", "PATH", "SHELL", "TMPDIR", "USER")


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
