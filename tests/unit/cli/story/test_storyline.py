"""Following a story: what is shown, what is asked, and the table in the end."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from handoffd.cli.story.player import Storyline, table_of
from handoffd.cli.story.reviewer import Answer
from handoffd.protocol.state import Reason

Json = dict[str, Any]


def track(step: str, status: str, **more: Any) -> Json:
    """Return a track as `status` tells it."""
    gate = "handoffd approve /shop" if step == "review" else None
    return {
        "step": step, "status": status, "attempt": 1, "phase": None, "story": "US-001",
        "steps": ["bdd", "review", "impl"], "next_command": gate, "last_error": None, **more,
    }  # fmt: skip


class ScriptedDaemon:
    """Answers with one track after the other; verbs are written down."""

    def __init__(self, *tracks: Json) -> None:
        self._tracks = list(tracks)
        self.given: list[Json] = []
        self.runs: list[Json] = []

    def get(self, path: str, **_: object) -> Json:
        """Return the next track, or the runs newest first."""
        if path == "/v1/runs":
            return {"runs": self.runs[::-1]}
        return {"projects": [{"tracks": [self._tracks.pop(0)]}]}

    def post(self, path: str, body: Json) -> Json:
        """Write the verb down."""
        self.given.append({"path": path, **body})
        return {"type": "accepted"}


def follow(daemon: ScriptedDaemon, answer: Answer) -> tuple[Json, str]:
    """Return the last track, and all that was printed with the table."""
    output = io.StringIO()
    console = Console(file=output, width=100)
    storyline = Storyline(daemon, "/shop", console, lambda _: answer, by="demo")
    last = storyline.follow()
    console.print(table_of(storyline.rows()))
    return last, output.getvalue()


def run(step: str, tests: Json | None = None) -> Json:
    """Return a dispatch that passed, as the API tells it."""
    return {"step": step, "attempt": 1, "seconds": 2.04, "tests": tests, "result": "pass"}


def test_a_gate_is_answered_and_the_story_followed_to_its_end() -> None:
    """The answer goes out as the verb, with its note; the decision stands in the table in its place."""
    daemon = ScriptedDaemon(track("bdd", "running"), track("review", "needs_human"), track("done", "pass"))
    daemon.runs = [run("bdd")]

    last, printed = follow(daemon, Answer(approve=True, note="Mind the cents."))

    assert "done" == last["step"]
    (verb,) = daemon.given
    assert ("/v1/verbs/approve", "US-001", "Mind the cents.") == (verb["path"], verb["story"], verb["note"])
    assert printed.index("│ bdd") < printed.index("│ review")
    assert "✓ approved" in printed


def test_a_rejection_carries_a_reason() -> None:
    """The reviewer's own, which selects where the story goes back to."""
    daemon = ScriptedDaemon(track("review", "needs_human"), track("done", "pass"))

    _, printed = follow(daemon, Answer(approve=False, reason=Reason.SCOPE_WARNING, note="Too much."))

    assert ("/v1/verbs/reject", "scope_warning") == (daemon.given[0]["path"], daemon.given[0]["reason"])
    assert "✗ rejected" in printed


def test_a_story_that_waits_for_more_than_a_gate_ends_the_watch() -> None:
    """Nobody is asked about what an approval would not mend."""
    stuck = track("bdd", "needs_human", next_command="handoffd retry /shop", last_error="no attempt left")

    last, _ = follow(ScriptedDaemon(stuck), Answer(approve=True))

    assert stuck == last


def test_the_table_tells_what_was_measured() -> None:
    """Counts where there was a report, the exit code where there was none, a dash without a check."""
    daemon = ScriptedDaemon(track("done", "pass"))
    daemon.runs = [
        run("bdd"),
        run("impl", {"verified": True, "pass": 11, "fail": 1, "skip": 0}),
        run("verify", {"verified": False, "pass": 0, "fail": 0, "skip": 0}),
    ]

    _, printed = follow(daemon, Answer(approve=True))

    assert "11 pass, 1 fail" in printed
    assert "exit code only" in printed
    assert "2.0" in printed


def test_without_a_terminal_each_attempt_is_a_line_of_its_own() -> None:
    """Once it has ended, once only, with its time and what the daemon measured."""
    daemon = ScriptedDaemon(track("bdd", "running"), track("impl", "running"), track("done", "pass"))
    red = {"verified": True, "pass": 5, "fail": 6, "skip": 0, "new_failing": 6}
    daemon.runs = [run("bdd"), run("scaffold", red), run("impl", {**red, "fail": 0, "new_failing": 0})]

    lines = follow(daemon, Answer(approve=True))[1].split("┏")[0].splitlines()

    assert [
        "  ✓ bdd              2.0 s   pass",
        "  ✓ scaffold         2.0 s   pass; the daemon ran the tests: 5 pass, 6 fail "
        "(6 new, which must fail until there is code for them)",
        "  ✓ impl             2.0 s   pass; the daemon ran the tests: 5 pass, 0 fail",
    ] == lines


def test_the_rows_are_the_same_for_programs() -> None:
    """What was measured is told as `runs --json` tells it; a decision took no executor and no time."""
    daemon = ScriptedDaemon(track("review", "needs_human"), track("done", "pass"))
    storyline = Storyline(
        daemon,
        "/shop",
        Console(file=io.StringIO()),
        lambda _: Answer(approve=False, reason=Reason.SCOPE_WARNING),
        by="demo",
    )
    storyline.follow()
    daemon.runs = [{**run("impl", {"verified": False}), "executor": "rehearsal"}]

    assert (
        {"step": "review", "attempt": 1, "seconds": None, "tests": None, "result": "rejected"},
        {"step": "impl", "attempt": 1, "seconds": 2.04, "tests": {"verified": False}, "result": "pass"},
    ) == storyline.rows()
