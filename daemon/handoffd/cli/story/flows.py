"""`handoffd rehearse --pipeline NAME`: a flow on a copy of a project, each of its tasks by the rehearsal.

The pipeline and the script are checked before the copy is made. Its questions are answered by the script,
else as the flow would answer itself.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from msgspec import Struct
from rich.console import Console
from rich.table import Table
from rich.text import Text

from handoffd.cli.asking import print_json
from handoffd.cli.story.copies import copy_project, new_folder, own_settings
from handoffd.cli.story.player import Asking, StoryFailed, private_daemon, progress
from handoffd.engine.wording import counted
from handoffd.errors import InvalidFile, Json, Problem, Refused, remedies
from handoffd.protocol.plan import Accept, Again, BackTo, Call, Plan, Scope, Task
from handoffd.rehearsal.script import (
    ANY_STEP,
    FLOW,
    PLAYS,
    STREAM,
    VARIABLE,
    BadScript,
    Flow,
    flow_of,
    parse,
)

if TYPE_CHECKING:
    from handoffd.entrance.place import Place

_F = TypeVar("_F", bound=Callable[..., Any])
_MOST_BYTES: Final = 96 * 1024
"""Of a script, which is handed on in an environment variable."""


def flow_options(command: _F) -> _F:
    """Add the options that a flow has beside the options of a story."""
    for option in reversed((
        click.option("--pipeline", metavar="NAME", help="Rehearse a flow of this pipeline, and no story."),
        click.option(
            "--param", "params", multiple=True, metavar="NAME=VALUE",
            help="A parameter of the pipeline. Repeat it for each entry of a list.",
        ),
        click.option("--params", "whole", metavar="JSON", help="Parameters as a JSON object."),
        click.option("--seed", type=int, help="Of the chance by which tasks are played (default: 1)."),
        click.option("--best", "play", flag_value="best", help="Each task comes to what is accepted."),
        click.option("--worst", "play", flag_value="worst", help="Each task is sent back while it can be."),
    )):  # fmt: skip
        command = option(command)
    return command


def rehearse_flow(
    place: Place, source: Path, script: Path | None, /, *, as_json: bool, pipeline: str, **chosen: Any
) -> None:
    """Rehearse a flow on a copy of a project, and tell how it went. Raises HandoffdError."""
    from handoffd.cli.flows.commands import object_in, texts_of
    from handoffd.cli.pipelines.lookup import shelf_of
    from handoffd.flow.flows import checked

    shelf = shelf_of(place, str(source))
    with remedies(str(source)):
        plan = shelf.loaded(shelf.named(pipeline)).plan
    told = script_of(script, plan, chosen["play"], chosen["seed"])
    params = checked(plan, object_in(chosen["whole"]), str(source), texts_of(chosen["params"]))
    given = {"pipeline": pipeline, "params": params}
    settings = own_settings()
    with new_folder() as base:
        copy_project(source, base / source.name, None)
    copy = str(base / source.name)
    progress.print(f"Rehearsing a flow of [bold]{pipeline}[/] in a copy: {copy}\n", soft_wrap=True)
    played = play_flow(copy, plan, given, base=base, settings=settings, script=told)
    tell_flow(played, as_json=as_json)
    if not as_json:
        click.echo(f"\nThe copy: {copy}\nThe daemon's log: {played.log}")


def script_of(file: Path | None, plan: Plan, play: str | None, seed: int | None) -> str:
    """Return what the rehearsal plays by: the script of a person, played as the options say.

    Raises InvalidFile.
    """
    found: dict[str, Any] = {}
    if file is not None:
        found = dict(parse(_checked(file, plan), str(file)))
    flow = {"seed": 1, "play": PLAYS[0], **dict(found.get(FLOW, {}))}
    flow |= {name: value for name, value in (("play", play), ("seed", seed)) if value is not None}
    return json.dumps({**found, FLOW: flow})


def _checked(file: Path, plan: Plan) -> str:
    name = str(file.absolute())
    with remedies("/"):
        try:
            text = file.read_text("utf-8", "replace")
            script = parse(text, name)
        except OSError as error:
            raise InvalidFile((Problem(file=name, message=f"cannot be read ({error.strerror})"),)) from error
        except BadScript as bad:
            problem = Problem(
                file=bad.file, line=bad.line, key=bad.key, message=bad.message, allowed=bad.allowed
            )
            raise InvalidFile((problem,)) from None
        if len(text.encode()) > _MOST_BYTES:
            raise InvalidFile((Problem(file=name, message=f"is larger than {_MOST_BYTES // 1024} KiB"),))
        places = tuple(_places(plan.root))
        known = {*places, *(one.rpartition("/")[2] for one in places), ANY_STEP, FLOW, STREAM}
        unknown = [key for key in script if key not in known and place_of(key) not in known]
        if unknown:
            problem = Problem(file=name, key=min(unknown), message="is not a task", allowed=places)
            hint = f"handoffd pipeline show {quote(plan.name)}"
            raise InvalidFile((problem,), hint=hint)
    return text


def _places(scope: Scope, around: str = "") -> Iterator[str]:
    """Yield where each task of a plan is, groups before what is in them."""
    for name in scope.order:
        place = f"{around}/{name}".lstrip("/")
        yield place
        if (inner := scope.tasks[name].inner) is not None:
            yield from _places(inner, place)


# --- playing--------------------
LOOK_S: Final = 0.1
STUCK_S: Final = 120.0
"""After this long without any change nothing is waited for any longer; longer than a script may sleep."""
BY: Final = "rehearse"
_MARKS: Final[Mapping[str, tuple[str, str]]] = {
    "accepted": ("✓", "green"),
    "asking": ("?", "yellow"),
    "dead": ("✗", "red"),
    "dropped": ("–", "red"),
}
_QUIET: Final = frozenset({"open", "waiting", "unreached", "skipped"})


class PlayedFlow(Struct, frozen=True, kw_only=True):
    """How a flow went. `told` is the daemon's answer about it, `answers` what its questions were answered."""

    project: str
    told: Json
    answers: tuple[Json, ...]
    seconds: float
    log: Path
    stuck: bool = False

    @property
    def json(self) -> Json:
        """The same for programs."""
        told = self.told
        keys = ("flow", "pipeline", "params", "ended", "waits_for", "counts", "ways_back", "nodes")
        return {
            "type": "played_flow",
            "project": self.project,
            **{key: told[key] for key in keys},
            "openings": told["used"]["starts"],
            "answers": list(self.answers),
            "seconds": round(self.seconds, 1),
            "log": str(self.log),
        }


# --- answers ------------------------------------------------------------------------------------------
class Answers:
    """What is answered: by the script, else what a flow left alone would answer; `worst` takes ways back."""

    def __init__(self, plan: Plan, script: Flow) -> None:
        self._plan = plan
        self._script = script
        self._asked: Counter[str] = Counter()

    def to(self, question: Json, pipeline: str) -> str:
        """Return the choice for a question of the flow, or of one that works on a task of it."""
        node = str(question["node"])
        choices = [str(one["choice"]) for one in question["choices"]]
        self._asked[f"{pipeline} {node}"] += 1
        number = self._asked[f"{pipeline} {node}"]
        names = (node, place_of(node), place_of(node).rpartition("/")[2])
        said = next((self._script.answers[one] for one in names if one in self._script.answers), None)
        if isinstance(said, list):
            said = said[number - 1] if number <= len(said) else None
        usual = question["default"] or choices[0]
        if said is not None or not node or question["hold"] or pipeline != self._plan.name:
            return str(said or usual)
        return self._liked(self._task(node), choices, usual)

    def _liked(self, task: Task, choices: list[str], usual: str) -> str:
        by_itself = task.question.auto if task.question is not None else None
        usual = by_itself if by_itself in choices else usual
        kinds = {"worst": (BackTo, Call, Again), "best": (Accept, Again)}.get(self._script.play, ())
        liked = [one for one in choices if isinstance(task.outcomes[one][0], kinds)]
        return usual if usual in liked or not liked else liked[0]

    def _task(self, node: str) -> Task:
        """Return the task of a node; the id of one that was called begins with its caller's."""
        scope, task = self._plan.root, None
        for name in place_of(node).split("/"):
            task = scope.tasks[name]
            scope = task.inner or scope
        assert task is not None
        return task


def place_of(node: str) -> str:
    """Return where the plan has a node: without the items of lists."""
    return re.sub(r"\[[^\]]*\]", "", node)


# --- playing ------------------------------------------------------------------------------------------
class Flowline:
    """One flow on one daemon, watched and answered until it ends."""

    def __init__(
        self,
        client: Asking,
        flow: str,
        project: str,
        answers: Answers,
        console: Console = progress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self.flow = flow
        self._project = project
        self._answers = answers
        self._console = console
        self._clock = clock
        self._seen: dict[str, tuple[object, ...]] = {}
        self.answered: list[Json] = []
        self.stuck = False

    def follow(self) -> Json:
        """Return the flow as it is in the end, or when nothing more happens to it."""
        began = changed = self._clock()
        while True:
            told = self._client.get("/v1/flow", flow=self.flow, project=self._project)
            if self._tell(told, self._clock() - began):
                changed = self._clock()
            if told["ended"] is not None:
                return told
            for flow in self._client.get("/v1/flows", project=self._project)["flows"]:
                for question in flow["questions"]:
                    self._answer(flow, question)
            if self._clock() - changed > STUCK_S or told["state"] in {"paused", "unsound"}:
                self.stuck = True
                return told
            time.sleep(LOOK_S)

    def _tell(self, told: Json, seconds: float) -> bool:
        """Print what has changed since the last time; return whether anything has."""
        changed = False
        for node in told["nodes"]:
            is_now = (node["state"], node["visit"], node["outcome"], node["waits"])
            if self._seen.get(node["node"]) == is_now:
                continue
            self._seen[node["node"]], changed = is_now, True
            if node["state"] not in _QUIET or node["waits"]:
                self._console.print(_line(node, seconds), soft_wrap=True)
        return changed

    def _answer(self, flow: Json, question: Json) -> None:
        choice = self._answers.to(question, flow["pipeline"])
        body = {
            "project": self._project, "flow": flow["flow"], "node": question["node"],
            "visit": question["visit"], "choice": choice, "by": BY,
        }  # fmt: skip
        said = self._client.post("/v1/verbs/flow_answer", body)
        if said["type"] == "error":
            raise Refused(f"{question['node']}: {said['message']}", code=said["code"])
        self.answered.append({"node": question["node"], "visit": question["visit"], "choice": choice})


def play_flow(
    project: str, plan: Plan, given: Json, *, base: Path, settings: Mapping[str, Any], script: str
) -> PlayedFlow:
    """Return how a flow went on a private daemon that keeps its records below `base`.

    `given` are the arguments of its start, `script` what the rehearsal plays by.
    """
    answers = Answers(plan, flow_of(parse(script, VARIABLE)))
    progress.print(f"Starting a daemon for this alone; it writes {base / 'daemon.log'}", soft_wrap=True)
    with private_daemon(base, settings, {VARIABLE: script}) as client:
        began = time.monotonic()
        started = client.post("/v1/verbs/flow_start", {"project": project, "by": BY, **given})
        if started["type"] == "error":
            raise Refused(started["message"], code=started["code"], hint=started.get("hint"))
        line = Flowline(client, started["flow"], project, answers)
        told = line.follow()
        seconds = time.monotonic() - began
    return PlayedFlow(
        project=project, told=told, answers=tuple(line.answered), seconds=seconds, stuck=line.stuck,
        log=base / "daemon.log",
    )  # fmt: skip


# --- telling ------------------------------------------------------------------------------------------
def tell_flow(played: PlayedFlow, *, as_json: bool) -> None:
    """Print how a flow went. Raises StoryFailed unless it succeeded."""
    ended = played.told["ended"]
    if not as_json:
        Console().print(table_of(played.told))
        click.echo("\n".join(_sums(played)))
    if ended != "succeeded":
        why = f"is stuck: {played.told['waits_for']}" if played.stuck else f"has ended: {ended}"
        message = f"{played.told['flow']} {why}"
        hint = f"less {quote(str(played.log))}"
        raise StoryFailed(message, hint=hint, details=played.json, code="FLOW_STOPPED")
    if as_json:
        print_json(played.json)


def table_of(told: Json) -> Table:
    """Return a flow's tasks as a table for people."""
    table = Table(title=None, header_style="bold")
    for name in ("task", "visit", "state", "outcome", "handed over"):
        table.add_column(name, justify="right" if name == "visit" else "left")
    for node in told["nodes"]:
        mark, style = _MARKS.get(node["state"], ("·", "dim"))
        state = Text(f"{mark} {node['state']}", style=style)
        handed = ", ".join(_handed_over(node))
        table.add_row(node["node"], str(node["visit"] or ""), state, node["outcome"] or "", handed)
    return table


def _handed_over(node: Json) -> Iterator[str]:
    yield from (path.rpartition("/")[2] for path in node["files"])
    for name, value in node["fields"].items():
        yield f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"


def _sums(played: PlayedFlow) -> Iterator[str]:
    told = played.told
    states = ", ".join(f"{count} {state}" for state, count in sorted(told["counts"].items()))
    openings = counted(told["used"]["starts"], "opening")
    end = told["ended"] or "not ended"
    yield f"{told['flow']}: {end}; {states}; {openings}; {played.seconds:.1f} s"
    for one in played.answers:
        yield f"  answered {one['node'] or 'the flow'}: {one['choice']}"
    for back in told["ways_back"]:
        if back["used"]:
            yield f"  {back['node']} {back['outcome']}: {back['used']} of {back['at_most']} to {back['to']}"


def _line(node: Json, seconds: float) -> Text:
    """Return the line of a task."""
    mark, style = _MARKS.get(node["state"], ("…", "dim"))
    visit = f", visit {node['visit']}" if node["visit"] > 1 else ""
    said = node["waits"] or node["outcome"] or node["why"] or node["state"]
    return Text(f"  {seconds:5.1f} s  {mark} {node['node']:<32}", style=style).append(
        f" {said}{visit}", "default"
    )
