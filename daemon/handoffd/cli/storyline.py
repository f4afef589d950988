"""Following one story to its end: a line for each attempt, the decisions at human steps, the final table."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from handoffd.cli.reviewer import Ask

Json = dict[str, Any]

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


@dataclass(frozen=True, slots=True)
class _Gate:
    """A decision at a human step, and how many dispatches there were before it."""

    after: int
    step: str
    approved: bool

    @property
    def row(self) -> Json:
        """What was decided, as an attempt is told: no executor ran, so nothing was measured."""
        result = "approved" if self.approved else "rejected"
        return {"step": self.step, "attempt": 1, "seconds": None, "tests": None, "result": result}


class Asking(Protocol):
    """What is asked of the daemon: `control.client.Client` fits."""

    def get(self, path: str, **query: object) -> Json:
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
        """Return the track as it stood in the end."""
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
