"""Plays a story on a private daemon, printing each step and a summary: for `demo` and `rehearse`."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from types import FrameType, MappingProxyType
from typing import Any, Protocol

from msgspec import Struct
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from handoffd.api.client import Client
from handoffd.cli.asking import print_json
from handoffd.cli.story.reviewer import Ask, Changes, approve_by_itself, ask_at_terminal
from handoffd.errors import HandoffdError, Json, NoDaemon, Refused

progress = Console(stderr=True)
"""Where people see how it goes; standard output is for what came of it."""


class Played(Struct, frozen=True, kw_only=True):
    """How a story went: the final state of its track, and a row per attempt and decision."""

    project: str
    story: str
    track: Json
    rows: tuple[Json, ...]
    log: Path
    unmeasured: frozenset[str] = frozenset()
    """Steps whose tests did not run, for want of a test command, or because they were skipped."""
    skipped: str | None = None
    """Why the story's tests were skipped, if they were."""

    @property
    def json(self) -> Json:
        """The same for programs."""
        where = {"project": self.project, "story": self.story, "log": str(self.log)}
        return {
            "type": "played",
            **where,
            "rows": list(self.rows),
            "unmeasured": sorted(self.unmeasured),
            "skipped": self.skipped,
        }


class StoryFailed(HandoffdError):
    """What was tried out did not come to its end. `details` are the keys that the JSON has besides."""

    default_code = "STORY_STOPPED"

    def __init__(self, message: str, *, hint: str, details: Json, code: str | None = None) -> None:
        super().__init__(message, hint=hint, code=code)
        self.details = {key: value for key, value in details.items() if key != "type"}


def play(
    project: str, story: str, *, base: Path, settings: Mapping[str, Any], approved_by: str | None, by: str,
    again: str,
) -> Played:  # fmt: skip
    """Return how a story of `project` went on a private daemon that keeps its records below `base`.

    `approved_by` is what approves at human steps instead of a person at this terminal, in words; None asks.
    `again` is the command for the same, to which options can be added.
    """
    changes = Changes(project)
    ask = (
        ask_at_terminal(progress, changes, f"{again} --yes")
        if approved_by is None
        else approve_by_itself(progress, changes, approved_by)
    )
    progress.print(f"Starting a daemon for this alone; it writes {base / 'daemon.log'}", soft_wrap=True)
    with private_daemon(base, settings) as client:
        started = client.post("/v1/verbs/start", {"project": project, "story": story, "by": by})
        if started["type"] == "error":
            raise Refused(
                f"{story} cannot be started: {started['message']}",
                code=started["code"],
                hint=f"{again} --help",
            )
        storyline = Storyline(client, project, progress, ask, by=by)
        track = storyline.follow()
        rows = storyline.rows()
    return Played(project=project, story=story, track=track, rows=rows, log=base / "daemon.log")


def tell(played: Played, *, as_json: bool, prove: Callable[[Played], Json] = lambda _: {}) -> Json:
    """Print and return the result, and for a finished story what `prove` adds.

    Raises StoryFailed when the story did not reach its end.
    """
    if not as_json:
        Console().print(table_of(played.rows, played.unmeasured, "skipped" if played.skipped else UNMEASURED))
    track = played.track
    if track["step"] != "done":
        why = track["last_error"] or track["reason"]
        message = f"the story stopped at {track['step']} ({track['status']}): {why}"
        raise StoryFailed(message, hint=f"less {quote(str(played.log))}", details=played.json)
    proof = prove(played)
    if as_json:
        print_json({**played.json, **proof})
    return proof


# --- a story, followed to its end ---------------------------------------------------------------------

LOOK_S = 0.1
UNMEASURED = "not measured: no test command"
_MARKS = {
    "pass": ("✓", "green"),
    "approved": ("✓", "green"),
    "rejected": ("✗", "red"),
    "failing": ("✗", "red"),
    "timeout": ("⏱", "red"),
    "needs_human": ("?", "yellow"),
}


class _Gate(Struct, frozen=True):
    """A decision at a human step, and how many dispatches there were before it."""

    after: int
    step: str
    approved: bool

    @property
    def row(self) -> Json:
        """Return a decision in the form of an attempt: no executor ran, so nothing was measured."""
        result = "approved" if self.approved else "rejected"
        return {"step": self.step, "attempt": 1, "seconds": None, "tests": None, "result": result}


class Asking(Protocol):
    """What is asked of the daemon: `control.client.Client` fits."""

    def get(self, path: str, **query: str) -> Json:
        """Return the answer to a read."""

    def post(self, path: str, body: Json) -> Json:
        """Return the answer to a verb."""


class Storyline:
    """One story of one project on one daemon, watched until it ends or waits for more than a gate."""

    def __init__(self, client: Asking, project: str, console: Console, ask: Ask, *, by: str) -> None:
        self._client = client
        self._project = project
        self._console = console
        self._ask = ask
        self._by = by
        self._seen: tuple[object, ...] = ()
        self._told = 0
        self._gates: list[_Gate] = []

    def follow(self) -> Json:
        """Return the track in its final state."""
        while True:
            track = self._watch()
            if not self._at_gate(track):
                return track
            answer = self._ask(track)
            self._gates.append(_Gate(len(self._runs()), track["step"], answer.approve))
            body: Json = {
                "project": self._project, "story": track["story"], "note": answer.note, "by": self._by,
            }  # fmt: skip
            if not answer.approve:
                body["reason"] = answer.reason
            self._client.post(f"/v1/verbs/{'approve' if answer.approve else 'reject'}", body)

    def _watch(self) -> Json:
        """Show progress until a person is needed or the story has ended."""
        if not self._console.is_terminal:
            return self._look_until_it_rests(lambda _: None)
        with Live(console=self._console, refresh_per_second=12, transient=True) as live:
            return self._look_until_it_rests(lambda track: live.update(self._picture(track)))

    def _look_until_it_rests(self, show: Callable[[Json], None]) -> Json:
        while True:
            track = self._track()
            show(track)
            seen = (track["step"], track["attempt"], track["status"], track["phase"])
            if seen != self._seen:
                self._seen = seen
                self._tell_what_ended()
            if _rests(track):
                return track
            time.sleep(LOOK_S)

    def _tell_what_ended(self) -> None:
        """Print a line for each attempt that has ended since the last time."""
        for run in self._runs()[self._told :]:
            if run["result"] is None:
                return
            self._console.print(_line(run), soft_wrap=True)
            self._told += 1

    def _track(self) -> Json:
        view = self._client.get("/v1/status", project=self._project)["projects"][0]
        track: Json = view["tracks"][0]
        return track

    def _at_gate(self, track: Json) -> bool:
        return track["status"] == "needs_human" and str(track["next_command"]).startswith("handoffd approve")

    def _picture(self, track: Json) -> RenderableType:
        done = set(
            track["steps"][: track["steps"].index(track["step"])] if track["step"] in track["steps"] else ()
        )
        line = Text("  ").join(_step(name, track, name in done) for name in track["steps"])
        return Group(line, _now(track))

    # --- the end ---------------------------------------------------------------------------------
    def rows(self) -> tuple[Json, ...]:
        """Return what every attempt took and proved, oldest first, with the decisions in their places.

        Keys: step, attempt, seconds, tests (as `runs --json` tells them), result.
        """
        rows: list[Json] = []
        for place, run in enumerate([*self._runs(), None]):
            rows += [gate.row for gate in self._gates if gate.after == place]
            if run is not None:
                rows.append({key: run[key] for key in ("step", "attempt", "seconds", "tests", "result")})
        return tuple(rows)

    def _runs(self) -> list[Json]:
        """Return the story's dispatches, oldest first."""
        found: list[Json] = self._client.get("/v1/runs", project=self._project)["runs"]
        return found[::-1]


def table_of(rows: Iterable[Json], unmeasured: Container[str] = (), why: str = UNMEASURED) -> Table:
    """Return rows as a table for people; `unmeasured` are the steps whose tests did not run, and `why`."""
    table = Table(title=None, header_style="bold")
    for name in ("step", "attempt", "seconds", "tests measured", "result"):
        table.add_column(name, justify="right" if name in {"attempt", "seconds"} else "left")
    for row in rows:
        table.add_row(
            row["step"], str(row["attempt"]), _seconds(row), _tests(row, unmeasured, why), _result(row)
        )
    return table


def _rests(track: Json) -> bool:
    return track["step"] == "done" or track["status"] in {"needs_human", "timeout"}


def _line(run: Json) -> Text:
    """Return one attempt that has ended: how, how long its executor took, what the daemon measured."""
    mark, style = _MARKS.get(run["result"], ("…", "dim"))
    again = f"attempt {run['attempt']}, " if run["attempt"] > 1 else ""
    took = f"{run['seconds']:5.1f} s" if run["seconds"] is not None else " " * 7
    line = Text(f"  {mark} {run['step']:<15}", style=style).append(
        f"{took}   {again}{run['result']}", "default"
    )
    if (tests := run["tests"]) is not None:
        new = tests.get("new_failing") if run["result"] == "pass" else None
        why = f" ({new} new, which must fail until there is code for them)" if new else ""
        line.append(f"; the daemon ran the tests: {_counts(tests)}{why}", "default")
    return line


def _step(name: str, track: Json, done: bool) -> Text:
    if done:
        return Text(f"✓ {name}", style="green")
    if name == track["step"]:
        return Text(f"● {name}", style="bold cyan")
    return Text(f"○ {name}", style="dim")


def _now(track: Json) -> RenderableType:
    phase = track["phase"] or track["status"]
    what = {
        "baseline": "running the tests as they stand before the story",
        "starting": "starting the executor",
        "executing": "the executor works",
        "checking": "running the tests to check what was claimed",
        "stopping": "ending the executor",
    }.get(phase, phase)
    return Spinner("dots", Text(f" {track['step']} attempt {track['attempt']}: {what}"))


def _seconds(row: Json) -> str:
    return f"{row['seconds']:.1f}" if row["seconds"] is not None else ""


def _tests(row: Json, unmeasured: Container[str], why: str) -> str:
    tests = row["tests"]
    if tests is None:
        return why if row["step"] in unmeasured else "–"
    return _counts(tests)


def _counts(tests: Json) -> str:
    return f"{tests['pass']} pass, {tests['fail']} fail" if tests["verified"] else "exit code only"


def _result(row: Json) -> Text:
    result = row["result"] or "running"
    mark, style = _MARKS.get(result, ("…", "dim"))
    return Text(f"{mark} {result}", style=style)


# --- a daemon for one story ---------------------------------------------------------------------------
# It is the real daemon, started as people start it, so what is shown is what they get. It ends, with all that
# it started, when its context is left.
START_S = 30.0
STOP_S = 30.0
LOOK_MS = 50


@contextmanager
def private_daemon(
    base: Path, settings: Mapping[str, Any], environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Client]:
    """Run a daemon with its journal and runs below `base`. Raises HandoffdError if it dies.

    `environment` is what it has beside the user's.
    """
    # Of its own, because a socket's path has room for about a hundred bytes only.
    runtime = Path(tempfile.mkdtemp(prefix="handoffd-"))
    config = base / "handoffd.yaml"
    places = {"state_dir": str(base / "state"), "runtime_dir": str(runtime)}
    config.write_text(json.dumps({**settings, **places}), encoding="utf-8")  # JSON is YAML
    log = base / "daemon.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "handoffd", "run", "--config", str(config)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**_own_environment(), **environment},
            start_new_session=True,
        )  # fmt: skip
    client = Client(runtime / "control.sock")
    try:
        with _ended_like_an_exception():
            _wait_until_it_answers(client, process, log)
            yield client
    finally:
        _end(client, process)
        shutil.rmtree(runtime, ignore_errors=True)


def _own_environment() -> dict[str, str]:
    """Return the environment without the user's own settings, which would override the private file."""
    return {name: value for name, value in os.environ.items() if not name.upper().startswith("HANDOFFD_")}


@contextmanager
def _ended_like_an_exception() -> Iterator[None]:
    """Let TERM and HUP unwind the stack, so that they, too, leave no daemon behind."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait_until_it_answers(client: Client, process: subprocess.Popen[bytes], log: Path) -> None:
    # Polls for the socket: a daemon reports readiness only to a service manager, and with a manager it
    # behaves differently, as it leaves its launcher behind.
    give_up_at = time.monotonic() + START_S
    with _ending(process) as ended:
        while time.monotonic() < give_up_at:
            with suppress(NoDaemon):
                client.get("/v1/health")
                return
            if ended.poll(LOOK_MS):
                break
    raise HandoffdError(f"the daemon did not start; it said:\n{_tail(log)}", hint=f"less {quote(str(log))}")


@contextmanager
def _ending(process: subprocess.Popen[bytes]) -> Iterator[select.poll]:
    """Lend a poll that has something to tell once the process has ended."""
    handle = os.pidfd_open(process.pid)  # not reaped yet, so the number is its own
    try:
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        yield ended
    finally:
        os.close(handle)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-15:])


def _end(client: Client, process: subprocess.Popen[bytes]) -> None:
    with suppress(HandoffdError):
        client.post("/v1/stop", {"executors": True})
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
