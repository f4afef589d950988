"""A flow that is rehearsed: what is answered and shown, when it is over, and which scripts are refused."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from handoffd.cli.story.flows import Answers, Flowline, PlayedFlow, place_of, script_of, tell_flow
from handoffd.cli.story.player import StoryFailed
from handoffd.errors import InvalidFile, Refused
from handoffd.inspection.pipelines import loaded, pipelines_of
from handoffd.protocol.plan import Plan
from handoffd.rehearsal.script import Flow

Json = dict[str, Any]


def plan_of(name: str) -> Plan:
    """Return the plan of a shipped pipeline."""
    found = pipelines_of(Path("/nowhere"), None).found
    return loaded(found[name], found).plan


def question(node: str, *choices: str, default: str | None = None, hold: bool = False) -> Json:
    """Return a question of a flow."""
    return {
        "node": node, "visit": 1, "hold": hold, "default": default,
        "choices": [{"choice": one, "command": ""} for one in choices],
    }  # fmt: skip


TALK = question("talk", "conclude", "deepen", "redirect", default="conclude")


# --- answers ------------------------------------------------------------------------------------------
def test_questions_are_answered_as_the_flow_would_answer_itself() -> None:
    """Else with the default, else with the first choice; of held work, with the default."""
    answers = Answers(plan_of("analyze"), Flow())
    clean = Answers(plan_of("clean"), Flow())

    assert "conclude" == answers.to(TALK, "analyze")
    assert "low_risk" == clean.to(question("choose", "chosen", "low_risk", default="none_of_it"), "clean")
    assert "stop" == answers.to(question("talk", "retry", "stop", default="stop", hold=True), "analyze")
    assert "go" == answers.to(question("", "go", "stop"), "analyze")
    assert "b" == answers.to(question("other", "a", "b", default="b"), "of-a-child")


def test_a_script_answers_first_and_the_worst_goes_back() -> None:
    """A list is used up; a task that was called is found by its own name, too."""
    told = Answers(plan_of("analyze"), Flow(answers={"talk": ["redirect", "deepen"]}))
    worst = Answers(plan_of("analyze"), Flow(play="worst"))
    called = question("conclude/decide_missed", "one_more", "note_it", default="note_it")

    assert ["redirect", "deepen", "conclude"] == [told.to(TALK, "analyze") for _ in range(3)]
    assert ["deepen", "one_more"] == [worst.to(one, "analyze") for one in (TALK, called)]
    by_name = Answers(plan_of("analyze"), Flow(answers={"decide_missed": "one_more"}))
    assert "one_more" == by_name.to(called, "analyze")
    assert "issue/solve/choose" == place_of("issue[GH-1]/solve/choose")


# --- following ----------------------------------------------------------------------------------------
class ScriptedDaemon:
    """Answers with one view of a flow after the other, and takes down the answers that it is given."""

    def __init__(self, *views: Json, refuses: bool = False) -> None:
        self._views = list(views)
        self._now = self._views[0]
        self._refuses = refuses
        self.given: list[Json] = []

    def get(self, path: str, **_: str) -> Json:
        """Return the next view of the flow, or the open flows."""
        if path == "/v1/flows":
            return {"flows": [self._now]}
        self._now = self._views.pop(0) if len(self._views) > 1 else self._views[0]
        return self._now

    def post(self, path: str, body: Json) -> Json:
        """Take an answer down."""
        self.given.append({"path": path, **body})
        return {"type": "error", "message": "no", "code": "NO"} if self._refuses else {"type": "flow"}


def view(
    state: str, *nodes: Json, ended: str | None = None, questions: Sequence[Json] = (), **more: Any
) -> Json:
    """Return a flow as the daemon tells it."""
    return {
        "flow": "analyze-7k2q", "pipeline": "analyze", "params": {}, "state": state, "ended": ended,
        "waits_for": "work", "questions": list(questions), "nodes": list(nodes), "used": {"starts": 2},
        "counts": {"accepted": 1}, "ways_back": [], **more,
    }  # fmt: skip


def node(name: str, state: str, **more: Any) -> Json:
    """Return a node as the daemon tells it."""
    return {
        "node": name, "state": state, "visit": 1, "outcome": None, "waits": None, "why": "", "files": [],
        "fields": {}, **more,
    }  # fmt: skip


def line_of(daemon: ScriptedDaemon, clock: Any = lambda: 0.0) -> tuple[Flowline, io.StringIO]:
    """Return what follows the flow, and what it prints."""
    out = io.StringIO()
    answers = Answers(plan_of("analyze"), Flow())
    return Flowline(daemon, "analyze-7k2q", "/shop", answers, Console(file=out), clock), out


def test_it_is_followed_and_answered_to_its_end() -> None:
    """Each change is one line; a task that is at work is none."""
    accepted = node("wanted", "accepted", outcome="ready")
    daemon = ScriptedDaemon(
        view("working", node("wanted", "open")),
        view("working", node("wanted", "open")),
        view("waiting", accepted, node("talk", "asking"), questions=[TALK]),
        view("ended", accepted, ended="succeeded"),
    )  # fmt: skip
    line, out = line_of(daemon)

    told = line.follow()

    assert "succeeded" == told["ended"]
    assert [("talk", "conclude", 1)] == [(one["node"], one["choice"], one["visit"]) for one in daemon.given]
    assert ["wanted", "talk"] == [one.split()[3] for one in out.getvalue().splitlines()]


def test_what_does_not_move_any_more_is_not_waited_for() -> None:
    """Nor is a flow that is paused."""
    clock = iter(range(0, 10_000, 60))
    stuck, _ = line_of(ScriptedDaemon(view("working", node("wanted", "open"))), lambda: float(next(clock)))
    paused, _ = line_of(ScriptedDaemon(view("paused")))

    assert (None, True) == (stuck.follow()["ended"], stuck.stuck)
    assert (None, True) == (paused.follow()["ended"], paused.stuck)


def test_an_answer_that_is_refused_is_an_error() -> None:
    """A script may give a choice that there is not."""
    line, _ = line_of(ScriptedDaemon(view("waiting", questions=[TALK]), refuses=True))

    with pytest.raises(Refused, match="talk: no"):
        line.follow()


# --- telling ------------------------------------------------------------------------------------------
def played(ended: str | None, **more: Any) -> PlayedFlow:
    """Return a flow that was played."""
    accepted = node("wanted", "accepted", outcome="ready", files=["a/list.json"], fields={"n": 2.0})
    back = {"node": "talk", "outcome": "deepen", "to": "present", "used": 1, "at_most": 5}
    told = view("ended", accepted, ended=ended, ways_back=[back])
    answers = ({"node": "talk", "visit": 1, "choice": "conclude"},)
    return PlayedFlow(project="/shop", told=told, answers=answers, seconds=2.04, log=Path("/log"), **more)


def test_what_each_task_handed_over_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """With the sums, the answers, and the ways back that were taken."""
    tell_flow(played("succeeded"), as_json=False)

    shown = capsys.readouterr().out
    assert "list.json, n 2" in shown
    assert "analyze-7k2q: succeeded; 1 accepted; 2 openings; 2.0 s" in shown
    assert "answered talk: conclude" in shown
    assert "talk deepen: 1 of 5 to present" in shown


def test_for_programs_it_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    """Also of a flow that failed, in its error."""
    tell_flow(played("succeeded"), as_json=True)

    shown = json.loads(capsys.readouterr().out)
    assert ("played_flow", "succeeded", 2, 2.0) == tuple(
        shown[one] for one in ("type", "ended", "openings", "seconds")
    )
    with pytest.raises(StoryFailed, match="analyze-7k2q has ended: failed") as failed:
        tell_flow(played("failed"), as_json=True)
    assert "failed" == failed.value.details["ended"]
    with pytest.raises(StoryFailed, match="is stuck: work"):
        tell_flow(played(None, stuck=True), as_json=True)


# --- scripts ------------------------------------------------------------------------------------------
def test_options_come_before_what_a_script_says(tmp_path: Path) -> None:
    """Without both, it is chance with the seed 1."""
    file = tmp_path / "script.json"
    file.write_text(json.dumps({"flow": {"seed": 3, "play": "best"}, "issue[GH-1]/solve": "fail"}))
    plan = plan_of("team-issue")

    assert {"flow": {"seed": 1, "play": "chance"}} == json.loads(script_of(None, plan, None, None))
    both = json.loads(script_of(file, plan, "worst", None))
    assert ({"seed": 3, "play": "worst"}, "fail") == (both["flow"], both["issue[GH-1]/solve"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"issue/slove": "fail"}', r"issue/slove: is not a task \(allowed: mode, issue, issue/explore"),
        ('{"marshal": "explode"}', "there is no act 'explode'"),
        ('{"marshal": "fail:' + "x" * 99_000 + '"}', "is larger than 96 KiB"),
    ],
)
def test_a_script_that_means_nothing_is_refused(text: str, said: str, tmp_path: Path) -> None:
    """It would change nothing, and look as if the pipeline had."""
    file = tmp_path / "script.json"
    file.write_text(text)

    with pytest.raises(InvalidFile, match=said):
        script_of(file, plan_of("team-issue"), None, None)
