"""Playing a story on a private daemon: what is shown, what is asked, and how it ends."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from handoffd.cli.story.player import Played, StoryFailed, Storyline, private_daemon, table_of, tell
from handoffd.cli.story.reviewer import Answer
from handoffd.errors import HandoffdError
from handoffd.protocol.state import Reason

Json = dict[str, Any]


def track(step: str, status: str, **more: Any) -> Json:
    """Return a track as in an answer of `status`."""
    gate = "handoffd approve /shop" if step == "review" else None
    return {
        "step": step, "status": status, "attempt": 1, "phase": None, "story": "US-001",
        "steps": ["bdd", "review", "impl"], "next_command": gate, "last_error": None, **more,
    }  # fmt: skip


class ScriptedDaemon:
    """Answers with one track after the other, and logs verbs."""

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
        """Log the verb."""
        self.given.append({"path": path, **body})
        return {"type": "accepted"}


def storyline_of(daemon: ScriptedDaemon, answer: Answer, console: Console) -> Storyline:
    """Return a story whose gates all get one answer."""
    return Storyline(daemon, "/shop", console, lambda _: answer, by="demo")


def follow(daemon: ScriptedDaemon, answer: Answer) -> tuple[Json, str]:
    """Return the last track, and all that was printed with the table."""
    output = io.StringIO()
    console = Console(file=output, width=100)
    storyline = storyline_of(daemon, answer, console)
    last = storyline.follow()
    console.print(table_of(storyline.rows()))
    return last, output.getvalue()


def run(step: str, tests: Json | None = None) -> Json:
    """Return a dispatch that passed, as the API has it."""
    return {"step": step, "attempt": 1, "seconds": 2.04, "tests": tests, "result": "pass"}


def test_a_gate_is_answered_and_the_story_followed_to_its_end() -> None:
    """The answer becomes the verb, with its note; the decision is in the table in its place."""
    daemon = ScriptedDaemon(track("bdd", "running"), track("review", "needs_human"), track("done", "pass"))
    daemon.runs = [run("bdd")]

    last, printed = follow(daemon, Answer(approve=True, note="Mind the cents."))

    assert "done" == last["step"]
    (verb,) = daemon.given
    assert ("/v1/verbs/approve", "US-001", "Mind the cents.") == (verb["path"], verb["story"], verb["note"])
    assert printed.index("│ bdd") < printed.index("│ review")
    assert "✓ approved" in printed


def test_a_rejection_has_a_reason() -> None:
    """The reviewer's own, which decides to which step the story returns."""
    daemon = ScriptedDaemon(track("review", "needs_human"), track("done", "pass"))

    _, printed = follow(daemon, Answer(approve=False, reason=Reason.SCOPE_WARNING, note="Too much."))

    assert ("/v1/verbs/reject", "scope_warning") == (daemon.given[0]["path"], daemon.given[0]["reason"])
    assert "✗ rejected" in printed


def test_a_story_that_waits_for_more_than_a_gate_ends_the_watch() -> None:
    """An approval would not help, so nothing is asked."""
    stuck = track("bdd", "needs_human", next_command="handoffd retry /shop", last_error="no attempt left")

    last, _ = follow(ScriptedDaemon(stuck), Answer(approve=True))

    assert stuck == last


def test_the_table_has_what_was_measured() -> None:
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
    """When it has ended, with its time and what the daemon measured."""
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
    """Measured as in `runs --json`; a decision has no executor and no time."""
    daemon = ScriptedDaemon(track("review", "needs_human"), track("done", "pass"))
    answer = Answer(approve=False, reason=Reason.SCOPE_WARNING)
    storyline = storyline_of(daemon, answer, Console(file=io.StringIO()))
    storyline.follow()
    daemon.runs = [{**run("impl", {"verified": False}), "executor": "rehearsal"}]

    assert (
        {"step": "review", "attempt": 1, "seconds": None, "tests": None, "result": "rejected"},
        {"step": "impl", "attempt": 1, "seconds": 2.04, "tests": {"verified": False}, "result": "pass"},
    ) == storyline.rows()


# --- how it ends ------------------------------------------------------------------------------------
ROW = {"step": "bdd", "attempt": 1, "seconds": 0.5, "tests": None, "result": "pass"}


def played(step: str) -> Played:
    """Return a story that ended at `step`."""
    status = "pass" if step == "done" else "needs_human"
    last = {"step": step, "status": status, "last_error": "no attempt left", "reason": None}
    return Played(
        project="/tmp/shop", story="US-001", track=last, rows=(ROW,), log=Path("/tmp/my demo/daemon.log")
    )


def test_people_get_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The caller gets what `prove` returned about the outcome."""
    proved = tell(played("done"), as_json=False, prove=lambda _: {"pytest": "1 passed"})

    assert {"pytest": "1 passed"} == proved
    out = capsys.readouterr().out
    assert "tests measured" in out
    assert "│ bdd" in out


def test_programs_get_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    """With the rows of the table, and what was proved."""
    tell(played("done"), as_json=True, prove=lambda _: {"pytest": "1 passed"})

    assert {
        "type": "played", "project": "/tmp/shop", "story": "US-001", "log": "/tmp/my demo/daemon.log",
        "rows": [ROW], "unmeasured": [], "skipped": None, "pytest": "1 passed",
    } == json.loads(capsys.readouterr().out)  # fmt: skip


def test_a_story_that_stopped_is_an_error_with_all_details(capsys: pytest.CaptureFixture[str]) -> None:
    """The log is the next thing to read; with --json the error is the only output."""
    with pytest.raises(StoryFailed) as failed:
        tell(played("bdd"), as_json=True)

    assert "the story stopped at bdd (needs_human): no attempt left" == failed.value.message
    assert ("STORY_STOPPED", "less '/tmp/my demo/daemon.log'") == (failed.value.code, failed.value.hint)
    assert [ROW] == failed.value.details["rows"]
    assert "" == capsys.readouterr().out


# --- the private daemon -----------------------------------------------------------------------------
def processes_of(base: Path) -> list[psutil.Process]:
    """Return the processes whose command line names the folder."""
    return [p for p in psutil.process_iter(["cmdline"]) if str(base) in " ".join(p.info["cmdline"] or ())]


def test_the_daemon_answers_and_ends_with_its_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process stays. Variables that name another agent or journal do not reach it."""
    theirs = tmp_path / "theirs"
    monkeypatch.setenv("HANDOFFD_STATE_DIR", str(theirs))
    monkeypatch.setenv("HANDOFFD_EXECUTOR", "claude")
    monkeypatch.setenv("HANDOFFD_LOG__LEVEL", "nonsense")

    with private_daemon(tmp_path, {"executor": "rehearsal"}) as client:
        assert 1 == client.get("/v1/health")["api"]
        assert processes_of(tmp_path)

    assert [] == processes_of(tmp_path)
    assert (True, False) == ((tmp_path / "state/journal.db").exists(), theirs.exists())


def test_a_daemon_that_cannot_start_gives_its_reason(tmp_path: Path) -> None:
    """The error has the end of its log, and names the log."""
    with (
        pytest.raises(HandoffdError, match="executro") as caught,
        private_daemon(tmp_path, {"executro": "x"}),
    ):
        pass

    assert f"less {tmp_path}/daemon.log" == caught.value.hint


def test_a_command_that_is_terminated_ends_its_daemon(tmp_path: Path) -> None:
    """TERM unwinds like an exception."""
    program = """
import os, signal, sys
from pathlib import Path
from handoffd.cli.story.player import private_daemon
with private_daemon(Path(sys.argv[1]), {}):
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
"""

    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=60, check=False)

    assert 128 + signal.SIGTERM == done.returncode
    assert [] == processes_of(tmp_path)
