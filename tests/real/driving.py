"""One agent CLI under the real daemon, talking to a scripted model."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.real.agents import Agent
from tests.real.provider.server import Provider, serving
from tests.real.provider.turns import Answer, Asked, Model, Turn
from tests.support.daemon import Daemon, running, sample

Json = dict[str, Any]
Login = Mapping[str, str | None]


@dataclass
class Driven:
    """A daemon, the project it works on, and the model behind its executor."""

    daemon: Daemon
    project: Path
    provider: Provider
    home: Path
    _model: list[Model]

    def behave(self, model: Model) -> None:
        """Let this model answer from now on."""
        self._model[:] = [model]

    def start(self) -> None:
        """Start the sample's story."""
        assert "accepted" == self.daemon.verb("start", self.project, story="US-001")["type"]

    def reaches(self, step: str, status: str, within_s: float = 600) -> Json:
        """Return the track once it is there; AssertionError when it needs a person elsewhere."""

        def rests(track: Json) -> bool:
            there = (track["step"], track["status"]) == (step, status)
            return there or track["status"] in ("needs_human", "timeout")

        track = self.daemon.wait_for(self.project, rests, within_s)
        assert (step, status) == (track["step"], track["status"]), track["last_error"]
        return track

    def approve(self) -> None:
        """Approve at the review."""
        self.reaches("review", "needs_human")
        assert "accepted" == self.daemon.verb("approve", self.project)["type"]


@contextlib.contextmanager
def driven(
    agent: Agent,
    tools: Path,
    base: Path,
    *,
    fallback: Agent | None = None,
    login: Login | None = None,
    preset: str | None = None,
    settings: Json | None = None,
) -> Iterator[Driven]:
    """Lend a daemon whose executor is `agent`, else `fallback`, with a sample project, and a silent model.

    `login` changes variables of the agents: None takes one away.
    """
    model: list[Model] = [_silent]
    home = base / "home"
    agents = (agent,) if fallback is None else (agent, fallback)

    def answer(asked: Asked) -> Answer:
        return model[0](asked)

    with serving(answer) as provider:
        variables = dict(login or {})
        for one in agents:
            _furnish(home, one.home(provider.url))
            variables = {**one.environment(provider.url), **variables}
        given = {name: value for name, value in variables.items() if value is not None}

        def configured(daemon: Daemon) -> Json:
            path = f"{tools}:{os.environ.get('PATH', '/usr/bin:/bin')}"
            daemon.environment = {"HOME": str(home), "PATH": path, **given}
            allowed = ["HOME", "LANG", "PATH", "USER", *given]
            return {
                "executor": [one.name for one in agents],
                "sandbox": {"writable": []},  # what their definitions say has to be enough
                "executors": {one.name: {"model": one.model} for one in agents if one.model is not None},
                **(settings or {}),
                "execute": {"env_allow": allowed, "min_free_mb": 0, **(settings or {}).get("execute", {})},
            }

        with running(base, configured) as daemon:
            # Without an executor of its own: the daemon's settings say which.
            project = sample(base, executor=None, preset=preset)
            if preset is not None:
                _committed(project)
            yield Driven(daemon, project, provider, home, model)


def _committed(project: Path) -> None:
    git = ["git", "-C", str(project)]
    for words in (["init", "-q"], ["config", "user.name", "A"], ["config", "user.email", "a@example.org"]):
        subprocess.run([*git, *words], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "Start"], check=True)


def _furnish(home: Path, files: Mapping[str, str]) -> None:
    home.mkdir(exist_ok=True)
    for name, text in files.items():
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def _silent(asked: Asked) -> Answer:
    return Turn("Nothing to do.")
